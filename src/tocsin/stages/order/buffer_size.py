"""Buffer-Size Manager: the smallest wait whose recall is enough, chosen anew at the end of each interval.

Idea: Gamma is the recall wanted over each period P; K, the wait, is chosen anew every L, in grains g. What the next
interval must reach follows from what the last P - L reached (Eq. 7), and the wait from the model of recall: K = 0, g,
2g, ... until the recall is enough or K exceeds the largest delay seen (Alg. 3); that K is k*. With equal selectivities
recall does not fall in K, so K is found by bisection; with selectivities by delay it may, so every K is looked at in
turn. K must not swing with chance. Too few true results in the last interval are no evidence: if P - L had enough of
them K stays; if it had not (a cold start, a long silence), delays alone decide: EqSel for Gamma. Else K moves to k* by
at most a share of L (`pace`, a fifth). A leap up by more than L stops all output until time has caught up; no result
comes, K stays where it leapt to, and the average is close to the longest delay.

Guarantee: exactly the k* of Alg. 3, for a recall and a requirement in doubles, or as near to it as K may move;
`estimated` is the recall at k*, and where K was kept or held back, that of EqSel. Waits are multiples of the grain, and
at most one grain over the largest delay that was seen.
Cost: O(streams * largest delay) to build the model, then O(streams * log(largest)) or O(streams * k*).
Source: Ji et al., ICDE 2016, Alg. 3 and section IV-C, whose "max{Gamma', 1}" means a clamp to [0, 1]. MaxD^H is taken
from the histograms, so in grains. The paper does not say what to do without true results, and lets K leap; both answers
above are ours. So is `Measured`, a strategy with a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Float
from tocsin.stages.order.measured import spread_recall
from tocsin.stages.order.recall import Model, cross_recalls, selectivity_ratios

# How many waits are looked at together.
_STRETCH = 256


@kernel
def recall_at(model: Model, upto: Float, prior: float, wait: int) -> float:
    """The share of known results that need no longer wait, with that of rows (EqSel) for `prior` more results.

    `upto` adds up the results by the wait they need; where none is known, it is the share of rows alone.
    """
    known, whole, of_rows = upto[min(wait, upto.shape[0] - 1)], upto[-1], cross_recalls(model, wait, 1)[0]
    return float((known + prior * of_rows) / (whole + prior)) if whole > 0.0 else float(of_rows)


@kernel
def search_least(model: Model, upto: Float, prior: float, last: int, required: float) -> tuple[int, float]:
    """Find the least wait up to `last` whose `recall_at` is enough, and that recall: it does not fall, so bisect."""
    low, high = 0, last
    while low < high:
        middle = (low + high) >> 1
        if recall_at(model, upto, prior, middle) < required:
            low = middle + 1
        else:
            high = middle
    return low, recall_at(model, upto, prior, low)


@kernel
def search_equal(model: Model, required: float) -> tuple[int, float]:
    """Alg. 3 with EqSel."""
    return search_least(model, np.zeros(1), 0.0, model.last + 1, required)


@kernel
def search_by_delay(model: Model, required: float) -> tuple[int, float]:
    """Alg. 3 with NonEqSel, one K after the other."""
    for first in range(0, model.last + 2, _STRETCH):
        count = min(_STRETCH, model.last + 2 - first)
        ratios = selectivity_ratios(model, first, count)
        # The recall before selectivities does not fall: with that of the longest wait none may do.
        if first + count <= model.last and ratios.max() * cross_recalls(model, first + count, 1)[0] < required:
            continue
        recalls = ratios * cross_recalls(model, first, count)
        for n in range(count):
            if recalls[n] >= required or first + n > model.last:
                return first + n, recalls[n]
    # The last wait of the last stretch always ends the search.
    return model.last + 1, 1.0


def instant_recall(wanted: float, produced: float, true: float, true_next: float) -> float:
    """Gamma', what the next interval must reach (Eq. 7), in [0, 1]; without true results in it, Gamma itself."""
    if true_next <= 0.0:
        return min(max(wanted, 0.0), 1.0)
    return min(max((wanted * (true + true_next) - produced) / true_next, 0.0), 1.0)


class Monitor(NamedTuple):
    """Result-Size Monitor: of each interval in the last P - L, results produced and true ones, oldest first."""

    produced: Float
    true: Float


def new_monitor(over_us: int, every_us: int) -> Monitor:
    """No results yet."""
    intervals = max(over_us // every_us - 1, 0)
    return Monitor(np.zeros(intervals), np.zeros(intervals))


def note_interval(monitor: Monitor, produced: float, true: float) -> None:
    """Let the interval that ended take the place of the oldest one."""
    if len(monitor.true):
        for sizes, size in zip(monitor, (produced, true), strict=True):
            sizes[:-1] = sizes[1:]
            sizes[-1] = size


class Decision(NamedTuple):
    """A wait in grains, the recall it is thought to have, and the one that was required (nan: the wait was kept)."""

    wait: int
    estimated: float
    required: float


def require_at_once(wanted: float, monitor: Monitor, true: float) -> float:
    """Eq. 7: let the next interval make up for the last P - L."""
    return instant_recall(wanted, float(monitor.produced.sum()), float(monitor.true.sum()), true)


def require_spread(wanted: float, monitor: Monitor, true: float) -> float:
    """Let many intervals make up for the others in P."""
    return spread_recall(wanted, monitor.produced, monitor.true)


class Strategy(NamedTuple):
    """How a wait is found.

    `require`: by Gamma, the last P - L, and the true results of the last interval, the recall to be reached;
    `search`: by the model and that recall, the wait in grains and its own recall;
    `counts_lost`: true results are counted from what late rows find, so that one interval without any is no riddle.
    """

    require: Callable[[float, Monitor, float], float]
    search: Callable[[Model, float], tuple[int, float]]
    counts_lost: bool = False


# All there are; a further one is a line here.
STRATEGIES = {
    "eqsel": Strategy(require_at_once, search_equal),
    "noneqsel": Strategy(require_at_once, search_by_delay),
    "measured": Strategy(require_spread, search_equal, counts_lost=True),
}


def next_wait(
    model: Model,
    monitor: Monitor,
    wait: int,
    *,
    true: float,
    wanted: float,
    strategy: Strategy,
    enough: float,
    pace: int,
) -> Decision:
    """Choose the wait of the next interval; `true` are the true results of the last, `wait` its wait.

    The wait moves by at most `pace` grains, but where delays alone decide.
    """
    require, search, counts_lost = strategy
    lasting = float(monitor.true.sum())
    if true >= enough or (counts_lost and lasting >= enough):
        required = require(wanted, monitor, true)
        found, estimated = search(model, required)
        near = min(max(found, wait - pace), wait + pace)
        return Decision(near, estimated if near == found else _by_delays(model, near), required)
    if lasting < enough:
        return Decision(*search_equal(model, wanted), wanted)
    return Decision(wait, _by_delays(model, wait), float("nan"))


def _by_delays(model: Model, wait: int) -> float:
    return float(cross_recalls(model, wait, 1)[0])
