"""Random numbers by counter: the same seed, row and draw always give the same number, in whatever batch they are asked.

Idea: splitmix64 turns a counter into bits by three shifts and two products. A row has a sequence of its own, which
begins at a place that depends on the seed and on the row's number; a draw is a place in it.
Guarantee: the bits are those of splitmix64. They need 64 bits alone, so numbers that wrap (compiled) and numbers that
grow (plain Python) give the same ones.
Cost: O(1) per number.
Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, with the mixing of Stafford
(variant 13); geometric numbers by inversion: Devroye, "Non-Uniform Random Variate Generation", section X.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log1p
from typing import Any

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int

# Constants of splitmix64 as signed numbers: 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB.
_GAMMA = -7046029254386353131
_FIRST = -4658895280553007687
_SECOND = -7723592293110705685
# What is left of 64 bits after a shift to the right.
_LEFT_30, _LEFT_27, _LEFT_31, _LEFT_11 = (1 << 34) - 1, (1 << 37) - 1, (1 << 33) - 1, (1 << 53) - 1
_UNIT = 2.0**-53
_FAR = 1 << 60


@kernel
def mix(state: int) -> int:
    """Mix the bits of a state; only the lowest 64 count."""
    bits = (state ^ ((state >> 30) & _LEFT_30)) * _FIRST
    bits = (bits ^ ((bits >> 27) & _LEFT_27)) * _SECOND
    return bits ^ ((bits >> 31) & _LEFT_31)


def uniform_of(columns: Iterable[Int]) -> Float:
    """A number from [0, 1) for each row of some columns, by what stands in them: the same wherever it is asked for."""
    mixed: Any = mix.function  # Not compiled: NumPy's own operations take whole columns.
    state = np.zeros(1, np.int64)
    for column in columns:
        state = mixed(state * _GAMMA + column + _GAMMA)
    return np.asarray(((mixed(state) >> 11) & _LEFT_11) * _UNIT, np.float64)


@kernel
def uniform(seed: int, row: int, draw: int) -> float:
    """A number from [0, 1): the given draw of the given row."""
    own = mix(int(seed) + _GAMMA * (int(row) + 1))
    return float((mix(own + _GAMMA * (int(draw) + 1)) >> 11) & _LEFT_11) * _UNIT


@kernel
def geometric(u: float, p: float) -> int:
    """How many coins that show heads with p are thrown up to the first head, by a number u from [0, 1)."""
    if p >= 1.0:
        return 1
    gap = log1p(-u) / log1p(-p)
    return 1 + int(gap) if gap < _FAR else _FAR
