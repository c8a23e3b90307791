"""Queries come and go while a batch is taken: they are registered, terminated, or matured."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Int
from tocsin.stages.ranges.ends import up_of
from tocsin.stages.ranges.history import is_inside
from tocsin.stages.ranges.line import Line, enrol_on_line, has_cuts, lack_on_line
from tocsin.stages.ranges.plane import Plane, catch_up, enrol_in_plane, look_in_plane
from tocsin.stages.ranges.requests import Elements, Requests
from tocsin.stages.ranges.shelves import ID, REGISTERED, THRESHOLD, Rack, find, has_slots, place_of, take_out

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
    """Read what a query lacks, if that is nothing; else give no more than it lacks."""
    lack = 0
    # Numba leaves out a branch only if what is compared with None is None.
    if line is not None:
        lack = lack_on_line(line, rack, slot)
    if plane is not None:
        catch_up(plane)
        lack = look_in_plane(plane, rack, slot)
    return lack


@kernel
def settle(rack: Rack, work: Work, slot: int, lack: int) -> None:
    """Report a query that matured since the last look, with the element at which it did; then forget it."""
    spans, queries, values, weights = rack.spans, rack.queries, work.elements.values, work.elements.weights
    at = work.done[TAKEN] - 1
    while True:
        if is_inside(values, at, spans, slot):
            if lack + weights[at] > 0:
                break
            lack += weights[at]
        at -= 1
    row = work.done[FOUND]
    work.matured[row, 0] = queries[slot, ID]
    work.matured[row, 1] = at
    work.matured[row, 2] = queries[slot, THRESHOLD] - lack
    work.matured[row, 3] = queries[slot, REGISTERED]
    work.done[FOUND] += 1
    take_out(queries, rack.counts, slot)


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
    return slot >= 0


@kernel
def search(rack: Rack, requests: Requests, slots: Int) -> None:
    """Find where the queries stand that requests name.

    All are read step by step: reads that do not wait for each other overlap, and each may be one of far memory.
    """
    table, queries, ids = rack.table, rack.queries, requests.id
    for request in range(len(ids)):
        slots[request] = table[place_of(table, ids[request])]
    known = np.empty(len(ids), dtype=np.bool_)
    for request in range(len(ids)):
        known[request] = queries[max(slots[request], 0), ID] == ids[request]
    for request in range(len(ids)):
        if slots[request] < 0 or not known[request]:
            slots[request] = table[find(table, queries, ids[request])]


@kernel
def leave(rack: Rack, line: Line | None, plane: Plane | None, work: Work, slot: int) -> None:
    """Terminate a query that is due: it may have matured since the last look, which is seen here."""
    lack = lack_of(rack, line, plane, slot)
    if lack <= 0:
        settle(rack, work, slot, lack)
    else:
        take_out(rack.queries, rack.counts, slot)
