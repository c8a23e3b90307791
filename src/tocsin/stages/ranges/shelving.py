"""Put queries on shelves anew, region by region, without gaps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.logic import Float, Int
from tocsin.stages.ranges.ends import with_room
from tocsin.stages.ranges.shelves import (
    AFTER,
    ALIVE,
    DUE,
    FILLED,
    FIRST,
    FIRST_DUE,
    HOME,
    ID,
    LAST,
    LEAST,
    LISTED,
    LOAD,
    MOST,
    NEVER,
    NEXT,
    NOT_LISTED,
    NUMBER,
    PATIENCE,
    REGIONS,
    ROOM,
    SHELF,
    SHELVES,
    SLOTS,
    START,
    TARGET,
    THRESHOLD,
    VAIN,
    WANTED,
    Rack,
    append_shelf,
    find,
    list_region,
)


class Rows(NamedTuple):
    """Rows of `queries`, in which the target is what lacks, and of `spans`."""

    queries: Int
    spans: Float


def no_rows(dims: int) -> Rows:
    """Make an empty set of queries; from two dimensions on they have one more place."""
    return Rows(np.zeros((0, 6 + (dims > 1)), dtype=np.int64), np.zeros((0, 2 * dims)))


def alive_slots(rack: Rack) -> Int:
    """Give the slots that hold a query."""
    return np.flatnonzero(rack.queries[: rack.counts[SLOTS], THRESHOLD])


def no_regions(count: int) -> Int:
    """Make regions without queries."""
    regions = np.zeros((count, 5), dtype=np.int64)
    regions[:, FIRST_DUE] = NEVER
    regions[:, [FIRST, LAST]] = -1
    regions[:, NEXT] = NOT_LISTED
    return regions


def put_all(rows: Rows, region: Int, regions: int, old_counts: Int, patience: int) -> Rack:
    """Put queries on the shelves of so many empty regions: each is due when its region took what it lacks."""
    n = len(region)
    counts = np.zeros_like(old_counts)
    counts[[NUMBER, MOST]] = old_counts[[NUMBER, MOST]]
    counts[[ALIVE, LISTED, REGIONS, PATIENCE]] = n, -1, regions, patience
    begin, order = order_of(region, regions)
    rack = _empty_rack(rows, no_regions(regions), counts, int(np.count_nonzero(np.diff(begin))))
    put_up(rack, rows, begin, order)
    return rack


def squeeze(rack: Rack) -> Rack:
    """Move the queries together, region by region; loads and what is due stay what they are."""
    counts = rack.counts.copy()
    counts[[SLOTS, SHELVES]] = 0
    dense = _empty_rack(Rows(rack.queries, rack.spans), rack.regions, counts, count_filled(rack))
    move(rack, dense)
    return dense


def grow_rack(rack: Rack) -> Rack:
    """Make the arrays that fill up with registrations larger by about a quarter."""
    slots, shelves = (len(array) // 4 + SHELF for array in (rack.queries, rack.shelves))
    regions, wanted = rack.regions, int(rack.counts[WANTED])
    if wanted:
        regions = np.concatenate([regions, no_regions(wanted)])
        rack.counts[WANTED] = 0
    grown = Rack(
        with_room(rack.queries, slots),
        with_room(rack.spans, slots),
        regions,
        with_room(rack.shelves, shelves),
        _table(len(rack.queries) + slots),
        rack.counts,
    )
    find_all(grown, alive_slots(grown))
    return grown


def _empty_rack(like: Rows, regions: Int, counts: Int, filled: int) -> Rack:
    """Make room for the alive queries and some more; `filled` is how many regions have queries."""
    alive = int(counts[ALIVE])
    slots, shelves = alive + alive // 32 + 16 * SHELF, alive // SHELF + filled + alive // 128 + 256
    queries = np.zeros((slots, like.queries.shape[1]), dtype=np.int64)
    spans = np.zeros((slots, like.spans.shape[1]))
    return Rack(queries, spans, regions, np.zeros((shelves, 5), dtype=np.int64), _table(slots), counts)


def _table(slots: int) -> NDArray[np.int32]:
    return np.full(1 << int(np.ceil(np.log2(1.3 * slots + 1024))), -1, dtype=np.int32)


@kernel
def order_of(region: Int, regions: int) -> tuple[Int, Int]:
    """Sort queries by region, by counting; give where each region begins, and the order."""
    begin = np.zeros(regions + 1, dtype=np.int64)
    for at in range(len(region)):
        begin[region[at] + 1] += 1
    for at in range(regions):
        begin[at + 1] += begin[at]
    place = begin.copy()
    order = np.empty(len(region), dtype=np.int64)
    for at in range(len(region)):
        order[place[region[at]]] = at
        place[region[at]] += 1
    return begin, order


@kernel
def find_all(rack: Rack, slots: Int) -> None:
    """Put the ids of some slots into the table."""
    for slot in slots:
        rack.table[find(rack.table, rack.queries, rack.queries[slot, ID])] = slot


@kernel
def push_back(rack: Rack, region: int, queries: Int, spans: Float, row: int) -> None:
    """Put a query on the last shelf of a region; shelves have room for just those that they have."""
    shelves, shelf = rack.shelves, int(rack.regions[region, LAST])
    if shelf < 0 or shelves[shelf, FILLED] == SHELF:
        shelf = append_shelf(rack, region, 0)
    slot = int(rack.counts[SLOTS])
    for column in range(queries.shape[1]):
        rack.queries[slot, column] = queries[row, column]
    for column in range(spans.shape[1]):
        rack.spans[slot, column] = spans[row, column]
    rack.table[find(rack.table, rack.queries, queries[row, ID])] = slot
    shelves[shelf, FILLED] += 1
    shelves[shelf, ROOM] += 1
    rack.counts[SLOTS] += 1
    due = rack.queries[slot, DUE]
    shelves[shelf, LEAST] = min(shelves[shelf, LEAST], due)
    rack.regions[region, FIRST_DUE] = min(rack.regions[region, FIRST_DUE], due)


@kernel
def put_up(rack: Rack, rows: Rows, begin: Int, order: Int) -> None:
    """Put queries on shelves, in an order in which those of a region stand together."""
    queries = rows.queries
    for region in range(len(begin) - 1):
        for at in range(begin[region], begin[region + 1]):
            row = order[at]
            queries[row, DUE] = queries[row, TARGET]
            queries[row, HOME] = queries[row, HOME] // VAIN * VAIN + region
            push_back(rack, region, queries, rows.spans, row)
        if rack.regions[region, FIRST_DUE] <= rack.regions[region, LOAD]:
            list_region(rack.regions, rack.counts, region)


@kernel
def count_filled(rack: Rack) -> int:
    """Count the regions that have shelves."""
    filled = 0
    for region in range(len(rack.regions)):
        if rack.regions[region, FIRST] >= 0:
            filled += 1
    return filled


@kernel
def move(rack: Rack, dense: Rack) -> None:
    """Move alive queries to another rack, which shares the regions."""
    regions = rack.regions
    for region in range(len(regions)):
        shelf = regions[region, FIRST]
        if shelf < 0:
            continue
        regions[region, FIRST], regions[region, LAST], regions[region, FIRST_DUE] = -1, -1, NEVER
        while shelf >= 0:
            start = rack.shelves[shelf, START]
            for slot in range(start, start + rack.shelves[shelf, FILLED]):
                if rack.queries[slot, THRESHOLD] > 0:
                    push_back(dense, region, rack.queries, rack.spans, slot)
            shelf = rack.shelves[shelf, AFTER]
