"""What is asked of a range index: registrations and terminations that wait, and the elements of a batch, checked.

Requests and elements share one order. A request waits for the next batch and takes effect just before the element of
that batch which its `at` names; requests of equal `at` keep the order of the calls, and inside a call that of the
arrays. Everything is checked before anything changes, so that a refused call leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from tocsin.runtime.contract import Bools, Float, Int
from tocsin.stages.ranges.checks import (
    are_usable,
    first_not_a_range,
    first_not_finite,
    integers,
    points,
    refuse,
    same_length,
    within,
)

LARGEST_WEIGHT = 1 << 40
LARGEST_THRESHOLD = 1 << 60
_LARGEST_AT = (1 << 62) - 1


class Matured(NamedTuple):
    """Queries whose total reached their threshold, in order of the maturing element, then of registration."""

    id: Int
    index: Int  # type: ignore[assignment]  # hides a method of tuples that nobody needs here
    total: Int


_NOTHING = Matured(*(np.zeros(0, dtype=np.int64) for _ in range(3)))


class Elements(NamedTuple):
    """A batch: values of shape (n, dims), and weights."""

    values: Float
    weights: Int


class Requests(NamedTuple):
    """Requests in the order in which they take effect; a termination has an empty range and threshold 0."""

    at: Int
    is_registration: Bools
    id: Int
    low: Float
    high: Float
    threshold: Int

    def run_of_registrations(self) -> int:
        """Count the registrations in front of the first element and of any termination."""
        others = (self.at > 0) | ~self.is_registration
        return int(others.argmax()) if others.any() else len(self.at)

    def between(self, start: int, stop: int) -> Requests:
        """Give those that take effect just before the elements from `start` up to `stop`."""
        if not len(self.at) or (self.at[0] >= start and self.at[-1] < stop):
            return self
        begin, end = self.at.searchsorted([start, stop])
        return Requests._make(column[begin:end] for column in self)

    def terminations(self) -> Requests:
        """Give the terminations."""
        ending = ~self.is_registration
        return Requests._make(column[ending] for column in self)

    def split(self, run: int) -> tuple[Requests, Requests]:
        """Give the first of them, and the others."""
        return Requests._make(column[:run] for column in self), Requests._make(column[run:] for column in self)


class _Last(NamedTuple):
    """The last waiting request of an id, and whether any of its waiting requests is a registration."""

    at: int
    is_registration: bool
    registers: bool


class Queue:
    """Requests that wait for the next batch."""

    def __init__(self, dims: int) -> None:
        dims = int(index(dims))
        if dims < 1:
            message = f"RangeIndex: `dims` must be at least 1; got {dims}"
            raise ValueError(message)
        self.dims = dims
        self._calls: list[Requests] = []
        nowhere, nothing = np.zeros((0, dims)), np.zeros(0, dtype=np.int64)
        self._none = Requests(nothing, np.zeros(0, dtype=np.bool_), nothing, nowhere, nowhere, nothing)
        # Requests by id are only needed when an id is asked for while something waits, so they are gathered then.
        self._last: dict[int, _Last] = {}
        self._gathered = 0

    def register(
        self,
        ids: ArrayLike,
        low: ArrayLike,
        high: ArrayLike,
        threshold: ArrayLike,
        at: ArrayLike | None,
        alive: Callable[[Int], Bools],
    ) -> None:
        """Let registrations wait; `alive` tells which of some ids are alive now."""
        place = "register"
        id_array = integers(place, "ids", ids, None)
        n = len(id_array)
        lows, highs = points(place, "low", low, self.dims), points(place, "high", high, self.dims)
        same_length(place, "low", len(lows), n)
        same_length(place, "high", len(highs), n)
        wrong = first_not_a_range(lows, highs)
        if wrong >= 0:
            _refuse_range(place, lows, highs, wrong)
        thresholds = integers(place, "threshold", threshold, n)
        within(place, "threshold", thresholds, 1, LARGEST_THRESHOLD, "2^60")
        moments = self._moments(place, at, n)
        self._check_ids(place, id_array, moments, alive)
        self._calls.append(Requests(moments, np.ones(n, dtype=np.bool_), id_array, lows, highs, thresholds))

    def terminate(self, ids: ArrayLike, at: ArrayLike | None) -> None:
        """Let terminations wait; which of the ids are alive is seen when they take effect."""
        id_array = integers("terminate", "ids", ids, None)
        n = len(id_array)
        moments = self._moments("terminate", at, n)
        nowhere = np.zeros((n, self.dims))
        nothing = np.zeros(n, dtype=np.int64)
        self._calls.append(Requests(moments, np.zeros(n, dtype=np.bool_), id_array, nowhere, nowhere, nothing))

    def elements(self, values: ArrayLike, weights: ArrayLike | None) -> Elements:
        """Check a batch, and that no request waits for an element behind its end."""
        place = "push"
        rows = points(place, "values", values, self.dims)
        n = len(rows)
        loads = np.ones(n, dtype=np.int64) if weights is None else integers(place, "weights", weights, n)
        if not are_usable(rows, loads, LARGEST_WEIGHT):
            wrong = first_not_finite(rows)
            if wrong >= 0:
                refuse(place, "values", "must be finite", f"{rows[wrong]} at position {wrong}")
            within(place, "weights", loads, 1, LARGEST_WEIGHT, "2^40")
        for call in self._calls:
            if len(call.at) and call.at.max() > n:
                found = f"a batch of {n} elements, and a request with `at` {call.at.max()}"
                refuse(place, "values", "must have as many elements as the largest `at` of the pending requests", found)
        return Elements(rows, loads)

    def take(self) -> Requests:
        """Give all requests in the order in which they take effect; none waits any more."""
        if not self._calls:
            return self._none
        taken = self.waiting
        if len(taken.at) > 1 and (taken.at[1:] < taken.at[:-1]).any():
            order = np.argsort(taken.at, kind="stable")
            taken = Requests._make(column[order] for column in taken)
        self._calls, self._last, self._gathered = [], {}, 0
        return taken

    @property
    def waiting(self) -> Requests:
        """All requests, in the order of the calls."""
        if not self._calls:
            return self._none
        if len(self._calls) > 1:
            columns = zip(*self._calls, strict=True)
            self._calls = [Requests._make(np.concatenate(parts) for parts in columns)]
            self._last, self._gathered = {}, 0
        return self._calls[0]

    def __bool__(self) -> bool:
        """Tell whether anything waits."""
        return bool(self._calls)

    def awaits(self, ids: Int) -> Bools:
        """Tell which ids have a registration that waits."""
        requests = self.waiting
        return np.isin(ids, requests.id[requests.is_registration])

    def pack(self) -> dict[str, Any]:
        """Give the waiting requests as named arrays for a page."""
        return {f"waiting_{name}": column for name, column in self.waiting._asdict().items()}

    @classmethod
    def unpack(cls, dims: int, arrays: dict[str, Any]) -> Queue:
        """Make a queue of what `pack` gave."""
        queue = cls(dims)
        requests = Requests(*(arrays[f"waiting_{name}"] for name in Requests._fields))
        if len(requests.at):
            queue._calls.append(requests)
        return queue

    def _moments(self, place: str, at: ArrayLike | None, n: int) -> Int:
        if at is None:
            return np.zeros(n, dtype=np.int64)
        moments = integers(place, "at", at, n)
        within(place, "at", moments, 0, _LARGEST_AT, "2^62 - 1")
        return moments

    def _check_ids(self, place: str, ids: Int, at: Int, alive: Callable[[Int], Bools]) -> None:
        """Refuse an id that is alive or waits, unless a waiting termination comes between."""
        # Ids that grow, as those of a counter do, need no sorting.
        if len(ids) > 1 and not (ids[1:] > ids[:-1]).all():
            in_order = np.sort(ids)
            twice = np.flatnonzero(in_order[1:] == in_order[:-1])
            if len(twice):
                refuse(place, "ids", "must be unique", f"{in_order[twice[0]]} twice")
        lives = alive(ids)
        # A look at few calls is cheap; many small ones are gathered by id, each once.
        if len(self._calls) <= 8 and not lives.any() and not any(np.isin(ids, call.id).any() for call in self._calls):
            return
        self._gather()
        for position, (key, moment, living) in enumerate(zip(ids.tolist(), at.tolist(), lives.tolist(), strict=True)):
            last = self._last.get(key)
            if last is None or (moment < last.at and not last.registers):
                taken = living
            else:
                taken = last.is_registration or moment < last.at
            if taken:
                must = "must be ids that are not active or pending at that time"
                refuse(place, "ids", must, f"{key} at position {position}")

    def _gather(self) -> None:
        """Note the last request of each id among the calls that were not looked at yet."""
        for call in self._calls[self._gathered :]:
            columns = (call.id.tolist(), call.at.tolist(), call.is_registration.tolist())
            for key, at, registers in zip(*columns, strict=True):
                last = self._last.get(key)
                if last is None or at >= last.at:
                    self._last[key] = _Last(at, registers, registers or (last is not None and last.registers))
                elif registers:
                    self._last[key] = last._replace(registers=True)
        self._gathered = len(self._calls)


def _refuse_range(place: str, lows: Float, highs: Float, row: int) -> NoReturn:
    """Say what is wrong with the range of a row."""
    for name, bounds, open_end in (("low", lows, "-inf"), ("high", highs, "inf")):
        if np.isnan(bounds[row]).any():
            must = f"must not be missing (None or NaN); use {open_end} for an open end"
            refuse(place, name, must, f"{bounds[row]} at position {row}")
    refuse(place, "low", "must be at most `high`", f"{lows[row]} and {highs[row]} at position {row}")


def in_order(found: list[Int]) -> Matured:
    """Order rows of (id, index, total, number of registration) by maturing element, then by registration."""
    if not found:
        return _NOTHING
    rows = np.concatenate(found)
    rows = rows[np.lexsort((rows[:, 3], rows[:, 1]))]
    return Matured(rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy())


def as_ids(place: str, ids: ArrayLike) -> Int:
    """Check ids that are only asked for."""
    return integers(place, "ids", ids, None)
