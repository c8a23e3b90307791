"""Observed: a wait by the delays of the rows that gave results, where late rows are joined as well.

Idea: Algorithm 2 never joins a row that comes late, so what was lost has to be modelled. A threshold rule joins it all
the same, so of every result the delay of the row that gave it is known, whether it came in order or not. Under a wait
of K it is in order if that delay, less what its stream leads the others by, is at most K: the share of such results is
the recall by K, however delays and values hang together. Alarms are rare, so a thousand results are remembered, not
one interval; and until there are some, the delays of all rows stand for them (EqSel, worth `PRIOR` results).
What is required lies above Gamma by what chance alone does to the recall of as many results as P has, one standard
deviation, at most half the way to 1. What the last P lacked is not made up for: with few results that is chance, and K
would follow it.

Guarantee: an estimate, as Alg. 3 is; without results exactly EqSel for Gamma, and with Gamma = 1 no shorter than the
largest delay that gave a result. The share does not fall in K, so the least wait is found by bisection. The cut into
calls does not show.
Cost: O(1) per row; O(streams * largest delay) per interval; one number per bin of state.
Source: ours, in place of Eq. 6 of Ji et al., ICDE 2016, whose Eq. 2 to 5 it falls back to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.stages.order.buffer_size import recall_at, search_least
from tocsin.stages.order.delays import skew_sums, sync_estimates, sync_of
from tocsin.stages.order.productivity import coarse
from tocsin.stages.order.recall import Shape, build_model
from tocsin.stages.order.wait import RecallConfig, RecallWait, Statistics

# How many results are remembered, and how many the delays of all rows are worth beside them.
LASTING, PRIOR = 1000.0, 20.0
# How far above the recall wanted it may aim, as a share of the way to 1.
MOST_ABOVE = 0.5
_NOTHING = np.zeros(0)
# Places in `sizes`.
_PRODUCED, _TRUE = 0, 1


@kernel
def observe(
    fresh: Float, sizes: Float, grain_us: int, sync_us: Int, stream: Int, delay_us: Int, results: Float, in_order: Bools
) -> None:
    """Add what rows gave to the wait they need, in grains; a delay that cannot be waited for is not learnt from."""
    for row in range(stream.shape[0]):
        need = coarse(max(0, delay_us[row] - sync_us[stream[row]]), grain_us)
        if results[row] > 0 and need < fresh.shape[0]:
            fresh[need] += results[row]
            sizes[_TRUE] += results[row]
            sizes[_PRODUCED] += results[row] if in_order[row] else 0.0


def above_chance(wanted: float, results: float) -> float:
    """The recall to aim at so that so many results mostly have the one wanted."""
    return wanted + min(math.sqrt(wanted * (1.0 - wanted) / results), MOST_ABOVE * (1.0 - wanted))


class Recalls:
    """The recall by wait that statistics lead to expect."""

    def __init__(self, shape: Shape, known: Statistics) -> None:
        sync_us = sync_of(known.skews_us, known.histogram.sum(axis=1))
        largest = np.array([_last(rows) for rows in known.histogram])
        self.model = build_model(shape, known.histogram, largest, sync_us, _NOTHING, _NOTHING)
        self.upto = np.cumsum(known.observed)
        self.last = max(self.model.last + 1, _last(known.observed))

    def least(self, required: float) -> int:
        """The least wait, in grains, whose recall is enough; the longest that makes a difference if none is."""
        return int(search_least(self.model, self.upto, PRIOR, self.last, required)[0])

    def at(self, wait: int) -> float:
        """The recall of a wait in grains."""
        return float(recall_at(self.model, self.upto, PRIOR, wait))


def required_recall(quality: RecallConfig, true: float) -> float:
    """The recall to aim at: above the one wanted, once there are results enough to tell by how much."""
    return above_chance(quality.recall, true) if true >= quality.enough else quality.recall


def _last(numbers: Float | Int) -> int:
    """The place of the last number that is not 0, or -1."""
    used = np.flatnonzero(numbers)
    return int(used[-1]) if len(used) else -1


class ObservedWait(RecallWait):
    """The smallest wait that gives so many of the results in order."""

    def __init__(self, quality: RecallConfig, windows_us: Sequence[int]) -> None:
        super().__init__(quality, windows_us)
        self.observed, self.fresh = np.zeros(quality.bins), np.zeros(quality.bins)
        self.sync_us, self.sizes = np.zeros(len(windows_us), np.int64), np.zeros(2)

    def note_results(self, stream: Int, delay_us: Int, cross: Float, results: Float, in_order: Bools) -> None:
        """Learn of rows that were joined, in order or not, and what each gave."""
        grain_us = self.quality.grain_us
        observe(self.fresh, self.sizes, grain_us, self.sync_us, stream, delay_us, results, in_order)

    def adapt(self, intervals: int = 1, agreed_us: int | None = None) -> None:
        """End an interval, or several in which few rows came: choose the wait of the next one.

        Where a wait was agreed on elsewhere, it is that one; K moves there no faster than to one of its own.
        """
        recalls = self._end(intervals)
        found = recalls.least(self.required) if agreed_us is None else agreed_us // self.quality.grain_us
        now, steps = self.wait_us // self.quality.grain_us, intervals * self.quality.steps
        wait = min(max(found, now - steps), now + steps)
        self.estimated = recalls.at(wait)
        # An interpreted kernel returns a number of NumPy, which JSON does not write.
        self.wait_us = int(wait) * self.quality.grain_us

    def statistics(self) -> Statistics:
        """What the wait is chosen by, right after an interval has ended."""
        histogram = self.delays.histogram
        return Statistics(self.observed, histogram, skew_sums(self.delays), float(self.monitor.true.sum()))

    def _end(self, intervals: int) -> Recalls:
        produced, true = self.sizes.tolist()
        self.observed = self.observed * math.exp(-true / LASTING) + self.fresh
        self.fresh[:], self.sizes[:] = 0.0, 0.0
        self.sync_us = sync_estimates(self.delays)
        self.note_sizes(intervals, produced, true)
        known = self.statistics()
        self.required = required_recall(self.quality, known.true)
        return Recalls(self.shape, known)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State for pages."""
        end = _last(self.observed + self.fresh) + 1
        mine = {"observed": self.observed[:end], "fresh": self.fresh[:end], "sync": self.sync_us, "seen": self.sizes}
        return super().arrays() | {name: array.copy() for name, array in mine.items()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read what `arrays` wrote."""
        super().load(arrays)
        if self.fits(arrays):
            self.observed[: len(arrays["observed"])] = arrays["observed"]
            self.fresh[: len(arrays["fresh"])] = arrays["fresh"]
            self.sync_us, self.sizes = arrays["sync"].copy(), arrays["seen"].copy()
