"""Kernels of the anytime join: what a tuple has to probe, in which order, and what that costs.

A region is a stretch of arrivals of the other stream, in the bucket of the tuple: all that came before it (TOP), a
granularity (GRAINS), or what is to be scanned (LEAF). It is looked at in more detail only when its turn comes; one that
promises nothing is scanned as a whole, last. Regions of a tuple never overlap, whatever zones have merged meanwhile.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from tocsin.jit import inlined, lean
from tocsin.runtime.contract import Int
from tocsin.stages.promising.books import (
    ARRIVED,
    AT,
    CREDIT,
    DONE,
    EXPECTED,
    FOUND,
    LONG_QUEUE,
    NO_ROOM,
    SPENT,
    SUMMARISING,
    TIRED,
    UNPROCESSED,
    Books,
    Costs,
    Pace,
    accrue,
    charge,
    lose_idle,
    taken_in,
)
from tocsin.stages.promising.layout import Limits
from tocsin.stages.promising.preference import PRESENT, Guide, prefer, promise
from tocsin.stages.promising.queue import (
    HIGH,
    KIND,
    LOW,
    NUMBER,
    POINT,
    RANK,
    SIDE,
    Queue,
    keep_alive,
    pop,
    push,
    room,
)
from tocsin.stages.promising.stored import (
    BEGIN,
    BUCKET,
    COUNT,
    GRAIN,
    HEAD,
    KEY,
    NEXT,
    NODE,
    NONE,
    OLDEST,
    PENDING,
    ROW,
    TABLES,
    TIME,
    ZONES,
    Rows,
    Stored,
    end_of,
    expire,
    forget_empty,
    insert_rows,
)
from tocsin.stages.promising.summary import estimate_one

TOP, GRAINS, LEAF = range(3)


class Terms(NamedTuple):
    """What a join goes by."""

    guide: Guide
    costs: Costs
    limits: Limits
    pace: Pace
    cells: int


@inlined
def queueing(costs: Costs, promised: float) -> float:
    """Units to put a region into the queue: one that promises nothing moves up only past older ones of its kind."""
    return costs.queue if promised > -inf else costs.queue / 2


@inlined
def look(guide: Guide, mine: Stored, slot: int, side: int, expected: float, grain: int, rank: int) -> float:
    """The promise of a region in which a tuple is expected to find so many results."""
    if not expected >= PRESENT:
        return -inf
    x, own, further = guide.x, mine.values[slot, 0], guide.sums.shape[1] - 1
    x[side], x[1 - side] = own, expected
    x[2] = x[3] = float(mine.tuples[slot, KEY])
    for column in range(further):
        x[4 + side * further + column] = mine.values[slot, 1 + column]
        seen = guide.sums[1 - side, further]
        x[4 + (1 - side) * further + column] = guide.sums[1 - side, column] / max(seen, 1.0)
    return promise(guide, prefer(guide), max(own, 1.0) * expected, grain, rank)


@inlined
def pays(arrivals: int, buckets: int, rows: int, pieces: int, costs: Costs) -> bool:
    """Whether looking at the pieces of a stretch of arrivals costs less than scanning its bucket at once."""
    return pieces * (rows * costs.estimate + 2 * costs.queue) < costs.scan * arrivals / buckets


@inlined
def scan(line: Int, other: Stored, mine: Stored, slot: int, terms: Terms, books: Books, pairs: Int) -> int:
    """Compare a tuple with those of a region, from the oldest on, as far as units and room go; notes how far it got."""
    (account, counts), costs, window_us = books, terms.costs, terms.limits.window_us
    side = line[SIDE]
    tuples, facts, mask = other.tuples, other.facts, other.tuples.shape[0] - 1
    key, time, row = mine.tuples[slot, KEY], mine.tuples[slot, TIME], mine.tuples[slot, ROW]
    number, low, high, found, why = line[POINT], line[LOW], line[HIGH], counts[FOUND], DONE
    if number < facts[OLDEST]:
        number = other.ends[mine.tuples[slot, BUCKET], HEAD]
    spent, credit = 0.0, account[CREDIT]
    while number != NONE and number < high:
        if credit - spent <= 0.0:
            why = TIRED
            break
        if found == pairs.shape[0]:
            why = NO_ROOM
            break
        its = np.uint64(number & mask)
        spent += costs.scan
        if tuples[its, KEY] == key and number >= low and abs(tuples[its, TIME] - time) <= window_us:
            pairs[found, side], pairs[found, 1 - side] = row, tuples[its, ROW]
            found += 1
            spent += costs.emit
        number = tuples[its, NEXT]
    line[POINT], counts[FOUND] = number, found
    charge(account, spent)
    return why


@inlined
def expand(queue: Queue, mine: Stored, other: Stored, terms: Terms, books: Books) -> int:
    """Put the parts of the first region in its place; gives how many."""
    guide, costs, account, line = terms.guide, terms.costs, books.account, queue.entry[queue.line[0]]
    rank, side, number, kind, low, high = line[RANK], line[SIDE], line[NUMBER], line[KIND], line[LOW], line[HIGH]
    pop(queue)
    zone, facts, first, slot = other.zone, other.facts, other.first, number & (mine.tuples.shape[0] - 1)
    bucket, zones, parts = mine.tuples[slot, BUCKET], facts[ZONES], 0
    start = min(high, zone[0, BEGIN] if zones > 0 else high)
    if max(low, facts[OLDEST]) < start:
        push(queue, -inf, rank, side, number, LEAF, NONE, low, start)
        charge(account, queueing(costs, -inf))
        parts += 1
    place = 0
    while place < zones:
        begin, grain, point = place, zone[place, GRAIN], first[zone[place, NODE], bucket]
        place += 1
        while kind == TOP and place < zones and zone[place, GRAIN] == grain:
            if point == NONE:
                point = first[zone[place, NODE], bucket]
            place += 1
        since, until = max(low, zone[begin, BEGIN]), min(high, end_of(zone, facts, place - 1))
        if point == NONE or since >= until or point >= until:
            continue
        node = zone[begin, NODE] if place - begin == 1 else first.shape[0] + grain
        expected = estimate_one(other.tables, node, mine.places, slot, guide.found) * guide.share
        promised = look(guide, mine, slot, side, expected, grain, rank)
        pieces = place - begin
        deeper = (
            pieces > 1
            and promised > -inf
            and pays(until - since, first.shape[1], pieces * other.tables.shape[1], pieces, costs)
        )
        push(queue, promised, rank, side, number, GRAINS if deeper else LEAF, point, since, until)
        charge(account, costs.estimate * other.tables.shape[1] + queueing(costs, promised))
        parts += 1
    return parts


@inlined
def made_room(queue: Queue, most: int, facts1: Int, facts2: Int) -> bool:
    """Have room for some regions, without those of tuples that are gone if need be; False if the queue is too short."""
    if room(queue) >= most:
        return True
    keep_alive(queue, facts1[OLDEST], facts2[OLDEST])
    return bool(room(queue) >= most + queue.size[0])


@inlined
def work_off(queue: Queue, first: Stored, second: Stored, terms: Terms, books: Books, pairs: Int) -> int:
    """Work on the most promising regions as long as there are units; says why it stopped."""
    account, _ = books
    most = max(first.zone.shape[0], second.zone.shape[0]) + 2
    while account[CREDIT] > 0.0 and queue.size[0] > 0:
        line = queue.entry[queue.line[0]]
        side, number = line[SIDE], line[NUMBER]
        mine, other = (first, second) if side == 0 else (second, first)
        if number < mine.facts[OLDEST]:
            pop(queue)
            continue
        slot = number & (mine.tuples.shape[0] - 1)
        if line[KIND] != LEAF:
            if not made_room(queue, most, first.facts, second.facts):
                return LONG_QUEUE
            charge(account, terms.costs.queue)
            mine.tuples[slot, PENDING] += expand(queue, mine, other, terms, books) - 1
            continue
        # A region that is not done stays the first: how far it got is no part of the order.
        why = scan(line, other, mine, slot, terms, books, pairs)
        if why == DONE:
            pop(queue)
            charge(account, terms.costs.queue)
            mine.tuples[slot, PENDING] -= 1
        if why == NO_ROOM:
            return NO_ROOM
    return DONE


@inlined
def arrive(
    queue: Queue, mine: Stored, other: Stored, terms: Terms, books: Books, rows: Rows, i: int, side: int
) -> None:
    """Take a tuple into its stream, and note what it has to probe in the other one."""
    guide, costs, limits, _, cells = terms
    account, counts = books
    summarised, tables = mine.used.shape[0] > 0, mine.facts[TABLES] + other.facts[TABLES]
    counts[UNPROCESSED + 1 - side] += expire(other.tuples, other.ends, other.facts, rows.time[i] - limits.window_us)
    if summarised:
        forget_empty(other, other.zone, other.facts)
    counts[UNPROCESSED + side] += insert_rows(mine, limits, rows, i, i + 1)
    number, rank = mine.facts[COUNT] - 1, counts[ARRIVED]
    slot, high = number & (mine.tuples.shape[0] - 1), other.facts[COUNT]
    for column in range(guide.sums.shape[1] - 1):
        guide.sums[side, column] += mine.values[slot, 1 + column]
    guide.sums[side, guide.sums.shape[1] - 1] += 1.0
    before = account[SPENT]
    charge(account, costs.insert)
    promised, kind, probes = 0.0, LEAF, other.ends[mine.tuples[slot, BUCKET], HEAD] != NONE
    if summarised:
        top, lines = mine.tables.shape[0] - 1, mine.tables.shape[1]
        tables = mine.facts[TABLES] + other.facts[TABLES] - tables
        charge(account, (costs.summarize + costs.estimate) * lines + costs.table * cells * tables)
        expected = estimate_one(other.tables, top, mine.places, slot, guide.found) * guide.share
        account[EXPECTED] += max(expected, 0.0)
        promised = -inf
        if probes and expected >= PRESENT:
            charge(account, costs.estimate * lines)
            mine.values[slot, 0] = estimate_one(mine.tables, top, mine.places, slot, guide.found) * guide.share
            promised = look(guide, mine, slot, side, expected, 0, rank)
            # What is bounded comes in ascending order: its promise is the less the more of it there is.
            probes = promised >= -guide.most
            pieces = other.facts[ZONES]
            deeper = guide.fade < 1.0 or pays(high - other.facts[OLDEST], other.first.shape[1], lines, pieces, costs)
            kind = TOP if promised > -inf and deeper else LEAF
    account[SUMMARISING] += account[SPENT] - before
    if probes:
        push(queue, promised, rank, side, number, kind, NONE, other.facts[OLDEST], high)
        charge(account, queueing(costs, promised))
        mine.tuples[slot, PENDING] = 1


@lean
def join_rows(
    queue: Queue, first: Stored, second: Stored, terms: Terms, books: Books, rows: Rows, stream: Int, pairs: Int
) -> int:
    """Work until a tuple arrives, take it, and so on; says why it stopped. `counts[AT]` is where to go on."""
    counts = books.counts
    while counts[AT] < stream.shape[0]:
        i = counts[AT]
        accrue(books, terms.pace, rows.time[i])
        why = work_off(queue, first, second, terms, books, pairs)
        if why != DONE:
            return why
        if not made_room(queue, 1, first.facts, second.facts):
            return LONG_QUEUE
        lose_idle(books.account)
        if stream[i] == 0:
            arrive(queue, first, second, terms, books, rows, i, 0)
        else:
            arrive(queue, second, first, terms, books, rows, i, 1)
        taken_in(books, rows.time[i])
    return DONE
