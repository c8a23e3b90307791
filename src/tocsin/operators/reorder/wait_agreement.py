"""Wait agreement: one wait for all buckets, from the statistics of all buckets.

Algorithm: the keys of a join are divided into buckets; each bucket receives its own rows and results. A wait follows
from sums over rows and results, so several buckets have the same sums as one bucket with all keys. Alarms are rare:
sixteen buckets with three results each have little evidence, and together they have enough.

Guarantees: with one bucket, exactly the wait that it would choose. The order of buckets has no effect except for the
rounding of sums of results. Mean skews use the rows of all buckets.

Complexity: O(buckets * used bins), and one search of `observed_wait`.

References: Ji et al., ICDE 2016, section V: delays and K^sync from the input, results from the output of all instances.
M-cross is not necessary, because each result has its own delay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.operators.reorder.observed_wait import RecallByWait, required_recall
from tocsin.operators.reorder.recall_model import WindowShape
from tocsin.operators.reorder.wait_policy import DelayStatistics, RecallConfig
from tocsin.runtime.contract import Float, Int

# Positions of numbers that are not 0, and these numbers.
Sparse = Sequence[Sequence[float]]


def merge_statistics(known: Sequence[DelayStatistics]) -> DelayStatistics:
    """Add the statistics of several buckets."""
    observed, histogram, skews_us, true = zip(*known, strict=True)
    return DelayStatistics(np.sum(observed, axis=0), np.sum(histogram, axis=0), np.sum(skews_us, axis=0), sum(true))


def agreed_wait(quality: RecallConfig, shape: WindowShape, known: Sequence[DelayStatistics]) -> int:
    """Return the wait in microseconds that follows from the statistics of all buckets."""
    whole = merge_statistics(known)
    return RecallByWait(shape, whole).least(required_recall(quality, whole.true)) * quality.grain_us


def encode_statistics(known: DelayStatistics) -> dict[str, Any]:
    """Return statistics as JSON values. `decode_statistics` restores them exactly."""
    return {
        "observed": _sparse(known.observed),
        "delays": [_sparse(rows) for rows in known.histogram],
        "skews_us": known.skews_us.tolist(),
        "true": known.true,
    }


def decode_statistics(encoded: Mapping[str, Any], bins: int) -> DelayStatistics:
    """Read the values of `encode_statistics`."""
    observed = _dense(encoded["observed"], bins, np.float64)
    histogram = [_dense(rows, bins, np.int64) for rows in encoded["delays"]]
    return DelayStatistics(
        observed, np.array(histogram), np.array(encoded["skews_us"], np.int64), float(encoded["true"])
    )


def _sparse(numbers: Float | Int) -> Sparse:
    used = np.flatnonzero(numbers)
    return [used.tolist(), numbers[used].tolist()]


def _dense(encoded: Sparse, bins: int, kind: type) -> NDArray[Any]:
    numbers: NDArray[Any] = np.zeros(bins, kind)
    positions, found = encoded
    numbers[np.array(positions, np.int64)] = found
    return numbers
