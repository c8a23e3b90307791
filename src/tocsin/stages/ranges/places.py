"""Places of numbers among sorted ones.

Idea: the line is parted evenly, twice as finely as there are numbers, and a guide has the last number in front of each
part. From there a search by halves goes as many steps for every value as the fullest part needs, and no step branches:
which way it goes cannot be foreseen, and a wrong guess of the machine costs more than all steps.
Cost: O(log n) in the worst case, some 10 ns where numbers are spread; 16 bytes per number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import inlined, kernel
from tocsin.runtime.contract import Float
from tocsin.stages.ranges.cuts import scale_of
from tocsin.stages.ranges.ends import part_of

Short = NDArray[np.int32]


class Places(NamedTuple):
    """Numbers in order, the first of them minus infinity and NaN behind them; guide, scale, and steps of a search."""

    numbers: Float
    guide: Short
    scale: Float
    steps: int


def places_among(numbers: Float) -> Places:
    """Make it possible to search among sorted numbers, of which the first is minus infinity."""
    guide = np.zeros(2 * len(numbers), dtype=np.int32)
    scale = scale_of(numbers, len(guide))
    steps = fill_guide(numbers, guide, scale)
    return Places(np.append(numbers, np.full(1 << steps, np.nan)), guide, scale, steps)


@kernel
def fill_guide(numbers: Float, guide: Short, scale: Float) -> int:
    """Note the last number in front of each part; give the steps from there to any place in the part."""
    last, steps = 0, 0
    for part in range(len(guide)):
        guide[part] = last
        while last + 1 < len(numbers) and part_of(scale, numbers[last + 1]) <= part:
            last += 1
        while last - guide[part] >= 1 << steps:
            steps += 1
    return steps


@inlined
def place_of(places: Places, value: float) -> int:
    """Give the place of the last number that is not above a value."""
    numbers, guide, scale, steps = places
    place = np.int64(guide[part_of(scale, value)])
    for step in range(steps - 1, -1, -1):
        place += np.int64(numbers[place + (1 << step)] <= value) << step
    return int(place)
