"""One key of a reduced rule of one stream: rows are remembered, left out, and settled, one arrival at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tests.naive.join import Row
from tests.naive.retained import OneAtATime

SIGNS = {"increasing": (1,), "decreasing": (-1,), "quasiconvex": (1, -1)}


@dataclass(frozen=True)
class Reduction:
    """What a reduced rule asks of its stream: the interval and the windows, the shape and where it holds."""

    column: str
    shape: str
    interval: int
    closed: str
    hop: int | None
    domain: tuple[float, float] | None

    def is_outside(self, row: Row) -> bool:
        """Tell whether the value of a row lies outside the domain."""
        return self.domain is not None and not self.domain[0] <= row.columns[self.column] <= self.domain[1]


@dataclass
class Settling:
    """The remembered rows of one key, which of them are settled, and how far the progress is."""

    reduction: Reduction
    newest: float = -math.inf
    progress: float = -math.inf
    remembered: list[Row] = field(default_factory=list)
    settled: set[int] = field(default_factory=set)
    inside: OneAtATime = field(init=False)

    def __post_init__(self) -> None:
        # Times are whole, so an interval that is one shorter says that its ends do not belong.
        closed = "both" if self.reduction.hop is None else self.reduction.closed
        sides = [(self.reduction.interval, sign) for sign in SIGNS[self.reduction.shape]]
        self.inside = OneAtATime(sides, closed, self.reduction.hop)

    def arrive(self, row: Row) -> tuple[list[Row], int]:
        """Take a row; give the rows that it settles, in order, and how many go."""
        gone = self._leave_out(row)
        self.remembered = [each for each in [*self.remembered, row] if each.place not in gone]
        self.newest = max(self.newest, row.time)
        return self._reach(self.newest - self.reduction.interval - (self.reduction.hop is not None)), len(gone)

    def end(self) -> list[Row]:
        """Settle all that is left."""
        return self._reach(self.newest)

    def forget(self, oldest: int) -> int:
        """Forget what is settled and older; give how many rows that are."""
        old = {row.place for row in self.remembered if row.time < oldest and row.place in self.settled}
        self.remembered = [row for row in self.remembered if row.place not in old]
        self.inside.state = [each for each in self.inside.state if each[2] not in old]
        return len(old)

    def _leave_out(self, row: Row) -> set[int]:
        value: Any = row.columns[self.reduction.column]
        if not self.reduction.is_outside(row):
            return self.inside.arrive(row.time, value, row.place)
        known = [(each.time, each.columns[self.reduction.column]) for each in self.remembered]
        return {row.place} if (row.time, value) in known else set()

    def _reach(self, progress: float) -> list[Row]:
        self.progress = max(self.progress, progress)
        due = [row for row in self.remembered if row.time <= self.progress and row.place not in self.settled]
        self.settled |= {row.place for row in due}
        return sorted(due, key=lambda row: (row.time, row.place))
