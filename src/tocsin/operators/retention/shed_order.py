"""Which of many rows go first when memory is short: the order in which a policy would drop them, one after the other.

Idea: `held` drops a row for each that comes. Where room is made for many rows at once, the rows held are sorted by what
they are still worth, and the first go. What a row is worth is a rate of results: of its key in the other stream (PROB),
or the steepest rate that the age curve still promises (AGE). A row past its window is worth less than any other.
Guarantee: the ties are those of `held`: of equal granules the older loses a row; in a granule the newest goes where
worth rises with age, else the oldest. Beyond that rows go by time, key and place, so the order is one of the rows
themselves and not of where they lie.
Cost: O(M log M).
Source: Srivastava, Widom, VLDB 2004, sections 3.2.1 and 3.3.
"""

from __future__ import annotations

import numpy as np

from tocsin.runtime.contract import Bools, Float, Int

# What a row past its window is worth.
PAST = -1.0


def worth_by_age(age: Int, priorities: Float, granule: float) -> tuple[Float, Int, Bools]:
    """AGE: what rows of some ages are worth, their granules of age, and whether worth rises with age there."""
    at = np.clip((age / granule).astype(np.int64), 0, len(priorities))
    padded = np.concatenate([priorities, [PAST, PAST]])
    return padded[at], at, padded[at + 1] > padded[at]


def first_to_go(worth: Float, granule: Int, rises: Bools, time: Int, key: Int) -> Int:
    """Sort rows, those of a key in order of time, by when they would be dropped."""
    if not rises.any():
        return np.lexsort((key, time, -granule, worth))
    sign, place = np.where(rises, -1, 1), np.arange(len(time))
    return np.lexsort((sign * place, sign * key, sign * time, -granule, worth))
