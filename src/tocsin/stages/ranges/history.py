"""Weight in a rectangle since any moment of an era: the elements of the era, with tables over stretches of it.

Idea: the elements of an era are kept in order of arrival. When a stretch of 256, 1,024, 4,096, ... is full it is sorted
along both axes and cut into strips of equally many elements, and a table gets the weight below and left of each
crossing. The weight of a rectangle in a stretch is four reads of the table, plus a walk over the strips that its edges
cut. A time span is cut into the fewest such stretches and a few single elements.
Guarantee: exact.
Cost: a stretch of n elements has 2 sqrt(n) strips along each axis; O(sqrt(n)) per rectangle, O(log n) per element and
length of stretch to build; 72 bytes per element and length.
Source: prefix sums in rank space; Qiao, Gan, Tao, "Range Thresholding on Streams", section 6, layers trees instead.
In three and more dimensions there are no tables, and all elements are walked over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Float, Int

SHORTEST = 256
GROWTH = 4
# Places in a row of `lengths`: elements of a stretch, strips, elements per strip, where the tables of a length begin.
SIZE, STRIPS, STRIP, TABLES = range(4)


class History(NamedTuple):
    """Elements of an era; for each length of stretch the coordinates in order, and weights and ranks in that order.

    `sorted[l, a]` are coordinates along axis a; `weight[l, a]` the weights of the same elements, and `rank[l, a]` their
    ranks along the other axis. `used[0]` is how many elements there are.
    """

    points: Float
    weights: Int
    lengths: Int
    sorted: Float
    weight: Int
    rank: Int
    tables: Int
    used: Int


def no_history(dims: int, size: int) -> History:
    """Make room for an era; it has a whole number of the longest stretches."""
    lengths = np.zeros((0, 4), dtype=np.int64)
    room = 0
    length = SHORTEST
    while dims == 2 and length <= size:
        strips = 2 * int(np.sqrt(length))
        lengths = np.append(lengths, [[length, strips, length // strips, room]], axis=0)
        room += size // length * (strips + 1) ** 2
        length *= GROWTH
    shape = (len(lengths), 2, size)
    return History(
        np.zeros((size, dims)),
        np.zeros(size, dtype=np.int64),
        lengths,
        np.zeros(shape),
        np.zeros(shape, dtype=np.int64),
        np.zeros(shape, dtype=np.int32),
        np.zeros(room, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


@kernel
def append(history: History, point: Float, weight: int) -> None:
    """Add an element; build the stretches that it completes."""
    at = history.used[0]
    for axis in range(len(point)):
        history.points[at, axis] = point[axis]
    history.weights[at] = weight
    history.used[0] = at + 1
    for length in range(len(history.lengths)):
        if (at + 1) % history.lengths[length, SIZE] != 0:
            break
        build(history, length, at + 1 - history.lengths[length, SIZE])


@kernel
def build(history: History, length: int, start: int) -> None:
    """Sort a stretch along both axes and sum up its table."""
    size, strip = history.lengths[length, SIZE], history.lengths[length, STRIP]
    ranks = np.empty((2, size), dtype=np.int64)
    for axis in range(2):
        numbers = history.points[start : start + size, axis].copy()
        order = np.argsort(numbers)
        for rank in range(size):
            element = order[rank]
            ranks[axis, element] = rank
            history.sorted[length, axis, start + rank] = numbers[element]
            history.weight[length, axis, start + rank] = history.weights[start + element]
    width = history.lengths[length, STRIPS] + 1
    table = history.tables[table_at(history, length, start) :][: width * width]
    table[:] = 0
    for element in range(size):
        x, y = ranks[0, element], ranks[1, element]
        history.rank[length, 0, start + x] = y
        history.rank[length, 1, start + y] = x
        table[(x // strip + 1) * width + y // strip + 1] += history.weights[start + element]
    for row in range(1, width):
        in_row = 0
        for column in range(1, width):
            in_row += table[row * width + column]
            table[row * width + column] = table[(row - 1) * width + column] + in_row


@kernel
def table_at(history: History, length: int, start: int) -> int:
    """Give where the table of a stretch begins."""
    width = history.lengths[length, STRIPS] + 1
    return int(history.lengths[length, TABLES] + start // history.lengths[length, SIZE] * width * width)


@kernel
def weight_since(history: History, since: int, span: Float) -> int:
    """Read the weight that fell into a range (as in `is_inside`) since some element of the era."""
    lengths, now = history.lengths, history.used[0]
    total, at = 0, since
    while at < now:
        length = -1
        while (
            length + 1 < len(lengths) and at % lengths[length + 1, SIZE] == 0 and at + lengths[length + 1, SIZE] <= now
        ):
            length += 1
        if length >= 0:
            total += weight_in_stretch(history, length, at, span)
            at += lengths[length, SIZE]
        else:
            stop = min(now, (at // SHORTEST + 1) * SHORTEST)
            total += weight_of_elements(history, at, stop, span)
            at = stop
    return total


@kernel
def is_inside(point: Float, span: Float) -> bool:
    """Tell whether a point lies in a range, given as its lows and the numbers before which it ends."""
    dims = len(point)
    for axis in range(dims):
        if point[axis] < span[axis] or point[axis] >= span[dims + axis]:
            return False
    return True


@kernel
def weight_of_elements(history: History, start: int, stop: int, span: Float) -> int:
    """Add up the weight of the elements in a range, one by one."""
    total = 0
    for at in range(start, stop):
        if is_inside(history.points[at], span):
            total += history.weights[at]
    return total


@kernel
def weight_in_stretch(history: History, length: int, start: int, span: Float) -> int:
    """Read the weight that fell into a rectangle in a stretch."""
    size, strip = history.lengths[length, SIZE], history.lengths[length, STRIP]
    xs, ys = history.sorted[length, 0, start : start + size], history.sorted[length, 1, start : start + size]
    left, right = np.searchsorted(xs, span[0]), np.searchsorted(xs, span[2])
    below, above = np.searchsorted(ys, span[1]), np.searchsorted(ys, span[3])
    if left >= right or below >= above:
        return 0
    # Strips that lie inside, from the first to before the last.
    first_x, last_x = -(-left // strip), right // strip
    first_y, last_y = -(-below // strip), above // strip
    if first_x >= last_x:
        return weight_in_strips(history, length, 0, start, left, right, below, above)
    total = weight_in_strips(history, length, 0, start, left, first_x * strip, below, above)
    total += weight_in_strips(history, length, 0, start, last_x * strip, right, below, above)
    inner_left, inner_right = first_x * strip, last_x * strip
    if first_y >= last_y:
        return total + weight_in_strips(history, length, 1, start, below, above, inner_left, inner_right)
    total += weight_in_strips(history, length, 1, start, below, first_y * strip, inner_left, inner_right)
    total += weight_in_strips(history, length, 1, start, last_y * strip, above, inner_left, inner_right)
    width = history.lengths[length, STRIPS] + 1
    corner = table_at(history, length, start)
    table = history.tables[corner : corner + width * width]
    upper = table[last_x * width + last_y] - table[last_x * width + first_y]
    lower = table[first_x * width + last_y] - table[first_x * width + first_y]
    return int(total + upper - lower)


@kernel
def weight_in_strips(
    history: History, length: int, axis: int, start: int, first: int, stop: int, low: int, high: int
) -> int:
    """Add up the weight of some ranks along an axis, where the other rank is from `low` to before `high`."""
    total = 0
    for at in range(start + first, start + stop):
        if low <= history.rank[length, axis, at] < high:
            total += history.weight[length, axis, at]
    return total
