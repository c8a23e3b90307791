"""Hold: the rows of a page's keys that wait to be taken in order; `stages/order` says which go when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.join.batch_slice import ArrivalOrder
from tocsin.operators.retention.operator import RowBatch, Texts
from tocsin.plan.identity import Lane, digest
from tocsin.plan.order import Order
from tocsin.plan.pace import Noted
from tocsin.runtime.contract import NEVER_SEEN, Bools, Float, Int
from tocsin.runtime.state_registry import (
    Column,
    OptionalStateArray,
    RetireContext,
    Section,
    StateArray,
    StateSchema,
    StoredSection,
    Table,
)
from tocsin.stages.order.arrange import Clocks, arrange, drain
from tocsin.stages.order.slack import IN_SLACK, IN_SYNCHRONIZER

KIND = "reorder"
_COLUMNS = ("lane", "key", "time", "stage", "delay")


def reorder_schema(lanes: Sequence[Lane]) -> StateSchema:
    """Return the schema of a buffer of rows from these lanes."""
    width = max(len(columns) for _, columns in lanes)
    rows = [Column(name) for name in _COLUMNS if name != "key"]
    rows += [Column("values", np.float64, np.nan, width), Column("payload", object, None, is_optional=True)]
    newest = Column("newest", default=NEVER_SEEN, width=len(lanes))
    per_key = (newest, Column("released", default=NEVER_SEEN), Column("moved"))
    return StateSchema(KIND, per_key, tables=(Table("key", tuple(rows)),))


def retire_buffered_rows(section: StoredSection, context: RetireContext) -> None:
    """Count the buffered rows of removed rules as expired, under all names of their lane."""
    for i, names in enumerate(section.facts["counted"]):
        rows = int((section.arrays["lane"] == i).sum())
        for name in names if rows else ():
            context.out.count(name, {"held": -rows, "expired": rows})


class Taken(NamedTuple):
    """Rows that wait no longer, in the order in which they are taken: by key; `behind`: after a later one was."""

    arrivals: ArrivalOrder
    rows: list[RowBatch]
    delay: Int
    behind: Bools
    noted: Noted
    gained: Int


class Sources:
    """Where rows come from, by their place among those held and those that came: `held` texts, or new rows by lane."""

    def __init__(
        self, held: Texts | None, count: int, order: Int, arrivals: ArrivalOrder, rows: Sequence[RowBatch]
    ) -> None:
        self.held, self.count, self.order, self.arrivals, self.rows = held, count, order, arrivals, rows
        self.has_payload = held is not None or any(mine.payload is not None for mine in rows)

    def of(self, at: Int) -> Sources:
        """Those of some rows."""
        return Sources(self.held, self.count, self.order[at], self.arrivals, self.rows)

    def new(self, at: Int) -> tuple[Int, Int, Int]:
        """Which of the rows at these places came with this call, and their lane and row there."""
        came = np.flatnonzero(self.order[at] >= self.count)
        number = self.order[at[came]] - self.count
        return came, self.arrivals.lane[number], self.arrivals.row[number]

    def take(self, positions: Int, /) -> Texts:
        """Give the payload of some rows."""
        texts = np.full(len(positions), None, dtype=object)
        if self.held is not None:
            old = np.flatnonzero(self.order[positions] < self.count)
            texts[old] = self.held[self.order[positions[old]]]
        came, lane, row = self.new(positions)
        for i, mine in enumerate(self.rows):
            texts[came[lane == i]] = mine.texts(row[lane == i])
        return texts


@kernel
def come_behind(key: Int, time: Int, front: Int) -> Bools:
    """Tell which rows are taken after a later one of their key; `front` is what was taken of each key, and moves."""
    behind = np.empty(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        behind[i] = time[i] < front[key[i]]
        front[key[i]] = max(front[key[i]], time[i])
    return behind


class Hold:
    """Clocks of the keys of a page, and the rows that wait, by key and arrival.

    `moved_us` is when, by the engine's clock, the newest clock of a key last rose or a row of it was last taken: a key
    whose clocks stand still while rows go on coming must not hold them for ever.
    """

    lane, key, time = StateArray("lane"), StateArray("key"), StateArray("time")
    stage, delay, values = StateArray("stage"), StateArray("delay"), StateArray("values")
    moved_us, payload = StateArray("moved"), OptionalStateArray("payload")

    def __init__(self, order: Order, lanes: Sequence[Lane], counted: Sequence[Sequence[str]]) -> None:
        """Create an empty buffer. The rows of lane i are counted under the names `counted[i]`."""
        self.order, self.lanes, self.columns = order, lanes, [columns for _, columns in lanes]
        facts = {"lanes": lanes, "counted": counted}
        self.section = Section(digest(KIND, sorted(lanes)), reorder_schema(lanes), facts)
        # Row numbers of the buffered rows while a trace is recorded. Its rows then have no payload.
        self.ids: Int | None = None

    @property
    def clocks(self) -> Clocks:
        """Clocks of the keys."""
        return Clocks(self.section.arrays["newest"], self.section.arrays["released"])

    def number_lanes(self, stored: StoredSection) -> None:
        """Number the lanes of an adopted section like the lanes of this plan. Rules can change their order."""
        before: list[Lane] = [(stream, tuple(columns)) for stream, columns in stored.facts["lanes"]]
        place = np.array([list(self.lanes).index(lane) for lane in before])
        self.lane = place[self.lane]
        newest = np.empty_like(self.clocks.newest)
        newest[:, place] = self.clocks.newest
        self.section.arrays["newest"] = newest

    def stuck(self, now_us: int) -> Bools:
        """Keys whose rows wait though nothing has moved for `idle_timeout`."""
        return self.holding() & (now_us - self.moved_us >= self.order.idle_timeout_us)

    def next_timer(self) -> int | None:
        """When rows that wait should be looked at; None: there are none."""
        return (
            int(self.moved_us[self.key].min()) + max(self.order.idle_timeout_us, 1_000_000) if len(self.key) else None
        )

    def holding(self) -> Bools:
        """Keys that have rows which wait."""
        holding = np.zeros(len(self.clocks.released), np.bool_)
        holding[self.key] = True
        return holding

    def take(self, arrivals: ArrivalOrder, rows: Sequence[RowBatch], slack_us: int, now_us: int | None = None) -> Taken:
        """Let new rows wait, and give those that wait no longer; `rows[i]` are those of lane i."""
        count = len(self.time)
        merged = [np.concatenate(pair) for pair in zip(self._held(), _fresh(arrivals), strict=True)]
        order = np.argsort(merged[1], kind="stable")
        lane, key, time, stage, delay = (column[order] for column in merged)
        before, front = self.clocks.released.copy(), self.clocks.newest.max(axis=1, initial=NEVER_SEEN)
        released, _, stage, late, skew = arrange(
            self.clocks, key, lane, time, stage, slack_us, self.order.idle_timeout_us, prompt=True
        )
        if now_us is not None:
            self.moved_us[self.clocks.newest.max(axis=1, initial=NEVER_SEEN) > front] = now_us
            self.moved_us[key[released]] = now_us
        new = np.flatnonzero(order >= count)
        delay[new] = late[new]
        number = _numbers(arrivals, rows)[order[new] - count]
        noted = Noted(number, lane[new], delay[new], skew[new])
        values = np.concatenate([self.values, self._new_values(arrivals, rows)])[order]
        sources = Sources(self.payload, count, order, arrivals, rows)
        taken = self._taken((lane, key, time, delay), values, sources, released, before, noted)
        self._keep((lane, key, time, stage, delay), values, sources, np.flatnonzero(stage))
        return taken

    def end(self, ends: Bools) -> Taken:
        """Give all that waits of some keys."""
        before = self.clocks.released.copy()
        released = drain(self.clocks, self.key, self.time, ends)
        nothing = np.zeros(0, np.int64)
        stay = np.ones(len(self.time), np.bool_)
        stay[released] = False
        none = ArrivalOrder(nothing, nothing, nothing, nothing)
        sources = Sources(self.payload, len(self.time), np.arange(len(self.time)), none, ())
        columns = (self.lane, self.key, self.time, self.delay)
        nobody = Noted(nothing, nothing, nothing, nothing)
        taken = self._taken(columns, self.values, sources, released, before, nobody)
        self._keep(self._held(), self.values, sources, np.flatnonzero(stay))
        return taken

    def _held(self) -> tuple[Int, ...]:
        return self.lane, self.key, self.time, self.stage, self.delay

    def _new_values(self, arrivals: ArrivalOrder, rows: Sequence[RowBatch]) -> Float:
        values = np.full((len(arrivals.time), self.values.shape[1]), np.nan)
        for i, (mine, columns) in enumerate(zip(rows, self.columns, strict=True)):
            at = np.flatnonzero(arrivals.lane == i)
            for c, column in enumerate(columns):
                values[at, c] = mine.values[column][arrivals.row[at]]
        return values

    def _taken(
        self,
        columns: tuple[Int, Int, Int, Int],
        values: Float,
        sources: Sources,
        released: Int,
        before: Int,
        noted: Noted,
    ) -> Taken:
        """Make rows of those released; their rank is their place among them."""
        lane, key, time, delay = (column[released] for column in columns)
        row, rows = np.empty(len(released), np.int64), []
        for i, names in enumerate(self.columns):
            at = np.flatnonzero(lane == i)
            row[at] = np.arange(len(at))
            mine = {name: values[released[at], c] for c, name in enumerate(names)}
            rows.append(self._rows(RowBatch(key[at], time[at], at, mine, None), sources.of(released[at])))
        behind = come_behind(key, time, before)
        gained = np.bincount(noted.lane, minlength=len(rows)) - np.bincount(lane, minlength=len(rows))
        return Taken(ArrivalOrder(lane, key, time, row), rows, delay, behind, noted, gained)

    def _rows(self, rows: RowBatch, sources: Sources) -> RowBatch:
        """Rows of one lane with their payload, or with their row numbers if a trace is recorded."""
        if self.ids is not None:
            return replace(rows, picked=_row_numbers(self.ids, sources), payload=None)
        return replace(rows, payload=sources) if sources.has_payload else rows

    def _keep(self, columns: Sequence[Int], values: Float, sources: Sources, stay: Int) -> None:
        self.lane, self.key, self.time, self.stage, self.delay = (column[stay] for column in columns)
        self.values = values[stay]
        self.payload = sources.take(stay) if sources.has_payload else None
        if self.ids is not None:
            self.ids = _row_numbers(self.ids, sources.of(stay))

    def check(self) -> None:
        """Assert what always holds; for tests."""
        assert (np.diff(self.key) >= 0).all()
        assert np.isin(self.stage, (IN_SLACK, IN_SYNCHRONIZER)).all()
        assert (self.time <= self.clocks.newest[self.key, self.lane]).all()
        waits = self.stage == IN_SYNCHRONIZER
        assert (self.time[waits] > self.clocks.released[self.key[waits]]).all()


def _fresh(arrivals: ArrivalOrder) -> tuple[Int, ...]:
    nothing = np.zeros(len(arrivals.time), np.int64)
    return arrivals.lane, arrivals.key, arrivals.time, nothing, nothing


def _numbers(arrivals: ArrivalOrder, rows: Sequence[RowBatch]) -> Int:
    """The number of each new row in order of arrival over all keys of the call."""
    number = np.empty(len(arrivals.time), np.int64)
    for i, mine in enumerate(rows):
        at = np.flatnonzero(arrivals.lane == i)
        number[at] = mine.rank[arrivals.row[at]]
    return number


def _row_numbers(held: Int, sources: Sources) -> Int:
    """Return the row numbers of some rows; `held` has the row numbers of the rows that were buffered before."""
    at = np.arange(len(sources.order))
    numbers, old = np.empty(len(at), np.int64), sources.order < sources.count
    numbers[old] = held[sources.order[old]]
    came, lane, row = sources.new(at)
    for i, mine in enumerate(sources.rows):
        rows = row[lane == i]
        numbers[came[lane == i]] = rows if mine.picked is None else mine.picked[rows]
    return numbers
