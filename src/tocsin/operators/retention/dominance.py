"""Dominance: leave out tuples of several values that others, before and behind, match or beat in every value.

Idea: a condition that rises with each of several values of a stream (those that it falls with are turned round) needs a
tuple only if some window holds no other that is at least as large in all of them. Tuples are taken one at a time: a
new one is refused, or it excuses remembered ones together with one on their other side.
Guarantee: for every tuple and every window that holds it, the window holds one that stayed and is at least as large
in every value; each removal is justified by tuples then present, so by induction. The cut into batches does not show.
Cost: of k remembered tuples within a window of a new one, O(k) to refuse it, O(k²) at worst to find what it
excuses. How many stay depends on the values: of d independent ones about log^(d-1) of a window's tuples are maximal.

Source: Cai et al., PVLDB 14(6), 2021, section 3, for one value; several are our own.
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.retention.bracketing import Rows
from tocsin.operators.retention.monotone_queues import HOPPING, OPEN, Float
from tocsin.operators.retention.sorted_rows import Array, Index, compact, first, has, place, sort
from tocsin.runtime.contract import NEVER, Int

__all__ = ["going_dominated"]


@kernel
def going_dominated(
    bounds: tuple[Int, Int], rows: Rows, values: Float, reach: tuple[int, int], order_out: Int, gone_out: Int
) -> None:
    """Tell at which arrival each tuple leaves the remembered set: as `bracket.going`, by several values.

    `values` has a row per value, all to be large; `reach` is how far windows reach and their kind.
    """
    offsets, n_state = bounds
    for i in range(gone_out.size):
        gone_out[i] = NEVER
    alive = np.empty(rows.t.size + 1, np.uint32)
    for s in range(offsets.size - 1):
        lo, hi, known = offsets[s], offsets[s + 1], n_state[s]
        if known == hi - lo:  # Nothing came: all stays as it is, in order.
            for i in range(lo, hi):
                order_out[i] = i
            continue
        part = Rows(
            rows.t[lo:hi], rows.v[lo:hi], rows.enter[lo:hi], rows.leave[lo:hi], rows.fixed[lo:hi], rows.tag[lo:hi],
            rows.rank[lo:hi],
        )  # fmt: skip
        for i in range(known):
            alive[i] = i
        _follow(known, part, values[:, lo:hi], reach, alive, gone_out[lo:hi])
        sort(rows.t, lo, hi, order_out)


@kernel
def _follow(count: int, rows: Rows, values: Float, reach: tuple[int, int], alive: Index, gone: Int) -> None:
    """Take the new tuples of one segment, one at a time."""
    limit = 2 * count + 64
    for i in range(count, rows.t.size):
        if rows.fixed[i]:
            refused = has(i, (alive, count), rows.t, rows.v, gone)
        else:
            refused = rows.enter[i] > rows.leave[i] or _is_excused(i, alive[:count], rows, values, reach, gone)
        if refused:
            gone[i] = rows.rank[i]
            continue
        count = place(i, alive, count, rows.t)
        if not rows.fixed[i]:
            _excuse(i, alive[:count], rows, values, reach, gone)
        if count >= limit:
            count = compact(alive, count, gone)
            limit = 2 * count + 64


@kernel
def _excuse(i: int, alive: Index, rows: Rows, values: Float, reach: tuple[int, int], gone: Int) -> None:
    """Let those go that the new tuple and another one excuse."""
    for p in range(first(alive, rows.leave, rows.enter[i] - _far(i, rows, reach)), alive.size):
        j = alive[p]
        if rows.enter[j] > rows.leave[i] + _far(i, rows, reach):
            break
        if j == i or rows.fixed[j] or gone[j] != NEVER or not _beats(values, i, j):
            continue
        if _is_excused(j, alive, rows, values, reach, gone):
            gone[j] = rows.rank[i]


@kernel
def _is_excused(j: int, alive: Index, rows: Rows, values: Float, reach: tuple[int, int], gone: Int) -> bool:
    """Tell whether every window that holds j holds one that beats it: the nearest before and the nearest behind."""
    enter, leave = rows.enter, rows.leave
    far = _far(j, rows, reach)
    before, behind = -1, -1
    for p in range(first(alive, leave, enter[j] - far), alive.size):
        k = alive[p]
        if enter[k] > leave[j] + far:
            break
        if k == j or rows.fixed[k] or gone[k] != NEVER or not _beats(values, k, j):
            continue
        if enter[k] <= enter[j] and (before < 0 or leave[k] >= leave[before]):
            before = k
        if leave[k] >= leave[j] and (behind < 0 or enter[k] < enter[behind]):
            behind = k
    if before < 0 or behind < 0:
        return False
    if reach[1] == HOPPING:
        return bool(leave[before] + 1 >= enter[behind])
    apart = enter[behind] - leave[before]
    return bool(apart < reach[0] if reach[1] == OPEN else apart <= reach[0])


@kernel
def _far(i: int, rows: Rows, reach: tuple[int, int]) -> int:
    """How far from a tuple those lie that can share a window with it."""
    return int(reach[0]) if reach[1] != HOPPING else int(rows.leave[i] - rows.enter[i] + 1)


@kernel
def _beats(values: Array, k: int, j: int) -> bool:
    for d in range(values.shape[0]):
        if values[d, k] < values[d, j]:
            return False
    return True
