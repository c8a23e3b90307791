"""Put queries on shelves anew, region by region, without gaps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel, lean
from tocsin.runtime.contract import Float, Int
from tocsin.stages.ranges.cuts import with_room
from tocsin.stages.ranges.shelves import (
    AFTER,
    ALIVE,
    COVER,
    DUE,
    FILLED,
    FIRST,
    FIRST_DUE,
    GONE,
    HOME,
    ID,
    LAST,
    LEAST,
    LISTED,
    MOST,
    NEVER,
    NEXT,
    NOT_LISTED,
    NUMBER,
    PATIENCE,
    REGIONS,
    SHELF,
    SHELVES,
    SLACK,
    SLOTS,
    START,
    TABLED,
    TARGET,
    THRESHOLD,
    VAIN,
    WANTED,
    Rack,
    append_shelf,
    note_load,
    place_of,
)


class Rows(NamedTuple):
    """Rows of `queries`, in which the target is what lacks, and of `spans`."""

    queries: Int
    spans: Float


def no_rows(dims: int) -> Rows:
    """Make an empty set of queries."""
    return Rows(np.zeros((0, COVER + (dims > 1)), dtype=np.int64), np.zeros((0, 2 * dims)))


def alive_slots(rack: Rack) -> Int:
    """Give the slots that hold a query."""
    return np.flatnonzero(rack.queries[: rack.counts[SLOTS], THRESHOLD])


def joined(rack: Rack, slots: Int, lack: Int, more: Rows) -> Rows:
    """Give the queries of some slots, which lack so much, and some more."""
    if not len(slots):
        return more
    queries, spans = rack.queries[slots], rack.spans[slots]
    queries[:, TARGET] = lack
    if not len(more.queries):
        return Rows(queries, spans)
    return Rows(np.concatenate([queries, more.queries]), np.concatenate([spans, more.spans]))


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
    let_be_due(rows.queries, region)
    put_up(rack, rows, begin, order)
    rack.counts[TABLED] = n
    fill_table(rack.table, rack.queries, n)
    return rack


def squeeze(rack: Rack) -> Rack:
    """Move the queries together, region by region; loads and what is due stay what they are."""
    begin, order = alive_in_order(rack)
    slots, counts = len(rack.queries), rack.counts.copy()
    counts[[SLOTS, SHELVES]] = 0
    if rises(order):
        dense = _shortened(rack, order)._replace(counts=counts)
        fill_shelves(dense, begin)
    else:
        rows = Rows(rack.queries, rack.spans)
        dense = _empty_rack(rows, rack.regions, counts, count_filled(rack.regions))
        put_up(dense, rows, begin, order)
    # A table that is not too large stays, and keeps where something stood; else it is made anew.
    if len(rack.table) <= _places(len(dense.queries)) and 5 * counts[TABLED] < 3 * len(rack.table):
        follow(rack.table, order, slots)
        return dense._replace(table=rack.table)
    counts[TABLED] = counts[ALIVE]
    dense = dense._replace(table=_table(len(dense.queries)))
    fill_table(dense.table, dense.queries, int(counts[SLOTS]))
    return dense


def _shortened(rack: Rack, order: Int) -> Rack:
    """Move queries to the first slots, in their order, and give the memory behind them back.

    New memory would cost more than the move: the machine clears each page of it.
    """
    move_up(rack.queries, rack.spans, order)
    slots, shelves = _room(len(order), count_filled(rack.regions))
    for array, length in ((rack.queries, slots), (rack.spans, slots), (rack.shelves, shelves)):
        if length < len(array):
            array.resize((length, array.shape[1]), refcheck=False)
    return rack


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
    grown.counts[TABLED] = grown.counts[ALIVE]
    fill_table(grown.table, grown.queries, int(grown.counts[SLOTS]))
    return grown


def _empty_rack(like: Rows, regions: Int, counts: Int, filled: int) -> Rack:
    """Make room for the alive queries and some more; `filled` is how many regions have queries."""
    slots, shelves = _room(int(counts[ALIVE]), filled)
    queries = np.zeros((slots, like.queries.shape[1]), dtype=np.int64)
    spans = np.zeros((slots, like.spans.shape[1]))
    return Rack(queries, spans, regions, np.zeros((shelves, 5), dtype=np.int64), _table(slots), counts)


def _room(alive: int, filled: int) -> tuple[int, int]:
    """Give how many slots and shelves there shall be for so many queries in so many regions, and some more."""
    # A key with few queries, of which there may be thousands, should cost little by itself.
    more = min(alive, 14 * SHELF) + 2 * SHELF
    return alive + alive // 32 + more, alive // SHELF + filled + alive // 128 + more // 4


def _places(slots: int) -> int:
    """Give the size of the table for so many slots."""
    return 1 << int(np.ceil(np.log2(1.3 * slots + SHELF)))


def _table(slots: int) -> NDArray[np.int32]:
    return np.full(_places(slots), -1, dtype=np.int32)


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
def fill_table(table: NDArray[np.int32], queries: Int, slots: int) -> None:
    """Put the alive queries into an empty table; no id is there twice, so that none need be compared."""
    mask = len(table) - 1
    for slot in range(slots):
        if queries[slot, THRESHOLD] > 0:
            place = place_of(table, queries[slot, ID])
            while table[place] >= 0:
                place = (place + 1) & mask
            table[place] = slot


@kernel
def let_be_due(queries: Int, region: Int) -> None:
    """Note the region of each query: it is due when that took what the query lacks."""
    for row in range(len(queries)):
        queries[row, DUE] = queries[row, TARGET]
        queries[row, HOME] = queries[row, HOME] // VAIN * VAIN + region[row]


def put_up(rack: Rack, rows: Rows, begin: Int, order: Int) -> None:
    """Put queries on shelves, in an order in which those of a region stand together."""
    n = len(order)
    np.take(rows.queries, order, axis=0, out=rack.queries[:n], mode="clip")
    np.take(rows.spans, order, axis=0, out=rack.spans[:n], mode="clip")
    fill_shelves(rack, begin)


@kernel
def fill_shelves(rack: Rack, begin: Int) -> None:
    """Make shelves of the queries in the first slots, which stand region by region; they have just the room needed."""
    queries, regions, shelves, counts = rack.queries, rack.regions, rack.shelves, rack.counts
    counts[SLACK] = NEVER
    for region in range(len(begin) - 1):
        regions[region, FIRST], regions[region, LAST], regions[region, FIRST_DUE] = -1, -1, NEVER
        for start in range(begin[region], begin[region + 1], SHELF):
            stop = min(start + SHELF, begin[region + 1])
            shelf, least = append_shelf(shelves, regions, counts, region, stop - start), NEVER
            for slot in range(start, stop):
                least = min(least, queries[slot, DUE])
            shelves[shelf, FILLED], shelves[shelf, LEAST] = stop - start, least
            regions[region, FIRST_DUE] = min(regions[region, FIRST_DUE], least)
        note_load(regions, counts, region)


@kernel
def count_filled(regions: Int) -> int:
    """Count the regions that have shelves."""
    filled = 0
    for region in range(len(regions)):
        if regions[region, FIRST] >= 0:
            filled += 1
    return filled


@kernel
def alive_in_order(rack: Rack) -> tuple[Int, Int]:
    """Give the slots of the alive queries, region by region, and where each region begins among them."""
    queries, regions, shelves, n = rack.queries, rack.regions, rack.shelves, 0
    begin, order = np.zeros(len(regions) + 1, dtype=np.int64), np.empty(rack.counts[ALIVE], dtype=np.int64)
    for region in range(len(regions)):
        shelf = regions[region, FIRST]
        while shelf >= 0:
            start = shelves[shelf, START]
            for slot in range(start, start + shelves[shelf, FILLED]):
                if queries[slot, THRESHOLD] > 0:
                    order[n] = slot
                    n += 1
            shelf = shelves[shelf, AFTER]
        begin[region + 1] = n
    return begin, order


@lean
def rises(order: Int) -> bool:
    """Tell whether slots are in order."""
    for at in range(1, len(order)):
        if order[at - 1] > order[at]:
            return False
    return True


@lean
def move_up(queries: Int, spans: Float, order: Int) -> None:
    """Move queries to the first slots, in their order; the other slots become empty."""
    for to in range(len(order)):
        slot = order[to]
        for column in range(queries.shape[1]):
            queries[to, column] = queries[slot, column]
        for column in range(spans.shape[1]):
            spans[to, column] = spans[slot, column]
    for slot in range(len(order), len(queries)):
        queries[slot, THRESHOLD] = 0


@kernel
def follow(table: NDArray[np.int32], order: Int, slots: int) -> None:
    """Let the table say where queries stand that moved to the first slots, in some order."""
    moved_to = np.full(slots, GONE, dtype=np.int32)
    for slot in range(len(order)):
        moved_to[order[slot]] = slot
    for place in range(len(table)):
        if table[place] >= 0:
            table[place] = moved_to[table[place]]
