"""The m-way window join as a left-deep tree of binary joins, each with a Synchronizer of its own.

Rules do not join so (`operators/join/threshold_join.py`): it is here to hold the paper's section V to tests.

Idea: the first instance joins streams 0 and 1, the next what that gives with stream 2, and so on:

    K-slack 0 --+
                +-- Synchronizer -- join --+
    K-slack 1 --+                          +-- Synchronizer -- join -- results
                              K-slack 2 ---+

A partial result has the time of its newest tuple and the delay of the tuple whose arrival made it, which is handed on
to whatever it completes; so the delays of the results, counted, are the map of join results by delay.

A result is a tuple of each stream, each within its own window of the newest of all. So a partial result carries a
deadline, the earliest time + window of its tuples, and leaves its window when time has passed that: a fresh tuple in it
does not keep an old one. Streams that join early are checked again by every later deadline, so nothing is lost by it.

A join that finds nothing would stop the Synchronizer above it. So each instance also sends a mark when its clock rises:
it will send nothing older. A mark takes part in the Synchronizer above and ends there.

Guarantee: if every stream comes in order, the results are exactly those of `window_join`, whatever the cut into
calls; if also no two streams share a time, each with the same delay (of equal times another may come last here).
Results leave in order of time. If streams come out of order, late tuples store and never probe in each instance, and
results may be missing that a single Synchronizer, which waits for all streams, would have saved.
Cost: partial results are built and kept; per tuple one look at each that the other side stores.
Source: Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016, section V;
deadlines and marks are ours. The map of cross joins needs the sizes of all windows at once and is not kept here, as
there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tocsin.operators.reorder.k_slack import IN_SYNCHRONIZER, ReorderRows
from tocsin.operators.reorder.synchronizer import synchronize
from tocsin.runtime.contract import NEVER_SEEN, Float, Int

LEFT, RIGHT = 0, 1


class Partial(NamedTuple):
    """A tuple of each of the first streams, or of one: newest time, deadline, delay, numbers, values (a mark: none)."""

    time: int
    deadline: int
    delay: int
    numbers: tuple[int, ...]
    values: tuple[Any, ...]


# A partial result that comes to an instance: the arrival that brought it, the side, and itself.
Coming = tuple[int, int, Partial]


@dataclass
class Instance:
    """One binary join: its Synchronizer (T_sync and what waits in it), its clock and its two windows."""

    holds: Callable[..., bool]
    t_sync: int = NEVER_SEEN
    waiting: list[Coming] = field(default_factory=list)
    clock: int = NEVER_SEEN
    windows: tuple[list[Partial], list[Partial]] = field(default_factory=lambda: ([], []))

    def take(self, coming: Sequence[Coming]) -> list[tuple[int, Partial]]:
        """Take what comes in order of arrival; give what is found, and marks, each with the arrival that brought it."""
        rows = [*self.waiting, *coming]
        stage = np.repeat([IN_SYNCHRONIZER, 0], [len(self.waiting), len(coming)])
        side, time = np.array([row[1] for row in rows], np.int64), np.array([row[2].time for row in rows], np.int64)
        self.t_sync, left, by, stage = synchronize(self.t_sync, 2, ReorderRows(side, time, stage))
        self.waiting = [rows[at] for at in np.flatnonzero(stage)]
        return self._join([(rows[sender][0], *rows[row][1:]) for row, sender in zip(left, by, strict=True)])

    def end(self, coming: Sequence[Coming]) -> list[tuple[int, Partial]]:
        """Take the last that comes, and let all that waits go in order of time; the end itself is no arrival."""
        given = self.take(coming)
        last, self.waiting = sorted(self.waiting, key=lambda row: row[2].time), []
        found = self._join(last)
        return [(0, result) for _, result in given + found]

    def _join(self, rows: Sequence[Coming]) -> list[tuple[int, Partial]]:
        """Run Algorithm 2 over what left the Synchronizer."""
        given: list[tuple[int, Partial]] = []
        for at, side, new in rows:
            if not new.numbers:
                continue
            if new.time >= self.clock:
                rises, self.clock = new.time > self.clock, new.time
                other = self.windows[1 - side]
                other[:] = [partner for partner in other if partner.deadline >= new.time]
                given += [(at, found) for partner in other if (found := self._combine(side, new, partner))]
                if rises:
                    given.append((at, Partial(self.clock, self.clock, 0, (), ())))
            if new.deadline >= self.clock:
                self.windows[side].append(new)
        return given

    def _combine(self, side: int, new: Partial, partner: Partial) -> Partial | None:
        """Put two partial results together, if the condition holds."""
        left, right = (new, partner) if side == LEFT else (partner, new)
        values = left.values + right.values
        if not self.holds(*values):
            return None
        return Partial(new.time, min(new.deadline, partner.deadline), new.delay, left.numbers + right.numbers, values)


class Tree:
    """A tree of instances; `holds[i]` is asked of the values of streams 0 to i + 1."""

    def __init__(self, windows_us: Sequence[int], holds: Sequence[Callable[..., bool]]) -> None:
        if len(holds) != len(windows_us) - 1:
            message = f"`holds` must have a condition per instance; got {len(holds)} for {len(windows_us)} streams"
            raise ValueError(message)
        self.windows_us, self.received = list(windows_us), 0
        self.instances = [Instance(condition) for condition in holds]

    def take(self, stream: Int, time: Int, values: Float, delay: Int) -> list[Partial]:
        """Take tuples in the order in which they leave their K-slacks, with their delays; give the results."""
        coming: list[list[Coming]] = [[] for _ in self.instances]
        for at, (of, due, late) in enumerate(zip(stream.tolist(), time.tolist(), delay.tolist(), strict=True)):
            own = Partial(due, due + self.windows_us[of], late, (self.received + at,), (tuple(values[at].tolist()),))
            coming[max(of - 1, 0)].append((at, RIGHT if of else LEFT, own))
        self.received += len(time)
        return self._climb(coming, Instance.take)

    def end(self) -> list[Partial]:
        """Give the results of all that waits, in order of time."""
        return self._climb([[] for _ in self.instances], Instance.end)

    def _climb(
        self,
        coming: Sequence[list[Coming]],
        step: Callable[[Instance, Sequence[Coming]], list[tuple[int, Partial]]],
    ) -> list[Partial]:
        """Let each instance take what its stream and the instance below bring, in order of arrival."""
        below: list[tuple[int, Partial]] = []
        for instance, own in zip(self.instances, coming, strict=True):
            merged = [(at, LEFT, partial) for at, partial in below] + own
            below = step(instance, sorted(merged, key=lambda row: row[0]))
        return [result for _, result in below if result.numbers]
