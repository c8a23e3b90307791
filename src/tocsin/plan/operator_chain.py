"""Page: the state of some thousand keys of one watch, and the work of one batch on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tocsin.hashing import stable_hash
from tocsin.interim.reorder import reorder_buffer as hold
from tocsin.interim.reorder.reorder_buffer import Hold, Taken
from tocsin.interim.reorder.wait_controller import Gave, Learnt, Pace
from tocsin.jit import kernel
from tocsin.operators import no_data
from tocsin.operators.admission import late_rows
from tocsin.operators.join import operator as join
from tocsin.operators.join.batch_slice import BatchSlice
from tocsin.operators.join.operator import Join
from tocsin.operators.lifecycle import operator as lifecycle
from tocsin.operators.lifecycle.alert_changes import AlertChanges, lifecycle_alerts
from tocsin.operators.lifecycle.alert_state_machine import NONE
from tocsin.operators.lifecycle.emission_times import EmissionTimes
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.operators.matches import match_alerts
from tocsin.operators.no_data import NoDataDetector, NumberedChanges, ObservedRows, no_data_alerts
from tocsin.operators.retention import operator as retention
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


@kernel
def admit(key: Int, time: Int, newest: Int, allowed_lateness: int) -> NDArray[np.bool_]:
    """Move the newest time of each key; tell which rows are not too late to serve."""
    timely = np.empty(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        newest[key[i]] = max(newest[key[i]], time[i])
        timely[i] = time[i] >= newest[key[i]] - allowed_lateness
    return timely


ADMISSION_KIND = "admission"
_ADMISSION = StateSchema(ADMISSION_KIND, (Column("newest", default=NEVER_SEEN), Column("seen")))


def retire_nothing(section: StoredSection, context: RetireContext) -> None:
    """Retire a section without rows and alerts."""


# Code that retires the sections of a page, by kind.
KINDS: dict[str, Retire] = {
    ADMISSION_KIND: retire_nothing,
    retention.KIND: retention.retire_rows,
    join.KIND: retire_nothing,
    lifecycle.KIND: lifecycle.retire_alerts,
    no_data.CLOCK_KIND: retire_nothing,
    no_data.KIND: no_data.retire_no_data,
    hold.KIND: hold.retire_buffered_rows,
}


class Page:
    """Keys, the rows remembered of them, and the lives of their alerts."""

    newest, seen_us = StateArray("newest"), StateArray("seen")

    def __init__(self, watch: Watch, shard: Shard) -> None:
        self.watch, self.shard = watch, shard
        shard.is_full_width = watch.budget is not None
        self.section = Section(stable_hash(ADMISSION_KIND), _ADMISSION)
        stores = zip(watch.stores, watch.store_names, strict=True)
        self.remembered = [Retention(store, name) for store, name in stores]
        self.followed = [Join(rule, watch.stores, watch.lanes) for rule in watch.rules]
        self.lanes = [watch.lanes.index(store.lane) for store in watch.stores]
        self.hold = None if watch.order is None else Hold(watch.order, watch.lanes, self._counted())
        self.silences = NoDataDetector(watch) if watch.silences else None
        # Where rows were shed: up to which time results may be missing, and the expected share of the results.
        self.loss = QualityLoss(NEVER_SEEN)
        self.learnt: list[Learnt] = []
        self.tracer: PageTracer | None = None
        self._attach()

    def _attach(self) -> None:
        """Add the sections of all operators to the shard."""
        sections = [self.section, *(memory.section for memory in self.remembered)]
        for followed in self.followed:
            sections += [followed.section, followed.lifecycle.section]
        if self.silences is not None:
            sections += [self.silences.section, *self.silences.streams]
        for section in sections:
            self.shard.attach(section)
        if self.hold is not None and (stored := self.shard.attach(self.hold.section)) is not None:
            self.hold.number_lanes(stored)

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """Names of the keys."""
        return self.shard.keys.names

    def trace(self, listener: Listener) -> None:
        """Report row outcomes and evaluations to a listener from now on. The page must be without rows."""
        self.tracer = PageTracer(listener, self.watch, self.remembered)
        for number, followed in enumerate(self.followed):
            followed.corners.known = False  # A trace needs the evaluations that change nothing, too.
            followed.observer = partial(self.tracer.record_evaluations, number)
        if self.hold is not None:
            self.hold.ids = np.zeros(0, np.int64)

    def on_rows(self, rows: RowBatch, now_us: int | None, out: Out, pace: Pace | None = None) -> None:
        """Process rows, which are ordered by key and arrival, or buffer them."""
        self.shard.is_dirty = True
        if now_us is not None:
            self.seen_us[rows.key[rows.view < len(self.watch.lanes)]] = now_us
            for followed in self.followed:
                followed.seen_us[rows.key[followed.stream_of[rows.view] >= 0]] = now_us
        if self.hold is None or pace is None:
            self._take(rows, out)
            return
        wait_us = pace.wait.wait_us
        self._take_waited(self.hold.take(rows, wait_us, now_us), out, wait_us)

    def _take_waited(self, taken: Taken, out: Out, wait_us: int | None = None) -> None:
        """Take rows that wait no longer; where no row came, none of them is late, and the wait does not matter."""
        rows = taken.rows
        behind = np.bincount(rows.view[taken.behind], minlength=len(self.watch.lanes))
        for i, name in zip(self.lanes, self.watch.store_names, strict=True):
            out.metrics.count_rows(name, {RowOutcome.BUFFERED: int(taken.gained[i])})
            out.metrics.record("behind", int(behind[i]), name)
        if taken.behind.any():
            why = "it arrived after the reorder wait and was used out of order"
            out.late += late_rows(self.watch, self.keys, rows, taken.behind, why, wait_us)
        self._take(rows, out, wait_us)
        gave = np.concatenate([followed.result_serials for followed in self.followed])
        results = np.bincount(gave, minlength=len(taken.delay)).astype(np.float64)
        self.learnt.append(Learnt(taken.noted, Gave(rows.view, taken.delay, rows.time, results, ~taken.behind)))

    def _take(self, rows: RowBatch, out: Out, wait_us: int | None = None) -> None:
        timely = admit(rows.key, rows.time, self.newest, self.watch.allowed_lateness_us)
        of_view = {view: rows.of_view(view) for view in set(self.lanes)}
        self._count_arrivals(rows, of_view, timely, out)
        if not timely.all():
            why = (
                f"it is later than `allowed_lateness` ({duration_text(self.watch.allowed_lateness_us)}) and was dropped"
            )
            out.late += late_rows(self.watch, self.keys, rows, ~timely, why, wait_us)
            rows = rows.take(timely)
            of_view = {view: rows.of_view(view) for view in of_view}
        self._work(rows, of_view, out)

    def on_heard(self, heard: ObservedRows, now_us: int | None, out: Out) -> None:
        """Let silences hear rows, ordered by key and arrival: all that have a time and a key."""
        assert self.silences is not None
        self.shard.is_dirty = True
        self._report_silences(self.silences.on_rows(heard, now_us), out)

    def _count_arrivals(
        self, rows: RowBatch, of_view: Mapping[int, RowBatch], timely: NDArray[np.bool_], out: Out
    ) -> None:
        stores = zip(self.remembered, self.lanes, self.watch.store_names, strict=True)
        for number, (memory, view, name) in enumerate(stores):
            late = 0 if timely.all() else int((~timely[rows.view == view]).sum())
            missing = self._without_limits(number)
            unlimited = int(missing[of_view[view].key].sum()) if missing.any() else 0
            out.metrics.count_rows(name, {RowOutcome.LATE: late})
            out.metrics.record("out_of_domain", memory.count_out_of_domain(of_view[view]), name)
            out.metrics.record("without_limits", unlimited, name)

    def _without_limits(self, store: int) -> NDArray[np.bool_]:
        """Keys that a limits table does not have, though a rule that reads this store asks it."""
        missing = np.zeros(len(self.keys), np.bool_)
        for rule, followed in zip(self.watch.rules, self.followed, strict=True):
            if rule.limits and store in rule.stores:
                missing |= np.isnan(followed.limits).any(axis=0)
        return missing

    def _work(self, rows: RowBatch, of_view: Mapping[int, RowBatch], out: Out) -> None:
        """Merge, join and evaluate the rows, raise alerts, and retain the rows that remain."""
        merged = [self._merge(i, of_view[view]) for i, view in enumerate(self.lanes)]
        arrived = BatchSlice(rows, merged, self.lanes, len(self.keys))
        for followed in self.followed:
            has_times = self.watch.has_emission_times and followed.lifecycle.has_alerts
            emissions = EmissionTimes.of(followed, rows) if has_times else None
            changes, matches = followed.process(arrived)
            if self.hold is not None:
                followed.count_omitted_results(arrived)
            self._report(followed, changes, out, emissions)
            self._report_matches(followed, matches, out)
        self._retain(merged, out)

    def _merge(self, store: int, rows: RowBatch) -> VersionedRows:
        """Merge new rows with the retained rows of a store."""
        segments = self.remembered[store].merge(rows)
        if self.tracer is not None:
            self.tracer.record_merge(store, rows, segments)
        return segments

    def _retain(self, merged: Sequence[VersionedRows], out: Out) -> None:
        floors = [self.newest - self.watch.horizon_us for _ in self.remembered]
        for rule, followed in zip(self.watch.rules, self.followed, strict=True):
            if rule.lag_us:  # A row that is not settled yet does not expire.
                floors[rule.stores[0]] = np.minimum(floors[rule.stores[0]], followed.watermark + 1)
        for i, (memory, name) in enumerate(zip(self.remembered, self.watch.store_names, strict=True)):
            if self.tracer is not None:
                self.tracer.record_reduction(i, merged[i], floors[i])
            out.metrics.count_rows(name, memory.retain(merged[i], floors[i]))

    def on_end(self, out: Out) -> None:
        """Wait for nothing any more."""
        self.shard.is_dirty = True
        if self.hold is not None:
            self._take_waited(self.hold.end(np.ones(len(self.keys), np.bool_)), out)
        for rule, followed in zip(self.watch.rules, self.followed, strict=True):
            front = followed.newest.max(axis=1, initial=NEVER_SEEN)
            self._go_on(rule, followed, front, front, out)

    def _go_on(self, rule: Threshold, followed: Join, progress: Int, silence: Int, out: Out) -> None:
        """Let a rule wait for nothing up to `progress`; nothing was said until `silence`."""
        if rule.lag_us:
            segment = self._merge(rule.stores[0], no_rows(len(self.watch.stores[rule.stores[0]].columns)))
            self._report(followed, followed.finalize_rows(progress, segment), out)
        self._report(followed, followed.advance(progress, silence, with_late=True), out)

    def on_time(self, now_us: int, out: Out) -> None:
        """Move the event time of silent keys with the clock, end all waits after `idle_timeout`, and drop dead keys."""
        if self.hold is not None:
            ends = self.hold.stuck(now_us)
            if ends.any():
                self.shard.is_dirty = True
                self._take_waited(self.hold.end(ends), out)
        for rule, followed in zip(self.watch.rules, self.followed, strict=True):
            quiet = now_us - followed.seen_us
            front = followed.newest.max(axis=1, initial=NEVER_SEEN)
            idle = (quiet >= rule.idle_timeout_us) & (front != NEVER_SEEN) & followed.busy() & ~self._holding()
            if idle.any():
                self.shard.is_dirty = True
                silence = np.where(idle, front + quiet, NEVER_SEEN)
                progress = np.where(idle, front, NEVER_SEEN)
                self._go_on(rule, followed, progress, silence, out)
        if self.silences is not None:
            self._report_silences(self.silences.on_time(now_us), out)
        self._free_keys(now_us, out)

    def _holding(self) -> NDArray[np.bool_]:
        """Keys that have rows which wait: nothing is silent before these were taken."""
        return np.zeros(len(self.keys), np.bool_) if self.hold is None else self.hold.holding()

    def _free_keys(self, now_us: int, out: Out) -> None:
        gone = (self._seen() < now_us - self.watch.key_ttl_us) & ~self.busy()
        if gone.any():
            self.free(gone, now_us, out)

    def free(self, gone: NDArray[np.bool_], now_us: int, out: Out) -> None:
        """Forget keys that are not busy."""
        self.shard.is_dirty = True
        if self.silences is not None:
            self._report_silences(self.silences.end_keys(gone, now_us), out, quality_text(end="key-expired"))
        for memory, name in zip(self.remembered, self.watch.store_names, strict=True):
            dropped = memory.rows_of(gone)
            out.metrics.count_rows(name, {RowOutcome.EXPIRED: dropped, RowOutcome.RETAINED: -dropped})
            out.metrics.record("freed_keys", int(gone.sum()), name)
        self.shard.drop_keys(gone)
        for name in filter(self.watch.is_only_heard, self.watch.streams):
            out.metrics.record("freed_keys", int(gone.sum()), name)

    def _seen(self) -> Int:
        """When a row of each key was last there, if only to be heard."""
        return self.seen_us if self.silences is None else np.maximum(self.seen_us, self.silences.seen_us)

    def busy(self) -> NDArray[np.bool_]:
        """Keys for which some rule has something open."""
        busy = self._holding()
        for followed in self.followed:
            busy |= followed.busy()
        return busy

    def next_timer(self) -> int | None:
        """When a quiet key should be looked at, or freed."""
        times = []
        if self.watch.key_ttl_us < MOST_US:
            free = self._seen()[~self.busy()]  # A busy key has a timer of its own, and is freed there or later.
            times += [int(free.min()) + self.watch.key_ttl_us + 1] if len(free) else []
        for rule, followed in zip(self.watch.rules, self.followed, strict=True):
            busy = followed.busy() & ~self._holding()  # Those have a timer of their own, below.
            if busy.any():
                # A life ends when silence has passed its end, not when it has reached it.
                wait = np.full(len(busy), max(rule.idle_timeout_us, rule.stale_us + rule.keep_us + 1))
                wait[followed.is_waiting()] = rule.idle_timeout_us
                times.append(int((followed.seen_us + np.maximum(wait, 1_000_000))[busy].min()))
        if self.hold is not None and (timer := self.hold.next_timer()) is not None:
            times.append(timer)
        if self.silences is not None and (timer := self.silences.next_timer()) is not None:
            times.append(timer)
        return min(times, default=None)

    def _report_silences(self, changes: NumberedChanges, out: Out, quality: str = quality_text()) -> None:
        assert self.silences is not None
        self.shard.is_dirty |= bool(changes)
        for i, mine in changes:
            out.alerts.append(no_data_alerts(self.silences.identities[i], self.watch.on, self.keys, mine, quality))

    def _report(
        self, followed: Join, changes: Sequence[AlertChanges], out: Out, emissions: EmissionTimes | None = None
    ) -> None:
        for mine in changes:
            # A missing row may have started this alert, or an earlier alert that would not have ended yet.
            since = np.minimum(mine.start, mine.shown.times.min(axis=1))
            losses = self._losses(since - followed.rule.keep_us - followed.rule.stale_us)
            qualities = [
                quality_text(loss, is_late=bool(mine.late), is_out_of_domain=odd)
                for loss, odd in zip(losses, followed.outside(mine.shown).tolist(), strict=True)
            ]
            batch = lifecycle_alerts(followed.identity, self.watch.on, self.keys, mine, qualities)
            if emissions is not None:
                emitted, firing = np.full(len(batch), NO_TIME), np.flatnonzero((mine.state == FIRING) & (not mine.late))
                emitted[firing] = emissions.find(mine.key[firing], mine.fires[firing])
                batch = replace(batch, emitted=emitted)
            out.alerts.append(batch)

    def _report_matches(self, followed: Join, matches: Witnesses, out: Out) -> None:
        if not len(matches.key):
            return
        outside = followed.outside(matches).tolist()
        if followed.match_probabilities is None:
            losses = zip(self._losses(matches.times.min(axis=1)), outside, strict=True)
            qualities = [quality_text(loss, is_out_of_domain=odd) for loss, odd in losses]
        else:
            chances = zip(followed.match_probabilities.tolist(), outside, strict=True)
            qualities = [quality_text(probability=chance, is_out_of_domain=odd) for chance, odd in chances]
        batch = match_alerts(followed.identity, self.watch.on, self.keys, matches.key, matches, qualities)
        out.alerts.append(batch)

    def _losses(self, since: Int) -> list[QualityLoss | None]:
        """Return the loss of results from these times on, or None if no row that they may need was shed."""
        return [self.loss if shed else None for shed in (since <= self.loss.until_us).tolist()]

    def _counted(self) -> list[list[str]]:
        """By lane, the names under which its rows are counted."""
        names = list(zip(self.lanes, self.watch.store_names, strict=True))
        return [[name for of, name in names if of == i] for i in range(len(self.watch.lanes))]

    def count_copies(self, out: Out) -> None:
        """Count rows that another watch goes on with too: to this one it is as if they had come."""
        for memory, i, name in zip(self.remembered, self.lanes, self.watch.store_names, strict=True):
            held = 0 if self.hold is None else int((self.hold.lane == i).sum())
            rows = len(memory.time)
            out.metrics.count_rows(name, {RowOutcome.RETAINED: rows, RowOutcome.BUFFERED: held})

    def check(self) -> None:
        """Assert what always holds; for tests."""
        self.shard.check()
        if self.hold is not None:
            self.hold.check()
        if self.silences is not None:
            assert (self.silences.columns.newest <= self.silences.event_time).all()
        for followed in self.followed:
            assert len(followed.lifecycle.is_open()) == len(self.keys)
            assert (followed.seen_us <= self.seen_us).all()
            if followed.lifecycle.has_alerts:
                alive = followed.lifecycle.machines[0].phase != NONE
                assert not (alive & (followed.watermark == NEVER_SEEN)).any()
            assert (followed.watermark <= followed.newest.max(axis=1)).all()
