"""Silence by brute force: every row is kept, and D60 to D69 of `docs/explanation/semantics.md` are applied to each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# Stream, key, time; in order of arrival.
Row = tuple[str, str, int]


@dataclass
class Silence:
    """One stream watched for keys that fall silent; `told` has all changes of state."""

    stream: str
    for_us: int
    told: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    heard_us: dict[str, int] = field(default_factory=dict)
    # By key: the time of the last row before the silence.
    open: dict[str, int] = field(default_factory=dict)

    def take(self, row: Row, now_us: int = 0) -> None:
        """Take the next row."""
        stream, key, time = row
        before = self._own(key)
        self.rows[key].append(row)
        self.heard_us[key] = now_us
        if before and self._event_time(key) - max(before) > self.for_us:
            self._begin(key, max(before))
        if stream != self.stream or (before and time <= max(before)):
            return
        if self._event_time(key) - time > self.for_us:
            self._begin(key, time)
        elif key in self.open:
            self._end(key, time)

    def look_at_the_clock(self, now_us: int) -> None:
        """Learn that processing time has passed."""
        for key in self.rows:
            if self._own(key) and now_us - self.heard_us[key] > self.for_us:
                self._begin(key, max(self._own(key)))

    def forget(self, now_us: int, ttl_us: int) -> None:
        """Forget keys that were not heard for so long."""
        for key in [key for key, heard in self.heard_us.items() if now_us - heard > ttl_us]:
            if key in self.open:
                self._end(key, self._event_time(key) + now_us - self.heard_us[key], "exact key-expired")
            del self.rows[key], self.heard_us[key]

    def _own(self, key: str) -> list[int]:
        return [time for stream, _, time in self.rows[key] if stream == self.stream]

    def _event_time(self, key: str) -> int:
        return max(time for _, _, time in self.rows[key])

    def _begin(self, key: str, last: int) -> None:
        if key not in self.open:
            self.open[key] = last
            self._tell(key, "firing", last, None, "exact")

    def _end(self, key: str, time: int, quality: str = "exact") -> None:
        last = self.open.pop(key)
        self._tell(key, "resolved", last, max(time, last + self.for_us), quality)

    def _tell(self, key: str, state: str, last: int, end: int | None, quality: str) -> None:
        start = last + self.for_us
        until = start if end is None else end
        self.told.append({
            "key": key, "state": state, "startsAt": start, "firesAt": start, "endsAt": end,
            "value": (until - last) / 10**6, "margin": (until - start) / 10**6, "witness": (self.stream, last),
            "quality": quality,
        })  # fmt: skip


def naive_silence(rows: Iterable[Row], stream: str, for_us: int) -> list[dict[str, Any]]:
    """Give the changes of state of all keys, in the order in which they are known."""
    silence = Silence(stream, for_us)
    for row in rows:
        silence.take(row)
    return silence.told
