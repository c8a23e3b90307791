"""Queries on shelves, by region; ids are found by a hash table.

A region holds the queries whose smallest region it is, and knows the weight that fell into it. Its queries stand on
shelves, which are stretches of slots, chained. A shelf knows when the first of its queries is due, a region when the
first of its shelves is. A slot is used once, and what the table says of a query that ended stays: when too many slots
are empty the others move together (`shelving`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int

SHELF = 64
NEVER = (1 << 63) - 1

# Places in `counts`. `TABLED` are the places of the table that are not free, `MOST` the looks in vain of the query that
# had most, `WANTED` regions for which there was no room. From `WEIGHT` on it is counted since all was laid out; `LOOKS`
# are those in vain, and with more than `PATIENCE` per query all is laid out anew; `BEHIND` is the weight of the
# elements that no region has taken yet, and while it is below `SLACK` no query is due.
ALIVE, SLOTS, SHELVES, LISTED, NUMBER, TABLED, MOST, REGIONS, WANTED, WEIGHT, ELEMENTS, LOOKS, PATIENCE = range(13)
BEHIND, SLACK = 13, 14
COUNTS = 15
# Places in a row of `queries`, of `regions`, of `shelves`.
ID, THRESHOLD, TARGET, REGISTERED, DUE, HOME, COVER = range(7)
LOAD, FIRST_DUE, FIRST, LAST, NEXT = range(5)
START, FILLED, ROOM, LEAST, AFTER = range(5)
NOT_LISTED = -2
# What the table has where nothing ever stood, and where something stood.
FREE, GONE = -1, -2
# `HOME` of a query is its region, plus this for each look in vain.
VAIN = 1 << 32


class Rack(NamedTuple):
    """All queries, in few arrays, since a kernel unpacks them at every call.

    `queries`, a row per slot: id, threshold (0: the slot is empty), what the total is found by, number of registration,
    the load of its region at which it is due, its region and its looks in vain; in the plane the weight of its cover
    before which it has not matured. `spans`: the lows of its range and the numbers before which it ends. `regions`:
    running weight, when a query is first due, first and last shelf, next region that is listed to be looked through.
    `shelves`: stretch of slots, when a query is first due, next shelf of the region. `table` finds a slot by id;
    `counts` are named above.
    """

    queries: Int
    spans: Float
    regions: Int
    shelves: Int
    table: NDArray[np.int32]
    counts: Int


@kernel
def place_of(table: NDArray[np.int32], key: int) -> int:
    """Give the place in the table where the search for an id begins."""
    return (((key ^ (key >> 31)) & 0x7FFFFFFF) * 0x9E3779B1 >> 12) & (len(table) - 1)


@kernel
def find(table: NDArray[np.int32], queries: Int, key: int) -> int:
    """Give the place in the table where an id stands, or the free one where it would."""
    place = place_of(table, key)
    while table[place] != FREE and (table[place] == GONE or queries[table[place], ID] != key):
        place = (place + 1) & (len(table) - 1)
    return place


@kernel
def remove(table: NDArray[np.int32], queries: Int, key: int) -> None:
    """Take an id out of the table, and move those up that had to make way for it."""
    mask = len(table) - 1
    hole = find(table, queries, key)
    place = (hole + 1) & mask
    while table[place] >= 0:
        home = place_of(table, queries[table[place], ID])
        if ((place - home) & mask) >= ((place - hole) & mask):
            table[hole] = table[place]
            hole = place
        place = (place + 1) & mask
    table[hole] = -1


@kernel
def slot_of(rack: Rack, key: int) -> int:
    """Give the slot of an alive query, or -1."""
    slot = int(rack.table[find(rack.table, rack.queries, key)])
    return slot if slot >= 0 and rack.queries[slot, THRESHOLD] > 0 else -1


@kernel
def home_of(queries: Int, slot: int) -> int:
    """Give the region of a query."""
    return int(queries[slot, HOME] & (VAIN - 1))


@kernel
def list_region(regions: Int, counts: Int, region: int) -> None:
    """Note that a region has to be looked through."""
    if regions[region, NEXT] == NOT_LISTED:
        regions[region, NEXT] = counts[LISTED]
        counts[LISTED] = region


@kernel
def note_load(regions: Int, counts: Int, region: int) -> None:
    """List a region that reached something due; note how much it may still take if it did not."""
    slack = regions[region, FIRST_DUE] - regions[region, LOAD]
    if slack <= 0:
        list_region(regions, counts, region)
    else:
        counts[SLACK] = min(counts[SLACK], slack)


@kernel
def append_shelf(shelves: Int, regions: Int, counts: Int, region: int, room: int) -> int:
    """Give a new shelf of a region; slots and a row of `shelves` must be free."""
    new, last = int(counts[SHELVES]), int(regions[region, LAST])
    shelves[new, START] = counts[SLOTS]
    shelves[new, FILLED] = 0
    shelves[new, ROOM] = room
    shelves[new, LEAST] = NEVER
    shelves[new, AFTER] = -1
    if last < 0:
        regions[region, FIRST] = new
    else:
        shelves[last, AFTER] = new
    regions[region, LAST] = new
    counts[SLOTS] += room
    counts[SHELVES] += 1
    return new


@kernel
def open_shelf(shelves: Int, regions: Int, counts: Int, region: int) -> int:
    """Give a shelf of a region that has room; new ones are twice as large as the last one, within bounds."""
    last = int(regions[region, LAST])
    if last < 0:
        return append_shelf(shelves, regions, counts, region, 4)
    if shelves[last, FILLED] < shelves[last, ROOM]:
        return last
    return append_shelf(shelves, regions, counts, region, min(SHELF, max(4, 2 * shelves[last, ROOM])))


@kernel
def has_slots(rack: Rack) -> bool:
    """Tell whether one more query surely fits."""
    counts = rack.counts
    room = counts[SLOTS] + SHELF <= len(rack.queries) and counts[SHELVES] < len(rack.shelves)
    return bool(room and 4 * counts[TABLED] < 3 * len(rack.table))


@kernel
def put(rack: Rack, region: int, key: int, threshold: int, target: int) -> int:
    """Put a new query on a shelf of its region; give its slot."""
    queries, regions, shelves = rack.queries, rack.regions, rack.shelves
    shelf = open_shelf(shelves, regions, rack.counts, region)
    slot = int(shelves[shelf, START] + shelves[shelf, FILLED])
    shelves[shelf, FILLED] += 1
    due = regions[region, LOAD] + threshold
    queries[slot, ID] = key
    queries[slot, THRESHOLD] = threshold
    queries[slot, TARGET] = target
    queries[slot, REGISTERED] = rack.counts[NUMBER]
    queries[slot, DUE] = due
    queries[slot, HOME] = region
    shelves[shelf, LEAST] = min(shelves[shelf, LEAST], due)
    regions[region, FIRST_DUE] = min(regions[region, FIRST_DUE], due)
    place = find(rack.table, queries, key)
    rack.counts[TABLED] += rack.table[place] == FREE
    rack.table[place] = slot
    rack.counts[NUMBER] += 1
    rack.counts[ALIVE] += 1
    rack.counts[SLACK] = min(rack.counts[SLACK], threshold)
    return slot


@kernel
def take_out(queries: Int, counts: Int, slot: int) -> None:
    """Forget a query; its slot stays empty, and keeps the id for those that stand behind it in the table."""
    queries[slot, THRESHOLD] = 0
    queries[slot, DUE] = NEVER
    counts[ALIVE] -= 1


@kernel
def slots_of(table: NDArray[np.int32], queries: Int, ids: Int) -> Int:
    """Give the slots of some ids, -1 for those that are not alive."""
    slots = np.empty(len(ids), dtype=np.int64)
    for at in range(len(ids)):
        slot = table[find(table, queries, ids[at])]
        slots[at] = slot if slot >= 0 and queries[slot, THRESHOLD] > 0 else -1
    return slots


@kernel
def forget(rack: Rack, slots: Int) -> None:
    """Forget some queries."""
    for slot in slots:
        take_out(rack.queries, rack.counts, slot)
