"""Summaries of a stream that can be added and subtracted: a value is a few places of a table.

Idea: a scheme (count sketch, histogram, exact counter) says at which places of a table a value is counted, and with
which sign. All else is the same for all: to summarise is to add one there, to estimate is to look there, and the
summaries of two regions add up place by place. Places are written as one number: p, or -1 - p where the sign is minus.
Guarantee: a summary is a linear function of what it was given, so `add` and `subtract` are exact: what was added and
then subtracted leaves no trace. Which error an estimate has, the scheme says; `confidence` is 1 / (1 + that error), in
tuples: 1 is exact, 0.5 is off by one tuple as a rule.
Cost: O(rows) per value; O(rows x width) to add or subtract.
Source: Ali, Aref, ElTabakh, "Scalability via Summaries", Purdue TR 05-005, section 3.2 (Summarize, Estimate,
Confidence, Add, Subtract). That one table serves all three schemes is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import inlined, kernel, lean
from tocsin.runtime.contract import Float, Int

Values = NDArray[Any]


class Noise(NamedTuple):
    """The mean square error of an estimate: `of_squares` x F2 + `of_share` x F2 / n, F2 the sum of squared counts."""

    of_squares: float
    of_share: float


class Scheme(Protocol):
    """Where values are counted; a frozen dataclass, or one that only ever learns more values."""

    @property
    def rows(self) -> int:
        """At how many places a value is counted."""

    @property
    def width(self) -> int:
        """How many places a row has; may grow."""

    @property
    def cells(self) -> int:
        """How many places a sum of two tables is charged as; never changes."""

    @property
    def noise(self) -> Noise:
        """Which error an estimate has."""

    @property
    def share(self) -> float:
        """Which share of a place belongs to one value."""

    def places(self, values: Values, *, learn: bool) -> Int:
        """Give the places of values, a line for each; `learn` makes room for those never seen."""

    def count(self, table: Int, values: Values, weight: int) -> Int:
        """Count values in a table, and give the table, which may have been widened."""

    def estimate_range(self, table: Int, low: float, high: float) -> float:
        """Estimate how many values lie in a closed range; ValueError where only points can be answered."""

    def fresh(self) -> Scheme:
        """Give a scheme of the same kind that has learnt nothing."""

    def learnt(self) -> dict[str, Int]:
        """Give what was learnt of the stream, for a page."""

    def relearn(self, arrays: Mapping[str, Int]) -> None:
        """Go on from what a page holds."""


class Summary:
    """What is known of a region of a stream."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self.table = np.zeros((scheme.rows, scheme.width), np.int64)
        self.total = 0

    def summarize(self, values: Values, weight: int = 1) -> None:
        """Count values; a weight of -1 takes them out again."""
        self.table = self.scheme.count(self.table, values, weight)
        self.total += weight * len(values)

    def estimate(self, values: Values) -> Float:
        """Estimate how often each value is there."""
        self.table = widened(self.table, self.scheme.width)
        places = self.scheme.places(values, learn=False)
        out = np.empty(len(values))
        estimate_all(self.table[None], places, self.scheme.share, out)
        return out

    def estimate_range(self, low: float, high: float) -> float:
        """Estimate how many values lie in a closed range."""
        return self.scheme.estimate_range(self.table, low, high)

    def confidence(self) -> float:
        """Say how far estimates can be trusted: 1 / (1 + the error of an estimate, in tuples)."""
        return float(confidence_of(squares_of(self.table) / self.scheme.rows, self.total, *self.scheme.noise))

    def add(self, other: Summary) -> None:
        """Take in the summary of another region."""
        self._combine(other, 1)

    def subtract(self, other: Summary) -> None:
        """Take out the summary of a region that is part of this one."""
        self._combine(other, -1)

    def _combine(self, other: Summary, sign: int) -> None:
        if other.scheme != self.scheme:
            message = f"summaries must have the same scheme to be combined; got {self.scheme} and {other.scheme}"
            raise ValueError(message)
        self.table = widened(self.table, self.scheme.width)
        other.table = widened(other.table, self.scheme.width)
        combine(self.table, other.table, sign)
        self.total += sign * other.total


