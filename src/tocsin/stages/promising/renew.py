"""Renewing an anytime join: the oldest tuples go, and some of them are taken again, as partners alone.

Idea: what a join does when tuples grow old is left to whoever knows their rows; here they go many at a time. A tuple
that is taken again has the places in summaries that it had, and stands behind all others, with a new row and time.
Guarantee: it is told of which tuples pairs were left that nobody looked at: those with something left to probe, and
those that a later one waits to look at, within its reach.
Cost: O(1) per tuple that goes and per region that waits, as a rule: a walk to the first old tuple of its key.
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import inlined, kernel, lean
from tocsin.runtime.contract import Bools, Int
from tocsin.stages.promising.layout import Limits
from tocsin.stages.promising.queue import HIGH, LOW, NUMBER, POINT, SIDE, Queue
from tocsin.stages.promising.stored import (
    BUCKET,
    COUNT,
    HEAD,
    KEY,
    NEXT,
    NONE,
    OLDEST,
    PENDING,
    ROW,
    TIME,
    Rows,
    Stored,
    insert_rows,
    let_go,
)

# Later than all times.
_NEVER = 1 << 62


@kernel
def renew_tuples(
    queue: Queue, sides: tuple[Stored, Stored], limits: Limits, before: int, again: Int, now: tuple[int, int, int]
) -> Int:
    """Let tuples go whose rows have numbers below `before`, but take those of rows `again`, in order, once more.

    `now` is the number of the next row, the time, and how far a tuple reaches back. Gives the rows of tuples that went,
    for good or not, before all their pairs were looked at.
    """
    first, second = sides
    base, time_us, reach_us = now
    gone = count_before(first, before), count_before(second, before)
    late = np.zeros(gone[0], np.bool_), np.zeros(gone[1], np.bool_)
    mark_wanted(queue, first, second, reach_us, (np.full(gone[0], _NEVER), np.full(gone[1], _NEVER)), late)
    left = np.empty(gone[0] + gone[1], np.int64)
    count = renew_side(first, limits, again, base, time_us, late[0], left, 0)
    count = renew_side(second, limits, again, base, time_us, late[1], left, count)
    return left[:count].copy()


@lean
def count_before(stored: Stored, row: int) -> int:
    """How many of the oldest tuples have rows with lower numbers."""
    tuples, facts, mask = stored.tuples, stored.facts, stored.tuples.shape[0] - 1
    low, high = facts[OLDEST], facts[COUNT]
    while low < high:
        middle = (low + high) // 2
        if tuples[middle & mask, ROW] < row:
            low = middle + 1
        else:
            high = middle
    return int(low - facts[OLDEST])


@lean
def mark_wanted(
    queue: Queue, first: Stored, second: Stored, reach_us: int, since: tuple[Int, Int], wanted: tuple[Bools, Bools]
) -> None:
    """Mark the oldest tuples of either stream that a region of the other one waits to look at; `since` is scratch.

    Most regions begin before all these tuples and end behind them. Of those it is noted at the first tuple of their key
    how old one may be for any of them, so that a frequent key is not walked through again and again.
    """
    _, lines, entry, size = queue
    for at in range(size[0]):
        line = entry[lines[at]]
        if line[SIDE] == 0:
            mark_of_region(line, first, second, reach_us, since[1], wanted[1])
        else:
            mark_of_region(line, second, first, reach_us, since[0], wanted[0])
    mark_since(first, since[0], wanted[0])
    mark_since(second, since[1], wanted[1])


@inlined
def mark_of_region(line: Int, mine: Stored, other: Stored, reach_us: int, since: Int, wanted: Bools) -> None:
    """Go from a region through its bucket of the other stream, as far as the tuples go that are asked about."""
    slot, begin, mask = line[NUMBER] & (mine.tuples.shape[0] - 1), other.facts[OLDEST], other.tuples.shape[0] - 1
    low, high = max(line[LOW], line[POINT]), min(line[HIGH], begin + wanted.shape[0])
    whole = low <= begin and high == begin + wanted.shape[0]
    number = other.ends[mine.tuples[slot, BUCKET], HEAD]
    if line[NUMBER] < mine.facts[OLDEST] or number == NONE or number >= high:
        return
    key, oldest = mine.tuples[slot, KEY], mine.tuples[slot, TIME] - reach_us
    while number != NONE and number < high:
        its = number & mask
        if other.tuples[its, KEY] == key:
            if whole:
                since[number - begin] = min(since[number - begin], oldest)
                return
            if number >= low and other.tuples[its, TIME] >= oldest:
                wanted[number - begin] = True
        number = other.tuples[its, NEXT]


@lean
def mark_since(stored: Stored, since: Int, wanted: Bools) -> None:
    """Mark the oldest tuples by what is noted at the first of their key."""
    tuples, begin, mask = stored.tuples, stored.facts[OLDEST], stored.tuples.shape[0] - 1
    for i in range(wanted.shape[0]):
        slot = (begin + i) & mask
        number = stored.ends[tuples[slot, BUCKET], HEAD]
        while tuples[number & mask, KEY] != tuples[slot, KEY]:
            number = tuples[number & mask, NEXT]
        if tuples[slot, TIME] >= since[number - begin]:
            wanted[i] = True


@kernel
def renew_side(
    stored: Stored, limits: Limits, again: Int, base: int, time_us: int, late: Bools, left: Int, count: int
) -> int:
    """Let the oldest tuples of a stream go, and take some again; notes rows that had pairs left behind `count` others.

    The i-th of `again` becomes the row `base` + i.
    """
    tuples, own, gone, mask = stored.tuples, stored.values, late.shape[0], stored.tuples.shape[0] - 1
    slots, numbers, place, rows = np.empty(gone, np.int64), np.empty(gone, np.int64), 0, 0
    for i in range(gone):
        slot = (stored.facts[OLDEST] + i) & mask
        if late[i] or tuples[slot, PENDING] > 0:
            left[count] = tuples[slot, ROW]
            count += 1
        while place < again.shape[0] and again[place] < tuples[slot, ROW]:
            place += 1
        if place < again.shape[0] and again[place] == tuples[slot, ROW]:
            slots[rows], numbers[rows] = slot, base + place
            rows += 1
    slots = slots[:rows]
    old = tuples[slots]
    kept = Rows(
        np.ascontiguousarray(old[:, KEY]),
        np.full(rows, time_us),
        numbers[:rows],
        np.ascontiguousarray(old[:, BUCKET]),
        stored.places[slots],
        own[slots],
    )
    let_go(stored, gone)
    insert_rows(stored, limits, kept, 0, rows)
    return count
