"""Stages: algorithms for CPU budgets (`promising`) and range requests (`ranges`)."""
