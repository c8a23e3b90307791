"""The count sketch: how often a value is there, in fixed space, from any number of values.

Idea: in each of a few rows a value has one place and a sign, both by a hash. What other values leave at its place has
either sign, so it cancels out on average; the median over rows is hardly ever far off.
Guarantee: one row's estimate is unbiased with variance at most F2 / width, F2 the sum of squared counts; the median of
r rows is off by more than 2 sqrt(F2 / width) with probability at most exp(-r / 16) or so. Points only: a range of
values has no place.
Cost: rows x 8 bytes x width; about 2 ns per row and value.
Source: Charikar, Chen, Farach-Colton, "Finding Frequent Items in Data Streams", ICALP 2002; the hash is that of
Dietzfelbinger ("Universal hashing and k-wise independent random variables via integer arithmetic without primes",
STACS 1996) on two halves of a value: pairs of values are independent, which is all that the bound needs. Values are
mixed before, one to one: else numbers in a row, which keys often are, would go wrong together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from tocsin.hashing import mix
from tocsin.jit import kernel
from tocsin.runtime.contract import Int
from tocsin.stages.promising.summary import Noise, Values

_HALF = (1 << 32) - 1
_WIDEST = 1 << 24
_BLOCK = 1024


@dataclass(frozen=True)
class CountSketch:
    """A scheme with `rows` places of `width` for each value; the seed chooses the hash."""

    rows: int = 5
    width: int = 4096
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse what has no places."""
        if not 1 <= self.rows <= 64:
            message = f"`rows` of a count sketch must be from 1 to 64; got {self.rows!r}"
            raise ValueError(message)
        if self.width < 2 or self.width > _WIDEST or self.width & (self.width - 1):
            message = f"`width` of a count sketch must be a power of two from 2 to {_WIDEST}; got {self.width!r}"
            raise ValueError(message)

    @property
    def cells(self) -> int:
        """All places."""
        return self.rows * self.width

    @property
    def noise(self) -> Noise:
        """The variance of one row."""
        return Noise(1 / self.width, 0.0)

    @property
    def share(self) -> float:
        """A place is read for one value alone."""
        return 1.0

    def places(self, values: Values, *, learn: bool) -> Int:
        """Hash values: whole numbers as they are, others by their bits."""
        out = np.empty((len(values), self.rows), np.int64)
        hash_all(bits_of(values), hash_numbers(self.rows, self.seed), self.width.bit_length() - 1, out)
        return out

    def fresh(self) -> CountSketch:
        """Give itself: nothing is learnt."""
        return self

    def learnt(self) -> dict[str, Int]:
        """Give nothing."""
        return {}

    def relearn(self, arrays: Mapping[str, Int]) -> None:
        """Do nothing."""

    def count(self, table: Int, values: Values, weight: int) -> Int:
        """Hash and count values in one pass."""
        count_hashed(table, bits_of(values), hash_numbers(self.rows, self.seed), self.width.bit_length() - 1, weight)
        return table

    def estimate_range(self, table: Int, low: float, high: float) -> float:
        """Refuse: a sketch answers points only."""
        message = f"a count sketch estimates only single values; use a histogram for the range [{low:g}, {high:g}]"
        raise ValueError(message)


def bits_of(values: Values) -> Int:
    """Give values as whole numbers that are equal where the values are."""
    if values.dtype.kind in "iub":
        return np.ascontiguousarray(values, np.int64)
    # 0.0 and -0.0 are one value.
    return (np.ascontiguousarray(values, np.float64) + 0.0).view(np.int64)


@cache
def hash_numbers(rows: int, seed: int) -> Int:
    """Draw what the hash of each row multiplies by and adds."""
    drawn = [mix(int(mix(seed)) + place + 1) & ((1 << 64) - 1) for place in range(3 * rows)]
    return np.array(drawn, np.uint64).view(np.int64).reshape(rows, 3)


@kernel
def hashed(mixed: int, low: int, high: int, add: int) -> int:
    """Hash a mixed value: 64 bits, of which the highest are the best. Beyond them (in plain Python) nothing counts."""
    return low * (mixed & _HALF) + high * ((mixed >> 32) & _HALF) + add


@kernel
def hash_all(values: Int, numbers: Int, bits: int, out: Int) -> None:
    """Write the place of each value in each row; the highest bit is the sign, those behind it the place."""
    mask = (1 << bits) - 1
    for i in range(values.shape[0]):
        mixed = mix(int(values[i]))
        for row in range(numbers.shape[0]):
            number = hashed(mixed, int(numbers[row, 0]), int(numbers[row, 1]), int(numbers[row, 2]))
            out[i, row] = ((number >> (63 - bits)) & mask) ^ -((number >> 63) & 1)


@kernel
def count_hashed(table: Int, values: Int, numbers: Int, bits: int, weight: int) -> None:
    """Count values at the places that `hash_all` gives, without writing them down, block by block."""
    mask, halves = (1 << bits) - 1, np.empty((2, _BLOCK), np.int64)
    for begin in range(0, values.shape[0], _BLOCK):
        count = min(_BLOCK, values.shape[0] - begin)
        for i in range(count):
            mixed = mix(int(values[begin + i]))
            halves[0, i], halves[1, i] = mixed & _HALF, (mixed >> 32) & _HALF
        for row in range(numbers.shape[0]):
            low, high, add = int(numbers[row, 0]), int(numbers[row, 1]), int(numbers[row, 2])
            line = table[row]
            for i in range(count):
                number = low * int(halves[0, i]) + high * int(halves[1, i]) + add
                sign = -((number >> 63) & 1)
                # An index without a sign is not asked whether it counts from the end.
                line[np.uint64((number >> (63 - bits)) & mask)] += (weight ^ sign) - sign
