"""Baselines: the policies UNTIL-EXPIRY and RANDOM, and PROP, the division of memory in proportion to need.

References: Srivastava, Widom, VLDB 2004, sections 5 and 6.1.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.papers.p001.policies import Policy, by_age
from benchmarks.papers.p001.window_memory import COUNT, ORDER, REFUSED, ROOM, Held, find_victim
from tocsin.hashing import uniform
from tocsin.jit import kernel
from tocsin.operators.retention.utility.alloc import MemoryFor, in_proportion

# A kind of `Policy` beside the kinds that `find_victim` knows. Its `rank` holds the seed.
AT_RANDOM = 2


def until_expiry(window: int) -> Policy:
    """Return the policy UNTIL-EXPIRY: keep each retained row until it expires, and drop the newest row."""
    return by_age(np.array([0.0, 1.0, 2.0]), window + 1, window)


def random(seed: int) -> Policy:
    """Return the policy RANDOM: drop a retained row or the new row, with equal chances."""
    return Policy(AT_RANDOM, 1, 1, np.array([seed], np.int64))


@kernel
def find_any_victim(held: Held, policy: Policy, time: int, key: int, row: int) -> int:
    """Return the slot to free for a new row under any policy, or ROOM, or REFUSED."""
    budget, count = held.slots.shape[0], held.state[COUNT]
    if policy.kind != AT_RANDOM:
        return find_victim(held, policy, time, key)
    if count < budget:
        return ROOM
    chosen = int(uniform(policy.rank[0], row, 0) * (count + 1))
    return REFUSED if chosen == count else held.slots[chosen, ORDER]


def divide_in_proportion(joins: Sequence[MemoryFor], memory: float) -> list[float]:
    """Return the memory of each join under PROP: an equal share of the memory that a full result needs."""
    return in_proportion([need(1.0) for need in joins], memory)
