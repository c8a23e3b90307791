"""No-data detection: an alert for each key with a stream that has no row for too long, in event time.

Algorithm: the state of a rule and key is the newest row of the stream, and the start of the open alert. The event time
of a key is its newest row in any stream. An alert starts when the event time passes the newest row by more than `for`.
It ends with the next row of the stream that is new enough.

Guarantees: the alerts of docs/explanation/semantics.md (D60 to D69). The split of rows into calls does not change them.

Complexity: O(1) per row and rule, and three integers per rule and key.

References: docs/explanation/semantics.md (D60 to D69).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.hashing import stable_hash
from tocsin.jit import kernel
from tocsin.operators.lifecycle.alert_changes import AlertChanges, lifecycle_alerts
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.plan.identity import Identity
from tocsin.plan.steps import Watch
from tocsin.runtime.alert_batch import FIRING, RESOLVED, AlertBatch, Key
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int
from tocsin.runtime.metrics import quality_text
from tocsin.runtime.row_batch import ObservedRows
from tocsin.runtime.state_registry import (
    Column,
    OperatorState,
    RetireContext,
    SectionSpec,
    Shard,
    StateArray,
    StateSchema,
    StoredSection,
)

# Marker for a missing time.
NOT_YET = NEVER_SEEN


class NoDataColumns(NamedTuple):
    """State by rule and key.

    Attributes
    ----------
    newest
        Time of the newest row.
    start
        Start of the open alert, or NOT_YET.
    last
        Time of the last row before the open alert.
    """

    newest: Int
    start: Int
    last: Int


KIND = "no_data"
CLOCK_KIND = "no_data_clock"
_CLOCK = StateSchema(CLOCK_KIND, (Column("newest", default=NOT_YET), Column("seen")))
_STREAM = StateSchema(KIND, tuple(Column(name, default=NOT_YET) for name in NoDataColumns._fields))


@kernel
def observe_rows(
    stream: Int, key: Int, time: Int, watched: Int, for_us: Int, event_time: Int, columns: NoDataColumns
) -> Int:
    """Update the state by rows, which are ordered by key and arrival, and return the changes of state.

    `watched` has the stream of each rule. `event_time` is the event time of each key. A change has the columns rule,
    key, start, end and last row. The end is NOT_YET if the alert starts.
    """
    newest, start, last = columns.newest, columns.start, columns.last
    most = 2 * watched.shape[0]
    events, count = np.empty((32 + most, 5), np.int64), 0
    for row in range(key.shape[0]):
        k, now = key[row], time[row]
        event_time[k] = max(event_time[k], now)
        if count + most > events.shape[0]:
            events = np.concatenate((events, np.empty_like(events)))
        for i in range(watched.shape[0]):
            is_open, has_rows = start[i, k] != NOT_YET, newest[i, k] != NOT_YET
            if has_rows and not is_open and event_time[k] - newest[i, k] > for_us[i]:
                count = start_alert(i, k, for_us[i], columns, events, count)
                is_open = True
            if stream[row] != watched[i] or (has_rows and now <= newest[i, k]):
                continue
            newest[i, k] = now
            is_missing = event_time[k] - now > for_us[i]
            if is_missing and not is_open:
                count = start_alert(i, k, for_us[i], columns, events, count)
            elif is_open and not is_missing:
                events[count, 0], events[count, 1], events[count, 2] = i, k, start[i, k]
                events[count, 3], events[count, 4] = max(now, start[i, k]), last[i, k]
                count += 1
                start[i, k] = NOT_YET
    return events[:count].copy()


@kernel
def start_alert(i: int, k: int, for_us: int, columns: NoDataColumns, events: Int, count: int) -> int:
    """Open an alert after the newest row, and return the number of events."""
    columns.last[i, k] = columns.newest[i, k]
    columns.start[i, k] = columns.newest[i, k] + for_us
    events[count, 0], events[count, 1], events[count, 2] = i, k, columns.start[i, k]
    events[count, 3], events[count, 4] = NOT_YET, columns.last[i, k]
    return count + 1


class NoDataChanges(NamedTuple):
    """Changes of state of one rule.

    Attributes
    ----------
    key
        Key index.
    start, end
        Start and end of the alert. The end is NOT_YET if the alert starts.
    last
        Time of the last row before the start.
    """

    key: Int
    start: Int
    end: Int
    last: Int


def no_data_alerts(
    rule: Identity, on: Sequence[str], keys: Sequence[Key], changes: NoDataChanges, quality: str
) -> AlertBatch:
    """Return changes of state of a no-data rule as alert rows."""
    count = len(changes.key)
    until = np.where(changes.end == NOT_YET, changes.start, changes.end)
    shown = Witnesses.none(count, 1, 0)
    shown.times[:, 0] = changes.last
    # Python divides large integers exactly, NumPy rounds them first.
    shown.value[:] = [duration / 1_000_000 for duration in (until - changes.last).tolist()]
    shown.margin[:] = [duration / 1_000_000 for duration in (until - changes.start).tolist()]
    state = np.where(changes.end == NOT_YET, FIRING, RESOLVED).astype(np.int8)
    sequence = np.zeros(count, np.int64)
    rows = AlertChanges(changes.key, state, changes.start, changes.start, changes.end, sequence, False, shown)
    return lifecycle_alerts(rule, on, keys, rows, [quality] * count)


def retire_no_data(section: StoredSection, context: RetireContext) -> None:
    """End the open alerts of a removed rule at the newest event time of their keys."""
    rule, start, last = Identity.from_json(section.facts), section.arrays["start"], section.arrays["last"]
    at = (start != NOT_YET).nonzero()[0]
    if context.is_adopted or not len(at):
        return
    changes = NoDataChanges(at, start[at], np.maximum(start[at], context.newest[at]), last[at])
    context.out.alerts.append(
        no_data_alerts(rule, context.on, context.names, changes, quality_text(end="rule-changed"))
    )


class NoDataClock(OperatorState):
    """Event time of each key, and the processing time of its last row."""

    event_time, seen_us = StateArray("newest"), StateArray("seen")


CLOCK = SectionSpec(stable_hash(CLOCK_KIND), _CLOCK)


class NoData:
    """Operator of all no-data rules of a keyed pipeline.

    All rules observe the same rows, so they share one section for event time. Each rule has a section for its alerts.
    """

    def __init__(self, watch: Watch) -> None:
        self.identities = [rule.identity for rule in watch.silences]
        self.watched = np.array([watch.streams.index(rule.stream) for rule in watch.silences], np.int64)
        self.for_us = np.array([rule.for_us for rule in watch.silences], np.int64)
        self.specs = [
            SectionSpec(stable_hash(KIND, one.to_json()), _STREAM, one.to_json(), one.id) for one in self.identities
        ]
        self.sections = (CLOCK, *self.specs)

    def clock(self, shard: Shard) -> NoDataClock:
        """Return the event time of the keys of a shard."""
        return NoDataClock(shard.sections[CLOCK.id])

    def columns(self, shard: Shard) -> NoDataColumns:
        """Return a copy of the state by rule and key."""
        sections = [shard.sections[spec.id] for spec in self.specs]
        return NoDataColumns(
            *(np.stack([section.arrays[name] for section in sections]) for name in NoDataColumns._fields)
        )

    def _store(self, shard: Shard, columns: NoDataColumns) -> None:
        for i, spec in enumerate(self.specs):
            rows = {name: part[i].copy() for name, part in zip(columns._fields, columns, strict=True)}
            shard.sections[spec.id].arrays |= rows

    def process(self, shard: Shard, rows: ObservedRows, context: Context) -> None:
        """Observe rows, and add the changes of alerts to the output."""
        clock, columns = self.clock(shard), self.columns(shard)
        clock.seen_us[rows.key] = context.now_us or 0
        events = observe_rows(rows.stream, rows.key, rows.time, self.watched, self.for_us, clock.event_time, columns)
        self._store(shard, columns)
        shard.is_dirty = True
        self._report(shard, events, context)

    def advance(self, shard: Shard, now_us: int, context: Context) -> None:
        """Start the alerts of keys that had no row of any stream for too long in processing time."""
        columns = self.columns(shard)
        due = _has_data(columns) & (now_us - self.clock(shard).seen_us > self.for_us[:, None])
        if not due.any():
            return
        newest, start, last = columns
        last[due] = newest[due]
        start[due] = (newest + self.for_us[:, None])[due]
        self._store(shard, columns)
        shard.is_dirty = True
        rule, key = np.nonzero(due)
        events = np.stack([rule, key, start[due], np.full(len(rule), NOT_YET), last[due]], axis=1)
        self._report(shard, events, context)

    def next_timer(self, shard: Shard) -> int | None:
        """Return the processing time of the next start of an alert, or None."""
        # An alert starts after its time has passed. Timers are at least one second apart.
        due = self.clock(shard).seen_us + np.maximum(self.for_us[:, None] + 1, 1_000_000)
        due = due[_has_data(self.columns(shard))]
        return int(due.min()) if len(due) else None

    def evict(self, shard: Shard, evicted: Bools, now_us: int, context: Context) -> None:
        """End the open alerts of evicted keys at their event time plus the processing time since their last row."""
        clock, (_, start, last) = self.clock(shard), self.columns(shard)
        ended = clock.event_time + (now_us - clock.seen_us)
        rule, key = np.nonzero((start != NOT_YET) & evicted)
        starts = start[rule, key]
        events = np.stack([rule, key, starts, np.maximum(ended[key], starts), last[rule, key]], axis=1)
        self._report(shard, events, context, quality_text(end="key-expired"))

    def _report(self, shard: Shard, events: Int, context: Context, quality: str = quality_text()) -> None:
        """Add events (rule, key, start, end, last row) to the output by rule. The events of a rule keep their order."""
        for i in np.unique(events[:, 0]).tolist():
            changes = NoDataChanges(*events[events[:, 0] == i].T[1:])
            alerts = no_data_alerts(self.identities[i], context.on, shard.keys.names, changes, quality)
            context.out.alerts.append(alerts)


def _has_data(columns: NoDataColumns) -> Bools:
    """Mark by rule and key the streams that have rows and no open alert."""
    has_data: Bools = (columns.newest != NOT_YET) & (columns.start == NOT_YET)
    return has_data
