"""Operator chain: the operators of a keyed pipeline over one shard.

Algorithm: rows arrive sorted by key and arrival. With a reorder wait they enter the reorder buffer first. Released rows
pass the filter for late rows. `Retention` merges them with the retained rows of each input, each `Join` evaluates its
rule, and its lifecycle produces alerts. `Retention` then stores the rows that remain. The no-data detector receives
every row, independent of the other operators.

Guarantees: the state is complete between two calls, so each chain can be stored and restored after any call.

Complexity: the costs of the operators. The chain adds one pass over the rows and the keys.

The caller is `plan/keyed_pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tocsin.hashing import stable_hash
from tocsin.interim.reorder import reorder_buffer
from tocsin.interim.reorder.reorder_buffer import Hold, Taken
from tocsin.interim.reorder.wait_controller import Gave, Learnt, Pace
from tocsin.operators import no_data
from tocsin.operators.admission import filter_late_rows, late_rows
from tocsin.operators.join import operator as join_operator
from tocsin.operators.join.batch_slice import BatchSlice
from tocsin.operators.join.operator import Join
from tocsin.operators.lifecycle import operator as lifecycle
from tocsin.operators.lifecycle.alert_changes import AlertChanges, lifecycle_alerts
from tocsin.operators.lifecycle.alert_state_machine import NONE
from tocsin.operators.lifecycle.emission_times import EmissionTimes
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.operators.matches import match_alerts
from tocsin.operators.no_data import NoDataDetector, NumberedChanges, ObservedRows, no_data_alerts
from tocsin.operators.retention import operator as retention_operator
from tocsin.operators.retention.operator import Retention
from tocsin.plan.page_tracer import PageTracer
from tocsin.plan.steps import Threshold, Watch
from tocsin.rules.durations import MOST_US, duration_text
from tocsin.runtime.alert_batch import FIRING, NO_TIME
from tocsin.runtime.contract import NEVER_SEEN, Int, Listener, Out
from tocsin.runtime.metrics import QualityLoss, RowOutcome, quality_text
from tocsin.runtime.row_batch import RowBatch, no_rows
from tocsin.runtime.state_registry import (
    Column,
    Retire,
    RetireContext,
    Section,
    Shard,
    StateArray,
    StateSchema,
    StoredSection,
)
from tocsin.runtime.versioned_rows import VersionedRows

KEYS_PER_PAGE = 32_768


ADMISSION_KIND = "admission"
_ADMISSION = StateSchema(ADMISSION_KIND, (Column("newest", default=NEVER_SEEN), Column("seen")))


def retire_nothing(section: StoredSection, context: RetireContext) -> None:
    """Retire a section without rows and alerts."""


# Code that retires the sections of a page, by kind.
KINDS: dict[str, Retire] = {
    ADMISSION_KIND: retire_nothing,
    retention_operator.KIND: retention_operator.retire_rows,
    join_operator.KIND: retire_nothing,
    lifecycle.KIND: lifecycle.retire_alerts,
    no_data.CLOCK_KIND: retire_nothing,
    no_data.KIND: no_data.retire_no_data,
    reorder_buffer.KIND: reorder_buffer.retire_buffered_rows,
}


class OperatorChain:
    """Operators of a keyed pipeline over one shard.

    Attributes
    ----------
        watch, shard: Planned rules, and the stored state of the keys.
        newest, seen_us: Newest event time, and processing time of the last row, of each key.
        retentions: Retained rows of each input.
        views: Number of the input view of each input.
        joins: Join and lifecycle of each rule.
        reorder_buffer: Buffer of the reorder wait, or None.
        no_data: Detector of the no-data rules, or None.
        quality_loss: Loss of quality by rows that were shed.
        delay_statistics: Statistics for the wait controller since its last decision.
        tracer: Reporter of row outcomes for a trace, or None.
    """

    newest, seen_us = StateArray("newest"), StateArray("seen")

    def __init__(self, watch: Watch, shard: Shard) -> None:
        self.watch, self.shard = watch, shard
        shard.is_full_width = watch.budget is not None
        self.section = Section(stable_hash(ADMISSION_KIND), _ADMISSION)
        stores = zip(watch.stores, watch.store_names, strict=True)
        self.retentions = [Retention(store, name) for store, name in stores]
        self.joins = [Join(rule, watch.stores, watch.lanes) for rule in watch.rules]
        self.views = [watch.lanes.index(store.lane) for store in watch.stores]
        self.reorder_buffer = None if watch.order is None else Hold(watch.order, watch.lanes, self._counter_names())
        self.no_data = NoDataDetector(watch) if watch.silences else None
        self.quality_loss = QualityLoss(NEVER_SEEN)
        self.delay_statistics: list[Learnt] = []
        self.tracer: PageTracer | None = None
        self._attach()

    def _attach(self) -> None:
        """Add the sections of all operators to the shard."""
        sections = [self.section, *(retention.section for retention in self.retentions)]
        for join in self.joins:
            sections += [join.section, join.lifecycle.section]
        if self.no_data is not None:
            sections += [self.no_data.section, *self.no_data.streams]
        for section in sections:
            self.shard.attach(section)
        if self.reorder_buffer is not None and (stored := self.shard.attach(self.reorder_buffer.section)) is not None:
            self.reorder_buffer.number_lanes(stored)

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """Names of the keys."""
        return self.shard.keys.names

    def trace(self, listener: Listener) -> None:
        """Report row outcomes and evaluations to a listener from now on. The chain must be without rows."""
        self.tracer = PageTracer(listener, self.watch, self.retentions)
        for number, join in enumerate(self.joins):
            join.corners.known = False  # A trace needs the evaluations that change nothing, too.
            join.observer = partial(self.tracer.record_evaluations, number)
        if self.reorder_buffer is not None:
            self.reorder_buffer.ids = np.zeros(0, np.int64)

    def on_rows(self, rows: RowBatch, now_us: int | None, out: Out, pace: Pace | None = None) -> None:
        """Process or buffer rows, which are sorted by key and arrival."""
        self.shard.is_dirty = True
        if now_us is not None:
            self.seen_us[rows.key[rows.view < len(self.watch.lanes)]] = now_us
            for join in self.joins:
                join.seen_us[rows.key[join.stream_of[rows.view] >= 0]] = now_us
        if self.reorder_buffer is None or pace is None:
            self._process_ordered_rows(rows, out)
            return
        wait_us = pace.wait.wait_us
        self._process_released_rows(self.reorder_buffer.take(rows, wait_us, now_us), out, wait_us)

    def _process_released_rows(self, released: Taken, out: Out, wait_us: int | None = None) -> None:
        """Process rows that left the reorder buffer. `wait_us` is used for late rows only."""
        rows = released.rows
        behind = np.bincount(rows.view[released.behind], minlength=len(self.watch.lanes))
        for i, name in zip(self.views, self.watch.store_names, strict=True):
            out.metrics.count_rows(name, {RowOutcome.BUFFERED: int(released.gained[i])})
            out.metrics.record("behind", int(behind[i]), name)
        if released.behind.any():
            why = "it arrived after the reorder wait and was used out of order"
            out.late += late_rows(self.watch, self.keys, rows, released.behind, why, wait_us)
        self._process_ordered_rows(rows, out, wait_us)
        gave = np.concatenate([join.result_serials for join in self.joins])
        results = np.bincount(gave, minlength=len(released.delay)).astype(np.float64)
        self.delay_statistics.append(
            Learnt(released.noted, Gave(released.delay, released.skew, rows.time, results, ~released.behind))
        )

    def _process_ordered_rows(self, rows: RowBatch, out: Out, wait_us: int | None = None) -> None:
        """Drop late rows, and evaluate the others."""
        timely = filter_late_rows(rows.key, rows.time, self.newest, self.watch.allowed_lateness_us)
        of_view = {view: rows.of_view(view) for view in set(self.views)}
        self._count_arrivals(rows, of_view, timely, out)
        if not timely.all():
            why = (
                f"it is later than `allowed_lateness` ({duration_text(self.watch.allowed_lateness_us)}) and was dropped"
            )
            out.late += late_rows(self.watch, self.keys, rows, ~timely, why, wait_us)
            rows = rows.take(timely)
            of_view = {view: rows.of_view(view) for view in of_view}
        self._evaluate_rules(rows, of_view, out)

    def observe_rows(self, rows: ObservedRows, now_us: int | None, out: Out) -> None:
        """Pass rows to the no-data detector: all rows with a time and a key, sorted by key and arrival."""
        assert self.no_data is not None
        self.shard.is_dirty = True
        self._report_no_data(self.no_data.on_rows(rows, now_us), out)

    def _count_arrivals(
        self, rows: RowBatch, of_view: Mapping[int, RowBatch], timely: NDArray[np.bool_], out: Out
    ) -> None:
        stores = zip(self.retentions, self.views, self.watch.store_names, strict=True)
        for number, (retention, view, name) in enumerate(stores):
            late = 0 if timely.all() else int((~timely[rows.view == view]).sum())
            missing = self._keys_without_limits(number)
            unlimited = int(missing[of_view[view].key].sum()) if missing.any() else 0
            out.metrics.count_rows(name, {RowOutcome.LATE: late})
            out.metrics.record("out_of_domain", retention.count_out_of_domain(of_view[view]), name)
            out.metrics.record("without_limits", unlimited, name)

    def _keys_without_limits(self, store: int) -> NDArray[np.bool_]:
        """Mark the keys that are missing in a limits table of a rule that reads this input."""
        missing = np.zeros(len(self.keys), np.bool_)
        for rule, join in zip(self.watch.rules, self.joins, strict=True):
            if rule.limits and store in rule.stores:
                missing |= np.isnan(join.limits).any(axis=0)
        return missing

    def _evaluate_rules(self, rows: RowBatch, of_view: Mapping[int, RowBatch], out: Out) -> None:
        """Merge, join and evaluate the rows, raise alerts, and retain the rows that remain."""
        merged = [self._merge(i, of_view[view]) for i, view in enumerate(self.views)]
        arrived = BatchSlice(rows, merged, self.views, len(self.keys))
        for join in self.joins:
            has_times = self.watch.has_emission_times and join.lifecycle.has_alerts
            emissions = EmissionTimes.of(join, rows) if has_times else None
            changes, matches = join.process(arrived)
            if self.reorder_buffer is not None:
                join.count_omitted_results(arrived)
            self._report_changes(join, changes, out, emissions)
            self._report_matches(join, matches, out)
        self._retain(merged, out)

    def _merge(self, store: int, rows: RowBatch) -> VersionedRows:
        """Merge new rows with the retained rows of a store."""
        merged = self.retentions[store].merge(rows)
        if self.tracer is not None:
            self.tracer.record_merge(store, rows, merged)
        return merged

    def _retain(self, merged: Sequence[VersionedRows], out: Out) -> None:
        oldest = [self.newest - self.watch.horizon_us for _ in self.retentions]
        for rule, join in zip(self.watch.rules, self.joins, strict=True):
            if rule.lag_us:  # A row that is not final yet does not expire.
                oldest[rule.stores[0]] = np.minimum(oldest[rule.stores[0]], join.watermark + 1)
        for i, (retention, name) in enumerate(zip(self.retentions, self.watch.store_names, strict=True)):
            if self.tracer is not None:
                self.tracer.record_reduction(i, merged[i], oldest[i])
            out.metrics.count_rows(name, retention.retain(merged[i], oldest[i]))

    def on_end(self, out: Out) -> None:
        """Process all buffered rows and waiting evaluations, because the input has ended."""
        self.shard.is_dirty = True
        if self.reorder_buffer is not None:
            self._process_released_rows(self.reorder_buffer.end(np.ones(len(self.keys), np.bool_)), out)
        for rule, join in zip(self.watch.rules, self.joins, strict=True):
            newest = join.newest.max(axis=1, initial=NEVER_SEEN)
            self._advance_watermarks(rule, join, newest, newest, out)

    def _advance_watermarks(self, rule: Threshold, join: Join, watermark: Int, idle_until: Int, out: Out) -> None:
        """Advance a rule to `watermark`. No evaluations can arrive before `idle_until`."""
        if rule.lag_us:
            segment = self._merge(rule.stores[0], no_rows(len(self.watch.stores[rule.stores[0]].columns)))
            self._report_changes(join, join.finalize_rows(watermark, segment), out)
        self._report_changes(join, join.advance(watermark, idle_until, with_late=True), out)

    def on_time(self, now_us: int, out: Out) -> None:
        """Process the passage of processing time.

        The event time of idle keys advances with processing time. After `idle_timeout` their buffered rows and waiting
        evaluations are processed. Keys without open work are evicted after `key_ttl`.
        """
        if self.reorder_buffer is not None:
            ends = self.reorder_buffer.stuck(now_us)
            if ends.any():
                self.shard.is_dirty = True
                self._process_released_rows(self.reorder_buffer.end(ends), out)
        for rule, join in zip(self.watch.rules, self.joins, strict=True):
            idle_us = now_us - join.seen_us
            newest = join.newest.max(axis=1, initial=NEVER_SEEN)
            is_idle = (
                (idle_us >= rule.idle_timeout_us)
                & (newest != NEVER_SEEN)
                & join.busy()
                & ~self._keys_with_buffered_rows()
            )
            if is_idle.any():
                self.shard.is_dirty = True
                idle_until = np.where(is_idle, newest + idle_us, NEVER_SEEN)
                watermark = np.where(is_idle, newest, NEVER_SEEN)
                self._advance_watermarks(rule, join, watermark, idle_until, out)
        if self.no_data is not None:
            self._report_no_data(self.no_data.on_time(now_us), out)
        self._evict_expired_keys(now_us, out)

    def _keys_with_buffered_rows(self) -> NDArray[np.bool_]:
        """Mark the keys with buffered rows. These keys are not idle until the rows are released."""
        return np.zeros(len(self.keys), np.bool_) if self.reorder_buffer is None else self.reorder_buffer.holding()

    def _evict_expired_keys(self, now_us: int, out: Out) -> None:
        is_expired = (self._last_seen_us() < now_us - self.watch.key_ttl_us) & ~self.busy()
        if is_expired.any():
            self.evict_keys(is_expired, now_us, out)

    def evict_keys(self, is_expired: NDArray[np.bool_], now_us: int, out: Out) -> None:
        """Evict keys that are not busy."""
        self.shard.is_dirty = True
        if self.no_data is not None:
            self._report_no_data(self.no_data.end_keys(is_expired, now_us), out, quality_text(end="key-expired"))
        for retention, name in zip(self.retentions, self.watch.store_names, strict=True):
            dropped = retention.count_rows(is_expired)
            out.metrics.count_rows(name, {RowOutcome.EXPIRED: dropped, RowOutcome.RETAINED: -dropped})
            out.metrics.record("freed_keys", int(is_expired.sum()), name)
        self.shard.drop_keys(is_expired)
        for name in filter(self.watch.is_only_heard, self.watch.streams):
            out.metrics.record("freed_keys", int(is_expired.sum()), name)

    def _last_seen_us(self) -> Int:
        """Return the processing time of the last row of each key, including rows of no-data rules only."""
        return self.seen_us if self.no_data is None else np.maximum(self.seen_us, self.no_data.seen_us)

    def busy(self) -> NDArray[np.bool_]:
        """Mark the keys with open work of some rule."""
        busy = self._keys_with_buffered_rows()
        for join in self.joins:
            busy |= join.busy()
        return busy

    def next_timer(self) -> int | None:
        """Return the processing time of the next idle timeout or eviction of a key, or None."""
        times = []
        if self.watch.key_ttl_us < MOST_US:
            unused = self._last_seen_us()[~self.busy()]  # A busy key has its own timer.
            times += [int(unused.min()) + self.watch.key_ttl_us + 1] if len(unused) else []
        for rule, join in zip(self.watch.rules, self.joins, strict=True):
            busy = join.busy() & ~self._keys_with_buffered_rows()  # Keys with buffered rows have their own timer.
            if busy.any():
                # A stale alert ends after its last time, not at its last time.
                wait = np.full(len(busy), max(rule.idle_timeout_us, rule.stale_us + rule.keep_us + 1))
                wait[join.is_waiting()] = rule.idle_timeout_us
                times.append(int((join.seen_us + np.maximum(wait, 1_000_000))[busy].min()))
        if self.reorder_buffer is not None and (timer := self.reorder_buffer.next_timer()) is not None:
            times.append(timer)
        if self.no_data is not None and (timer := self.no_data.next_timer()) is not None:
            times.append(timer)
        return min(times, default=None)

    def _report_no_data(self, changes: NumberedChanges, out: Out, quality: str = quality_text()) -> None:
        assert self.no_data is not None
        self.shard.is_dirty |= bool(changes)
        for i, mine in changes:
            out.alerts.append(no_data_alerts(self.no_data.identities[i], self.watch.on, self.keys, mine, quality))

    def _report_changes(
        self, join: Join, changes: Sequence[AlertChanges], out: Out, emissions: EmissionTimes | None = None
    ) -> None:
        for mine in changes:
            # A missing row may have started this alert, or an earlier alert that would not have ended yet.
            since = np.minimum(mine.start, mine.shown.times.min(axis=1))
            losses = self._losses(since - join.rule.keep_us - join.rule.stale_us)
            qualities = [
                quality_text(loss, is_late=bool(mine.late), is_out_of_domain=odd)
                for loss, odd in zip(losses, join.outside(mine.shown).tolist(), strict=True)
            ]
            batch = lifecycle_alerts(join.identity, self.watch.on, self.keys, mine, qualities)
            if emissions is not None:
                emitted, firing = np.full(len(batch), NO_TIME), np.flatnonzero((mine.state == FIRING) & (not mine.late))
                emitted[firing] = emissions.find(mine.key[firing], mine.fires[firing])
                batch = replace(batch, emitted=emitted)
            out.alerts.append(batch)

    def _report_matches(self, join: Join, matches: Witnesses, out: Out) -> None:
        if not len(matches.key):
            return
        outside = join.outside(matches).tolist()
        if join.match_probabilities is None:
            losses = zip(self._losses(matches.times.min(axis=1)), outside, strict=True)
            qualities = [quality_text(loss, is_out_of_domain=odd) for loss, odd in losses]
        else:
            probabilities = zip(join.match_probabilities.tolist(), outside, strict=True)
            qualities = [quality_text(probability=one, is_out_of_domain=odd) for one, odd in probabilities]
        batch = match_alerts(join.identity, self.watch.on, self.keys, matches.key, matches, qualities)
        out.alerts.append(batch)

    def _losses(self, since: Int) -> list[QualityLoss | None]:
        """Return the loss of results from these times on, or None if no row that they may need was shed."""
        return [self.quality_loss if is_lost else None for is_lost in (since <= self.quality_loss.until_us).tolist()]

    def _counter_names(self) -> list[list[str]]:
        """Return the counter names of each input view."""
        names = list(zip(self.views, self.watch.store_names, strict=True))
        return [[name for view, name in names if view == i] for i in range(len(self.watch.lanes))]

    def count_copied_rows(self, out: Out) -> None:
        """Count rows that another pipeline continues to use, as if they had arrived at this pipeline."""
        for retention, i, name in zip(self.retentions, self.views, self.watch.store_names, strict=True):
            held = 0 if self.reorder_buffer is None else int((self.reorder_buffer.lane == i).sum())
            rows = len(retention.time)
            out.metrics.count_rows(name, {RowOutcome.RETAINED: rows, RowOutcome.BUFFERED: held})

    def check(self) -> None:
        """Assert the invariants. Only tests call this method."""
        self.shard.check()
        if self.reorder_buffer is not None:
            self.reorder_buffer.check()
        if self.no_data is not None:
            assert (self.no_data.columns.newest <= self.no_data.event_time).all()
        for join in self.joins:
            assert len(join.lifecycle.is_open()) == len(self.keys)
            assert (join.seen_us <= self.seen_us).all()
            if join.lifecycle.has_alerts:
                alive = join.lifecycle.machines[0].phase != NONE
                assert not (alive & (join.watermark == NEVER_SEEN)).any()
            assert (join.watermark <= join.newest.max(axis=1)).all()
