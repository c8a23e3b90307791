"""Interim memory budgets: a keyed pipeline that sheds or samples rows, and the division of memory over buckets."""
