"""Run a workload of range thresholding through anything that has its interface, and time what is asked of it.

Timed are the calls of `register`, `terminate` and `push`; their arguments are made before. An operation is an element,
a registration, a termination that took effect, or a maturity.
"""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.ranges_data import Int, Workload, expected_life

# Where a stream is sampled for the baselines, as shares of it: the middles of its fifths.
SAMPLED = (0.1, 0.3, 0.5, 0.7, 0.9)
GROUP = 1000
TRACED = 100

Call = tuple[str, tuple[Any, ...]]


class Sample(NamedTuple):
    """The queries alive at one point of a stream, what they had, and what the following batch did."""

    element: int
    alive: Int
    had: Int
    calls: list[Call]
    matured: Any
    after: Int


class Done(NamedTuple):
    """One run: times, and what matured as (id, element, total)."""

    whole: bool
    elements: int
    first: int  # Queries that were registered before the stream.
    registered: int
    operations: int
    seconds: float
    cpu_seconds: float
    register_seconds: float
    trace: list[tuple[int, int, float]]
    matured: tuple[Int, Int, Int]
    samples: list[Sample]
    state: list[tuple[int, int]]  # Alive queries and bytes at the points sampled.


class Clock:
    """Sums of wall time and of processor time."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def run(self, index: Any, calls: list[Call]) -> list[Any]:
        """Make the calls; give what the pushes gave."""
        bound = [(getattr(index, name), args) for name, args in calls]
        found = []
        wall, cpu = time.perf_counter(), time.process_time()
        for call, args in bound:
            result = call(*args)
            if result is not None:
                found.append(result)
        self.cpu += time.process_time() - cpu
        self.wall += time.perf_counter() - wall
        return found


class Feed:
    """The requests of a workload, group by group; in fixed mode they follow from what matured."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.alive = np.zeros(workload.low.shape[0], dtype=bool)
        self.fixed = workload.setting.mode == "fixed"
        self.registered = self.initial = workload.setting.queries
        self.current = np.arange(self.initial)
        self.slot = np.full(workload.low.shape[0], -1)
        self.slot[: self.initial] = self.current
        self.waiting = np.zeros(0, dtype=np.int64)  # Slots whose query matured in the last group.

    def first(self) -> Call:
        """All queries that are registered before the stream."""
        self.alive[: self.initial] = True
        return self._registering(np.arange(self.initial), 0)

    def requests(self, begin: int, end: int) -> tuple[Int, Int, Int, Int]:
        """Ids to register, where, ids to terminate, where: those before elements of `[begin, end)`."""
        w = self.workload
        a, b = np.searchsorted(w.terminate_at, (begin, end))
        at = w.terminate_at[a:b]
        if self.fixed:
            new, ended = self._replaced(w.terminate_id[a:b])
            new_at = np.concatenate((np.full(new.size - at.size, begin), at))
        else:
            ended = w.terminate_id[a:b]
            c, d = np.searchsorted(w.register_at, (max(begin, 1), end))
            new, new_at = np.arange(c, d), w.register_at[c:d]
            if begin == 0:  # A query of the very first timestamp stands behind those before the stream.
                new = np.arange(self.initial, d)
                new_at = w.register_at[new]
            self.registered += new.size
            ended, at = ended[keep := self.alive[ended] | (ended >= self.registered - new.size)], at[keep]
        self.alive[new] = True
        self.alive[ended] = False
        return new, new_at, ended, at

    def _replaced(self, slots: Int) -> tuple[Int, Int]:
        """New ids for the slots that wait and then for those given, and the ids that end in the latter."""
        new = self.registered + np.arange(self.waiting.size + slots.size)
        self.registered += new.size
        into = np.concatenate((self.waiting, slots))
        self.slot[new] = into
        order = np.argsort(into, kind="stable")
        before = np.empty(into.size, dtype=np.int64)
        again = np.zeros(into.size, dtype=bool)
        again[1:] = into[order][1:] == into[order][:-1]
        before[order] = np.where(again, new[np.roll(order, 1)], self.current[into[order]])
        self.current[into] = new
        return new, before[self.waiting.size :]

    def calls(self, begin: int, end: int, size: int) -> list[Call]:
        """The calls for elements `[begin, end)` in batches of `size`."""
        new, new_at, ended, ended_at = self.requests(begin, end)
        w, made = self.workload, []
        for a in range(begin, end, size):
            b = min(a + size, end)
            i, j = np.searchsorted(new_at, (a, b))
            if i < j:
                made.append(self._registering(new[i:j], new_at[i:j] - a))
            i, j = np.searchsorted(ended_at, (a, b))
            if i < j:
                made.append(("terminate", (ended[i:j], ended_at[i:j] - a)))
            made.append(("push", (w.values[a:b], w.weights[a:b])))
        return made

    def _registering(self, ids: Int, at: Any) -> Call:
        w = self.workload
        return "register", (ids, w.low[ids], w.high[ids], w.threshold[ids], at)

    def took(self, ids: Int) -> None:
        """Learn what matured."""
        self.alive[ids] = False
        if self.fixed:
            slots = self.slot[ids]
            self.waiting = slots[self.current[slots] == ids]


