"""Look at a query only when it can have matured.

Idea: a region covers the ranges of its queries and knows the weight that fell into it. A query still lacks some weight,
so it need not be looked at before its region has taken as much: that is when it is *due*. A look reads the exact weight
of its range and sets when it is due again. Queries of a region stand on shelves of at most 64, and a shelf knows when
the first of its queries is due. Elements of a batch are counted one by one, requests take effect between them, and at
the end regions take them all at once, and those that reached something due are looked through; the element at which a
query matured is searched backwards from there. Regions and readings depend on the dimensions: `line` has one, `plane`
two and more.
Guarantee: exact. With even weights a look leaves at most 9/16 of what lacked on a line, 6/7 in the plane. A query that
had more than `WEARY` looks in vain for each time that its lack was halved, and as many before, gets tired: it is named
to the caller, who shall take it elsewhere; so whatever comes, a query has at most WEARY (log2(threshold) + 1) of them,
and one per 1,024 elements until it is taken.
Cost: on a line per element O(log m), and per 1,024 of them one pass over the levels in use; per look
O(log m + 64 + m / 4096), and one read per shelf of the region. In the plane an element goes to a cell of a grid, and an
era has some twelve elements per query, so that its end costs O(log m + m / 4096) per element (`sweep`); a look reads
four sums, and only one that might tell of a maturity walks over strips of the grid, O(m / 256); from three dimensions
on O(m). Per maturing query one walk over the batch, which is cut at 1,024 elements.
Source: Qiao, Gan, Tao, "Range Thresholding on Streams", sections 3.2 and 4, has the idea that a query may rest while
the weight near it cannot suffice; there a query rests on O(log m) nodes with exact shares, here on one region.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Int
from tocsin.stages.ranges.comings import (
    FOUND,
    OBEYED,
    SEEN,
    TAKEN,
    TIRED,
    Work,
    enrol,
    leave,
    search,
    settle,
)
from tocsin.stages.ranges.ends import Ends, add_weight, position_of, weight_between
from tocsin.stages.ranges.line import CHUNK, ENOUGH, Line, is_worn, load_on_line
from tocsin.stages.ranges.plane import (
    Plane,
    count_in_plane,
    is_wide,
    load_in_plane,
    look_in_plane,
    room_in_plane,
)
from tocsin.stages.ranges.requests import Elements, Requests
from tocsin.stages.ranges.shelves import (
    AFTER,
    ALIVE,
    BEHIND,
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
    SHELF,
    SLACK,
    SLOTS,
    START,
    TARGET,
    THRESHOLD,
    VAIN,
    WEIGHT,
    Rack,
    home_of,
    slot_of,
    take_out,
)

# Why the kernel stopped: all is done, there is no room for a query or for what is found, all is to be laid out anew, or
# the queries are to move together.
DONE, NO_ROOM, FULL, STALE, SPARSE = range(5)
# Sums are begun anew beyond this.
LARGEST_SUM = 1 << 60
# Looks in vain for each halving of the lack: about as many as cost what a move to the structure of the paper costs. On
# a hostile stream 8 cost 7 us per element, 32 cost 9 and 128 cost 15; the streams of the benchmarks need about 2.
WEARY = 16


@kernel
def advance(rack: Rack, line: Line | None, plane: Plane | None, work: Work, slots: Int, until: int) -> int:
    """Take elements up to `until`, and the requests in front of them and just behind the last.

    Arrays are named here, once: to hand tuples of them to a kernel in a loop costs more than what the loop does.
    """
    elements, requests, done, matured = work.elements, work.requests, work.done, work.matured
    values, weights = elements.values, elements.weights
    at, is_registration, ids = requests.at, requests.is_registration, requests.id
    queries, regions, counts = rack.queries, rack.regions, rack.counts
    if line is not None:
        (first, guide, scale, directory, groups, cuts, weight, unit, _), _, late = line
    while True:
        while done[OBEYED] < len(at) and at[done[OBEYED]] <= done[TAKEN]:
            request = done[OBEYED]
            slot = slots[request]
            if is_registration[request]:
                if not enrol(rack, line, plane, requests, request):
                    return NO_ROOM
            elif slot < 0 or queries[slot, ID] != ids[request] or queries[slot, THRESHOLD] == 0:
                slots[request] = slot_of(rack, ids[request])
                if slots[request] >= 0:
                    continue
            elif queries[slot, DUE] <= regions[home_of(queries, slot), LOAD] + counts[BEHIND]:
                if done[FOUND] == len(matured):
                    return FULL
                leave(rack, line, plane, work, slot)
            else:
                take_out(queries, counts, slot)
            done[OBEYED] += 1
        if done[TAKEN] == until:
            return DONE
        stop = until
        if done[OBEYED] < len(at):
            stop = min(stop, at[done[OBEYED]])
        counts[ELEMENTS] += stop - done[TAKEN]
        for element in range(done[TAKEN], stop):
            counts[WEIGHT] += weights[element]
            counts[BEHIND] += weights[element]
        if line is not None:
            for element in range(done[TAKEN], stop):
                value, load = values[element, 0], weights[element]
                position = position_of(first, guide, scale, value)
                late[0, 0] += 1
                late[late[0, 0], 0] = unit[add_weight(directory, groups, cuts, weight, position, value, load)]
                late[late[0, 0], 1] = load
        if plane is not None:
            count_in_plane(plane, elements, done[TAKEN], stop)
        done[TAKEN] = stop


@kernel
def rest(queries: Int, counts: Int, tired: Int, done: Int, slot: int, load: int, lack: int) -> None:
    """Set when a query that was looked at in vain is due again; name it if it got tired."""
    queries[slot, DUE] = load + lack
    counts[LOOKS] += 1
    queries[slot, HOME] += VAIN
    vain = queries[slot, HOME] // VAIN
    counts[MOST] = max(counts[MOST], vain)
    if vain > WEARY and vain > WEARY * (1 + np.log2(queries[slot, THRESHOLD] / lack)):
        tired[done[TIRED]] = queries[slot, ID]
        done[TIRED] += 1


@kernel
def look(rack: Rack, line: Line | None, plane: Plane | None, work: Work) -> int:
    """Look through the regions that are listed, at the queries that are due."""
    queries, spans, regions, shelves, _, counts = rack
    tired, done, room = work.tired, work.done, min(len(work.matured), len(work.tired)) - SHELF
    if line is not None:
        first, guide, scale, directory, groups, cuts, weight, _, _ = line.ends
        load_on_line(line, rack)
    if plane is not None and (counts[LISTED] >= 0 or counts[BEHIND] >= counts[SLACK]):
        load_in_plane(plane, rack)
    while counts[LISTED] >= 0:
        region = counts[LISTED]
        shelf, load, next_due = regions[region, FIRST], regions[region, LOAD], NEVER
        while shelf >= 0:
            if shelves[shelf, LEAST] <= load:
                if max(done[FOUND], done[TIRED]) > room:
                    return FULL
                start, least = shelves[shelf, START], NEVER
                for slot in range(start, start + shelves[shelf, FILLED]):
                    if queries[slot, DUE] <= load:
                        lack = 0
                        if line is not None:
                            low, up = spans[slot, 0], spans[slot, 1]
                            now = weight_between(first, guide, scale, directory, groups, cuts, weight, low, up)
                            lack = queries[slot, TARGET] - now
                        if plane is not None:
                            lack = look_in_plane(plane, rack, slot)
                        if lack <= 0:
                            settle(rack, work, slot, lack)
                        else:
                            rest(queries, counts, tired, done, slot, load, lack)
                    least = min(least, queries[slot, DUE])
                shelves[shelf, LEAST] = least
            next_due = min(next_due, shelves[shelf, LEAST])
            shelf = shelves[shelf, AFTER]
        regions[region, FIRST_DUE] = next_due
        counts[SLACK] = min(counts[SLACK], next_due - load)
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
    return SPARSE if 8 * counts[SLOTS] > 9 * counts[ALIVE] + 8 * ENOUGH else DONE


@kernel
def work_on(rack: Rack, line: Line | None, plane: Plane | None, work: Work) -> int:
    """Take elements and requests in their order, from where `done` says; tell why it stopped."""
    done, n = work.done, len(work.elements.weights)
    slots = np.empty(len(work.requests.at), dtype=np.int64)
    search(rack, work.requests, slots)
    while True:
        left = n
        if plane is not None:
            left = room_in_plane(plane)
        reason = advance(rack, line, plane, work, slots, min(n, done[SEEN] + CHUNK, done[TAKEN] + left))
        if reason == DONE:
            reason = look(rack, line, plane, work)
        if reason != DONE:
            return reason
        done[SEEN] = done[TAKEN]
        reason = shape_of(rack, line)
        if plane is not None and (room_in_plane(plane) == 0 or is_wide(plane, rack)):
            reason = STALE
        if reason != DONE or done[TAKEN] == n:
            return reason


@kernel
def start_on_line(held: Any, batch: Any) -> int:
    """Do `work_on`: arrays in plain tuples reach a kernel in a third of the time that named ones in each other take."""
    rack, line = _line_of(held)
    requests = Requests(batch[5], batch[6], batch[7], batch[8], batch[9], batch[10])
    return work_on(rack, line, None, Work(Elements(batch[0], batch[1]), requests, batch[2], batch[3], batch[4]))


@kernel
def start_alone_on_line(held: Any, batch: Any) -> int:
    """Do `work_on` without requests, which to make here costs less than to hand over."""
    rack, line = _line_of(held)
    none, nowhere = np.empty(0, dtype=np.int64), np.empty((0, 1))
    requests = Requests(none, np.empty(0, dtype=np.bool_), none, nowhere, nowhere, none)
    return work_on(rack, line, None, Work(Elements(batch[0], batch[1]), requests, batch[2], batch[3], batch[4]))


@kernel
def _line_of(held: Any) -> tuple[Rack, Line]:
    ends = Ends(held[0], held[1], held[2], held[3], held[4], held[5], held[6], held[7], held[8])
    rack = Rack(held[11], held[12], held[13], held[14], held[15], held[16])
    return rack, Line(ends, held[9], held[10])
