"""Observed wait: the shortest wait that finds a share of the results in order, chosen from the delays of results.

Algorithm: a rule joins late rows too, so for each result the wait that it needed is known: the delay minus the skew of
the row that completed it. With a wait of K the result is in order if it needed at most K. The share of these results is
the recall by K. It covers every dependency between delays and values.

- The policy retains the results of at least the last period and at least the last `MIN_RESULTS` results, with
  exponentially decreasing weights. Alarms can be rare.
- The delays of all rows count in addition (strategy EqSel), with the weight of `PRIOR` results.
- The required recall is above the target, because the recall of a period varies. The margin is one standard deviation
  of the recall of as many results as the last period had. It is between the shares `MIN_MARGIN` and `MAX_MARGIN` of the
  distance from the target to 1. A shortfall of the last period is not compensated. With few results it is
  chance, and K would follow it.

Guarantees: an estimate, like Algorithm 3 of the paper. Without results the wait is equal to EqSel. With a target of 1
the wait is not shorter than the largest retained need. The recall by K does not decrease, so bisection finds the
shortest wait. Batch boundaries do not change the wait.

Complexity: O(1) per row; O(streams * largest delay) per interval. The state has one number per step of the wait.

References: an alternative to Eq. 6 of Ji et al., ICDE 2016. Eq. 2 to 5 are used without results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.operators.reorder.buffer_size import recall_at, search_least
from tocsin.operators.reorder.delay_statistics import skew_sums, sync_of
from tocsin.operators.reorder.productivity import coarse_delay
from tocsin.operators.reorder.recall_model import WindowShape, build_model
from tocsin.operators.reorder.wait_policy import DelayStatistics, RecallConfig, RecallWait
from tocsin.runtime.contract import Bools, Float, Int

# Results that are retained at least, and the weight of the delays of all rows in results.
MIN_RESULTS, PRIOR = 1000.0, 20.0
# Margin of the required recall above the target, as shares of the distance to 1.
MIN_MARGIN, MAX_MARGIN = 0.25, 0.5
_NOTHING = np.zeros(0)
# Positions in `sizes`.
_PRODUCED, _TRUE = 0, 1


@kernel
def add_results(
    fresh: Float, sizes: Float, grain_us: int, delay_us: Int, skew_us: Int, results: Float, in_order: Bools
) -> None:
    """Add the results of rows to the wait that they needed, in steps. Ignore rows that no permitted wait can save."""
    for row in range(delay_us.shape[0]):
        need = coarse_delay(delay_us[row] - skew_us[row], grain_us)
        if results[row] > 0 and need < fresh.shape[0]:
            fresh[need] += results[row]
            sizes[_TRUE] += results[row]
            sizes[_PRODUCED] += results[row] if in_order[row] else 0.0


@kernel
def last_nonzero(numbers: Float) -> int:
    """Return the position of the last number that is not 0, or -1."""
    at = numbers.shape[0] - 1
    while at >= 0 and numbers[at] == 0:
        at -= 1
    return int(at)


@kernel
def largest_bins(histograms: Int) -> Int:
    """Return the last used bin of each histogram, or -1."""
    largest = np.empty(histograms.shape[0], np.int64)
    for i in range(histograms.shape[0]):
        at = histograms.shape[1] - 1
        while at >= 0 and histograms[i, at] == 0:
            at -= 1
        largest[i] = at
    return largest


def required_recall(quality: RecallConfig, true: float) -> float:
    """Return the recall to aim at. Below `enough` results in the last period it is the target."""
    if true < quality.enough:
        return quality.recall
    lack = 1.0 - quality.recall
    deviation = math.sqrt(quality.recall * lack / true)
    return quality.recall + min(max(deviation, MIN_MARGIN * lack), MAX_MARGIN * lack)


class RecallByWait:
    """Expected recall by wait.

    Attributes
    ----------
    model
        Recall model of the delays of all rows.
    upto
        Number of results by the wait that they needed, cumulative.
    last
        Longest wait in steps that makes a difference.
    """

    def __init__(self, shape: WindowShape, known: DelayStatistics) -> None:
        largest = largest_bins(known.histogram)
        sync_us = sync_of(known.skews_us, known.histogram[:, : int(largest.max()) + 1].sum(axis=1))
        self.model = build_model(shape, known.histogram, largest, sync_us, _NOTHING, _NOTHING)
        last_result = int(last_nonzero(known.observed))
        self.upto = np.cumsum(known.observed[: max(last_result, 0) + 1])
        self.last = max(self.model.last + 1, last_result)

    def least(self, required: float) -> int:
        """Return the shortest sufficient wait in steps, or the longest wait that makes a difference."""
        return int(search_least(self.model, self.upto, PRIOR, self.last, required)[0])

    def at(self, wait: int) -> float:
        """Return the expected recall of a wait in steps."""
        return float(recall_at(self.model, self.upto, PRIOR, wait))


class ObservedWait(RecallWait):
    """Shortest wait that finds a share of the results in order."""

    def __init__(self, quality: RecallConfig, windows_us: Sequence[int]) -> None:
        super().__init__(quality, windows_us)
        self.observed, self.fresh, self.sizes = np.zeros(quality.bins), np.zeros(quality.bins), np.zeros(2)

    def note_results(self, delay_us: Int, skew_us: Int, cross: Float, results: Float, in_order: Bools) -> None:
        """Add the results of released rows, in order or not."""
        add_results(self.fresh, self.sizes, self.quality.grain_us, delay_us, skew_us, results, in_order)

    def adapt(self, intervals: int = 1, agreed_us: int | None = None) -> None:
        """Choose the wait for the next interval. It moves towards `agreed_us`, if it is set, at the same speed."""
        recalls = self._close_interval(intervals)
        target = recalls.least(self.required) if agreed_us is None else agreed_us // self.quality.grain_us
        now, steps = self.wait_us // self.quality.grain_us, intervals * self.quality.steps
        wait = min(max(target, now - steps), now + steps)
        self.estimated = recalls.at(wait)
        # An interpreted kernel returns a NumPy number, which JSON does not write.
        self.wait_us = int(wait) * self.quality.grain_us

    def statistics(self) -> DelayStatistics:
        """Return the statistics of this wait, right after an interval has ended."""
        return DelayStatistics(
            self.observed, self.delays.histogram, skew_sums(self.delays), float(self.monitor.true.sum())
        )

    def _close_interval(self, intervals: int) -> RecallByWait:
        produced, true = self.sizes.tolist()
        expired = min(true / MIN_RESULTS, intervals * self.quality.every_us / self.quality.over_us)
        if true:
            self.observed *= math.exp(-expired)
            self.observed += self.fresh
            self.fresh[:], self.sizes[:] = 0.0, 0.0
        self.note_sizes(intervals, produced, true)
        known = self.statistics()
        self.required = required_recall(self.quality, known.true)
        return RecallByWait(self.shape, known)

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays."""
        end = int(last_nonzero(self.observed + self.fresh)) + 1
        own = {"observed": self.observed[:end], "fresh": self.fresh[:end], "seen": self.sizes}
        return super().state_arrays() | {name: array.copy() for name, array in own.items()}

    def restore_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read the arrays of `state_arrays`."""
        super().restore_state(arrays)
        if self.fits(arrays):
            self.observed[: len(arrays["observed"])] = arrays["observed"]
            self.fresh[: len(arrays["fresh"])] = arrays["fresh"]
            self.sizes = arrays["seen"].copy()
