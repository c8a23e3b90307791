"""Weight in a rectangle since the beginning of an era: the elements of the era, with tables over stretches of it.

Idea: elements are kept in order of arrival. 256 of them make a stretch: it is sorted along both axes and cut into
strips of equally many elements, and a table gets the weight below and left of each crossing. Four stretches of a length
are merged into one of the next length, whose strips are finer; so there are few stretches at any time. The weight of a
rectangle in a stretch is four reads of the table, plus a walk over the strips that its edges cut.
Guarantee: exact.
Cost: a stretch of n elements has 2 sqrt(n) strips along each axis; O(sqrt(n)) per rectangle; O(log n) per element, and
about 130 bytes.
Source: prefix sums in rank space, merged as in the logarithmic method (Bentley and Saxe, 1980); Qiao, Gan, Tao, "Range
Thresholding on Streams", section 6, layers trees instead. In three and more dimensions there are no tables, and all
elements are walked over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.logic import Float, Int

Short = NDArray[np.int32]

SHORTEST = 256
GROWTH = 4
# Places in a row of `lengths`: elements of a stretch, strips, elements per strip, where the stretches of this length
# begin, and their tables.
SIZE, STRIPS, STRIP, PLACE, TABLES = range(5)


class History(NamedTuple):
    """Elements of an era, and its stretches by length: those of the next length make their room free again.

    By axis: `sorted` are the coordinates of a stretch in order; `order`, `weight` and `rank` say which elements they
    belong to, and their weights and ranks along the other axis. `used[0]` is how many elements there are.
    """

    points: Float
    weights: Int
    lengths: Int
    sorted: Float
    order: Short
    weight: Int
    rank: Short
    tables: Int
    used: Int


def no_history(dims: int, size: int) -> History:
    """Make room for an era of about `size` elements: a whole number of the longest stretches."""
    lengths: list[list[int]] = []
    place = tables = 0
    length = SHORTEST
    while dims == 2 and length <= size:
        is_last = length * GROWTH > size
        strips, count = 2 * int(np.sqrt(length)), size // length if is_last else GROWTH
        lengths.append([length, strips, length // strips, place, tables])
        place, tables = place + count * length, tables + count * (strips + 1) ** 2
        if is_last:
            size = count * length
        length *= GROWTH
    return History(
        np.zeros((size, dims)),
        np.zeros(size, dtype=np.int64),
        np.array(lengths, dtype=np.int64).reshape(-1, 5),
        np.zeros((2, place)),
        np.zeros((2, place), dtype=np.int32),
        np.zeros((2, place), dtype=np.int64),
        np.zeros((2, place), dtype=np.int32),
        np.zeros(tables, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


@kernel
def build(history: History) -> None:
    """Make the stretches that the elements so far complete."""
    lengths, now = history.lengths, history.used[0]
    for length in range(len(lengths)):
        size = lengths[length, SIZE]
        if now % size:
            return
        start = now - size
        # Which stretch of its length it is, of those since the last longer one.
        number = start // size
        if length + 1 < len(lengths):
            number %= GROWTH
        place = lengths[length, PLACE] + number * size
        for axis in range(2):
            if length == 0:
                sort(history.points, history.order, history.sorted, axis, start, place)
            else:
                merge(history.order, history.sorted, axis, lengths[length - 1, PLACE], size // GROWTH, place)
        finish(history, length, number, start)


@kernel
def sort(points: Float, order: Short, ordered: Float, axis: int, start: int, place: int) -> None:
    """Sort the elements of a shortest stretch along an axis."""
    numbers = points[start : start + SHORTEST, axis].copy()
    by = np.argsort(numbers)
    for rank in range(SHORTEST):
        order[axis, place + rank] = start + by[rank]
        ordered[axis, place + rank] = numbers[by[rank]]


@kernel
def merge(order: Short, ordered: Float, axis: int, source: int, size: int, place: int) -> None:
    """Merge four stretches that stand behind each other into one."""
    a, b, c, d = source, source + size, source + 2 * size, source + 3 * size
    end_a, end_b, end_c, end_d = b, c, d, d + size
    for to in range(place, place + 4 * size):
        # The smaller of the first two, and of the other two.
        left, right = a, c
        if a == end_a or (b < end_b and ordered[axis, b] < ordered[axis, a]):
            left = b
        if c == end_c or (d < end_d and ordered[axis, d] < ordered[axis, c]):
            right = d
        has_left, has_right = a < end_a or b < end_b, c < end_c or d < end_d
        least = left if has_left and not (has_right and ordered[axis, right] < ordered[axis, left]) else right
        order[axis, to] = order[axis, least]
        ordered[axis, to] = ordered[axis, least]
        a += least < end_a
        b += end_a <= least < end_b
        c += end_b <= least < end_c
        d += end_c <= least


@kernel
def finish(history: History, length: int, number: int, start: int) -> None:
    """Find weights and ranks of a stretch that is sorted, and sum up its table."""
    lengths, order, weight, rank, weights = (
        history.lengths,
        history.order,
        history.weight,
        history.rank,
        history.weights,
    )
    size, strip = lengths[length, SIZE], lengths[length, STRIP]
    place = lengths[length, PLACE] + number * size
    ranks = np.empty((2, size), dtype=np.int32)
    for axis in range(2):
        for at in range(size):
            element = order[axis, place + at]
            ranks[axis, element - start] = at
            weight[axis, place + at] = weights[element]
    width = lengths[length, STRIPS] + 1
    begin = lengths[length, TABLES] + number * width * width
    table = history.tables[begin : begin + width * width]
    table[:] = 0
    for at in range(size):
        y = ranks[1, order[0, place + at] - start]
        rank[0, place + at] = y
        rank[1, place + y] = at
        table[(at // strip + 1) * width + y // strip + 1] += weight[0, place + at]
    for row in range(1, width):
        in_row = 0
        for column in range(1, width):
            in_row += table[row * width + column]
            table[row * width + column] = table[(row - 1) * width + column] + in_row


@kernel
def weight_inside(history: History, spans: Float, slot: int) -> int:
    """Read the weight that fell into a range (as in `is_inside`) since the era began."""
    points, weights, lengths, ordered, _, weight, rank, tables, used = history
    total, left = 0, used[0]
    for length in range(len(lengths) - 1, -1, -1):
        size = lengths[length, SIZE]
        for number in range(left // size):
            total += weight_in_stretch(lengths, ordered, weight, rank, tables, length, number, spans, slot)
        left %= size
    for at in range(used[0] - left, used[0]):
        if is_inside(points, at, spans, slot):
            total += weights[at]
    return total


@kernel
def is_inside(points: Float, at: int, spans: Float, slot: int) -> bool:
    """Tell whether a point lies in a range, given as its lows and the numbers before which it ends."""
    dims = points.shape[1]
    for axis in range(dims):
        if points[at, axis] < spans[slot, axis] or points[at, axis] >= spans[slot, dims + axis]:
            return False
    return True


@kernel
def count_below(ordered: Float, axis: int, start: int, size: int, value: float) -> int:
    """Count the coordinates of a stretch below a value; its size is a power of two."""
    at, half = start - 1, size // 2
    while half:
        at += half if ordered[axis, at + half] < value else 0
        half //= 2
    return at - start + (2 if ordered[axis, at + 1] < value else 1)


@kernel
def weight_in_stretch(
    lengths: Int,
    ordered: Float,
    weight: Int,
    rank: Short,
    tables: Int,
    length: int,
    number: int,
    spans: Float,
    slot: int,
) -> int:
    """Read the weight that fell into a rectangle in a stretch."""
    size, strip = lengths[length, SIZE], lengths[length, STRIP]
    place, width = lengths[length, PLACE] + number * size, lengths[length, STRIPS] + 1
    left, right = (
        count_below(ordered, 0, place, size, spans[slot, 0]),
        count_below(ordered, 0, place, size, spans[slot, 2]),
    )
    below, above = (
        count_below(ordered, 1, place, size, spans[slot, 1]),
        count_below(ordered, 1, place, size, spans[slot, 3]),
    )
    # Strips that lie inside, from the first to before the last.
    first_x, last_x = -(-left // strip), right // strip
    first_y, last_y = -(-below // strip), above // strip
    if first_x >= last_x:
        return weight_in_strips(weight, rank, 0, place, left, right, below, above)
    inner_left, inner_right = first_x * strip, last_x * strip
    total = weight_in_strips(weight, rank, 0, place, left, inner_left, below, above)
    total += weight_in_strips(weight, rank, 0, place, inner_right, right, below, above)
    if first_y >= last_y:
        return total + weight_in_strips(weight, rank, 1, place, below, above, inner_left, inner_right)
    total += weight_in_strips(weight, rank, 1, place, below, first_y * strip, inner_left, inner_right)
    total += weight_in_strips(weight, rank, 1, place, last_y * strip, above, inner_left, inner_right)
    corner = lengths[length, TABLES] + number * width * width
    upper = tables[corner + last_x * width + last_y] - tables[corner + last_x * width + first_y]
    lower = tables[corner + first_x * width + last_y] - tables[corner + first_x * width + first_y]
    return int(total + upper - lower)


@kernel
def weight_in_strips(
    weight: Int, rank: Short, axis: int, place: int, first: int, stop: int, low: int, high: int
) -> int:
    """Add up the weight of some ranks along an axis, where the other rank is from `low` to before `high`."""
    total = 0
    for at in range(place + first, place + stop):
        total += weight[axis, at] if low <= rank[axis, at] < high else 0
    return total
