"""The algorithms, in the order in which data meets them: reduce, join (with the condition inside), alert."""
