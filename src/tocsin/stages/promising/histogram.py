"""The equi-width histogram: how many values lie in a range.

Idea: the domain is cut into bins of one width; one bin more on either side takes what lies outside. A bin that a range
cuts counts by the part that lies inside.
Guarantee: bins that lie inside or outside of a range count exactly. With the values of a bin spread evenly and
independently, the error of a cut bin with c values has variance at most c / 4; `confidence` takes the mean of c over
the values, at both ends. A point is given its share of the bin, as if whole numbers were equally frequent in it.
Cost: 8 bytes per bin; O(1) per value, O(bins) per range.
Source: Ali, Aref, ElTabakh, section 3.2, which leaves the form open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from tocsin.runtime.contract import Float, Int
from tocsin.stages.promising.summary import Noise, Values, counted

# Squares of widths, and sums of them, stay finite.
MOST_END = 1e150


@dataclass(frozen=True)
class Histogram:
    """A scheme with `bins` bins from `low` to below `high`, and one beyond either end."""

    low: float
    high: float
    bins: int = 256

    def __post_init__(self) -> None:
        """Refuse a domain that cannot be cut."""
        if not -MOST_END <= self.low < self.high <= MOST_END:
            most = f"from -{MOST_END:g} to {MOST_END:g}"
            message = f"a histogram needs finite `low` < `high`, {most}; got {self.low!r} and {self.high!r}"
            raise ValueError(message)
        if self.bins < 1:
            message = f"`bins` of a histogram must be at least 1; got {self.bins!r}"
            raise ValueError(message)
        if not (np.diff(self.edges()) > 0).all():
            message = (
                f"`bins` of a histogram must be smaller, so that each bin from {self.low!r} to {self.high!r} has a "
                f"width; got {self.bins!r}"
            )
            raise ValueError(message)

    @property
    def rows(self) -> int:
        """A value lies in one bin."""
        return 1

    @property
    def width(self) -> int:
        """The bins, and those beyond the ends."""
        return self.bins + 2

    @property
    def cells(self) -> int:
        """All bins."""
        return self.width

    @property
    def noise(self) -> Noise:
        """A quarter of the bin of a value, at both ends of a range."""
        return Noise(0.0, 0.5)

    @property
    def share(self) -> float:
        """The part of a bin that belongs to one whole number."""
        return 1 / max(1.0, (self.high - self.low) / self.bins)

    def bin_of(self, values: Values) -> Int:
        """Number the bins of values from 0 (below `low`) to bins + 1 (`high` and above); what is no number is below."""
        place = np.searchsorted(self.edges(), np.asarray(values, np.float64), "right")
        return np.where(np.isnan(values), 0, place).astype(np.int64)

    def edges(self) -> Float:
        """The ends of the bins, from `low` to `high`."""
        return np.linspace(self.low, self.high, self.bins + 1)

    def places(self, values: Values, *, learn: bool) -> Int:
        """Give the bins of values."""
        return self.bin_of(values)[:, None]

    def fresh(self) -> Histogram:
        """Give itself: nothing is learnt."""
        return self

    def learnt(self) -> dict[str, Int]:
        """Give nothing."""
        return {}

    def relearn(self, arrays: Mapping[str, Int]) -> None:
        """Do nothing."""

    def count(self, table: Int, values: Values, weight: int) -> Int:
        """Count values at their places."""
        return counted(self, table, values, weight)

    def estimate_range(self, table: Int, low: float, high: float) -> float:
        """Estimate how many values lie in a closed range; of what lies outside the domain, half where a range cuts it.

        >>> from tocsin.stages.promising.summary import Summary
        >>> summary = Summary(Histogram(0, 10, 5))
        >>> summary.summarize(np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]))
        >>> summary.estimate_range(2, 5.99), summary.estimate_range(3, 4)
        (3.99, 1.0)
        """
        return float(self.parts(low, high) @ table[0])

    def parts(self, low: float, high: float) -> Float:
        """Say which part of each bin a range covers."""
        if not low <= high:
            return np.zeros(self.width)
        edges = self.edges()
        begin, end = edges[:-1], edges[1:]
        inside = np.clip(np.minimum(end, high) - np.maximum(begin, low), 0, None) / (end - begin)
        below = 1.0 if low == -inf and high >= self.low else 0.5 * (low < self.low)
        above = 1.0 if high == inf and low <= self.high else 0.5 * (high >= self.high)
        return np.concatenate([[below], inside, [above]])

    def meets(self, low: float, high: float) -> Float:
        """Say which part of each bin a range covers: 1 only if it holds all that can be there, 0 only if nothing.

        A bin holds its lower end and not its upper one; a range holds both of its ends.
        """
        edges = self.edges()
        begin, end = edges[:-1], edges[1:]
        part = np.clip(self.parts(low, high)[1:-1], 0.0, 1.0)
        touched = (begin <= high) & (end > low)
        whole = (low <= begin) & (high >= np.nextafter(end, -inf))
        part = np.where(whole, 1.0, np.where(touched, np.clip(part, 1e-9, 1 - 1e-9), 0.0))
        below, *_, above = self.parts(low, high)
        return np.concatenate([[below], part, [above]])

    def middles(self) -> Float:
        """The middle of each bin; of those beyond the ends: the end."""
        return self.covered(-inf, inf)[0]

    def covered(self, low: float, high: float) -> tuple[Float, Float]:
        """The middle and the width of the part of each bin that a range covers; beyond the ends: the end, and inf."""
        edges = self.edges()
        begin = np.concatenate([[self.low], np.clip(edges[:-1], low, edges[1:]), [self.high]])
        end = np.concatenate([[self.low], np.clip(edges[1:], edges[:-1], max(high, edges[0])), [self.high]])
        end = np.maximum(begin, end)
        width = end - begin
        width[[0, -1]] = inf
        return (begin + end) / 2, width
