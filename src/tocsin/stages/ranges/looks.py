"""Look at a query only when it can have matured: one dimension.

Idea: the line is cut into units of about equal weight. A region is four neighbouring runs of 2^l units; it knows the
weight that fell into it. A query belongs to the smallest region that covers its range. It still lacks some weight, so
it need not be looked at before its region has taken as much: that is when it is *due*. A look reads the exact weight of
its range (`ends`) and sets when it is due again. Queries of a region stand on shelves of at most 64, and a shelf knows
when the first of its queries is due. Elements of a batch are added one by one, requests take effect between them, and
the regions that reached something due are looked through once, at the end; the element at which a query matured is
searched backwards from there.
Guarantee: exact. With even weights a look leaves at most 5/8 of what lacked.
Cost: per element O(log m) and the levels in use; per look O(log m + 64 + m / 4096), and one read per shelf of the
region; per maturing query one walk over the batch, which is therefore cut at 1,024 elements.
Source: Qiao, Gan, Tao, "Range Thresholding on Streams", sections 3.2 and 4, has the idea that a query may rest while
the weight near it cannot suffice; there a query rests on O(log m) nodes with exact shares, here on one region.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Float, Int
from tocsin.stages.ranges.ends import (
    add_cut,
    add_weight,
    cell_before,
    cell_of,
    next_number,
    position_of,
    up_of,
    weight_of_cells,
)
from tocsin.stages.ranges.layout import (
    BASE,
    ENOUGH,
    IN_USE,
    LOW,
    RUNS,
    UP,
    Index,
    Queries,
    grow,
    lacks,
    lay_out_again,
    no_index,
    no_queries,
    reading,
    region_of,
)
from tocsin.stages.ranges.requests import Elements, Matured, Requests, in_order
from tocsin.stages.ranges.shelves import (
    AFTER,
    ALIVE,
    DUE,
    ELEMENTS,
    FILLED,
    FIRST,
    FIRST_DUE,
    ID,
    LEAST,
    LISTED,
    LOAD,
    LOOKS,
    MEASURED,
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
    WEIGHT,
    find,
    has_slots,
    list_region,
    put,
    report,
    take_out,
)
from tocsin.stages.ranges.shelving import alive_slots

# Elements that are taken together: what matures among them is searched for by walking over them.
CHUNK = 1024
# Why the kernel stopped.
DONE, NO_ROOM, FULL, STALE = range(4)
# Sums are begun anew beyond this.
LARGEST_SUM = 1 << 60


class Work(NamedTuple):
    """A batch, the requests in it, rows of what matured (id, index, total, number), and how far all that is.

    `done`: elements taken, requests taken, rows written, elements up to which everything due was looked at.
    """

    elements: Elements
    requests: Requests
    matured: Int
    done: Int


@kernel
def add_elements(index: Index, elements: Elements, start: int, stop: int) -> None:
    """Count elements in their cells and regions; list the regions that reached something due."""
    levels, regions = index.levels, index.rack.regions
    for at in range(start, stop):
        weight = elements.weights[at]
        unit = index.ends.unit[add_weight(index.ends, elements.values[at, 0], weight)]
        index.rack.counts[WEIGHT] += weight
        for level in range(len(levels)):
            if levels[level, IN_USE]:
                first = levels[level, BASE] + (unit >> level)
                for region in range(first, first + RUNS):
                    regions[region, LOAD] += weight
                    if regions[region, LOAD] >= regions[region, FIRST_DUE]:
                        list_region(regions, index.rack.counts, region)
    index.rack.counts[ELEMENTS] += stop - start


@kernel
def settle(index: Index, work: Work, slot: int, now: int, stop: int) -> None:
    """Report a query that matured before element `stop`, with the element at which it did."""
    low, up, target = index.rack.spans[slot, LOW], index.rack.spans[slot, UP], index.rack.queries[slot, TARGET]
    at = stop - 1
    while True:
        if low <= work.elements.values[at, 0] < up:
            if now - work.elements.weights[at] < target:
                break
            now -= work.elements.weights[at]
        at -= 1
    total = index.rack.queries[slot, THRESHOLD] + now - target
    report(index.rack, slot, at, total, work.matured, work.done)


@kernel
def leave(index: Index, work: Work, key: int, stop: int) -> None:
    """Terminate a query if it is alive; if it is due it may have matured since the last look, which is seen here."""
    slot = index.rack.table[find(index.rack.table, index.rack.queries, key)]
    if slot < 0:
        return
    if index.rack.queries[slot, DUE] <= index.rack.regions[index.rack.queries[slot, REGION], LOAD]:
        now = reading(index, slot)
        if now >= index.rack.queries[slot, TARGET]:
            settle(index, work, slot, now, stop)
            return
    take_out(index.rack, slot)


@kernel
def look_at_shelf(index: Index, work: Work, shelf: int, load: int) -> None:
    """Look at the queries of a shelf that are due."""
    queries = index.rack.queries
    start = index.rack.shelves[shelf, START]
    least = NEVER
    for slot in range(start, start + index.rack.shelves[shelf, FILLED]):
        if queries[slot, DUE] <= load:
            now = reading(index, slot)
            if now >= queries[slot, TARGET]:
                settle(index, work, slot, now, work.done[0])
            else:
                index.rack.counts[LOOKS] += 1
                queries[slot, DUE] = load + queries[slot, TARGET] - now
        least = min(least, queries[slot, DUE])
    index.rack.shelves[shelf, LEAST] = least


@kernel
def look(index: Index, work: Work) -> int:
    """Look through the regions that are listed."""
    regions, counts = index.rack.regions, index.rack.counts
    while counts[LISTED] >= 0:
        region = counts[LISTED]
        shelf, least = regions[region, FIRST], NEVER
        while shelf >= 0:
            if index.rack.shelves[shelf, LEAST] <= regions[region, LOAD]:
                if work.done[2] + SHELF > len(work.matured):
                    return FULL
                look_at_shelf(index, work, shelf, regions[region, LOAD])
            least = min(least, index.rack.shelves[shelf, LEAST])
            shelf = index.rack.shelves[shelf, AFTER]
        regions[region, FIRST_DUE] = least
        counts[LISTED] = regions[region, NEXT]
        regions[region, NEXT] = NOT_LISTED
    return DONE


@kernel
def has_room(index: Index) -> bool:
    """Tell whether one more query surely fits."""
    return has_slots(index.rack) and index.ends.used[0] + 2 <= len(index.ends.first)


@kernel
def enrol(index: Index, key: int, low: float, up: float, threshold: int) -> None:
    """Register a query here and now."""
    ends = index.ends
    add_cut(ends, low)
    there = add_cut(ends, up)
    here = position_of(ends, low)
    start, stop = cell_of(ends, here, low), cell_of(ends, there, up)
    region = region_of(index.levels, ends.unit[start], ends.unit[cell_before(ends, there, stop)])
    slot = put(index.rack, region, key, threshold, threshold + weight_of_cells(ends, here, start, there, stop))
    index.rack.spans[slot, LOW] = low
    index.rack.spans[slot, UP] = up


@kernel
def obey(index: Index, work: Work) -> int:
    """Let the requests take effect that come before the next element."""
    requests, done = work.requests, work.done
    while done[1] < len(requests.at) and requests.at[done[1]] <= done[0]:
        request = done[1]
        if requests.is_registration[request]:
            if not has_room(index):
                return NO_ROOM
            low, up = requests.low[request, 0], up_of(requests.high[request, 0])
            enrol(index, requests.id[request], low, up, requests.threshold[request])
        else:
            if done[2] == len(work.matured):
                return FULL
            leave(index, work, requests.id[request], done[0])
        done[1] += 1
    return DONE


@kernel
def is_stale(index: Index) -> bool:
    """Tell whether to lay out anew: empty slots, units that do not fit the elements, or sums that grew large."""
    counts = index.rack.counts
    if counts[SLOTS] > 2 * counts[ALIVE] + 4096 or counts[WEIGHT] > LARGEST_SUM:
        return True
    patience = 16 if counts[MEASURED] else 2
    return bool(counts[ELEMENTS] >= ENOUGH and counts[LOOKS] > patience * counts[ALIVE] + 16 * ENOUGH)


@kernel
def work_on(index: Index, work: Work) -> int:
    """Take elements and requests in their order, from where `done` says; tell why it stopped."""
    elements, requests, done = work.elements, work.requests, work.done
    n = len(elements.weights)
    while True:
        reason = obey(index, work)
        if reason != DONE:
            return reason
        if done[0] == n or done[0] - done[3] == CHUNK:
            reason = look(index, work)
            if reason != DONE:
                return reason
            done[3] = done[0]
            if is_stale(index):
                return STALE
            if done[0] == n:
                return DONE
        stop = min(n, done[3] + CHUNK)
        if done[1] < len(requests.at):
            stop = min(stop, requests.at[done[1]])
        add_elements(index, elements, done[0], stop)
        done[0] = stop


class Looks:
    """Queries of one dimension."""

    def __init__(self) -> None:
        self.index = no_index()
        self._matured = np.empty((4096, 4), dtype=np.int64)

    def __len__(self) -> int:
        """Count alive queries."""
        return int(self.index.rack.counts[ALIVE])

    def totals(self, ids: Int) -> Int:
        """Give the total of each id, -1 where it is not alive."""
        return totals(self.index, ids)

    def alive(self) -> tuple[Int, Float, Float, Int, Int]:
        """Give id, low, high, threshold and total of all alive queries in the order of registration."""
        queries, slots = self.index.rack.queries, alive_slots(self.index.rack)
        slots = slots[np.argsort(queries[slots, REGISTERED])]
        low, up = self.index.rack.spans[slots].T
        threshold = queries[slots, THRESHOLD]
        total = threshold - lacks(self.index, slots)
        return queries[slots, ID], low[:, None], next_number(up, -np.inf)[:, None], threshold, total

    def add(self, ids: Int, low: Float, high: Float, threshold: Int, total: Int) -> None:
        """Register many queries at once, that have some total already."""
        number = self.index.rack.counts[NUMBER] + np.arange(len(ids))
        nothing = np.zeros_like(number)
        rows = np.column_stack([ids, threshold, threshold - total, number, nothing, nothing])
        self.index.rack.counts[NUMBER] += len(ids)
        self.index = lay_out_again(self.index, Queries(rows, np.column_stack([low, next_number(high, np.inf)])))

    def take(self, elements: Elements, requests: Requests) -> Matured:
        """Take a batch and the requests in it; give what matured."""
        work = Work(elements, requests, self._matured, np.zeros(4, dtype=np.int64))
        found: list[Int] = []
        reason = FULL
        while reason != DONE:
            reason = work_on(self.index, work)
            if work.done[2]:
                found.append(self._matured[: work.done[2]].copy())
                work.done[2] = 0
            if reason == STALE or (reason == NO_ROOM and is_stale(self.index)):
                self.index = lay_out_again(self.index, no_queries())
            elif reason == NO_ROOM:
                self.index = grow(self.index)
        return in_order(found)


@kernel
def totals(index: Index, ids: Int) -> Int:
    """Read the totals of some queries, -1 for those that are not alive."""
    total = np.full(len(ids), -1)
    for at in range(len(ids)):
        slot = index.rack.table[find(index.rack.table, index.rack.queries, ids[at])]
        if slot >= 0:
            total[at] = index.rack.queries[slot, THRESHOLD] + reading(index, slot) - index.rack.queries[slot, TARGET]
    return total
