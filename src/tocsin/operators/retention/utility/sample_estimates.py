"""Estimates of windowed SUM, COUNT and AVG over the results of a join, from a sample, with confidence intervals.

Idea: each sampled result counts for 1 / probability (Horvitz and Thompson). AVG is the ratio of SUM and COUNT; its
error is that of the sum of x - AVG, by COUNT.
Guarantee: SUM, COUNT and the squares of their errors are unbiased, also where the probability of a row's results fell
while it was held: of two results of a cluster both are there if the later one is, so they share 1 / (the larger
probability) - 1. AVG's bias and the intervals' coverage are right in the limit of many clusters (normal distribution).
Cost: O(results in its window) for each moment that is asked for.
Source: Cochran, "Sampling Techniques", sections 6.3 and 9A.7 (Poisson sampling of clusters); Srivastava, Widom, VLDB
2004, section 4.3.1.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int

# Places in the sums of a window: SUM, COUNT; variance of SUM, of COUNT, and their covariance.
_SUM, _COUNT, _SUM_SUM, _COUNT_COUNT, _SUM_COUNT = range(5)


class Estimate(NamedTuple):
    """Estimates at some moments, their standard errors, and the ends of their confidence intervals."""

    value: Float
    error: Float
    low: Float
    high: Float


class Aggregates(NamedTuple):
    """SUM, COUNT and AVG; the AVG of no results is not a number."""

    sums: Estimate
    counts: Estimate
    averages: Estimate


@kernel
def window_sums(time: Int, cluster: Int, probability: Float, x: Float, at: Int, window: int, clusters: int) -> Float:
    """For each moment, sums over the results of the window that ends there.

    Per cluster, `surplus` sums 1/probability - 1 of the results so far, for COUNT and by x for SUM: a later result,
    whose probability is not larger, shares that much with each of them.
    """
    sums = np.zeros((at.shape[0], 5))
    surplus = np.zeros((clusters, 2))
    for place in range(at.shape[0]):
        begin = np.searchsorted(time, at[place] - window, side="left")
        end = np.searchsorted(time, at[place], side="right")
        own = sums[place]
        for row in range(begin, end):
            c, weight, value = cluster[row], 1.0 / probability[row], x[row]
            shared, shared_x = surplus[c, 0], surplus[c, 1]
            own[_SUM] += value * weight
            own[_COUNT] += weight
            own[_SUM_SUM] += value * (2.0 * shared_x + value * (weight - 1.0)) * weight
            own[_COUNT_COUNT] += (2.0 * shared + (weight - 1.0)) * weight
            own[_SUM_COUNT] += (value * shared + shared_x + value * (weight - 1.0)) * weight
            surplus[c, 0] += weight - 1.0
            surplus[c, 1] += value * (weight - 1.0)
        for row in range(begin, end):
            surplus[cluster[row], 0] = surplus[cluster[row], 1] = 0.0
    return sums


def windowed(
    time: Int, cluster: Int, probability: Float, x: Float, at: Int, window: int, confidence: float = 0.95
) -> Aggregates:
    """Estimate aggregates of x over the results of the last `window` units of time, at the given moments.

    Sampled results are in order of time; those with the same number of cluster were chosen together.
    """
    names, number = np.unique(cluster, return_inverse=True)
    sums = window_sums(time, number.astype(np.int64), probability, x, at, window, len(names))
    total, count = sums[:, _SUM], sums[:, _COUNT]
    with np.errstate(invalid="ignore", divide="ignore"):
        avg = total / count
        residual = sums[:, _SUM_SUM] - 2 * avg * sums[:, _SUM_COUNT] + avg**2 * sums[:, _COUNT_COUNT]
        avg_error = _root(residual) / count
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    return Aggregates(
        _estimate(total, _root(sums[:, _SUM_SUM]), z),
        _estimate(count, _root(sums[:, _COUNT_COUNT]), z),
        _estimate(avg, avg_error, z),
    )


def _estimate(value: Float, error: Float, z: float) -> Estimate:
    return Estimate(value, error, value - z * error, value + z * error)


def _root(variance: Float) -> Float:
    # Never negative but for rounding: of values with both signs little may be left.
    return np.sqrt(np.maximum(variance, 0.0))
