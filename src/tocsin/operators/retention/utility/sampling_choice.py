"""Which way to sample a join, with which fraction, and how far off it will be: judged by whole lives of a few rows.

Idea: a life tells how many results a row gave and at which ages, and what was expected of it. So it tells how long each
way to sample would have held the row, which results UNIFORM would have missed because it expected fewer, and how far
off an estimate would have been where PPS-CLUSTER took rows by a wrong size. `accuracy.closest` compares.
Where the key explains results, n(s) goes by how frequent it is in the other stream; where only the age does, all rows
are expected to give the average. PPS-CLUSTER has a tenth of the average mixed in: no row is expected to give nothing,
which would be a bias, and no weight is ten times too large. Where UNIFORM would have missed more than one result in a
hundred it expects so many more that of a Poisson number of results no more than that are missed.
Guarantee: where neither model fits nothing is predicted, and the way is EQ-CLUSTER, which needs no model. What is
predicted is the average over the lives, which are a random sample.
Cost: O(lives * granules) for each of 64 fractions, once; then O(lives) for an amount of memory.
Source: Srivastava, Widom, VLDB 2004, sections 4.2.2 and 4.3.2; the mixture is that of Hesterberg, "Weighted Average
Importance Sampling and Defensive Mixture Distributions", Technometrics 1995.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tocsin.operators.retention.cluster_sampling import EQ_CLUSTER, PPS_CLUSTER, UNIFORM
from tocsin.operators.retention.utility.lifetime_sample import Lives
from tocsin.operators.retention.utility.memory_curves import ErrorCurve
from tocsin.operators.retention.utility.model_selection import Choice
from tocsin.operators.retention.utility.sampling_error import Population, closest, relative_errors
from tocsin.operators.retention.utility.sampling_fraction import expected_at_most, planned_use, pps_fraction
from tocsin.runtime.contract import Float, Int

_DEFENCE = 0.1
_MISSED = 0.01
_ROUNDING = 1e-9
# Fractions of UNIFORM of which the use is known; between them it is taken for straight.
_FRACTIONS = np.concatenate([[0.0], np.geomspace(1e-5, 1.0, 64)])
# Amounts of memory of an error curve, by that of the whole window.
_AMOUNTS = np.geomspace(1 / 512, 1.0, 32)
# Means are rounded up to eighths, or to whole numbers from here on, so that few margins must be found.
_FINE = 16.0


class Aggregate(NamedTuple):
    """What is asked of the sample: an average, or a sum or count, over the results of a window.

    Its numbers have a mean and a standard deviation, and are those of the held rows or of those they meet.
    """

    window: float
    averages: bool = False
    mean: float = 1.0
    deviation: float = 0.0
    of_held: bool = True


class Expectation(NamedTuple):
    """How many results are expected of a row: the average; or, above 0, so many by the share of its key in the other.

    With a `margin` UNIFORM expects more.
    """

    mean: float
    by_share: float
    margin: bool

    def results(self, share: Float) -> Float:
        """What is expected of rows whose keys have these shares of the other stream."""
        return self.by_share * share if self.by_share > 0 else np.full(len(share), self.mean)

    def n(self, kind: int, share: Float) -> Float:
        """n(s), as a way to sample wants it: some mixed in for PPS-CLUSTER, whole and with a margin for UNIFORM."""
        results = self.results(share)
        if kind == UNIFORM:
            return with_margin(results) if self.margin else np.ceil(results - _ROUNDING)
        return (1 - _DEFENCE) * results + _DEFENCE * self.mean


class Approach(NamedTuple):
    """A way to sample, its p, what it expects of rows, the error foretold, and the share of results never sampled.

    Where nothing can be foretold the error is None.
    """

    kind: int
    fraction: float
    expected: Expectation
    error: float | None
    missed: float

    def n(self, share: Float) -> Float:
        """n(s), as the join wants it, of rows whose keys have these shares of the other stream."""
        return self.expected.n(self.kind, share)


def with_margin(mean: Float) -> Float:
    """So many results, as a whole number, that of a Poisson number of this mean at most one in a hundred is beyond."""
    coarse = np.where(mean < _FINE, np.ceil(8 * mean) / 8, np.ceil(mean))
    levels, place = np.unique(coarse, return_inverse=True)
    return np.array([float(expected_at_most(level, _MISSED)) for level in levels.tolist()])[place.reshape(-1)]


def expectation(lives: Lives, *, by_key: bool) -> Expectation:
    """What lives let expect of a row, by its key or not."""
    n, foretold = lives.met.sum(axis=1), float(lives.foretold.sum())
    mean = float(n.mean()) if len(n) else 0.0
    plain = Expectation(mean, float(n.sum()) / foretold if by_key and foretold > 0 else 0.0, margin=False)
    beyond = np.maximum(n - plain.n(UNIFORM, lives.foretold), 0.0)
    return plain._replace(margin=bool(beyond.sum() > _MISSED * n.sum()))


def uniform_stay(met: Int, n: Float, p: float) -> float:
    """For which share of the window UNIFORM holds a row on average: up to the last head, at the end of its granule.

    `met` has results by life and granule. A head beyond the results there are keeps a row to the end.
    """
    seen = np.minimum(np.cumsum(met, axis=1), n[:, None])
    with np.errstate(under="ignore"):
        no_head_behind = (1.0 - p) ** (n[:, None] - np.column_stack([np.zeros(len(n)), seen]))
    ends = np.arange(1, met.shape[1] + 1) / met.shape[1]
    return float(np.mean(np.diff(no_head_behind, axis=1) @ ends + 1.0 - no_head_behind[:, -1]))


class Prospect:
    """What can be said of sampling a window whose lives are known; `rate` is that of its rows, on the window's clock.

    `choice` says which model fits. More than the memory is needed with a chance of 1 in 1,000, at a given moment.
    """

    def __init__(self, lives: Lives, window: float, rate: float, choice: Choice, aggregate: Aggregate) -> None:
        self.whole, self.averages = rate * window, aggregate.averages
        self.fits = choice.model != "neither" and bool(lives.met.any())
        self.expected = expectation(lives, by_key=choice.key_fits)
        n = lives.met.sum(axis=1).astype(np.float64)
        self.size = self.expected.n(PPS_CLUSTER, lives.foretold)
        self.share = 1 / max(len(n), 1)
        rows = np.full(len(n), self.share * rate * aggregate.window)
        self.population = Population(rows, n, aggregate.mean, aggregate.deviation, aggregate.of_held, self.size)
        self.most = self.expected.n(UNIFORM, lives.foretold)
        self.missed = np.maximum(n - self.most, 0.0)
        self.met = lives.met

    @cached_property
    def stays(self) -> Float:
        """For which share of the window UNIFORM holds a row, by fraction."""
        return np.array([uniform_stay(self.met, self.most, p) for p in _FRACTIONS.tolist()])

    @property
    def results(self) -> float:
        """Results of rows of this window, over the window of the aggregate."""
        return float(self.population.rows @ self.population.n)

    @property
    def room(self) -> float:
        """Rows for which there must be memory so that all of a window seldom need more."""
        return self.whole + 5 * float(np.sqrt(self.whole)) + 8

    def fraction(self, kind: int, rows: float) -> float:
        """The p that memory for so many rows allows."""
        mean = planned_use(rows, self.whole)
        if kind == EQ_CLUSTER:
            return min(1.0, mean / self.whole) if self.whole > 0 else 1.0
        if kind == PPS_CLUSTER:
            return pps_fraction(np.full(len(self.size), self.share * self.whole), self.size, mean)
        return float(np.interp(mean, self.whole * self.stays, _FRACTIONS))


def choose(windows: Sequence[Prospect], rows: Sequence[Mapping[int, float]]) -> list[Approach]:
    """Choose one way for all windows of a join, each with memory for so many rows of each kind.

    Rows of UNIFORM have counters, so there is memory for fewer. It has one p for all windows, the smallest.
    """
    if not all(window.fits for window in windows):
        sizes = [window.fraction(EQ_CLUSTER, memory[EQ_CLUSTER]) for window, memory in zip(windows, rows, strict=True)]
        return [Approach(EQ_CLUSTER, p, of.expected, None, 0.0) for of, p in zip(windows, sizes, strict=True)]
    fractions = {
        kind: [window.fraction(kind, memory[kind]) for window, memory in zip(windows, rows, strict=True)]
        for kind in rows[0]
    }
    if UNIFORM in fractions:
        fractions[UNIFORM] = [min(fractions[UNIFORM])] * len(windows)
    population = _joined([window.population for window in windows])
    missed = _missed(windows)
    by_row = {kind: _by_row(windows, found) for kind, found in fractions.items()}
    kind = closest(by_row, population, missed, averages=windows[0].averages)
    error = error_with(windows, kind, fractions[kind])
    lost = missed if kind == UNIFORM else 0.0
    return [Approach(kind, p, of.expected, error, lost) for of, p in zip(windows, fractions[kind], strict=True)]


def error_with(windows: Sequence[Prospect], kind: int, fractions: Sequence[float]) -> float | None:
    """The error of a way to sample with these fractions, by the lives that are known; None: no life has met any row."""
    if not any(window.results > 0 for window in windows):
        return None
    population, by_row = _joined([window.population for window in windows]), _by_row(windows, fractions)
    lost = _missed(windows) if kind == UNIFORM else 0.0
    return float(np.hypot(relative_errors(kind, by_row, population)[windows[0].averages], lost))


def _by_row(windows: Sequence[Prospect], fractions: Sequence[float]) -> Float:
    """The fraction of each life."""
    return np.concatenate([np.full(len(of.size), p) for of, p in zip(windows, fractions, strict=True)])


def _missed(windows: Sequence[Prospect]) -> float:
    """The share of results that UNIFORM never samples."""
    return sum(float(of.population.rows @ of.missed) for of in windows) / sum(of.results for of in windows)


def error_curve(windows: Sequence[Prospect], rows: Mapping[int, float]) -> ErrorCurve | None:
    """The error by memory of a join, in units with room for so many rows of each kind; None if none is foretold.

    Windows have memory in proportion to their rows.
    """
    if not all(window.fits for window in windows):
        return None
    whole = sum(window.room for window in windows)
    memory = _AMOUNTS * whole / rows[EQ_CLUSTER]
    errors = []
    for amount in memory.tolist():
        given = [{kind: amount * each * of.room / whole for kind, each in rows.items()} for of in windows]
        errors.append(choose(windows, given)[0].error)
    return ErrorCurve(memory, np.array(errors, np.float64))


def _joined(parts: Sequence[Population]) -> Population:
    """The results of all windows; the numbers aggregated are alike."""
    rows, n, size = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "n", "expected"))
    return parts[0]._replace(rows=rows, n=n, expected=size)
