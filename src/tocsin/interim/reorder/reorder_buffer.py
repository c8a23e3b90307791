"""Reorder: the rows that wait until earlier rows have arrived.

Algorithm: each stream of a key has a K-slack buffer, and each key has a synchronizer for its streams (`stages/order`).
The caller chooses the wait K.

Guarantees: batch boundaries change neither the released rows nor their order in a key.

Complexity: O(log b) per row for b buffered rows of its key, and O(b) per call.

References: Ji et al., ICDE 2016, section III.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tocsin.hashing import stable_hash
from tocsin.interim.reorder.wait_controller import Noted, WaitController
from tocsin.jit import kernel
from tocsin.plan.identity import Lane
from tocsin.plan.order import Order
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.row_batch import Cells, JoinedPayload, RowBatch
from tocsin.runtime.state_registry import (
    Column,
    OperatorState,
    OptionalStateArray,
    RetireContext,
    SectionSpec,
    Shard,
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
    rows.append(Column("position", is_optional=True, is_transient=True))
    newest = Column("newest", default=NEVER_SEEN, width=len(lanes))
    per_key = (newest, Column("released", default=NEVER_SEEN), Column("moved"))
    return StateSchema(KIND, per_key, tables=(Table("key", tuple(rows)),))


def retire_buffered_rows(section: StoredSection, context: RetireContext) -> None:
    """Count the buffered rows of removed rules as expired, under all names of their lane."""
    for i, names in enumerate(section.facts["counted"]):
        rows = int((section.arrays["lane"] == i).sum())
        for name in names if rows else ():
            context.out.metrics.count_rows(name, {RowOutcome.BUFFERED: -rows, RowOutcome.EXPIRED: rows})


class ReleasedRows(NamedTuple):
    """Released rows in the order of their release, by key.

    Attributes
    ----------
        rows: Released rows. Their serial numbers are their positions.
        delay: Delay of each row at its arrival, against the newest row of its stream.
        behind: Rows that were released after a later row of their key.
        noted: Delays of the rows that arrived with this call.
    """

    rows: RowBatch
    delay: Int
    behind: Bools
    noted: Noted


@kernel
def mark_out_of_order_releases(key: Int, time: Int, released: Int) -> Bools:
    """Mark the rows released after a later row of their key, and update the released time of each key."""
    behind = np.empty(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        behind[i] = time[i] < released[key[i]]
        released[key[i]] = max(released[key[i]], time[i])
    return behind


class ReorderState(OperatorState):
    """Clocks and buffered rows of the keys of a shard. The rows are ordered by key and arrival.

    Attributes
    ----------
        lane, key, time, values, payload: Columns of the buffered rows.
        stage: Place of each row in the buffers.
        delay: Delay of each row at its arrival, against the newest row of its stream.
        position: Position of each row in its stream while a trace is recorded, or None.
        moved_us: Processing time of the last rise of the newest time of each key, or of its last release.
    """

    lane, key, time = StateArray("lane"), StateArray("key"), StateArray("time")
    stage, delay, values = StateArray("stage"), StateArray("delay"), StateArray("values")
    moved_us = StateArray("moved")
    payload, position = OptionalStateArray("payload"), OptionalStateArray("position")

    @property
    def clocks(self) -> Clocks:
        """Newest time of each stream, and newest released time, of each key."""
        return Clocks(self.section.arrays["newest"], self.section.arrays["released"])

    def columns(self) -> tuple[Int, ...]:
        """Return the columns that `reorder_rows` reads."""
        return self.lane, self.key, self.time, self.stage, self.delay

    def join_cells(self, rows: RowBatch | None) -> Cells:
        """Return the values, positions and payload of the buffered rows and then of the new rows."""
        count = len(self.time)
        position = np.zeros(count, np.int64) if self.position is None else self.position
        if rows is None:
            return Cells(self.values.T, position, self.payload)
        values = np.concatenate([self.values.T, rows.cells.values[:, rows.cell]], axis=1)
        payload = None
        if self.payload is not None or rows.has_payload:
            payload = JoinedPayload([(count, self.payload, None), (len(rows), rows.cells.payload, rows.cell)])
        return Cells(values, np.concatenate([position, rows.cells.position[rows.cell]]), payload)

    def store(self, rows: RowBatch, stage: Int, delay: Int, at: Int, *, with_position: bool) -> None:
        """Store the rows that stay in the buffer."""
        stay = rows.take(at)
        self.payload = stay.texts(np.arange(len(stay))) if stay.has_payload else None
        self.values = np.ascontiguousarray(stay.cells.values[:, stay.cell].T)
        self.lane, self.key, self.time, self.stage, self.delay = stay.view, stay.key, stay.time, stage[at], delay[at]
        self.position = stay.cells.position[stay.cell] if with_position else None


class Reorder:
    """Operator that buffers rows for a wait.

    Attributes
    ----------
        order, lanes: Planned wait, and input views.
        waits: Controller that chooses the wait.
    """

    def __init__(
        self, order: Order, lanes: Sequence[Lane], counted: Sequence[Sequence[str]], waits: WaitController
    ) -> None:
        """Create the operator. The rows of lane i are counted under the names `counted[i]`."""
        self.order, self.lanes, self.waits = order, lanes, waits
        facts = {"lanes": lanes, "counted": counted}
        self.spec = SectionSpec(stable_hash(KIND, sorted(lanes)), reorder_schema(lanes), facts)
        self.sections = (self.spec,)

    def state(self, shard: Shard) -> ReorderState:
        """Return the buffered rows of a shard."""
        return ReorderState(shard.sections[self.spec.id])

    def number_lanes(self, shard: Shard, stored: StoredSection) -> None:
        """Renumber the lanes of an adopted section by this plan. Rules can change their order."""
        before: list[Lane] = [(stream, tuple(columns)) for stream, columns in stored.facts["lanes"]]
        place, state = np.array([list(self.lanes).index(lane) for lane in before]), self.state(shard)
        state.lane = place[state.lane]
        newest = np.empty_like(state.clocks.newest)
        newest[:, place] = state.clocks.newest
        state.section.arrays["newest"] = newest

    def blocked_keys(self, shard: Shard, now_us: int) -> Bools:
        """Mark the keys with buffered rows that have not moved for `idle_timeout`."""
        return self.keys_with_rows(shard) & (now_us - self.state(shard).moved_us >= self.order.idle_timeout_us)

    def next_timer(self, shard: Shard) -> int | None:
        """Return the processing time of the next possible idle key with buffered rows, or None."""
        state = self.state(shard)
        if not len(state.key):
            return None
        return int(state.moved_us[state.key].min()) + max(self.order.idle_timeout_us, 1_000_000)

    def keys_with_rows(self, shard: Shard) -> Bools:
        """Mark the keys that have buffered rows."""
        has_rows = np.zeros(len(shard.keys), np.bool_)
        has_rows[self.state(shard).key] = True
        return has_rows

    @property
    def wait_us(self) -> int:
        """Wait of the next rows."""
        return self.waits.wait.wait_us

    def process(self, shard: Shard, rows: RowBatch, context: Context) -> ReleasedRows:
        """Buffer new rows, which are ordered by key and arrival, and return the rows that are due."""
        state, now_us, wait_us = self.state(shard), context.now_us, self.wait_us
        count, nothing = len(state.time), np.zeros(len(rows), np.int64)
        new_columns = (rows.view, rows.key, rows.time, nothing, nothing)
        merged = [np.concatenate(pair) for pair in zip(state.columns(), new_columns, strict=True)]
        order = np.argsort(merged[1], kind="stable")
        view, key, time, stage, delay = (column[order] for column in merged)
        before, front = state.clocks.released.copy(), state.clocks.newest.max(axis=1, initial=NEVER_SEEN)
        released, _, stage, late, skew = arrange(
            state.clocks, key, view, time, stage, wait_us, self.order.idle_timeout_us, prompt=True
        )
        if now_us is not None:
            state.moved_us[state.clocks.newest.max(axis=1, initial=NEVER_SEEN) > front] = now_us
            state.moved_us[key[released]] = now_us
        new = np.flatnonzero(order >= count)
        delay[new] = late[new]
        noted = Noted(rows.serial[order[new] - count], view[new], delay[new], skew[new])
        both = RowBatch(view, key, time, np.arange(len(time)), order, state.join_cells(rows))
        taken = self._release(shard, both, (delay, released, before), noted, context, wait_us)
        state.store(both, stage, delay, np.flatnonzero(stage), with_position=context.listener is not None)
        return taken

    def release(self, shard: Shard, ends: Bools, context: Context) -> ReleasedRows:
        """Release all buffered rows of the marked keys."""
        state = self.state(shard)
        before = state.clocks.released.copy()
        released = drain(state.clocks, state.key, state.time, ends)
        stay = np.ones(len(state.time), np.bool_)
        stay[released] = False
        none, number = np.zeros(0, np.int64), np.arange(len(state.time))
        rows = RowBatch(state.lane, state.key, state.time, number, number, state.join_cells(None))
        marks = (state.delay, released, before)
        taken = self._release(shard, rows, marks, Noted(none, none, none, none), context, None)
        at = np.flatnonzero(stay)
        state.store(rows, state.stage, state.delay, at, with_position=context.listener is not None)
        return taken

    def _release(
        self,
        shard: Shard,
        rows: RowBatch,
        marks: tuple[Int, Int, Int],
        noted: Noted,
        context: Context,
        wait_us: int | None,
    ) -> ReleasedRows:
        """Return the released rows. `marks` has the delays, the released rows, and the released times before."""
        delay, released, before = marks
        taken = replace(rows.take(released), serial=np.arange(len(released)))
        behind = mark_out_of_order_releases(taken.key, taken.time, before)
        views = len(self.lanes)
        gained = np.bincount(noted.lane, minlength=views) - np.bincount(taken.view, minlength=views)
        context.count_views(RowOutcome.BUFFERED, gained)
        late = np.bincount(taken.view[behind], minlength=views)
        for view, number in zip(context.views, late.tolist(), strict=True):
            for name in view.inputs:
                context.set_metric("behind", number, name)
        reason = "it arrived after the reorder wait and was used out of order"
        context.record(shard, taken, behind, None, reason=reason, wait_us=wait_us)
        return ReleasedRows(taken, delay[released], behind, noted)

    def check(self, shard: Shard) -> None:
        """Assert the invariants. Only tests call this method."""
        state = self.state(shard)
        assert (np.diff(state.key) >= 0).all()
        assert np.isin(state.stage, (IN_SLACK, IN_SYNCHRONIZER)).all()
        assert (state.time <= state.clocks.newest[state.key, state.lane]).all()
        waits = state.stage == IN_SYNCHRONIZER
        assert (state.time[waits] > state.clocks.released[state.key[waits]]).all()
