"""The sampling fraction that memory allows.

Idea: how many rows a way of sampling keeps in memory, on average, follows from the model and the fraction p. First the
average is chosen so far below the budget that more than the budget is seldom needed (`planned_use`), then p so that
this average is used (`solve`, or `pps_fraction` where rows are taken by their number of results).
Guarantee: the averages are exact under the model (theorems 4.2 and 4.3). At a given moment more than the budget is
needed with at most `chance`, by Bennett's inequality: rows that come at even distances (`dispersion` 0, of values drawn
independently) or at random (1, a Poisson process), a window of them each kept or not independently of the others.
Cost: O(values) or O(results of a row) for each of some 60 steps.
Source: Srivastava, Widom, VLDB 2004, sections 4.2.2 and 4.3.1; of the variance and of the iterative p it says only that
they can be had. The variance here is an upper bound, exact where rows are kept until they expire.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, floor, log, log1p, sqrt

import numpy as np

from tocsin.operators.retention.utility.age_model import AgeCurve
from tocsin.operators.retention.utility.frequency_model import expected_results
from tocsin.runtime.contract import Float

_STEPS = 60


def uniform_use_by_frequency(
    f_own: Float, f_other: Float, r_own: float, r_other: float, window: float, p: float
) -> float:
    """Theorem 4.2: the rows that UNIFORM keeps on average, under the frequency-based model."""
    n = expected_results(f_other, r_other, window)
    if p <= 0 or not (n > 0).any():
        return 0.0
    some = n[n > 0]
    log_q = log1p(-p) if p < 1 else -np.inf
    # 1 - q^n without loss where p is small.
    waits = 1 - (1 - p) * -np.expm1(some * log_q) / (p * some)
    return float(r_own * window * np.sum(f_own[n > 0] * waits))


def uniform_use_by_age(curve: AgeCurve, r: float, p: float) -> float:
    """Theorem 4.3: the rows that UNIFORM keeps on average, under the age-based model; n is rounded to whole results."""
    n = round(curve.n)
    number = np.arange(1, n + 1)
    # C^-1(i), the least age by which i results are there; the last ones, where n was rounded up, at the end.
    ages = np.minimum(np.searchsorted(curve.cumulative, number - 1e-9), len(curve.p)) * curve.granule
    return float(r * np.sum(p * (1 - p) ** (n - number) * ages))


def pps_use(rows: Float, n: Float, p: float) -> float:
    """The rows that PPS-CLUSTER keeps on average: of each value, `rows` are in a window and n results come of each."""
    return float(np.sum(rows * np.minimum(1.0, p * n)))


def pps_fraction(rows: Float, n: Float, mean: float) -> float:
    """The p with which PPS-CLUSTER keeps so many rows on average, none with a probability above 1.

    Rows that would have more are taken for certain, and the rest of the memory is shared anew by the others, until
    there are no more of them. With memory for all, the least p that takes all for certain.
    """
    certain = n <= 0
    while True:
        left = mean - float(np.sum(rows[certain & (n > 0)]))
        weight = float(np.sum((rows * n)[~certain]))
        if weight <= 0:
            return float(1 / n[n > 0].min()) if (n > 0).any() else 1.0
        p = max(left, 0.0) / weight
        above = ~certain & (p * n > 1)
        if not above.any():
            return p
        certain |= above


def solve(use: Callable[[float], float], mean: float) -> float:
    """The largest fraction p, up to 1, with which no more than `mean` rows are used; `use` grows with p."""
    if use(1.0) <= mean:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if use(middle) <= mean:
            low = middle
        else:
            high = middle
    return low


def variance(mean: float, most: float, dispersion: float = 1.0) -> float:
    """An upper bound of the variance of the rows in memory; `most` rows are in the windows.

    `dispersion` is the variance of the number of rows that come in a window, by its mean.
    """
    return mean * (1 - (1 - dispersion) * mean / most) if most > 0 else 0.0


def overflow_chance(mean: float, spread: float, memory: float) -> float:
    """Bound the chance that more than `memory` rows are needed where the mean and the variance are as given."""
    excess = floor(memory) + 1 - mean
    if excess <= 0:
        return 1.0
    if spread <= 0:
        return 0.0
    ratio = excess / spread
    return exp(-spread * ((1 + ratio) * log1p(ratio) - ratio))


def planned_use(memory: float, most: float, chance: float = 1e-3, dispersion: float = 1.0) -> float:
    """How many rows may be used on average so that more than `memory` are needed with at most this chance."""

    def fits(mean: float) -> bool:
        return overflow_chance(mean, variance(mean, most, dispersion), memory) <= chance

    if fits(most):
        return most
    low, high = 0.0, min(memory, most)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def missed_shares(mean: float) -> Float:
    """The share of results that UNIFORM can never sample, by the n(s) = 0, 1, ... that it expects.

    A Poisson number with the given mean comes of a row, and what comes after its n-th result is not sampled: this is
    the bias of COUNT, by the true one.
    """
    if mean <= 0:
        return np.zeros(1)
    k = np.arange(int(mean + 12 * sqrt(mean) + 40))
    log_factorial = np.cumsum(np.log(np.maximum(k, 1)))
    chances = np.exp(k * log(mean) - mean - log_factorial)
    # E[min(N, n)] is the sum of P(N > k) over k < n; added from behind, small chances are not lost.
    above = np.cumsum(np.concatenate([[0.0], chances[:0:-1]]))[::-1]
    sampled = np.concatenate([[0.0], np.cumsum(above)]) / mean
    return np.maximum(0.0, 1 - sampled)


def expected_at_most(mean: float, share: float) -> int:
    """The least n(s) to expect of a row so that no more than a share (above 0) of its results is never sampled."""
    return int(np.argmax(missed_shares(mean) <= max(share, 1e-9)))
