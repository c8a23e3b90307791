"""Change the budget or the policy of a memory: a model was learnt anew, or memory was given to another window.

Idea: sort the rows held in the order in which the new policy would drop them now, let as many go as do not fit, and lay
the rest out anew.
Guarantee: what stays is what dropping one row after the other would leave.
Cost: O(M log M).
"""

from __future__ import annotations

import numpy as np

from benchmarks.papers.p001.policies import BY_AGE, Policy
from benchmarks.papers.p001.window_memory import KEY, ROW, TIME, Held, empty, group_of, insert, rows_held
from tocsin.runtime.contract import Bools, Float, Int


def refit(held: Held, policy: Policy, budget: int, now: int) -> tuple[Held, Int]:
    """Give a memory with another policy or budget, and the numbers of the rows that went, the first to go first.

    What is expired must have gone before.
    """
    rows = held.slots[rows_held(held)][:, [TIME, KEY, ROW]]
    going = _order(rows, policy, now)[: max(len(rows) - budget, 0)]
    fresh = empty(budget, policy)
    for time, key, row in np.delete(rows, going, axis=0).tolist():
        insert(fresh, policy, time, key, row)
    return fresh, rows[going, 2]


def _order(rows: Int, policy: Policy, now: int) -> Int:
    """Sort rows, which are in order of arrival, by when they would be dropped."""
    alike = np.zeros(len(rows), np.int64)
    if policy.kind == BY_AGE:
        age = now // policy.granule - rows[:, 0] // policy.granule
        rank = policy.rank[age].astype(np.float64)
        return first_to_go(rank, age, policy.rank[age + 1] > policy.rank[age], alike, alike)
    groups = np.array([group_of(policy, 0, key) for key in rows[:, 1].tolist()], np.float64)
    return first_to_go(groups, alike, np.zeros(len(rows), np.bool_), alike, alike)


def first_to_go(worth: Float, granule: Int, rises: Bools, time: Int, key: Int) -> Int:
    """Sort rows, those of a key in order of time, by when they would be dropped."""
    if not rises.any():
        return np.lexsort((key, time, -granule, worth))
    sign, place = np.where(rises, -1, 1), np.arange(len(time))
    return np.lexsort((sign * place, sign * key, sign * time, -granule, worth))
