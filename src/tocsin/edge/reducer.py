"""Reducer: rows of many keys in, the rows that are due out.

*Guarantee*: that of `track`, for each key. What is due comes in the order of the arrivals that made it due, then by
time: of a key whose rows come in order, in time order.
*Cost*: that of `track`; at most `max_keys` keys are remembered, the one that was silent longest is forgotten first, and
what is held of it handed out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from operator import itemgetter
from typing import NamedTuple

from tocsin.edge.ledger import Due, Ledger
from tocsin.edge.settings import Settings
from tocsin.edge.track import Policy, Track


class Rows(NamedTuple):
    """Rows as they arrived, in columns; `keys` is empty where there is but one key."""

    keys: list[Hashable]
    t: list[int]
    values: list[list[float]]
    lines: list[bytes]
    serial: list[int]


class Reducer:
    """The tracks of all keys, the one touched last at the end."""

    def __init__(self, settings: Settings) -> None:
        self.policy = Policy(settings.interval_us, settings.hold_us, settings.reaches())
        self.max_keys = settings.max_keys
        self.ledger = Ledger()
        self.tracks: dict[Hashable, Track] = {}
        # The keys that hold rows, by when they were last heard of; and those heard of since `omit_gone`.
        self.waiting: dict[Hashable, None] = {}
        self.touched: set[Hashable] = set()

    def take(self, rows: Rows, now: float = 0.0, *, blocked: bool = False) -> list[Due]:
        """Take rows at the wall time `now`; give what is due."""
        out: list[Due] = []
        self.ledger.received += len(rows.lines)
        self.ledger.lines.update(zip(rows.serial, rows.lines, strict=True))
        if not rows.keys or rows.keys.count(rows.keys[0]) == len(rows.keys):
            if rows.t:
                key = rows.keys[0] if rows.keys else ""
                self._track(key, now).take(rows.t, rows.values, rows.serial, out, blocked=blocked)
                self._note(key)
        else:
            self._take_by_key(rows, now, out, blocked=blocked)
        if len(self.tracks) > self.max_keys:
            self._forget(out)
        return out

    def quiet_since(self) -> float | None:
        """Give when the key that has been silent longest, of those that hold rows, was last heard of."""
        return next((self.tracks[key].seen for key in self.waiting), None)

    def release(self, before: float | None = None) -> list[Due]:
        """Hand out what is held: all of it, or of the keys not heard of since `before`."""
        out: list[Due] = []
        for key in list(self.waiting):
            if before is not None and self.tracks[key].seen > before:
                break
            self.tracks[key].release(self.ledger.serial, out)
            del self.waiting[key]
        return out

    def omit_gone(self) -> None:
        """Leave out all rows that are still here and have gone, be they held or waiting for the output."""
        for key in self.touched:
            self.tracks[key].omit_gone()
        self.touched.clear()

    def restore(self, key: Hashable, track: Track) -> None:
        """Put a track of an earlier run in place."""
        self.tracks[key] = track
        self._note(key)

    def _take_by_key(self, rows: Rows, now: float, out: list[Due], *, blocked: bool) -> None:
        places: dict[Hashable, list[int]] = defaultdict(list)
        for place, key in enumerate(rows.keys):
            places[key].append(place)
        # By the last row of each, so that the order of the keys does not depend on the cut into pieces.
        for key, own in sorted(places.items(), key=lambda item: item[1][-1]):
            t, serial = [rows.t[i] for i in own], [rows.serial[i] for i in own]
            values = [[column[i] for i in own] for column in rows.values]
            self._track(key, now).take(t, values, serial, out, blocked=blocked)
            self._note(key)
        out.sort(key=itemgetter(0))

    def _track(self, key: Hashable, now: float) -> Track:
        """Give the track of a key, and move it to the end."""
        track = self.tracks.pop(key, None)
        if track is None:
            track = Track(self.policy, self.ledger)
        self.tracks[key] = track
        track.seen = now
        return track

    def _note(self, key: Hashable) -> None:
        self.touched.add(key)
        self.waiting.pop(key, None)
        if self.tracks[key].holds:
            self.waiting[key] = None

    def _forget(self, out: list[Due]) -> None:
        """Forget the keys that were silent longest."""
        for key in list(self.tracks)[: len(self.tracks) - self.max_keys]:
            track = self.tracks.pop(key)
            track.omit_gone()
            track.release(self.ledger.serial, out)
            self.waiting.pop(key, None)
            self.touched.discard(key)
