"""Standing range queries with a window and re-arming, from their definition: event by event, on plain lists.

Slow and obvious on purpose: it decides what the product must answer, so it shares no code with it. Every query keeps
each element that it counts. Whole numbers are Python's, so no sum overflows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from naive.ranges import Answer, Register, Terminate


class Timed(NamedTuple):
    """A point with a weight and an event time."""

    value: tuple[float, ...]
    weight: int
    time_us: int


Event = Register | Terminate | Timed


@dataclass
class Query:
    """A query, the (moment, weight) of each element that counts for it, and until when it rests."""

    asked: Register
    counted: list[tuple[int, int]] = field(default_factory=list)
    rests_until: int | None = None

    @property
    def total(self) -> int:
        return sum(weight for _, weight in self.counted)

    def covers(self, value: tuple[float, ...]) -> bool:
        """Whether a point lies in the closed box."""
        sides = zip(self.asked.low, value, self.asked.high, strict=True)
        return all(low <= at <= high for low, at, high in sides)

    def forget(self, clock: int, within_us: int) -> None:
        """Drop the elements whose moment is the window or more behind the clock."""
        self.counted = [(moment, weight) for moment, weight in self.counted if clock - moment < within_us]

    def take(self, element: Timed, clock: int) -> int | None:
        """Count an element, unless the query rests on; give the total if it matures."""
        if self.rests_until is not None and clock < self.rests_until:
            return None
        self.rests_until = None
        if self.covers(element.value):
            self.counted.append((clock, element.weight))
        return self.total if self.total >= self.asked.threshold else None


class Result(NamedTuple):
    """What matured as (id, element number, total), the totals of the queries that are there, and how many came late."""

    answers: list[Answer]
    totals: dict[int, int]
    late: int


def run(events: Iterable[Event], within_us: int | None = None, rearm_us: int | None = None) -> Result:
    """Play events in their order; queries that mature at one element stand in the order of their registration.

    >>> hour = [Register(7, (1.0,), (2.0,), 3), Timed((1.0,), 2, 0), Timed((2.0,), 2, 60), Timed((2.0,), 1, 61)]
    >>> run(hour, within_us=60)
    Result(answers=[(7, 2, 3)], totals={}, late=0)
    """
    queries: dict[int, Query] = {}
    answers: list[Answer] = []
    clock: int | None = None
    late = number = 0
    for event in events:
        if isinstance(event, Register):
            assert event.id not in queries, "ids are unique among queries that are there"
            queries[event.id] = Query(event)
        elif isinstance(event, Terminate):
            queries.pop(event.id, None)
        else:
            clock = event.time_us if clock is None else max(clock, event.time_us)
            if within_us is not None and clock - event.time_us >= within_us:
                late += 1
            else:
                answers += [(id_, number, total) for id_, total in _count(queries, event, clock, within_us, rearm_us)]
            number += 1
    return Result(answers, {id_: query.total for id_, query in queries.items()}, late)


def _count(
    queries: dict[int, Query], element: Timed, clock: int, within_us: int | None, rearm_us: int | None
) -> list[tuple[int, int]]:
    """Let an element expire others and count; give what it matures, which then rests or is gone."""
    ripe = []
    for id_, query in list(queries.items()):
        if within_us is not None:
            query.forget(clock, within_us)
        total = query.take(element, clock)
        if total is None:
            continue
        ripe.append((id_, total))
        if rearm_us is None:
            del queries[id_]
        else:
            query.counted, query.rests_until = [], clock + rearm_us
    return ripe
