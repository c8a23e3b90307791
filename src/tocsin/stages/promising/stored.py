"""The intermediate representation of a stream: its tuples, in cells of value buckets by time zones, with summaries.

Idea: tuples lie in the order of their arrival, those of a bucket linked; a zone is a stretch of arrivals, so a cell is
where a zone begins in a bucket, and zones merge without touching a tuple. A zone ends when it is as long as it may be
or when the confidence in its summary falls below theta; it then moves through the granularities, older zones merging
into longer ones (COLLAPSE), until it is forgotten. Above the zones stand a summary per granularity and one of all:
where they promise nothing, what lies below need not be looked at.
Guarantee: the summary of a zone is that of all tuples that came into it; that of a granularity, and of all, is the sum
of its zones. A zone goes with its last tuple. Tuples older than all granularities have no summary. At most
`Layout.nodes` summaries, tuples as bounded by window and memory.
Cost: three updates of a summary per tuple; a few sums of tables per zone. T1 has neither.
Source: Ali, Aref, ElTabakh, sections 3.1 and 3.3 to 3.5, Figure 5. There a zone lists its tuples, and each cell has a
summary; here buckets share that of their zone: a value has one bucket, so its estimate is no worse.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Float, Int
from tocsin.stages.promising.layout import Layout, Limits
from tocsin.stages.promising.summary import combine, confidence_of, count_one

# Places in `facts`: the oldest tuple kept and the one to come (numbers of arrival), zones, the sum of squares of the
# newest zone, sums of tables so far (they are work too), tuples that went by age and by memory.
OLDEST, COUNT, ZONES, SQUARES, TABLES, EXPIRED, SHED = range(7)
# Columns of `zone`, a line for each zone from the oldest to the newest.
BEGIN, START, LAST, GRAIN, NODE = range(5)
NONE = -1


class Stored(NamedTuple):
    """A stream: tuples by slot (number of arrival modulo room), ends of buckets, zones, tables of summaries.

    `pending` has how many regions a tuple has still to probe. `first` has the first tuple of each zone and bucket.
    Tables are those of zones, then of granularities, then of all.
    """

    key: Int
    time: Int
    row: Int
    bucket: Int
    next: Int
    pending: Int
    places: Int
    values: Float
    head: Int
    tail: Int
    zone: Int
    used: Int
    first: Int
    tables: Int
    facts: Int


# The fields that have a line per tuple.
PER_TUPLE = ("key", "time", "row", "bucket", "next", "pending", "places", "values")


def new_stored(layout: Layout, attributes: int = 0, room: int = 64) -> Stored:
    """No tuples yet."""
    rows = layout.scheme.rows if layout.nodes else 0
    lines = [np.zeros(room, np.int64) for _ in range(6)]
    return Stored(
        *lines,
        np.zeros((room, rows), np.int64),
        np.zeros((room, attributes)),
        np.full(layout.parts, NONE, np.int64),
        np.full(layout.parts, NONE, np.int64),
        np.zeros((layout.most_zones, 5), np.int64),
        np.zeros(layout.most_zones, np.int64),
        np.full((layout.most_zones, layout.parts), NONE, np.int64),
        np.zeros((layout.nodes, rows, layout.scheme.width), np.int64),
        np.zeros(7, np.int64),
    )


def with_room(stored: Stored, more: int) -> Stored:
    """Make room for more tuples than are kept; the room is a power of two."""
    begin, end = int(stored.facts[OLDEST]), int(stored.facts[COUNT])
    room, wanted = len(stored.key), end - begin + more
    if wanted <= room:
        return stored
    size = 1 << (wanted - 1).bit_length()
    alive = np.arange(begin, end)
    grown = {}
    for name in PER_TUPLE:
        column = getattr(stored, name)
        grown[name] = np.zeros((size, *column.shape[1:]), column.dtype)
        grown[name][alive % size] = column[alive % room]
    return stored._replace(**grown)


@kernel
def slot_of(stored: Stored, number: int) -> int:
    """Where the tuple with a number of arrival lies."""
    return number & (stored.key.shape[0] - 1)


@kernel
def end_of(stored: Stored, place: int) -> int:
    """The number of arrival behind a zone."""
    if place + 1 < stored.facts[ZONES]:
        return int(stored.zone[place + 1, BEGIN])
    return int(stored.facts[COUNT])


@kernel
def grain_zones(stored: Stored, grain: int) -> tuple[int, int]:
    """The first zone of a granularity and the one behind its last: older granularities stand in front."""
    begin, zones = 0, stored.facts[ZONES]
    while begin < zones and stored.zone[begin, GRAIN] > grain:
        begin += 1
    end = begin
    while end < zones and stored.zone[end, GRAIN] == grain:
        end += 1
    return begin, end


@kernel
def move_table(stored: Stored, node: int, into: int, sign: int) -> None:
    """Add a summary to another one, or subtract it; counted as work."""
    combine(stored.tables[into], stored.tables[node], sign)
    stored.facts[TABLES] += 1


@kernel
def free_zone(stored: Stored, place: int) -> None:
    """Take a zone out of the list, and clear its summary."""
    node = stored.zone[place, NODE]
    stored.tables[node] = 0
    stored.first[node] = NONE
    stored.used[node] = 0
    stored.facts[TABLES] += 1
    for behind in range(place, stored.facts[ZONES] - 1):
        stored.zone[behind] = stored.zone[behind + 1]
    stored.facts[ZONES] -= 1


@kernel
def forget_zone(stored: Stored, place: int) -> None:
    """Take a zone out of all summaries."""
    node, zones = stored.zone[place, NODE], stored.used.shape[0]
    move_table(stored, node, zones + stored.zone[place, GRAIN], -1)
    move_table(stored, node, stored.tables.shape[0] - 1, -1)
    free_zone(stored, place)


@kernel
def push_zone(stored: Stored, limits: Limits, grain: int) -> bool:
    """Let the oldest zone of a granularity go over into the next; False if there is no room for it."""
    place, _ = grain_zones(stored, grain)
    if grain == limits.grain_us.shape[0] - 1:
        forget_zone(stored, place)
        return True
    begin, end = grain_zones(stored, grain + 1)
    zone = stored.zone[place]
    merges = end > begin and zone[LAST] - stored.zone[end - 1, START] <= limits.grain_us[grain]
    if not merges and end - begin >= limits.rate:
        return False
    node, zones = zone[NODE], stored.used.shape[0]
    move_table(stored, node, zones + grain, -1)
    move_table(stored, node, zones + grain + 1, 1)
    zone[GRAIN] = grain + 1
    if merges:
        older = stored.zone[end - 1]
        move_table(stored, node, older[NODE], 1)
        older[LAST] = zone[LAST]
        for bucket in range(stored.first.shape[1]):
            if stored.first[older[NODE], bucket] == NONE:
                stored.first[older[NODE], bucket] = stored.first[node, bucket]
        free_zone(stored, place)
    return True


@kernel
def collapse(stored: Stored, limits: Limits, grain: int) -> None:
    """Let the oldest zone of a granularity go over, after older ones have made room."""
    reached = grain
    while not push_zone(stored, limits, reached):
        reached += 1
    while reached > grain:
        reached -= 1
        push_zone(stored, limits, reached)


@kernel
def open_zone(stored: Stored, limits: Limits, time: int) -> None:
    """Begin a zone; older ones go over into the next granularity."""
    begin, end = grain_zones(stored, 0)
    while end > begin and (end - begin >= limits.zones or stored.zone[begin, LAST] < time - limits.grain_us[0]):
        collapse(stored, limits, 0)
        begin, end = grain_zones(stored, 0)
    node = 0
    while stored.used[node]:
        node += 1
    stored.used[node] = 1
    zone = stored.zone[stored.facts[ZONES]]
    zone[BEGIN], zone[START], zone[LAST], zone[GRAIN], zone[NODE] = stored.facts[COUNT], time, time, 0, node
    stored.facts[ZONES] += 1
    stored.facts[SQUARES] = 0


@kernel
def ended(stored: Stored, limits: Limits, time: int) -> bool:
    """Whether the newest zone takes no more tuples."""
    if stored.facts[ZONES] == 0:
        return True
    zone = stored.zone[stored.facts[ZONES] - 1]
    if time - zone[START] >= limits.zone_us:
        return True
    squares, total = stored.facts[SQUARES] / stored.tables.shape[1], stored.facts[COUNT] - zone[BEGIN]
    return confidence_of(squares, total, limits.of_squares, limits.of_share) < limits.theta


@kernel
def drop_oldest(stored: Stored) -> None:
    """Let the oldest tuple go, and with the last tuple of a zone the zone."""
    oldest = stored.facts[OLDEST]
    slot = slot_of(stored, oldest)
    bucket = stored.bucket[slot]
    stored.head[bucket] = stored.next[slot]
    if stored.next[slot] == NONE:
        stored.tail[bucket] = NONE
    stored.facts[OLDEST] = oldest + 1
    if stored.facts[ZONES] > 0 and end_of(stored, 0) <= oldest + 1:
        forget_zone(stored, 0)


@kernel
def expire(stored: Stored, limits: Limits, now: int) -> int:
    """Let tuples older than the window go; gives how many of them had regions left to probe."""
    unprocessed = 0
    while stored.facts[OLDEST] < stored.facts[COUNT]:
        slot = slot_of(stored, stored.facts[OLDEST])
        if stored.time[slot] >= now - limits.window_us:
            break
        unprocessed += stored.pending[slot] > 0
        drop_oldest(stored)
        stored.facts[EXPIRED] += 1
    return unprocessed


@kernel
def insert(
    stored: Stored, limits: Limits, key: int, time: int, row: int, bucket: int, places: Int, values: Float
) -> int:
    """Take a tuple, after what it drives out; gives how many of those had regions left to probe."""
    unprocessed = expire(stored, limits, time)
    if stored.facts[COUNT] - stored.facts[OLDEST] >= limits.memory:
        unprocessed += stored.pending[slot_of(stored, stored.facts[OLDEST])] > 0
        drop_oldest(stored)
        stored.facts[SHED] += 1
    summarised = stored.used.shape[0] > 0
    if summarised and ended(stored, limits, time):
        open_zone(stored, limits, time)
    number = stored.facts[COUNT]
    slot = slot_of(stored, number)
    stored.key[slot], stored.time[slot], stored.row[slot] = key, time, row
    stored.bucket[slot], stored.next[slot], stored.pending[slot] = bucket, NONE, 0
    stored.values[slot] = values
    if stored.tail[bucket] == NONE:
        stored.head[bucket] = number
    else:
        stored.next[slot_of(stored, stored.tail[bucket])] = number
    stored.tail[bucket] = number
    stored.facts[COUNT] = number + 1
    if summarised:
        summarize(stored, number, time, bucket, places)
    return unprocessed


@kernel
def summarize(stored: Stored, number: int, time: int, bucket: int, places: Int) -> None:
    """Count a tuple in the newest zone, in its granularity, and in all."""
    zone = stored.zone[stored.facts[ZONES] - 1]
    node = zone[NODE]
    zone[LAST] = time
    if stored.first[node, bucket] == NONE:
        stored.first[node, bucket] = number
    stored.places[slot_of(stored, number)] = places
    stored.facts[SQUARES] += count_one(stored.tables[node], places, 1)
    count_one(stored.tables[stored.used.shape[0]], places, 1)
    count_one(stored.tables[stored.tables.shape[0] - 1], places, 1)
