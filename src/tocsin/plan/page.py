"""Page: the state of some thousand keys of one watch, and the work of one batch on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.operators import no_data
from tocsin.operators.admission import late_rows
from tocsin.operators.join import operator as join
from tocsin.operators.join.batch_slice import ArrivalOrder, BatchSlice
from tocsin.operators.join.operator import Join
from tocsin.operators.lifecycle import operator as lifecycle
from tocsin.operators.lifecycle.alert_state_machine import NONE
from tocsin.operators.lifecycle.emission_times import EmissionTimes
from tocsin.operators.lifecycle.operator import AlertChange
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.operators.matches import match_rows
from tocsin.operators.no_data import Event, NoDataDetector, ObservedRows
from tocsin.operators.retention import operator as retention
from tocsin.operators.retention.operator import Retention, RowBatch, VersionedRows
from tocsin.plan import hold
from tocsin.plan.hold import Hold, Taken
from tocsin.plan.identity import digest
from tocsin.plan.pace import Gave, Learnt, Pace
from tocsin.plan.page_tracer import PageTracer
from tocsin.plan.report import alert_row, silence_row, with_doubts
from tocsin.plan.steps import Threshold, Watch
from tocsin.rules.durations import MOST_US, duration_text
from tocsin.runtime.contract import NEVER_SEEN, Int, Listener, Out
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


class Loss(NamedTuple):
    """Up to which time results may be missing because rows were shed, and what is promised of them."""

    until_us: int
    promise: str


def _sampled(chance: float) -> str:
    """What is promised of a result that is there with a chance."""
    return "exact" if chance >= 1 else f"sample {chance:.6g}"


class Page:
    """Keys, the rows remembered of them, and the lives of their alerts."""

    newest, seen_us = StateArray("newest"), StateArray("seen")

    def __init__(self, watch: Watch, shard: Shard) -> None:
        self.watch, self.shard = watch, shard
        shard.is_full_width = watch.budget is not None
        self.section = Section(digest(ADMISSION_KIND), _ADMISSION)
        stores = zip(watch.stores, watch.store_names, strict=True)
        self.remembered = [Retention(store, name) for store, name in stores]
        self.followed = [Join(rule, watch.stores, watch.lanes) for rule in watch.rules]
        self.lanes = [watch.lanes.index(store.lane) for store in watch.stores]
        self.hold = None if watch.order is None else Hold(watch.order, watch.lanes, self._counted())
        self.silences = NoDataDetector(watch) if watch.silences else None
        # Where rows were shed: up to which time results may be missing, and what is promised instead of all.
        self.loss = Loss(NEVER_SEEN, "")
        self.learnt: list[Learnt] = []
        self.tracer: PageTracer | None = None
        self._attach()

    def _attach(self) -> None:
        """Add the sections of all operators to the shard."""
        sections = [self.section, *(memory.section for memory in self.remembered)]
        for followed in self.followed:
            sections += [followed.section, followed.lived.section]
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

    def on_rows(
        self, arrivals: ArrivalOrder, rows: Sequence[RowBatch], now_us: int | None, out: Out, pace: Pace | None = None
    ) -> None:
        """Take rows, ordered by key and arrival, or let them wait; `rows[i]` holds those of lane i in the same order.

        Rows behind those of the last lane are of no use to any rule.
        """
        self.shard.is_dirty = True
        if now_us is not None:
            self.seen_us[arrivals.key[arrivals.lane < len(self.watch.lanes)]] = now_us
            for followed in self.followed:
                followed.seen_us[arrivals.key[followed.stream_of[arrivals.lane] >= 0]] = now_us
        if self.hold is None or pace is None:
            self._take(arrivals, rows, out)
            return
        wait_us = pace.wait.wait_us
        self._take_waited(self.hold.take(arrivals, rows, wait_us, now_us), out, wait_us)

    def _take_waited(self, taken: Taken, out: Out, wait_us: int | None = None) -> None:
        """Take rows that wait no longer; where no row came, none of them is late, and the wait does not matter."""
        behind = np.bincount(taken.arrivals.lane[taken.behind], minlength=len(self.watch.lanes))
        for i, name in zip(self.lanes, self.watch.store_names, strict=True):
            out.count(name, {"held": int(taken.gained[i]), "behind": int(behind[i])})
        if taken.behind.any():
            why = "it arrived after the reorder wait and was used out of order"
            out.late += late_rows(self.watch, self.keys, (taken.arrivals, taken.rows), taken.behind, why, wait_us)
        self._take(taken.arrivals, taken.rows, out, wait_us)
        gave = np.concatenate([followed.gave for followed in self.followed])
        results = np.bincount(gave, minlength=len(taken.delay)).astype(np.float64)
        lane, time = taken.arrivals.lane, taken.arrivals.time
        self.learnt.append(Learnt(taken.noted, Gave(lane, taken.delay, time, results, ~taken.behind)))

    def _take(self, arrivals: ArrivalOrder, rows: Sequence[RowBatch], out: Out, wait_us: int | None = None) -> None:
        timely = admit(arrivals.key, arrivals.time, self.newest, self.watch.allowed_lateness_us)
        self._count_arrivals(arrivals.lane, rows, timely, out)
        if not timely.all():
            why = (
                f"it is later than `allowed_lateness` ({duration_text(self.watch.allowed_lateness_us)}) and was dropped"
            )
            out.late += late_rows(self.watch, self.keys, (arrivals, rows), ~timely, why, wait_us)
            lane = arrivals.lane[timely]
            rows = [mine.pick(np.flatnonzero(timely[arrivals.lane == i])) for i, mine in enumerate(rows)]
            row = np.empty(len(lane), np.int64)
            for i, mine in enumerate(rows):
                row[lane == i] = np.arange(len(mine.key))
            arrivals = ArrivalOrder(lane, arrivals.key[timely], arrivals.time[timely], row)
        self._work(arrivals, rows, out)

    def on_heard(self, heard: ObservedRows, now_us: int | None, out: Out) -> None:
        """Let silences hear rows, ordered by key and arrival: all that have a time and a key."""
        assert self.silences is not None
        self.shard.is_dirty = True
        self._report_silences(self.silences.on_rows(heard, now_us), out)

    def _count_arrivals(self, lane: Int, rows: Sequence[RowBatch], timely: NDArray[np.bool_], out: Out) -> None:
        stores = zip(self.remembered, self.lanes, self.watch.store_names, strict=True)
        for number, (memory, i, name) in enumerate(stores):
            late = 0 if timely.all() else int((~timely[lane == i]).sum())
            missing = self._without_limits(number)
            unlimited = int(missing[rows[i].key].sum()) if missing.any() else 0
            counts = {"late": late, "out_of_domain": memory.out_of_domain(rows[i]), "without_limits": unlimited}
            out.count(name, counts)

    def _without_limits(self, store: int) -> NDArray[np.bool_]:
        """Keys that a limits table does not have, though a rule that reads this store asks it."""
        missing = np.zeros(len(self.keys), np.bool_)
        for rule, followed in zip(self.watch.rules, self.followed, strict=True):
            if rule.limits and store in rule.stores:
                missing |= np.isnan(followed.limits).any(axis=0)
        return missing

    def _work(self, arrivals: ArrivalOrder, rows: Sequence[RowBatch], out: Out) -> None:
        """Reduce, join, evaluate, alert; then keep what stays."""
        of_store = [rows[i] for i in self.lanes]
        merged = [self._merge(i, mine) for i, mine in enumerate(of_store)]
        arrived = BatchSlice(arrivals, merged, self.lanes, len(self.keys))
        for followed in self.followed:
            has_times = self.watch.has_emission_times and followed.lived.lives
            emissions = EmissionTimes.of(followed, arrivals) if has_times else None
            changes, matches = followed.evaluate(arrived)
            if self.hold is not None:
                followed.count_left_out(arrived)
            self._report(followed, changes, out, emissions)
            self._report_matches(followed, matches, out)
        self._keep(of_store, merged, out)

    def _merge(self, store: int, rows: RowBatch) -> VersionedRows:
        """Merge new rows with the retained rows of a store."""
        segments = self.remembered[store].merge(rows)
        if self.tracer is not None:
            self.tracer.record_merge(store, rows, segments)
        return segments

    def _keep(self, of_store: Sequence[RowBatch], merged: Sequence[VersionedRows], out: Out) -> None:
        floors = [self.newest - self.watch.horizon_us for _ in self.remembered]
        for rule, followed in zip(self.watch.rules, self.followed, strict=True):
            if rule.lag_us:  # A row that is not settled yet does not expire.
                floors[rule.stores[0]] = np.minimum(floors[rule.stores[0]], followed.progress + 1)
        for i, (memory, name) in enumerate(zip(self.remembered, self.watch.store_names, strict=True)):
            if self.tracer is not None:
                self.tracer.record_reduction(i, merged[i], floors[i])
            out.count(name, memory.keep(of_store[i], merged[i], floors[i]))

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
            store = rule.stores[0]
            segment = self._merge(store, RowBatch.none(self.remembered[store].store.columns))
            self._report(followed, followed.settle_rest(progress, segment), out)
        self._report(followed, followed.advance(progress, silence, late_too=True), out)

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
            self._report_silences(self.silences.end_keys(gone, now_us), out, "exact key-expired")
        for memory, name in zip(self.remembered, self.watch.store_names, strict=True):
            dropped = memory.rows_of(gone)
            out.count(name, {"expired": dropped, "retained": -dropped, "freed_keys": int(gone.sum())})
        self.shard.drop_keys(gone)
        for name in filter(self.watch.is_only_heard, self.watch.streams):
            out.count(name, {"freed_keys": int(gone.sum())})

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
                wait[followed.waits()] = rule.idle_timeout_us
                times.append(int((followed.seen_us + np.maximum(wait, 1_000_000))[busy].min()))
        if self.hold is not None and (timer := self.hold.next_timer()) is not None:
            times.append(timer)
        if self.silences is not None and (timer := self.silences.next_timer()) is not None:
            times.append(timer)
        return min(times, default=None)

    def _report_silences(self, events: Sequence[Event], out: Out, quality: str = "exact") -> None:
        assert self.silences is not None
        self.shard.is_dirty |= bool(events)
        for i, k, start, end, last in events:
            named = dict(zip(self.watch.on, self.keys[k], strict=True))
            out.alerts.append(silence_row(self.silences.identities[i], named, (start, end, last), quality))

    def _report(
        self, followed: Join, changes: Sequence[AlertChange], out: Out, emissions: EmissionTimes | None = None
    ) -> None:
        for change in changes:
            # What is missing may have begun this life, or a life before that would not have ended yet.
            since = min(change.times.starts, int(change.shown.times.min()))
            promise = self._promise(since - followed.rule.keep_us - followed.rule.stale_us)
            row = self._row(followed, change, f"{promise}{' late' * change.late}")
            fires_us = change.times.fires
            if emissions is not None and change.state == "firing" and fires_us is not None and not change.late:
                row["emitted_us"] = emissions.find(change.key, fires_us)
            out.alerts.append(row)

    def _report_matches(self, followed: Join, matches: Witnesses, out: Out) -> None:
        if not len(matches.key):
            return
        if followed.chances is None:
            promises = list(map(self._promise, matches.times.min(axis=1).tolist()))
        else:
            promises = list(map(_sampled, followed.chances.tolist()))
        keys, qualities = (
            [self.keys[key] for key in matches.key.tolist()],
            with_doubts(promises, followed.outside(matches)),
        )
        out.alerts += match_rows(followed.identity, self.watch.on, keys, matches, qualities)

    def _promise(self, since_us: int) -> str:
        """What is promised of the results from a time on: all, unless rows that they may need were shed."""
        return self.loss.promise if since_us <= self.loss.until_us else "exact"

    def _row(self, followed: Join, change: AlertChange, quality: str) -> dict[str, Any]:
        _, state, times, sequence, late, shown = change
        named = dict(zip(self.watch.on, self.keys[change.key], strict=True))
        (quality,) = with_doubts([quality], followed.outside(shown))
        return alert_row(followed.identity, named, state, times, shown, quality, late=late, sequence=sequence)

    def _counted(self) -> list[list[str]]:
        """By lane, the names under which its rows are counted."""
        names = list(zip(self.lanes, self.watch.store_names, strict=True))
        return [[name for of, name in names if of == i] for i in range(len(self.watch.lanes))]

    def count_copies(self, out: Out) -> None:
        """Count rows that another watch goes on with too: to this one it is as if they had come."""
        for memory, i, name in zip(self.remembered, self.lanes, self.watch.store_names, strict=True):
            held = 0 if self.hold is None else int((self.hold.lane == i).sum())
            rows = len(memory.time)
            out.count(name, {"received": rows + held, "retained": rows, "held": held})

    def check(self) -> None:
        """Assert what always holds; for tests."""
        self.shard.check()
        if self.hold is not None:
            self.hold.check()
        if self.silences is not None:
            assert (self.silences.quiet.newest <= self.silences.front).all()
        for followed in self.followed:
            assert len(followed.lived.is_open()) == len(self.keys)
            assert (followed.seen_us <= self.seen_us).all()
            if followed.lived.lives:
                alive = followed.lived.machines[0].phase != NONE
                assert not (alive & (followed.progress == NEVER_SEEN)).any()
            assert (followed.progress <= followed.newest.max(axis=1)).all()
