"""Kernels of the standing selection: cells of values by zones, offered to each query in turn, worked on by promise.

A cell is a bin of values in a zone. When a zone ends, each query has its turn: the cells that its range meets go into
the queue. A bin that lies inside the range is given out without a look at its values; one that the range cuts is
scanned.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from tocsin.hashing import uniform
from tocsin.jit import inlined, lean
from tocsin.runtime.contract import Float, Int
from tocsin.stages.promising.books import (
    AT,
    CREDIT,
    DONE,
    EXPECTED,
    FOUND,
    LONG_QUEUE,
    NO_ROOM,
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
from tocsin.stages.promising.preference import ASC, WEIGHTED, Guide, prefer, promise
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
    keep,
    pop,
    push,
    room,
)
from tocsin.stages.promising.stored import (
    BEGIN,
    BUCKET,
    COUNT,
    HEAD,
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
    ended,
    insert_rows,
)

# Of a bin that a range cuts, so many tuples are looked at first: which part of it is selected is then known to about
# 5 %, whatever the values are like. So it is beyond the ends of a histogram, which does not know how far values lie.
EXPLORED = 100
# What is known of a cell: all of its values are in the range, or some may be.
INSIDE, CUT = 0, 1
# In an entry of the queue RANK is the query, SIDE the bin, NUMBER how many tuples of the cell are left.


class Standing(NamedTuple):
    """Queries, a line for each: the closed range of values, the times between which it stands (the end exclusive).

    `part` has which part of each bin a range covers, `hit` how many results a tuple in it is to give: 1 unless who asks
    looks at it once more. By query and bin: `seen` has the tuples that were worked on,
    `bins` those that were selected, `sums` their sum, `squares` the sum of their squared distances from their mean,
    `lost` those that went before they were worked on. `served` has the arrivals that have been offered, and behind it
    how many of each bin of the newest zone. `turns` is room for a number of each bin.
    """

    low: Float
    high: Float
    since: Int
    until: Int
    part: Float
    hit: Float
    seen: Int
    bins: Int
    sums: Float
    squares: Float
    lost: Int
    served: Int
    turns: Int


class Terms(NamedTuple):
    """What else a selection goes by: the units of a result that is written down beside those of a tuple given out.

    `turn` are those of a turn of all queries. Of a bin that a range cuts, `explored` tuples are looked at first. Cells
    whose promise differs by no more than the share `spread` come in an order that is drawn.
    """

    write: float = 0.0
    turn: float = 0.0
    explored: int = EXPLORED
    spread: float = 0.0


PLAIN = Terms()


class Work(NamedTuple):
    """What a selection goes by; `middle` is the middle of each bin."""

    guide: Guide
    costs: Costs
    limits: Limits
    pace: Pace
    middle: Float
    cells: int
    terms: Terms


@inlined
def worth(work: Work, left: int, part: float, hit: float, place: int, query: int, high: int) -> float:
    """The promise of a cell: its preference per unit of work; `weighted`: a draw for each cell of each query."""
    guide, costs, terms = work.guide, work.costs, work.terms
    expected, emit = left * part * hit, costs.emit + hit * terms.write
    guide.x[0], guide.x[1] = expected, work.middle[place]
    draw = (query << 24) ^ (place << 40) ^ high
    promised = promise(guide, prefer(guide), expected, 0, draw)
    if guide.order == WEIGHTED or not promised > -inf:
        return promised
    units = left * (emit if part >= 1.0 else costs.scan + part * emit)
    if terms.spread > 0.0:
        units /= 1.0 + terms.spread * uniform(guide.seed, draw, 0)
    return promised * units if guide.order == ASC else promised / units


@inlined
def offer(queue: Queue, stored: Stored, standing: Standing, work: Work, books: Books) -> bool:
    """Give each query its turn with what came since the last one; False if the queue has no room for that."""
    facts, served, newest = stored.facts, standing.served, stored.facts[ZONES] - 1
    count, bins, mask = facts[COUNT], standing.part.shape[1], stored.tuples.shape[0] - 1
    if newest < 0 or served[0] == count:
        return True
    low, node, begin = max(served[0], facts[OLDEST]), stored.zone[newest, NODE], stored.zone[newest, BEGIN]
    if begin >= served[0]:
        served[1:] = 0
    if room(queue) < standing.low.shape[0] * bins:
        return False
    first_us, last_us = stored.tuples[low & mask, TIME], stored.tuples[(count - 1) & mask, TIME]
    standing.turns[:] = 0
    for query in range(standing.low.shape[0]):
        if standing.since[query] > last_us or standing.until[query] <= first_us:
            continue
        whole = standing.since[query] <= first_us and standing.until[query] > last_us
        for place in range(bins):
            part, left = standing.part[query, place], stored.tables[node, 0, place] - served[1 + place]
            if part <= 0.0 or left <= 0:
                continue
            kind = INSIDE if part >= 1.0 and whole else CUT
            promised = worth(work, left, part, standing.hit[query, place], place, query, count)
            if (kind == CUT or place in (0, bins - 1)) and standing.seen[query, place] < work.terms.explored:
                promised = inf
            books.account[EXPECTED] += left * part * standing.hit[query, place]
            push(queue, promised, query, place, left, kind, stored.first[node, place], low, count)
            standing.turns[place] += 1
            charge(books.account, work.costs.queue + work.costs.estimate)
    for number in range(low, count):
        slot = number & mask
        stored.tuples[slot, PENDING] = standing.turns[stored.tuples[slot, BUCKET]]
    for place in range(bins):
        served[1 + place] = stored.tables[node, 0, place]
    served[0] = count
    charge(books.account, work.terms.turn)
    return True


@inlined
def give(line: Int, stored: Stored, standing: Standing, work: Work, books: Books, found: Int) -> int:
    """Give out the tuples of a cell that its query asks for, as far as units and room go."""
    (account, counts), costs, (tuples, _, values, ends, _, _, _, _, facts) = books, work.costs, stored
    query, place, number, low, high = line[RANK], line[SIDE], line[POINT], line[LOW], line[HIGH]
    mask, inside, left, why = tuples.shape[0] - 1, line[KIND] == INSIDE, line[NUMBER], DONE
    least, most, since, until = standing.low[query], standing.high[query], standing.since[query], standing.until[query]
    spent, credit, at, total = 0.0, account[CREDIT], counts[FOUND], standing.sums[query, place]
    emit = costs.emit + standing.hit[query, place] * work.terms.write
    chosen_before, squares = standing.bins[query, place] - at, standing.squares[query, place]
    if number < facts[OLDEST]:
        number = ends[place, HEAD]
    while number != NONE and number < high:
        slot = number & mask
        if number >= low:
            if credit - spent <= 0.0:
                why = TIRED
                break
            if at == found.shape[0]:
                why = NO_ROOM
                break
            time, chosen = tuples[slot, TIME], inside
            left -= 1
            tuples[slot, PENDING] -= 1
            if not inside:
                spent += costs.scan
                chosen = least <= values[slot, 0] <= most and since <= time < until
            if chosen:
                spent += emit
                found[at, 0], found[at, 1], found[at, 2] = query, tuples[slot, ROW], time
                have, value = chosen_before + at, values[slot, 1]
                if have > 0:
                    squares += (value - total / have) ** 2 * have / (have + 1)
                at += 1
                total += value
        number = tuples[slot, NEXT]
    standing.seen[query, place] += line[NUMBER] - left
    standing.bins[query, place] += at - counts[FOUND]
    standing.sums[query, place], standing.squares[query, place] = total, squares
    line[POINT], line[NUMBER], counts[FOUND] = number, left, at
    charge(account, spent)
    return why


@lean
def keep_reachable(queue: Queue, lost: Int, oldest: int) -> None:
    """Take out the cells whose tuples are all gone, and count these."""
    _, lines, entry, size = queue
    kept = 0
    for at in range(size[0]):
        line = lines[at]
        if entry[line, HIGH] > oldest:
            keep(queue, at, kept)
            kept += 1
        else:
            lost[entry[line, RANK], entry[line, SIDE]] += entry[line, NUMBER]
    size[0] = kept
    arrange(queue)


@inlined
def work_on_cells(queue: Queue, stored: Stored, standing: Standing, work: Work, books: Books, found: Int) -> int:
    """Work on the most promising cells as long as there are units; says why it stopped."""
    account, _ = books
    while account[CREDIT] > 0.0 and queue.size[0] > 0:
        line = queue.entry[queue.line[0]]
        why = DONE
        if line[HIGH] > stored.facts[OLDEST]:
            # A cell that is not done stays the first: how far it got is no part of the order.
            why = give(line, stored, standing, work, books, found)
            if why == NO_ROOM:
                return NO_ROOM
            if why == DONE:
                charge(account, work.costs.queue)
        if why == DONE:
            # What is left went with the window before it was worked on.
            standing.lost[line[RANK], line[SIDE]] += line[NUMBER]
            pop(queue)
    return DONE


@lean
def select_rows(
    queue: Queue, stored: Stored, standing: Standing, work: Work, books: Books, rows: Rows, found: Int
) -> int:
    """Offer zones as they end, work until the next tuple arrives, take it; `counts[AT]` is where to go on."""
    (account, counts), (_, costs, limits, pace, _, cells, _) = books, work
    while counts[AT] < rows.key.shape[0]:
        i = counts[AT]
        accrue(books, pace, rows.time[i])
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
        tables, begin = stored.facts[TABLES], max(stored.facts[OLDEST], standing.served[0])
        counts[UNPROCESSED] += insert_rows(stored, limits, rows, i, i + 1)
        # What memory drives out before any query had its turn with it.
        counts[UNPROCESSED] += max(0, stored.facts[OLDEST] - begin)
        units = costs.insert + costs.summarize + costs.table * cells * (stored.facts[TABLES] - tables)
        charge(account, units)
        account[SUMMARISING] += units
        taken_in(books, rows.time[i])
    return DONE
