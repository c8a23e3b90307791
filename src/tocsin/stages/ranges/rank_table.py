"""Weight in many rectangles of the same elements: a table in rank space.

Idea: the elements are sorted along both axes and cut into strips of equally many; a table gets the weight below and
left of each crossing. The weight of a rectangle is four reads of the table, plus a walk over the strips that its edges
cut.
Guarantee: exact.
Cost: with n elements 2 sqrt(n) strips along each axis; O(n log n) to make, O(sqrt(n)) per rectangle; about 70 bytes per
element.
Source: prefix sums in rank space; Qiao, Gan, Tao, "Range Thresholding on Streams", section 6, layers trees instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Float, Int
from tocsin.stages.ranges.history import Short


class RankTable(NamedTuple):
    """By axis: coordinates in order, and the weights and the ranks along the other axis of the elements they are of."""

    sorted: Float
    weight: Int
    rank: Short
    table: Int
    strip: int


def make_table(points: Float, weights: Int) -> RankTable:
    """Make the table of some elements of the plane."""
    n = len(weights)
    strips = max(2 * int(np.sqrt(n)), 1)
    strip = -(-max(n, 1) // strips)
    order = [np.argsort(points[:, axis]) for axis in range(2)]
    sorted_, weight = np.empty((2, n)), np.empty((2, n), dtype=np.int64)
    ranks, rank = np.empty(n, dtype=np.int32), np.empty((2, n), dtype=np.int32)
    for axis in range(2):
        sorted_[axis], weight[axis] = points[order[axis], axis], weights[order[axis]]
        ranks[order[axis]] = np.arange(n, dtype=np.int32)
        rank[1 - axis] = ranks[order[1 - axis]]
    made = RankTable(sorted_, weight, rank, np.zeros((n // strip + 2, n // strip + 2), dtype=np.int64), strip)
    fill(made)
    return made


@kernel
def fill(ranked: RankTable) -> None:
    """Sum up the table."""
    _, weight, rank, table, strip = ranked
    for at in range(weight.shape[1]):
        table[at // strip + 1, rank[0, at] // strip + 1] += weight[0, at]
    for row in range(1, table.shape[0]):
        in_row = 0
        for column in range(1, table.shape[1]):
            in_row += table[row, column]
            table[row, column] = table[row - 1, column] + in_row


@kernel
def weights_inside(ranked: RankTable, spans: Float, slots: Int) -> Int:
    """Read the weight in some ranges, given as their lows and the numbers before which they end."""
    ordered, weight, rank, table, strip = ranked
    found = np.empty(len(slots), dtype=np.int64)
    for at in range(len(slots)):
        span = spans[slots[at]]
        left, right = count_below(ordered, 0, span[0]), count_below(ordered, 0, span[2])
        below, above = count_below(ordered, 1, span[1]), count_below(ordered, 1, span[3])
        # Strips that lie inside, from the first to before the last.
        first_x, last_x = -(-left // strip), right // strip
        first_y, last_y = -(-below // strip), above // strip
        if first_x >= last_x:
            found[at] = weight_in_strips(weight, rank, 0, left, right, below, above)
            continue
        inner_left, inner_right = first_x * strip, last_x * strip
        total = weight_in_strips(weight, rank, 0, left, inner_left, below, above)
        total += weight_in_strips(weight, rank, 0, inner_right, right, below, above)
        if first_y >= last_y:
            total += weight_in_strips(weight, rank, 1, below, above, inner_left, inner_right)
        else:
            total += weight_in_strips(weight, rank, 1, below, first_y * strip, inner_left, inner_right)
            total += weight_in_strips(weight, rank, 1, last_y * strip, above, inner_left, inner_right)
            total += table[last_x, last_y] - table[last_x, first_y] - table[first_x, last_y] + table[first_x, first_y]
        found[at] = total
    return found


@kernel
def count_below(ordered: Float, axis: int, value: float) -> int:
    """Count the coordinates along an axis that are below a value."""
    low, length = 0, ordered.shape[1]
    while length > 0:
        half = length // 2
        low += length - half if ordered[axis, low + half] < value else 0
        length = half
    return low


@kernel
def weight_in_strips(weight: Int, rank: Short, axis: int, first: int, stop: int, low: int, high: int) -> int:
    """Add up the weight of some ranks along an axis, where the other rank is from `low` to before `high`."""
    total = 0
    for at in range(first, stop):
        total += weight[axis, at] if (low <= rank[axis, at]) & (rank[axis, at] < high) else 0
    return total
