"""The rows of one window that a sample of the join's results needs: UNIFORM, EQ-CLUSTER and PPS-CLUSTER.

Idea: UNIFORM throws a coin with p for each result that a row will give, by jumps from head to head: a row is kept until
the last head among its n(s) results. EQ-CLUSTER keeps a row until it expires with p, PPS-CLUSTER with p n(s), at most
1; all results of a row that is kept are in the sample. Where one row more would not fit, p falls by a factor, and what
is held is thinned by it, until there is room or the row itself is not needed.
Guarantee: never more rows than the budget. A result is in the sample with the probability that stands with it. It may
depend on which rows were held, and so on chance: still, lowering the number that decides on a result which is in the
sample changes nothing that was held before it. So the sum of x / probability over the sample is unbiased, and results
(of clusters: rows) are uncorrelated in it. With p fixed, or lowered from outside, they are independent.
For UNIFORM n(s) must be right: results after the n(s)-th are never sampled, and a row that gives fewer stays longer.
For PPS-CLUSTER it must only be above 0.
Cost: O(1) per row that is offered or leaves. A fall of p visits what is held and lets about one in 20 go.
Source: Srivastava, Widom, VLDB 2004, Figure 4 and section 4.3.1; the hard budget is ours, unbiased by the argument of
Ting, "Adaptive Threshold Sampling", SIGMOD 2022: the threshold is where it would be if a chosen one had been certain.
"""

from __future__ import annotations

from math import log1p
from typing import NamedTuple

import numpy as np

from tocsin.hashing import uniform
from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int

UNIFORM, EQ_CLUSTER, PPS_CLUSTER = 0, 1, 2
# p falls by this factor: what is held stays close to the budget, and about 20 visits pay for each row that goes.
STEP = 0.95
# Places in `facts`: rows held, most ever held, how often p fell, the oldest and the newest row; and of `links`.
HELD, MOST_HELD, FALLS, OLDEST, NEWEST = range(5)
OLDER, NEWER, BEFORE, AFTER = range(4)
_NONE = -1
_FAR = 1 << 60


@kernel
def geometric(u: float, p: float) -> int:
    """Return the number of coin flips up to the first head, for a coin with probability p, by inversion of u.

    Reference: Devroye, "Non-Uniform Random Variate Generation", section X.2.
    """
    if p >= 1.0:
        return 1
    gap = log1p(-u) / log1p(-p)
    return 1 + int(gap) if gap < _FAR else _FAR


class Sampled(NamedTuple):
    """Rows held, one per slot, by time and by key (where keys are compared by a band: all as one).

    `number` is the row's own among all rows; n, num and next are those of Figure 4 (num and next for UNIFORM alone);
    `p` is the fraction that holds for the row. `heads` has the newest row of each key; `free` the slots not in use, as
    a stack; `fraction` p for new rows.
    """

    time: Int
    key: Int
    value: Float
    number: Int
    n: Float
    p: Float
    num: Int
    next: Int
    links: Int
    heads: Int
    free: Int
    facts: Int
    fraction: Float


def new_sampled(kind: int, memory: int, p: float, keys: int) -> Sampled:
    """An empty window for at most `memory` rows, with keys below `keys`."""
    counters = memory if kind == UNIFORM else 0
    integers = [np.zeros(memory, np.int64) for _ in range(3)]
    reals = [np.zeros(memory) for _ in range(3)]
    return Sampled(
        integers[0],
        integers[1],
        reals[0],
        integers[2],
        reals[1],
        reals[2],
        np.zeros(counters, np.int64),
        np.zeros(counters, np.int64),
        np.full((4, memory), _NONE),
        np.full(keys, _NONE),
        np.arange(memory),
        np.array([0, 0, 0, _NONE, _NONE]),
        np.array([p]),
    )


def row_bytes(kind: int) -> int:
    """The memory of a held row, with its links, its place in the stack and the counters of UNIFORM."""
    one = new_sampled(kind, 1, 1.0, 0)
    return sum(column.nbytes for column in one[:9]) + one.free.nbytes


@kernel
def probability(kind: int, p: float, n: float) -> float:
    """The probability of a result of a row with n results, at fraction p."""
    return min(1.0, p * n) if kind == PPS_CLUSTER else p


@kernel
def decide_next(seed: int, number: int, num: int, p: float, n: float) -> int:
    """DecideNextJoin of Figure 4: the number of the next result to be sampled after `num`, 0 if there is none.

    A row decides at most once after each result, so the draw goes by that.
    """
    after = num + geometric(uniform(seed, number, 2 * num), p) if p > 0.0 else 0
    return after if after <= n else 0


@kernel
def first_of(kind: int, seed: int, number: int, p: float, n: float) -> int:
    """Decide on a new row: the first of its results that is needed, 0 if none is."""
    if kind == UNIFORM:
        return decide_next(seed, number, 0, p, n)
    return 1 if uniform(seed, number, 0) < probability(kind, p, n) else 0


@kernel
def thinned(kind: int, seed: int, number: int, p: float, lower: float, n: float, after: int, fall: int) -> int:
    """Decide anew on a row whose fraction falls from p: the first result that is still needed, 0 if none is.

    For UNIFORM the one that is due stays with lower / p; behind it nothing was decided yet.
    """
    if kind != UNIFORM:
        return first_of(kind, seed, number, lower, n)
    if uniform(seed, number, 2 * fall + 1) * p < lower:
        return after
    return decide_next(seed, number, after, lower, n)


