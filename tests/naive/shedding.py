"""Load shedding by definition: one row at a time, with all rows in one list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.naive.retained import OneAtATime

FIRST = -(10**18)


@dataclass(frozen=True)
class Input:
    """An input state: the lane whose rows it reads, how it is reduced, and when its rows expire.

    `sides` is an argument of `OneAtATime`, or None if only equal rows are omitted.
    """

    lane: int
    horizon: int
    sides: Sequence[tuple[int, int]] | None = None


@dataclass(frozen=True)
class Lane:
    """How the rows of a lane are ordered: the window, and `time`, `key` (number per key) or `age` (per granule)."""

    window: int
    by: str = "time"
    by_key: Sequence[float] = ()
    by_age: Sequence[float] = ()
    granule: int = 1
    target: float | None = None


@dataclass(frozen=True)
class Row:
    """A retained row of one input."""

    serial: int
    source: int
    key: int
    time: int
    value: float
    cost: int


@dataclass
class Shedding:
    """The retained rows of all inputs under a budget."""

    inputs: Sequence[Input]
    lanes: Sequence[Lane]
    share: int
    tick: int
    rows: list[Row] = field(default_factory=list)
    newest: dict[int, int] = field(default_factory=dict)
    outcome: dict[tuple[int, int], str] = field(default_factory=dict)

    def arrive(self, serial: int, lane: int, key: int, time: int, value: float, cost: int, clock: int) -> None:
        """Process one row, so that the rows cost no more than the share."""
        self.newest[key] = max(self.newest.get(key, FIRST), time)
        for row in list(self.rows):
            if row.key == key and row.time < self.newest[key] - self.inputs[row.source].horizon:
                self._leave(row, "expired")
        mine = [source for source, one in enumerate(self.inputs) if one.lane == lane]
        if cost * len(mine) > self.share:
            self.outcome |= {(serial, source): "shed" for source in mine}
            return
        for source in mine:
            self._enter(Row(serial, source, key, time, value, cost))
        while sum(row.cost for row in self.rows) > self.share:
            self._leave(self._victim(clock), "shed")

    def _leave(self, row: Row, outcome: str) -> None:
        self.rows.remove(row)
        self.outcome[row.serial, row.source] = outcome

    def _enter(self, new: Row) -> None:
        sides = self.inputs[new.source].sides
        mine = [row for row in self.rows if (row.source, row.key) == (new.source, new.key)]
        self.rows.append(new)
        if sides is None:
            if any((row.time, row.value) == (new.time, new.value) for row in mine):
                self._leave(new, "omitted")
            return
        one = OneAtATime(sides)
        one.state = sorted(((row.time, row.value, row.serial) for row in mine), key=lambda row: row[0])
        gone = one.arrive(new.time, new.value, new.serial)
        for row in [row for row in [*mine, new] if row.serial in gone]:
            self._leave(row, "omitted")

    def _victim(self, clock: int) -> Row:
        """Return the row that leaves: the oldest offer past its window, or the offer of the lane most above its target.

        Without targets, the first of all offers goes.
        """
        now = clock // self.tick * self.tick
        offers = [
            min(mine, key=lambda row: (*self._order(row, now), row.serial, row.source))
            for mine in ([row for row in self.rows if self._lane(row) == lane] for lane in range(len(self.lanes)))
            if mine
        ]
        past = [row for row in offers if clock - row.time > self.lanes[self._lane(row)].window]
        if past:
            return min(past, key=lambda row: (row.time, self._lane(row)))
        if all(lane.target is not None for lane in self.lanes):
            return max(offers, key=lambda row: (self._excess(self._lane(row)), -self._lane(row)))
        return min(offers, key=lambda row: (*self._order(row, now), row.serial, row.source))

    def _lane(self, row: Row) -> int:
        return self.inputs[row.source].lane

    def _excess(self, lane: int) -> float:
        return sum(row.cost for row in self.rows if self._lane(row) == lane) - float(self.lanes[lane].target or 0.0)

    def _order(self, row: Row, now: int) -> tuple[Any, ...]:
        lane = self.lanes[self._lane(row)]
        if now - row.time > lane.window:
            return float("-inf"), 0, row.time
        if lane.by == "key":
            return lane.by_key[row.key], 0, row.time
        if lane.by == "age":
            granule = min(max(now - row.time, 0) // lane.granule, len(lane.by_age) - 1)
            after = lane.by_age[granule + 1] if granule + 1 < len(lane.by_age) else -1.0
            rises = after > lane.by_age[granule]
            return lane.by_age[granule], -granule, -row.time if rises else row.time
        return 0.0, 0, row.time
