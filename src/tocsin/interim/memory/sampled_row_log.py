"""Traces: which rows of a sampled join came lately and are not remembered, so that they are known if they come again.

Idea: a join takes equal rows for one. Of a row that was not chosen, or was thinned out, nothing would be left to know
an equal one by, and its results would be found and weighed again, as often as it comes. So a mark of 64 bits stays of
the last of them, in order of going.
Guarantee: a row that equals one of the last `room` that went brings nothing, as if that one were remembered; two rows
that differ are taken for equal once in 2^64 / room times. What comes again later than that is taken for new. That is
so row by row: those that go push older ones out at once, and cuts into calls do not show.
Cost: 8 bytes a mark; O((n + room) log n) to look for n rows.
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Bools, Int


@kernel
def known_again(newest: Int, of: Int, refused: Bools, room: int) -> Bools:
    """Tell row by row which marks are among the last `room` notes; note those that are refused and are not.

    `of` says which mark each row has, `newest` the number of the newest note of each (-1: none); `room` were before.
    """
    again, notes = np.empty(of.shape[0], np.bool_), room
    for row in range(of.shape[0]):
        again[row] = newest[of[row]] >= notes - room
        if refused[row] and not again[row]:
            newest[of[row]] = notes
            notes += 1
    return again


class Traces:
    """Marks of the last rows of each lane that went, the oldest first; 0 where there were fewer."""

    def __init__(self, room: int) -> None:
        self.marks = np.zeros((2, room), np.int64)

    def came_again(self, lane: int, mark: Int, refused: Bools) -> Bools:
        """Tell which new rows, in order of arrival, equal one that went; note those that are refused now."""
        if not len(mark):
            return np.zeros(0, np.bool_)
        noted = self.marks[lane]
        marks, of = np.unique(mark, return_inverse=True)
        place = np.minimum(np.searchsorted(marks, noted), len(marks) - 1)
        # Of several notes of a mark the newest, which is written last, stays.
        known, newest = np.flatnonzero(marks[place] == noted), np.full(len(marks), -1)
        newest[place[known]] = known
        again = known_again(newest, of.reshape(-1), refused, len(noted))
        self.note(lane, mark[refused & ~again])
        return again

    def note(self, lane: int, mark: Int) -> None:
        """Note rows that went."""
        if len(mark):
            self.marks[lane] = np.concatenate([self.marks[lane], mark])[len(mark) :]

    def load(self, stored: Int) -> None:
        """Take marks that were written, as many as there is room for."""
        for lane in (0, 1):
            self.note(lane, stored[lane])
