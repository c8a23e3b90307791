"""The logic of a `RangeRule`: rows are led to the queries of their key; what is reached becomes an alert."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

import numpy as np

from tocsin.errors import RunError
from tocsin.interim.ranges.key_requests import KeyQueries, Reached, Requests
from tocsin.interim.ranges.matured_requests import Element, Elements, refused_row, request_alerts
from tocsin.interim.ranges.request_columns import Asked, Counted, Reasons, read_elements, read_requests
from tocsin.operators.reorder.wait_agreement import NewWait
from tocsin.plan.ranges import RangeWatch
from tocsin.runtime.contract import Batch, Float, Int, Out, Pages, Payload
from tocsin.runtime.memory_pool import Share
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.row_batch import join_payload
from tocsin.runtime.state_codec import pack, unpack
from tocsin.runtime.state_registry import readable

# Rows not usable that are shown of one call and stream; all are counted.
MOST_SHOWN = 1000
# How the pages of standing queries begin; then come the name of the step, the number of the key, and a page of it.
RANGES = "ranges/"
_NAME = re.compile(RANGES + r"([0-9a-f]{16})/(0|[1-9][0-9]{0,8})/((?:query/|index/).+|key)", re.ASCII)
_ALIVE = "`id` is in use by an active request; terminate that request first"

Key = tuple[str, ...]


class _Rows(NamedTuple):
    """Rows of one stream in a call: number of the key, time, arrival, values by name, payload; and those not usable."""

    key: Int
    time: Int
    arrival: Int
    values: Mapping[str, Float]
    payload: Payload | None
    quarantined: int

    def texts(self, at: Int) -> list[str | None]:
        """The payload of some rows."""
        return [None] * len(at) if self.payload is None else list(self.payload.take(at))

    def usable(self, reasons: Reasons) -> Int:
        """The rows with nothing against them, by key, then in order of arrival."""
        at = np.flatnonzero(~reasons.wrong)
        return at[np.lexsort((self.arrival[at], self.key[at]))]


class _Call(NamedTuple):
    """What a call brings: the keys of its rows, requests, elements."""

    keys: Sequence[Key]
    asking: _Rows
    asked: Asked
    payload: list[str | None]
    counting: _Rows
    counted: Counted


def parts_of(page: str) -> tuple[str, int, str]:
    """The step that a page is named by, the number of its key there, and what it has of that key."""
    found = _NAME.fullmatch(page)
    if not found:
        message = f"state page `{page}` must have the name of a page of a range rule; it belongs to another query"
        raise RunError(message)
    return found[1], int(found[2]), found[3]


def facts_of(parts: Mapping[str, bytes], step: str, key: int) -> dict[str, Any]:
    """What the first page of a key says of it; the others must be as many as it says."""
    name = f"{RANGES}{step}/{key}"
    if "key" not in parts:
        message = f"state page `{name}/key` is missing"
        raise RunError(message)
    with readable(f"{name}/key"):
        facts = unpack(parts["key"])[1]
        wanted = facts["pages"]
    if len(parts) - 1 != wanted:
        message = f"state `{name}` must have {wanted} pages besides `key`; got {len(parts) - 1}"
        raise RunError(message)
    return facts


def retained_rows(page: str, data: bytes) -> dict[str, int]:
    """Return the number of retained rows by stream that a page counts. Only the page of a key counts rows."""
    return dict(unpack(data)[1]["retained"]) if parts_of(page)[2] == "key" else {}


class RangePipeline:
    """The queries of all keys of one rule."""

    def __init__(self, number: int, watch: RangeWatch, pages: Pages) -> None:
        self.number, self.watch = number, watch
        self.inputs = {(number, stream): watch.columns(stream) for stream in watch.streams}
        mine: dict[int, dict[str, bytes]] = {}
        for name, data in pages.items():
            step, key, part = parts_of(name)
            if step == watch.name:
                mine.setdefault(key, {})[part] = data
        self.numbers: dict[Key, int] = {}
        self.queries: dict[int, KeyQueries] = {}
        for key, parts in mine.items():
            self.numbers[tuple(facts_of(parts, watch.name, key)["key"])] = key
            with readable(f"{RANGES}{watch.name}/{key}"):
                self.queries[key] = KeyQueries(watch, parts)
        self._next = max(mine, default=-1) + 1
        self._touched: dict[int, Key] = {}
        self._facts = asdict(watch)

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Take the rows of one call, key by key."""
        if not batches:
            return
        keys: dict[Key, int] = {}
        asking, counting = (self._rows(name, batches, keys) for name in (self.watch.requests, self.watch.data))
        payload = asking.texts(np.arange(len(asking.time)))
        asked = read_requests(self.watch, asking.values, payload)
        counted = read_elements(self.watch, counting.values, len(counting.time))
        call = _Call(list(keys), asking, asked, payload, counting, counted)
        for key, requests, elements in self._by_key(call):
            self._take(call, key, requests, elements, out)
        self._count(self.watch.requests, call, asking, asked.reasons, out)
        self._count(self.watch.data, call, counting, counted.reasons, out)

    def _rows(self, stream: str, batches: Sequence[Batch], keys: dict[Key, int]) -> _Rows:
        """The rows of one stream; their keys are numbered over both."""
        mine = [batch for batch in batches if batch.stream == stream]
        some = [batch for batch in mine if len(batch.time)]
        columns, bad = self.watch.columns(stream), sum(batch.quarantined for batch in mine)
        if not some:
            none = np.zeros(0, np.int64)
            return _Rows(none, none, none, {column: np.zeros(0) for column in columns}, None, bad)
        numbers = [np.array([keys.setdefault(key, len(keys)) for key in batch.keys])[batch.key] for batch in some]
        time, arrival = (np.concatenate([getattr(batch, name) for batch in some]) for name in ("time", "arrival"))
        values = {column: np.concatenate([batch.values[column] for batch in some]) for column in columns}
        return _Rows(np.concatenate(numbers), time, arrival, values, join_payload(some), bad)

    def _by_key(self, call: _Call) -> Iterator[tuple[int, Int, Int]]:
        """The usable requests and elements of each key, in order of arrival."""
        asking, counting = call.asking.usable(call.asked.reasons), call.counting.usable(call.counted.reasons)
        ends = np.arange(len(call.keys) + 1)
        of_asking = np.searchsorted(call.asking.key[asking], ends)
        of_counting = np.searchsorted(call.counting.key[counting], ends)
        for key in range(len(call.keys)):
            yield (
                key,
                asking[of_asking[key] : of_asking[key + 1]],
                counting[of_counting[key] : of_counting[key + 1]],
            )

    def _take(self, call: _Call, key: int, requests: Int, elements: Int, out: Out) -> None:
        """Let the queries of one key take its rows."""
        number = self.numbers.get(call.keys[key])
        # Without a window and without queries there is nothing to know of a key.
        if number is None and self.watch.is_plain and not len(requests):
            return
        if number is None:
            number = self.numbers[call.keys[key]] = self._next
            self._next += 1
            self.queries[number] = KeyQueries(self.watch)
        mine = self.queries[number]
        before = mine.retained
        values, weight = call.counted.values[elements], call.counted.weight[elements]
        reached, alive = mine.take(
            self._requests(call, requests, elements), values, weight, call.counting.time[elements]
        )
        if alive:
            call.asked.reasons.add_some(requests[alive], _ALIVE)
        self._alert(call, key, reached, elements, out)
        self._touched[number] = call.keys[key]
        for stream, rows in mine.retained.items():
            if self._counts(call.keys[key], stream):
                gained = rows - before[stream]
                out.metrics.count_rows(stream, {RowOutcome.RETAINED: gained, RowOutcome.EXPIRED: -gained})
        if mine.late and self._counts(call.keys[key], self.watch.data):
            out.metrics.count_rows(self.watch.data, {RowOutcome.LATE: mine.late, RowOutcome.EXPIRED: -mine.late})

    def _requests(self, call: _Call, at: Int, elements: Int) -> Requests:
        """The requests of a key; of those that arrived with an element, the stream that is declared first is first."""
        asking, asked = call.asking, call.asked
        # Before the first element that came later, or, where requests are declared first, no earlier.
        side: Literal["left", "right"] = "left" if self.watch.streams[0] == self.watch.requests else "right"
        before = np.searchsorted(call.counting.arrival[elements], asking.arrival[at], side=side)
        ids, payload = [asked.id[i] for i in at.tolist()], [call.payload[i] for i in at.tolist()]
        return Requests(ids, payload, asked.registers[at], before, asking.time[at], asked.threshold[at], asked.ends[at])

    def _alert(self, call: _Call, key: int, reached: Sequence[Reached], elements: Int, out: Out) -> None:
        """Add the matured requests of a key to the alerts, in order."""
        if not reached:
            return
        at, counting = elements[[one.element for one in reached]], call.counting
        values = np.array([counting.values[name][at] for name in self.watch.columns(self.watch.data)], np.float64)
        values = values.reshape(-1, len(at)).T
        # A key in parts has the number of its part after its columns.
        named = call.keys[key][: len(self.watch.on)]
        rows = Elements(counting.time[at], values, counting.texts(at))
        out.alerts.append(request_alerts(self.watch, named, reached, rows))

    def _named(self, key: Key) -> dict[str, str]:
        """The key columns of a key, which may have the number of a part behind them."""
        return dict(zip(self.watch.on, key, strict=False))

    def _counts(self, key: Key, stream: str) -> bool:
        """Tell whether rows of a key are counted: of one in parts each part sees all elements, and the first counts."""
        return stream == self.watch.requests or len(key) == len(self.watch.on) or key[-1] == "0"

    def _count(self, stream: str, call: _Call, rows: _Rows, reasons: Reasons, out: Out) -> None:
        """Count what came, and what cannot be used, which is shown; what stays is counted apart."""
        counts = np.array([self._counts(key, stream) for key in call.keys], np.bool_)
        counts = counts[rows.key] if len(rows.key) else np.zeros(0, np.bool_)
        received, wrong = int(counts.sum()), np.flatnonzero(reasons.wrong & counts)
        outcomes = {RowOutcome.QUARANTINED: len(wrong) + rows.quarantined, RowOutcome.EXPIRED: received - len(wrong)}
        out.metrics.count_rows(stream, outcomes)
        # Requests come when somebody asks: how long ago that was is no lag.
        if len(rows.time) and stream != self.watch.requests:
            out.metrics.record("newest_us", int(rows.time.max()), stream)
        for at in wrong[:MOST_SHOWN].tolist():
            values = {name: float(column[at]) for name, column in rows.values.items()}
            element = Element(int(rows.time[at]), values, rows.texts(np.array([at]))[0])
            out.dead.append(
                refused_row(self.watch, stream, reasons.say(at), self._named(call.keys[rows.key[at]]), element)
            )

    def on_control(self, message: NewWait | Share, out: Out) -> None:
        """Ignore control rows: requests arrive as rows of a stream."""

    def on_time(self, now_us: int, out: Out) -> None:
        """Do nothing: only event time ends a request."""

    def on_end(self, out: Out) -> None:
        """Do nothing: no request waits for a later row."""

    def next_timer(self) -> int | None:
        """Return None: requests have no timer."""
        return None

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call; those of a key that nobody asks for are removed."""
        changed: dict[str, bytes | None] = {}
        for number, key in self._touched.items():
            mine = self.queries[number]
            stored = mine.names
            pages = mine.changed_pages()
            if len(mine) or not self.watch.is_plain:
                retained = {stream: rows for stream, rows in mine.retained.items() if self._counts(key, stream)}
                pages["key"] = pack({}, key=list(key), retained=retained, pages=len(mine.names), step=self._facts)
            else:
                # A request that ended before its pages were stored has no page to remove.
                pages = dict.fromkeys([*stored, "key"]) if stored else {}
                del self.numbers[key], self.queries[number]
            changed |= {f"{RANGES}{self.watch.name}/{number}/{name}": page for name, page in pages.items()}
        self._touched = {}
        return changed
