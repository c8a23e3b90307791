"""Silences: the streams of a watch that are watched for keys without rows, over the keys of one page.

They hear every row of the watch that has a time and a key, and keep event time and the clock of each key themselves:
rules beside them see nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.logic import Int
from tocsin.plan.identity import Identity
from tocsin.plan.steps import Watch
from tocsin.stages.silence import NOT_YET, Quiet, hear, new_quiet

# A change of state: which silence, key, start, end, last row before it.
Event = tuple[int, int, int, int | None, int]


@dataclass(frozen=True)
class Heard:
    """Rows by key and arrival: number of the stream among those of the watch, key, time."""

    stream: Int
    key: Int
    time: Int


class Silences:
    """State and work of all silences on one page."""

    def __init__(self, watch: Watch) -> None:
        self.identities = [silence.identity for silence in watch.silences]
        self.wanted = np.array([watch.streams.index(silence.stream) for silence in watch.silences], np.int64)
        self.for_us = np.array([silence.for_us for silence in watch.silences], np.int64)
        self.front, self.seen_us = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.quiet = new_quiet(len(self.wanted), 0)

    def add_keys(self, count: int) -> None:
        """Make room for new keys."""
        self.front = np.concatenate([self.front, np.full(count, NOT_YET)])
        self.seen_us = np.concatenate([self.seen_us, np.zeros(count, np.int64)])
        fresh = new_quiet(len(self.wanted), count)
        self.quiet = Quiet(*(np.concatenate(pair, axis=1) for pair in zip(self.quiet, fresh, strict=True)))

    def on_rows(self, heard: Heard, now_us: int | None) -> list[Event]:
        """Hear rows."""
        self.seen_us[heard.key] = now_us or 0
        found = hear(heard.stream, heard.key, heard.time, self.wanted, self.for_us, self.front, self.quiet)
        return [(i, k, start, None if end == NOT_YET else end, last) for i, k, start, end, last in found.tolist()]

    def _listening(self) -> NDArray[np.bool_]:
        """By silence and key: it was heard of, and is not silent yet."""
        listening: NDArray[np.bool_] = (self.quiet.newest != NOT_YET) & (self.quiet.start == NOT_YET)
        return listening

    def on_time(self, now_us: int) -> list[Event]:
        """Begin the silence of keys that had no row of any stream for too long by the clock."""
        due = self._listening() & (now_us - self.seen_us > self.for_us[:, None])
        newest, start, last = self.quiet
        last[due] = newest[due]
        start[due] = (newest + self.for_us[:, None])[due]
        return [(i, k, int(start[i, k]), None, int(last[i, k])) for i, k in np.argwhere(due).tolist()]

    def next_timer(self) -> int | None:
        """When the clock would begin the next silence."""
        # A key is silent when its time has passed, not when it has come; more often than each second is not asked.
        due = (self.seen_us + np.maximum(self.for_us[:, None] + 1, 1_000_000))[self._listening()]
        return int(due.min()) if len(due) else None

    def drop_keys(self, gone: NDArray[np.bool_], now_us: int) -> list[Event]:
        """Forget keys; their open lives end at their event time, moved on by the clock."""
        _, start, last = self.quiet
        ended = self.front + (now_us - self.seen_us)
        found = np.argwhere((start != NOT_YET) & gone).tolist()
        ends: list[Event] = [
            (i, k, int(start[i, k]), int(max(ended[k], start[i, k])), int(last[i, k])) for i, k in found
        ]
        self.front, self.seen_us = self.front[~gone], self.seen_us[~gone]
        self.quiet = Quiet(*(np.ascontiguousarray(part[:, ~gone]) for part in self.quiet))
        return ends

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        named: dict[str, NDArray[Any]] = {"silence.front": self.front, "silence.seen": self.seen_us}
        for i, one in enumerate(self.identities):
            named |= {f"n{one.id}.{part}": rows[i] for part, rows in zip(Quiet._fields, self.quiet, strict=True)}
        return named

    def load(self, arrays: Mapping[str, NDArray[Any]], known: set[Identity], keys: int) -> None:
        """State that was written; none of silences that are new."""
        self.add_keys(keys)
        if "silence.front" in arrays:
            self.front, self.seen_us = arrays["silence.front"], arrays["silence.seen"]
        for i, one in enumerate(self.identities):
            if one in known:
                for part, rows in zip(Quiet._fields, self.quiet, strict=True):
                    rows[i] = arrays[f"n{one.id}.{part}"]
