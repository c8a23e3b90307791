"""Make the ends of ranges (`ends`): lay out sorted cuts in blocks, give them back, make room for more."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int
from tocsin.stages.ranges.ends import BLOCK, FILL, GROUP, NUMBER, SIZE, SUM, Ends, part_of, sum_groups

# Bits of a digit, and digits of a key of 64 bits.
_BITS, _DIGITS = 11, 6
_ALL_BUT_SIGN = (1 << 63) - 1


@kernel
def distinct(numbers: Float) -> Float:
    """Sort numbers by their digits, from the last to the first, and leave out those that are there twice.

    Some 30 ns a number, whatever the processor; digits that all numbers share cost nothing.
    """
    # A double as an integer of the same order; adding 0 makes one of two zeros.
    keys = (numbers + 0.0).view(np.int64)
    for at in range(len(keys)):
        keys[at] ^= (keys[at] >> 63) & _ALL_BUT_SIGN
    other, counts = np.empty_like(keys), np.zeros((_DIGITS, 1 << _BITS), dtype=np.int64)
    for at in range(len(keys)):
        for digit in range(_DIGITS):
            counts[digit, _digit_of(keys[at], digit)] += 1
    for digit in range(_DIGITS):
        place, total, most = counts[digit], 0, 0
        for value in range(len(place)):
            most = max(most, place[value])
            place[value], total = total, total + place[value]
        if most < len(keys):
            for at in range(len(keys)):
                value = _digit_of(keys[at], digit)
                other[place[value]] = keys[at]
                place[value] += 1
            keys, other = other, keys
    return _without_repeats(keys)


@kernel
def _digit_of(key: int, digit: int) -> int:
    # The sign bit is turned, for negative numbers come first.
    return int((key ^ ~_ALL_BUT_SIGN) >> (_BITS * digit)) & ((1 << _BITS) - 1)


@kernel
def _without_repeats(keys: Int) -> Float:
    """Give sorted keys as the numbers that they stand for, each once."""
    kept = 0
    for at in range(len(keys)):
        if at == 0 or keys[at] != keys[kept - 1]:
            keys[kept] = keys[at]
            kept += 1
    for at in range(kept):
        keys[at] ^= (keys[at] >> 63) & _ALL_BUT_SIGN
    return keys[:kept].view(np.float64).copy()


def make_ends(cuts: Float, weight: Int, unit: Int, room: int) -> Ends:
    """Lay out sorted, distinct cuts, of which the first is minus infinity, with room for more blocks."""
    blocks = -(-len(cuts) // FILL)
    capacity = blocks + room
    ends = Ends(
        np.full(capacity, np.nan),
        np.zeros((1 << int(blocks).bit_length()) + 1, dtype=np.int32),
        scale_of(cuts, 1 << int(blocks).bit_length()),
        np.zeros((capacity, 3), dtype=np.int64),
        np.zeros(capacity // GROUP + 1, dtype=np.int64),
        np.full(capacity * BLOCK, np.nan),
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
    parts = np.array([part_of(ends.scale, value) for value in ends.first[:blocks].tolist()])
    ends.guide[1:] = np.searchsorted(parts, np.arange(len(ends.guide) - 1), side="right") - 1
    return ends


def scale_of(cuts: Float, parts: int) -> Float:
    """Part the line between nearly all cuts: where it begins and ends, and parts per unit of half a number."""
    low, high = middle_of(cuts)
    width = high / 2 - low / 2
    return np.array([low, high, (parts - 1) / width if width > 1e-300 else 0.0])


def middle_of(cuts: Float) -> tuple[float, float]:
    """Bounds of nearly all cuts, which are sorted: a few far ones must not make what is even too coarse."""
    finite = cuts[np.isfinite(cuts)] / 2
    if not len(finite):
        return 0.0, 0.0
    low, high = finite[len(finite) // 1000], finite[-1 - len(finite) // 1000]
    # Halves and eighths, since their differences must be finite.
    beyond = 2 * (high / 8 - low / 8)
    return float(2 * max(low - beyond, finite[0])), float(2 * min(high + beyond, finite[-1]))


def grow_ends(ends: Ends) -> Ends:
    """Make room for about a quarter more blocks."""
    blocks = len(ends.first) // 4 + GROUP
    directory = with_room(ends.directory, blocks)
    directory[-blocks:, NUMBER] = np.arange(len(directory) - blocks, len(directory))
    return ends._replace(
        first=np.append(ends.first, np.full(blocks, np.nan)),
        directory=directory,
        groups=with_room(ends.groups, blocks // GROUP + 1),
        cuts=np.append(ends.cuts, np.full(blocks * BLOCK, np.nan)),
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
