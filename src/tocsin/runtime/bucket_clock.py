"""Bucket clock: stream time of a bucket, computed from its rows and robust against single wrong device clocks.

Algorithm: the bucket time is the median event time of each block of `BLOCK` rows in arrival order. After a block it
advances with each row at the expected speed of the next block. Without this step the bucket time would be half a block
old, which is too much for windows of few rows. The slower of the last two blocks determines the speed, so that a pause
between two rows does not change it. The bucket time can move backwards after a burst of rows with future times. The
*steady time* follows the bucket time but never moves backwards. It advances by at most `max_step_us` per block.

Guarantees: batch boundaries change no time. A device clock in the future has no more effect than a stopped one.

Complexity: one median per block.

The caller is `plan/retention_budget.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import NEVER_SEEN, Int

BLOCK = 33


def block_medians(times: Int) -> tuple[list[int], Int]:
    """Return the median of each complete block of times, and the remaining times."""
    whole = len(times) // BLOCK * BLOCK
    return np.sort(times[:whole].reshape(-1, BLOCK), axis=1)[:, BLOCK // 2].tolist(), times[whole:]


class BucketClock:
    """Clock of one bucket.

    Attributes
    ----------
        max_step_us: Maximum step of the steady time per block.
        recent: Times of the rows of the incomplete block.
        time_us: Median of the last block.
        steady_us: Steady time at the last row.
        moved_us: Steady time at the end of the last block.
        step_us: Step of the last block.
        pace_us: Expected step of the next block.
    """

    def __init__(self, max_step_us: int) -> None:
        self.max_step_us = max_step_us
        self.recent = np.zeros(0, np.int64)
        self.time_us = self.steady_us = NEVER_SEEN
        self.moved_us = self.step_us = self.pace_us = 0

    def advance(self, time: Int) -> Int:
        """Process the times of rows in arrival order, and return the steady time at each row."""
        if len(time) and self.time_us == NEVER_SEEN:
            self.time_us = self.steady_us = self.moved_us = int(time[0])
        rows = np.arange(len(self.recent) + 1, len(self.recent) + len(time) + 1)
        medians, self.recent = block_medians(np.concatenate([self.recent, time]))
        moved, pace = [self.moved_us], [self.pace_us]
        for middle in medians:
            step, self.time_us = min(max(middle - self.time_us, 0), self.max_step_us), middle
            self.pace_us, self.step_us = min(step, self.step_us), step
            self.moved_us += step
            moved.append(self.moved_us)
            pace.append(self.pace_us)
        block = rows // BLOCK
        ahead = _time_since_median(np.array(pace)[block], rows % BLOCK)
        steady = np.maximum.accumulate(np.concatenate([[self.steady_us], np.array(moved)[block] + ahead]))
        self.steady_us = int(steady[-1])
        return steady[1:]

    @property
    def now_us(self) -> int:
        """Bucket time at the last row."""
        return self.time_us + int(_time_since_median(np.array(self.pace_us), np.array(len(self.recent))))

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays."""
        times = [self.time_us, self.steady_us, self.moved_us, self.step_us, self.pace_us]
        return {"clock.times": np.array(times), "clock.recent": self.recent}

    def restore_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the state from arrays. The arrays of early versions have only two times."""
        self.time_us, self.steady_us, *rest = arrays["clock.times"].tolist()
        self.moved_us, self.step_us, self.pace_us = rest or (self.steady_us, 0, 0)
        self.recent = arrays["clock.recent"]


def _time_since_median(pace_us: Int, rows: Int) -> Int:
    """Return the time from the median of a block to the row with this number after the end of the block."""
    return np.asarray(pace_us * (rows + BLOCK // 2) // BLOCK, np.int64)
