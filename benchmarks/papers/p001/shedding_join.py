"""A sliding-window join of two streams under a budget: results are lost, never invented.

Idea: an arriving row first lets the expired rows of both windows go, then probes the window of the other stream, and is
offered to the memory of its own, where the policy decides who goes. To count results, a tally knows how many rows of
each key are held; of a band join on a value, it is a Fenwick tree over the ranks of values. To list them, rows of a key
are chained.
Guarantee: the results are a subset of those of the exact join, which is what unlimited memory gives; no window ever
holds more rows than its budget.
Cost: O(1) per row of an equi-join, O(log values) of a band join, and the decision of `held`; listing
adds O(1) per result, with a band a look at every row held.
Source: Srivastava, Widom, VLDB 2004, Figure 3 and section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.papers.p001.baselines import find_any_victim
from benchmarks.papers.p001.policies import Policy, recent
from benchmarks.papers.p001.window_memory import (
    COUNT,
    KEY,
    MOST,
    OLDEST,
    ORDER,
    REFUSED,
    ROW,
    TIME,
    Held,
    empty,
    expire,
    insert,
    remove,
)
from tocsin.jit import kernel
from tocsin.runtime.contract import Int

# Later than any time.
FOREVER = 1 << 62


class Arrivals(NamedTuple):
    """Rows of both streams in order of arrival.

    `clock` is the present for the window of S1 and of S2, `key` the row's place in the tally of its own stream, `first`
    and `last` the places in the other one's that match, `last` not among them.
    """

    stream: Int
    clock: Int
    key: Int
    first: Int
    last: Int

    def between(self, start: int, stop: int) -> Arrivals:
        """Give some of them."""
        return Arrivals._make(column[start:stop] for column in self)


class Window(NamedTuple):
    """The length of a window, how rows are dropped, the rows held, and the tally of their keys.

    `heads` and `chained` link the rows of a key for listing: the newest of each key, then older and newer by slot.
    """

    length: int
    policy: Policy
    held: Held
    tally: Int
    heads: Int
    chained: Int


def equi(times: tuple[Int, Int], keys: tuple[Int, Int], *, by_tuples: bool = False) -> Arrivals:
    """Bring two streams together that join where keys are equal; at equal times S1 comes first.

    Windows are of time, or `by_tuples`, of rows of their own stream.
    """
    order, stream = _merged(*times)
    key = np.concatenate(keys)[order]
    return Arrivals(stream, _clock(times, order, stream, by_tuples=by_tuples), key, key, key + 1)


def band(times: tuple[Int, Int], values: tuple[Int, Int], low: int, high: int, *, by_tuples: bool = False) -> Arrivals:
    """Bring two streams together that join where low <= S2.v - S1.v <= high; windows as those of `equi`."""
    order, stream = _merged(*times)
    known = [np.unique(column) for column in values]
    place = np.concatenate([np.searchsorted(known[i], values[i]) for i in (0, 1)])[order]
    v1, v2 = values
    first = [np.searchsorted(known[1], v1 + low), np.searchsorted(known[0], v2 - high)]
    last = [np.searchsorted(known[1], v1 + high, "right"), np.searchsorted(known[0], v2 - low, "right")]
    return Arrivals(
        stream,
        _clock(times, order, stream, by_tuples=by_tuples),
        place.astype(np.int64),
        np.concatenate(first)[order].astype(np.int64),
        np.concatenate(last)[order].astype(np.int64),
    )


def _merged(time1: Int, time2: Int) -> tuple[Int, Int]:
    order = np.argsort(np.concatenate([time1, time2]), kind="stable")
    return order, (order >= len(time1)).astype(np.int64)


def _clock(times: tuple[Int, Int], order: Int, stream: Int, *, by_tuples: bool) -> Int:
    if by_tuples:
        return np.stack([np.cumsum(stream == i) for i in (0, 1)], axis=1).astype(np.int64)
    time = np.concatenate(times)[order].astype(np.int64)
    return np.stack([time, time], axis=1)


@kernel
def add(tree: Int, place: int, change: int) -> None:
    """Add to a place of a Fenwick tree."""
    at = place + 1
    while at < tree.shape[0]:
        tree[at] += change
        at += at & -at


@kernel
def total_before(tree: Int, place: int) -> int:
    """Add up a Fenwick tree in front of a place."""
    total, at = 0, place
    while at > 0:
        total += tree[at]
        at -= at & -at
    return total


@kernel
def count(tally: Int, first: int, last: int, ranges: bool) -> int:
    """Count the rows held whose keys match; a tally without keys is that of a stream without a window."""
    if ranges:
        return total_before(tally, last) - total_before(tally, first) if tally.shape[0] > 1 else 0
    return tally[first] if tally.shape[0] > 1 else 0


@kernel
def due(slots: Int, state: Int, length: int) -> int:
    """The last time at which all rows held are alive."""
    oldest = state[OLDEST]
    return slots[oldest, TIME] + length if oldest >= 0 else FOREVER


@kernel
def note(window: Window, slot: int, change: int, ranges: bool) -> None:
    """Tell the tally that a row came or went."""
    key = window.held.slots[slot, KEY]
    if ranges:
        add(window.tally, key, change)
    else:
        window.tally[key] += change
    if window.heads.shape[0]:
        link(window, slot, key, change)


@kernel
def link(window: Window, slot: int, key: int, change: int) -> None:
    """Put a row in front of the chain of its key, or take it out."""
    heads, chained = window.heads, window.chained
    if change > 0:
        older = heads[key]
        chained[slot, 0], chained[slot, 1], heads[key] = older, -1, slot
        if older >= 0:
            chained[older, 1] = slot
        return
    older, newer = chained[slot, 0], chained[slot, 1]
    if newer >= 0:
        chained[newer, 0] = older
    else:
        heads[key] = older
    if older >= 0:
        chained[older, 1] = newer


@kernel
def clear(window: Window, now: int, ranges: bool) -> None:
    """Let what is expired go."""
    slot = expire(window.held, window.length, now)
    while slot >= 0:
        note(window, slot, -1, ranges)
        slot = expire(window.held, window.length, now)


@kernel
def admit(window: Window, time: int, key: int, row: int, ranges: bool) -> None:
    """Offer a row to the memory of its stream."""
    slot = find_any_victim(window.held, window.policy, time, key, row)
    if slot == REFUSED:
        return
    if slot >= 0:
        note(window, slot, -1, ranges)
        remove(window.held, slot)
    note(window, insert(window.held, window.policy, time, key, row), 1, ranges)


@kernel
def join(window1: Window, window2: Window, arrivals: Arrivals, begin: int, ranges: bool, pairs: Int) -> tuple[Int, int]:
    """Count the results of each row, the first of which has the number `begin`, and give how many rows were taken.

    With room for pairs, results (row of S1, row of S2) are listed too, until there is no room for all of a row.
    """
    # A row that only probes must not touch more than it reads: compiled code counts references to what it touches.
    stream, clock, keys, first, last = arrivals
    slots1, state1, tally1, length1 = window1.held.slots, window1.held.state, window1.tally, window1.length
    slots2, state2, tally2, length2 = window2.held.slots, window2.held.state, window2.tally, window2.length
    due1, due2 = due(slots1, state1, length1), due(slots2, state2, length2)
    hits, found, listing = np.zeros(stream.shape[0], np.int64), 0, pairs.shape[0] > 0
    for i in range(stream.shape[0]):
        if clock[i, 0] > due1:
            clear(window1, clock[i, 0], ranges)
            due1 = due(slots1, state1, length1)
        if clock[i, 1] > due2:
            clear(window2, clock[i, 1], ranges)
            due2 = due(slots2, state2, length2)
        hits[i] = count(tally2 if stream[i] == 0 else tally1, first[i], last[i], ranges)
        if listing:
            if hits[i] > pairs.shape[0] - found:
                return hits[:i], i
            put(pairs, found, window2 if stream[i] == 0 else window1, first[i], last[i], begin + i, stream[i])
            found += hits[i]
        if stream[i] == 0 and slots1.shape[0]:
            admit(window1, clock[i, 0], keys[i], begin + i, ranges)
            due1 = due(slots1, state1, length1)
        elif stream[i] and slots2.shape[0]:
            admit(window2, clock[i, 1], keys[i], begin + i, ranges)
            due2 = due(slots2, state2, length2)
    return hits, stream.shape[0]


@kernel
def put(pairs: Int, found: int, window: Window, first: int, last: int, row: int, side: int) -> None:
    """Write the results of one row behind those found; `side` is its stream."""
    slots = window.held.slots
    if window.heads.shape[0]:
        slot = window.heads[first]
        while slot >= 0:
            pairs[found, side], pairs[found, 1 - side] = row, slots[slot, ROW]
            found += 1
            slot = window.chained[slot, 0]
        return
    for at in range(window.held.state[COUNT]):
        slot = slots[at, ORDER]
        if first <= slots[slot, KEY] < last:
            pairs[found, side], pairs[found, 1 - side] = row, slots[slot, ROW]
            found += 1


def open_window(length: int, budget: int, policy: Policy, keys: int, *, listing: bool = False) -> Window:
    """Make an empty window for keys below a number; `listing` chains the rows of a key."""
    heads = np.full(keys if listing else 0, -1, np.int64)
    chained = np.full((budget if listing else 0, 2), -1, np.int64)
    return Window(length, policy, empty(budget, policy), np.zeros(keys + 1, np.int64), heads, chained)


class SheddingJoin:
    """The join over any number of batches; a stream without a window has None in its place, and is never probed."""

    def __init__(self, windows: Sequence[Window | None], *, ranges: bool = False) -> None:
        self.windows = [window or open_window(0, 0, recent(0), 0) for window in windows]
        self.ranges, self.rows = ranges, 0
        self.results = np.zeros(2, np.int64)

    @property
    def most_held(self) -> tuple[int, int]:
        """The most rows that each window ever held."""
        first, second = (int(window.held.state[MOST]) for window in self.windows)
        return first, second

    def count(self, arrivals: Arrivals) -> Int:
        """Count the results of each row; `results` adds up those found in the window of S1 and of S2."""
        return self._join(arrivals, np.empty((0, 2), np.int64))

    def pairs(self, arrivals: Arrivals) -> Int:
        """List the results of rows, as numbers of the two rows in the order of all arrivals."""
        room, listed = 2 * len(arrivals.stream) + 64, [np.empty((0, 2), np.int64)]
        while len(arrivals.stream):
            pairs = np.empty((room, 2), np.int64)
            hits = self._join(arrivals, pairs)
            listed.append(pairs[: hits.sum()])
            arrivals, room = arrivals.between(len(hits), len(arrivals.stream)), room if len(hits) else 2 * room
        return np.concatenate(listed)

    def _join(self, arrivals: Arrivals, pairs: Int) -> Int:
        first, second = self.windows
        hits, taken = join(first, second, arrivals, self.rows, self.ranges, pairs)
        self.rows += taken
        for window in (0, 1):  # A row of S2 finds results in the window of S1.
            self.results[window] += hits[arrivals.stream[:taken] != window].sum()
        return hits
