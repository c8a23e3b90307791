"""The m-way sliding window join on input that may still be out of order: what each tuple could find and what it finds.

Rules do not join so (`operators/join/threshold_join.py`): the paper's experiments run on it
(`python -m benchmarks disorder`).

Idea: each stream has a window. A tuple that is not behind the newest one moves the clock, drops what has left the
windows of the others, probes those, and is stored. A tuple that is behind finds nothing, and is stored if its window
still reaches back to it, so that later ones find it. Results are counted, not built: by counts per value where the
condition compares values, by a look at each stored tuple where it does not.

    join = WindowJoin([5_000_000] * 3, Equal(101))
    cross, results, in_order, found = join.take(stream, time, values)

A result is a tuple of each stream, each at most its own window before the newest; its time is that of the newest.

Guarantee: counts are those of Algorithm 2, whatever the cut into calls; on tuples in order of time they are all
results there are, each found once.
Cost: per tuple O(m) for `Equal` and for the centre of a `Star`; the centre's window for its leaves; the other window
for `Near`; the whole cross join for `Where`. A late tuple moves those after it. A call adds the size of the windows.
Source: Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016, Algorithm 2.
There a window is cleared by tuples of other streams alone; here by all, which no probe can notice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import NEVER_SEEN, Bools, Float, Int

ANY, EQUAL, STAR, NEAR = 0, 1, 2, 3

# A result: its time, and the number of the tuple of each stream, counted as the join received them.
Result = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class Equal:
    """All streams have the same value: a whole number below `domain`."""

    domain: int


@dataclass(frozen=True)
class Star:
    """Value i of the first stream, the centre, equals the value of stream i + 1: whole numbers below `domain`."""

    domain: int


@dataclass(frozen=True)
class Near:
    """The two values of two streams are coordinates less than `distance` apart."""

    distance: float


@dataclass(frozen=True)
class Where:
    """A function of the values of a tuple of each stream; results are listed, one by one: for tests alone."""

    holds: Callable[..., bool]


class Windows(NamedTuple):
    """The stored tuples of each stream by time: times, numbers, values; first and end; how many have which value; T."""

    time: Int
    number: Int
    values: Float
    ends: Int
    counts: Int
    clock: Int


class Probed(NamedTuple):
    """Per tuple: the size of the cross join, the results, whether it came in order; the results, where listed."""

    cross: Float
    results: Float
    in_order: Bools
    found: list[Result]


@kernel
def drop_expired(of: int, oldest: int, windows: Windows, keyed: bool) -> None:
    """Drop the tuples of a window that are older than `oldest`."""
    head, tail = windows.ends[of, 0], windows.ends[of, 1]
    while head < tail and windows.time[of, head] < oldest:
        if keyed:
            windows.counts[of, int(windows.values[of, head, 0])] -= 1
        head += 1
    windows.ends[of, 0] = head


@kernel
def store(of: int, due: int, number: int, values: Float, windows: Windows, keyed: bool) -> None:
    """Put a tuple into its window, behind those of its time."""
    at = windows.ends[of, 1]
    while at > windows.ends[of, 0] and windows.time[of, at - 1] > due:
        windows.time[of, at], windows.number[of, at] = windows.time[of, at - 1], windows.number[of, at - 1]
        windows.values[of, at] = windows.values[of, at - 1]
        at -= 1
    windows.time[of, at], windows.number[of, at] = due, number
    windows.values[of, at] = values
    windows.ends[of, 1] += 1
    if keyed:
        windows.counts[of, int(values[0])] += 1


@kernel
def count_equal(of: int, values: Float, counts: Int) -> float:
    """Results of a tuple where all streams have the same value."""
    found = 1.0
    for other in range(counts.shape[0]):
        if other != of:
            found *= counts[other, int(values[0])]
    return found


@kernel
def count_star(of: int, values: Float, windows: Windows) -> float:
    """Results of a tuple where each stream but the first shares a value with the first."""
    counts, centre = windows.counts, windows.values[0]
    streams = counts.shape[0]
    if of == 0:
        found = 1.0
        for leaf in range(1, streams):
            found *= counts[leaf, int(values[leaf - 1])]
        return found
    found = 0.0
    for at in range(windows.ends[0, 0], windows.ends[0, 1]):
        if centre[at, of - 1] == values[0]:
            product = 1.0
            for leaf in range(1, streams):
                if leaf != of:
                    product *= counts[leaf, int(centre[at, leaf - 1])]
            found += product
    return found


@kernel
def count_near(of: int, values: Float, distance: float, windows: Windows) -> float:
    """Results of a tuple where two streams come close."""
    other, found = windows.values[1 - of], 0.0
    for at in range(windows.ends[1 - of, 0], windows.ends[1 - of, 1]):
        across, along = other[at, 0] - values[0], other[at, 1] - values[1]
        if across * across + along * along < distance * distance:
            found += 1.0
    return found


@kernel
def probe_and_store(
    stream: Int, time: Int, values: Float, first: int, windows: Windows, spans: Int, condition: tuple[int, float, bool]
) -> tuple[Float, Float, Bools]:
    """Run Algorithm 2 over tuples, numbered from `first`, as they come; there must be room for all in each window."""
    kind, distance, count_late = condition
    count, streams = time.shape[0], spans.shape[0]
    cross, results, in_order = np.zeros(count), np.zeros(count), np.zeros(count, np.bool_)
    for row in range(count):
        of, due, own = stream[row], time[row], values[row]
        if due >= windows.clock[0]:
            windows.clock[0], in_order[row] = due, True
            for other in range(streams):
                drop_expired(other, due - spans[other], windows, kind == EQUAL or (kind == STAR and other > 0))
        if in_order[row] or count_late:
            cross[row] = 1.0
            for other in range(streams):
                if other != of:
                    cross[row] *= windows.ends[other, 1] - windows.ends[other, 0]
            if kind == EQUAL:
                results[row] = count_equal(of, own, windows.counts)
            elif kind == STAR and cross[row] > 0:
                results[row] = count_star(of, own, windows)
            elif kind == NEAR:
                results[row] = count_near(of, own, distance, windows)
        if due >= windows.clock[0] - spans[of]:
            store(of, due, first + row, own, windows, kind == EQUAL or (kind == STAR and of > 0))
    return cross, results, in_order


def completed_results(
    windows_us: Sequence[int], stream: Int, time: Int, results: Float, in_order: Bools, clock: int
) -> Float:
    """Estimate the results that each tuple completes in a join that also joins late tuples with all their partners.

    `results` counts what a late tuple finds in the windows of this join, and `clock` is the newest time before the
    tuples. A tuple that is d late has further results, whose newest tuple is less than d newer: a share d / W of the
    others for each other stream, at most all of them.
    """
    windows = np.maximum(np.array(windows_us), 1)[stream]
    behind = np.maximum.accumulate(np.maximum(time, clock)) - time
    missed = (len(windows_us) - 1) * np.minimum(behind, windows) / windows
    return results * np.where(in_order, 1.0, 1.0 + missed)


class WindowJoin:
    """The join and its windows; `received` counts the tuples taken so far.

    With `count_late` a tuple that is behind is told, too, what it would find in the windows as they are. Nobody gets
    that: it says how much is being lost.
    """

    def __init__(
        self, windows_us: Sequence[int], condition: Equal | Star | Near | Where, *, count_late: bool = False
    ) -> None:
        self.spans, self.condition, self.received = np.array(windows_us, np.int64), condition, 0
        self.count_late = count_late
        streams = len(windows_us)
        if isinstance(condition, Near) and streams != 2:
            message = f"`Near` must have two streams; got {streams}"
            raise ValueError(message)
        domain = condition.domain if isinstance(condition, Equal | Star) else 1
        self._kind = {Equal: EQUAL, Star: STAR, Near: NEAR, Where: ANY}[type(condition)]
        self._distance = condition.distance if isinstance(condition, Near) else 0.0
        empty = np.zeros((streams, 0), np.int64)
        counts, clock = np.zeros((streams, domain), np.int64), np.full(1, NEVER_SEEN, np.int64)
        self.windows = Windows(empty, empty, np.zeros((streams, 0, 0)), np.zeros((streams, 2), np.int64), counts, clock)

    def take(self, stream: Int, time: Int, values: NDArray[np.int64] | Float) -> Probed:
        """Take tuples in the order in which they come; `values` has a row per tuple, unused places hold anything."""
        given = np.ascontiguousarray(values, np.float64)
        self._check(stream, given)
        if isinstance(self.condition, Where):
            return self._take_listing(stream, time, given, self.condition.holds)
        self._make_room(np.bincount(stream, minlength=len(self.spans)), given.shape[1])
        return self._run(stream, time, given)

    def _run(self, stream: Int, time: Int, values: Float) -> Probed:
        condition = (self._kind, self._distance, self.count_late)
        taken = probe_and_store(stream, time, values, self.received, self.windows, self.spans, condition)
        self.received += len(time)
        return Probed(*taken, [])

    def _take_listing(self, stream: Int, time: Int, values: Float, holds: Callable[..., bool]) -> Probed:
        """Take tuples one by one and list the results of each."""
        parts, found = [], []
        for row in range(len(time)):
            one = slice(row, row + 1)
            self._make_room(np.bincount(stream[one], minlength=len(self.spans)), values.shape[1])
            part = self._run(stream[one], time[one], values[one])
            if part.cross[0]:
                of, own = int(stream[row]), [(self.received - 1, values[row])]
                sides = [own if other == of else self._stored(other) for other in range(len(self.spans))]
                chosen = [c for c in itertools.product(*sides) if holds(*(tuple(v.tolist()) for _, v in c))]
                part.results[0] = len(chosen)
                if part.in_order[0]:
                    found += [(int(time[row]), tuple(number for number, _ in c)) for c in chosen]
            parts.append(part[:3])
        if not parts:
            return self._run(stream, time, values)
        cross, results, in_order = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return Probed(cross, results, in_order, found)

    def _stored(self, of: int) -> list[tuple[int, Float]]:
        head, tail = self.windows.ends[of]
        return [(int(self.windows.number[of, at]), self.windows.values[of, at]) for at in range(head, tail)]

    def _make_room(self, coming: Int, width: int) -> None:
        """Move the windows to the beginning of arrays that also hold all tuples to come."""
        old = self.windows
        held = old.ends[:, 1] - old.ends[:, 0]
        streams, room = len(held), int((held + coming).max(initial=0))
        time, number = np.zeros((streams, room), np.int64), np.zeros((streams, room), np.int64)
        values = np.zeros((streams, room, width))
        for of in range(streams):
            there = slice(old.ends[of, 0], old.ends[of, 1])
            time[of, : held[of]], number[of, : held[of]] = old.time[of, there], old.number[of, there]
            if held[of]:
                values[of, : held[of]] = old.values[of, there]
        ends = np.stack([np.zeros_like(held), held], axis=1)
        self.windows = Windows(time, number, values, ends, old.counts, old.clock)

    def _check(self, stream: Int, values: Float) -> None:
        """Refuse values that the windows or the counts have no place for."""
        held = self.windows.values
        if held.size and held.shape[2] != values.shape[1]:
            message = f"tuples must have as many values as before, {held.shape[2]}; got {values.shape[1]}"
            raise ValueError(message)
        if not isinstance(self.condition, Equal | Star):
            return
        used = [values[:, :1]] if isinstance(self.condition, Equal) else [values[stream > 0, :1]]
        if isinstance(self.condition, Star):
            used.append(values[stream == 0, : len(self.spans) - 1])
        for part in used:
            if not ((part >= 0) & (part < self.condition.domain) & (part == np.floor(part))).all():
                message = f"values must be whole numbers from 0 to below {self.condition.domain}"
                raise ValueError(message)
