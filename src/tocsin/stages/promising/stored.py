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

from tocsin.jit import inlined, lean
from tocsin.runtime.contract import Float, Int
from tocsin.stages.promising.layout import Layout, Limits
from tocsin.stages.promising.summary import combine, count_thrice

# Places in `facts`: the oldest tuple kept and the one to come (numbers of arrival), zones, the sum of squares of the
# newest zone, sums of tables so far (they are work too), tuples that went by age and by memory.
OLDEST, COUNT, ZONES, SQUARES, TABLES, EXPIRED, SHED = range(7)
# Columns of `zone`, a line for each zone from the oldest to the newest.
BEGIN, START, LAST, GRAIN, NODE = range(5)
# Columns of `tuples`, few, as they are scanned. PENDING: how many regions the tuple has still to probe.
KEY, TIME, ROW, BUCKET, NEXT, PENDING = range(6)
# Columns of `ends`: the oldest and the newest tuple of a bucket.
HEAD, TAIL = 0, 1
NONE = -1


class Stored(NamedTuple):
    """A stream: tuples by slot (number of arrival modulo room), ends of buckets, zones, tables of summaries.

    `places` has those of tuples in summaries, `values` their further attributes, `first` the first tuple of each zone
    and bucket, `used` which tables of zones are in use. Tables are those of zones, then of granularities, then of all.
    """

    tuples: Int
    places: Int
    values: Float
    ends: Int
    zone: Int
    used: Int
    first: Int
    tables: Int
    facts: Int


# For so many tuples there is room at first.
_ROOM = 64
# The fields that have a line per tuple.
PER_TUPLE = ("tuples", "places", "values")


def new_stored(layout: Layout, attributes: int = 0) -> Stored:
    """No tuples yet."""
    rows = layout.scheme.rows if layout.nodes else 0
    return Stored(
        np.zeros((_ROOM, 6), np.int64),
        np.zeros((_ROOM, rows), np.int64),
        np.zeros((_ROOM, attributes)),
        np.full((layout.parts, 2), NONE, np.int64),
        np.zeros((layout.most_zones, 5), np.int64),
        np.zeros(layout.most_zones, np.int64),
        np.full((layout.most_zones, layout.parts), NONE, np.int64),
        np.zeros((layout.nodes, rows, layout.scheme.width), np.int64),
        np.zeros(7, np.int64),
    )


def with_room(stored: Stored, more: int) -> Stored:
    """Make room for more tuples than are kept; the room is a power of two."""
    begin, end = int(stored.facts[OLDEST]), int(stored.facts[COUNT])
    room, wanted = len(stored.tuples), end - begin + more
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


@inlined
def end_of(zone: Int, facts: Int, place: int) -> int:
    """The number of arrival behind a zone."""
    return int(zone[place + 1, BEGIN]) if place + 1 < facts[ZONES] else int(facts[COUNT])


@lean
def grain_zones(stored: Stored, grain: int) -> tuple[int, int]:
    """The first zone of a granularity and the one behind its last: older granularities stand in front."""
    begin, zones = 0, stored.facts[ZONES]
    while begin < zones and stored.zone[begin, GRAIN] > grain:
        begin += 1
    end = begin
    while end < zones and stored.zone[end, GRAIN] == grain:
        end += 1
    return begin, end


@lean
def move_table(stored: Stored, node: int, into: int, sign: int) -> None:
    """Add a summary to another one, or subtract it; counted as work."""
    combine(stored.tables[into], stored.tables[node], sign)
    stored.facts[TABLES] += 1


@lean
def free_zone(stored: Stored, place: int) -> None:
    """Take a zone out of the list, and clear its summary."""
    node = stored.zone[place, NODE]
    stored.tables[node] = 0
    stored.first[node] = NONE
    stored.used[node] = 0
    stored.facts[TABLES] += 1
    for behind in range(place, stored.facts[ZONES] - 1):
        for column in range(stored.zone.shape[1]):
            stored.zone[behind, column] = stored.zone[behind + 1, column]
    stored.facts[ZONES] -= 1


@lean
def forget_zone(stored: Stored, place: int) -> None:
    """Take a zone out of all summaries."""
    node, zones = stored.zone[place, NODE], stored.used.shape[0]
    move_table(stored, node, zones + stored.zone[place, GRAIN], -1)
    move_table(stored, node, stored.tables.shape[0] - 1, -1)
    free_zone(stored, place)


@lean
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


@lean
def collapse(stored: Stored, limits: Limits, grain: int) -> None:
    """Let the oldest zone of a granularity go over, after older ones have made room."""
    reached = grain
    while not push_zone(stored, limits, reached):
        reached += 1
    while reached > grain:
        reached -= 1
        push_zone(stored, limits, reached)


@lean
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


