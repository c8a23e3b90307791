"""Reduction at the emitter: lines in, the lines that some alarm may need out. Needs NumPy, never imports Numba.

    bytes → lines → rows → reducer (a track per key, a ledger for all) → outbox → bytes

`loop` binds the parts to file descriptors, signals and the clock; nothing else here knows of them.
"""
