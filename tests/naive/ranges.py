"""Range thresholding from its definition, on plain lists: every element is held against every alive query.

Slow and obvious on purpose: it decides what the product must answer, so it shares no code with it. Requests and
elements stand in one list, in one total order. Whole numbers are Python's, so no sum overflows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Register(NamedTuple):
    """From here on, count what falls into the closed box from `low` to `high`, until `threshold` is reached."""

    id: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    threshold: int


class Terminate(NamedTuple):
    """Forget a query, if it is alive."""

    id: int


class Element(NamedTuple):
    """A point with a weight."""

    value: tuple[float, ...]
    weight: int = 1


Event = Register | Terminate | Element
Answer = tuple[int, int, int]


@dataclass
class Alive:
    """A query and the weight that it has counted."""

    query: Register
    total: int = 0

    def covers(self, value: Sequence[float]) -> bool:
        """Whether a point lies in the closed box."""
        sides = zip(self.query.low, value, self.query.high, strict=True)
        return all(low <= at <= high for low, at, high in sides)


def naive(events: Iterable[Event]) -> list[Answer]:
    """The (id, element number, total) of every query that matures; elements are numbered from 0.

    >>> low, high = (1.0,), (2.0,)
    >>> naive([Element((1.0,)), Register(7, low, high, 2), Element((2.0,)), Element((3.0,)), Element((1.0,), 5)])
    [(7, 3, 6)]
    """
    return run(events)[0]


def run(events: Iterable[Event]) -> tuple[list[Answer], dict[int, int]]:
    """What matures, as in `naive`, and the totals of the queries that are alive in the end.

    Queries that mature at one element stand in the order of their registration: a dict keeps it.
    """
    alive: dict[int, Alive] = {}
    answers: list[Answer] = []
    number = 0
    for event in events:
        if isinstance(event, Register):
            assert event.id not in alive, "ids are unique among alive queries"
            alive[event.id] = Alive(event)
        elif isinstance(event, Terminate):
            alive.pop(event.id, None)
        else:
            answers += [(id_, number, total) for id_, total in _take(alive, event)]
            number += 1
    return answers, {id_: one.total for id_, one in alive.items()}


def _take(alive: dict[int, Alive], element: Element) -> list[tuple[int, int]]:
    """Count an element; remove and give the queries that it matures, with their totals."""
    for one in alive.values():
        if one.covers(element.value):
            one.total += element.weight
    ripe = [(id_, one.total) for id_, one in alive.items() if one.total >= one.query.threshold]
    for id_, _ in ripe:
        del alive[id_]
    return ripe