@kernel
def release(window: Sampled, slot: int, group: int) -> None:
    """Let a row go."""
    links, facts = window.links, window.facts
    older, newer = links[OLDER, slot], links[NEWER, slot]
    before, after = links[BEFORE, slot], links[AFTER, slot]
    if older >= 0:
        links[NEWER, older] = newer
    else:
        facts[OLDEST] = newer
    if newer >= 0:
        links[OLDER, newer] = older
    else:
        facts[NEWEST] = older
    if before >= 0:
        links[AFTER, before] = after
    else:
        window.heads[group] = after
    if after >= 0:
        links[BEFORE, after] = before
    facts[HELD] -= 1
    window.free[facts[HELD]] = slot


@kernel
def insert(window: Sampled, time: int, key: int, value: float, number: int, n: float, group: int) -> int:
    """Hold a row; there must be room."""
    links, facts = window.links, window.facts
    slot = window.free[facts[HELD]]
    facts[HELD] += 1
    facts[MOST_HELD] = max(facts[MOST_HELD], facts[HELD])
    window.time[slot], window.key[slot], window.value[slot] = time, key, value
    window.number[slot], window.n[slot], window.p[slot] = number, n, window.fraction[0]
    newest, head = facts[NEWEST], window.heads[group]
    links[OLDER, slot], links[NEWER, slot] = newest, -1
    links[BEFORE, slot], links[AFTER, slot] = -1, head
    if newest >= 0:
        links[NEWER, newest] = slot
    else:
        facts[OLDEST] = slot
    if head >= 0:
        links[BEFORE, head] = slot
    facts[NEWEST] = slot
    window.heads[group] = slot
    return int(slot)


@kernel
def expire(window: Sampled, oldest: int, equal: bool) -> None:
    """Let go what came before `oldest`."""
    slot = window.facts[OLDEST]
    while slot >= 0 and window.time[slot] < oldest:
        newer = window.links[NEWER, slot]
        release(window, slot, window.key[slot] if equal else 0)
        slot = newer


@kernel
def lower(window: Sampled, kind: int, seed: int, p: float, equal: bool) -> None:
    """Let p fall, and thin what is held so that every result found later is in the sample with the new p."""
    window.fraction[0] = p
    window.facts[FALLS] += 1
    slot = window.facts[OLDEST]
    while slot >= 0:
        newer = window.links[NEWER, slot]
        if window.p[slot] > p:
            number, n = window.number[slot], window.n[slot]
            due = window.next[slot] if kind == UNIFORM else 1
            after = thinned(kind, seed, number, window.p[slot], p, n, due, window.facts[FALLS])
            window.p[slot] = p
            if after == 0:
                release(window, slot, window.key[slot] if equal else 0)
            elif kind == UNIFORM:
                window.next[slot] = after
        slot = newer


@kernel
def offer(
    window: Sampled,
    other: Sampled,
    kind: int,
    seed: int,
    row: tuple[int, int, float, int, float],
    equal: bool,
) -> None:
    """Take a new row if it is needed: time, key, value, number, n(s).

    A uniform sample has one p for both windows, so that of the other falls along.
    """
    time, key, value, number, n = row
    room = window.time.shape[0]
    p = window.fraction[0]
    after = first_of(kind, seed, number, p, n) if room > 0 else 0
    while after > 0 and window.facts[HELD] == room:
        lower(window, kind, seed, p * STEP, equal)
        if kind == UNIFORM:
            lower(other, kind, seed, min(p * STEP, other.fraction[0]), equal)
        after = thinned(kind, seed, number, p, p * STEP, n, after, window.facts[FALLS])
        p = window.fraction[0]
    if after > 0:
        slot = insert(window, time, key, value, number, n, key if equal else 0)
        if kind == UNIFORM:
            window.num[slot], window.next[slot] = 0, after


@kernel
def fit(window: Sampled, other: Sampled, kind: int, seed: int, memory: int, equal: bool) -> None:
    """Let p fall until a window holds no more rows than a smaller memory has room for."""
    if memory == 0 and window.time.shape[0] > 0:
        lower(window, kind, seed, 0.0, equal)
    while window.facts[HELD] > memory:
        p = window.fraction[0] * STEP
        lower(window, kind, seed, p, equal)
        if kind == UNIFORM:
            lower(other, kind, seed, min(p, other.fraction[0]), equal)


def moved(window: Sampled, kind: int, memory: int, equal: bool) -> Sampled:
    """The same rows in a window for another number of them; there must be room."""
    fresh = new_sampled(kind, memory, float(window.fraction[0]), len(window.heads))
    slot = int(window.facts[OLDEST])
    while slot >= 0:
        key, group = window.key[slot], window.key[slot] if equal else 0
        to = insert(fresh, window.time[slot], key, window.value[slot], window.number[slot], window.n[slot], group)
        fresh.p[to] = window.p[slot]
        if kind == UNIFORM:
            fresh.num[to], fresh.next[to] = window.num[slot], window.next[slot]
        slot = int(window.links[NEWER, slot])
    fresh.facts[FALLS] = window.facts[FALLS]
    return fresh


@kernel
def join_one(window: Sampled, slot: int, kind: int, seed: int) -> tuple[bool, bool]:
    """Join of Figure 4 for a held row and one that joins with it: tell if the result is sampled and the row needed."""
    if kind != UNIFORM:
        return True, True
    window.num[slot] += 1
    if window.num[slot] < window.next[slot]:
        return False, True
    after = decide_next(seed, window.number[slot], window.num[slot], window.p[slot], window.n[slot])
    window.next[slot] = after
    return True, after > 0
