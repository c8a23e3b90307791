"""Weight between any two ends: sorted cut points with the weight that fell into each cell between neighbours.

Idea: the ends of all ranges cut the line into cells; a cell is named by the cut at its left. Cuts stand in blocks of at
most 64, in order, and a directory has the first cut and the weight of each block, with one more sum per 64 blocks. An
element adds to three sums. The weight between two cuts is read from the cells next to them and the sums between. A new
cut parts a cell: its weight stays with the left part, which changes no difference of two readings at older cuts. A
block that is full is halved.
Guarantee: exact, for readings of one pair of cuts at two moments: their difference is the weight that fell between
them meanwhile.
Cost: O(log n + 64 + n / 4096) per element, reading and new cut, with n cuts; 20 bytes per cut, blocks being full to
three quarters.
Source: the elementary intervals of an endpoint tree (Qiao, Gan, Tao, "Range Thresholding on Streams", section 4); a
sorted list in blocks instead of a tree, for it is the same read with less memory to walk through.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.logic import Float, Int

BLOCK = 64
FILL = 48
GROUP = 64
LARGEST = float(np.finfo(np.float64).max)


# Places in a row of the directory.
NUMBER, SIZE, SUM = range(3)


class Ends(NamedTuple):
    """Cuts in blocks. By position in the directory: the first cut, and the number, size and weight of a block.

    `groups` has the weight of each 64 positions. The cuts of block b are those from 64 b on; `weight` and `unit` belong
    to the cells. `used[0]` is how many blocks there are.
    """

    first: Float
    directory: Int
    groups: Int
    cuts: Float
    weight: Int
    unit: Int
    used: Int


def make_ends(cuts: Float, weight: Int, unit: Int, room: int) -> Ends:
    """Lay out sorted, distinct cuts, of which the first is minus infinity, with room for more blocks."""
    blocks = -(-len(cuts) // FILL)
    capacity = blocks + room
    ends = Ends(
        np.full(capacity, np.inf),
        np.zeros((capacity, 3), dtype=np.int64),
        np.zeros(capacity // GROUP + 1, dtype=np.int64),
        np.full(capacity * BLOCK, np.inf),
        np.zeros(capacity * BLOCK, dtype=np.int64),
        np.zeros(capacity * BLOCK, dtype=np.int32),
        np.array([blocks]),
    )
    at = np.arange(len(cuts))
    place = at // FILL * BLOCK + at % FILL
    ends.cuts[place], ends.weight[place], ends.unit[place] = cuts, weight, unit
    ends.first[:blocks] = cuts[::FILL]
    ends.directory[:, NUMBER] = np.arange(capacity)
    ends.directory[:blocks, SIZE] = np.bincount(at // FILL, minlength=blocks)
    ends.directory[:blocks, SUM] = np.add.reduceat(weight, np.arange(0, len(cuts), FILL))
    sum_groups(ends, 0)
    return ends


def grow_ends(ends: Ends) -> Ends:
    """Make room for about a quarter more blocks."""
    blocks = len(ends.first) // 4 + GROUP
    directory = with_room(ends.directory, blocks)
    directory[-blocks:, NUMBER] = np.arange(len(directory) - blocks, len(directory))
    return ends._replace(
        first=with_room(ends.first, blocks),
        directory=directory,
        groups=with_room(ends.groups, blocks // GROUP + 1),
        cuts=with_room(ends.cuts, blocks * BLOCK),
        weight=with_room(ends.weight, blocks * BLOCK),
        unit=with_room(ends.unit, blocks * BLOCK),
    )


def with_room(array: NDArray[Any], room: int) -> NDArray[Any]:
    """Copy an array with room behind."""
    wide = np.zeros((len(array) + room, *array.shape[1:]), dtype=array.dtype)
    wide[: len(array)] = array
    return wide


def next_number(numbers: Float, towards: float) -> Float:
    """Give the next doubles: a closed range ends before the one above its end."""
    with np.errstate(over="ignore"):
        return np.nextafter(numbers, towards)


def all_cells(ends: Ends) -> tuple[Float, Int]:
    """Give all cuts in order, with the weight of their cells."""
    blocks, sizes = ends.directory[: ends.used[0], NUMBER], ends.directory[: ends.used[0], SIZE]
    inside = np.arange(BLOCK) < sizes[:, None]
    place = (blocks[:, None] * BLOCK + np.arange(BLOCK))[inside]
    return ends.cuts[place], ends.weight[place]


@kernel
def up_of(high: float) -> float:
    """Give the next double: a closed range ends before it."""
    if abs(high) >= LARGEST:
        return np.inf if high > 0 else -LARGEST if high < -LARGEST else np.nextafter(-LARGEST, 0.0)
    return float(np.nextafter(high, np.inf))


@kernel
def high_of(up: float) -> float:
    """Give the double before."""
    if abs(up) >= LARGEST:
        return -np.inf if up < 0 else LARGEST if up > LARGEST else np.nextafter(LARGEST, 0.0)
    return float(np.nextafter(up, -np.inf))


@kernel
def sum_groups(ends: Ends, position: int) -> None:
    """Add up the sums of the group at a position and of all groups behind it."""
    for group in range(position // GROUP, (ends.used[0] - 1) // GROUP + 1):
        total = 0
        for at in range(group * GROUP, min((group + 1) * GROUP, ends.used[0])):
            total += ends.directory[at, SUM]
        ends.groups[group] = total


@kernel
def position_of(ends: Ends, value: float) -> int:
    """Give the directory position of the block that holds a value."""
    low, length = 0, ends.used[0]
    while length > 1:
        half = length // 2
        if ends.first[low + half] <= value:
            low += half
        length -= half
    return low


@kernel
def cell_of(ends: Ends, position: int, value: float) -> int:
    """Give the cell that holds a value, inside the block at a position."""
    low, length = int(ends.directory[position, NUMBER]) * BLOCK, ends.directory[position, SIZE]
    while length > 1:
        half = length // 2
        if ends.cuts[low + half] <= value:
            low += half
        length -= half
    return low


@kernel
def unit_of(ends: Ends, value: float) -> int:
    """Give the unit of the cell that holds a value."""
    return int(ends.unit[cell_of(ends, position_of(ends, value), value)])


@kernel
def cell_before(ends: Ends, position: int, cell: int) -> int:
    """Give the cell in front of one of the block at a position."""
    if cell > ends.directory[position, NUMBER] * BLOCK or position == 0:
        return cell - 1
    return int(ends.directory[position - 1, NUMBER] * BLOCK + ends.directory[position - 1, SIZE] - 1)


@kernel
def add_weight(ends: Ends, value: float, weight: int) -> int:
    """Let an element fall into its cell; give the cell."""
    position = position_of(ends, value)
    cell = cell_of(ends, position, value)
    ends.weight[cell] += weight
    ends.directory[position, SUM] += weight
    ends.groups[position // GROUP] += weight
    return cell


@kernel
def weight_between(ends: Ends, low: float, up: float) -> int:
    """Read the weight of the cells from the cut `low` to the cut `up`."""
    here, there = position_of(ends, low), position_of(ends, up)
    return weight_of_cells(ends, here, cell_of(ends, here, low), there, cell_of(ends, there, up))


@kernel
def weight_of_cells(ends: Ends, here: int, start: int, there: int, stop: int) -> int:
    """Read the weight from a cell of the block at `here` to before a cell of the block at `there`."""
    total = 0
    if here == there:
        for cell in range(start, stop):
            total += ends.weight[cell]
        return total
    for cell in range(start, ends.directory[here, NUMBER] * BLOCK + ends.directory[here, SIZE]):
        total += ends.weight[cell]
    for cell in range(ends.directory[there, NUMBER] * BLOCK, stop):
        total += ends.weight[cell]
    return total + _sums_between(ends, here + 1, there)


@kernel
def _sums_between(ends: Ends, here: int, there: int) -> int:
    """Read the weight of the blocks at positions from `here` to before `there`."""
    total = 0
    first, last = -(-here // GROUP), there // GROUP
    if first > last:
        for at in range(here, there):
            total += ends.directory[at, SUM]
        return total
    for at in range(here, first * GROUP):
        total += ends.directory[at, SUM]
    for group in range(first, last):
        total += ends.groups[group]
    for at in range(last * GROUP, there):
        total += ends.directory[at, SUM]
    return total


@kernel
def add_cut(ends: Ends, value: float) -> int:
    """Part the cell that holds a value there, if it does not begin there; a block must be free. Give the position."""
    position = position_of(ends, value)
    cell = cell_of(ends, position, value)
    if ends.cuts[cell] == value:
        return position
    if ends.directory[position, SIZE] == BLOCK:
        _halve(ends, position)
        position = position_of(ends, value)
        cell = cell_of(ends, position, value)
    end = ends.directory[position, NUMBER] * BLOCK + ends.directory[position, SIZE]
    for at in range(end, cell + 1, -1):
        ends.cuts[at] = ends.cuts[at - 1]
        ends.weight[at] = ends.weight[at - 1]
        ends.unit[at] = ends.unit[at - 1]
    ends.cuts[cell + 1] = value
    ends.weight[cell + 1] = 0
    ends.unit[cell + 1] = ends.unit[cell]
    ends.directory[position, SIZE] += 1
    return position


@kernel
def _halve(ends: Ends, position: int) -> None:
    """Move the upper half of a full block to a new one, which comes next in the directory."""
    new, half = ends.used[0], BLOCK // 2
    old = ends.directory[position, NUMBER]
    moved = 0
    for at in range(half):
        source, target = old * BLOCK + half + at, new * BLOCK + at
        ends.cuts[target] = ends.cuts[source]
        ends.weight[target] = ends.weight[source]
        ends.unit[target] = ends.unit[source]
        moved += ends.weight[source]
    for at in range(new, position + 1, -1):
        ends.first[at] = ends.first[at - 1]
        for column in range(3):
            ends.directory[at, column] = ends.directory[at - 1, column]
    ends.first[position + 1] = ends.cuts[new * BLOCK]
    ends.directory[position + 1, NUMBER] = new
    ends.directory[position + 1, SIZE] = half
    ends.directory[position + 1, SUM] = moved
    ends.directory[position, SIZE] = half
    ends.directory[position, SUM] -= moved
    ends.used[0] += 1
    sum_groups(ends, position)
