"""Interim CPU budgets: pipelines of promising tuples with rows, clock and pages of their own, and SQL selections."""
