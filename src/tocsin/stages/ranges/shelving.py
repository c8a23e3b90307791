"""Put queries on shelves anew, region by region, without gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.logic import Float, Int
from tocsin.stages.ranges.shelves import (
    AFTER,
    ALIVE,
    DUE,
    FILLED,
    FIRST,
    FIRST_DUE,
    ID,
    LAST,
    LEAST,
    LISTED,
    LOAD,
    NEVER,
    NEXT,
    NOT_LISTED,
    NUMBER,
    REGION,
    ROOM,
    SHELF,
    SHELVES,
    SLOTS,
    START,
    THRESHOLD,
    Rack,
    find,
    list_region,
)


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


def put_all(rows: Int, spans: Float, region: Int, regions: Int, number: int) -> Rack:
    """Put queries on shelves; `due` of their rows is what they lack, for the regions are empty."""
    n = len(rows)
    order = order_of(region, len(regions))
    shelves, count = _shelves(region[order])
    table = np.full(_table_size(n), -1, dtype=np.int32)
    counts = np.zeros(9, dtype=np.int64)
    counts[[ALIVE, SLOTS, SHELVES, LISTED, NUMBER]] = n, n, count, -1, number
    room = n // 16 + 16 * SHELF
    rack = Rack(with_room(rows[order], room), with_room(spans[order], room), regions, shelves, table, counts)
    rack.queries[:n, REGION] = region[order]
    put_up(rack)
    return rack


def grow_rack(rack: Rack) -> Rack:
    """Make the arrays that fill up with registrations larger by about a quarter."""
    slots, shelves = (len(array) // 4 + SHELF for array in (rack.queries, rack.shelves))
    grown = rack._replace(
        queries=with_room(rack.queries, slots),
        spans=with_room(rack.spans, slots),
        shelves=with_room(rack.shelves, shelves),
        table=np.full(_table_size(int(rack.counts[ALIVE]) + slots), -1, dtype=np.int32),
    )
    find_all(grown, alive_slots(grown))
    return grown


def with_room(array: NDArray[Any], room: int) -> NDArray[Any]:
    """Copy an array with room behind."""
    wide = np.zeros((len(array) + room, *array.shape[1:]), dtype=array.dtype)
    wide[: len(array)] = array
    return wide


def _table_size(n: int) -> int:
    return 1 << int(np.ceil(np.log2(1.4 * n + 2048)))


def _shelves(region: Int) -> tuple[Int, int]:
    """Cut queries that are sorted by region into shelves."""
    n = len(region)
    begin = np.flatnonzero(np.concatenate([[True], region[1:] != region[:-1]]))[: n and None]
    length = np.diff(np.append(begin, n))
    pieces = -(-length // SHELF)
    count = int(pieces.sum())
    piece = np.arange(count) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    shelves = np.zeros((count + n // 128 + 256, 5), dtype=np.int64)
    shelves[:count, START] = np.repeat(begin, pieces) + SHELF * piece
    shelves[:count, FILLED] = np.minimum(np.repeat(length, pieces) - SHELF * piece, SHELF)
    shelves[:count, ROOM] = shelves[:count, FILLED]
    return shelves, count


@kernel
def order_of(region: Int, regions: int) -> Int:
    """Sort queries by region, by counting."""
    place = np.zeros(regions + 1, dtype=np.int64)
    for at in range(len(region)):
        place[region[at] + 1] += 1
    for at in range(regions):
        place[at + 1] += place[at]
    order = np.empty(len(region), dtype=np.int64)
    for at in range(len(region)):
        order[place[region[at]]] = at
        place[region[at]] += 1
    return order


@kernel
def find_all(rack: Rack, slots: Int) -> None:
    """Put the ids of some slots into the table."""
    for slot in slots:
        rack.table[find(rack.table, rack.queries, rack.queries[slot, ID])] = slot


@kernel
def put_up(rack: Rack) -> None:
    """Chain the shelves of each region, note when they are due, and put the ids into the table."""
    shelves, regions, queries = rack.shelves, rack.regions, rack.queries
    for shelf in range(rack.counts[SHELVES]):
        start = shelves[shelf, START]
        home = queries[start, REGION]
        least = NEVER
        for slot in range(start, start + shelves[shelf, FILLED]):
            least = min(least, queries[slot, DUE])
            rack.table[find(rack.table, queries, queries[slot, ID])] = slot
        shelves[shelf, LEAST] = least
        shelves[shelf, AFTER] = -1
        if regions[home, FIRST] < 0:
            regions[home, FIRST] = shelf
        else:
            shelves[regions[home, LAST], AFTER] = shelf
        regions[home, LAST] = shelf
        regions[home, FIRST_DUE] = min(regions[home, FIRST_DUE], least)
        if least <= regions[home, LOAD]:
            list_region(regions, rack.counts, home)
