"""The algorithms, in the order in which data meets them: order, reduce, join (with the condition inside), alert.

Beside them stand `memory` and `promising`, for what is short of memory or of time, and `ranges`.
"""