@inlined
def ended(zone: Int, facts: Int, zone_us: int, of_squares: float, of_share: float, variance: float, time: int) -> bool:
    """Whether the newest zone takes no more tuples; `variance` is the most that rows together may have."""
    newest = facts[ZONES] - 1
    if newest < 0 or time - zone[newest, START] >= zone_us:
        return True
    squares, total = float(facts[SQUARES]), facts[COUNT] - zone[newest, BEGIN]
    return bool(squares * (of_squares * total + of_share) > variance * total)


@inlined
def drop_oldest(tuples: Int, ends: Int, facts: Int) -> bool:
    """Let the oldest tuple go; tells whether it had regions left to probe."""
    slot = facts[OLDEST] & (tuples.shape[0] - 1)
    bucket, following = tuples[slot, BUCKET], tuples[slot, NEXT]
    ends[bucket, HEAD] = following
    if following == NONE:
        ends[bucket, TAIL] = NONE
    facts[OLDEST] += 1
    return bool(tuples[slot, PENDING] > 0)


@inlined
def expire(tuples: Int, ends: Int, facts: Int, limit: int) -> int:
    """Let tuples older than a time go; gives how many of them had regions left to probe."""
    unprocessed, mask = 0, tuples.shape[0] - 1
    while facts[OLDEST] < facts[COUNT] and tuples[facts[OLDEST] & mask, TIME] < limit:
        unprocessed += drop_oldest(tuples, ends, facts)
        facts[EXPIRED] += 1
    return unprocessed


@inlined
def append(tuples: Int, ends: Int, facts: Int, key: int, time: int, row: int, bucket: int) -> int:
    """Put a tuple behind the others; gives its slot."""
    mask, number = tuples.shape[0] - 1, facts[COUNT]
    slot = number & mask
    tuples[slot, KEY], tuples[slot, TIME], tuples[slot, ROW] = key, time, row
    tuples[slot, BUCKET], tuples[slot, NEXT], tuples[slot, PENDING] = bucket, NONE, 0
    if ends[bucket, TAIL] == NONE:
        ends[bucket, HEAD] = number
    else:
        tuples[ends[bucket, TAIL] & mask, NEXT] = number
    ends[bucket, TAIL] = number
    facts[COUNT] = number + 1
    return int(slot)


@inlined
def summarize(tuples: Int, places: Int, slot: int, zone: Int, first: Int, tables: Int, facts: Int) -> None:
    """Count the newest tuple in the newest zone, in its granularity, and in all."""
    newest, bucket = facts[ZONES] - 1, tuples[slot, BUCKET]
    node = zone[newest, NODE]
    zone[newest, LAST] = tuples[slot, TIME]
    if first[node, bucket] == NONE:
        first[node, bucket] = facts[COUNT] - 1
    facts[SQUARES] += count_thrice(tables, node, first.shape[0], places, slot)


@lean
def forget_empty(stored: Stored, zone: Int, facts: Int) -> None:
    """Let zones go whose tuples are all gone."""
    while facts[ZONES] > 0 and end_of(zone, facts, 0) <= facts[OLDEST]:
        forget_zone(stored, 0)


@lean
def let_go(stored: Stored, count: int) -> None:
    """Let some of the oldest tuples go, and zones with their last."""
    for _ in range(count):
        drop_oldest(stored.tuples, stored.ends, stored.facts)
        stored.facts[EXPIRED] += 1
    if stored.used.shape[0] > 0:
        forget_empty(stored, stored.zone, stored.facts)


class Rows(NamedTuple):
    """Arriving tuples in columns: key, time, number of the row, bucket, places in summaries, further attributes."""

    key: Int
    time: Int
    row: Int
    bucket: Int
    places: Int
    values: Float


@inlined
def insert_rows(stored: Stored, limits: Limits, rows: Rows, begin: int, end: int) -> int:
    """Take tuples one after another, after what they drive out; gives how many of those had regions left to probe."""
    tuples, places, own, ends, zone, used, first, tables, facts = stored
    key, time, row, bucket, given, values = rows
    window_us, memory, zone_us, _, _, _, variance, of_squares, of_share = limits
    unprocessed, summarised = 0, used.shape[0] > 0
    for i in range(begin, end):
        now = time[i]
        unprocessed += expire(tuples, ends, facts, now - window_us)
        if facts[COUNT] - facts[OLDEST] >= memory:
            unprocessed += drop_oldest(tuples, ends, facts)
            facts[SHED] += 1
        if summarised:
            if facts[ZONES] > 0 and end_of(zone, facts, 0) <= facts[OLDEST]:
                forget_empty(stored, zone, facts)
            if ended(zone, facts, zone_us, of_squares, of_share, variance * tables.shape[1], now):
                open_zone(stored, limits, now)
        slot = append(tuples, ends, facts, key[i], now, row[i], bucket[i])
        for column in range(own.shape[1]):
            own[slot, column] = values[i, column]
        if summarised:
            for place in range(tables.shape[1]):
                places[slot, place] = given[i, place]
            summarize(tuples, places, slot, zone, first, tables, facts)
    return unprocessed
