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


@kernel
def choose_observed_wait(
    shape: WindowShape,
    known: tuple[Int, Int, Float],
    required: float,
    bounds: tuple[int, int, int],
) -> tuple[int, float]:
    """Return a wait in steps and its expected recall.

    `known` has the histogram of delays and the sum of skews by stream, and the results by the wait that they needed.
    `bounds` are the shortest and the longest permitted wait, and the common wait of all buckets or -1. Without a common
    wait, the target is the shortest sufficient wait, or the longest wait that makes a difference.
    """
    histogram, skews_us, observed = known
    shortest, longest, agreed = bounds
    largest, rows, nothing = largest_bins(histogram), np.zeros(histogram.shape[0], np.int64), np.zeros(0)
    for i in range(histogram.shape[0]):
        for d in range(largest[i] + 1):
            rows[i] += histogram[i, d]
    model = build_model(shape, histogram, largest, sync_of(skews_us, rows), nothing, nothing)
    last_result = last_nonzero(observed)
    upto = np.cumsum(observed[: max(last_result, 0) + 1])
    target = agreed
    if agreed < 0:
        target = search_least(model, upto, PRIOR, max(model.last + 1, last_result), required)[0]
    wait = min(max(target, shortest), longest)
    return wait, recall_at(model, upto, PRIOR, wait)


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
        known = self._close_interval(intervals)
        grain_us, steps = self.quality.grain_us, intervals * self.quality.steps
        now, agreed = self.wait_us // grain_us, -1 if agreed_us is None else agreed_us // grain_us
        statistics = (known.histogram, known.skews_us, known.observed)
        wait, self.estimated = choose_observed_wait(
            self.shape, statistics, self.required, (now - steps, now + steps, agreed)
        )
        # An interpreted kernel returns a NumPy number, which JSON does not write.
        self.wait_us, self.estimated = int(wait) * grain_us, float(self.estimated)

    def statistics(self) -> DelayStatistics:
        """Return the statistics of this wait, right after an interval has ended."""
        return DelayStatistics(
            self.observed, self.delays.histogram, skew_sums(self.delays), float(self.monitor.true.sum())
        )

    def _close_interval(self, intervals: int) -> DelayStatistics:
        produced, true = self.sizes.tolist()
        expired = min(true / MIN_RESULTS, intervals * self.quality.every_us / self.quality.over_us)
        if true:
            self.observed *= math.exp(-expired)
            self.observed += self.fresh
            self.fresh[:], self.sizes[:] = 0.0, 0.0
        self.note_sizes(intervals, produced, true)
        known = self.statistics()
        self.required = required_recall(self.quality, known.true)
        return known

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
