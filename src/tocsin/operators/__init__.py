"""Operators of a keyed pipeline."""
