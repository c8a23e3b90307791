"""Kernels of the standing selection: cells of values by zones, offered to each query in turn, worked on by promise.

A cell is a bin of values in a zone. When a zone ends, each query has its turn: the cells that its range meets go into
the queue. A bin that lies inside the range is given out without a look at its values; one that the range cuts is
scanned.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from tocsin.jit import kernel
from tocsin.logic import Float, Int
from tocsin.stages.promising.layout import Limits
from tocsin.stages.promising.preference import ASC, WEIGHTED, Guide, prefer, promise
from tocsin.stages.promising.probe import (
    ARRIVED,
    AT,
    CREDIT,
    DONE,
    FOUND,
    GIVEN,
    LONG_QUEUE,
    NEWEST,
    NO_ROOM,
    SUMMARISING,
    TIRED,
    Books,
    Costs,
    Pace,
    charge,
    lose_idle,
)
from tocsin.stages.promising.queue import (
    HIGH,
    KIND,
    LOW,
    NUMBER,
    POINT,
    RANK,
    SIDE,
    Queue,
    arrange,
    copy,
    pop,
    push,
    room,
)
from tocsin.stages.promising.stored import (
    BEGIN,
    COUNT,
    HEAD,
    NEXT,
    NODE,
    NONE,
    OLDEST,
    ROW,
    TABLES,
    TIME,
    ZONES,
    Rows,
    Stored,
    ended,
    insert_rows,
)

# Of a bin that a range cuts, so many tuples are looked at first: which part of it is selected is then known to about
# 5 %, whatever the values are like.
EXPLORED = 100
# What is known of a cell: all of its values are in the range, or some may be.
INSIDE, CUT = 0, 1
# In an entry of the queue RANK is the query, SIDE the bin, NUMBER how many tuples of the cell are left.


class Standing(NamedTuple):
    """Queries, a line for each: the closed range of values, the times between which it stands (the end exclusive).

    `part` has which part of each bin a range covers. By query and bin: `seen` has the tuples that were worked on,
    `bins` those that were selected, `sums` their sum, `lost` those that went before they were worked on. `served` has
    the arrivals that have been offered, and behind it how many of each bin of the newest zone.
    """

    low: Float
    high: Float
    since: Int
    until: Int
    part: Float
    seen: Int
    bins: Int
    sums: Float
    lost: Int
    served: Int


class Work(NamedTuple):
    """What a selection goes by; `middle` is the middle of each bin."""

    guide: Guide
    costs: Costs
    limits: Limits
    pace: Pace
    middle: Float
    cells: int


@kernel
def worth(work: Work, left: int, part: float, place: int, query: int, high: int) -> float:
    """The promise of a cell: its preference per unit of work; `weighted`: a draw for each cell of each query."""
    guide, costs = work.guide, work.costs
    expected = left * part
    guide.x[0], guide.x[1] = expected, work.middle[place]
    draw = (query << 24) ^ (place << 40) ^ high
    promised = promise(guide, prefer(guide), expected, 0, draw)
    if guide.order == WEIGHTED or not promised > -inf:
        return promised
    units = left * (costs.emit if part >= 1.0 else costs.scan + part * costs.emit)
    return promised * units if guide.order == ASC else promised / units


@kernel
def offer(queue: Queue, stored: Stored, standing: Standing, work: Work, books: Books) -> bool:
    """Give each query its turn with what came since the last one; False if the queue has no room for that."""
    facts, served, newest = stored.facts, standing.served, stored.facts[ZONES] - 1
    count, bins = facts[COUNT], standing.part.shape[1]
    if newest < 0 or served[0] == count:
        return True
    low, node, begin = max(served[0], facts[OLDEST]), stored.zone[newest, NODE], stored.zone[newest, BEGIN]
    if begin >= served[0]:
        served[1:] = 0
    if room(queue) < standing.low.shape[0] * bins:
        return False
    first_us = stored.tuples[low & (stored.tuples.shape[0] - 1), TIME]
    last_us = stored.tuples[(count - 1) & (stored.tuples.shape[0] - 1), TIME]
    for query in range(standing.low.shape[0]):
        if standing.since[query] > last_us or standing.until[query] <= first_us:
            continue
        whole = standing.since[query] <= first_us and standing.until[query] > last_us
        for place in range(bins):
            part, left = standing.part[query, place], stored.tables[node, 0, place] - served[1 + place]
            if part <= 0.0 or left <= 0:
                continue
            kind = INSIDE if part >= 1.0 and whole else CUT
            promised = worth(work, left, part, place, query, count)
            if kind == CUT and standing.seen[query, place] < EXPLORED:
                promised = inf
            push(queue, promised, query, place, left, kind, stored.first[node, place], low, count)
            charge(books.account, work.costs.queue + work.costs.estimate)
    for place in range(bins):
        served[1 + place] = stored.tables[node, 0, place]
    served[0] = count
    return True


@kernel
def give(stored: Stored, standing: Standing, work: Work, books: Books, found: Int) -> int:
    """Give out the tuples of a cell that its query asks for, as far as units and room go."""
    (account, counts, line), costs, tuples = books, work.costs, stored.tuples
    query, place, number, low, high = line[RANK], line[SIDE], line[POINT], line[LOW], line[HIGH]
    mask, inside, left, why = tuples.shape[0] - 1, line[KIND] == INSIDE, line[NUMBER], DONE
    if number < stored.facts[OLDEST]:
        number = stored.ends[place, HEAD]
    while number != NONE and number < high:
        slot = number & mask
        if number >= low:
            if account[CREDIT] <= 0.0:
                why = TIRED
                break
            if counts[FOUND] == found.shape[0]:
                why = NO_ROOM
                break
            value, time, chosen = stored.values[slot, 0], tuples[slot, TIME], inside
            left -= 1
            standing.seen[query, place] += 1
            if not inside:
                charge(account, costs.scan)
                chosen = standing.low[query] <= value <= standing.high[query]
                chosen = chosen and standing.since[query] <= time < standing.until[query]
            if chosen:
                charge(account, costs.emit)
                at = counts[FOUND]
                found[at, 0], found[at, 1], found[at, 2] = query, tuples[slot, ROW], time
                counts[FOUND] += 1
                standing.bins[query, place] += 1
                standing.sums[query, place] += stored.values[slot, 1]
        number = tuples[slot, NEXT]
    line[POINT], line[NUMBER] = number, left
    return why


@kernel
def keep_reachable(queue: Queue, lost: Int, oldest: int) -> None:
    """Take out the cells whose tuples are all gone, and count these."""
    promised, entry, size = queue
    kept = 0
    for at in range(size[0]):
        if entry[at, HIGH] > oldest:
            copy(promised, entry, at, kept)
            kept += 1
        else:
            lost[entry[at, RANK], entry[at, SIDE]] += entry[at, NUMBER]
    size[0] = kept
    arrange(queue)


@kernel
def work_on_cells(queue: Queue, stored: Stored, standing: Standing, work: Work, books: Books, found: Int) -> int:
    """Work on the most promising cells as long as there are units; says why it stopped."""
    account, _, line = books
    while account[CREDIT] > 0.0 and queue.size[0] > 0:
        at = pop(queue)
        promised = queue.promise[at]
        for column in range(line.shape[0]):
            line[column] = queue.entry[at, column]
        if line[HIGH] <= stored.facts[OLDEST]:
            standing.lost[line[RANK], line[SIDE]] += line[NUMBER]
            continue
        why = give(stored, standing, work, books, found)
        if why == DONE:
            # What is left went with the window before it was worked on.
            standing.lost[line[RANK], line[SIDE]] += line[NUMBER]
            charge(account, work.costs.queue)
        else:
            push(queue, promised, line[RANK], line[SIDE], line[NUMBER], line[KIND], line[POINT], line[LOW], line[HIGH])
        if why == NO_ROOM:
            return NO_ROOM
    return DONE


@kernel
def select_rows(
    queue: Queue, stored: Stored, standing: Standing, work: Work, books: Books, rows: Rows, found: Int
) -> int:
    """Offer zones as they end, work until the next tuple arrives, take it; `counts[AT]` is where to go on."""
    (account, counts, _), (_, costs, limits, pace, _, cells) = books, work
    while counts[AT] < rows.key.shape[0]:
        i = counts[AT]
        if counts[GIVEN] == 0:
            gap = rows.time[i] - counts[NEWEST] if counts[ARRIVED] > 0 else 0
            account[CREDIT] += pace.per_arrival + (pace.per_us * gap if gap > 0 else 0.0)
            counts[GIVEN] = 1
        if ended(
            stored.zone, stored.facts, limits.zone_us, limits.of_squares, limits.of_share, limits.variance, rows.time[i]
        ) and not offer(queue, stored, standing, work, books):
            keep_reachable(queue, standing.lost, stored.facts[OLDEST])
            if not offer(queue, stored, standing, work, books):
                return LONG_QUEUE
        why = work_on_cells(queue, stored, standing, work, books, found)
        if why != DONE:
            return why
        lose_idle(account)
        tables = stored.facts[TABLES]
        insert_rows(stored, limits, rows, i, i + 1)
        units = costs.insert + costs.summarize + costs.table * cells * (stored.facts[TABLES] - tables)
        charge(account, units)
        account[SUMMARISING] += units
        counts[NEWEST], counts[GIVEN], counts[AT] = rows.time[i], 0, i + 1
        counts[ARRIVED] += 1
    return DONE
