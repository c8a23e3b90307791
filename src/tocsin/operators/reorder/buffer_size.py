"""Buffer-Size Manager: the shortest wait with a sufficient recall, chosen at the end of each interval.

Algorithm: Gamma is the recall target for each period P. K is chosen every L, in steps g. Eq. 7 derives the requirement
for the next interval from the last P - L. Algorithm 3 tries K = 0, g, 2g, ... until the recall of the model is
sufficient or K exceeds the largest delay; this K is k*. With equal selectivities recall does not decrease in K, so
bisection finds k*. With selectivities by delay it can decrease, so every K is tried.

K must not follow chance. If the last interval had too few true results, K stays if P - L had enough. If P - L had too
few, delays alone decide (EqSel for Gamma). Otherwise K moves towards k* by at most a share of L. If K rose by more than
L at once, no row would be released until event time has caught up, no result would follow, and K would stay.

Guarantees: exactly k* of Algorithm 3 for recall and requirement in doubles, or the nearest permitted K. `estimated` is
the recall at k*, or the recall of EqSel if K is not k*. Waits are multiples of g, at most one step above the longest
delay.

Complexity: O(streams * largest delay) for the model, then O(streams * log(largest)) or O(streams * k*).

References: Ji et al., ICDE 2016, Algorithm 3 and section IV-C. Its "max{Gamma', 1}" is a clamp to [0, 1]. MaxD^H comes
from the histograms, so it is in steps. The paper does not define the case without true results, and does not limit the
change of K. Both are additions, and so is the strategy `measured` (`measured_wait`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.reorder.measured_wait import spread_recall
from tocsin.operators.reorder.recall_model import RecallModel, cross_recalls, selectivity_ratios
from tocsin.runtime.contract import Float

# Number of waits that are evaluated together.
_WAITS_PER_STEP = 256


@kernel
def recall_at(model: RecallModel, upto: Float, prior: float, wait: int) -> float:
    """Return the share of known results that need at most a wait. EqSel counts like `prior` further results.

    `upto` has the cumulative number of results by the wait that they need. Without results, EqSel decides alone.
    """
    known, whole, of_rows = upto[min(wait, upto.shape[0] - 1)], upto[-1], cross_recalls(model, wait, 1)[0]
    return float((known + prior * of_rows) / (whole + prior)) if whole > 0.0 else float(of_rows)


@kernel
def search_least(model: RecallModel, upto: Float, prior: float, last: int, required: float) -> tuple[int, float]:
    """Return the shortest wait up to `last` with a sufficient `recall_at`, and its recall."""
    low, high = 0, last
    while low < high:
        middle = (low + high) >> 1
        if recall_at(model, upto, prior, middle) < required:
            low = middle + 1
        else:
            high = middle
    return low, recall_at(model, upto, prior, low)


@kernel
def search_equal(model: RecallModel, required: float) -> tuple[int, float]:
    """Run Algorithm 3 with EqSel."""
    return search_least(model, np.zeros(1), 0.0, model.last + 1, required)


@kernel
def search_by_delay(model: RecallModel, required: float) -> tuple[int, float]:
    """Run Algorithm 3 with NonEqSel, one K after the other."""
    for first in range(0, model.last + 2, _WAITS_PER_STEP):
        count = min(_WAITS_PER_STEP, model.last + 2 - first)
        ratios = selectivity_ratios(model, first, count)
        # Recall without selectivities does not decrease, so the longest wait bounds the recall of all these waits.
        if first + count <= model.last and ratios.max() * cross_recalls(model, first + count, 1)[0] < required:
            continue
        recalls = ratios * cross_recalls(model, first, count)
        for n in range(count):
            if recalls[n] >= required or first + n > model.last:
                return first + n, recalls[n]
    # The last wait always ends the search.
    return model.last + 1, 1.0


def instant_recall(wanted: float, produced: float, true: float, true_next: float) -> float:
    """Return Gamma', the requirement for the next interval (Eq. 7), in [0, 1]; Gamma without true results."""
    if true_next <= 0.0:
        return min(max(wanted, 0.0), 1.0)
    return min(max((wanted * (true + true_next) - produced) / true_next, 0.0), 1.0)


class ResultMonitor(NamedTuple):
    """Result-Size Monitor: produced and true results of each interval in the last P - L, oldest first."""

    produced: Float
    true: Float


def new_monitor(over_us: int, every_us: int) -> ResultMonitor:
    """Return a monitor without results."""
    intervals = max(over_us // every_us - 1, 0)
    return ResultMonitor(np.zeros(intervals), np.zeros(intervals))


def add_interval(monitor: ResultMonitor, produced: float, true: float) -> None:
    """Replace the oldest interval by the interval that ended."""
    if len(monitor.true):
        for sizes, size in zip(monitor, (produced, true), strict=True):
            sizes[:-1] = sizes[1:]
            sizes[-1] = size


class WaitDecision(NamedTuple):
    """A wait in steps, its expected recall, and the required recall (NaN if the wait was kept)."""

    wait: int
    estimated: float
    required: float


def require_at_once(wanted: float, monitor: ResultMonitor, true: float) -> float:
    """Return the requirement of Eq. 7: the next interval compensates the last P - L."""
    return instant_recall(wanted, float(monitor.produced.sum()), float(monitor.true.sum()), true)


def require_spread(wanted: float, monitor: ResultMonitor, true: float) -> float:
    """Return a requirement with which many intervals compensate the others in P."""
    return spread_recall(wanted, monitor.produced, monitor.true)


class ModelStrategy(NamedTuple):
    """Parts of a strategy.

    Attributes
    ----------
    require
        Function of Gamma, the last P - L and the true results of the last interval that returns the required recall.
    search
        Function of the model and this recall that returns the wait in steps and its recall.
    counts_lost
        Whether lost results are counted instead of estimated, so that an interval without results is evidence too.
    """

    require: Callable[[float, ResultMonitor, float], float]
    search: Callable[[RecallModel, float], tuple[int, float]]
    counts_lost: bool = False


STRATEGIES = {
    "eqsel": ModelStrategy(require_at_once, search_equal),
    "noneqsel": ModelStrategy(require_at_once, search_by_delay),
    "measured": ModelStrategy(require_spread, search_equal, counts_lost=True),
}


def choose_wait(
    model: RecallModel,
    monitor: ResultMonitor,
    wait: int,
    *,
    true: float,
    wanted: float,
    strategy: ModelStrategy,
    enough: float,
    max_change: int,
) -> WaitDecision:
    """Return the wait of the next interval, from wait and true results of the last interval.

    The wait moves by at most `max_change` steps, unless delays alone decide.
    """
    require, search, counts_lost = strategy
    lasting = float(monitor.true.sum())
    if true >= enough or (counts_lost and lasting >= enough):
        required = require(wanted, monitor, true)
        found, estimated = search(model, required)
        near = min(max(found, wait - max_change), wait + max_change)
        return WaitDecision(near, estimated if near == found else _recall_by_delays(model, near), required)
    if lasting < enough:
        return WaitDecision(*search_equal(model, wanted), wanted)
    return WaitDecision(wait, _recall_by_delays(model, wait), float("nan"))


def _recall_by_delays(model: RecallModel, wait: int) -> float:
    return float(cross_recalls(model, wait, 1)[0])
