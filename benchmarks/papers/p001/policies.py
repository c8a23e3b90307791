"""Policy: which row to drop when memory is full. AGE, PROB and RECENT are tables behind one interface.

Source: Srivastava, Widom, VLDB 2004, sections 3.2.1, 3.3 and 6.1.1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.operators.retention.utility.age_model import AgeCurve
from tocsin.runtime.contract import Float, Int

BY_AGE, BY_KEY = range(2)


class Policy(NamedTuple):
    """How rows are told apart, and the rank of the priority of each age in granules or of each key; 0 is the lowest.

    Keys that are not in it have the rank 0.
    """

    kind: int
    groups: int
    granule: int
    rank: Int


def by_age(priority: Float, granule: int, window: int) -> Policy:
    """Drop by a priority of each granule of age; behind the last it is 0: such rows give nothing more."""
    # A row may be as old as the window, and ages are differences of granule numbers; one more tells how it goes on.
    groups = window // granule + 2
    padded = np.zeros(groups + 1)
    known = min(len(priority), groups + 1)
    padded[:known] = priority[:known]
    return Policy(BY_AGE, groups, granule, _ranks(padded)[1])


def _ranks(priority: Float) -> tuple[int, Int]:
    """How many different priorities there are, and the rank of each."""
    levels, rank = np.unique(priority, return_inverse=True)
    return len(levels), rank.reshape(-1).astype(np.int64)


def age(curve: AgeCurve, window: int) -> Policy:
    """AGE: the greedy priority, which is optimal for curves without minima."""
    return by_age(curve.priorities(), int(curve.granule), window)


def prob(f_other: Float) -> Policy:
    """PROB: drop the key that is rarest in the other stream. `f_other` is by key number."""
    levels, rank = _ranks(np.concatenate([[0.0], f_other]))
    return Policy(BY_KEY, levels, 1, rank[1:])


def recent(window: int) -> Policy:
    """RECENT: drop the oldest."""
    return by_age(np.array([1.0, 0.0]), window + 1, window)
