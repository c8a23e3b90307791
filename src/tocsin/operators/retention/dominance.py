"""Dominance: omit tuples of several values if other tuples before and after them are at least as large in every value.

Algorithm: a condition that increases in each of several values of a stream needs a tuple only if some window has no
other tuple that is at least as large in all values. (The signs of decreasing values are inverted.) Tuples are processed
one at a time. A new tuple is omitted, or it covers retained tuples together with a retained tuple on their other side.

Guarantees: for every tuple and every window that contains it, the window contains a retained tuple that is at least as
large in every value. Each omission is justified by tuples that are retained at this time, which proves the guarantee by
induction. Batch boundaries do not change the result.

Complexity: for k retained tuples within one window of a new tuple, O(k) to omit the new tuple, and O(k²) in the worst
case to find the tuples that it covers. The number of retained tuples depends on the values. For d independent values,
about log^(d-1) of the tuples of a window are maximal.

References: Cai et al., PVLDB 14(6), 2021, section 3, for one value. The extension to several values is part of Tocsin.
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.retention.bracketing import SegmentRows
from tocsin.operators.retention.monotone_queues import HOPPING, OPEN, Float
from tocsin.operators.retention.sorted_rows import (
    Array,
    Index,
    contains_row,
    insert_row,
    lower_bound,
    remove_departed_rows,
    sort_by_time,
)
from tocsin.runtime.contract import NEVER, Int

__all__ = ["compute_dominance_ranks", "process_row_of_several_values"]


@kernel
def compute_dominance_ranks(
    bounds: tuple[Int, Int],
    rows: SegmentRows,
    values: Float,
    reach: tuple[int, int],
    order_out: Int,
    departure_out: Int,
) -> None:
    """Compute the arrival rank at which each tuple leaves the state, for several values.

    The interface is the interface of `bracketing.compute_departure_ranks`. `values` has one row per value; large values
    matter. `reach` is the window length and the kind of the windows.
    """
    offsets, n_state = bounds
    for i in range(departure_out.size):
        departure_out[i] = NEVER
    retained = np.empty(rows.t.size + 1, np.uint32)
    for s in range(offsets.size - 1):
        lo, hi, known = offsets[s], offsets[s + 1], n_state[s]
        if known == hi - lo:  # No new tuples: the segment remains in order.
            for i in range(lo, hi):
                order_out[i] = i
            continue
        part = SegmentRows(
            rows.t[lo:hi], rows.v[lo:hi], rows.enter[lo:hi], rows.leave[lo:hi], rows.fixed[lo:hi], rows.tag[lo:hi],
            rows.rank[lo:hi],
        )  # fmt: skip
        for i in range(known):
            retained[i] = i
        _process_segment(known, part, values[:, lo:hi], reach, retained, departure_out[lo:hi])
        sort_by_time(rows.t, lo, hi, order_out)


@kernel
def _process_segment(
    count: int, rows: SegmentRows, values: Float, reach: tuple[int, int], retained: Index, departure: Int
) -> None:
    """Process the new tuples of one segment, one at a time."""
    limit = 2 * count + 64
    for i in range(count, rows.t.size):
        count = process_row_of_several_values(i, count, rows, values, reach, retained, departure)
        if count >= limit:
            count = remove_departed_rows(retained, count, departure)
            limit = 2 * count + 64


@kernel
def process_row_of_several_values(
    i: int, count: int, rows: SegmentRows, values: Float, reach: tuple[int, int], retained: Index, departure: Int
) -> int:
    """Process one new tuple of a segment, and return the number of retained tuples.

    The tuple is omitted, or it is inserted and covers retained tuples together with other tuples.
    """
    if rows.fixed[i]:
        is_omitted = contains_row(i, (retained, count), rows.t, rows.v, departure)
    else:
        is_omitted = rows.enter[i] > rows.leave[i] or _is_covered(i, retained[:count], rows, values, reach, departure)
    if is_omitted:
        departure[i] = rows.rank[i]
        return count
    count = insert_row(i, retained, count, rows.t)
    if not rows.fixed[i]:
        _omit_covered_rows(i, retained[:count], rows, values, reach, departure)
    return count


@kernel
def _omit_covered_rows(
    i: int, retained: Index, rows: SegmentRows, values: Float, reach: tuple[int, int], departure: Int
) -> None:
    """Omit the retained tuples that the new tuple i and another retained tuple cover."""
    for p in range(lower_bound(retained, rows.leave, rows.enter[i] - _max_distance(i, rows, reach)), retained.size):
        j = retained[p]
        if rows.enter[j] > rows.leave[i] + _max_distance(i, rows, reach):
            break
        if j == i or rows.fixed[j] or departure[j] != NEVER or not _dominates(values, i, j):
            continue
        if _is_covered(j, retained, rows, values, reach, departure):
            departure[j] = rows.rank[i]


@kernel
def _is_covered(
    j: int, retained: Index, rows: SegmentRows, values: Float, reach: tuple[int, int], departure: Int
) -> bool:
    """Return whether every window that contains j also contains a tuple that dominates j.

    The nearest dominating tuples before and after j decide.
    """
    enter, leave = rows.enter, rows.leave
    far = _max_distance(j, rows, reach)
    before, after = -1, -1
    for p in range(lower_bound(retained, leave, enter[j] - far), retained.size):
        k = retained[p]
        if enter[k] > leave[j] + far:
            break
        if k == j or rows.fixed[k] or departure[k] != NEVER or not _dominates(values, k, j):
            continue
        if enter[k] <= enter[j] and (before < 0 or leave[k] >= leave[before]):
            before = k
        if leave[k] >= leave[j] and (after < 0 or enter[k] < enter[after]):
            after = k
    if before < 0 or after < 0:
        return False
    if reach[1] == HOPPING:
        return bool(leave[before] + 1 >= enter[after])
    apart = enter[after] - leave[before]
    return bool(apart < reach[0] if reach[1] == OPEN else apart <= reach[0])


@kernel
def _max_distance(i: int, rows: SegmentRows, reach: tuple[int, int]) -> int:
    """Return the maximum distance between a tuple and another tuple in one of its windows."""
    return int(reach[0]) if reach[1] != HOPPING else int(rows.leave[i] - rows.enter[i] + 1)


@kernel
def _dominates(values: Array, k: int, j: int) -> bool:
    """Return whether tuple k is at least as large as tuple j in every value."""
    for d in range(values.shape[0]):
        if values[d, k] < values[d, j]:
            return False
    return True
