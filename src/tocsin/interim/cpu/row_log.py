"""Row log: the rows of an anytime join by number of arrival, on pages of some thousand rows each.

Idea: a join knows rows by their numbers. What a result shows of them stands here, as long as they can be part of one.
Rows come at the end and go at the front, so a call writes the pages that its rows fell on, and names those that are
gone. When a row's turn to go comes, its key may still need it: that key has not gone on as the others of the bucket
have, or clocks differ. Such a row is taken again, at the end. So rows go by the clock of the bucket, and yet none goes
that an ordinary join would remember: one not older than the newest row of its key by more than the window.
Rows go a good many at a time, when they are an eighth of all. Where memory drives rows of either side out of the join
by themselves, rows go out of the midst: numbers have gaps then, and pages say which they hold.
Guarantee: which rows are there when a row comes depends on the rows before it alone, not on calls.
Cost: O(1) per row, and again per window of the bucket's time for each row of a key that has fallen silent; per call a
look at one number of each row that is there, to find those that are sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import RunError
from tocsin.hashing import key_numbers, row_fingerprints
from tocsin.interim.cpu.new_rows import COLUMNS, NewRows, no_rows
from tocsin.interim.cpu.rolling_columns import Rolling
from tocsin.interim.cpu.row_counts import count_fresh, count_partners, find_alike, find_stale
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.runtime.payload import normalized_payload
from tocsin.runtime.row_batch import Texts
from tocsin.runtime.state_codec import pack, unpack

ROWS_PER_PAGE = 4096
# Keys of rows that are gone are forgotten when there are so many of them, and more than others.
MOST_STALE = 4096

Key = tuple[str, ...]
# Rows go when so many are older than the window, and are a good part of all.
FEWEST_STALE = 1024


class RowLog:
    """Rows by number, of which `end` is the next, their keys, and the numbers by which a join compares keys."""

    def __init__(self, width: int, window_us: int) -> None:
        self.window_us = window_us
        self.end, self.keys, self.numbers = 0, list[Key](), np.zeros(0, np.int64)
        self._place: dict[Key, int] = {}
        none = no_rows(width)
        known = {name: getattr(none, name) for name in (*COLUMNS, "values")}
        self._rows = Rolling(known | {"stamp": none.time, "row": none.time})
        # The rows as they are seen, until some come or go.
        self._seen: NewRows | None = None
        # By key, how many rows of either side are there.
        self._there: Int | None = None
        # Which places are counted there: by side from the oldest on, and up to which.
        self._oldest, self._counted = np.zeros(2, np.int64), 0
        self._written, self._touched = set[int](), set[int]()

    @property
    def rows(self) -> NewRows:
        """All rows that are there; what is written to them stays."""
        if self._seen is None:
            columns = {name: self._rows[name] for name in (*COLUMNS, "values")}
            self._seen = NewRows(**columns, payload=self._rows["payload"] if "payload" in self._rows else None)
        return self._seen

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self._rows)

    @property
    def begin(self) -> int:
        """The number of the first row that is there, or of the next."""
        return int(self.row[0]) if len(self) else self.end

    @property
    def row(self) -> Int:
        """The numbers of all rows that are there."""
        return self._rows["row"]

    @property
    def has_gaps(self) -> bool:
        """Whether rows went out of the midst."""
        return self.end - self.begin > len(self)

    def at(self, row: Int) -> Int:
        """The places of rows by their numbers."""
        return np.searchsorted(self.row, row) if self.has_gaps else row - self.begin

    def places(self, keys: Sequence[Key]) -> Int:
        """Number keys; new ones are added."""
        places = [self._place.get(key, -1) for key in keys]
        if -1 in places:
            for key in keys:
                if self._place.setdefault(key, len(self.keys)) == len(self.keys):
                    self.keys.append(key)
            fresh = key_numbers(self.keys[len(self.numbers) :])
            self.numbers, places = np.concatenate([self.numbers, fresh]), [self._place[key] for key in keys]
        return np.array(places, np.int64)

    def repeats(self, new: NewRows, read: Sequence[Collection[str]]) -> Bools:
        """Tell which of new rows are there already, or are among those before them: they change nothing.

        They are the same if all is the same but columns of the payload that are read anyway, by side.
        """
        repeated, seen = np.zeros(len(new), np.bool_), set[Any]()
        known, doubted = find_alike(self._rows["stamp"], self._fingerprints(new))
        for rows, places in ((self.rows, known), (new, doubted)):
            for i in places.tolist():
                side = int(rows.side[i])
                text = None if rows.payload is None else normalized_payload(rows.payload[i], read[side])
                same = (side, int(rows.key[i]), int(rows.time[i]), rows.values[i].tobytes(), text)
                if rows is new:
                    repeated[i] = same in seen
                seen.add(same)
        return repeated

    def _fingerprints(self, rows: NewRows) -> Int:
        """Return the fingerprints of rows without their payload."""
        columns = (rows.side, self.numbers[rows.key], rows.time, *rows.values.T)
        return row_fingerprints(columns, len(rows))

    def add(self, new: NewRows) -> None:
        """Put rows behind the others."""
        begin = self.end
        self.end += len(new)
        columns = {name: getattr(new, name) for name in (*COLUMNS, "values")}
        columns |= {"stamp": self._fingerprints(new), "row": np.arange(begin, self.end)}
        self._rows.add(columns if new.payload is None else columns | {"payload": new.payload})
        self._seen = None
        self._touched |= self._pages(begin)

    def partners(self, new: int, window_us: int, most: int) -> Int:
        """How many rows of the other side with the same key each of the last `new` rows finds.

        Rows are found within the window, and while they are among the last `most` of their side.
        """
        rows, begin = self.rows, len(self) - new
        if self._there is None:
            self._there, self._oldest, self._counted = np.zeros((2, 0), np.int64), np.zeros(2, np.int64), 0
        more = len(self.keys) - self._there.shape[1]
        self._there = np.concatenate([self._there, np.zeros((2, more), np.int64)], axis=1) if more else self._there
        columns, reach = (rows.side, rows.key, rows.elapsed), (self._counted, begin)
        self._counted = len(self)
        return count_partners(columns, self._oldest, reach, self._there, (window_us, most))

    def fresh(self, elapsed: Int) -> int:
        """How many rows that come at these times can be taken before old ones have to go."""
        return count_fresh(self.rows.elapsed, elapsed, self.window_us, FEWEST_STALE)

    def stale(self, now_us: int, key_ttl_us: int) -> tuple[int, Int, Int]:
        """How many rows are older than the window, which of these their keys still need, and when those were heard.

        A key that had no row for `key_ttl_us` needs none.
        """
        rows = self.rows
        columns = rows.key, rows.time, rows.elapsed, rows.came
        return find_stale(columns, len(self.keys), now_us, self.window_us, key_ttl_us)

    def drop(self, before: int) -> None:
        """Let rows go whose number lies before."""
        gone = int(np.searchsorted(self.row, before))
        if gone:
            self._rows.drop(gone)
            self._seen = self._there = None

    def drop_sides(self, oldest: Int) -> None:
        """Let rows go whose number lies before the oldest of their side, when they are more than half of all."""
        wanted = self.row >= oldest[self.rows.side]
        gone = len(self) - int(np.count_nonzero(wanted))
        if gone >= FEWEST_STALE and 2 * gone > len(self):
            self._touched |= set(np.unique(self.row[~wanted] // ROWS_PER_PAGE).tolist())
            self._rows.keep(wanted)
            self._seen = self._there = None

    def forget_keys(self) -> None:
        """Forget keys of rows that are gone, if there are many; all keys are numbered anew."""
        if len(self.keys) <= MOST_STALE:
            return
        key = self._rows["key"]
        alive = np.flatnonzero(np.bincount(key, minlength=len(self.keys)))
        if len(self.keys) - len(alive) > max(MOST_STALE, len(alive)):
            key[:] = np.searchsorted(alive, key)
            self._there = None
            self.keys, self.numbers = [self.keys[i] for i in alive.tolist()], self.numbers[alive]
            self._place = {key: i for i, key in enumerate(self.keys)}

    def texts(self, at: Int) -> Texts:
        """The payload of some rows, by their place from `begin` on."""
        return self._rows["payload"][at] if "payload" in self._rows else np.full(at.shape, None, dtype=object)

    def changed_pages(self, attributes: Callable[[int, int], Float]) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call, by number; the join knows more of some rows."""
        there = set(np.unique(self.row // ROWS_PER_PAGE).tolist()) if self.has_gaps else self._pages(self.begin)
        gone, touched = self._written - there, sorted(self._touched & there)
        changed: dict[str, bytes | None] = {str(page): None for page in sorted(gone)}
        changed |= {str(page): self._page(page, attributes) for page in touched}
        self._written, self._touched = (self._written - gone) | set(touched), set()
        return changed

    def _pages(self, begin: int) -> set[int]:
        """The pages of all rows from a number on."""
        return set(range(begin // ROWS_PER_PAGE, -(-self.end // ROWS_PER_PAGE)))

    def _page(self, page: int, attributes: Callable[[int, int], Float]) -> bytes:
        at = slice(*np.searchsorted(self.row, [page * ROWS_PER_PAGE, (page + 1) * ROWS_PER_PAGE]).tolist())
        rows, row = self.rows.pick(at), self.row[at]
        keys, key = np.unique(rows.key, return_inverse=True)
        start, stop = int(row[0]), int(row[-1]) + 1
        arrays: dict[str, NDArray[Any]] = {name: getattr(rows, name) for name in (*COLUMNS, "values")}
        arrays |= {"key": key.astype(np.int64), "attributes": attributes(start, stop)[row - start]}
        arrays |= {} if rows.payload is None else {"payload": rows.payload}
        arrays |= {"row": row} if stop - start > len(row) else {}
        return pack(arrays, start=start, keys=[self.keys[i] for i in keys.tolist()])

    def load(self, pages: Mapping[int, bytes], begin: int, end: int, count: int) -> Float:
        """Take `count` rows from `begin` to `end` from pages, which may hold older ones; gives what the join knew."""
        attributes = [np.zeros((0, 0))]
        for page in sorted(pages):
            arrays, facts = unpack(pages[page])
            key = self.places([tuple(key) for key in facts["keys"]])[arrays["key"]]
            columns = {name: arrays[name] for name in COLUMNS} | {"key": key}
            row = arrays["row"] if "row" in arrays else facts["start"] + np.arange(len(key))
            mine = np.flatnonzero(row >= begin)
            self.add(NewRows(**columns, values=arrays["values"], payload=arrays.get("payload")).pick(mine))
            self.row[len(self) - len(mine) :] = row[mine]
            attributes.append(arrays["attributes"][mine])
        self.end, self._written, self._touched = end, set(pages), set()
        if (self.begin, len(self)) != (begin, count) or (count and self.row[-1] >= end):
            message = f"state pages must contain {count} rows from {begin} to {end}; they contain {len(self)}"
            raise RunError(message)
        return np.concatenate(attributes[1:] or attributes)
