"""Weight between any two ends: sorted cut points with the weight that fell into each cell between neighbours.

Idea: the ends of all ranges cut the line into cells; a cell is named by the cut at its left. Cuts stand in blocks of at
most 64, in order, and a directory has the first cut and the weight of each block, with one more sum per 64 blocks. An
element adds to three sums. The weight between two cuts is read from the cells next to them and the sums between. A new
cut parts a cell: its weight stays with the left part, which changes no difference of two readings at older cuts. A
block that is full is halved.
Guarantee: exact, for readings of one pair of cuts at two moments: their difference is the weight that fell between
them meanwhile.
Cost: O(log n + 64 + n / 4096) per element, reading and new cut, with n cuts; 20 bytes per cut, blocks being full to
seven eighths.
Source: the elementary intervals of an endpoint tree (Qiao, Gan, Tao, "Range Thresholding on Streams", section 4); a
sorted list in blocks instead of a tree, for it is the same read with less memory to walk through.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel, lean
from tocsin.runtime.contract import Float, Int

BLOCK = 64
FILL = 56
GROUP = 64
LARGEST = float(np.finfo(np.float64).max)


# Places in a row of the directory.
NUMBER, SIZE, SUM = range(3)


class Ends(NamedTuple):
    """Cuts in blocks. By position in the directory: the first cut, and the number, size and weight of a block.

    `scale` parts the line evenly, and `guide` has for each part the positions between which its blocks stand. `groups`
    has the weight of each 64 positions. The cuts of block b are those from 64 b on; `weight` and `unit` belong to the
    cells. `used[0]` is how many blocks there are. What is not in use is NaN, which is not below any number.
    """

    first: Float
    guide: NDArray[np.int32]
    scale: Float
    directory: Int
    groups: Int
    cuts: Float
    weight: Int
    unit: Int
    used: Int


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


@lean
def part_of(scale: Float, value: float) -> int:
    """Give the part of the line that a value is in."""
    inner = min(max(value, scale[0]), scale[1])
    return int((inner / 2 - scale[0] / 2) * scale[2])


@kernel
def position_of(first: Float, guide: NDArray[np.int32], scale: Float, value: float) -> int:
    """Give the directory position of the block that holds a value."""
    part = part_of(scale, value)
    low = int(guide[part])
    length = guide[part + 1] - low + 1
    while length > 1:
        half = length // 2
        low += half if first[low + half] <= value else 0
        length -= half
    return low


@kernel
def cell_of(directory: Int, cuts: Float, position: int, value: float) -> int:
    """Give the cell that holds a value, inside the block at a position."""
    low = int(directory[position, NUMBER]) * BLOCK
    for half in (32, 16, 8, 4, 2, 1):
        low += half if cuts[low + half] <= value else 0
    return low


@kernel
def add_weight(directory: Int, groups: Int, cuts: Float, weight: Int, position: int, value: float, load: int) -> int:
    """Let an element fall into its cell, in the block at a position; give the cell."""
    cell = cell_of(directory, cuts, position, value)
    weight[cell] += load
    directory[position, SUM] += load
    groups[position // GROUP] += load
    return cell


@kernel
def cell_before(directory: Int, position: int, cell: int) -> int:
    """Give the cell in front of one of the block at a position."""
    if cell > directory[position, NUMBER] * BLOCK or position == 0:
        return cell - 1
    return int(directory[position - 1, NUMBER] * BLOCK + directory[position - 1, SIZE] - 1)


@kernel
def weight_between(
    first: Float,
    guide: NDArray[np.int32],
    scale: Float,
    directory: Int,
    groups: Int,
    cuts: Float,
    weight: Int,
    low: float,
    up: float,
) -> int:
    """Read the weight of the cells from the cut `low` to the cut `up`."""
    here, there = position_of(first, guide, scale, low), position_of(first, guide, scale, up)
    start, stop = cell_of(directory, cuts, here, low), cell_of(directory, cuts, there, up)
    return weight_of_cells(directory, groups, weight, here, start, there, stop)


@kernel
def weight_of_cells(directory: Int, groups: Int, weight: Int, here: int, start: int, there: int, stop: int) -> int:
    """Read the weight from a cell of the block at `here` to before a cell of the block at `there`."""
    total = 0
    if here == there:
        for cell in range(start, stop):
            total += weight[cell]
        return total
    for cell in range(start, directory[here, NUMBER] * BLOCK + directory[here, SIZE]):
        total += weight[cell]
    for cell in range(directory[there, NUMBER] * BLOCK, stop):
        total += weight[cell]
    return total + _sums_between(directory, groups, here + 1, there)


@kernel
def _sums_between(directory: Int, groups: Int, here: int, there: int) -> int:
    """Read the weight of the blocks at positions from `here` to before `there`."""
    total = 0
    first, last = -(-here // GROUP), there // GROUP
    if first > last:
        for at in range(here, there):
            total += directory[at, SUM]
        return total
    for at in range(here, first * GROUP):
        total += directory[at, SUM]
    for group in range(first, last):
        total += groups[group]
    for at in range(last * GROUP, there):
        total += directory[at, SUM]
    return total


@kernel
def add_cut(ends: Ends, value: float) -> int:
    """Part the cell that holds a value there, if it does not begin there; a block must be free. Give the position."""
    first, guide, scale, directory, _, cuts, weight, unit, _ = ends
    position = position_of(first, guide, scale, value)
    cell = cell_of(directory, cuts, position, value)
    if cuts[cell] == value:
        return position
    if directory[position, SIZE] == BLOCK:
        _halve(ends, position)
        position = position_of(first, guide, scale, value)
        cell = cell_of(directory, cuts, position, value)
    end = directory[position, NUMBER] * BLOCK + directory[position, SIZE]
    for at in range(end, cell + 1, -1):
        cuts[at] = cuts[at - 1]
        weight[at] = weight[at - 1]
        unit[at] = unit[at - 1]
    cuts[cell + 1] = value
    weight[cell + 1] = 0
    unit[cell + 1] = unit[cell]
    directory[position, SIZE] += 1
    return position


@kernel
def _halve(ends: Ends, position: int) -> None:
    """Move the upper half of a full block to a new one, which comes next in the directory."""
    first, guide, scale, directory, _, cuts, weight, unit, used = ends
    new, half = used[0], BLOCK // 2
    old = directory[position, NUMBER]
    moved = 0
    for at in range(half):
        source, target = old * BLOCK + half + at, new * BLOCK + at
        cuts[target] = cuts[source]
        cuts[source] = np.nan
        weight[target] = weight[source]
        unit[target] = unit[source]
        moved += weight[source]
    for at in range(new, position + 1, -1):
        first[at] = first[at - 1]
        for column in range(3):
            directory[at, column] = directory[at - 1, column]
    first[position + 1] = cuts[new * BLOCK]
    directory[position + 1, NUMBER] = new
    directory[position + 1, SIZE] = half
    directory[position + 1, SUM] = moved
    directory[position, SIZE] = half
    directory[position, SUM] -= moved
    used[0] += 1
    for part in range(part_of(scale, first[position + 1]) + 1, len(guide)):
        guide[part] += 1
    sum_groups(ends, position)
