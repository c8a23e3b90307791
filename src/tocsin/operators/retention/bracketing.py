"""Bracketing: omit the tuples that no threshold function needs, in one sweep with monotone queues.

Algorithm: each window must keep one tuple of its maximum (side *above*, for functions that increase in the value), one
tuple of its minimum (side *below*, decreasing functions), or both (quasiconvex functions). Tuples enter in time order.
Each side has a monotone queue of *classes*. A class has a value, its last tuple, and its last *held* tuple. A window
that has ended needs each held tuple. The front class has the extreme value of the current window. The other classes
become the front when the classes before them have left the window.

A new tuple closes the classes that it dominates, and joins the class of its value. Before the contents of the window
change, the front class must have a held tuple in the window. Otherwise its last tuple becomes held. A tuple that is not
held is omitted when a later tuple joins its class, or when its class is closed on every side.

    windows   enter, leave (keys of a tuple)         tuple j has left when tuple i enters
    sliding   its time                               leave[j] < enter[i] - length (open at both ends: <=)
    hopping   numbers of its first and last window   leave[j] < enter[i]

Guarantees: the retained tuples meet the demand of every window. For tuples in time order, no smaller set does: classes
are independent, and the demands inside a class are intervals with a greedy minimum cover. For tuples in order, the
reduction of (retained and new tuples) equals the reduction of all tuples. An out-of-order tuple is merged with the
tuples around it: every demand is still met, but a few more tuples than the minimum can remain if values are equal.
Differences of floating-point times have the usual rounding.

Complexity: amortised constant time for each tuple in order. An out-of-order tuple costs the tuples around it and, in
the worst case, a shift of its segment. Memory is linear. A segment has at most 2^31 - 1 tuples.

References: Cai, Bernstein, Wu, Chandramouli, Optimization of Threshold Functions over Streams, PVLDB 14(6), section 3.
Differences: covering tuples may have equal values (the paper keeps every tuple of a plateau). Half-open windows count
as closed (the paper counts them as open and keeps more tuples). One sorted sweep replaces the store with four distances
per tuple. Hopping windows are exact.
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
    MonotoneQueues,
    Reach,
    advance_queues,
    clear_queues,
    new_queues,
)
from tocsin.operators.retention.sorted_rows import (
    Array,
    Index,
    contains_row,
    find_newest,
    insert_row,
    lower_bound,
    remove_departed_rows,
    sort_by_time,
)
from tocsin.runtime.contract import NEVER, Int

__all__ = [
    "ABOVE",
    "BELOW",
    "CLOSED",
    "HOPPING",
    "OPEN",
    "Reach",
    "SegmentRows",
    "sweep_new_rows",
    "compute_departure_ranks",
    "hopping_windows",
    "process_row",
    "sweep",
]

ABOVE, BELOW = 0, 1


class SegmentRows(NamedTuple):
    """Tuples of all segments in columns: in each segment the retained tuples by time, then the new tuples by arrival.

    Attributes
    ----------
        t, v: Time and value.
        enter, leave: The time for sliding windows, the numbers of the first and the last window for hopping windows.
        fixed: Tuples that always remain and never cover another tuple.
        tag: Fingerprint of all values and the payload. It is read only if the stream is unreduced.
        rank: Arrival rank. It increases from 0; retained tuples have -1.
    """

    t: Array
    v: Float
    enter: Array
    leave: Array
    fixed: NDArray[np.bool_]
    tag: Int
    rank: Int


def hopping_windows(t: Array, length: Any, hop: Any, closed: str) -> tuple[Array, Array]:
    """Return the numbers of the first and the last window [k hop, k hop + length] of each time.

    The first number is larger than the last number if no window contains the time.
    """
    leave = t // hop if closed in ("both", "left") else -(-t // hop) - 1
    enter = -((length - t) // hop) if closed in ("both", "right") else (t - length) // hop + 1
    return enter, leave


@kernel
def sweep(offsets: Int, keys: tuple[Array, Array], v: Float, reach: Reach, omitted: Flags) -> None:
    """Mark with 1 in `omitted` (all 0 before) the tuples of each segment that can be omitted.

    `keys` are `enter` and `leave` of `SegmentRows`. Segment s is the range from offsets[s] to
    offsets[s + 1], sorted by time.
    """
    picked, queues = new_queues(offsets)
    enter, leave = keys
    for s in range(offsets.size - 1):
        lo, hi = offsets[s], offsets[s + 1]
        clear_queues(queues)
        advance_queues(
            picked[: hi - lo], (enter[lo:hi], leave[lo:hi], v[lo:hi], offsets), reach, queues, (omitted[lo:hi], 1)
        )


@kernel
def sweep_new_rows(known: int, keys: tuple[Array, Array], v: Float, reach: Reach, omitted: Flags) -> None:
    """Sweep one segment, sorted by time, whose first `known` tuples are retained from earlier sweeps.

    The known tuples must include each tuple that shares a window with a tuple in a window of the last known tuple.
    """
    picked, queues = new_queues(np.array([0, v.size]))
    columns = (keys[0], keys[1], v, queues.ends)
    clear_queues(queues)
    advance_queues(picked[:known], columns, reach, queues, (omitted, REPLAY))
    advance_queues(picked[known:], columns, reach, queues, (omitted, 1))


@kernel
def compute_departure_ranks(
    bounds: tuple[Int, Int], rows: SegmentRows, lengths: tuple[Array, int], order_out: Int, departure_out: Int
) -> None:
    """Compute the arrival rank at which each tuple leaves the state, as if tuples arrived one at a time.

    `bounds` are the offsets of the segments and the number of retained tuples in each segment. `lengths` are an array
    [side, segment] of window lengths, and the kind of the windows.

    `departure_out` receives the rank of the arrival that covers a tuple, the tuple's own rank if it is omitted on
    arrival, or `NEVER`. `order_out` receives the row numbers of each segment by (time, position).
    """
    offsets, n_state = bounds
    picked, queues = new_queues(offsets)
    retained = np.empty(picked.size + 1, np.uint32)
    for i in range(departure_out.size):
        departure_out[i] = NEVER
    for s in range(offsets.size - 1):
        lo, hi, known = offsets[s], offsets[s + 1], n_state[s]
        if known == hi - lo:  # No new tuples: the segment remains in order.
            for i in range(lo, hi):
                order_out[i] = i
            continue
        t, v, enter, leave = rows.t[lo:hi], rows.v[lo:hi], rows.enter[lo:hi], rows.leave[lo:hi]
        part = SegmentRows(t, v, enter, leave, rows.fixed[lo:hi], rows.tag[lo:hi], rows.rank[lo:hi])
        reach = Reach(lengths[0][ABOVE, s], lengths[0][BELOW, s], lengths[1])
        for i in range(known):
            retained[i] = picked[i]
        if reach.above < 0 and reach.below < 0:
            _omit_duplicates(known, part, retained, departure_out[lo:hi])
        else:
            _process_segment(known, part, reach, (retained, picked, queues), departure_out[lo:hi])
        sort_by_time(rows.t, lo, hi, order_out)


@kernel
def _omit_duplicates(count: int, rows: SegmentRows, retained: Index, departure: Int) -> None:
    """Retain every new tuple except exact duplicates of retained tuples."""
    for i in range(count, rows.t.size):
        if contains_row(i, (retained, count), rows.t, rows.tag, departure):
            departure[i] = rows.rank[i]
        else:
            count = insert_row(i, retained, count, rows.t)


@kernel
def _process_segment(
    count: int, rows: SegmentRows, reach: Reach, memory: tuple[Index, Index, MonotoneQueues], departure: Int
) -> None:
    """Process the new tuples of one segment: runs in order together, out-of-order and fixed tuples one at a time."""
    retained, picked, queues = memory
    t, v, fixed, rank = rows.t, rows.v, rows.fixed, rows.rank
    head, stale, limit, i = find_newest(retained, count, fixed, departure), True, 2 * count + 64, count
    while i < t.size:
        stop = _end_of_ordered_run(i, head, rows)
        if reach.kind == HOPPING:
            stop = min(stop, i + 1)
        if stop > i:
            if stale:
                _rebuild_queues(retained[:count], rows, reach, queues, departure)
                stale = False
            advance_queues(picked[i:stop], (rows.enter, rows.leave, v, rank), reach, queues, (departure, OWN))
            head = stop - 1
            # A tuple that is covered by a tuple with other keys changes the queues. A rebuild does not see it.
            stale = reach.kind == HOPPING and departure[head] != NEVER
        else:
            stop = i + 1
            in_none = rows.enter[i] > rows.leave[i] and not fixed[i]
            if in_none or contains_row(i, (retained, count), t, v, departure):
                departure[i] = rank[i]
            elif not fixed[i]:
                _sweep_around_row(i, retained[:count], (rows, reach), queues, departure)
                stale = True
        for j in range(i, stop):
            if departure[j] == NEVER:
                count = insert_row(j, retained, count, t)
        if stale:
            head = find_newest(retained, count, fixed, departure)
        if count >= limit:
            count = remove_departed_rows(retained, count, departure)
            limit = 2 * count + 64
        i = stop


@kernel
def process_row(
    i: int,
    count: int,
    rows: SegmentRows,
    reach: Reach,
    memory: tuple[Index, Index, MonotoneQueues],
    departure: Int,
    stale: bool,
) -> bool:
    """Process one new tuple of a segment, without inserting it into the retained tuples.

    `stale` is whether the queues of the segment do not fit the retained tuples. Return this for the next tuple. The
    result is the result of `_process_segment`, but tuples may leave the segment between two calls.
    """
    retained, picked, queues = memory
    fixed, rank, enter, leave = rows.fixed, rows.rank, rows.enter, rows.leave
    if fixed[i] or enter[i] > leave[i]:
        if not fixed[i] or contains_row(i, (retained, count), rows.t, rows.v, departure):
            departure[i] = rank[i]
        return stale
    head = find_newest(retained, count, fixed, departure)
    if head >= 0 and (enter[i] < enter[head] or leave[i] < leave[head]):
        if contains_row(i, (retained, count), rows.t, rows.v, departure):
            departure[i] = rank[i]
            return stale
        _sweep_around_row(i, retained[:count], (rows, reach), queues, departure)
        return True
    if stale:
        _rebuild_queues(retained[:count], rows, reach, queues, departure)
    advance_queues(picked[i : i + 1], (enter, leave, rows.v, rank), reach, queues, (departure, OWN))
    return reach.kind == HOPPING and departure[i] != NEVER


@kernel
def _end_of_ordered_run(i: int, head: int, rows: SegmentRows) -> int:
    """Return the end of the run of tuples in order that begins at i."""
    enter, leave, fixed = rows.enter, rows.leave, rows.fixed
    while i < enter.size and not fixed[i] and enter[i] <= leave[i]:
        if head >= 0 and (enter[i] < enter[head] or leave[i] < leave[head]):
            break
        head = i
        i += 1
    return i


@kernel
def _sweep_around_row(
    i: int, retained: Index, how: tuple[SegmentRows, Reach], queues: MonotoneQueues, departure: Int
) -> None:
    """Sweep an out-of-order tuple together with the retained tuples around it.

    The tuple changes the windows that contain it. Tuples up to one window further away can
    cover tuples of these windows.
    """
    rows, reach = how
    t, enter, leave, zone = rows.t, rows.enter, rows.leave, queues.zone
    far = 2 * max(reach.above, reach.below) if reach.kind != HOPPING else leave[i] - enter[i] + 1
    size, placed = 0, False
    for p in range(lower_bound(retained, leave, enter[i] - far), retained.size):
        j = retained[p]
        if t[j] > t[i] and not placed:
            zone[size], size, placed = i, size + 1, True
        if enter[j] - far > leave[i]:
            break
        if not rows.fixed[j] and departure[j] == NEVER:
            zone[size], size = j, size + 1
    if not placed:
        zone[size], size = i, size + 1
    clear_queues(queues)
    advance_queues(zone[:size], (enter, leave, rows.v, rows.rank), reach, queues, (departure, rows.rank[i]))


@kernel
def _rebuild_queues(retained: Index, rows: SegmentRows, reach: Reach, queues: MonotoneQueues, departure: Int) -> None:
    """Rebuild the queues from the retained tuples that determine the open classes.

    These are the tuples that share a window with a tuple in the current window.
    """
    enter, leave, zone, size = rows.enter, rows.leave, queues.zone, 0
    length = max(reach.above, reach.below)
    clear_queues(queues)
    head = find_newest(retained, retained.size, rows.fixed, departure)
    if head < 0:
        return
    inside = retained[lower_bound(retained, leave, enter[head] - length)]
    for p in range(lower_bound(retained, leave, enter[inside] - length), retained.size):
        if not rows.fixed[retained[p]] and departure[retained[p]] == NEVER:
            zone[size], size = retained[p], size + 1
    advance_queues(zone[:size], (enter, leave, rows.v, rows.rank), reach, queues, (departure, REPLAY))
