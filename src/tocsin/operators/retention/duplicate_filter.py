"""Duplicate filter: fingerprints of the last rows of each lane that a sample rejected.

Algorithm: a join evaluates one of several equal rows. A rejected row leaves nothing with which an equal row could be
recognized, so its results would be counted again. A ring has the 64-bit fingerprints of the last rejected rows, in the
order in which they left.

Guarantees: a row that equals one of the last rejected rows is a duplicate. Two different rows are taken for equal once
in 2^64 / ring size. The decision is made row by row, so batch boundaries do not change it.

Complexity: 8 bytes per fingerprint, O((n + ring size) log n) for n rows.
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Bools, Int


@kernel
def mark_rejected_again(newest: Int, of: Int, leaves: Bools, arrives: Bools, ring: int) -> Bools:
    """Mark the arriving rows that equal one of the last `ring` rejected rows, and add the rows that leave.

    `of` is the number of the fingerprint of each event; `newest` the position of the newest entry of each fingerprint,
    or -1. The ring has `ring` entries before the first event. An arriving duplicate is not added again.
    """
    again, entries = np.zeros(of.shape[0], np.bool_), ring
    for i in range(of.shape[0]):
        again[i] = arrives[i] and newest[of[i]] >= entries - ring
        if leaves[i] and not again[i]:
            newest[of[i]] = entries
            entries += 1
    return again


class DuplicateFilter:
    """Fingerprints of the last rejected rows of each lane, the oldest first; 0 where there were fewer."""

    def __init__(self, ring: int) -> None:
        self.marks = np.zeros((2, ring), np.int64)

    def process(self, lane: int, mark: Int, leaves: Bools, arrives: Bools) -> Bools:
        """Return which arriving rows are duplicates of rejected rows, and add the rows that leave.

        The events are in order: rows that arrive, and rows that leave. A row that is rejected does both.
        """
        if not len(mark):
            return np.zeros(0, np.bool_)
        ring = self.marks[lane]
        marks, of = np.unique(mark, return_inverse=True)
        place = np.minimum(np.searchsorted(marks, ring), len(marks) - 1)
        known, newest = np.flatnonzero(marks[place] == ring), np.full(len(marks), -1)
        newest[place[known]] = known
        again = mark_rejected_again(newest, of.reshape(-1), leaves, arrives, len(ring))
        added = mark[leaves & ~again]
        if len(added):
            self.marks[lane] = np.concatenate([ring, added])[len(added) :]
        return again

    def restore_state(self, stored: Int) -> None:
        """Restore fingerprints, as many as the ring has entries."""
        for lane in (0, 1):
            self.marks[lane] = np.concatenate([self.marks[lane], stored[lane]])[len(stored[lane]) :]
