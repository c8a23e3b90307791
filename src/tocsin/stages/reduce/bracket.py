"""Bracketing: leave out the tuples that no threshold function can need, in one sweep with monotone queues.

Idea. A window that holds a tuple must keep one of its maximal value (side *above*, for functions increasing in the
stream), one of its minimal value (side *below*, decreasing), or both (quasiconvex). Tuples enter in time order. Each
side has a queue of *classes*: a value, its last tuple, and the last of its tuples that is *held*, that is, needed by a
window that has ended. The front is the extreme of the window; a class behind it matters once those before it have left.
A new tuple closes the classes it dominates and joins the class of its value. Before the contents of the window change,
the front class must have a held tuple inside; if not, its last one is held. A tuple that is not held goes when a later
one joins its class, or when its class is closed on every side.

    windows   enter, leave: the keys of a tuple            tuple j has left when i enters
    sliding   its time                                     leave[j] < enter[i] - length (open at both ends: <=)
    hopping   the numbers of its first and last window     leave[j] < enter[i]

*Guarantee*: what stays meets the demand of every window, and in time order no smaller set does: classes are
independent, and within one the demands are intervals that are stabbed greedily. In order, what stays of (what stayed
and new tuples) is what stays of everything. A late tuple is merged alone with its neighbourhood: every demand is still
met, but with ties a few tuples more than the minimum may stay. Differences of float times are rounded as any other.
*Cost*: amortised constant per tuple in order; a late tuple costs its neighbourhood and, at worst, a shift of its
segment. Memory is linear. A segment has at most 2^31 - 1 tuples.
*Source*: Cai, Bernstein, Wu, Chandramouli, Optimization of Threshold Functions over Streams, PVLDB 14(6), section 3. We
differ: brackets may tie (the paper keeps every tuple of a plateau), half-open windows count as closed (the paper counts
them as open, which keeps more), one sorted sweep replaces the store with four distances per tuple, and hopping windows
are treated exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.stages.reduce.remembered import NEVER, Array, Index, Int, compact, first, has, newest, place, sort

__all__ = ["ABOVE", "BELOW", "CLOSED", "HOPPING", "NEVER", "OPEN", "Reach", "Rows", "extend", "going", "hops", "sweep"]

ABOVE, BELOW = 0, 1
CLOSED, OPEN, HOPPING = 0, 1, 2
# What `_feed` gives to a tuple that goes, if not one rank for all: each entering tuple's own rank, or nothing may go.
OWN, REPLAY = -2, -1

Float = NDArray[np.float64]
Flags = NDArray[np.uint8]


class Reach(NamedTuple):
    """How far windows reach on each side (below 0: not needed; hopping: 0), and `CLOSED`, `OPEN` or `HOPPING`."""

    above: Any
    below: Any
    kind: int


class Rows(NamedTuple):
    """Tuples in columns: of each segment first the remembered ones by time, then new ones as they arrived.

    `enter` and `leave` are the times themselves if windows slide, the numbers of the first and the last window if they
    hop. `fixed` tuples always stay and are nobody's bracket. `tag` stands for all values and the payload of a tuple and
    is read only where nothing may be left out. `rank` increases with arrival, from 0 (remembered tuples: -1).
    """

    t: Array
    v: Float
    enter: Array
    leave: Array
    fixed: NDArray[np.bool_]
    tag: Int
    rank: Int


class Stacks(NamedTuple):
    """The open classes; a class has the number of its first tuple.

    `above` and `below` list the classes of each side from front to back. `ends` has front, back and the last tuple that
    left of `above`, the same of `below`, and the last tuple that entered. `last` and `held` belong to a class, `sides`
    says where it is open (1 above, 2 below). `zone` is room for a list of tuples.
    """

    above: Index
    below: Index
    ends: Int
    last: Index
    held: Index
    sides: Flags
    zone: Index


def hops(t: Array, length: Any, hop: Any, closed: str) -> tuple[Array, Array]:
    """Number the first and the last window [k hop, k hop + length] of each time; the first is larger where none is."""
    leave = t // hop if closed in ("both", "left") else -(-t // hop) - 1
    enter = -((length - t) // hop) if closed in ("both", "right") else (t - length) // hop + 1
    return enter, leave


@kernel
def sweep(offsets: Int, keys: tuple[Array, Array], v: Float, reach: Reach, gone: Flags) -> None:
    """Mark with 1 in `gone` (all 0 before) what may be left out of each segment.

    `keys` are enter and leave as in `Rows`; segment s is offsets[s] up to offsets[s + 1], sorted by time.
    """
    pick, stacks = _stacks(offsets)
    enter, leave = keys
    for s in range(offsets.size - 1):
        lo, hi = offsets[s], offsets[s + 1]
        _clear(stacks)
        _feed(pick[: hi - lo], (enter[lo:hi], leave[lo:hi], v[lo:hi], offsets), reach, stacks, (gone[lo:hi], 1))


@kernel
def extend(known: int, keys: tuple[Array, Array], v: Float, reach: Reach, gone: Flags) -> None:
    """Sweep one segment whose first `known` tuples stayed before; in order, the others come after them.

    Of the known ones, those that share a window with one that shares a window with the last of them must be there.
    """
    pick, stacks = _stacks(np.array([0, v.size]))
    columns = (keys[0], keys[1], v, stacks.ends)
    _clear(stacks)
    _feed(pick[:known], columns, reach, stacks, (gone, REPLAY))
    _feed(pick[known:], columns, reach, stacks, (gone, 1))


@kernel
def going(bounds: tuple[Int, Int], rows: Rows, lengths: tuple[Array, int], order_out: Int, gone_out: Int) -> None:
    """Tell at which arrival each tuple leaves the remembered set, as if tuples were taken one at a time.

    `bounds` are the offsets of the segments and how many tuples of each are remembered ones. `lengths` are an array
    [side, segment] of how far windows reach, and their kind. Fills `gone_out` with the rank of the arrival at which a
    tuple goes (its own: it is refused; `NEVER`: it stays), and `order_out` with the row numbers of each segment by
    (time, position).
    """
    offsets, n_state = bounds
    pick, stacks = _stacks(offsets)
    alive = np.empty(pick.size + 1, np.int32)
    gone_out[:] = NEVER
    for s in range(offsets.size - 1):
        lo, hi, known = offsets[s], offsets[s + 1], n_state[s]
        t, v, enter, leave = rows.t[lo:hi], rows.v[lo:hi], rows.enter[lo:hi], rows.leave[lo:hi]
        part = Rows(t, v, enter, leave, rows.fixed[lo:hi], rows.tag[lo:hi], rows.rank[lo:hi])
        reach = Reach(lengths[0][ABOVE, s], lengths[0][BELOW, s], lengths[1])
        alive[:known] = pick[:known]
        if reach.above < 0 and reach.below < 0:
            _follow_whole(known, part, alive, gone_out[lo:hi])
        else:
            _follow(known, part, reach, (alive, pick, stacks), gone_out[lo:hi])
        sort(rows.t, lo, hi, order_out)


@kernel
def _follow_whole(count: int, rows: Rows, alive: Index, gone: Int) -> None:
    """Keep everything but exact duplicates."""
    for i in range(count, rows.t.size):
        if has(i, (alive, count), rows.t, rows.tag, gone):
            gone[i] = rows.rank[i]
        else:
            count = place(i, alive, count, rows.t)


@kernel
def _follow(count: int, rows: Rows, reach: Reach, memory: tuple[Index, Index, Stacks], gone: Int) -> None:
    """Take the new tuples of one segment: runs in order together, late and fixed ones alone."""
    alive, pick, stacks = memory
    t, v, fixed, rank = rows.t, rows.v, rows.fixed, rows.rank
    head, stale, limit, i = newest(alive, count, fixed, gone), True, 2 * count + 64, count
    while i < t.size:
        stop = _run(i, head, rows)
        if stop > i:
            if stale:
                _replay(alive[:count], rows, reach, stacks, gone)
                stale = False
            _feed(pick[i:stop], (rows.enter, rows.leave, v, rank), reach, stacks, (gone, OWN))
            head = stop - 1
        else:
            stop = i + 1
            in_none = rows.enter[i] > rows.leave[i] and not fixed[i]
            if in_none or has(i, (alive, count), t, v, gone):
                gone[i] = rank[i]
            elif not fixed[i]:
                _merge(i, alive[:count], (rows, reach), stacks, gone)
                stale = True
        for j in range(i, stop):
            if gone[j] == NEVER:
                count = place(j, alive, count, t)
        if stale:
            head = newest(alive, count, fixed, gone)
        if count >= limit:
            count = compact(alive, count, gone)
            limit = 2 * count + 64
        i = stop


@kernel
def _run(i: int, head: int, rows: Rows) -> int:
    """Find the end of the tuples from i on that come in order."""
    enter, leave, fixed = rows.enter, rows.leave, rows.fixed
    while i < enter.size and not fixed[i] and enter[i] <= leave[i]:
        if head >= 0 and (enter[i] < enter[head] or leave[i] < leave[head]):
            break
        head = i
        i += 1
    return i


@kernel
def _merge(i: int, alive: Index, how: tuple[Rows, Reach], stacks: Stacks, gone: Int) -> None:
    """Sweep a late tuple together with the remembered tuples around it.

    It changes the windows that it lies in. What is in those may be excused by tuples up to a window further out.
    """
    rows, reach = how
    t, enter, leave, zone = rows.t, rows.enter, rows.leave, stacks.zone
    far = 2 * max(reach.above, reach.below) if reach.kind != HOPPING else leave[i] - enter[i] + 1
    size, placed = 0, False
    for p in range(first(alive, leave, enter[i] - far), alive.size):
        j = alive[p]
        if t[j] > t[i] and not placed:
            zone[size], size, placed = i, size + 1, True
        if enter[j] - far > leave[i]:
            break
        if not rows.fixed[j] and gone[j] == NEVER:
            zone[size], size = j, size + 1
    if not placed:
        zone[size], size = i, size + 1
    _clear(stacks)
    _feed(zone[:size], (enter, leave, rows.v, rows.rank), reach, stacks, (gone, rows.rank[i]))


@kernel
def _replay(alive: Index, rows: Rows, reach: Reach, stacks: Stacks, gone: Int) -> None:
    """Enter again what decides the open classes: remembered tuples that share a window with one still inside."""
    enter, leave, zone, size = rows.enter, rows.leave, stacks.zone, 0
    length = max(reach.above, reach.below)
    _clear(stacks)
    head = newest(alive, alive.size, rows.fixed, gone)
    if head < 0:
        return
    inside = alive[first(alive, leave, enter[head] - length)]
    for p in range(first(alive, leave, enter[inside] - length), alive.size):
        if not rows.fixed[alive[p]] and gone[alive[p]] == NEVER:
            zone[size], size = alive[p], size + 1
    _feed(zone[:size], (enter, leave, rows.v, rows.rank), reach, stacks, (gone, REPLAY))


@kernel
def _feed(  # noqa: PLR0912, PLR0915 - parts called once per tuple would double its time
    pick: Index, columns: tuple[Array, Array, Float, Int], reach: Reach, stacks: Stacks, fate: tuple[Array, int]
) -> None:
    """Enter the picked tuples in time order and mark what goes: the whole algorithm, in one loop over arrays."""
    enter, leave, value, rank = columns
    above, below, ends, last, held, sides, _ = stacks
    gone, mark = fate
    front_a, back_a, left_a, front_b, back_b, left_b, before = ends
    for i in pick:
        key, until, v = enter[i], leave[i], value[i]
        if key > until:
            gone[i] = 1
            continue
        given = rank[i] if mark == OWN else mark
        # 1. Meet the demands of the windows that end before i enters. What a front class owes changes only when its
        # held tuple k leaves. If i enters with the hopping window after the last one of k, no window lies between.
        if before < 0 or key != enter[before]:
            while front_a < back_a:
                c = above[front_a]
                k = held[c]
                if k < 0 or (left_a >= 0 and leave[k] <= leave[left_a]):
                    k = last[c]
                    held[c] = k
                if leave[k] > key - reach.above or (leave[k] == key - reach.above and reach.kind != OPEN):
                    break
                left_a = k
                if k == last[c]:
                    sides[c] &= 2
                    front_a += 1
                if reach.kind == HOPPING and leave[k] + 1 >= key:
                    break
            while front_b < back_b:
                c = below[front_b]
                k = held[c]
                if k < 0 or (left_b >= 0 and leave[k] <= leave[left_b]):
                    k = last[c]
                    held[c] = k
                if leave[k] > key - reach.below or (leave[k] == key - reach.below and reach.kind != OPEN):
                    break
                left_b = k
                if k == last[c]:
                    sides[c] &= 1
                    front_b += 1
                if reach.kind == HOPPING and leave[k] + 1 >= key:
                    break
        before = i
        # 2. Close the classes that i dominates.
        while back_a > front_a and value[above[back_a - 1]] < v:
            back_a -= 1
            c = above[back_a]
            sides[c] &= 2
            if sides[c] == 0 and held[c] != last[c] and given >= 0:
                gone[last[c]] = given
        while back_b > front_b and value[below[back_b - 1]] > v:
            back_b -= 1
            c = below[back_b]
            sides[c] &= 1
            if sides[c] == 0 and held[c] != last[c] and given >= 0:
                gone[last[c]] = given
        # 3. Join the class of the same value, or begin one.
        c = i
        if back_a > front_a and value[above[back_a - 1]] == v:
            c = above[back_a - 1]
        elif back_b > front_b and value[below[back_b - 1]] == v:
            c = below[back_b - 1]
        if c == i:
            held[i], sides[i] = -1, 0
        elif leave[last[c]] == until:
            # The earlier one lies in every window of this one.
            if given >= 0:
                gone[i] = given
            continue
        elif held[c] != last[c]:
            if given >= 0:
                gone[last[c]] = given
            else:
                held[c] = last[c]
        last[c] = i
        # 4. Open the class on each side where no stronger tuple stays as long.
        if reach.above >= 0 and sides[c] & 1 == 0 and (back_a == front_a or leave[last[above[back_a - 1]]] != until):
            above[back_a] = c
            back_a += 1
            sides[c] |= 1
        if reach.below >= 0 and sides[c] & 2 == 0 and (back_b == front_b or leave[last[below[back_b - 1]]] != until):
            below[back_b] = c
            back_b += 1
            sides[c] |= 2
        if sides[c] == 0 and given >= 0:
            gone[i] = given
    ends[0], ends[1], ends[2], ends[3], ends[4], ends[5] = front_a, back_a, left_a, front_b, back_b, left_b
    ends[6] = before


@kernel
def _stacks(offsets: Int) -> tuple[Index, Stacks]:
    """Make the numbers from 0 on, and stacks, for the longest segment."""
    size = 1
    for s in range(offsets.size - 1):
        size = max(size, offsets[s + 1] - offsets[s])
    above, below, zone = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32)
    last, held, sides = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.uint8)
    return np.arange(size).astype(np.int32), Stacks(above, below, np.empty(7, np.int64), last, held, sides, zone)


@kernel
def _clear(stacks: Stacks) -> None:
    stacks.ends[:] = 0
    stacks.ends[2], stacks.ends[5], stacks.ends[6] = -1, -1, -1