def whole(
    index: Any, workload: Workload, size: int = GROUP, limit_s: float = 1e9, sampled: tuple[float, ...] = ()
) -> Done:
    """Run a stream to its end, where no query is alive in static mode, or until the limit, but one group at least."""
    feed, clock, trace, samples, state = Feed(workload), Clock(), [], [], []
    n = workload.values.shape[0]
    clock.run(index, [feed.first(), ("push", (workload.values[:0], workload.weights[:0]))])
    register_seconds = clock.cpu
    static = workload.setting.mode == "static"
    expected = expected_life(workload.setting) if static else n
    points = [int(share * expected) // GROUP * GROUP for share in sampled]
    every = max(GROUP, int(expected / TRACED) // GROUP * GROUP)
    matured, begin, alive = [], 0, len(index)
    while begin < n and (alive or not static) and (begin == 0 or clock.cpu < limit_s):
        end = min(begin + GROUP, n)
        before = np.flatnonzero(feed.alive) if begin in points else None
        had = None if before is None else index.progress(before)
        calls = feed.calls(begin, end, size)
        found = joined(clock.run(index, calls), size)
        if before is not None:
            samples.append(Sample(begin, before, had, calls, found, index.progress(before)))
            state.append((len(index), state_bytes(index)))
        feed.took(found[0])
        matured.append((found[0], found[1] + begin, found[2]))
        begin, alive = end, len(index)
        if begin % every == 0:
            trace.append((begin, begin + 2 * feed.registered - alive, clock.cpu))
    if static and alive and clock.cpu < limit_s:
        message = f"a static stream must end with no query alive; {alive} are left after {n} elements"
        raise RuntimeError(message)
    operations = begin + 2 * feed.registered - alive
    trace.append((begin, operations, clock.cpu))
    columns = [np.concatenate(column) for column in zip(*matured, strict=True)]
    ended = begin == n or (static and not alive)
    return Done(ended, begin, feed.initial, feed.registered, operations, clock.wall, clock.cpu, register_seconds,
                trace, (columns[0], columns[1], columns[2]), samples, state)  # fmt: skip


def state_bytes(thing: Any, seen: set[int] | None = None) -> int:
    """Bytes of all arrays that can be reached from an object, and of its lists and dicts."""
    seen = set() if seen is None else seen
    while isinstance(thing, np.ndarray) and isinstance(thing.base, np.ndarray):
        thing = thing.base
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, dict):
        # Of numbers only the table counts, and as many objects again: to visit a million of them would take long.
        first = next(iter(thing.values()), None)
        parts = [] if isinstance(first, int) else [state_bytes(part, seen) for part in thing.values()]
        return sys.getsizeof(thing) + (2 * 32 * len(thing) if isinstance(first, int) else sum(parts))
    if isinstance(thing, list | tuple):
        return sys.getsizeof(thing) + sum(state_bytes(part, seen) for part in thing)
    if type(thing).__module__.startswith(("tocsin.stages.ranges", "benchmarks")) and hasattr(thing, "__dict__"):
        return sum(state_bytes(part, seen) for part in vars(thing).values())
    return 0


def joined(found: list[Any], size: int) -> tuple[Int, Int, Int]:
    """What several pushes of batches of `size` gave, with elements counted from the first."""
    return (
        np.concatenate([one.id for one in found]),
        np.concatenate([one.index + k * size for k, one in enumerate(found)]),
        np.concatenate([one.total for one in found]),
    )


def alike(done: Done, other: Done) -> bool:
    """Whether two runs gave the same, as far as both went."""
    until = min(done.elements, other.elements)
    sides = ([column[run.matured[1] < until] for column in run.matured] for run in (done, other))
    return all(np.array_equal(a, b) for a, b in zip(*sides, strict=True))


def estimate(make: Any, workload: Workload, run: Done) -> dict[str, Any]:
    """What a whole run would take, from batches at points of another's run; it must answer what that one did.

    The baseline gets the queries alive at each point, with what they lack as thresholds, takes the requests and the
    elements of one batch, and counts as if each fifth of the stream cost what its middle does. Building anew when
    queries have come or gone is left out, in the baseline's favour.
    """
    per_group, register, agrees = [], [], True
    w = workload
    for sample in run.samples:
        index, clock = make(w.setting.dims), Clock()
        ids, nothing = sample.alive, ("push", (w.values[:0], w.weights[:0]))
        lacks = w.threshold[ids] - sample.had
        clock.run(index, [("register", (ids, w.low[ids], w.high[ids], lacks, 0)), nothing])
        register.append(clock.cpu / max(ids.size, 1))
        clock = Clock()
        found = joined(clock.run(index, sample.calls), GROUP)
        per_group.append(clock.cpu)
        agrees &= _agrees(index, sample, found)
    fifths = run.elements / GROUP / len(run.samples)
    seconds = register[0] * run.registered + fifths * sum(per_group)
    half = [fifths * (sum(per_group[:k]) + cost / 2) for k, cost in enumerate(per_group)]
    trace = [(one.element, register[0] * w.setting.queries + cost) for one, cost in zip(run.samples, half, strict=True)]
    return {"cpu_seconds": seconds, "us_per_operation": seconds / run.operations * 1e6, "agrees": agrees,
            "us_per_element_at": [s / GROUP * 1e6 for s in per_group], "sampled_trace": trace,
            "alive_at": [int(sample.alive.size) for sample in run.samples], "estimated": True}  # fmt: skip


def _agrees(index: Any, sample: Sample, found: tuple[Int, Int, Int]) -> bool:
    """Whether as much matured as in the run that was sampled, and the others have as much as there."""
    had = dict(zip(sample.alive.tolist(), sample.had.tolist(), strict=True))
    total = found[2] + np.array([had.get(key, 0) for key in found[0].tolist()], dtype=np.int64)
    after = index.progress(sample.alive)
    return all(np.array_equal(a, b) for a, b in zip((*found[:2], total), sample.matured, strict=True)) and bool(
        np.array_equal(np.where(after < 0, after, after + sample.had), sample.after)
    )
