"""Walk over a chunk with one query: elements come and expire in their order, and it matures, rests and begins anew."""

from __future__ import annotations

from typing import NamedTuple

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int
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
def weight_inside(low: Float, high: Float, values: Float, weights: Int) -> int:
    """Give the weight of the elements that lie in a range."""
    weight = 0
    if values.shape[1] == 1:
        # One dimension and no branch: so the machine takes several elements at a time.
        line, least, most = values.reshape(values.size), low[0], high[0]
        for row in range(len(weights)):
            weight += weights[row] if (least <= line[row]) & (line[row] <= most) else 0
        return weight
    for row in range(len(weights)):
        inside = True
        for dim in range(values.shape[1]):
            inside &= (low[dim] <= values[row, dim]) & (values[row, dim] <= high[dim])
        weight += weights[row] if inside else 0
    return weight


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
    """Walk with one candidate to the end of the chunk or of the query; give its fate.

    As many elements are taken at once as cannot suffice together: then the order in which they come and expire does not
    matter. Where they could, fewer are tried, down to one.
    """
    facts, slot, fate = slots.facts, candidates.slot[which], COUNTS
    low, high, threshold = slots.low[slot], slots.high[slot], facts[slot, THRESHOLD]
    values, weights, oldest, row = chunk.values, chunk.weights, chunk.oldest, chunk.start - chunk.first
    stop, stride = min(len(oldest), facts[slot, END]), len(oldest)
    total, expired, gain = candidates.total[which], candidates.expired[which], 0
    # Rows of elements that expired, and the next element that comes; the candidate has counted the one before.
    past, at = max(oldest[0], facts[slot, SINCE]) - chunk.first, candidates.at[which] + 1
    end = at
    while True:
        if end - at <= 1 or total + gain < threshold:
            gone = max(past, oldest[end - 1] - chunk.first)
            lost = weight_inside(low, high, values[past:gone], weights[past:gone])
            total, expired = total + gain - lost, expired + lost
            past, at, stride = gone, end, 2 * stride
        else:
            stride = max((end - at) // 8, 1)
        if total >= threshold:
            report(slots, slot, at - 1, total, outcome)
            if rearm_us == ONCE:
                return GONE
            at = rearm(slots, slot, chunk, at - 1, rearm_us)
            fate, total, expired, past = ANEW, 0, 0, row + at
            if at >= stop:
                # It may be terminated before it would begin anew: then it is gone, whatever is noted here.
                return RESTS
        if at >= stop:
            break
        end = min(stop, at + stride)
        gain = weight_inside(low, high, values[row + at : row + end], weights[row + at : row + end])
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
