"""The rows of one window under a budget: who stays is decided row by row, in order of arrival.

Idea: rows that a policy does not tell apart share a group, so only groups are compared. AGE: a group is a granule of
time, and its priority follows from how long ago that was; the lowest is searched for once per granule, and when the
lowest group is used up. PROB: a group is all keys of one frequency; a heap has the groups that are there. RECENT is AGE
with priorities that only fall. A second list has the rows in order of arrival, in which they expire.
Guarantee: never more rows than the budget; deterministic, so a cut into batches does not show. With the priorities of
`AgeCurve` this is the greedy strategy, which is staggered below r k_opt and retains for M/r above.
Cost: O(1) to come, leave and expire; a decision takes O(granules) with AGE at worst, O(log groups) with PROB.
80 bytes per row of the budget.
Source: Srivastava, Widom, VLDB 2004, sections 3.2.1 and 3.3. There an age is exact; here it is the difference of two
granule numbers, off by less than one granule, and on average right. Ties, which the paper leaves open: of equal
granules the older loses a row; in a granule the newest goes where priority rises with age, else the oldest; of equal
keys the oldest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.papers.p001.policies import BY_AGE, BY_KEY, Policy
from tocsin.jit import kernel
from tocsin.runtime.contract import Int

# Columns of a slot: what the row is, its group, its neighbours in the order of arrival among all rows and in its group.
# Two more belong together: ORDER lists the slots of rows held, then those that are free, and PLACE is where a slot is
# listed. A column of its own array would cost compiled code more than the arithmetic does.
TIME, KEY, ROW, GROUP, BEFORE, AFTER, OLDER, NEWER, PLACE, ORDER = range(10)
# Columns of a group: its oldest and newest row, and whether it is in the heap; HEAP is the heap itself.
OLDEST_OF, NEWEST_OF, IN_HEAP, HEAP = range(4)
# Places in `state`: rows held, the oldest and newest of them, the most ever held, the granule in which the lowest group
# was searched for, that group, and how many groups the heap has.
COUNT, OLDEST, NEWEST, MOST, TICK, LOWEST, HEAPED = range(7)
# What the lowest group may be besides a number: there is none, or it is to be searched for.
NO_GROUP, UNKNOWN = -1, -2
# What `find_victim` returns besides a slot: there is room, or the new row itself is the one to go.
ROOM, REFUSED = -1, -2


class Held(NamedTuple):
    """Rows in slots, groups of rows, and a few numbers."""

    slots: Int
    groups: Int
    state: Int


def empty(budget: int, policy: Policy) -> Held:
    """Make a memory for so many rows."""
    slots = np.full((budget, 10), -1, np.int64)
    slots[:, PLACE] = slots[:, ORDER] = np.arange(budget)
    groups = np.full((policy.groups, 4), -1, np.int64)
    groups[:, IN_HEAP] = 0
    return Held(slots, groups, np.array([0, -1, -1, 0, 0, UNKNOWN, 0], np.int64))


@kernel
def group_of(policy: Policy, time: int, key: int) -> int:
    """Tell the group of a row."""
    if policy.kind == BY_AGE:
        return time // policy.granule % policy.groups
    if policy.kind == BY_KEY and 0 <= key < policy.rank.shape[0]:
        return int(policy.rank[key])
    return 0


@kernel
def push(held: Held, group: int) -> None:
    """Put a group into the heap."""
    groups, at = held.groups, held.state[HEAPED]
    held.state[HEAPED] += 1
    groups[group, IN_HEAP] = 1
    while at > 0 and groups[(at - 1) // 2, HEAP] > group:
        groups[at, HEAP] = groups[(at - 1) // 2, HEAP]
        at = (at - 1) // 2
    groups[at, HEAP] = group


@kernel
def pop(held: Held) -> None:
    """Take the lowest group out of the heap."""
    groups, at = held.groups, 0
    groups[groups[0, HEAP], IN_HEAP] = 0
    held.state[HEAPED] -= 1
    count = held.state[HEAPED]
    last = groups[count, HEAP]
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and groups[child + 1, HEAP] < groups[child, HEAP]:
            child += 1
        if groups[child, HEAP] >= last:
            break
        groups[at, HEAP] = groups[child, HEAP]
        at = child
    groups[at, HEAP] = last


@kernel
def lowest_class(held: Held) -> int:
    """Find the lowest group that has rows; groups that were left by all their rows go out of the heap here."""
    while held.groups[held.groups[0, HEAP], OLDEST_OF] < 0:
        pop(held)
    return int(held.groups[0, HEAP])


@kernel
def lowest_granule(held: Held, policy: Policy, tick: int) -> int:
    """Find the group of lowest priority among those before the present granule; of equal ones the oldest."""
    state, groups, rank = held.state, held.groups, policy.rank
    if state[TICK] != tick or state[LOWEST] == UNKNOWN:
        best, least, ring = NO_GROUP, rank.shape[0], policy.groups
        group = tick % ring
        for age in range(1, ring):
            group = group - 1 if group > 0 else ring - 1
            if groups[group, OLDEST_OF] >= 0 and rank[age] <= least:
                best, least = group, rank[age]
        state[TICK], state[LOWEST] = tick, best
    return int(state[LOWEST])


@kernel
def victim_by_age(held: Held, policy: Policy, time: int) -> int:
    """Find who goes for a new row, which is in the present granule."""
    tick, groups, rank = time // policy.granule, held.groups, policy.rank
    lowest, age, own = lowest_granule(held, policy, tick), 0, tick % policy.groups
    if lowest != NO_GROUP:
        age = (tick - lowest) % policy.groups
    if lowest == NO_GROUP or rank[0] < rank[age]:
        oldest = groups[own, OLDEST_OF]
        return REFUSED if rank[1] > rank[0] or oldest < 0 else oldest
    end = NEWEST_OF if rank[age + 1] > rank[age] else OLDEST_OF
    return int(groups[lowest, end])


@kernel
def find_victim(held: Held, policy: Policy, time: int, key: int) -> int:
    """Return the slot to free for a new row, or ROOM, or REFUSED. The caller has removed expired rows."""
    budget, count = held.slots.shape[0], held.state[COUNT]
    if count < budget:
        return ROOM
    if budget == 0:
        return REFUSED
    if policy.kind == BY_AGE:
        return victim_by_age(held, policy, time)
    lowest = lowest_class(held)
    return REFUSED if group_of(policy, time, key) < lowest else held.groups[lowest, OLDEST_OF]


@kernel
def insert(held: Held, policy: Policy, time: int, key: int, row: int) -> int:
    """Put a row into a free slot; no row held has a later time."""
    state, slots, groups = held.state, held.slots, held.groups
    slot, group, newest = int(slots[state[COUNT], ORDER]), group_of(policy, time, key), state[NEWEST]
    slots[slot, TIME], slots[slot, KEY], slots[slot, ROW], slots[slot, GROUP] = time, key, row, group
    slots[slot, BEFORE], slots[slot, AFTER], slots[slot, NEWER] = newest, -1, -1
    if newest >= 0:
        slots[newest, AFTER] = slot
    else:
        state[OLDEST] = slot
    before = groups[group, NEWEST_OF]
    slots[slot, OLDER] = before
    if before >= 0:
        slots[before, NEWER] = slot
    else:
        groups[group, OLDEST_OF] = slot
        if policy.kind == BY_KEY and not groups[group, IN_HEAP]:
            push(held, group)
    groups[group, NEWEST_OF], state[NEWEST] = slot, slot
    state[COUNT] += 1
    state[MOST] = max(state[MOST], state[COUNT])
    return slot


@kernel
def remove(held: Held, slot: int) -> None:
    """Free a slot; what it held can be read until the next row comes."""
    state, slots, groups = held.state, held.slots, held.groups
    before, after = slots[slot, BEFORE], slots[slot, AFTER]
    if before >= 0:
        slots[before, AFTER] = after
    else:
        state[OLDEST] = after
    if after >= 0:
        slots[after, BEFORE] = before
    else:
        state[NEWEST] = before
    older, newer, group = slots[slot, OLDER], slots[slot, NEWER], slots[slot, GROUP]
    if older >= 0:
        slots[older, NEWER] = newer
    else:
        groups[group, OLDEST_OF] = newer
    if newer >= 0:
        slots[newer, OLDER] = older
    else:
        groups[group, NEWEST_OF] = older
    if older < 0 and newer < 0 and group == state[LOWEST]:
        state[LOWEST] = UNKNOWN
    state[COUNT] -= 1
    end, place = state[COUNT], slots[slot, PLACE]
    last = slots[end, ORDER]
    slots[place, ORDER], slots[end, ORDER] = last, slot
    slots[last, PLACE], slots[slot, PLACE] = place, end


@kernel
def expire(held: Held, window: int, now: int) -> int:
    """Let the oldest row go if its time is over, and give its slot; else -1."""
    slot = int(held.state[OLDEST])
    if slot < 0 or now - held.slots[slot, TIME] <= window:
        return -1
    remove(held, slot)
    return slot


def rows_held(held: Held) -> Int:
    """Give the slots of the rows held in order of arrival."""
    slots, at = [], int(held.state[OLDEST])
    while at >= 0:
        slots.append(at)
        at = int(held.slots[at, AFTER])
    return np.array(slots, np.int64)
