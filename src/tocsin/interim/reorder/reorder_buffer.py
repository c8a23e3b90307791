"""Reorder buffer: the buffered rows of the keys of a shard; `stages/order` decides when each row is released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tocsin.hashing import stable_hash
from tocsin.interim.reorder.wait_controller import Noted
from tocsin.jit import kernel
from tocsin.operators.reorder.k_slack import IN_SLACK, IN_SYNCHRONIZER
from tocsin.operators.reorder.reorder_rows import StreamClocks, drain_rows, reorder_rows
from tocsin.plan.identity import Lane
from tocsin.plan.order import Order
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.row_batch import Cells, JoinedPayload, RowBatch
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

KIND = "reorder"
_COLUMNS = ("lane", "key", "time", "stage", "delay", "skew")


def reorder_schema(lanes: Sequence[Lane]) -> StateSchema:
    """Return the schema of a buffer of rows from these lanes."""
    width = max(len(columns) for _, columns in lanes)
    rows = [Column(name) for name in _COLUMNS if name != "key"]
    rows += [Column("values", np.float64, np.nan, width), Column("payload", object, None, is_optional=True)]
    newest = Column("newest", default=NEVER_SEEN, width=len(lanes))
    per_key = (newest, Column("released", default=NEVER_SEEN), Column("front", default=NEVER_SEEN), Column("moved"))
    return StateSchema(KIND, per_key, tables=(Table("key", tuple(rows)),))


def retire_buffered_rows(section: StoredSection, context: RetireContext) -> None:
    """Count the buffered rows of removed rules as expired, under all names of their lane."""
    for i, names in enumerate(section.facts["counted"]):
        rows = int((section.arrays["lane"] == i).sum())
        for name in names if rows else ():
            context.out.metrics.count_rows(name, {RowOutcome.BUFFERED: -rows, RowOutcome.EXPIRED: rows})


class Taken(NamedTuple):
    """Released rows in the order of their release, by key.

    Attributes
    ----------
        rows: Released rows. Their serial numbers are their positions.
        delay: Distance of each row to the clock of its stream at its arrival.
        skew: Distance of this clock to the slowest clock.
        behind: ReorderRows that were released after a later row of their key.
        noted: Delays of the rows that arrived with this call.
        gained: Change of the number of buffered rows by view.
    """

    rows: RowBatch
    delay: Int
    skew: Int
    behind: Bools
    noted: Noted
    gained: Int


@kernel
def mark_out_of_order_releases(key: Int, time: Int, released: Int) -> Bools:
    """Mark the rows released after a later row of their key, and update the released time of each key."""
    behind = np.empty(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        behind[i] = time[i] < released[key[i]]
        released[key[i]] = max(released[key[i]], time[i])
    return behind


class Hold:
    """StreamClocks of the keys of a page, and the rows that wait, by key and arrival.

    `moved_us` is when, by the engine's clock, the newest clock of a key last rose or a row of it was last taken: a key
    whose clocks stand still while rows go on coming must not hold them for ever.
    """

    lane, key, time = StateArray("lane"), StateArray("key"), StateArray("time")
    stage, delay, skew, values = StateArray("stage"), StateArray("delay"), StateArray("skew"), StateArray("values")
    moved_us, payload = StateArray("moved"), OptionalStateArray("payload")

    def __init__(self, order: Order, lanes: Sequence[Lane], counted: Sequence[Sequence[str]]) -> None:
        """Create an empty buffer. The rows of lane i are counted under the names `counted[i]`."""
        self.order, self.lanes, self.columns = order, lanes, [columns for _, columns in lanes]
        facts = {"lanes": lanes, "counted": counted}
        self.section = Section(stable_hash(KIND, sorted(lanes)), reorder_schema(lanes), facts)
        # Positions of the buffered rows in their streams while a trace is recorded.
        self.ids: Int | None = None

    @property
    def clocks(self) -> StreamClocks:
        """StreamClocks of the keys."""
        arrays = self.section.arrays
        return StreamClocks(arrays["newest"], arrays["released"], arrays["front"])

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

    def take(self, rows: RowBatch, slack_us: int, now_us: int | None = None) -> Taken:
        """Buffer new rows, which are ordered by key and arrival, and return the rows that are due."""
        count, nothing = len(self.time), np.zeros(len(rows), np.int64)
        new_columns = (rows.view, rows.key, rows.time, nothing, nothing, nothing)
        merged = [np.concatenate(pair) for pair in zip(self._columns(), new_columns, strict=True)]
        order = np.argsort(merged[1], kind="stable")
        view, key, time, stage, delay, skew = (column[order] for column in merged)
        before, front = self.clocks.released.copy(), self.clocks.newest.max(axis=1, initial=NEVER_SEEN)
        released, _, stage, late, lead = reorder_rows(
            self.clocks, key, view, time, stage, slack_us, self.order.idle_timeout_us, is_prompt=True
        )
        if now_us is not None:
            self.moved_us[self.clocks.newest.max(axis=1, initial=NEVER_SEEN) > front] = now_us
            self.moved_us[key[released]] = now_us
        new = np.flatnonzero(order >= count)
        delay[new], skew[new] = late[new], lead[new]
        noted = Noted(rows.serial[order[new] - count], view[new], delay[new], skew[new])
        both = RowBatch(view, key, time, np.arange(len(time)), order, self._join_cells(rows))
        taken = self._release(both, (delay, skew), released, before, noted)
        self._store(both, stage, (delay, skew), np.flatnonzero(stage))
        return taken

    def end(self, ends: Bools) -> Taken:
        """Release all buffered rows of the marked keys."""
        before = self.clocks.released.copy()
        released = drain_rows(self.clocks, self.key, self.time, ends)
        stay = np.ones(len(self.time), np.bool_)
        stay[released] = False
        none, number = np.zeros(0, np.int64), np.arange(len(self.time))
        rows = RowBatch(self.lane, self.key, self.time, number, number, self._join_cells(None))
        taken = self._release(rows, (self.delay, self.skew), released, before, Noted(none, none, none, none))
        self._store(rows, self.stage, (self.delay, self.skew), np.flatnonzero(stay))
        return taken

    def _columns(self) -> tuple[Int, ...]:
        return self.lane, self.key, self.time, self.stage, self.delay, self.skew

    def _join_cells(self, rows: RowBatch | None) -> Cells:
        """Return the values, positions and payload of the buffered rows and then of the new rows."""
        count = len(self.time)
        position = np.zeros(count, np.int64) if self.ids is None else self.ids
        if rows is None:
            return Cells(self.values.T, position, self.payload)
        values = np.concatenate([self.values.T, rows.cells.values[:, rows.cell]], axis=1)
        payload = None
        if self.payload is not None or rows.has_payload:
            payload = JoinedPayload([(count, self.payload, None), (len(rows), rows.cells.payload, rows.cell)])
        return Cells(values, np.concatenate([position, rows.cells.position[rows.cell]]), payload)

    def _release(self, rows: RowBatch, delays: tuple[Int, Int], released: Int, before: Int, noted: Noted) -> Taken:
        """Return the released rows; `before` has the released time of each key before this call."""
        taken = replace(rows.take(released), serial=np.arange(len(released)))
        behind = mark_out_of_order_releases(taken.key, taken.time, before)
        views = len(self.columns)
        gained = np.bincount(noted.lane, minlength=views) - np.bincount(taken.view, minlength=views)
        return Taken(taken, delays[0][released], delays[1][released], behind, noted, gained)

    def _store(self, rows: RowBatch, stage: Int, delays: tuple[Int, Int], at: Int) -> None:
        """Store the rows that stay in the buffer."""
        stay = rows.take(at)
        self.payload = stay.texts(np.arange(len(stay))) if stay.has_payload else None
        self.values = np.ascontiguousarray(stay.cells.values[:, stay.cell].T)
        self.lane, self.key, self.time, self.stage = stay.view, stay.key, stay.time, stage[at]
        self.delay, self.skew = delays[0][at], delays[1][at]
        if self.ids is not None:
            self.ids = stay.cells.position[stay.cell]

    def check(self) -> None:
        """Assert what always holds; for tests."""
        assert (np.diff(self.key) >= 0).all()
        assert np.isin(self.stage, (IN_SLACK, IN_SYNCHRONIZER)).all()
        assert (self.time <= self.clocks.newest[self.key, self.lane]).all()
        waits = self.stage == IN_SYNCHRONIZER
        assert (self.time[waits] > self.clocks.released[self.key[waits]]).all()
