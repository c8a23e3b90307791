"""Operator graph: the operators of a keyed pipeline and the flow of rows between them.

Algorithm: rows arrive sorted by key and arrival. A memory budget first sheds rows whose keys do not fit. With a reorder
wait the rows then enter `Reorder`. `Admission` drops late
rows. `Retention` merges the rows with the retained rows of each input, `Join` evaluates each rule, and `Lifecycle` or
`Matches` produces alerts. `Retention` then stores the rows that remain. `NoData` receives every row, independent of the
other operators.

    rows ──► Reorder ──► Admission ──► Retention ──► Join ──► Lifecycle or Matches ──► alerts
    rows ──► NoData ──► alerts

Operators are code, and the state is in the shard that each method receives.

Guarantees: the state of a shard is complete between two calls, so it can be stored and restored after any call.

Complexity: the costs of the operators. The graph adds one pass over the rows and the keys.

The caller is `runtime/keyed_pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.operators import admission, no_data
from tocsin.operators.admission import Admission
from tocsin.operators.join import operator as join_operator
from tocsin.operators.join.batch_slice import BatchSlice
from tocsin.operators.join.operator import Join
from tocsin.operators.lifecycle import operator as lifecycle
from tocsin.operators.lifecycle.emission_times import EmissionTimes
from tocsin.operators.lifecycle.operator import Lifecycle
from tocsin.operators.matches import Matches
from tocsin.operators.no_data import NoData
from tocsin.operators.reorder import operator as reorder_operator
from tocsin.operators.reorder.operator import ReleasedRows, Reorder, ReorderResults, RuleResults
from tocsin.operators.retention import operator as retention_operator
from tocsin.operators.retention.operator import Retention, SliceLayout
from tocsin.plan.retention_budget import Admitted, RetentionBudget
from tocsin.plan.steps import Watch
from tocsin.rules.durations import MOST_US
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int, Operator
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.received_rows import PipelineInputs
from tocsin.runtime.row_batch import ObservedRows, RowBatch, no_rows
from tocsin.runtime.state_registry import Retire, RetireContext, Shard, StoredSection
from tocsin.runtime.versioned_rows import VersionedRows


def retire_nothing(section: StoredSection, context: RetireContext) -> None:
    """Retire a section without rows and alerts."""


# Code that retires the sections of a page, by kind.
KINDS: dict[str, Retire] = {
    admission.KIND: retire_nothing,
    retention_operator.KIND: retention_operator.retire_rows,
    join_operator.KIND: retire_nothing,
    lifecycle.KIND: lifecycle.retire_alerts,
    no_data.CLOCK_KIND: retire_nothing,
    no_data.KIND: no_data.retire_no_data,
    reorder_operator.KIND: reorder_operator.retire_buffered_rows,
}


class RuleOperators(NamedTuple):
    """Operators of one rule."""

    join: Join
    alerts: Lifecycle | Matches


class OperatorGraph:
    """Operators of a keyed pipeline.

    Attributes
    ----------
        watch, inputs: Planned rules, and the input views that they read.
        admission, reorder, no_data: Operators for all rows; None if the plan does not need the operator.
        retentions, view_of: Operator of each input, and the number of its view.
        rules: Operators of each rule.
        operators: All operators. Their sections are the state of a shard.
        budget: Memory budget of the bucket, which the builder of the pipeline sets, or None.
    """

    def __init__(self, watch: Watch, inputs: PipelineInputs, *, is_traced: bool = False) -> None:
        self.watch, self.inputs = watch, inputs
        self.admission = Admission(watch.allowed_lateness_us)
        counted = [view.inputs for view in inputs.views]
        self.reorder = None
        if watch.order is not None:
            alerts = [rule.alert for rule in watch.rules]
            self.reorder = Reorder(watch.name, alerts, watch.order, watch.lanes, counted)
        stores = zip(watch.stores, watch.store_names, strict=True)
        self.retentions = [Retention(i, store, name) for i, (store, name) in enumerate(stores)]
        self.view_of = [watch.lanes.index(store.lane) for store in watch.stores]
        self.rules: list[RuleOperators] = []
        for i, rule in enumerate(watch.rules):
            join = Join(i, rule, watch.stores, watch.lanes, is_traced=is_traced)
            self.rules.append(RuleOperators(join, Matches(join) if rule.emit == "all" else Lifecycle(join)))
        self.no_data = NoData(watch) if watch.silences else None
        self.budget: RetentionBudget | None = None
        of_rules: list[Operator] = [operator for rule in self.rules for operator in rule]
        self.operators: list[Operator] = [self.admission, *self.retentions, *of_rules]
        self.operators += [one for one in (self.no_data, self.reorder) if one is not None]

    def attach(self, shard: Shard) -> None:
        """Add the sections of all operators to a shard, which adopt its stored sections."""
        shard.is_full_width = self.watch.budget is not None
        for operator in self.operators:
            for spec in operator.sections:
                stored = shard.attach(spec)
                if stored is not None and self.reorder is not None and spec is self.reorder.spec:
                    self.reorder.number_lanes(shard, stored)

    @property
    def observes_rows(self) -> bool:
        """Whether there are no-data rules."""
        return self.no_data is not None

    @property
    def needs_all_shards(self) -> bool:
        """Whether a memory budget can shed rows of shards without new rows."""
        return self.budget is not None

    def process(self, parts: Sequence[tuple[Shard, RowBatch]], context: Context) -> list[ReorderResults]:
        """Process or buffer the rows of a slice by shard. Return results for the wait controller."""
        self._report_loss(context)
        admitted = [rows for _, rows in parts] if self.budget is None else self.budget.admit(parts, context)
        shards, released = [shard for shard, _ in parts], list[ReleasedRows]()
        for shard, rows in zip(shards, admitted, strict=True):
            # A shard without rows changes only if rows are shed.
            shard.is_dirty |= len(rows) > 0 or (self.budget is not None and self.budget.pool.is_short)
            if context.now_us is not None:
                self.admission.state(shard).seen_us[rows.key[rows.view < len(self.inputs.views)]] = context.now_us
                for rule in self.rules:
                    rule.join.mark_seen(shard, rows, context.now_us)
            if self.reorder is not None:
                released.append(self.reorder.process(shard, rows, context))
        if self.reorder is None:
            self._evaluate(shards, admitted, context)
            return []
        return self._process_released(shards, released, context, self.reorder.wait_us)

    def _report_loss(self, context: Context) -> None:
        """Report the results that can be missing because rows were shed in earlier calls."""
        if self.budget is not None:
            context.report_loss(self.budget.pool.loss)

    def observe(self, shard: Shard, rows: ObservedRows, context: Context) -> None:
        """Pass rows to the no-data rules: all rows with a time and a key, sorted by key and arrival."""
        assert self.no_data is not None
        self.no_data.process(shard, rows, context)

    def _process_released(
        self, shards: Sequence[Shard], released: Sequence[ReleasedRows], context: Context, wait_us: int | None = None
    ) -> list[ReorderResults]:
        """Process rows that left the reorder buffers. Return their delays and results."""
        found = self._evaluate(shards, [one.rows for one in released], context, wait_us)
        return [ReorderResults(one, results) for one, results in zip(released, found, strict=True)]

    def _evaluate(
        self, shards: Sequence[Shard], rows: Sequence[RowBatch], context: Context, wait_us: int | None = None
    ) -> list[list[RuleResults]]:
        """Drop late rows, evaluate the others, and retain the rows that remain. Return the results of each rule."""
        before = [np.zeros(0, np.int64)] + [self.admission.state(shard).newest for shard in shards]
        newest = np.concatenate(before) if self.budget is not None else before[0]
        timely = [
            self.admission.process(shard, mine, context, wait_us) for shard, mine in zip(shards, rows, strict=True)
        ]
        merged = self._merge(shards, timely, newest, context)
        return [self._join(*part, context) for part in zip(shards, timely, merged, strict=True)]

    def _merge(
        self, shards: Sequence[Shard], rows: Sequence[RowBatch], newest: Int, context: Context
    ) -> list[list[VersionedRows]]:
        """Merge new rows with the retained rows of all inputs. With a memory budget, decide which rows are shed."""
        of_view = [{view: mine.of_view(view) for view in set(self.view_of)} for mine in rows]
        for shard, part in zip(shards, rows, strict=True):
            self.count_rows_without_limits(shard, part, context)
        inputs = list(zip(self.retentions, self.view_of, strict=True))
        if self.budget is None:
            return [
                [retention.process(shard, mine[view], context) for retention, view in inputs]
                for shard, mine in zip(shards, of_view, strict=True)
            ]
        layouts = [
            [retention.lay_out(shard, mine[view]) for retention, view in inputs]
            for shard, mine in zip(shards, of_view, strict=True)
        ]
        return self._merge_layouts(shards, layouts, self.budget.collect(rows, newest), context)

    def _merge_layouts(
        self, shards: Sequence[Shard], layouts: Sequence[Sequence[SliceLayout]], admitted: Admitted, context: Context
    ) -> list[list[VersionedRows]]:
        assert self.budget is not None
        versions, merged = self.budget.find_versions(admitted, layouts, context), list[list[VersionedRows]]()
        for s, (shard, mine) in enumerate(zip(shards, layouts, strict=True)):
            merged.append([])
            for i, (retention, layout) in enumerate(zip(self.retentions, mine, strict=True)):
                if versions is not None and i in versions[0][s]:
                    ends, shed = versions[0][s][i], versions[1][s][i]
                else:
                    ends, shed = retention.find_ends(layout), None
                merged[-1].append(retention.merge(shard, layout, ends, context, shed))
        return merged

    def cut_to_budget(self, context: Context) -> None:
        """Shed rows without new rows."""
        assert self.budget is not None
        shards = self.budget.shards
        none = [no_rows(max((len(store.columns) for store in self.watch.stores), default=0)) for _ in shards]
        newest = np.concatenate([self.admission.state(shard).newest for shard in shards])
        layouts = [
            [one.lay_out(shard, rows) for one in self.retentions] for shard, rows in zip(shards, none, strict=True)
        ]
        admitted = self.budget.empty_slice(none, newest)
        merged = self._merge_layouts(shards, layouts, admitted, context)
        for shard, mine in zip(shards, merged, strict=True):
            shard.is_dirty = True
            self._retain(shard, mine, context)

    def _join(
        self, shard: Shard, rows: RowBatch, merged: Sequence[VersionedRows], context: Context
    ) -> list[RuleResults]:
        """Evaluate the rules, and store the rows that remain. Return the results of each rule."""
        if not len(rows) and self.budget is not None:
            self._retain(shard, merged, context)
            none = np.zeros(0, np.int64)
            return [RuleResults(none, none) for _ in self.rules]
        arrived = BatchSlice(rows, merged, self.view_of, len(shard.keys))
        found: list[RuleResults] = []
        for join, alerts in self.rules:
            has_times = self.watch.has_emission_times and alerts.has_states
            emissions = EmissionTimes.of(join, shard, rows) if has_times else None
            results = join.process(shard, arrived, alerts.activity(shard), context)
            completed = results.completed
            if join.rule.is_strict:
                results, dropped = results.without_late()
                context.set_metric("dropped_results", dropped, join.rule.alert)
            if self.reorder is not None:
                parts = (completed, join.omitted_results(shard, arrived))
                found.append(RuleResults(*(np.concatenate(column) for column in zip(*parts, strict=True))))
            alerts.process(shard, results, context, emissions)
        self._retain(shard, merged, context)
        return found

    def count_rows_without_limits(self, shard: Shard, rows: RowBatch, context: Context) -> None:
        """Count the rows of keys that a limits table does not have."""
        for number, (retention, view) in enumerate(zip(self.retentions, self.view_of, strict=True)):
            missing = np.zeros(len(shard.keys), np.bool_)
            for join, _ in self.rules:
                if join.rule.limits and number in join.rule.stores:
                    missing |= np.isnan(join.state(shard).limits).any(axis=0)
            unlimited = int(missing[rows.key[rows.view == view]].sum()) if missing.any() else 0
            context.set_metric("without_limits", unlimited, retention.name)

    def _retain(self, shard: Shard, merged: Sequence[VersionedRows], context: Context) -> None:
        expired = self.admission.state(shard).newest - self.watch.horizon_us
        oldest = [expired] * len(self.retentions)
        for join, _ in self.rules:
            if join.rule.lag_us:  # A row that is not final yet does not expire.
                store = join.rule.stores[0]
                oldest[store] = np.minimum(oldest[store], join.state(shard).watermark + 1)
        for retention, rows, since in zip(self.retentions, merged, oldest, strict=True):
            retention.retain(shard, rows, since, context)

    def end(self, shard: Shard, context: Context) -> ReorderResults | None:
        """Process all buffered rows and waiting evaluations, because the input has ended."""
        self._report_loss(context)
        shard.is_dirty, learnt = True, None
        if self.reorder is not None:
            released = self.reorder.release(shard, np.ones(len(shard.keys), np.bool_), context)
            learnt = self._process_released([shard], [released], context)[0]
        for rule in self.rules:
            newest = rule.join.state(shard).newest.max(axis=1, initial=NEVER_SEEN)
            self._advance_watermarks(shard, rule, newest, newest, context)
        return learnt

    def _advance_watermarks(
        self, shard: Shard, rule: RuleOperators, watermark: Int, idle_until: Int, context: Context
    ) -> None:
        """Advance a rule to `watermark`. No evaluations can arrive before `idle_until`."""
        join, alerts = rule
        if join.rule.lag_us:
            retention = self.retentions[join.rule.stores[0]]
            segment = retention.process(shard, no_rows(len(retention.store.columns)), context)
            alerts.process(shard, join.finalize(shard, watermark, segment, context), context)
        alerts.advance(shard, join.advance(shard, watermark), idle_until, context)

    def advance(self, shard: Shard, now_us: int, context: Context) -> ReorderResults | None:
        """Process the passage of processing time.

        The event time of idle keys advances with processing time. After `idle_timeout` their buffered rows and waiting
        evaluations are processed. Keys without open work are evicted after `key_ttl`.
        """
        self._report_loss(context)
        learnt = None
        if self.reorder is not None:
            ends = self.reorder.blocked_keys(shard, now_us)
            if ends.any():
                shard.is_dirty = True
                learnt = self._process_released([shard], [self.reorder.release(shard, ends, context)], context)[0]
        for rule in self.rules:
            state = rule.join.state(shard)
            idle_us = now_us - state.seen_us
            newest = state.newest.max(axis=1, initial=NEVER_SEEN)
            is_idle = idle_us >= rule.join.rule.idle_timeout_us
            is_idle &= (newest != NEVER_SEEN) & _busy_keys(shard, rule) & ~self._keys_with_buffered_rows(shard)
            if is_idle.any():
                shard.is_dirty = True
                idle_until = np.where(is_idle, newest + idle_us, NEVER_SEEN)
                self._advance_watermarks(shard, rule, np.where(is_idle, newest, NEVER_SEEN), idle_until, context)
        if self.no_data is not None:
            self.no_data.advance(shard, now_us, context)
        is_expired = (self._last_seen_us(shard) < now_us - self.watch.key_ttl_us) & ~self.busy(shard)
        if is_expired.any():
            self.evict_keys(shard, is_expired, now_us, context)
        return learnt

    def _keys_with_buffered_rows(self, shard: Shard) -> Bools:
        """Mark the keys with buffered rows. These keys are not idle until the rows are released."""
        return np.zeros(len(shard.keys), np.bool_) if self.reorder is None else self.reorder.keys_with_rows(shard)

    def evict_keys(self, shard: Shard, is_expired: Bools, now_us: int, context: Context) -> None:
        """Evict keys that are not busy."""
        if self.no_data is not None:
            self.no_data.evict(shard, is_expired, now_us, context)
        for retention in self.retentions:
            retention.evict(shard, is_expired, context)
        shard.drop_keys(is_expired)
        for name in filter(self.watch.is_only_heard, self.watch.streams):
            context.set_metric("freed_keys", int(is_expired.sum()), name)

    def _last_seen_us(self, shard: Shard) -> Int:
        """Return the processing time of the last row of each key, including rows of no-data rules only."""
        seen_us = self.admission.state(shard).seen_us
        return seen_us if self.no_data is None else np.maximum(seen_us, self.no_data.clock(shard).seen_us)

    def busy(self, shard: Shard) -> Bools:
        """Mark the keys with open work of some rule."""
        busy = self._keys_with_buffered_rows(shard)
        for rule in self.rules:
            busy |= _busy_keys(shard, rule)
        return busy

    def next_timer(self, shard: Shard) -> int | None:
        """Return the processing time of the next idle timeout or eviction of a key, or None."""
        times: list[int | None] = []
        if self.watch.key_ttl_us < MOST_US:
            unused = self._last_seen_us(shard)[~self.busy(shard)]  # A busy key has its own timer.
            times += [int(unused.min()) + self.watch.key_ttl_us + 1] if len(unused) else []
        for rule in self.rules:
            # Keys with buffered rows have their own timer.
            busy = _busy_keys(shard, rule) & ~self._keys_with_buffered_rows(shard)
            if busy.any():
                planned = rule.join.rule
                # A stale alert ends after its last time, not at its last time.
                wait = np.full(len(busy), max(planned.idle_timeout_us, planned.stale_us + planned.keep_us + 1))
                wait[_waiting_keys(shard, rule)] = planned.idle_timeout_us
                times.append(int((rule.join.state(shard).seen_us + np.maximum(wait, 1_000_000))[busy].min()))
        times += [one.next_timer(shard) for one in (self.reorder, self.no_data) if one is not None]
        return min((time for time in times if time is not None), default=None)

    def count_copied_rows(self, shard: Shard, context: Context) -> None:
        """Count rows that another pipeline continues to use, as if they had arrived at this pipeline."""
        lanes = np.zeros(0, np.int64) if self.reorder is None else self.reorder.state(shard).lane
        for retention, view in zip(self.retentions, self.view_of, strict=True):
            rows, buffered = len(retention.state(shard).time), int((lanes == view).sum())
            context.count(retention.name, {RowOutcome.RETAINED: rows, RowOutcome.BUFFERED: buffered})

    def check(self, shard: Shard) -> None:
        """Assert the invariants. Only tests call this method."""
        shard.check()
        if self.reorder is not None:
            self.reorder.check(shard)
        if self.no_data is not None:
            assert (self.no_data.columns(shard).newest <= self.no_data.clock(shard).event_time).all()
        for join, alerts in self.rules:
            state = join.state(shard)
            assert (state.seen_us <= self.admission.state(shard).seen_us).all()
            assert not (alerts.activity(shard).is_active & (state.watermark == NEVER_SEEN)).any()
            assert (state.watermark <= state.newest.max(axis=1)).all()


def _waiting_keys(shard: Shard, rule: RuleOperators) -> Bools:
    """Mark the keys with buffered evaluations or with rows that are not final."""
    return rule.alerts.waiting_keys(shard) | rule.join.has_unfinal_rows(shard)


def _busy_keys(shard: Shard, rule: RuleOperators) -> Bools:
    """Mark the keys that are waiting or have an alert."""
    return _waiting_keys(shard, rule) | rule.alerts.open_keys(shard)
