"""Bracketing: leave out the tuples that no threshold function can need, one sweep with monotone stacks.

Idea. A window that holds a tuple must keep one of its maximal value (side *above*, for functions increasing in the stream) or one of its
minimal value (side *below*, decreasing), or both (quasiconvex). Tuples enter in time order. Each side has a queue of *classes*: the value, its
last tuple, and the last of its tuples that is held for good; the front is the extreme of the window, and a class behind it matters once those
before it have left. A new tuple closes the classes it dominates, and joins the class of its own value. Before the contents of the window
change, the front class must have a held tuple inside; if not, its last tuple is held. A tuple that is not held goes when a later tuple
joins its class, or when its class is closed on every side: that is the moment of going.

    windows        first key to last key of a tuple         tuple i enters, j has left
    sliding        t - length .. t                          leave[j] < enter[i] - length   (open windows: <=)
    hopping        number of its first and last window      leave[j] < enter[i]            (length 0)

*Guarantee*: what stays meets every window's demand, and in time order no smaller set does (greedy interval stabbing per class, one tuple serving both
sides). In order, what stays of (what stayed and new tuples) is what stays of everything. A late tuple is merged alone with its
neighbourhood: every demand is still met, but with ties a few tuples more than the minimum may stay.
*Cost*: amortised constant per tuple in order; a late tuple costs its neighbourhood and, in the worst case, a shift of its segment. Memory is linear.
*Source*: Cai, Bernstein, Wu, Chandramouli, Optimization of Threshold Functions over Streams, PVLDB 14(6), sections 3.1 to 3.4.
We differ: brackets may tie (the paper keeps every tuple of a plateau), half-open windows count as closed ones (the paper counts them as open,
which keeps more), a sorted sweep replaces the tuple store with its four distances, and hopping windows are treated exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel

ABOVE, BELOW = 0, 1
CLOSED, OPEN, HOPPING = 0, 1, 2
NEVER = np.iinfo(np.int64).max

# Marks of `_feed` besides a rank to give to all that goes: each tuple's own rank, and none, because nothing may go.
OWN, REPLAY = -2, -1

Array = NDArray[Any]
Int = NDArray[np.int64]
Float = NDArray[np.float64]


class Reach(NamedTuple):
    """How far windows reach on each side (below 0: the side is not needed; hopping: 0), and their kind: `CLOSED`, `OPEN` or `HOPPING`."""

    above: Any
    below: Any
    kind: int


class Rows(NamedTuple):
    """Tuples in columns: of each segment first the remembered ones by time, then new ones as they arrived.

    `enter` and `leave` are the keys of the windows: the times themselves if windows slide, the numbers of the first and the last window if they
    hop. `fixed` tuples always stay and are nobody's bracket. `tag` stands for all values and the payload of a tuple and is read only if nothing may be
    left out. `rank` increases with arrival, from 0 (remembered tuples: -1).
    """

    t: Array
    v: Float
    enter: Array
    leave: Array
    fixed: NDArray[np.bool_]
    tag: Int
    rank: Int


class Stacks(NamedTuple):
    """The open classes. A class has the number of its first tuple.

    `above` and `below` list the classes of each side from front to back; `ends` has front, back and the last tuple that left of `above`, the same of
    `below`, and the last tuple that entered. `last` and `held` belong to a class, `sides` says where it is open (1 above, 2 below); `zone` is scratch.
    """

    above: Int
    below: Int
    ends: Int
    last: Int
    held: Int
    sides: NDArray[np.uint8]
    zone: Int


def hops(t: Array, length: Any, hop: Any, closed: str) -> tuple[Array, Array]:
    """Number the first and the last hopping window [k hop, k hop + length] of each time; none holds it where the first is larger."""
    leave = t // hop if closed in ("both", "left") else -(-t // hop) - 1
    enter = -((length - t) // hop) if closed in ("both", "right") else (t - length) // hop + 1
    return enter, leave


@kernel
def sweep(offsets: Int, keys: tuple[Array, Array], v: Float, reach: Reach, gone: NDArray[np.uint8]) -> None:
    """Mark with 1 in `gone` (all 0 before) what may be left out of each segment; within a segment tuples are sorted by time.

    `keys` are enter and leave as in `Rows`; segment s is offsets[s] up to offsets[s + 1].
    """
    pick, stacks = _stacks(offsets)
    enter, leave = keys
    for s in range(offsets.size - 1):
        lo, hi = offsets[s], offsets[s + 1]
        _clear(stacks)
        _feed(pick[: hi - lo], (enter[lo:hi], leave[lo:hi], v[lo:hi], offsets), reach, stacks, (gone[lo:hi], 1))


@kernel
def going(bounds: tuple[Int, Int], rows: Rows, lengths: tuple[Array, int], order_out: Int, gone_out: Int) -> None:
    """Tell at which arrival each tuple leaves the remembered set, as if tuples were taken one at a time.

    `bounds` are the offsets of the segments and how many of the tuples of each are remembered ones. `lengths` are an array [side, segment], how far the windows
    reach, and their kind. Fills `gone_out` with the rank of the arrival at which a tuple goes (its own: it is refused; `NEVER`: it stays), and `order_out`
    with the row numbers of each segment by (time, position).
    """
    offsets, n_state = bounds
    pick, stacks = _stacks(offsets)
    alive = np.empty(pick.size + 1, np.int64)
    gone_out[:] = NEVER
    for s in range(offsets.size - 1):
        lo, hi = offsets[s], offsets[s + 1]
        reach = Reach(lengths[0][ABOVE, s], lengths[0][BELOW, s], lengths[1])
        keys = (rows.enter[lo:hi], rows.leave[lo:hi])
        part = Rows(rows.t[lo:hi], rows.v[lo:hi], keys[0], keys[1], rows.fixed[lo:hi], rows.tag[lo:hi], rows.rank[lo:hi])
        alive[: n_state[s]] = pick[: n_state[s]]
        if reach.above < 0 and reach.below < 0:
            _follow_whole(n_state[s], part, alive, gone_out[lo:hi])
        else:
            _follow(n_state[s], part, reach, (alive, pick, stacks), gone_out[lo:hi])
        _order(rows.t, lo, hi, order_out)


@kernel
def _follow(count: int, rows: Rows, reach: Reach, memory: tuple[Int, Int, Stacks], gone: Int) -> None:
    """Take the new tuples of one segment: runs in order together, late and fixed ones alone."""
    alive, pick, stacks = memory
    fixed, rank, t = rows.fixed, rows.rank, rows.t
    newest, stale, limit, i = _newest(alive, count, fixed, gone), True, 2 * count + 64, count
    while i < t.size:
        stop = _run(i, newest, rows)
        if stop > i:
            if stale:
                _replay(alive[:count], rows, reach, stacks, gone)
                stale = False
            _feed(pick[i:stop], (rows.enter, rows.leave, rows.v, rank), reach, stacks, (gone, OWN))
            newest = stop - 1
        else:
            stop = i + 1
            if rows.enter[i] > rows.leave[i] and not fixed[i]:
                gone[i] = rank[i]
            elif _twin(i, alive, count, rows, gone):
                gone[i] = rank[i]
            elif not fixed[i]:
                _merge(i, alive, count, (rows, reach, stacks), gone)
                stale = True
        for j in range(i, stop):
            if gone[j] == NEVER:
                count = _place(j, alive, count, t)
        if stale:
            newest = _newest(alive, count, fixed, gone)
        if count >= limit:
            count = _compact(alive, count, gone)
            limit = 2 * count + 64
        i = stop


@kernel
def _run(i: int, newest: int, rows: Rows) -> int:
    """Find the end of the tuples from i on that come in order."""
    enter, leave, fixed = rows.enter, rows.leave, rows.fixed
    while i < enter.size and not fixed[i] and enter[i] <= leave[i]:
        if newest >= 0 and (enter[i] < enter[newest] or leave[i] < leave[newest]):
            break
        newest = i
        i += 1
    return i


@kernel
def _follow_whole(count: int, rows: Rows, alive: Int, gone: Int) -> None:
    """Keep everything but exact duplicates."""
    t, tag = rows.t, rows.tag
    for i in range(count, t.size):
        p = _after(alive, count, t, t[i]) - 1
        while p >= 0 and t[alive[p]] == t[i] and tag[alive[p]] != tag[i]:
            p -= 1
        if p >= 0 and t[alive[p]] == t[i]:
            gone[i] = rows.rank[i]
        else:
            count = _place(i, alive, count, t)


@kernel
def _feed(pick: Int, columns: tuple[Array, Array, Float, Int], reach: Reach, stacks: Stacks, fate: tuple[Array, int]) -> None:
    """Enter tuples in time order; what goes is marked. This is the whole algorithm, in one loop so that its state stays in registers."""
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
        # 1. Meet the demands of the windows that end before i enters. What a front class owes changes only when its held tuple leaves, so the tuples in
        # between need no look. If i enters right after k left with a hopping window, no window lies between.
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
            gone[i] = given if given >= 0 else gone[i]
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
    ends[0], ends[1], ends[2], ends[3], ends[4], ends[5], ends[6] = front_a, back_a, left_a, front_b, back_b, left_b, before


@kernel
def _merge(i: int, alive: Int, count: int, memory: tuple[Rows, Reach, Stacks], gone: Int) -> None:
    """Sweep a late tuple together with the remembered tuples that share a window with it."""
    rows, reach, stacks = memory
    t, v, enter, leave, fixed, _, rank = rows
    length = max(reach.above, reach.below)
    zone, size, placed = stacks.zone, 0, False
    for p in range(_first(alive[:count], leave, enter[i] - length), count):
        j = alive[p]
        if t[j] > t[i] and not placed:
            zone[size], size, placed = i, size + 1, True
        if enter[j] - length > leave[i]:
            break
        if not fixed[j] and gone[j] == NEVER:
            zone[size] = j
            size += 1
    if not placed:
        zone[size], size = i, size + 1
    _clear(stacks)
    _feed(zone[:size], (enter, leave, v, rank), reach, stacks, (gone, rank[i]))


@kernel
def _replay(alive: Int, rows: Rows, reach: Reach, stacks: Stacks, gone: Int) -> None:
    """Enter again the remembered tuples that decide the open classes: those that share a window with one that is still inside."""
    enter, leave, zone, size = rows.enter, rows.leave, stacks.zone, 0
    length = max(reach.above, reach.below)
    _clear(stacks)
    newest = _newest(alive, alive.size, rows.fixed, gone)
    if newest < 0:
        return
    inside = alive[_first(alive, leave, enter[newest] - length)]
    for p in range(_first(alive, leave, enter[inside] - length), alive.size):
        if not rows.fixed[alive[p]] and gone[alive[p]] == NEVER:
            zone[size] = alive[p]
            size += 1
    _feed(zone[:size], (enter, leave, rows.v, rows.rank), reach, stacks, (gone, REPLAY))


@kernel
def _twin(i: int, alive: Int, count: int, rows: Rows, gone: Int) -> bool:
    """Tell whether a remembered tuple has the time and the value of tuple i."""
    t, v, fixed = rows.t, rows.v, rows.fixed
    p = _after(alive, count, t, t[i]) - 1
    while p >= 0 and t[alive[p]] == t[i]:
        if v[alive[p]] == v[i] and gone[alive[p]] == NEVER and fixed[alive[p]] == fixed[i]:
            return True
        p -= 1
    return False


@kernel
def _newest(alive: Int, count: int, fixed: NDArray[np.bool_], gone: Int) -> int:
    for p in range(count - 1, -1, -1):
        if not fixed[alive[p]] and gone[alive[p]] == NEVER:
            return alive[p]
    return -1


@kernel
def _place(i: int, alive: Int, count: int, t: Array) -> int:
    p = count
    while p > 0 and t[alive[p - 1]] > t[i]:
        alive[p] = alive[p - 1]
        p -= 1
    alive[p] = i
    return count + 1


@kernel
def _compact(alive: Int, count: int, gone: Int) -> int:
    kept = 0
    for p in range(count):
        if gone[alive[p]] == NEVER:
            alive[kept] = alive[p]
            kept += 1
    return kept


@kernel
def _after(alive: Int, count: int, keys: Array, key: Any) -> int:
    """Find the first place whose key is larger; the end is tried first, for tuples in order."""
    if count == 0 or keys[alive[count - 1]] <= key:
        return count
    lo, hi = 0, count - 1
    while lo < hi:
        mid = (lo + hi) >> 1
        if keys[alive[mid]] > key:
            hi = mid
        else:
            lo = mid + 1
    return lo


@kernel
def _first(alive: Int, keys: Array, key: Any) -> int:
    """Find the first place whose key is not smaller."""
    lo, hi = 0, alive.size
    while lo < hi:
        mid = (lo + hi) >> 1
        if keys[alive[mid]] >= key:
            hi = mid
        else:
            lo = mid + 1
    return lo


@kernel
def _order(t: Array, lo: int, hi: int, order: Int) -> None:
    in_order = True
    for i in range(lo, hi):
        order[i] = i
        if i > lo and t[i] < t[i - 1]:
            in_order = False
    if not in_order:
        order[lo:hi] = lo + np.argsort(t[lo:hi], kind="mergesort")


@kernel
def _stacks(offsets: Int) -> tuple[Int, Stacks]:
    """Make the numbers from 0 on, and stacks, for the longest segment."""
    size = 1
    for s in range(offsets.size - 1):
        size = max(size, offsets[s + 1] - offsets[s])
    above, below, zone, ends = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64), np.empty(7, np.int64)
    last, held, sides = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.uint8)
    return np.arange(size), Stacks(above, below, ends, last, held, sides, zone)


@kernel
def _clear(stacks: Stacks) -> None:
    stacks.ends[:] = 0
    stacks.ends[2], stacks.ends[5], stacks.ends[6] = -1, -1, -1
