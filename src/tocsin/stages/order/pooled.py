"""Pooled: one wait for all buckets, by what all of them have seen.

Idea: the keys of a join are divided into buckets, each of which sees its own rows and results alone. What a wait is
chosen by are sums over rows and results, so those of several buckets add up to what one bucket with all the keys would
have. Alarms are rare: sixteen buckets with three results each know little, and all of them together know something.
Buckets tell their statistics as texts of a few numbers, since most bins are empty, and are told the wait.

Guarantee: with one bucket exactly the wait that it would choose by itself. The order of buckets does not matter, but
for the rounding of sums of results. Skews are averaged over the rows of all buckets, then the smallest is taken off.
Cost: O(buckets * bins in use), then that of the search in `observed`.
Source: Ji et al., ICDE 2016, section V: delays and K^sync from the raw input, results from the output, of all
instances. M-cross is not needed: a result is known by its delay, whether it came in order or not (`observed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import Float, Int
from tocsin.stages.order.observed import Recalls, required_recall
from tocsin.stages.order.recall import Shape
from tocsin.stages.order.wait import RecallConfig, Statistics

# Places of numbers that are not 0, and these numbers.
Sparse = Sequence[Sequence[float]]


def pool(known: Sequence[Statistics]) -> Statistics:
    """Add up the statistics of several buckets."""
    observed, histogram, skews_us, true = zip(*known, strict=True)
    return Statistics(np.sum(observed, axis=0), np.sum(histogram, axis=0), np.sum(skews_us, axis=0), sum(true))


def agreed_wait(quality: RecallConfig, shape: Shape, known: Sequence[Statistics]) -> int:
    """The wait, in microseconds, that all these buckets together would choose, if it may move as far as it likes."""
    whole = pool(known)
    return Recalls(shape, whole).least(required_recall(quality, whole.true)) * quality.grain_us


def tell(known: Statistics) -> dict[str, Any]:
    """Statistics as JSON can hold them; `hear` reads them, to the bit."""
    return {
        "observed": _sparse(known.observed),
        "delays": [_sparse(rows) for rows in known.histogram],
        "skews_us": known.skews_us.tolist(),
        "true": known.true,
    }


def hear(told: Mapping[str, Any], bins: int) -> Statistics:
    """Read what `tell` wrote."""
    observed = _dense(told["observed"], bins, np.float64)
    histogram = [_dense(rows, bins, np.int64) for rows in told["delays"]]
    return Statistics(observed, np.array(histogram), np.array(told["skews_us"], np.int64), float(told["true"]))


def _sparse(numbers: Float | Int) -> Sparse:
    used = np.flatnonzero(numbers)
    return [used.tolist(), numbers[used].tolist()]


def _dense(told: Sparse, bins: int, kind: type) -> NDArray[Any]:
    numbers: NDArray[Any] = np.zeros(bins, kind)
    places, found = told
    numbers[np.array(places, np.int64)] = found
    return numbers
