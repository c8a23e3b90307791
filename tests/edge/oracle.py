"""The edge by its definition, one row at a time: who stays, who is due, who is sent (docs/edge.md, "What is sent").

Nothing here is of the product. Which rows go is told by the oracle of the reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.naive.retained import OneAtATime, Side

Shapes = Sequence[str]


def sides(length: int, shape: str) -> list[Side]:
    """Give what a shape asks of every window."""
    signs = {"increasing": (1,), "decreasing": (-1,), "quasiconvex": (1, -1)}[shape]
    return [(length, sign) for sign in signs]


@dataclass
class Row:
    """A row that was received: its time, its number, and the values that still ask for it."""

    t: int
    number: int
    asked: set[int] = field(default_factory=set)


class OneKey:
    """What the edge does with the rows of one key."""

    def __init__(self, length: int, hold: int, shapes: Shapes) -> None:
        self.length, self.hold, self.shapes = length, hold, shapes
        self.newest: int | None = None
        self._forget()

    def arrive(self, t: int, values: Sequence[float], number: int) -> list[int]:
        """Take a row; give the numbers of the rows that are sent now, by time."""
        sent: list[int] = []
        if self.newest is not None and t < self.newest - 2 * self.length:
            sent = self.end()
            self._forget()
        self.newest = t if self.newest is None else max(t, self.newest)
        row = Row(t, number)
        self.held.append(row)
        self.known[number] = row
        for place, (memory, v) in enumerate(zip(self.memories, values, strict=True)):
            memory.state = [old for old in memory.state if old[0] >= self.newest - 2 * self.length]
            row.asked.add(place)
            for gone in memory.arrive(t, v, number):
                self.known[gone].asked.discard(place)
        self.held = [old for old in self.held if old.asked]
        due = [old for old in self.held if old.t + self.hold <= self.newest]
        self.held = [old for old in self.held if old not in due]
        return sent + [old.number for old in sorted(due, key=lambda old: old.t)]

    def end(self) -> list[int]:
        """Send what is held."""
        sent, self.held = [old.number for old in sorted(self.held, key=lambda old: old.t)], []
        return sent

    def _forget(self) -> None:
        self.newest = None
        self.memories = [OneAtATime(sides(self.length, shape)) for shape in self.shapes]
        self.held: list[Row] = []
        self.known: dict[int, Row] = {}
