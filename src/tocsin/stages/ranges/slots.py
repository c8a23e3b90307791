"""Queries by slot, for those that count in a window or begin anew; ids are found by a hash table.

A query keeps its slot from its registration until it is gone. A *life* of it begins with its registration, and anew
each time it is re-armed; in between it rests. Only what a life is made of is written into pages: what a query has
counted is found again from the elements, or stands in the pages of the index.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int
from tocsin.runtime.state_codec import pack, unpack
from tocsin.stages.ranges.requests import Requests
from tocsin.stages.ranges.shelves import ID as ID_OF_TABLE
from tocsin.stages.ranges.shelves import find, remove

# Slots per page.
PAGE = 1024

# Places in a row of `facts`. THRESHOLD: 0 where the slot is empty. SINCE: the number of the first element that counts
# for this life, -1 while it rests. UNTIL: the clock at which a rest ends, AWAKE if there is none. TOTAL: what the query
# had when it was last evaluated. EXPIRED: what the index of expired elements had for it then. END: the element of the
# chunk before which it is terminated.
ID, THRESHOLD, NUMBER, SINCE, UNTIL, TOTAL, EXPIRED, END = range(8)
_STORED = slice(ID, EXPIRED)
AWAKE = -(1 << 63)
NEVER = (1 << 63) - 1
# Places in `counts`: empty slots, and registrations so far.
FREE, REGISTERED = range(2)

assert ID == ID_OF_TABLE


class Slots(NamedTuple):
    """All queries: facts and ranges by slot, the table that finds a slot by id, and a stack of empty slots."""

    facts: Int
    low: Float
    high: Float
    table: NDArray[np.int32]
    free: Int
    counts: Int

    def __len__(self) -> int:
        """Count the queries that are there."""
        return len(self.facts) - int(self.counts[FREE])


def make_slots(capacity: int, dims: int) -> Slots:
    """Make empty slots; the smallest is used first."""
    facts = np.zeros((capacity, 8), dtype=np.int64)
    facts[:, [SINCE, UNTIL, END]] = -1, AWAKE, NEVER
    nowhere = np.zeros((capacity, dims))
    table = np.full(1 << max(4, (2 * capacity - 1).bit_length()), -1, dtype=np.int32)
    return Slots(facts, nowhere, nowhere.copy(), table, np.arange(capacity)[::-1].copy(), np.array([capacity, 0]))


def with_room(slots: Slots, new: int) -> Slots:
    """Give slots of which at least `new` are empty."""
    free, capacity = int(slots.counts[FREE]), len(slots.facts)
    if free >= new:
        return slots
    larger = make_slots(max(2 * capacity, capacity - free + new), slots.low.shape[1])
    for column, old in zip(larger[:3], slots[:3], strict=True):
        column[:capacity] = old
    larger.counts[REGISTERED] = slots.counts[REGISTERED]
    settle_in(larger)
    return larger


@kernel
def settle_in(slots: Slots) -> None:
    """Make the table and the stack of empty slots from the facts."""
    free = 0
    for slot in range(len(slots.facts) - 1, -1, -1):
        if slots.facts[slot, THRESHOLD]:
            slots.table[find(slots.table, slots.facts, slots.facts[slot, ID])] = slot
        else:
            slots.free[free] = slot
            free += 1
    slots.counts[FREE] = free


@kernel
def look_up(slots: Slots, ids: Int) -> Int:
    """Give the slot of each id, -1 where there is none."""
    found = np.empty(len(ids), dtype=np.int64)
    for at in range(len(ids)):
        found[at] = slots.table[find(slots.table, slots.facts, ids[at])]
    return found


@kernel
def enrol(slots: Slots, requests: Requests, number: int) -> Int:
    """Take requests of a chunk whose first element has a number; give the slot of each, -1 where an id is not there.

    A slot that ends here is emptied only after the chunk, so that it stands for one query as long as the chunk lasts.
    """
    facts, counts = slots.facts, slots.counts
    which = np.empty(len(requests.at), dtype=np.int64)
    for request in range(len(requests.at)):
        place = find(slots.table, facts, requests.id[request])
        which[request] = slots.table[place]
        if requests.is_registration[request]:
            counts[FREE] -= 1
            slot = slots.free[counts[FREE]]
            which[request] = slot
            slots.table[place] = slot
            facts[slot, ID] = requests.id[request]
            facts[slot, THRESHOLD] = requests.threshold[request]
            facts[slot, NUMBER] = counts[REGISTERED]
            facts[slot, SINCE] = number + requests.at[request]
            facts[slot, TOTAL] = 0
            facts[slot, EXPIRED] = 0
            slots.low[slot] = requests.low[request]
            slots.high[slot] = requests.high[request]
            counts[REGISTERED] += 1
        elif which[request] >= 0:
            facts[which[request], END] = requests.at[request]
            remove(slots.table, facts, requests.id[request])
    return which


@kernel
def empty(slots: Slots, gone: Int) -> None:
    """Empty slots; the id of one that was terminated has left the table, and may stand there again."""
    facts = slots.facts
    for slot in gone:
        if facts[slot, END] == NEVER:
            remove(slots.table, facts, facts[slot, ID])
        facts[slot, THRESHOLD] = 0
        facts[slot, SINCE] = -1
        facts[slot, UNTIL] = AWAKE
        facts[slot, END] = NEVER
        slots.free[slots.counts[FREE]] = slot
        slots.counts[FREE] += 1


def page_of(slots: Slots, page: int) -> bytes | None:
    """Write the queries of a page of slots; None if there are none."""
    start = page * PAGE
    there = start + np.flatnonzero(slots.facts[start : start + PAGE, THRESHOLD])
    if not len(there):
        return None
    return pack(
        {"slot": there, "facts": slots.facts[there, _STORED], "low": slots.low[there], "high": slots.high[there]}
    )


def read_slots(pages: Mapping[str, bytes], dims: int, registered: int) -> Slots:
    """Read what `page_of` wrote."""
    parts = [unpack(data)[0] for data in pages.values()]
    slots = make_slots(1 + max((int(part["slot"][-1]) for part in parts), default=0), dims)
    for part in parts:
        slots.facts[part["slot"], _STORED] = part["facts"]
        slots.low[part["slot"]], slots.high[part["slot"]] = part["low"], part["high"]
    slots.counts[REGISTERED] = registered
    settle_in(slots)
    return slots


class Line:
    """Slots that wait for a number to come, as one of their facts says: an element's, or a time on the clock.

    What is added waits for no less than all that was added before. Entries that no longer hold (the fact has changed)
    are passed over when they come up, and thrown away when they are many.
    """

    def __init__(self, fact: int) -> None:
        self.fact = fact
        self._blocks: deque[tuple[Int, Int]] = deque()
        self._size = 0

    def add(self, slots: Slots, which: Int) -> None:
        """Let slots wait."""
        if not len(which):
            return
        numbers = slots.facts[which, self.fact]
        order = np.argsort(numbers, kind="stable")
        self._blocks.append((numbers[order], which[order]))
        self._size += len(which)
        if self._size > 2 * len(slots) + 4096:
            numbers, which = self._take_blocks(len(self._blocks))
            valid = slots.facts[which, self.fact] == numbers
            self._blocks.append((numbers[valid], which[valid]))
            self._size = int(np.count_nonzero(valid))

    def take(self, slots: Slots, now: int) -> Int:
        """Give the slots, each once, whose number has come."""
        whole = 0
        while whole < len(self._blocks) and self._blocks[whole][0][-1] <= now:
            whole += 1
        numbers, which = self._take_blocks(whole)
        if self._blocks and self._blocks[0][0][0] <= now:
            first = self._blocks[0]
            part = int(first[0].searchsorted(now, side="right"))
            numbers, which = np.append(numbers, first[0][:part]), np.append(which, first[1][:part])
            self._blocks[0] = first[0][part:], first[1][part:]
        self._size -= len(which)
        return np.unique(which[slots.facts[which, self.fact] == numbers])

    def _take_blocks(self, count: int) -> tuple[Int, Int]:
        none = np.zeros(0, dtype=np.int64)
        taken = [self._blocks.popleft() for _ in range(count)]
        return np.concatenate([none, *(b[0] for b in taken)]), np.concatenate([none, *(b[1] for b in taken)])
