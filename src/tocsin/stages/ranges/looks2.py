"""Look at a query only when it can have matured: two dimensions and more.

Idea: as in one dimension (`looks`), but a region is four by four runs of units, of one level per axis, along the first
two axes; and the weight in a range is read from the elements themselves (`history`), since cells between all ends would
be too many. The elements of an era are kept. At its end each query reads what it got in the era, the queries are put
on shelves anew, with units that fit these elements, and the elements are forgotten.
Guarantee: exact. In two dimensions, with even weights, a look leaves at most 6/7 of what lacked.
Cost: an era has about half as many elements as there are queries, so that its end costs O(sqrt(m)) per element; a look
costs O(sqrt(m) log m). From three dimensions on a read walks over the elements: O(m) per look.
Source: as `looks`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Float, Int
from tocsin.stages.ranges.history import History, append, is_inside, no_history, weight_since
from tocsin.stages.ranges.requests import Elements, Matured, Requests, in_order
from tocsin.stages.ranges.shelves import (
    AFTER,
    ALIVE,
    DUE,
    FILLED,
    FIRST,
    FIRST_DUE,
    ID,
    LEAST,
    LISTED,
    LOAD,
    LOOKS,
    NEVER,
    NEXT,
    NOT_LISTED,
    NUMBER,
    REGION,
    REGISTERED,
    SHELF,
    SLOTS,
    START,
    TARGET,
    THRESHOLD,
    Rack,
    find,
    has_slots,
    list_region,
    put,
    report,
    take_out,
)
from tocsin.stages.ranges.shelving import alive_slots, grow_rack, no_regions, put_all

CHUNK = 1024
RUNS = 4
# One more place in a row of `queries`: the element of the era since which the target is what lacks.
SINCE = 6
# Places in `levels`: where the regions begin, how many there are along the second axis, whether there are queries.
BASE, WIDTH, IN_USE = range(3)
DONE, NO_ROOM, FULL, STALE = range(4)


class Plane(NamedTuple):
    """Elements of the era, borders between units along two axes, levels by axis, and queries."""

    history: History
    borders: Float
    levels: Int
    rack: Rack


class Work(NamedTuple):
    """A batch, the requests in it, rows of what matured, and how far all that is, as in `looks`."""

    elements: Elements
    requests: Requests
    matured: Int
    done: Int


def lay_out(rows: Int, spans: Float, points: Float, number: int, dims: int) -> Plane:
    """Put up queries, whose target is what they lack, by where some elements fell."""
    n = len(rows)
    units_log2 = int(np.clip(np.ceil(np.log2(n + 1) / 2) - 1, 2, 8))
    sample = points if len(points) else np.clip(np.concatenate([spans[:, :dims], spans[:, dims:]]), -1e300, 1e300)
    share = np.linspace(0, 1, (1 << units_log2) + 1)[1:-1]
    sample = sample if len(sample) else np.zeros((1, dims))
    borders = np.ascontiguousarray(np.quantile(sample[:, :2], share, axis=0, method="lower").T)
    sizes = [(1 << (units_log2 - level)) + 2 * (RUNS - 1) for level in range(units_log2 + 1)]
    areas = np.outer(sizes, sizes)
    before = (np.cumsum(areas) - areas.ravel()).reshape(areas.shape)
    levels = np.stack([before, np.broadcast_to(sizes, areas.shape), np.zeros_like(areas)], axis=2)
    region = regions_of(borders, levels, spans, dims)
    rows[:, DUE], rows[:, SINCE] = rows[:, TARGET], 0
    rack = put_all(rows, spans, region, no_regions(int(areas.sum())), number)
    size = 4096
    while dims == 2 and size < n // 2 and size < 1 << 18:
        size *= 4
    return Plane(no_history(dims, size), borders, levels, rack)


def lay_out_again(plane: Plane, rows: Int, spans: Float) -> Plane:
    """Begin a new era with the alive queries and some more."""
    rack, slots = plane.rack, alive_slots(plane.rack)
    old = rack.queries[slots]
    old[:, TARGET] = lacks(plane, slots)
    points = plane.history.points[: plane.history.used[0]]
    dims = points.shape[1]
    rows, spans = np.concatenate([old, rows]), np.concatenate([rack.spans[slots], spans])
    return lay_out(rows, spans, points, int(rack.counts[NUMBER]), dims)


@kernel
def unit_of(borders: Float, value: float) -> int:
    """Give the unit of a value; one that many borders share is in the middle of them, far from its neighbours."""
    return int(np.searchsorted(borders, value) + np.searchsorted(borders, value, side="right")) // 2


@kernel
def region_of(borders: Float, levels: Int, span: Float, dims: int) -> int:
    """Give the smallest region that covers a range."""
    level_x, level_y, corner_x, corner_y = 0, 0, 0, 0
    for axis in range(2):
        first, last = unit_of(borders[axis], span[axis]), unit_of(borders[axis], span[dims + axis])
        level = 0
        while (last >> level) - (first >> level) >= RUNS:
            level += 1
        level_x, level_y = level_y, level
        corner_x, corner_y = corner_y, (first >> level) + RUNS - 1
    levels[level_x, level_y, IN_USE] = 1
    return int(levels[level_x, level_y, BASE] + corner_x * levels[level_x, level_y, WIDTH] + corner_y)


@kernel
def regions_of(borders: Float, levels: Int, spans: Float, dims: int) -> Int:
    """Give the smallest region that covers each range."""
    region = np.empty(len(spans), dtype=np.int64)
    for at in range(len(spans)):
        region[at] = region_of(borders, levels, spans[at], dims)
    return region


@kernel
def lack_of(plane: Plane, slot: int) -> int:
    """Read what a query lacks."""
    queries = plane.rack.queries
    return int(queries[slot, TARGET] - weight_since(plane.history, queries[slot, SINCE], plane.rack.spans[slot]))


@kernel
def lacks(plane: Plane, slots: Int) -> Int:
    """Read what some queries lack."""
    lack = np.empty(len(slots), dtype=np.int64)
    for at in range(len(slots)):
        lack[at] = lack_of(plane, slots[at])
    return lack


@kernel
def totals(plane: Plane, ids: Int) -> Int:
    """Read the totals of some queries, -1 for those that are not alive."""
    rack = plane.rack
    total = np.full(len(ids), -1)
    for at in range(len(ids)):
        slot = rack.table[find(rack.table, rack.queries, ids[at])]
        if slot >= 0:
            total[at] = rack.queries[slot, THRESHOLD] - lack_of(plane, slot)
    return total


@kernel
def add_elements(plane: Plane, elements: Elements, start: int, stop: int) -> None:
    """Keep elements, and add them to their regions; list the regions that reached something due."""
    levels, regions = plane.levels, plane.rack.regions
    in_use = np.argwhere(levels[:, :, IN_USE])
    for at in range(start, stop):
        point, weight = elements.values[at], elements.weights[at]
        append(plane.history, point, weight)
        x, y = unit_of(plane.borders[0], point[0]), unit_of(plane.borders[1], point[1])
        for pair in range(len(in_use)):
            level_x, level_y = in_use[pair]
            width = levels[level_x, level_y, WIDTH]
            corner = levels[level_x, level_y, BASE] + (x >> level_x) * width + (y >> level_y)
            for row in range(RUNS):
                for region in range(corner + row * width, corner + row * width + RUNS):
                    regions[region, LOAD] += weight
                    if regions[region, LOAD] >= regions[region, FIRST_DUE]:
                        list_region(regions, plane.rack.counts, region)


@kernel
def settle(plane: Plane, work: Work, slot: int, lack: int) -> None:
    """Report a query that matured since the last look, with the element at which it did."""
    span = plane.rack.spans[slot]
    at = work.done[0] - 1
    while True:
        if is_inside(work.elements.values[at], span):
            if lack + work.elements.weights[at] > 0:
                break
            lack += work.elements.weights[at]
        at -= 1
    report(plane.rack, slot, at, plane.rack.queries[slot, THRESHOLD] - lack, work.matured, work.done)


@kernel
def leave(plane: Plane, work: Work, key: int) -> None:
    """Terminate a query if it is alive; if it is due it may have matured since the last look, which is seen here."""
    rack = plane.rack
    slot = rack.table[find(rack.table, rack.queries, key)]
    if slot < 0:
        return
    if rack.queries[slot, DUE] <= rack.regions[rack.queries[slot, REGION], LOAD]:
        lack = lack_of(plane, slot)
        if lack <= 0:
            settle(plane, work, slot, lack)
            return
    take_out(rack, slot)


@kernel
def obey(plane: Plane, work: Work) -> int:
    """Let the requests take effect that come before the next element."""
    requests, done = work.requests, work.done
    while done[1] < len(requests.at) and requests.at[done[1]] <= done[0]:
        request = done[1]
        if requests.is_registration[request]:
            if not has_slots(plane.rack):
                return NO_ROOM
            span = np.concatenate((requests.low[request], requests.high[request]))
            region = region_of(plane.borders, plane.levels, span, len(span) // 2)
            threshold = requests.threshold[request]
            slot = put(plane.rack, region, requests.id[request], threshold, threshold)
            plane.rack.spans[slot] = span
            plane.rack.queries[slot, SINCE] = plane.history.used[0]
        else:
            if done[2] == len(work.matured):
                return FULL
            leave(plane, work, requests.id[request])
        done[1] += 1
    return DONE


@kernel
def look_at_shelf(plane: Plane, work: Work, shelf: int, load: int) -> None:
    """Look at the queries of a shelf that are due."""
    queries, shelves = plane.rack.queries, plane.rack.shelves
    start, least = shelves[shelf, START], NEVER
    for slot in range(start, start + shelves[shelf, FILLED]):
        if queries[slot, DUE] <= load:
            lack = lack_of(plane, slot)
            if lack <= 0:
                settle(plane, work, slot, lack)
            else:
                plane.rack.counts[LOOKS] += 1
                queries[slot, TARGET] = lack
                queries[slot, SINCE] = plane.history.used[0]
                queries[slot, DUE] = load + lack
        least = min(least, queries[slot, DUE])
    shelves[shelf, LEAST] = least


@kernel
def look(plane: Plane, work: Work) -> int:
    """Look through the regions that are listed."""
    regions, shelves, counts = plane.rack.regions, plane.rack.shelves, plane.rack.counts
    while counts[LISTED] >= 0:
        region = counts[LISTED]
        shelf, least = regions[region, FIRST], NEVER
        while shelf >= 0:
            if shelves[shelf, LEAST] <= regions[region, LOAD]:
                if work.done[2] + SHELF > len(work.matured):
                    return FULL
                look_at_shelf(plane, work, shelf, regions[region, LOAD])
            least = min(least, shelves[shelf, LEAST])
            shelf = shelves[shelf, AFTER]
        regions[region, FIRST_DUE] = least
        counts[LISTED] = regions[region, NEXT]
        regions[region, NEXT] = NOT_LISTED
    return DONE


@kernel
def is_stale(plane: Plane) -> bool:
    """Tell whether to begin a new era before its time: empty slots, or units that do not fit the elements."""
    counts = plane.rack.counts
    in_vain = plane.history.used[0] >= CHUNK and counts[LOOKS] > 4 * counts[ALIVE] + 16 * CHUNK
    return bool(in_vain or counts[SLOTS] > 2 * counts[ALIVE] + 4 * CHUNK)


@kernel
def work_on(plane: Plane, work: Work) -> int:
    """Take elements and requests in their order, from where `done` says; tell why it stopped."""
    elements, requests, done, history = work.elements, work.requests, work.done, plane.history
    n = len(elements.weights)
    while True:
        reason = obey(plane, work)
        if reason != DONE:
            return reason
        left = len(history.weights) - history.used[0]
        if done[0] == n or done[0] - done[3] == CHUNK or left == 0:
            reason = look(plane, work)
            if reason != DONE:
                return reason
            done[3] = done[0]
            if left == 0 or is_stale(plane):
                return STALE
            if done[0] == n:
                return DONE
        stop = min(n, done[3] + CHUNK, done[0] + left)
        if done[1] < len(requests.at):
            stop = min(stop, requests.at[done[1]])
        add_elements(plane, elements, done[0], stop)
        done[0] = stop


class Looks2:
    """Queries of two dimensions and more."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self.plane = lay_out(np.zeros((0, 7), dtype=np.int64), np.zeros((0, 2 * dims)), np.zeros((0, dims)), 0, dims)
        self._matured = np.empty((4096, 4), dtype=np.int64)

    def __len__(self) -> int:
        """Count alive queries."""
        return int(self.plane.rack.counts[ALIVE])

    def totals(self, ids: Int) -> Int:
        """Give the total of each id, -1 where it is not alive."""
        return totals(self.plane, ids)

    def alive(self) -> tuple[Int, Float, Float, Int, Int]:
        """Give id, low, high, threshold and total of all alive queries in the order of registration."""
        queries, slots = self.plane.rack.queries, alive_slots(self.plane.rack)
        slots = slots[np.argsort(queries[slots, REGISTERED])]
        spans, threshold = self.plane.rack.spans[slots], queries[slots, THRESHOLD]
        total = threshold - lacks(self.plane, slots)
        return queries[slots, ID], spans[:, : self.dims], spans[:, self.dims :], threshold, total

    def add(self, ids: Int, low: Float, high: Float, threshold: Int, total: Int) -> None:
        """Register many queries at once, that have some total already."""
        number = self.plane.rack.counts[NUMBER] + np.arange(len(ids))
        rows = np.zeros((len(ids), 7), dtype=np.int64)
        rows[:, ID], rows[:, THRESHOLD], rows[:, TARGET], rows[:, REGISTERED] = (
            ids,
            threshold,
            threshold - total,
            number,
        )
        self.plane.rack.counts[NUMBER] += len(ids)
        self.plane = lay_out_again(self.plane, rows, np.column_stack([low, high]))

    def take(self, elements: Elements, requests: Requests) -> Matured:
        """Take a batch and the requests in it; give what matured."""
        work = Work(elements, requests, self._matured, np.zeros(4, dtype=np.int64))
        found: list[Int] = []
        reason = FULL
        while reason != DONE:
            reason = work_on(self.plane, work)
            if work.done[2]:
                found.append(self._matured[: work.done[2]].copy())
                work.done[2] = 0
            if reason == STALE:
                none = np.zeros((0, 7), dtype=np.int64), np.zeros((0, 2 * self.dims))
                self.plane = lay_out_again(self.plane, *none)
            elif reason == NO_ROOM:
                self.plane = self.plane._replace(rack=grow_rack(self.plane.rack))
        return in_order(found)
