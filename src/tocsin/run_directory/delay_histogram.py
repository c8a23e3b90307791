"""Delay histogram: delays between event time and arrival, counted in classes whose widths double.

Class 0 ends at 1 ms, class n at 2^n ms, and class -1 has the rows whose event time is after their arrival. So a few
numbers describe a whole run.
"""

from __future__ import annotations

import math

import numpy as np

from tocsin.runtime.contract import Int

# First classes (negative delay, at most 1 ms), and the last class, which also has all longer delays.
AHEAD, NONE, LONGEST = -1, 0, 40


def count_delays(delay_us: Int) -> dict[str, int]:
    """Return the number of delays by class. The class is a text, as in JSON.

    >>> count_delays(np.array([-5, 0, 1_000, 1_001, 3_500_000]))
    {'-1': 1, '0': 2, '1': 1, '12': 1}
    """
    milliseconds = np.maximum(delay_us, 1) / 1000
    number = np.clip(np.ceil(np.log2(milliseconds)), NONE, LONGEST)
    number = np.where(delay_us < 0, AHEAD, number).astype(np.int64)
    classes, counts = np.unique(number, return_counts=True)
    return {str(one): count for one, count in zip(classes.tolist(), counts.tolist(), strict=True)}


def delay_class_bounds(number: int) -> tuple[float, float]:
    """Return the lower bound (excluded) and the upper bound (included) of a class in seconds.

    >>> delay_class_bounds(0), delay_class_bounds(3), delay_class_bounds(-1)
    ((0.0, 0.001), (0.004, 0.008), (-inf, 0.0))
    """
    if number == AHEAD:
        return -math.inf, 0.0
    return (0.0 if number == NONE else 2.0 ** (number - 1) / 1000), 2.0**number / 1000
