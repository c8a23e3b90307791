"""Evaluate standing queries that count in a window, or begin anew after they matured; `standing` says how and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tocsin.errors import RunError
from tocsin.runtime.contract import Int
from tocsin.runtime.state_codec import pack, unpack
from tocsin.stages.ranges.expired import Expired
from tocsin.stages.ranges.index import RangeIndex
from tocsin.stages.ranges.recent import Moments, Recent
from tocsin.stages.ranges.requests import Elements, Matured, Queue, Requests, as_ids, in_order
from tocsin.stages.ranges.slots import (
    AWAKE,
    END,
    EXPIRED,
    NEVER,
    PAGE,
    REGISTERED,
    SINCE,
    THRESHOLD,
    TOTAL,
    UNTIL,
    Line,
    empty,
    enrol,
    look_up,
    make_slots,
    page_of,
    read_slots,
    with_room,
)
from tocsin.stages.ranges.walk import ANEW, GONE, ONCE, RESTS, Candidates, Chunk, Outcome, walk_all

# Elements that are taken together, and that expire among them: a candidate is walked with over both.
CHUNK = 1024
BEFORE_ALL = -(1 << 62)
_NONE = np.zeros(0, dtype=np.int64)
_NUMBERS = ("clock", "late", "registered", "first")


class Lives:
    """Standing queries with a window (`within_us`), or re-arming (`rearm_us`), or both."""

    def __init__(self, dims: int, within_us: int | None, rearm_us: int | None) -> None:
        self.dims, self.within_us, self.rearm_us = dims, within_us, rearm_us
        self.late = self.candidates = 0
        self._clock = BEFORE_ALL
        self._queue = Queue(dims)
        self._slots = make_slots(16, dims)
        self._recent = Recent(dims)
        # What came since queries were evaluated last: there a query's threshold is what it lacked then.
        self._came = RangeIndex(dims)
        self._expired = None if within_us is None else Expired(dims)
        # Those that were read rest as long as `rearm_us` then was: they have a line of their own.
        self._resting, self._resting_before = Line(UNTIL), Line(UNTIL)
        self._touched: set[int] = set()
        self._stored: set[int] = set()
        self._head = b""
        self._rows = np.empty((4096 + CHUNK, 4), dtype=np.int64)

    def register(
        self, ids: ArrayLike, low: ArrayLike, high: ArrayLike, threshold: ArrayLike, at: ArrayLike | None = None
    ) -> None:
        """Let queries begin before element `at` of the next batch."""
        self._queue.register(ids, low, high, threshold, at, lambda asked: look_up(self._slots, asked) >= 0)

    def terminate(self, ids: ArrayLike, at: ArrayLike | None = None) -> None:
        """Let queries end before element `at` of the next batch."""
        self._queue.terminate(ids, at)

    def check(self, values: ArrayLike, weights: ArrayLike | None) -> Elements:
        """Check a batch before anything happens."""
        return self._queue.elements(values, weights)

    def take(self, elements: Elements, time: Int) -> Matured:
        """Take a batch that was checked, with the requests that wait for it; give the queries that matured."""
        requests = self._queue.take()
        moments = np.maximum(np.maximum.accumulate(time), self._clock)
        if self.within_us is None:
            return self._take_chunks(Moments(*elements, moments), requests)
        in_time = np.flatnonzero(moments - time < self.within_us)
        self.late += len(time) - len(in_time)
        if len(in_time) == len(time):
            return self._take_chunks(Moments(*elements, moments), requests)
        requests = requests._replace(at=np.searchsorted(in_time, requests.at))
        matured = self._take_chunks(Moments._make(c[in_time] for c in (*elements, moments)), requests)
        return matured._replace(index=in_time[matured.index])

    def progress(self, ids: ArrayLike) -> Int:
        """Give the total of each query: 0 if it waits or rests, -1 if it is not there."""
        asked = as_ids("progress", ids)
        which = look_up(self._slots, asked)
        totals = np.where(which < 0, -1, 0)
        counts = np.flatnonzero((which >= 0) & (self._slots.facts[which, UNTIL] == AWAKE))
        which = which[counts]
        totals[counts] = self._came.progress(which) + self._known(which) - self._lost(which)
        if self._queue:
            totals[(totals < 0) & self._queue.awaits(asked)] = 0
        return totals

    def __len__(self) -> int:
        """Count the queries that are there."""
        return len(self._slots)

    @property
    def held(self) -> int:
        """Count the elements of the window."""
        return self._recent.end - self._recent.first

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call of this method; None: the page is gone."""
        pages: dict[str, bytes | None] = {}
        numbers = (self._clock, self.late, int(self._slots.counts[REGISTERED]), self._recent.first)
        head = pack(self._queue.pack(), **self._settings(), **dict(zip(_NUMBERS, numbers, strict=True)))
        if head != self._head:
            pages["head"] = self._head = head
        for page in sorted(self._touched):
            data = page_of(self._slots, page)
            if data is not None or page in self._stored:
                pages[f"queries/{page}"] = data
            (self._stored.discard if data is None else self._stored.add)(page)
        self._touched.clear()
        pages |= {f"elements/{name}": data for name, data in self._recent.changed_pages().items()}
        if self._expired is None:
            pages |= {f"counts/{name}": data for name, data in self._came.changed_pages().items()}
        return pages

    @classmethod
    def from_pages(cls, pages: Mapping[str, bytes], dims: int, within_us: int | None, rearm_us: int | None) -> Lives:
        """Read the pages that `changed_pages` gave, all that are not gone.

        They may be of another `rearm_us`: queries that rest then do so as long as they would have.
        """
        lives = cls(dims, within_us, rearm_us)
        if not pages:
            return lives
        arrays, facts = unpack(pages["head"])
        for name, wanted in lives._settings().items():
            if facts.get(name) != wanted:
                message = f"state page of a range index must have `{name}` {wanted}; got {facts.get(name)}"
                raise RunError(message)
        lives._clock, lives.late, registered, first = (facts[name] for name in _NUMBERS)
        lives._head, lives._queue = pages["head"], Queue.unpack(dims, arrays)
        parts = {prefix: _below(pages, prefix) for prefix in ("queries/", "elements/", "counts/")}
        lives._stored = {int(name) for name in parts["queries/"]}
        lives._slots = read_slots(parts["queries/"], dims, registered)
        lives._recent = Recent.from_pages(parts["elements/"], dims, first)
        lives._resting_before.add(lives._slots, np.flatnonzero(lives._slots.facts[:, UNTIL] != AWAKE))
        if lives._expired is None:
            lives._came = RangeIndex.from_pages(parts["counts/"])
        else:
            lives._count_again()
        return lives

    def _settings(self) -> dict[str, Any]:
        return {"kind": "standing", "dims": self.dims, "within_us": self.within_us}

    def _count_again(self) -> None:
        """Find what queries have from the elements that count: nothing else of it is written."""
        slots, recent = self._slots, self._recent
        counts = np.flatnonzero(slots.facts[:, SINCE] >= 0)
        slots.facts[counts, TOTAL] = 0
        self._count(counts, slots.facts[counts, THRESHOLD], np.maximum(slots.facts[counts, SINCE] - recent.first, 0))
        values, weights, _ = recent.all()
        assert not len(self._came.push(values, weights).id), "a query that reached its threshold has matured"
        self._expired = Expired(self.dims, recent.first)
        self._expired.begin(slots, counts)

    def _known(self, which: Int) -> Int:
        """Give what queries have, but for what came since they were evaluated and all that they have lost."""
        known: Int = self._slots.facts[which, TOTAL] + self._slots.facts[which, EXPIRED]
        return known

    def _lost(self, which: Int) -> Int:
        return np.zeros(len(which), dtype=np.int64) if self._expired is None else self._expired.lost(which)

    def _take_chunks(self, new: Moments, requests: Requests) -> Matured:
        """Take elements that are in time, cut so that few come and few expire in each chunk."""
        recent, count, start = self._recent, len(new.weights), 0
        base = recent.end
        recent.append(new)
        oldest = np.full(count, recent.first)
        if self.within_us is not None:
            oldest += np.searchsorted(recent.all().moments, new.moments - self.within_us, side="right")
        found: list[Int] = []
        while start < count or len(requests.at):
            stop = min(count, start + CHUNK)
            if start < count:
                stop = min(stop, int(np.searchsorted(oldest, oldest[start] + CHUNK, side="right")))
                self._expire(int(oldest[start]))
            # What takes effect behind the last element does so now, not before the next batch.
            split = len(requests.at) if stop == count else int(np.searchsorted(requests.at, stop))
            mine, requests = requests.split(split)
            chunk = Chunk(*recent.all(), oldest[start:stop], recent.first, base + start)
            self._take_chunk(chunk, mine._replace(at=mine.at - start), start, found)
            start = stop
        self._expire(int(oldest[-1]) if count else recent.first)
        if count:
            self._clock = int(new.moments[-1])
            recent.drop(recent.end if self.within_us is None else int(oldest[-1]))
        return in_order(found)

    def _expire(self, stop: int) -> None:
        if self._expired is not None:
            self._expired.advance(self._slots, self._recent, stop)

    def _take_chunk(self, chunk: Chunk, requests: Requests, start: int, found: list[Int]) -> None:
        """Take a chunk with its requests; add rows of what matured."""
        count = len(chunk.oldest)
        stop = chunk.start - chunk.first + count
        elements = Moments._make(column[stop - count : stop] for column in chunk[:3])
        new, woken, ended = self._obey(requests, elements.moments, chunk.start)
        came = self._came.push(elements.values, elements.weights)
        fate = self._evaluate(chunk, came, start, found)
        stays = self._slots.facts[came.id, END] == NEVER
        rests, anew = came.id[stays & (fate == RESTS)], came.id[stays & (fate == ANEW)]
        gone, on = np.append(ended, came.id[stays & (fate == GONE)]), came.id[stays & (fate <= ANEW)]
        if len(on):
            self._count(on, self._slots.facts[on, THRESHOLD] - self._slots.facts[on, TOTAL])
        self._resting.add(self._slots, rests)
        self._turn(np.concatenate([gone, rests, anew]), np.concatenate([new, woken, anew]), gone)

    def _obey(self, requests: Requests, moments: Int, number: int) -> tuple[Int, Int, Int]:
        """Let requests take effect among the elements of a chunk; give slots that are new, that wake, and that end."""
        registers = requests.is_registration
        if len(registers):
            self._slots = with_room(self._slots, int(np.count_nonzero(registers)))
        which = enrol(self._slots, requests, number) if len(registers) else _NONE
        woken = self._wake(moments, number)
        new, ends = which[registers], np.flatnonzero(~registers & (which >= 0))
        if len(new):
            self._count(new, requests.threshold[registers], requests.at[registers])
        if len(ends):
            self._came.terminate(which[ends], at=requests.at[ends])
        return new, woken, which[ends]

    def _wake(self, moments: Int, number: int) -> Int:
        """Let queries begin anew whose rest ends in a chunk, unless they end before; give their slots."""
        facts = self._slots.facts
        which: Int = _NONE
        if len(moments):
            lines = (self._resting_before, self._resting)
            which = np.unique(np.concatenate([line.take(self._slots, int(moments[-1])) for line in lines]))
        at = np.searchsorted(moments, facts[which, UNTIL])
        alive = facts[which, END] > at
        which, at = which[alive], at[alive]
        if len(which):
            facts[which, UNTIL], facts[which, SINCE] = AWAKE, number + at
            facts[which, TOTAL] = facts[which, EXPIRED] = 0
            self._count(which, facts[which, THRESHOLD], at)
        return which

    def _count(self, which: Int, lacks: Int, at: Int | None = None) -> None:
        """Let queries become candidates when as much has come as they lack."""
        self._came.register(which, self._slots.low[which], self._slots.high[which], lacks, at)

    def _evaluate(self, chunk: Chunk, came: Matured, start: int, found: list[Int]) -> Int:
        """Walk with the candidates, add rows of what matured, and give what became of each."""
        count = len(came.id)
        self.candidates += count
        rearm_us = ONCE if self.rearm_us is None else self.rearm_us
        lost = self._lost(came.id)
        candidates = Candidates(came.id, came.index, came.total + self._known(came.id) - lost, lost)
        fate, done = np.empty(count, dtype=np.int64), np.zeros(2, dtype=np.int64)
        while done[0] < count:
            walk_all(self._slots, chunk, candidates, rearm_us, Outcome(fate, self._rows, done))
            rows = self._rows[: done[1]].copy()
            rows[:, 1] += start
            found.append(rows)
            done[1] = 0
        return fate

    def _turn(self, over: Int, born: Int, gone: Int) -> None:
        """End lives and begin lives; empty the slots of the queries that are gone."""
        if not len(over) and not len(born):
            return
        self._touched.update(np.unique(np.concatenate([over, born]) // PAGE).tolist())
        empty(self._slots, gone)
        if self._expired is not None:
            self._expired.end(over)
            # A life that began and ended in this chunk has no first element any more.
            born = np.unique(born)
            self._expired.begin(self._slots, born[self._slots.facts[born, SINCE] >= 0])


def _below(pages: Mapping[str, bytes], prefix: str) -> dict[str, bytes]:
    return {name.removeprefix(prefix): data for name, data in pages.items() if name.startswith(prefix)}
