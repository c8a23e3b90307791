"""Oracle of the edge filter for one key: docs/how-to/filter-at-the-edge.md, one row at a time, without product code.

`tests.naive.retained` is the oracle of the reduction: it defines which rows are covered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.naive.retained import OneAtATime, Side

Shapes = Sequence[str]


def sides(length: int, shape: str) -> list[Side]:
    """Return the extremes that a shape requires of every window."""
    signs = {"increasing": (1,), "decreasing": (-1,), "quasiconvex": (1, -1)}[shape]
    return [(length, sign) for sign in signs]


@dataclass
class Row:
    """A received row: its time, its number, and the indexes of the values that do not cover it yet."""

    t: int
    number: int
    needed_by: set[int] = field(default_factory=set)


class OneKey:
    """Expected behaviour of the edge filter for one key."""

    def __init__(self, length: int, max_delay: int, shapes: Shapes) -> None:
        self.length, self.max_delay, self.shapes = length, max_delay, shapes
        self._clear()

    def arrive(self, t: int, values: Sequence[float], number: int) -> list[int]:
        """Process a row; return the numbers of the rows that are sent now, in time order."""
        sent: list[int] = []
        if self.newest is not None and t < self.newest - 2 * self.length:
            sent = self.end()
            self._clear()
        self.newest = t if self.newest is None else max(t, self.newest)
        row = Row(t, number)
        self.held.append(row)
        self.rows[number] = row
        for index, (reduced, v) in enumerate(zip(self.reduced, values, strict=True)):
            reduced.state = [old for old in reduced.state if old[0] >= self.newest - 2 * self.length]
            row.needed_by.add(index)
            for covered in reduced.arrive(t, v, number):
                self.rows[covered].needed_by.discard(index)
        self.held = [old for old in self.held if old.needed_by]
        due = [old for old in self.held if old.t + self.max_delay <= self.newest]
        self.held = [old for old in self.held if old not in due]
        return sent + [old.number for old in sorted(due, key=lambda old: old.t)]

    def end(self) -> list[int]:
        """Send all held rows; return their numbers in time order."""
        sent, self.held = [old.number for old in sorted(self.held, key=lambda old: old.t)], []
        return sent

    def _clear(self) -> None:
        self.newest: int | None = None
        self.reduced = [OneAtATime(sides(self.length, shape)) for shape in self.shapes]
        self.held: list[Row] = []
        self.rows: dict[int, Row] = {}
