"""Arrived: what one call brought to a page, and what its rules ask of that alike: worked out once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.join.cell_grid import CellGrid, Span, lay_mesh, spread
from tocsin.operators.retention.operator import VersionedRows
from tocsin.plan.steps import Store
from tocsin.runtime.contract import NEVER_SEEN, Bools, Float, Int

T = TypeVar("T")

# Cells with fewer arrivals than this, over all streams, would cost more than they save.
ROWS_PER_CELL = 32


@dataclass(frozen=True)
class ArrivalOrder:
    """New rows by key and arrival: lane, key, time, and which row of its lane each is."""

    lane: Int
    key: Int
    time: Int
    row: Int


@kernel
def survey(lane: Int, key: Int, time: Int, newest: Int, first: Int) -> Bools:
    """Find the newest time of each key and lane, and the first time of each key; tell which keys came in time order."""
    in_order, front = np.ones(first.shape[0], np.bool_), np.full(first.shape[0], NEVER_SEEN)
    for i in range(key.shape[0]):
        k = key[i]
        if lane[i] >= newest.shape[1]:
            continue
        if front[k] == NEVER_SEEN:
            first[k] = time[i]
        in_order[k] &= time[i] >= front[k]
        front[k] = max(front[k], time[i])
        newest[k, lane[i]] = max(newest[k, lane[i]], time[i])
    return in_order


@dataclass
class BatchSlice:
    """The arrivals of a call, and per store the rows remembered and new; `lanes` has the lane of each store."""

    arrivals: ArrivalOrder
    segments: Sequence[VersionedRows]
    lanes: Sequence[int]
    keys: int
    _known: dict[Hashable, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Survey the arrivals."""
        lane, key, time = self.arrivals.lane, self.arrivals.key, self.arrivals.time
        self.newest = np.full((self.keys, max(self.lanes, default=-1) + 1), NEVER_SEEN)
        self.first = np.full(self.keys, NEVER_SEEN)
        self.in_order = survey(lane, key, time, self.newest, self.first)

    def positions(self, store: int) -> Int:
        """Which of the arrivals are rows of a store."""
        lane = self.lanes[store]
        return self._once(("positions", lane), lambda: np.flatnonzero(self.arrivals.lane == lane))

    def arrival_of(self, store: int, *, silent_too: bool) -> Int:
        """Which arrival each row of a store is; -1: remembered from before, or silent, unless those are asked for."""
        return self._once(("arrival", store, silent_too), lambda: self._arrival_of(store, silent_too))

    def _arrival_of(self, store: int, silent_too: bool) -> Int:
        segment, at = self.segments[store], self.positions(store)
        row = self.arrivals.row[at]
        found = np.full(len(segment.time), -1)
        found[segment.place[row]] = at if silent_too else np.where(segment.silent[row], -1, at)
        return found

    def peopled(self, store: int, shift: int) -> Bools:
        """Tell which cells have new rows of a store that are not silent."""

        def work() -> Bools:
            before = np.concatenate([[0], np.cumsum(self.arrival_of(store, silent_too=False) >= 0)])
            peopled: Bools = np.diff(before[self.mesh(shift).starts[store]]) > 0
            return peopled

        return self._once(("peopled", store, shift), work)

    def numbers(self, store: int, need: Store) -> Float:
        """What rows are compared by; NaN for those of which nothing is known: no proof speaks of them."""
        return self._once(("numbers", store, *_compared(need)), lambda: self._numbers(store, need))

    def _numbers(self, store: int, need: Store) -> Float:
        numbers, apart = need.numbers(self.segments[store].values)
        return np.where(apart, np.nan, 0.0 if need.whole or len(numbers) > 1 else numbers[0])

    def shift_for(self, span_us: int) -> int:
        """How long cells are, as a power of two: a quarter to a half of a span, but no fewer rows than is worth it."""
        least = self._once("gap", self._typical_gap) * ROWS_PER_CELL
        return max(0, span_us.bit_length() - 2, int(least).bit_length())

    def _typical_gap(self) -> int:
        """Time from row to row of a key; the median over keys, for one row may be far away."""
        rows = np.bincount(self.arrivals.key, minlength=self.keys)
        some = rows > 0
        if self.newest.shape[1] == 0 or not some.any():
            return 0
        length = self.newest.max(axis=1) - self.first
        return max(0, int(np.median(length[some] // rows[some])))

    def mesh(self, shift: int) -> CellGrid:
        """The rows of all stores, cut into cells of key and time."""
        return self._once(("mesh", shift), lambda: lay_mesh(self.segments, self.keys, shift))

    def spread(self, store: int, need: Store, shift: int, reach: int) -> Span:
        """The extremes of a stream around each cell."""

        def work() -> Span:
            mesh = self.mesh(shift)
            return spread(self.numbers(store, need), mesh.starts[store], mesh.key, mesh.number, reach)

        return self._once(("spread", store, *_compared(need), shift, reach), work)

    def _once(self, name: Hashable, work: Callable[[], T]) -> T:
        if name not in self._known:
            self._known[name] = work()
        return cast("T", self._known[name])


def _compared(need: Store) -> tuple[Any, ...]:
    """All that the numbers of a need depend on."""
    return need.by, need.domains, need.whole
