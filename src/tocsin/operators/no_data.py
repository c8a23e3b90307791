"""Silence: a key whose stream has brought no row for too long, in event time.

Idea: per stream watched and key the newest row, and the start of the silence that is open. Event time is the newest row
of the key in any stream; it passes, row by row, the moment at which a stream should have been heard again.
Guarantee: the lives of docs/explanation/semantics.md (D60 to D69); one call or many give the same events.
Cost: O(1) per row and stream watched, three numbers per stream watched and key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.hashing import stable_hash
from tocsin.jit import kernel
from tocsin.operators.lifecycle.alert_changes import AlertChanges, lifecycle_alerts
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.plan.identity import Identity
from tocsin.plan.steps import Watch
from tocsin.runtime.alert_batch import FIRING, RESOLVED, AlertBatch, Key
from tocsin.runtime.contract import NEVER_SEEN, Int
from tocsin.runtime.state_registry import Column, RetireContext, Section, StateArray, StateSchema, StoredSection

# Neither a time nor the start of a life.
NOT_YET = NEVER_SEEN


class NoDataColumns(NamedTuple):
    """By stream watched and key: the newest row, the start of the open life, and the last row before it."""

    newest: Int
    start: Int
    last: Int


@kernel
def hear(stream: Int, key: Int, time: Int, wanted: Int, for_us: Int, front: Int, quiet: NoDataColumns) -> Int:
    """Take rows by key and arrival, and give the changes of state: (stream watched, key, start, end, last row).

    `wanted` has the streams watched, `front` the event time of each key; an end of NOT_YET means that the life begins.
    """
    newest, start, last = quiet.newest, quiet.start, quiet.last
    most = 2 * wanted.shape[0]
    events, count = np.empty((32 + most, 5), np.int64), 0
    for row in range(key.shape[0]):
        k, now = key[row], time[row]
        front[k] = max(front[k], now)
        if count + most > events.shape[0]:
            events = np.concatenate((events, np.empty_like(events)))
        for i in range(wanted.shape[0]):
            is_open, is_known = start[i, k] != NOT_YET, newest[i, k] != NOT_YET
            if is_known and not is_open and front[k] - newest[i, k] > for_us[i]:
                count = begin(i, k, for_us[i], quiet, events, count)
                is_open = True
            if stream[row] != wanted[i] or (is_known and now <= newest[i, k]):
                continue
            newest[i, k] = now
            is_silent = front[k] - now > for_us[i]
            if is_silent and not is_open:
                count = begin(i, k, for_us[i], quiet, events, count)
            elif is_open and not is_silent:
                events[count, 0], events[count, 1], events[count, 2] = i, k, start[i, k]
                events[count, 3], events[count, 4] = max(now, start[i, k]), last[i, k]
                count += 1
                start[i, k] = NOT_YET
    return events[:count].copy()


@kernel
def begin(i: int, k: int, for_us: int, quiet: NoDataColumns, events: Int, count: int) -> int:
    """Open a life behind the newest row; give the number of events."""
    quiet.last[i, k] = quiet.newest[i, k]
    quiet.start[i, k] = quiet.newest[i, k] + for_us
    events[count, 0], events[count, 1], events[count, 2] = i, k, quiet.start[i, k]
    events[count, 3], events[count, 4] = NOT_YET, quiet.last[i, k]
    return count + 1


class NoDataChanges(NamedTuple):
    """Changes of state of one rule: key, start, end or NOT_YET, and last row before the start."""

    key: Int
    start: Int
    end: Int
    last: Int


# Changes of state by number of the rule.
NumberedChanges = Sequence[tuple[int, NoDataChanges]]


def _by_rule(events: Int) -> NumberedChanges:
    """Split events (rule, key, start, end, last row) by rule. The events of a rule keep their order."""
    numbers = np.unique(events[:, 0]).tolist()
    return [(i, NoDataChanges(*events[events[:, 0] == i].T[1:])) for i in numbers]


@dataclass(frozen=True)
class ObservedRows:
    """Rows by key and arrival: number of the stream among those of the watch, key, time."""

    stream: Int
    key: Int
    time: Int


KIND = "no_data"
CLOCK_KIND = "no_data_clock"
_CLOCK = StateSchema(CLOCK_KIND, (Column("newest", default=NOT_YET), Column("seen")))
_STREAM = StateSchema(KIND, tuple(Column(name, default=NOT_YET) for name in NoDataColumns._fields))


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
    context.out.alerts.append(no_data_alerts(rule, context.on, context.names, changes, "exact rule-changed"))


class NoDataDetector:
    """State and work of all silences on one page.

    The clock is one section, because all silences of a page observe the same rows. Each silence has a section.
    """

    front, seen_us = StateArray("newest"), StateArray("seen")

    def __init__(self, watch: Watch) -> None:
        self.identities = [silence.identity for silence in watch.silences]
        self.wanted = np.array([watch.streams.index(silence.stream) for silence in watch.silences], np.int64)
        self.for_us = np.array([silence.for_us for silence in watch.silences], np.int64)
        self.section = Section(stable_hash(CLOCK_KIND), _CLOCK)
        self.streams = [
            Section(stable_hash(KIND, one.to_json()), _STREAM, one.to_json(), one.id) for one in self.identities
        ]

    @property
    def quiet(self) -> NoDataColumns:
        """Copy of the state by silence and key."""
        names = NoDataColumns._fields
        return NoDataColumns(*(np.stack([section.arrays[name] for section in self.streams]) for name in names))

    @quiet.setter
    def quiet(self, quiet: NoDataColumns) -> None:
        for i, section in enumerate(self.streams):
            section.arrays |= {name: rows[i].copy() for name, rows in zip(quiet._fields, quiet, strict=True)}

    def on_rows(self, heard: ObservedRows, now_us: int | None) -> NumberedChanges:
        """Hear rows."""
        self.seen_us[heard.key] = now_us or 0
        quiet = self.quiet
        events = hear(heard.stream, heard.key, heard.time, self.wanted, self.for_us, self.front, quiet)
        self.quiet = quiet
        return _by_rule(events)

    def _listening(self, quiet: NoDataColumns) -> NDArray[np.bool_]:
        """By silence and key: it was heard of, and is not silent yet."""
        listening: NDArray[np.bool_] = (quiet.newest != NOT_YET) & (quiet.start == NOT_YET)
        return listening

    def on_time(self, now_us: int) -> NumberedChanges:
        """Begin the silence of keys that had no row of any stream for too long by the clock."""
        quiet = self.quiet
        due = self._listening(quiet) & (now_us - self.seen_us > self.for_us[:, None])
        newest, start, last = quiet
        last[due] = newest[due]
        start[due] = (newest + self.for_us[:, None])[due]
        if due.any():
            self.quiet = quiet
        rule, key = np.nonzero(due)
        return _by_rule(np.stack([rule, key, start[due], np.full(len(rule), NOT_YET), last[due]], axis=1))

    def next_timer(self) -> int | None:
        """When the clock would begin the next silence."""
        # A key is silent when its time has passed, not when it has come; more often than each second is not asked.
        due = (self.seen_us + np.maximum(self.for_us[:, None] + 1, 1_000_000))[self._listening(self.quiet)]
        return int(due.min()) if len(due) else None

    def end_keys(self, gone: NDArray[np.bool_], now_us: int) -> NumberedChanges:
        """Return the ends of the open alerts of keys that are evicted: their event time, moved on by the clock."""
        _, start, last = self.quiet
        ended = self.front + (now_us - self.seen_us)
        rule, key = np.nonzero((start != NOT_YET) & gone)
        starts = start[rule, key]
        return _by_rule(np.stack([rule, key, starts, np.maximum(ended[key], starts), last[rule, key]], axis=1))
