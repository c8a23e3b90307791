"""Delays: how long after its time a row came, counted by classes that double: a few numbers for a whole run."""

from __future__ import annotations

import math

import numpy as np

from tocsin.logic import Int

# Rows whose time lies ahead of their arrival; those of no delay worth the name; the longest that is told apart.
AHEAD, NONE, LONGEST = -1, 0, 40


def delay_counts(delay_us: Int) -> dict[str, int]:
    """Count delays by class, whose number is a text as JSON wants it.

    >>> delay_counts(np.array([-5, 0, 1_000, 1_001, 3_500_000]))
    {'-1': 1, '0': 2, '1': 1, '12': 1}
    """
    milliseconds = np.maximum(delay_us, 1) / 1000
    number = np.clip(np.ceil(np.log2(milliseconds)), NONE, LONGEST)
    number = np.where(delay_us < 0, AHEAD, number).astype(np.int64)
    found, counts = np.unique(number, return_counts=True)
    return {str(one): count for one, count in zip(found.tolist(), counts.tolist(), strict=True)}


def delay_class(number: int) -> tuple[float, float]:
    """From how many seconds (not included) to how many the delays of a class are: powers of two of a millisecond.

    >>> delay_class(0), delay_class(3), delay_class(-1)
    ((0.0, 0.001), (0.004, 0.008), (-inf, 0.0))
    """
    if number == AHEAD:
        return -math.inf, 0.0
    return (0.0 if number == NONE else 2.0 ** (number - 1) / 1000), 2.0**number / 1000
