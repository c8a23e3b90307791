"""Waiting by D27 to D39 of docs/explanation/semantics.md: one row at a time, one key at a time, lists and sorting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Waiter:
    """A row: its number in order of arrival, its stream and its time."""

    number: int
    stream: str
    time: int


@dataclass
class Key:
    """What waits of one key."""

    idle: int
    clock: dict[str, int] = field(default_factory=dict)
    first: list[Waiter] = field(default_factory=list)
    second: list[Waiter] = field(default_factory=list)
    taken: list[Waiter] = field(default_factory=list)
    top: float = -math.inf

    def arrive(self, row: Waiter, wait: int) -> None:
        """Take one row while rows wait so long: of its stream, and of idle ones if the newest clock rises."""
        awaited, before = self._awaited(), max(self.clock.values(), default=-math.inf)
        self.clock[row.stream] = max(row.time, self.clock.get(row.stream, row.time))
        self.first.append(row)
        newest, awake = max(self.clock.values()), self._awaited()
        ripe = [
            each
            for each in self.first
            if each.stream == row.stream or (each.stream not in awake and newest > before)
            if each.time + wait <= (self.clock[each.stream] if each.stream in awake else newest)
        ]
        for each in sorted(ripe, key=lambda r: (r.time, r.number)):
            self.first.remove(each)
            (self.second if each.time > self.top else self.taken).append(each)
        self._match(awaited)
        self._match(self._awaited())

    def end(self) -> None:
        """Nothing more will come."""
        for row in sorted(self.first + self.second, key=lambda r: (r.time, r.number)):
            self.taken.append(row)

    def _awaited(self) -> set[str]:
        newest = max(self.clock.values(), default=0)
        return {stream for stream, time in self.clock.items() if time >= newest - self.idle}

    def _match(self, awaited: set[str]) -> None:
        while self.second and awaited <= {row.stream for row in self.second}:
            self.top = min(row.time for row in self.second)
            gone = sorted((row for row in self.second if row.time == self.top), key=lambda r: r.number)
            self.second = [row for row in self.second if row.time > self.top]
            self.taken += gone


def waits_by_largest_delay(rows: Iterable[Sequence[object]], every: int, most: int, idle: int) -> list[int]:
    """Return the wait in force when each row (key, stream, time) arrives: the largest delay so far, as D37 and D38 say.

    The time of the bucket is the median of each 33 rows. The wait is chosen when it has moved by `every`.
    """
    clocks: dict[object, dict[object, int]] = {}
    fronts: dict[object, int] = {}
    waits, wait, largest, block, moved = [], 0, 0, list[int](), list[int]()
    for key, stream, time in rows:
        assert isinstance(time, int)
        waits.append(wait)
        clock = clocks.setdefault(key, {})
        clock[stream] = max(time, clock.get(stream, time))
        front = fronts.get(key, time)
        delay = max(clock[stream], front) - time
        slowest = min(each for each in clock.values() if each >= max(clock.values()) - idle)
        fronts[key] = max(fronts.get(key, slowest), slowest)
        largest = max(largest, delay if delay <= most else 0)
        block.append(time)
        if len(block) == 33:
            now, block = sorted(block)[16], []
            if not moved or abs(now - moved[-1]) >= every:
                wait = largest if moved else wait
                moved.append(now)
    return waits


def taken_in_order(rows: Iterable[Sequence[object]], wait: int | Sequence[int], idle: int) -> list[int]:
    """Give the numbers of rows (key, stream, time), which come in order of arrival, in the order they are taken.

    All wait so long, or as long as is said for each: the wait in force when it comes.
    """
    keys: dict[object, Key] = {}
    for number, (key, stream, time) in enumerate(rows):
        assert isinstance(stream, str)
        assert isinstance(time, int)
        now = wait if isinstance(wait, int) else wait[number]
        keys.setdefault(key, Key(idle)).arrive(Waiter(number, stream, time), now)
    order = []
    for key in keys.values():
        key.end()
        order += [row.number for row in key.taken]
    return order
