"""Look at a query only when it can have matured.

Idea: a region covers the ranges of its queries and knows the weight that fell into it. A query still lacks some weight,
so it need not be looked at before its region has taken as much: that is when it is *due*. A look reads the exact weight
of its range and sets when it is due again. Queries of a region stand on shelves of at most 64, and a shelf knows when
the first of its queries is due. Elements of a batch are added one by one, requests take effect between them, and the
regions that reached something due are looked through once, at the end; the element at which a query matured is searched
backwards from there. Regions and readings depend on the dimensions: `line` has one, `plane` two and more.
Guarantee: exact. With even weights a look leaves at most 5/8 of what lacked on a line, 6/7 in the plane. A query that
had more than `WEARY` looks in vain for each time that its lack was halved, and as many before, gets tired: it is named
to the caller, who shall take it elsewhere; so whatever comes, a query has at most WEARY (log2(threshold) + 1) of them,
and one per 1,024 elements until it is taken.
Cost: on a line per element O(log m) and the levels in use; per look O(log m + 64 + m / 4096), and one read per shelf of
the region. In the plane an era has about half as many elements as there are queries, so that its end costs O(sqrt(m))
per element; a look costs O(sqrt(m) log m), from three dimensions on O(m). Per maturing query one walk over the batch,
which is therefore cut at 1,024 elements.
Source: Qiao, Gan, Tao, "Range Thresholding on Streams", sections 3.2 and 4, has the idea that a query may rest while
the weight near it cannot suffice; there a query rests on O(log m) nodes with exact shares, here on one region.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Int
from tocsin.stages.ranges.ends import up_of
from tocsin.stages.ranges.history import is_inside
from tocsin.stages.ranges.line import ENOUGH, Line, count_on_line, enrol_on_line, has_cuts, is_worn, lack_on_line
from tocsin.stages.ranges.plane import Plane, count_in_plane, enrol_in_plane, lack_in_plane, room_in_plane
from tocsin.stages.ranges.requests import Elements, Requests
from tocsin.stages.ranges.shelves import (
    AFTER,
    ALIVE,
    DUE,
    ELEMENTS,
    FILLED,
    FIRST,
    FIRST_DUE,
    HOME,
    ID,
    LEAST,
    LISTED,
    LOAD,
    LOOKS,
    MOST,
    NEVER,
    NEXT,
    NOT_LISTED,
    PATIENCE,
    REGISTERED,
    SHELF,
    SINCE,
    SLOTS,
    START,
    TARGET,
    THRESHOLD,
    VAIN,
    WEIGHT,
    Rack,
    has_slots,
    home_of,
    slot_of,
    take_out,
)

# Elements that are taken together: what matures among them is searched for by walking over them.
CHUNK = 1024
# Why the kernel stopped: all is done, there is no room for a query or for what is found, all is to be laid out anew, or
# the queries are to move together.
DONE, NO_ROOM, FULL, STALE, SPARSE = range(5)
# Sums are begun anew beyond this.
LARGEST_SUM = 1 << 60
# Looks in vain for each halving of the lack.
WEARY = 32
# Places in `done`: elements taken, requests taken, rows of what matured, elements up to which everything due was looked
# at, ids of queries that got tired.
TAKEN, OBEYED, FOUND, SEEN, TIRED = range(5)


class Work(NamedTuple):
    """A batch, the requests in it, rows of what matured (id, index, total, number), ids that got tired, `done`."""

    elements: Elements
    requests: Requests
    matured: Int
    tired: Int
    done: Int


@kernel
def lack_of(rack: Rack, line: Line | None, plane: Plane | None, slot: int) -> int:
    """Read what a query lacks."""
    lack = 0
    # Numba leaves out a branch only if what is compared with None is None.
    if line is not None:
        lack = lack_on_line(line, rack, slot)
    if plane is not None:
        lack = lack_in_plane(plane, rack, slot)
    return lack


@kernel
def settle(rack: Rack, work: Work, slot: int, lack: int) -> None:
    """Report a query that matured since the last look, with the element at which it did; then forget it."""
    span, queries = rack.spans[slot], rack.queries
    at = work.done[TAKEN] - 1
    while True:
        if is_inside(work.elements.values[at], span):
            if lack + work.elements.weights[at] > 0:
                break
            lack += work.elements.weights[at]
        at -= 1
    row = work.done[FOUND]
    work.matured[row, 0] = queries[slot, ID]
    work.matured[row, 1] = at
    work.matured[row, 2] = queries[slot, THRESHOLD] - lack
    work.matured[row, 3] = queries[slot, REGISTERED]
    work.done[FOUND] += 1
    take_out(rack, slot)


@kernel
def leave(rack: Rack, line: Line | None, plane: Plane | None, work: Work, key: int) -> None:
    """Terminate a query if it is alive; if it is due it may have matured since the last look, which is seen here."""
    slot = slot_of(rack, key)
    if slot < 0:
        return
    if rack.queries[slot, DUE] <= rack.regions[home_of(rack.queries, slot), LOAD]:
        lack = lack_of(rack, line, plane, slot)
        if lack <= 0:
            settle(rack, work, slot, lack)
            return
    take_out(rack, slot)


@kernel
def enrol(rack: Rack, line: Line | None, plane: Plane | None, requests: Requests, request: int) -> bool:
    """Register a query here and now, if there is room."""
    dims = requests.low.shape[1]
    if not has_slots(rack):
        return False
    key, threshold, slot = requests.id[request], requests.threshold[request], -1
    if line is not None:
        if not has_cuts(line):
            return False
        low, up = requests.low[request, 0], up_of(requests.high[request, 0])
        slot = enrol_on_line(line, rack, key, low, up, threshold)
        if slot >= 0:
            rack.spans[slot, 0] = low
            rack.spans[slot, 1] = up
    if plane is not None:
        span = np.empty(2 * dims)
        for axis in range(dims):
            span[axis] = requests.low[request, axis]
            span[dims + axis] = up_of(requests.high[request, axis])
        slot = enrol_in_plane(plane, rack, key, span, threshold)
        if slot >= 0:
            rack.spans[slot] = span
    return slot >= 0


@kernel
def obey(rack: Rack, line: Line | None, plane: Plane | None, work: Work) -> int:
    """Let the requests take effect that come before the next element."""
    requests, done = work.requests, work.done
    while done[OBEYED] < len(requests.at) and requests.at[done[OBEYED]] <= done[TAKEN]:
        request = done[OBEYED]
        if requests.is_registration[request]:
            if not enrol(rack, line, plane, requests, request):
                return NO_ROOM
        else:
            if done[FOUND] == len(work.matured):
                return FULL
            leave(rack, line, plane, work, requests.id[request])
        done[OBEYED] += 1
    return DONE


@kernel
def rest(rack: Rack, plane: Plane | None, work: Work, slot: int, load: int, lack: int) -> None:
    """Set when a query that was looked at in vain is due again; name it if it got tired."""
    queries, counts = rack.queries, rack.counts
    queries[slot, DUE] = load + lack
    if plane is not None:
        queries[slot, TARGET] = lack
        queries[slot, SINCE] = plane.history.used[0]
    counts[LOOKS] += 1
    queries[slot, HOME] += VAIN
    vain = queries[slot, HOME] // VAIN
    counts[MOST] = max(counts[MOST], vain)
    if vain > WEARY and vain > WEARY * (1 + np.log2(queries[slot, THRESHOLD] / lack)):
        work.tired[work.done[TIRED]] = queries[slot, ID]
        work.done[TIRED] += 1


@kernel
def look_at_shelf(rack: Rack, line: Line | None, plane: Plane | None, work: Work, shelf: int, load: int) -> None:
    """Look at the queries of a shelf that are due."""
    queries, shelves = rack.queries, rack.shelves
    start, least = shelves[shelf, START], NEVER
    for slot in range(start, start + shelves[shelf, FILLED]):
        if queries[slot, DUE] <= load:
            lack = lack_of(rack, line, plane, slot)
            if lack <= 0:
                settle(rack, work, slot, lack)
            else:
                rest(rack, plane, work, slot, load, lack)
        least = min(least, queries[slot, DUE])
    shelves[shelf, LEAST] = least


@kernel
def look(rack: Rack, line: Line | None, plane: Plane | None, work: Work) -> int:
    """Look through the regions that are listed."""
    regions, shelves, counts, done = rack.regions, rack.shelves, rack.counts, work.done
    while counts[LISTED] >= 0:
        region = counts[LISTED]
        shelf, least = regions[region, FIRST], NEVER
        while shelf >= 0:
            if shelves[shelf, LEAST] <= regions[region, LOAD]:
                if done[FOUND] + SHELF > len(work.matured) or done[TIRED] + SHELF > len(work.tired):
                    return FULL
                look_at_shelf(rack, line, plane, work, shelf, regions[region, LOAD])
            least = min(least, shelves[shelf, LEAST])
            shelf = shelves[shelf, AFTER]
        regions[region, FIRST_DUE] = least
        counts[LISTED] = regions[region, NEXT]
        regions[region, NEXT] = NOT_LISTED
    return DONE


@kernel
def shape_of(rack: Rack, line: Line | None) -> int:
    """Tell whether to lay out anew: units that do not fit the elements, sums that grew large, or empty slots."""
    counts = rack.counts
    if counts[WEIGHT] > LARGEST_SUM:
        return STALE
    if counts[ELEMENTS] >= ENOUGH and counts[LOOKS] > counts[PATIENCE] * counts[ALIVE] + 16 * ENOUGH:
        return STALE
    if line is not None and is_worn(line, rack):
        return STALE
    return SPARSE if 4 * counts[SLOTS] > 5 * counts[ALIVE] + 4 * ENOUGH else DONE


@kernel
def work_on(rack: Rack, line: Line | None, plane: Plane | None, work: Work) -> int:
    """Take elements and requests in their order, from where `done` says; tell why it stopped."""
    elements, requests, done, counts = work.elements, work.requests, work.done, rack.counts
    n = len(elements.weights)
    while True:
        reason = obey(rack, line, plane, work)
        if reason != DONE:
            return reason
        left = n
        if plane is not None:
            left = room_in_plane(plane)
        if done[TAKEN] == n or done[TAKEN] - done[SEEN] == CHUNK or left == 0:
            reason = look(rack, line, plane, work)
            if reason != DONE:
                return reason
            done[SEEN] = done[TAKEN]
            reason = STALE if left == 0 and n > 0 else shape_of(rack, line)
            if reason != DONE or done[TAKEN] == n:
                return reason
        stop = min(n, done[SEEN] + CHUNK, done[TAKEN] + left)
        if done[OBEYED] < len(requests.at):
            stop = min(stop, requests.at[done[OBEYED]])
        for at in range(done[TAKEN], stop):
            counts[WEIGHT] += elements.weights[at]
        counts[ELEMENTS] += stop - done[TAKEN]
        if line is not None:
            count_on_line(line, rack, elements, done[TAKEN], stop)
        if plane is not None:
            count_in_plane(plane, rack, elements, done[TAKEN], stop)
        done[TAKEN] = stop


@kernel
def totals(rack: Rack, line: Line | None, plane: Plane | None, ids: Int) -> Int:
    """Read the totals of some queries, -1 for those that are not alive."""
    total = np.full(len(ids), -1)
    for at in range(len(ids)):
        slot = slot_of(rack, ids[at])
        if slot >= 0:
            total[at] = rack.queries[slot, THRESHOLD] - lack_of(rack, line, plane, slot)
    return total
