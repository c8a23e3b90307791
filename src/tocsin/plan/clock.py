"""The clock of a bucket: stream time that one odd clock does not move, by the rows alone.

Idea: the time of a bucket is the median event time of each `BLOCK` rows in order of arrival. A clock in the future
moves it no more than one that stands still, and after a burst from the future it goes back. `steady` is for what cannot
go back: it moves with the clock, never backwards, and by no more than `leap_us` at once.
Guarantee: any cut into calls gives the same times for the same rows.
Cost: one median per block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.logic import NEVER_SEEN, Int

BLOCK = 33


def block_medians(times: Int) -> tuple[list[int], Int]:
    """The median of each whole block of times, and the times that are left over."""
    whole = len(times) // BLOCK * BLOCK
    medians = np.median(times[:whole].reshape(-1, BLOCK), axis=1)
    return [int(middle) for middle in medians.tolist()], times[whole:]


class Clock:
    """Rows that wait for their block, the time of the last block, and the steady time."""

    def __init__(self, leap_us: int) -> None:
        self.leap_us = leap_us
        self.recent = np.zeros(0, np.int64)
        self.time_us = self.steady_us = NEVER_SEEN

    def take(self, time: Int) -> Int:
        """Take the times of rows in order of arrival; give the steady time at each."""
        if len(time) and self.time_us == NEVER_SEEN:
            self.time_us = self.steady_us = int(time[0])
        before = len(self.recent)
        medians, self.recent = block_medians(np.concatenate([self.recent, time]))
        steady = np.empty(len(medians) + 1, np.int64)
        steady[0] = self.steady_us
        for i, middle in enumerate(medians, 1):
            self.steady_us += min(max(middle - self.time_us, 0), self.leap_us)
            self.time_us, steady[i] = middle, self.steady_us
        return steady[np.arange(before + 1, before + len(time) + 1) // BLOCK]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        return {"clock.times": np.array([self.time_us, self.steady_us]), "clock.recent": self.recent}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """State that was written."""
        self.time_us, self.steady_us = (int(time) for time in arrays["clock.times"])
        self.recent = arrays["clock.recent"]
