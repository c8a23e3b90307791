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
met; where values tie, a few tuples more than the minimum may stay. Differences of float times are rounded as any other.
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
from tocsin.operators.retention.monotone_queues import (
    CLOSED,
    HOPPING,
    OPEN,
    OWN,
    REPLAY,
    Flags,
    Float,
    Reach,
    Stacks,
    clear,
    feed,
    stacks_for,
)
from tocsin.operators.retention.sorted_rows import Array, Index, compact, first, has, newest, place, sort
from tocsin.runtime.contract import NEVER, Int

__all__ = ["ABOVE", "BELOW", "CLOSED", "HOPPING", "OPEN", "Reach", "Rows", "extend", "going", "hops", "sweep"]

ABOVE, BELOW = 0, 1


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
    pick, stacks = stacks_for(offsets)
    enter, leave = keys
    for s in range(offsets.size - 1):
        lo, hi = offsets[s], offsets[s + 1]
        clear(stacks)
        feed(pick[: hi - lo], (enter[lo:hi], leave[lo:hi], v[lo:hi], offsets), reach, stacks, (gone[lo:hi], 1))


@kernel
def extend(known: int, keys: tuple[Array, Array], v: Float, reach: Reach, gone: Flags) -> None:
    """Sweep one segment whose first `known` tuples stayed before; in order, the others come after them.

    Of the known ones, those that share a window with one that shares a window with the last of them must be there.
    """
    pick, stacks = stacks_for(np.array([0, v.size]))
    columns = (keys[0], keys[1], v, stacks.ends)
    clear(stacks)
    feed(pick[:known], columns, reach, stacks, (gone, REPLAY))
    feed(pick[known:], columns, reach, stacks, (gone, 1))


@kernel
def going(bounds: tuple[Int, Int], rows: Rows, lengths: tuple[Array, int], order_out: Int, gone_out: Int) -> None:
    """Tell at which arrival each tuple leaves the remembered set, as if tuples were taken one at a time.

    `bounds` are the offsets of the segments and how many tuples of each are remembered ones. `lengths` are an array
    [side, segment] of how far windows reach, and their kind. Fills `gone_out` with the rank of the arrival at which a
    tuple goes (its own: it is refused; `NEVER`: it stays), and `order_out` with the row numbers of each segment by
    (time, position).
    """
    offsets, n_state = bounds
    pick, stacks = stacks_for(offsets)
    alive = np.empty(pick.size + 1, np.uint32)
    for i in range(gone_out.size):
        gone_out[i] = NEVER
    for s in range(offsets.size - 1):
        lo, hi, known = offsets[s], offsets[s + 1], n_state[s]
        if known == hi - lo:  # Nothing came: all stays as it is, in order.
            for i in range(lo, hi):
                order_out[i] = i
            continue
        t, v, enter, leave = rows.t[lo:hi], rows.v[lo:hi], rows.enter[lo:hi], rows.leave[lo:hi]
        part = Rows(t, v, enter, leave, rows.fixed[lo:hi], rows.tag[lo:hi], rows.rank[lo:hi])
        reach = Reach(lengths[0][ABOVE, s], lengths[0][BELOW, s], lengths[1])
        for i in range(known):
            alive[i] = pick[i]
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
        if reach.kind == HOPPING:
            stop = min(stop, i + 1)
        if stop > i:
            if stale:
                _replay(alive[:count], rows, reach, stacks, gone)
                stale = False
            feed(pick[i:stop], (rows.enter, rows.leave, v, rank), reach, stacks, (gone, OWN))
            head = stop - 1
            # A tuple refused by one with other keys has moved the queues: nothing that is remembered would tell.
            stale = reach.kind == HOPPING and gone[head] != NEVER
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
    clear(stacks)
    feed(zone[:size], (enter, leave, rows.v, rows.rank), reach, stacks, (gone, rows.rank[i]))


@kernel
def _replay(alive: Index, rows: Rows, reach: Reach, stacks: Stacks, gone: Int) -> None:
    """Enter again what decides the open classes: remembered tuples that share a window with one still inside."""
    enter, leave, zone, size = rows.enter, rows.leave, stacks.zone, 0
    length = max(reach.above, reach.below)
    clear(stacks)
    head = newest(alive, alive.size, rows.fixed, gone)
    if head < 0:
        return
    inside = alive[first(alive, leave, enter[head] - length)]
    for p in range(first(alive, leave, enter[inside] - length), alive.size):
        if not rows.fixed[alive[p]] and gone[alive[p]] == NEVER:
            zone[size], size = alive[p], size + 1
    feed(zone[:size], (enter, leave, rows.v, rows.rank), reach, stacks, (gone, REPLAY))
