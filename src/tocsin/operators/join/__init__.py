"""Join: combinations of retained rows that satisfy a condition."""
