"""Bought: what the units of an anytime join found of what there was to find, judged block by block of arrivals.

Idea: at the end of a block it is known how many rows went without having been worked on, how many results were to be
expected (the pairs of each row, times the results that pairs of its key give) and how many were found, and whether the
join was idle at some moment: then it had caught up. Of the results of the next block all are promised only if nothing
was lost for a window and the join does not lag behind.
A row is out of order if it is older than the newest row of the bucket. Its partners differ from the partners that the
time of the bucket suggests, so the number of expected results is wrong for a window. In this time the share of results
is not known, and blocks do not count for later estimates. The share needs at least one result.
Guarantee: blocks end at numbers of rows, so any cut into calls gives the same judgements.
Cost: O(1) per block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import NEVER_SEEN, Int
from tocsin.runtime.metrics import QualityLoss

# A block has so many rows; the first ones are shorter.
BLOCK = 1024
_FIRST = 16
# After a block, what was counted before it counts for this much.
KEEP = 0.9
# Places in `order`: bucket time of the last row, event time of the newest, bucket time of the last row out of order.
_ELAPSED, _NEWEST, _DISORDER = range(3)


def block_ends(begin: int, end: int) -> Int:
    """The numbers of rows after which a block ends, among rows from `begin` to `end`.

    >>> block_ends(10, 600).tolist()
    [16, 32, 64, 128, 256, 512]
    """
    first = [_FIRST << i for i in range(BLOCK.bit_length()) if _FIRST << i < BLOCK]
    whole = range(-(-max(begin + 1, 1) // BLOCK) * BLOCK, end + 1, BLOCK)
    return np.array([n for n in (*first, *whole) if begin < n <= end], np.int64)


class Totals(NamedTuple):
    """What a join has done so far: rows that went, those not worked on, results expected and found, idle units.

    `given_up` are rows that will not be worked on to the end, whether they have gone or not.
    """

    gone: float
    unprocessed: float
    expected: float
    found: float
    idle: float
    given_up: float


class Bought:
    """Recent counts, and when results were last lost or late."""

    def __init__(self, window_us: int, *, limited: bool) -> None:
        self.window_us, self.limited = window_us, limited
        self.before, self.recent = np.zeros(len(Totals._fields)), np.zeros(len(Totals._fields))
        self.lost_us = self.now_us = self.disorder_us = NEVER_SEEN
        self.order = np.full(3, NEVER_SEEN)

    def note_order(self, time: Int, elapsed: Int) -> None:
        """Find rows out of order among new rows, in order of arrival, by event time and time of the bucket.

        The time of the bucket moves with rows that are newer than all rows before, and with no other row.
        """
        order = self.order
        moved = np.diff(elapsed, prepend=order[_ELAPSED]) > 0
        times = np.concatenate([order[_NEWEST : _NEWEST + 1], time])
        newest = times[np.maximum.accumulate(np.where(moved, np.arange(1, len(times)), 0))]
        behind = np.flatnonzero(time != newest)
        order[_ELAPSED], order[_NEWEST] = elapsed[-1], newest[-1]
        order[_DISORDER] = elapsed[behind[-1]] if len(behind) else order[_DISORDER]

    @property
    def is_disordered(self) -> bool:
        """Whether, at the end of the last block, a row of the last window was out of order."""
        return self.disorder_us != NEVER_SEEN and self.now_us - self.disorder_us <= self.window_us

    def judge(self, totals: Totals, elapsed_us: int) -> None:
        """Learn what was done in a block that ends at this time."""
        self.now_us, self.disorder_us = elapsed_us, int(self.order[_DISORDER])
        gained = np.array(totals) - self.before
        if self.is_disordered:
            gained[[Totals._fields.index(name) for name in ("expected", "found")]] = 0.0
        self.recent, self.before = self.recent * KEEP + gained, np.array(totals)
        one = Totals(*gained.tolist())
        if self.limited and (one.unprocessed > 0 or one.given_up > 0 or one.idle == 0):
            self.lost_us = elapsed_us

    @property
    def loss(self) -> QualityLoss | None:
        """Loss of results of the last window, or None if all results were found."""
        if self.lost_us == NEVER_SEEN or self.now_us - self.lost_us > self.window_us:
            return None
        return QualityLoss(self.lost_us + self.window_us, self.results)

    @property
    def results(self) -> float | None:
        """Estimated share of results found in the last blocks, or None if the estimate is not possible."""
        recent = Totals(*self.recent.tolist())
        if not self.limited:
            return 1.0
        if self.is_disordered or not recent.found or not recent.expected:
            return None
        return min(1.0, recent.found / recent.expected)

    @property
    def shares(self) -> tuple[float | None, float | None]:
        """The share of rows that was worked on of late, of those that went, and that of results."""
        recent = Totals(*self.recent.tolist())
        rows = 1.0 - recent.unprocessed / recent.gone if recent.gone > 0 else None
        caught_up = self.loss is None and self.now_us != NEVER_SEEN
        return rows, 1.0 if caught_up else self.results

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        times = np.array([self.lost_us, self.now_us, self.disorder_us])
        recent = {"bought.before": self.before, "bought.recent": self.recent}
        return recent | {"bought.times": times, "bought.order": self.order.copy()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """State that was written."""
        self.before, self.recent = arrays["bought.before"], arrays["bought.recent"]
        self.lost_us, self.now_us, self.disorder_us = arrays["bought.times"].tolist()
        self.order = arrays["bought.order"].copy()
