"""Remember: the rows of one store, for all keys of a page, merged with each batch and reduced.

The reduce stage dates every row: when it came and when it goes. The join then sees, for each probe, what was remembered
at that moment, and what never went is the state of the next batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.hashing import row_fingerprints
from tocsin.jit import kernel
from tocsin.operators.retention.bracketing import CLOSED, HOPPING, NEVER, Rows, going, hops
from tocsin.operators.retention.dominance import going_dominated
from tocsin.operators.retention.duplicate_rows import EqualTimes, find_repeats, mark_equal_times, mark_omitted_at_newest
from tocsin.plan.steps import Store
from tocsin.runtime.contract import NEVER_SEEN, Float, Int, Payload
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.payload import with_payload_digests

Texts = NDArray[np.object_]

# What a text that is not there takes on a page.
NO_TEXT = len("null, ")


class Sampled(NamedTuple):
    """With which chance each row was to stay, and which do not: they are joined, and seen by no row after them.

    Rows that came `again` after they went bring nothing.
    """

    chance: Float
    refused: NDArray[np.bool_]
    again: NDArray[np.bool_]

    def pick(self, at: Int) -> Sampled:
        """Those of some of the rows."""
        return Sampled(self.chance[at], self.refused[at], self.again[at])


@dataclass(frozen=True)
class RowBatch:
    """New rows of one stream in order of arrival; `payload` is None, or texts that can be taken by position."""

    key: Int
    time: Int
    rank: Int
    values: dict[str, Float]
    payload: Payload | None
    picked: Int | None = None
    sampled: Sampled | None = None

    @classmethod
    def none(cls, columns: Iterable[str]) -> RowBatch:
        """No rows of a stream with these value columns."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty, {column: np.zeros(0) for column in columns}, None)

    def pick(self, at: Int) -> RowBatch:
        """Some of the rows."""
        picked = at if self.picked is None else self.picked[at]
        values = {name: value[at] for name, value in self.values.items()}
        sampled = None if self.sampled is None else self.sampled.pick(at)
        return RowBatch(self.key[at], self.time[at], self.rank[at], values, self.payload, picked, sampled)

    def with_rank(self, rank: Int) -> RowBatch:
        """The rows with their place in the order of arrival over all streams."""
        return replace(self, rank=rank)

    def with_keys(self, key: Int) -> RowBatch:
        """The rows with keys numbered otherwise."""
        return replace(self, key=key)

    def texts(self, rows: Int) -> Texts:
        """The payload of some rows."""
        at = rows if self.picked is None else self.picked[rows]
        texts = np.full(len(rows), None, dtype=object)
        if self.payload is not None and len(rows):
            texts[:] = list(self.payload.take(at))
        return texts


@dataclass(frozen=True)
class VersionedRows:
    """Remembered and new rows of a store: per key in time order, each with the ranks at which it came and goes.

    `place` is the position of each new row. A `repeated` row equals an earlier row. An `excused` row is no repeat, but
    is older than the newest row and was omitted on arrival. Rows of both kinds are `silent`: no rule evaluates them.
    `source` numbers remembered rows first, then new ones; `payload` returns texts by these numbers.
    """

    offsets: Int
    time: Int
    rank: Int
    gone: Int
    values: tuple[Float, ...]
    source: Int
    payload: Callable[[Int], Texts] | None
    place: Int
    repeated: NDArray[np.bool_]
    excused: NDArray[np.bool_]
    chance: Float | None = None
    refused: int = 0

    @property
    def silent(self) -> NDArray[np.bool_]:
        """The new rows that no rule of several streams evaluates."""
        return self.repeated | self.excused

    def texts(self, at: Int) -> Texts:
        """Payload of some rows."""
        return np.full(len(at), None, dtype=object) if self.payload is None else self.payload(self.source[at])

    def cut(self, at: Int, key: Int) -> VersionedRows:
        """Some rows of these keys, in the same order; which of them are new is not said."""
        offsets = np.concatenate([[0], np.cumsum(np.bincount(key, minlength=len(self.offsets) - 1))])
        values, none = tuple(value[at] for value in self.values), slice(0, 0)
        columns = (offsets, self.time[at], self.rank[at], self.gone[at], values, self.source[at], self.payload)
        chance = None if self.chance is None else self.chance[at]
        return VersionedRows(*columns, self.place[none], self.repeated[none], self.excused[none], chance)

    def pick(self, at: Int, key: Int) -> VersionedRows:
        """Some rows, which are ordered by key, as if each had just come in this order."""
        number, none = np.arange(len(at)), np.zeros(len(at), np.bool_)
        gone = np.full(len(at), NEVER)
        return replace(self.cut(at, key), rank=number, gone=gone, place=number, repeated=none, excused=none)


