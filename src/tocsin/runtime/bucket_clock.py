"""The clock of a bucket: stream time that one odd clock does not move, by the rows alone.

Idea: the time of a bucket is the median event time of each `BLOCK` rows in order of arrival. From there it goes on row
by row, as fast as blocks do: a median is half a block old when its block is whole, and windows of few rows notice that.
A clock in the future moves it no more than one that stands still, and after a burst from the future it goes back. Of
the last two blocks the slower one counts, so that a silence between two rows is no pace. `steady` is for what cannot
go back: it moves with the clock, never backwards, and by no more than `leap_us` at once.
Guarantee: any cut into calls gives the same times for the same rows.
Cost: one median per block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import NEVER_SEEN, Int

BLOCK = 33


def block_medians(times: Int) -> tuple[list[int], Int]:
    """The median of each whole block of times, and the times that are left over."""
    whole = len(times) // BLOCK * BLOCK
    return np.sort(times[:whole].reshape(-1, BLOCK), axis=1)[:, BLOCK // 2].tolist(), times[whole:]


class Clock:
    """Rows that wait for their block, the time of the last block, and the steady time."""

    def __init__(self, leap_us: int) -> None:
        self.leap_us = leap_us
        self.recent = np.zeros(0, np.int64)
        self.time_us = self.steady_us = NEVER_SEEN
        # How far blocks have moved the steady time, the last block alone, and how far the next one is thought to.
        self.moved_us = self.step_us = self.pace_us = 0

    def take(self, time: Int) -> Int:
        """Take the times of rows in order of arrival; give the steady time at each."""
        if len(time) and self.time_us == NEVER_SEEN:
            self.time_us = self.steady_us = self.moved_us = int(time[0])
        rows = np.arange(len(self.recent) + 1, len(self.recent) + len(time) + 1)
        medians, self.recent = block_medians(np.concatenate([self.recent, time]))
        moved, pace = [self.moved_us], [self.pace_us]
        for middle in medians:
            step, self.time_us = min(max(middle - self.time_us, 0), self.leap_us), middle
            self.pace_us, self.step_us = min(step, self.step_us), step
            self.moved_us += step
            moved.append(self.moved_us)
            pace.append(self.pace_us)
        block = rows // BLOCK
        ahead = _ahead(np.array(pace)[block], rows % BLOCK)
        steady = np.maximum.accumulate(np.concatenate([[self.steady_us], np.array(moved)[block] + ahead]))
        self.steady_us = int(steady[-1])
        return steady[1:]

    @property
    def now_us(self) -> int:
        """The time at the last row that came."""
        return self.time_us + int(_ahead(np.array(self.pace_us), np.array(len(self.recent))))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        times = [self.time_us, self.steady_us, self.moved_us, self.step_us, self.pace_us]
        return {"clock.times": np.array(times), "clock.recent": self.recent}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """State that was written; that of earlier versions has no pace."""
        self.time_us, self.steady_us, *rest = arrays["clock.times"].tolist()
        self.moved_us, self.step_us, self.pace_us = rest or (self.steady_us, 0, 0)
        self.recent = arrays["clock.recent"]


def _ahead(pace_us: Int, rows: Int) -> Int:
    """How far time has gone on since the median of a block, so many rows after its end."""
    return np.asarray(pace_us * (rows + BLOCK // 2) // BLOCK, np.int64)
