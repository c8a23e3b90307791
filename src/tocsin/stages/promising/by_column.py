"""Histograms of several columns side by side, with bins that end where they are told to.

Idea: where ranges are known beforehand, bins that end where ranges do are cut by none of them: what lies in one is in a
range or is not, and nothing has to be compared. Columns have their bins one behind the other in one table, so that one
queue has the cells of all.
Guarantee: as of `Histogram`; a bin whose ends are those of ranges is inside or outside each of them.
Cost: 8 bytes per bin; O(log bins) per value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from tocsin.runtime.contract import Float, Int
from tocsin.stages.promising.histogram import MOST_END, Histogram
from tocsin.stages.promising.summary import Noise, Values, counted


@dataclass(frozen=True)
class Cuts(Histogram):
    """A histogram whose bins end at `ends`; the first is `low`, the last is `high`."""

    ends: tuple[float, ...] = ()

    def edges(self) -> Float:
        """The ends of the bins."""
        return np.array(self.ends, np.float64)

    @property
    def share(self) -> float:
        """The part of a bin that belongs to one whole number, where they are as wide as on average."""
        return 1 / max(1.0, (self.high - self.low) / self.bins)


def cuts_at(ends: Sequence[float], most: int) -> Cuts:
    """A histogram that is cut at so many of some numbers at most, evenly by rank; those too large are left out.

    >>> cuts_at([3.0, 1.0, 3.0], 10).ends, cuts_at([], 10).ends
    ((1.0, 3.0), (0.0, 1.0))
    """
    found = sorted({float(end) + 0.0 for end in ends if abs(end) < MOST_END})
    if len(found) > most:
        found = [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]
    if len(found) == 1:
        found.append(max(found[0] + 1.0, float(np.nextafter(found[0], inf))))
    found = found or [0.0, 1.0]
    return Cuts(found[0], found[-1], len(found) - 1, tuple(found))


@dataclass(frozen=True)
class ByColumn:
    """A scheme with a histogram per column; the bins of a column stand behind those of the one before."""

    columns: tuple[Histogram, ...]

    @property
    def rows(self) -> int:
        """A value lies in one bin."""
        return 1

    @property
    def width(self) -> int:
        """All bins of all columns."""
        return sum(one.width for one in self.columns)

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
        """The least part of a bin that belongs to one whole number."""
        return min(one.share for one in self.columns)

    @property
    def begins(self) -> Int:
        """Where the bins of each column begin."""
        return np.cumsum([0, *(one.width for one in self.columns[:-1])])

    def bins_of(self, values: Values, column: Int) -> Int:
        """Number the bins of values, each of a column."""
        found = np.zeros(len(values), np.int64)
        for i, (one, begin) in enumerate(zip(self.columns, self.begins.tolist(), strict=True)):
            mine = np.flatnonzero(column == i)
            found[mine] = begin + one.bin_of(values[mine])
        return found

    def places(self, values: Values, *, learn: bool) -> Int:
        """Give the bins of values of the first column."""
        return self.bins_of(values, np.zeros(len(values), np.int64))[:, None]

    def meets(self, low: float, high: float, column: int = 0) -> Float:
        """Say which part of each bin a range of a column covers: nothing of those of other columns."""
        part, begin = np.zeros(self.width), int(self.begins[column])
        part[begin : begin + self.columns[column].width] = self.columns[column].meets(low, high)
        return part

    def middles(self) -> Float:
        """The middle of each bin."""
        return np.concatenate([one.middles() for one in self.columns])

    def covered(self, low: float, high: float) -> tuple[Float, Float]:
        """The middle and the width of the part of each bin that a range covers, whatever the column."""
        middles, widths = zip(*(one.covered(low, high) for one in self.columns), strict=True)
        return np.concatenate(middles), np.concatenate(widths)

    def fresh(self) -> ByColumn:
        """Give itself: nothing is learnt."""
        return self

    def learnt(self) -> dict[str, Int]:
        """Give nothing."""
        return {}

    def relearn(self, arrays: Mapping[str, Int]) -> None:
        """Do nothing."""

    def count(self, table: Int, values: Values, weight: int) -> Int:
        """Count values of the first column at their places."""
        return counted(self, table, values, weight)

    def estimate_range(self, table: Int, low: float, high: float) -> float:
        """Estimate how many values of the first column lie in a closed range."""
        return float(self.meets(low, high) @ table[0])
