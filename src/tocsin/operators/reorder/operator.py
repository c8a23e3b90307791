"""Reorder: rows wait in a buffer, so that rows of a key are processed in order of event time.

Algorithm: each stream of a key has a K-slack buffer, and each key has a synchronizer for its streams (`reorder_rows`).
A wait policy chooses K for the whole bucket. It receives the delays of arriving rows and the results of released rows.
It decides whenever the time of the bucket has moved by `adapt_every`. This time is the median event time of each
`BLOCK` rows in arrival order. So a wrong clock cannot move it, and a gap in all streams passes at once.

If buckets share a wait (`wait_agreement`), a bucket uses its own statistics until the first common wait. A common wait
is valid from a bucket time on. From then on K moves there as fast as to a wait of its own.

Guarantees: batch boundaries change neither the released rows nor their order in a key, nor the waits.

Complexity: O(log b) per row for b buffered rows of its key, and O(b) per call; one median per block.

References: Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016, sections III
and V.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.hashing import stable_hash
from tocsin.operators.reorder.k_slack import IN_SLACK, IN_SYNCHRONIZER
from tocsin.operators.reorder.model_wait import ModelWait
from tocsin.operators.reorder.observed_wait import ObservedWait
from tocsin.operators.reorder.reorder_rows import StreamClocks, drain_rows, reorder_rows
from tocsin.operators.reorder.wait_agreement import NewWait, encode_statistics
from tocsin.operators.reorder.wait_policy import FixedWait, MaxWait, WaitPolicy
from tocsin.plan.identity import Lane
from tocsin.plan.order import Order
from tocsin.rules.quality import FIXED, MAX, OBSERVED
from tocsin.runtime.bucket_clock import BLOCK, block_medians
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.row_batch import Cells, JoinedPayload, RowBatch, mark_out_of_order
from tocsin.runtime.state_codec import pack
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

KIND = "reorder"
# Page of a shard group with the state of the wait.
WAIT_PAGE = "pace"
# Common waits that a bucket stores for later. A newer wait replaces the last of them.
MAX_PENDING = 64
_COLUMNS = ("lane", "key", "time", "stage", "delay", "skew")
_NO_ROWS = np.zeros(0, np.int64)


def reorder_schema(lanes: Sequence[Lane]) -> StateSchema:
    """Return the schema of a buffer of rows from these lanes."""
    width = max(len(columns) for _, columns in lanes)
    rows = [Column(name) for name in _COLUMNS if name != "key"]
    rows += [Column("values", np.float64, np.nan, width), Column("payload", object, None, is_optional=True)]
    rows.append(Column("position", is_optional=True, is_transient=True))
    clocks = [Column("newest", default=NEVER_SEEN, width=len(lanes))]
    clocks += [Column(name, default=NEVER_SEEN) for name in ("released", "front")]
    return StateSchema(KIND, (*clocks, Column("moved")), tables=(Table("key", tuple(rows)),))


def retire_buffered_rows(section: StoredSection, context: RetireContext) -> None:
    """Count the buffered rows of removed rules as expired, under all names of their lane."""
    for i, names in enumerate(section.facts["counted"]):
        rows = int((section.arrays["lane"] == i).sum())
        for name in names if rows else ():
            context.out.metrics.count_rows(name, {RowOutcome.BUFFERED: -rows, RowOutcome.EXPIRED: rows})


class Arrivals(NamedTuple):
    """Rows at their arrival: serial number, lane, delay and skew."""

    serial: Int
    lane: Int
    delay: Int
    skew: Int


class ReleasedRows(NamedTuple):
    """Released rows in the order of their release, by key.

    Attributes
    ----------
        rows: Released rows. Their serial numbers are their positions.
        delay, skew: Delay and skew of each row at its arrival.
        behind: Rows that were released after a later row of their key.
        arrivals: Rows that arrived with this call.
    """

    rows: RowBatch
    delay: Int
    skew: Int
    behind: Bools
    arrivals: Arrivals


class RuleResults(NamedTuple):
    """Results of one rule: serial number of the released row that completed each result, and time of the result.

    An evaluation has the time of its row. A match of `emit: all` has the newest time of its rows.
    """

    serial: Int
    time: Int


class ReorderResults(NamedTuple):
    """Released rows and the results of each rule."""

    released: ReleasedRows
    by_rule: Sequence[RuleResults]


class Decision(NamedTuple):
    """Position of a decision in a batch, bucket time at this position, and number of intervals since the last one."""

    rows: int
    time_us: int
    intervals: int


def wait_policy_of(order: Order) -> WaitPolicy:
    """Return the policy that a rule configures."""
    waiting = order.waiting
    if waiting.kind == FIXED:
        return FixedWait(waiting.wait_us)
    if waiting.kind == MAX:
        return MaxWait(order.allowed_lateness_us)
    if waiting.strategy == OBSERVED:
        return ObservedWait(order.quality, order.windows_us)
    return ModelWait(order.quality, order.windows_us, waiting.strategy)


class ReorderState(OperatorState):
    """Clocks and buffered rows of the keys of a shard. The rows are ordered by key and arrival.

    Attributes
    ----------
        lane, key, time, values, payload: Columns of the buffered rows.
        stage: Place of each row in the buffers.
        delay, skew: Delay and skew of each row at its arrival.
        position: Position of each row in its stream while a trace is recorded, or None.
        moved_us: Processing time of the last rise of the newest time of each key, or of its last release.
    """

    lane, key, time = StateArray("lane"), StateArray("key"), StateArray("time")
    stage, delay, skew, values = StateArray("stage"), StateArray("delay"), StateArray("skew"), StateArray("values")
    moved_us = StateArray("moved")
    payload, position = OptionalStateArray("payload"), OptionalStateArray("position")

    @property
    def clocks(self) -> StreamClocks:
        """Newest time of each stream, newest released time, and front, of each key."""
        arrays = self.section.arrays
        return StreamClocks(arrays["newest"], arrays["released"], arrays["front"])

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

    def store(self, rows: RowBatch, columns: tuple[Int, Int, Int], at: Int, *, with_position: bool) -> None:
        """Store the rows that stay in the buffer. `columns` are stage, delay and skew of all rows."""
        stay = rows.take(at)
        self.payload = stay.texts(np.arange(len(stay))) if stay.has_payload else None
        self.values = np.ascontiguousarray(stay.cells.values[:, stay.cell].T)
        self.lane, self.key, self.time = stay.view, stay.key, stay.time
        self.stage, self.delay, self.skew = (column[at] for column in columns)
        self.position = stay.cells.position[stay.cell] if with_position else None


class Reorder:
    """Operator that buffers rows, and the adaptive choice of their wait.

    Attributes
    ----------
        pipeline, alerts: Names of the pipeline and of its rules.
        order, lanes: Planned wait, and input views.
        policy: Policy that chooses the wait, with its statistics.
        recent: Event times of the current block of rows.
        time_us, last_us: Bucket time, and bucket time of the last decision.
        pending, agreed_us: Common waits by the bucket time from which they are valid, and the valid one or None.
        dirty: Whether the state of the wait has changed.
    """

    def __init__(
        self,
        pipeline: str,
        alerts: Sequence[str],
        order: Order,
        lanes: Sequence[Lane],
        counted: Sequence[Sequence[str]],
    ) -> None:
        """Create the operator. The rows of lane i are counted under the names `counted[i]`."""
        self.pipeline, self.alerts, self.order, self.lanes = pipeline, alerts, order, lanes
        facts = {"lanes": lanes, "counted": counted}
        self.spec = SectionSpec(stable_hash(KIND, sorted(lanes)), reorder_schema(lanes), facts)
        self.sections = (self.spec,)
        self.policy = wait_policy_of(order)
        self.recent = _NO_ROWS
        self.time_us = self.last_us = NEVER_SEEN
        self.pending: list[tuple[int, int]] = []
        self.agreed_us: int | None = None
        self.dirty = False
        # Decisions in the rows of this call, the first of them at a position after the begin of the next slice.
        self._decisions: deque[Decision] = deque()
        self._rows: RowBatch | None = None

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
        return self.policy.wait_us

    def process(self, shard: Shard, rows: RowBatch, context: Context) -> ReleasedRows:
        """Buffer new rows, which are ordered by key and arrival, and return the rows that are due."""
        state, now_us, wait_us = self.state(shard), context.now_us, self.wait_us
        count, zeros = len(state.time), np.zeros(len(rows), np.int64)
        buffered = (state.lane, state.key, state.time, state.stage, state.delay, state.skew)
        if count:
            new_columns = (rows.view, rows.key, rows.time, zeros, zeros, zeros)
            merged = [np.concatenate(pair) for pair in zip(buffered, new_columns, strict=True)]
            order = np.argsort(merged[1], kind="stable")
            view, key, time, stage, delay, skew = (column[order] for column in merged)
            new = np.flatnonzero(order >= count)
        else:
            view, key, time, stage, order = rows.view, rows.key, rows.time, zeros, np.arange(len(rows))
            delay, skew, new = np.empty_like(zeros), np.empty_like(zeros), order
        before, front = state.clocks.released.copy(), state.clocks.newest.max(axis=1, initial=NEVER_SEEN)
        released, _, stage, own_delay, own_skew = reorder_rows(
            state.clocks, key, view, time, stage, wait_us, self.order.idle_timeout_us, is_prompt=True
        )
        if now_us is not None:
            state.moved_us[state.clocks.newest.max(axis=1, initial=NEVER_SEEN) > front] = now_us
            state.moved_us[key[released]] = now_us
        delay[new], skew[new] = own_delay[new], own_skew[new]
        arrivals = Arrivals(rows.serial[order[new] - count], view[new], delay[new], skew[new])
        both = RowBatch(view, key, time, np.arange(len(time)), order, state.join_cells(rows))
        result = self._release(shard, both, (delay, skew), released, before, arrivals, context, wait_us)
        columns = (stage, delay, skew)
        state.store(both, columns, np.flatnonzero(stage), with_position=context.listener is not None)
        return result

    def release(self, shard: Shard, ends: Bools, context: Context) -> ReleasedRows:
        """Release all buffered rows of the marked keys."""
        state = self.state(shard)
        before = state.clocks.released.copy()
        released = drain_rows(state.clocks, state.key, state.time, ends)
        stay = np.ones(len(state.time), np.bool_)
        stay[released] = False
        number = np.arange(len(state.time))
        rows = RowBatch(state.lane, state.key, state.time, number, number, state.join_cells(None))
        arrivals, delays = Arrivals(_NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS), (state.delay, state.skew)
        result = self._release(shard, rows, delays, released, before, arrivals, context, None)
        columns = (state.stage, state.delay, state.skew)
        state.store(rows, columns, np.flatnonzero(stay), with_position=context.listener is not None)
        return result

    def _release(
        self,
        shard: Shard,
        rows: RowBatch,
        delays: tuple[Int, Int],
        released: Int,
        before: Int,
        arrivals: Arrivals,
        context: Context,
        wait_us: int | None,
    ) -> ReleasedRows:
        """Return the released rows. `before` has the released times of all keys before this call."""
        taken = replace(rows.take(released), serial=np.arange(len(released)))
        behind = mark_out_of_order(taken.key, taken.time, before)
        views = len(self.lanes)
        gained = np.bincount(arrivals.lane, minlength=views) - np.bincount(taken.view, minlength=views)
        context.count_views(RowOutcome.BUFFERED, gained)
        late = np.bincount(taken.view[behind], minlength=views)
        for view, number in zip(context.views, late.tolist(), strict=True):
            for name in view.inputs:
                context.set_metric("behind", number, name)
        reason = "it arrived after the reorder wait and was used out of order"
        context.record(shard, taken, behind, None, reason=reason, wait_us=wait_us)
        delay, skew = (column[released] for column in delays)
        return ReleasedRows(taken, delay, skew, behind, arrivals)

    def rows_before_decision(self, rows: RowBatch, begin: int) -> int | None:
        """Return the number of rows from `begin` on before the next decision, or None if none is due in this batch."""
        if begin == 0 and not self._decisions and rows is not self._rows:
            self._rows, self._decisions = rows, deque(self._find_decisions(rows.time))
        return self._decisions[0].rows - begin if self._decisions else None

    def _find_decisions(self, time: Int) -> list[Decision]:
        """Return the decisions in rows, which are in arrival order."""
        if not self.order.adapts:
            return []
        before, every_us, found = len(self.recent), self.order.waiting.adapt_every_us, []
        medians, self.recent = block_medians(np.concatenate([self.recent, time]))
        for i, self.time_us in enumerate(medians):
            if self.last_us == NEVER_SEEN:
                self.last_us = self.time_us
            # The time can move back: after rows with a time in the future it continues from the present.
            elif (intervals := abs(self.time_us - self.last_us) // every_us) > 0:
                intervals = min(intervals, self.order.waiting.period_us // every_us)
                found.append(Decision((i + 1) * BLOCK - before, self.time_us, intervals))
                self.last_us = self.time_us
        return found

    def decide(self, context: Context) -> None:
        """Choose the wait. After the last decision of a call, publish the statistics for a common wait."""
        decision = self._decisions.popleft()
        valid = bisect_right(self.pending, decision.time_us, key=itemgetter(0))
        if valid:
            self.agreed_us = self.pending[valid - 1][1]
            del self.pending[:valid]
        self.policy.adapt(decision.intervals, self.agreed_us)
        if self.order.shared and not self._decisions:
            known = self.policy.statistics()
            assert known is not None, "buckets share only waits whose statistics can be merged"
            context.publish({"time_us": decision.time_us, **encode_statistics(known)})

    def observe(self, results: Sequence[ReorderResults], context: Context) -> None:
        """Pass the delays and results of the shards to the policy, and count the results of each rule by period."""
        self._count_results(results, context)
        if not self.order.adapts:
            return
        self.dirty = True
        columns = zip(*(one.released.arrivals for one in results), strict=True)
        arrivals = Arrivals(*(np.concatenate(column) for column in columns))
        order = np.argsort(arrivals.serial, kind="stable")
        self.policy.note_arrivals(arrivals.lane[order], arrivals.delay[order], arrivals.skew[order])
        for released, by_rule in results:
            if len(released.delay):
                serials = np.concatenate([each.serial for each in by_rule])
                count = np.bincount(serials, minlength=len(released.delay)).astype(np.float64)
                # The number of combinations that a row completed is unknown, because rows can be omitted.
                cross = np.ones(len(count))
                self.policy.note_results(released.delay, released.skew, cross, count, ~released.behind)

    def _count_results(self, results: Sequence[ReorderResults], context: Context) -> None:
        """Count the results of each rule by period, and those in order."""
        period_us = self.order.waiting.period_us
        for i, alert in enumerate(self.alerts):
            serials = [(one.released.behind, one.by_rule[i]) for one in results]
            time = np.concatenate([each.time for _, each in serials])
            if not len(time):
                continue
            in_order = np.concatenate([~behind[each.serial] for behind, each in serials])
            period, place = np.unique(time // period_us, return_inverse=True)
            whole, ordered = np.bincount(place), np.bincount(place, in_order)
            for start_us, n, m in zip((period * period_us).tolist(), ordered.tolist(), whole.tolist(), strict=True):
                context.set_metric("results_in_order", int(n), alert, str(start_us))
                context.set_metric("results", m, alert, str(start_us))

    def report(self, context: Context) -> None:
        """Set the metrics of a call."""
        self._rows = None
        estimated = self.policy.estimated
        for alert in self.alerts:
            context.set_metric("wait_us", self.policy.wait_us, alert)
            context.set_metric("wait_recall", None if math.isnan(estimated) else estimated, alert)

    def apply_control(self, message: Any, context: Context) -> None:
        """Apply a wait that all buckets of this pipeline share."""
        if isinstance(message, NewWait) and message.watch == self.pipeline and self.order.shared:
            if len(self.pending) == MAX_PENDING:
                self.pending.pop()
            self.pending = sorted([*self.pending, (message.from_us, message.wait_us)], key=itemgetter(0))
            self.dirty = True

    def state_page(self) -> tuple[str, bytes | None]:
        """Return the name of the page of the wait, and its bytes if they changed."""
        page = pack(self.state_arrays()) if self.dirty else None
        self.dirty = False
        return WAIT_PAGE, page

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state of the wait as arrays."""
        own: dict[str, NDArray[Any]] = {"times": np.array([self.time_us, self.last_us]), "recent": self.recent}
        if self.order.shared:
            own["pending"] = np.array(self.pending, np.int64).reshape(-1, 2)
            own["agreed"] = np.array([] if self.agreed_us is None else [self.agreed_us], np.int64)
        return own | {f"wait.{name}": array for name, array in self.policy.state_arrays().items()}

    def restore_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Read the arrays of `state_arrays`. Ignore the state of a policy of another kind."""
        self.time_us, self.last_us = (int(time) for time in arrays["times"])
        self.recent = arrays["recent"]
        own = {name.removeprefix("wait."): array for name, array in arrays.items() if name.startswith("wait.")}
        if own.keys() >= self.policy.state_arrays().keys():
            self.policy.restore_state(own)
        if self.order.shared and "agreed" in arrays:
            self.pending = [(from_us, wait_us) for from_us, wait_us in arrays["pending"].tolist()]
            self.agreed_us = next(iter(arrays["agreed"].tolist()), None)

    def check(self, shard: Shard) -> None:
        """Assert the invariants. Only tests call this method."""
        state = self.state(shard)
        assert (np.diff(state.key) >= 0).all()
        assert np.isin(state.stage, (IN_SLACK, IN_SYNCHRONIZER)).all()
        assert (state.time <= state.clocks.newest[state.key, state.lane]).all()
        waits = state.stage == IN_SYNCHRONIZER
        assert (state.time[waits] > state.clocks.released[state.key[waits]]).all()
