"""Silence: a key whose stream has brought no row for too long, in event time.

Idea: per stream watched and key the newest row, and the start of the silence that is open. Event time is the newest row
of the key in any stream; it passes, row by row, the moment at which a stream should have been heard again.
Guarantee: the lives of docs/explanation/semantics.md (D60 to D69); one call or many give the same events.
Cost: O(1) per row and stream watched, three numbers per stream watched and key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.plan.identity import Identity, digest
from tocsin.plan.report import silence_row
from tocsin.plan.steps import Watch
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


# A change of state: which silence, key, start, end, last row before it.
Event = tuple[int, int, int, int | None, int]


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


def retire_no_data(section: StoredSection, context: RetireContext) -> None:
    """End the open alerts of a removed rule at the newest event time of their keys."""
    rule, arrays = Identity.of_json(section.facts), section.arrays
    if context.is_adopted:
        return
    for k in (arrays["start"] != NOT_YET).nonzero()[0].tolist():
        start = int(arrays["start"][k])
        times = start, int(max(start, context.newest[k])), int(arrays["last"][k])
        context.out.alerts.append(silence_row(rule, context.labels(k), times, "exact rule-changed"))


class NoDataDetector:
    """State and work of all silences on one page.

    The clock is one section, because all silences of a page observe the same rows. Each silence has a section.
    """

    front, seen_us = StateArray("newest"), StateArray("seen")

    def __init__(self, watch: Watch) -> None:
        self.identities = [silence.identity for silence in watch.silences]
        self.wanted = np.array([watch.streams.index(silence.stream) for silence in watch.silences], np.int64)
        self.for_us = np.array([silence.for_us for silence in watch.silences], np.int64)
        self.section = Section(digest(CLOCK_KIND), _CLOCK)
        self.streams = [Section(digest(KIND, one.to_json()), _STREAM, one.to_json(), one.id) for one in self.identities]

    @property
    def quiet(self) -> NoDataColumns:
        """Copy of the state by silence and key."""
        names = NoDataColumns._fields
        return NoDataColumns(*(np.stack([section.arrays[name] for section in self.streams]) for name in names))

    @quiet.setter
    def quiet(self, quiet: NoDataColumns) -> None:
        for i, section in enumerate(self.streams):
            section.arrays |= {name: rows[i].copy() for name, rows in zip(quiet._fields, quiet, strict=True)}

    def on_rows(self, heard: ObservedRows, now_us: int | None) -> list[Event]:
        """Hear rows."""
        self.seen_us[heard.key] = now_us or 0
        quiet = self.quiet
        found = hear(heard.stream, heard.key, heard.time, self.wanted, self.for_us, self.front, quiet)
        self.quiet = quiet
        return [(i, k, start, None if end == NOT_YET else end, last) for i, k, start, end, last in found.tolist()]

    def _listening(self, quiet: NoDataColumns) -> NDArray[np.bool_]:
        """By silence and key: it was heard of, and is not silent yet."""
        listening: NDArray[np.bool_] = (quiet.newest != NOT_YET) & (quiet.start == NOT_YET)
        return listening

    def on_time(self, now_us: int) -> list[Event]:
        """Begin the silence of keys that had no row of any stream for too long by the clock."""
        quiet = self.quiet
        due = self._listening(quiet) & (now_us - self.seen_us > self.for_us[:, None])
        newest, start, last = quiet
        last[due] = newest[due]
        start[due] = (newest + self.for_us[:, None])[due]
        if due.any():
            self.quiet = quiet
        return [(i, k, int(start[i, k]), None, int(last[i, k])) for i, k in np.argwhere(due).tolist()]

    def next_timer(self) -> int | None:
        """When the clock would begin the next silence."""
        # A key is silent when its time has passed, not when it has come; more often than each second is not asked.
        due = (self.seen_us + np.maximum(self.for_us[:, None] + 1, 1_000_000))[self._listening(self.quiet)]
        return int(due.min()) if len(due) else None

    def end_keys(self, gone: NDArray[np.bool_], now_us: int) -> list[Event]:
        """Return the ends of the open alerts of keys that are evicted: their event time, moved on by the clock."""
        _, start, last = self.quiet
        ended = self.front + (now_us - self.seen_us)
        found = np.argwhere((start != NOT_YET) & gone).tolist()
        return [(i, k, int(start[i, k]), int(max(ended[k], start[i, k])), int(last[i, k])) for i, k in found]