@kernel
def not_newest(key: Int, time: Int, newest: Int) -> NDArray[np.bool_]:
    """Tell which new rows are older than the newest of their key so far, which may be forgotten, and move that."""
    behind = np.empty(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        behind[i] = time[i] < newest[key[i]]
        newest[key[i]] = max(newest[key[i]], time[i])
    return behind


@kernel
def lay_out(offsets: Int, key: Int) -> tuple[Int, Int, Int]:
    """Lay out remembered rows, then new ones of the same key: offsets, source of each row, remembered per key."""
    keys = offsets.shape[0] - 1
    ends = np.zeros(keys + 1, np.int64)
    for k in key:
        ends[k + 1] += 1
    state = np.empty(keys, np.int64)
    for k in range(keys):
        state[k] = offsets[k + 1] - offsets[k]
        ends[k + 1] += ends[k] + state[k]
    source = np.empty(ends[keys], np.int64)
    fill = ends[:-1].copy()
    for k in range(keys):
        for i in range(offsets[k], offsets[k + 1]):
            source[fill[k]] = i
            fill[k] += 1
    for i in range(key.shape[0]):
        source[fill[key[i]]] = offsets[keys] + i
        fill[key[i]] += 1
    return ends, source, state


@kernel
def survivors(offsets: Int, time: Int, gone: Int, floor: Int) -> tuple[Int, Int, Int]:
    """Rows that stay: their positions, the new offsets, and how many never went but fell below their key's floor."""
    keys = offsets.shape[0] - 1
    ends, stay = np.zeros(keys + 1, np.int64), np.empty(time.shape[0], np.int64)
    expired = np.zeros(1, np.int64)
    count = 0
    for k in range(keys):
        for i in range(offsets[k], offsets[k + 1]):
            if gone[i] != NEVER:
                continue
            if time[i] < floor[k]:
                expired[0] += 1
                continue
            stay[count] = i
            count += 1
        ends[k + 1] = count
    return stay[:count].copy(), ends, expired


class Retention:
    """What one store remembers of each key of a page."""

    def __init__(self, store: Store, keys: int = 0) -> None:
        self.store = store
        self.offsets = np.zeros(keys + 1, np.int64)
        self.time = np.zeros(0, np.int64)
        self.values = tuple(np.zeros(0) for _ in store.columns)
        self.payload: Texts | None = None
        # Where results are sampled: with which chance each row is there.
        self.chance = np.zeros(0)
        self.newest = np.full(keys, NEVER_SEEN)
        # Key and fingerprint of each omitted row at the newest time of its key. An equal row is a repeat.
        self.omitted_key, self.omitted_mark = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def add_keys(self, count: int) -> None:
        """Make room for new keys."""
        self.offsets = np.concatenate([self.offsets, np.full(count, self.offsets[-1])])
        self.newest = np.concatenate([self.newest, np.full(count, NEVER_SEEN)])

    def merge(self, rows: RowBatch) -> VersionedRows:
        """Put new rows beside the remembered ones and date them all; `keep` takes over what stays of them."""
        offsets, source, state = lay_out(self.offsets, rows.key)
        time = np.concatenate([self.time, rows.time])[source]
        rank = np.concatenate([np.full(len(self.time), -1), rows.rank])[source]
        new = [rows.values[column] for column in self.store.columns]
        values = tuple(np.concatenate([old, fresh])[source] for old, fresh in zip(self.values, new, strict=True))
        has_payload = rows.payload is not None or self.payload is not None
        texts = partial(self._texts, rows) if has_payload else None
        if self.store.remember:
            tag = np.zeros(len(source), np.int64)
            if self.store.whole:
                tag = self._tags((np.concatenate([self.key, rows.key])[source], time), values, source, texts)
            order, gone = self._date((offsets, state), time, values, tag, rank)
        else:
            order, gone = np.arange(len(time)), np.full(len(time), NEVER)
        place = np.empty(len(source), np.int64)
        place[source[order]] = np.arange(len(source))
        place = place[len(self.time) :]
        time, rank, gone, values = time[order], rank[order], gone[order], tuple(value[order] for value in values)
        nothing = np.zeros(len(place), np.bool_)
        merged = VersionedRows(offsets, time, rank, gone, values, source[order], texts, place, nothing, nothing)
        front = self.newest.copy()
        behind = not_newest(rows.key, rows.time, self.newest)
        refused = gone[place] == rank[place]
        repeated = refused if self.store.whole else self._repeats(merged, rows.key, refused, behind, front)
        merged = replace(merged, repeated=repeated, excused=refused & behind & ~repeated)
        there = self.newest[self.omitted_key] == front[self.omitted_key]
        self.omitted_key, self.omitted_mark = self.omitted_key[there], self.omitted_mark[there]
        return merged if rows.sampled is None else self._sampled(merged, rows.sampled)

    def _repeats(
        self, merged: VersionedRows, key: Int, refused: NDArray[np.bool_], behind: NDArray[np.bool_], front: Int
    ) -> NDArray[np.bool_]:
        """Mark new rows of a reduced store that equal an earlier row; `front` has the newest times before this call."""
        if not refused.any():
            return refused
        place, is_behind = merged.place, np.zeros(len(merged.time), np.bool_)
        is_behind[place] = behind
        at = np.flatnonzero(mark_equal_times(merged.offsets, merged.time, key[refused], place[refused]))
        rows = EqualTimes(
            np.searchsorted(merged.offsets, at, side="right") - 1,
            merged.time[at],
            self._fingerprints(merged, at),
            merged.rank[at],
            merged.gone[at],
            is_behind[at],
        )
        found = np.zeros(len(merged.time), np.bool_)
        found[at] = find_repeats(rows, self.omitted_key, front[self.omitted_key], self.omitted_mark)
        return found[place]

    def _sampled(self, merged: VersionedRows, sampled: Sampled) -> VersionedRows:
        """Let rows go with their own rank that do not stay; nobody after them sees them."""
        old = np.zeros(len(self.time), np.bool_)
        again, refused = (np.concatenate([old, part])[merged.source] for part in (sampled.again, sampled.refused))
        refused &= ~again & (merged.gone == NEVER)
        chance = np.concatenate([self.chances, sampled.chance])[merged.source]
        gone = np.where(refused | (again & (merged.gone == NEVER)), merged.rank, merged.gone)
        repeated = merged.repeated | sampled.again
        return replace(merged, gone=gone, chance=chance, refused=int(refused.sum()), repeated=repeated)

    def _date(
        self, bounds: tuple[Int, Int], time: Int, values: tuple[Float, ...], tag: Int, rank: Int
    ) -> tuple[Int, Int]:
        """Order the rows of each key by time, and tell when each goes."""
        store, kind = self.store, HOPPING if self.store.hop_us else CLOSED
        reach = max(store.above_us, store.below_us)
        enter, leave = hops(time, reach, store.hop_us, store.closed) if store.hop_us else (time, time)
        numbers, apart = store.compared(values)
        rows = Rows(time, numbers[0], enter, leave, apart, tag, rank)
        order, gone = np.empty(len(time), np.int64), np.empty(len(time), np.int64)
        if len(numbers) > 1 and not store.whole:
            going_dominated(bounds, rows, np.array(numbers), (reach, kind), order, gone)
            return order, gone
        lengths = np.empty((2, len(bounds[1])), np.int64)
        for side, length in enumerate([store.above_us, store.below_us]):
            lengths[side] = min(length, 0) if store.hop_us else length
        going(bounds, rows, (lengths, kind), order, gone)
        return order, gone

    def _tags(
        self, place: tuple[Int, Int], values: tuple[Float, ...], source: Int, texts: Callable[[Int], Texts] | None
    ) -> Int:
        """Return one number per row of a whole store: equal for equal rows of one key and time, given as `place`.

        A payload is read only where key, time and values are equal.
        """
        tag = row_fingerprints(values, len(source))
        if texts is None:
            return tag
        order = np.lexsort((tag, *place))
        same = np.logical_and.reduce([np.diff(column[order]) == 0 for column in (tag, *place)])
        alike = np.zeros(len(tag), np.bool_)
        alike[order[1:][same]] = alike[order[:-1][same]] = True
        tag[alike] = with_payload_digests(tag[alike], texts(source[alike]), self.store.columns)
        return tag

    def _fingerprints(self, merged: VersionedRows, at: Int) -> Int:
        """Return one number per row: equal for rows of equal values and payload, in any process."""
        texts = None if merged.payload is None else merged.texts(at)
        fingerprints = row_fingerprints([value[at] for value in merged.values], len(at))
        return with_payload_digests(fingerprints, texts, self.store.columns)

    def _texts(self, rows: RowBatch, source: Int) -> Texts:
        """Payload by source number."""
        texts = np.full(len(source), None, dtype=object)
        old = source < len(self.time)
        if self.payload is not None:
            texts[old] = self.payload[source[old]]
        texts[~old] = rows.texts(source[~old] - len(self.time))
        return texts

    def keep(self, rows: RowBatch, segments: VersionedRows, floor: Int) -> dict[RowOutcome, int]:
        """Retain the rows that remain, and return the changes of the row outcomes."""
        before = len(self.time)
        if not self.store.remember:
            return {RowOutcome.EXPIRED: len(rows.time)}
        stay, offsets, expired = survivors(segments.offsets, segments.time, segments.gone, floor)
        if not self.store.whole:
            self._keep_omitted(segments, floor)
        if segments.payload is not None:
            self.payload = segments.texts(stay)
        self.offsets, self.time = offsets, segments.time[stay]
        self.values = tuple(value[stay] for value in segments.values)
        self.chance = self.chance if segments.chance is None else segments.chance[stay]
        gained, shed, repeated = len(stay) - before, segments.refused, int(segments.repeated.sum())
        left = len(rows.time) - gained - int(expired[0]) - shed - repeated
        counts = {RowOutcome.RETAINED: gained, RowOutcome.EXPIRED: int(expired[0]), RowOutcome.OMITTED: left}
        return counts | {RowOutcome.SHED: shed, RowOutcome.DUPLICATE: repeated}

    def _keep_omitted(self, segments: VersionedRows, floor: Int) -> None:
        """Replace the fingerprints of omitted rows: those at a newest time that rows can still have."""
        marked = mark_omitted_at_newest(segments.offsets, segments.time, segments.gone, self.newest)
        marked[segments.place[segments.repeated]] = False
        at = np.flatnonzero(marked)
        key = np.searchsorted(segments.offsets, at, side="right") - 1
        key = np.concatenate([self.omitted_key, key])
        mark = np.concatenate([self.omitted_mark, self._fingerprints(segments, at)])
        stay = self.newest[key] >= floor[key]
        self.omitted_key, self.omitted_mark = key[stay], mark[stay]

    def drop_keys(self, gone: NDArray[np.bool_]) -> int:
        """Forget keys; say how many rows went with them."""
        there = ~gone[self.omitted_key]
        self.omitted_key = (np.cumsum(~gone) - 1)[self.omitted_key[there]]
        self.omitted_mark = self.omitted_mark[there]
        counts = np.diff(self.offsets)
        stay = np.repeat(~gone, counts)
        self.time, self.values = self.time[stay], tuple(value[stay] for value in self.values)
        self.payload = None if self.payload is None else self.payload[stay]
        self.chance = self.chance[stay] if len(self.chance) else self.chance
        self.offsets = np.concatenate([[0], np.cumsum(counts[~gone])])
        self.newest = self.newest[~gone]
        return int(len(stay) - stay.sum())

    def shed(self, gone: NDArray[np.bool_]) -> None:
        """Give up some rows."""
        before = np.concatenate([[0], np.cumsum(gone)])
        self.offsets = self.offsets - before[self.offsets]
        self.time, self.values = self.time[~gone], tuple(value[~gone] for value in self.values)
        self.payload = None if self.payload is None else self.payload[~gone]
        self.chance = self.chance[~gone] if len(self.chance) else self.chance

    def drop_fingerprints(self) -> int:
        """Remove the fingerprints of omitted rows; return how many bytes of state they took."""
        size = self.omitted_key.nbytes + self.omitted_mark.nbytes
        self.omitted_key, self.omitted_mark = np.zeros(0, np.int64), np.zeros(0, np.int64)
        return size

    @property
    def chances(self) -> Float:
        """With which chance each row is there; those that nothing was said of are there for certain."""
        return self.chance if len(self.chance) else np.ones(len(self.time))

    @property
    def key(self) -> Int:
        """The key of each row."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def row_bytes(self) -> Int:
        """How many bytes of state each row takes: its columns, and its text with what stands around it."""
        return self._text_bytes() + 8 * (1 + len(self.values) + bool(len(self.chance)))

    @property
    def longest(self) -> int:
        """How many bytes the longest text takes, with what stands around it; of no text, as many as none takes."""
        return int(self._text_bytes().max(initial=NO_TEXT))

    def _text_bytes(self) -> Int:
        if self.payload is None:
            return np.full(len(self.time), NO_TEXT)
        return np.fromiter((len(json.dumps(text)) + 2 for text in self.payload.tolist()), np.int64, len(self.time))

    def out_of_domain(self, rows: RowBatch) -> int:
        """How many new rows carry a value outside the declared domain."""
        return int(self.store.outside([rows.values[column] for column in self.store.columns]).sum())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        prefix = f"s{self.store.id}."
        named: dict[str, NDArray[Any]] = {f"{prefix}offsets": self.offsets, f"{prefix}newest": self.newest}
        named[f"{prefix}time"] = self.time
        named |= {f"{prefix}v{i}": value for i, value in enumerate(self.values)}
        named |= {f"{prefix}chance": self.chance} if len(self.chance) else {}
        named |= {f"{prefix}omitted.key": self.omitted_key, f"{prefix}omitted.mark": self.omitted_mark}
        return named if self.payload is None else named | {f"{prefix}payload": self.payload}

    def load(self, arrays: dict[str, NDArray[Any]], keys: int) -> None:
        """State that was written; none if it belongs to other stores."""
        prefix = f"s{self.store.id}."
        if f"{prefix}time" not in arrays or not self.store.remember:
            self.add_keys(keys)
            return
        self.offsets, self.newest = arrays[f"{prefix}offsets"], arrays[f"{prefix}newest"]
        self.time = arrays[f"{prefix}time"]
        self.values = tuple(arrays[f"{prefix}v{i}"] for i in range(len(self.store.columns)))
        self.payload = arrays.get(f"{prefix}payload")
        self.chance = arrays.get(f"{prefix}chance", np.ones(0))
        self.omitted_key, self.omitted_mark = arrays[f"{prefix}omitted.key"], arrays[f"{prefix}omitted.mark"]
