"""Walk over a chunk with one query: elements come and expire in their order, and it matures, rests and begins anew."""

from __future__ import annotations

from typing import NamedTuple

from tocsin.jit import kernel
from tocsin.logic import Float, Int
from tocsin.stages.ranges.slots import (
    AWAKE,
    END,
    EXPIRED,
    ID,
    NUMBER,
    SINCE,
    THRESHOLD,
    TOTAL,
    UNTIL,
    Slots,
)

# What became of a query: it counts on, or counts on in a new life, or rests, or is gone.
COUNTS, ANEW, RESTS, GONE = range(4)
# Elements of which the weight is summed up at once: only where this may suffice they are taken one by one.
BLOCK = 64
# A re-arming time that says: a query that matured is gone.
ONCE = -1


class Chunk(NamedTuple):
    """Elements that are taken together, among all elements that count, of which row 0 has number `first`.

    `start` is the number of the chunk's first element; `oldest` has, for each of its elements, the number of the first
    one that has not expired when it is counted.
    """

    values: Float
    weights: Int
    moments: Int
    oldest: Int
    first: int
    start: int


class Candidates(NamedTuple):
    """Queries that may mature, each from an element of the chunk on.

    `total` is what a query has there, if nothing expires in the chunk; `expired` what the index of expired elements
    has for it.
    """

    slot: Int
    at: Int
    total: Int
    expired: Int


class Outcome(NamedTuple):
    """What became of each candidate, rows of what matured (id, index, total, number), and how far all that is.

    `done`: candidates walked, rows written.
    """

    fate: Int
    matured: Int
    done: Int


@kernel
def weight_inside(slots: Slots, slot: int, chunk: Chunk, start: int, stop: int) -> int:
    """Give the weight of the elements of some rows that lie in the range of a query."""
    dims, weight = chunk.values.shape[1], 0
    values = chunk.values.reshape(chunk.values.size)
    if dims == 1:
        # Without branches, several at a time.
        low, high = slots.low[slot, 0], slots.high[slot, 0]
        for row in range(start, stop):
            weight += chunk.weights[row] if (low <= values[row]) & (values[row] <= high) else 0
        return weight
    for row in range(start, stop):
        inside = True
        for dim in range(dims):
            value = values[row * dims + dim]
            inside &= (slots.low[slot, dim] <= value) & (value <= slots.high[slot, dim])
        weight += chunk.weights[row] if inside else 0
    return weight


@kernel
def weight_expired(slots: Slots, slot: int, chunk: Chunk, start: int, stop: int) -> int:
    """Give the weight that a query loses when the elements from number `start` to before `stop` expire."""
    start = max(start, slots.facts[slot, SINCE])
    return weight_inside(slots, slot, chunk, start - chunk.first, stop - chunk.first)


@kernel
def rearm(slots: Slots, slot: int, chunk: Chunk, at: int, rearm_us: int) -> int:
    """Let a query rest after element `at`; give the element at which it begins anew, or how many there are."""
    facts, n = slots.facts, len(chunk.oldest)
    until = chunk.moments[chunk.start - chunk.first + at] + rearm_us
    at += 1
    while at < n and chunk.moments[chunk.start - chunk.first + at] < until:
        at += 1
    awake = at < n
    facts[slot, UNTIL] = AWAKE if awake else until
    facts[slot, SINCE] = chunk.start + at if awake else -1
    return at


@kernel
def report(slots: Slots, slot: int, at: int, total: int, outcome: Outcome) -> None:
    """Write down that a query matured."""
    row = outcome.done[1]
    outcome.matured[row, 0] = slots.facts[slot, ID]
    outcome.matured[row, 1] = at
    outcome.matured[row, 2] = total
    outcome.matured[row, 3] = slots.facts[slot, NUMBER]
    outcome.done[1] += 1


@kernel
def walk(slots: Slots, chunk: Chunk, candidates: Candidates, which: int, rearm_us: int, outcome: Outcome) -> int:
    """Walk with one candidate to the end of the chunk or of the query; give its fate."""
    facts, slot, fate = slots.facts, candidates.slot[which], COUNTS
    offset, stop = chunk.start - chunk.first, min(len(chunk.oldest), facts[slot, END])
    threshold, at = facts[slot, THRESHOLD], candidates.at[which]
    past = chunk.oldest[at]
    lost = weight_expired(slots, slot, chunk, chunk.oldest[0], past)
    total, expired = candidates.total[which] - lost, candidates.expired[which] + lost
    # The next element to be counted.
    at += 1
    while total >= threshold or at < stop:
        if total >= threshold:
            report(slots, slot, at - 1, total, outcome)
            if rearm_us == ONCE:
                return GONE
            at = rearm(slots, slot, chunk, at - 1, rearm_us)
            if at >= stop:
                # It may be terminated before it would begin anew: then it is gone, whatever is noted here.
                return RESTS
            fate, total, expired, past = ANEW, 0, 0, chunk.oldest[at]
        end = min(stop, at + BLOCK)
        gain = weight_inside(slots, slot, chunk, offset + at, offset + end)
        if total + gain < threshold:
            lost = weight_expired(slots, slot, chunk, past, chunk.oldest[end - 1])
            total, expired = total + gain - lost, expired + lost
            past, at = chunk.oldest[end - 1], end
        while at < end and total < threshold:
            lost = weight_expired(slots, slot, chunk, past, chunk.oldest[at])
            total, expired = total - lost, expired + lost
            past = chunk.oldest[at]
            total += weight_inside(slots, slot, chunk, offset + at, offset + at + 1)
            at += 1
    facts[slot, TOTAL] = total
    facts[slot, EXPIRED] = expired
    return fate


@kernel
def walk_all(slots: Slots, chunk: Chunk, candidates: Candidates, rearm_us: int, outcome: Outcome) -> bool:
    """Walk with each candidate, as long as there is room for rows; tell whether all are done."""
    while outcome.done[0] < len(candidates.slot):
        which = outcome.done[0]
        if outcome.done[1] + len(chunk.oldest) > len(outcome.matured):
            return False
        outcome.fate[which] = walk(slots, chunk, candidates, which, rearm_us, outcome)
        outcome.done[0] += 1
    return True