def counted(scheme: Scheme, table: Int, values: Values, weight: int) -> Int:
    """Count values at the places that a scheme gives them; gives the table, which may have been widened."""
    places = scheme.places(values, learn=True)
    table = widened(table, scheme.width)
    count_all(table, places, weight)
    return table


def widened(table: Int, width: int) -> Int:
    """Give the table room for more places, behind those that it has."""
    lacking = width - table.shape[-1]
    if lacking <= 0:
        return table
    return np.concatenate([table, np.zeros((*table.shape[:-1], lacking), np.int64)], axis=-1)


# Hot kernels take whole arrays and say where in them: the table `node` of `tables`, the line `at` of `places`.


@inlined
def count_thrice(tables: Int, zone: int, grain: int, places: Int, at: int) -> int:
    """Count one value in two tables and in the last; gives by how much the sum of squares of the first one grew."""
    grown, last = 0, tables.shape[0] - 1
    for row in range(tables.shape[1]):
        code = places[at, row]
        sign = code >> 63  # -1 where the sign is minus, else 0.
        # An index without a sign is not asked whether it counts from the end.
        change, place = 1 + 2 * sign, np.uint64(code ^ sign)
        before = tables[zone, row, place]
        tables[zone, row, place] = before + change
        tables[grain, row, place] += change
        tables[last, row, place] += change
        grown += 2 * change * before + 1
    return int(grown)


@lean
def count_all(table: Int, places: Int, weight: int) -> None:
    """Count values by their places."""
    for i in range(places.shape[0]):
        for row in range(table.shape[0]):
            place = places[i, row]
            sign = place >> 63
            table[row, place ^ sign] += (weight ^ sign) - sign


@inlined
def read(tables: Int, node: int, row: int, places: Int, at: int) -> int:
    """What stands at a place, with the sign of the place."""
    code = places[at, row]
    sign = code >> 63
    return int((tables[node, row, np.uint64(code ^ sign)] ^ sign) - sign)


@inlined
def middle(a: int, b: int, c: int) -> int:
    """The median of three, without a branch: which is the least cannot be foretold."""
    return max(min(a, b), min(max(a, b), c))


@inlined
def estimate_one(tables: Int, node: int, places: Int, at: int, found: Int) -> float:
    """Estimate how often a value is there: the median over rows of what stands at its places; `found` is scratch."""
    rows = tables.shape[1]
    if rows in (3, 5):
        a, b = read(tables, node, 0, places, at), read(tables, node, 1, places, at)
        c = read(tables, node, 2, places, at)
        if rows == 3:
            return float(middle(a, b, c))
        d, e = read(tables, node, 3, places, at), read(tables, node, 4, places, at)
        return float(middle(e, max(min(a, b), min(c, d)), min(max(a, b), max(c, d))))
    for row in range(rows):
        value = read(tables, node, row, places, at)
        slot = row
        while slot > 0 and found[slot - 1] > value:
            found[slot] = found[slot - 1]
            slot -= 1
        found[slot] = value
    if rows % 2:
        return float(found[rows // 2])
    return float((found[rows // 2 - 1] + found[rows // 2]) / 2.0)


@kernel
def estimate_all(tables: Int, places: Int, share: float, out: Float) -> None:
    """Estimate how often each of some values is there, by the first table."""
    found = np.empty(tables.shape[1], np.int64)
    for i in range(places.shape[0]):
        out[i] = estimate_one(tables, 0, places, i, found) * share


@lean
def combine(into: Int, other: Int, sign: int) -> None:
    """Add or subtract a table."""
    # A product by the sign would keep the compiler from adding several places at once.
    for row in range(into.shape[0]):
        if sign > 0:
            for place in range(into.shape[1]):
                into[row, place] += other[row, place]
        else:
            for place in range(into.shape[1]):
                into[row, place] -= other[row, place]


@kernel
def squares_of(table: Int) -> int:
    """The sum of squared counts over all rows."""
    squares = 0
    for row in range(table.shape[0]):
        for place in range(table.shape[1]):
            squares += int(table[row, place]) ** 2
    return squares


@kernel
def confidence_of(squares: float, total: float, of_squares: float, of_share: float) -> float:
    """The confidence in estimates of a summary: `squares` is the sum of squared counts, as the mean over rows."""
    if total <= 0.0:
        return 1.0
    return float(1.0 / (1.0 + np.sqrt(of_squares * squares + of_share * squares / total)))
