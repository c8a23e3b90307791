"""Utility models of Retention: expected results of rows, memory curves, sampling errors, and memory allocation."""
