"""Aggregates of what a query selects: what was found, and what was not worked on by what was seen of its bin.

Idea: a histogram knows how many tuples a bin has. Those that were looked at are added up; of the others, as many are
taken to be selected as of those seen, with the histogram's guess as one tuple more, and each to have the mean value of
the bin, with its middle as one value more. Beyond the ends of the histogram, and of a column that it does not count,
only what was seen is known: there the bin's own values, here with the mean of all as one value more.
Guarantee: with nothing left count, sum and average are exact. Else a standard error is told, by how far the values seen
lie apart, with one more spread evenly over the part of a bin that a range covers; it is infinite where fewer than two
were seen and nothing else is known. A median is told to half of its bin, or of the bins that it may lie in as counts
are not certain; beyond the ends to as many standard deviations as its place in the bin allows (Cantelli's inequality).
Cost: O(bins).
Source: Ali, Aref, ElTabakh, section 4.3; counts that stand for what was not worked on are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf, isnan, sqrt
from typing import NamedTuple

import numpy as np

from tocsin.runtime.contract import Float, Int

# Instead of nothing, to divide by.
_LEAST = 1e-12


class Estimate(NamedTuple):
    """An aggregate of what a query selects, and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class ByBin:
    """What is known of one query, by bin.

    `left` has tuples that were not worked on, `guess` which part of a bin its range covers, `seen` tuples that were
    looked at, `bins` those that were selected, `sums` their sum and `squares` the sum of their squared distances from
    their mean; `middle` and `spread` are those of what its range covers of a bin: infinite where it has no end, NaN
    where the values are not those that the histogram counts.
    """

    left: Float
    guess: Float
    seen: Int
    bins: Int
    sums: Float
    squares: Float
    middle: Float
    spread: Float

    @property
    def part(self) -> Float:
        """Which part of a bin is selected."""
        return np.asarray((self.bins + self.guess) / (self.seen + 1))

    @property
    def doubt(self) -> Float:
        """The variance of that part."""
        return np.asarray(self.part * (1 - self.part) / (self.seen + 1))

    @cached_property
    def of_values(self) -> tuple[Float, Float]:
        """The mean and the variance of the values selected, by bin; without an end a bin's own alone count."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._of_values()

    def _of_values(self) -> tuple[Float, Float]:
        total = int(self.bins.sum())
        mean = self.sums.sum() / total if total else 0.0
        apart = self.squares.sum() + self.bins @ (self.sums / np.maximum(self.bins, 1) - mean) ** 2
        variance = apart / (total - 1) if total > 1 else inf
        guess = np.where(np.isnan(self.middle), mean, self.middle)
        doubt = np.where(np.isnan(self.spread), variance, self.spread**2 / 12)
        alone = np.isinf(doubt)
        means = np.where(alone & (self.bins > 0), self.sums, self.sums + guess) / np.maximum(self.bins + ~alone, 1)
        own = np.where(self.bins > 1, self.squares / np.maximum(self.bins - 1, 1), inf)
        return means, np.where(alone, own, (self.squares + doubt) / (self.bins + 1))

    @property
    def is_whole(self) -> bool:
        """Whether all was worked on."""
        return not self.left.any()

    def count(self) -> Estimate:
        """How many tuples the query selects, of those that were offered to it."""
        part = self.part
        error = _root(float(self.left @ (part * (1 - part)) + self.left**2 @ self.doubt))
        return Estimate(float(self.bins.sum() + self.left @ part), error)

    def total(self) -> Estimate:
        """The sum of the values that the query selects."""
        # Where nothing is left, means may be beyond all numbers.
        waits = self.left > 0
        value = float(self.sums.sum() + self.left[waits] @ (self.part * self.of_values[0])[waits])
        return Estimate(value, _root(self._variance(0.0)))

    def average(self) -> Estimate:
        """The mean of the values that the query selects; NaN if there are none."""
        count, total = self.count().value, self.total().value
        if count <= 0:
            return Estimate(np.nan, np.nan)
        # Of a ratio, to the first order: what counts is how far values lie from the mean.
        return Estimate(total / count, _root(self._variance(total / count)) / count)

    def median(self) -> Estimate:
        """The median of the values that the query selects, and how far off it may be; NaN if there is none.

        Of values that the histogram does not count it is not known.
        """
        counts = self.bins + self.left * self.part
        if counts.sum() <= 0 or np.isnan(self.spread).any():
            return Estimate(np.nan, np.nan)
        half, away = counts.sum() / 2, self.count().error / 2
        value, error = self._at(half, counts)
        for end in (self._at(half - away, counts), self._at(half + away, counts)):
            error = max(error, abs(end.value - value) + end.error)
        return Estimate(value, error)

    def _at(self, rank: float, counts: Float) -> Estimate:
        """The value of a rank, where each bin has so many, and how far off it may be in its bin."""
        below = np.cumsum(counts)
        rank = min(max(rank, 0.0), float(below[-1]))
        place = int(np.searchsorted(below, rank))
        place = int(np.flatnonzero(counts)[0]) if counts[place] == 0 else place
        inside = (rank - (below[place] - counts[place])) / counts[place]
        spread = self.spread[place]
        if np.isfinite(spread):
            return Estimate(float(self.middle[place] + (inside - 0.5) * spread), float(spread / 2))
        mean, variance = (float(of[place]) for of in self.of_values)
        odds = inside / max(1 - inside, _LEAST)
        return Estimate(mean, _root(variance * max(odds, 1 / max(odds, _LEAST))))

    def _variance(self, origin: float) -> float:
        """The variance of the sum of what is left, by the distance of values from an origin.

        Of each tuple by itself, of the part that is selected, and of the mean of a bin, which is one for all of it.
        """
        waits = (self.left > 0) & (self.part > 0)
        left, part, doubt, bins = (of[waits] for of in (self.left, self.part, self.doubt, self.bins))
        mean, within = (of[waits] for of in self.of_values)
        with np.errstate(over="ignore", invalid="ignore"):
            away = mean - origin
            single = part * (within + away**2) - (part * away) ** 2
            common = doubt * away**2 + part**2 * within / (bins + 1)
            return float(left @ single + left**2 @ common)


def _root(variance: float) -> float:
    """A standard error; infinite where the variance is beyond all numbers."""
    return inf if isnan(variance) else sqrt(max(0.0, variance))
