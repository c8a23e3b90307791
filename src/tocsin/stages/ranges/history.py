"""Weight in a rectangle since the beginning of an era: its elements, a grid that counts them, and strips of the grid.

Idea: borders cut the first two axes into units of about equal weight. Elements are kept in order of arrival, and when
enough have come they are *summed*: each adds to a cell between units; then sums over all cells below and left of each
crossing are made, so that a rectangle of units is four reads. The *cover* of a range is the units that it touches: what
fell there bounds what fell into the range. The range itself is the units inside, and of the four strips that its edges
cut those elements that lie in it; elements go to the strips of their units along either axis when a range is read.
Guarantee: the weight in a range is exact; that of its cover is never less.
Cost: O(log units) per element and O(units^2) per sum; a cover O(1), a range O(n / units), and both the elements that
came since the last sum; about 80 bytes per element. In three and more dimensions a range is read from all elements.
Source: prefix sums in rank space, of ranks that are rounded; Qiao, Gan, Tao, "Range Thresholding on Streams", section
6, layers trees instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import inlined, lean
from tocsin.runtime.contract import Float, Int
from tocsin.stages.ranges.ends import high_of, up_of
from tocsin.stages.ranges.places import Places, Short, place_of, places_among

BLOCK = 64
# Places in `seen`: how many elements there are, how many of them are summed, how many of those are in strips, how many
# the regions have taken, and how many blocks the strips have.
USED, SUMMED, STRIPPED, LOADED, BLOCKS = range(5)


class History(NamedTuple):
    """Elements of an era; borders of units, weight by cell and sums of it; strips, and `seen`.

    A strip is a chain of blocks: `last` has its newest block by axis and unit, `before` the block before each, `filled`
    how many elements a block has. `ends` are their coordinates, `loads` their weights.
    """

    points: Float
    weights: Int
    borders: tuple[Places, Places]
    cells: Int
    sums: Int
    last: Short
    before: Short
    filled: Short
    ends: Float
    loads: Int
    seen: Int


def no_history(dims: int, size: int, sample: Float, units_log2: int) -> History:
    """Make room for an era of `size` elements, with units of about as many points of a sample each."""
    share = np.linspace(0, 1, (1 << units_log2) + 1)[1:-1]
    across, along = np.quantile(sample[:, :2], share, axis=0, method="lower").T
    units = 1 << units_log2
    blocks = 2 * (size // BLOCK + units) if dims == 2 else 0
    return History(
        np.zeros((size, dims)),
        np.zeros(size, dtype=np.int64),
        (places_among(np.append(-np.inf, across)), places_among(np.append(-np.inf, along))),
        np.zeros((units, units), dtype=np.int64),
        np.zeros((units + 1, units + 1), dtype=np.int64),
        np.full((2, units), -1, dtype=np.int32),
        np.zeros(blocks, dtype=np.int32),
        np.zeros(blocks, dtype=np.int32),
        np.zeros((blocks, 2, BLOCK)),
        np.zeros((blocks, BLOCK), dtype=np.int64),
        np.zeros(5, dtype=np.int64),
    )


@inlined
def unit_of(borders: Places, value: float) -> int:
    """Give the unit of a value; one that many borders share is in the middle of them, far from its neighbours."""
    last = first = place_of(borders, value)
    while first and borders.numbers[first] == value:
        first -= 1
    return (first + last) // 2


@lean
def sum_up(history: History) -> None:
    """Put the elements that came since the last time into cells, and sum these up."""
    points, weights, (across, along), cells, sums, _, _, _, _, _, seen = history
    for at in range(seen[SUMMED], seen[USED]):
        cells[unit_of(across, points[at, 0]), unit_of(along, points[at, 1])] += weights[at]
    seen[SUMMED] = seen[USED]
    for row in range(cells.shape[0]):
        in_row = 0
        for column in range(cells.shape[1]):
            in_row += cells[row, column]
            sums[row + 1, column + 1] = sums[row, column + 1] + in_row


@lean
def put_into_strips(history: History) -> None:
    """Let strips have the elements that are summed: only readings of ranges need them."""
    points, weights, borders, _, _, last, before, filled, ends, loads, seen = history
    for at in range(seen[STRIPPED], seen[SUMMED]):
        for axis in range(2):
            unit = unit_of(borders[axis], points[at, axis])
            block = last[axis, unit]
            if block < 0 or filled[block] == BLOCK:
                before[seen[BLOCKS]] = block
                block = seen[BLOCKS]
                last[axis, unit] = block
                seen[BLOCKS] += 1
            place = filled[block]
            filled[block] = place + 1
            ends[block, 0, place] = points[at, 0]
            ends[block, 1, place] = points[at, 1]
            loads[block, place] = weights[at]
    seen[STRIPPED] = seen[SUMMED]


@lean
def weight_of_units(sums: Int, left: int, right: int, below: int, above: int) -> int:
    """Read the weight of the units from `left` to before `right`, and from `below` to before `above`."""
    return int(sums[right, above] - sums[left, above] - sums[right, below] + sums[left, below])


@lean
def weight_of_cover(history: History, spans: Float, slot: int) -> int:
    """Read what fell into the cover of a range since the era began; of elements not summed, into the range itself."""
    borders, dims = history.borders, history.points.shape[1]
    left, right = unit_of(borders[0], spans[slot, 0]), unit_of(borders[0], high_of(spans[slot, dims]))
    below, above = unit_of(borders[1], spans[slot, 1]), unit_of(borders[1], high_of(spans[slot, dims + 1]))
    total = weight_of_units(history.sums, left, right + 1, below, above + 1)
    return total + weight_since(history, spans, slot, history.seen[SUMMED])


@lean
def weight_inside(history: History, spans: Float, slot: int) -> int:
    """Read the weight that fell into a range (as in `is_inside`) since the era began."""
    borders, sums, dims = history.borders, history.sums, history.points.shape[1]
    if dims != 2:
        return weight_since(history, spans, slot, 0)
    put_into_strips(history)
    low_x, low_y, up_x, up_y = spans[slot, 0], spans[slot, 1], spans[slot, 2], spans[slot, 3]
    left, right = unit_of(borders[0], low_x), unit_of(borders[0], high_of(up_x))
    below, above = unit_of(borders[1], low_y), unit_of(borders[1], high_of(up_y))
    total = weight_since(history, spans, slot, history.seen[SUMMED])
    # Whole columns of the grid at both ends, of the units between them rows at both ends, and what is inside of all.
    total += weight_in_strip(history, 0, left, low_x, up_x, low_y, up_y)
    if right > left:
        total += weight_in_strip(history, 0, right, low_x, up_x, low_y, up_y)
    if right > left + 1:
        inner_low, inner_up = first_behind(borders[0], left), first_of(borders[0], right)
        total += weight_in_strip(history, 1, below, inner_low, inner_up, low_y, up_y)
        if above > below:
            total += weight_in_strip(history, 1, above, inner_low, inner_up, low_y, up_y)
        if above > below + 1:
            total += weight_of_units(sums, left + 1, right, below + 1, above)
    return total


@lean
def first_behind(borders: Places, unit: int) -> float:
    """Give the least number that is in a unit behind this one, which is not the last."""
    border = borders.numbers[unit + 1]
    return float(border if unit_of(borders, border) > unit else up_of(border))


@lean
def first_of(borders: Places, unit: int) -> float:
    """Give the number before which all are in units before this one, which is not the first."""
    border = borders.numbers[unit]
    return float(up_of(border) if unit_of(borders, border) < unit else border)


@lean
def weight_in_strip(
    history: History, axis: int, unit: int, low_x: float, up_x: float, low_y: float, up_y: float
) -> int:
    """Add up the elements of a strip that lie in a rectangle."""
    before, filled, ends, loads = history.before, history.filled, history.ends, history.loads
    total, block = 0, history.last[axis, unit]
    while block >= 0:
        # No branch, so that the machine takes several elements at a time.
        for at in range(filled[block]):
            x, y = ends[block, 0, at], ends[block, 1, at]
            total += loads[block, at] if (low_x <= x) & (x < up_x) & (low_y <= y) & (y < up_y) else 0
        block = before[block]
    return total


@lean
def weight_since(history: History, spans: Float, slot: int, first: int) -> int:
    """Add up the elements from some number on that lie in a range."""
    points, weights, total = history.points, history.weights, 0
    for at in range(first, history.seen[USED]):
        if is_inside(points, at, spans, slot):
            total += weights[at]
    return total


@lean
def is_inside(points: Float, at: int, spans: Float, slot: int) -> bool:
    """Tell whether a point lies in a range, given as its lows and the numbers before which it ends."""
    dims = points.shape[1]
    for axis in range(dims):
        if points[at, axis] < spans[slot, axis] or points[at, axis] >= spans[slot, dims + axis]:
            return False
    return True
