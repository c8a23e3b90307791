"""Keyed reducer: rows of all keys to due lines. Each key has a `KeyReducer`; all keys share a `LineBuffer`.

Guarantee: for each key, the guarantee of `KeyReducer`. Due lines are in the order of the arrivals that made them due,
then in time order. So the lines of a key with in-order rows are in time order.
Cost: for each key, the cost of `KeyReducer`. At most `max_keys` keys have state. Beyond that, the key without rows for
the longest time is removed, and its delayed rows are sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from operator import attrgetter
from typing import NamedTuple

from tocsin.edge.key_reducer import HoldConfig, KeyReducer
from tocsin.edge.line_buffer import DueLine, LineBuffer
from tocsin.edge.settings import Settings


class KeyedRows(NamedTuple):
    """Rows in arrival order, in columns.

    Attributes
    ----------
    keys
        Key of each row; empty if no key fields are configured.
    t
        Event times in microseconds.
    values
        A list of numbers for each value field.
    lines
        Bytes of each row.
    serial
        Serial number of each row.
    """

    keys: list[Hashable]
    t: list[int]
    values: list[list[float]]
    lines: list[bytes]
    serial: list[int]


class KeyedReducer:
    """State of all keys.

    Attributes
    ----------
    config
        Interval, maximum delay and window reaches, which are the same for all keys.
    max_keys
        Maximum number of keys.
    buffer
        Lines of all keys.
    key_reducers
        State by key, in the order of the last row. Without key fields the only key is the empty text.
    delayed_keys
        Keys with delayed rows, in the order of the last row.
    touched
        Keys that received rows since the last call of `omit_covered`.
    """

    def __init__(self, settings: Settings) -> None:
        self.config = HoldConfig(settings.interval_us, settings.max_delay_us, settings.reaches())
        self.max_keys = settings.max_keys
        self.buffer = LineBuffer()
        self.key_reducers: dict[Hashable, KeyReducer] = {}
        self.delayed_keys: dict[Hashable, None] = {}
        self.touched: set[Hashable] = set()

    def process(self, rows: KeyedRows, now: float = 0.0, *, blocked: bool = False) -> list[DueLine]:
        """Process rows at processing time `now`, and return the due lines."""
        out: list[DueLine] = []
        self.buffer.received += len(rows.lines)
        self.buffer.lines.update(zip(rows.serial, rows.lines, strict=True))
        if not rows.keys or rows.keys.count(rows.keys[0]) == len(rows.keys):
            if rows.t:
                key = rows.keys[0] if rows.keys else ""
                self._touch(key, now).process(rows.t, rows.values, rows.serial, out, blocked=blocked)
                self._update_index(key)
        else:
            self._process_by_key(rows, now, out, blocked=blocked)
        if len(self.key_reducers) > self.max_keys:
            self._evict_idle_keys(out)
        return out

    def idle_since(self) -> float | None:
        """Return the earliest processing time of a last row, over keys with delayed rows; None without these keys."""
        return next((self.key_reducers[key].last_seen for key in self.delayed_keys), None)

    def release(self, before: float | None = None) -> list[DueLine]:
        """Return all delayed lines, or only the lines of keys without rows since processing time `before`."""
        out: list[DueLine] = []
        for key in list(self.delayed_keys):
            if before is not None and self.key_reducers[key].last_seen > before:
                break
            self.key_reducers[key].release(self.buffer.serial, out)
            del self.delayed_keys[key]
        return out

    def omit_covered(self) -> None:
        """Omit all covered rows that are still buffered: delayed rows, and rows that wait for the output."""
        for key in self.touched:
            self.key_reducers[key].omit_covered()
        self.touched.clear()

    def restore(self, key: Hashable, key_reducer: KeyReducer) -> None:
        """Add the state of a key of an earlier run."""
        self.key_reducers[key] = key_reducer
        self._update_index(key)

    def _process_by_key(self, rows: KeyedRows, now: float, out: list[DueLine], *, blocked: bool) -> None:
        indexes: dict[Hashable, list[int]] = defaultdict(list)
        for index, key in enumerate(rows.keys):
            indexes[key].append(index)
        # The order of last rows makes the order of the keys independent of batch boundaries.
        for key, own in sorted(indexes.items(), key=lambda item: item[1][-1]):
            t, serial = [rows.t[i] for i in own], [rows.serial[i] for i in own]
            values = [[column[i] for i in own] for column in rows.values]
            self._touch(key, now).process(t, values, serial, out, blocked=blocked)
            self._update_index(key)
        out.sort(key=attrgetter("due_by"))

    def _touch(self, key: Hashable, now: float) -> KeyReducer:
        """Return the state of a key, which becomes the key with the newest row."""
        key_reducer = self.key_reducers.pop(key, None)
        if key_reducer is None:
            key_reducer = KeyReducer(self.config, self.buffer)
        self.key_reducers[key] = key_reducer
        key_reducer.last_seen = now
        return key_reducer

    def _update_index(self, key: Hashable) -> None:
        self.touched.add(key)
        self.delayed_keys.pop(key, None)
        if self.key_reducers[key].has_delayed_rows:
            self.delayed_keys[key] = None

    def _evict_idle_keys(self, out: list[DueLine]) -> None:
        """Remove the keys without rows for the longest time, and send their delayed rows."""
        for key in list(self.key_reducers)[: len(self.key_reducers) - self.max_keys]:
            key_reducer = self.key_reducers.pop(key)
            key_reducer.omit_covered()
            key_reducer.release(self.buffer.serial, out)
            self.delayed_keys.pop(key, None)
            self.touched.discard(key)
