"""Fewer rows, same alerts."""
