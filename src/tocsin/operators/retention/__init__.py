"""Retention: the row store of an input, and the rows that it omits."""
