"""Engine in one process, without a JVM: rule tests, notebooks, the edge, and the yardstick of the Spark engine."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import PlanError
from tocsin.logic import Batch, Int, Out
from tocsin.plan import Plan, Watch, make_plan
from tocsin.rules import Rule

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# A thread for fewer rows would cost more than it saves.
ROWS_PER_THREAD = 200_000

# Columns by name: a mapping of arrays, or a DataFrame of pandas.
Columns = Any


@dataclass(frozen=True)
class Result:
    """Alerts of a run by rule and key, per stream what became of its rows, and the bytes of state left."""

    alerts: list[dict[str, Any]]
    counts: dict[str, dict[str, int]]
    state_bytes: int


def run_local(
    streams: Mapping[str, Columns],
    rules: Rule | Iterable[Rule],
    *,
    time: str = "ts",
    arrival: str | None = None,
    cuts: Sequence[int] = (),
) -> list[dict[str, Any]]:
    """Run rules over bounded streams and give their alerts.

    Parameters
    ----------
    streams
        Columns of each stream: arrays by name, or a DataFrame of pandas.
    rules
        One or several rules.
    time
        Column of event time: datetimes, or whole microseconds since 1970.
    arrival
        Column by which rows arrived; without it they are taken in order of event time.
    cuts
        Numbers of rows, in order of arrival, after which to cut the input into batches, the state being written and
        read between them.
    """
    return run(streams, rules, time=time, arrival=arrival, cuts=cuts).alerts


def run(
    streams: Mapping[str, Columns],
    rules: Rule | Iterable[Rule],
    *,
    time: str = "ts",
    arrival: str | None = None,
    cuts: Sequence[int] = (),
) -> Result:
    """Run like `run_local`, and give counts and the size of the state too."""
    plan = explain(streams, rules, time=time, arrival=arrival)
    batches = [batch for i, watch in enumerate(plan.watches) for batch in _batches(i, watch, streams, time, arrival)]
    if len(cuts):
        return _run_calls(plan, _cut(batches, cuts))
    threads = min(os.cpu_count() or 1, sum(len(batch.time) for batch in batches) // ROWS_PER_THREAD)
    if threads < 2:
        return _run_calls(plan, [batches])
    with ThreadPoolExecutor(threads) as pool:
        return _joined(pool.map(lambda n: _run_calls(plan, [_part(batches, n, threads)]), range(threads)))


def _run_calls(plan: Plan, calls: Sequence[Sequence[Batch]]) -> Result:
    """Run a plan to the end of its input, its state being written and read between calls."""
    out, pages = Out(), dict[str, bytes]()
    logic = plan.build(pages)
    for number, call in enumerate(calls):
        if number:
            _store(pages, logic.changed_pages())
            logic = plan.build(pages)
        out.add(logic.on_data(call))
    out.add(logic.on_end())
    _store(pages, logic.changed_pages())
    alerts = sorted(out.alerts, key=_whose)
    return Result([with_times(alert) for alert in alerts], out.counts, sum(len(page) for page in pages.values()))


def _joined(results: Iterable[Result]) -> Result:
    """Put results of different keys together."""
    whole = Out()
    size = 0
    for result in results:
        whole.add(Out(result.alerts, result.counts))
        size += result.state_bytes
    return Result(sorted(whole.alerts, key=_whose), whole.counts, size)


def _whose(alert: Mapping[str, Any]) -> tuple[Any, ...]:
    """Order of alerts: by rule and key, whose changes stay in the order in which they came."""
    return alert["alert"], *sorted(alert["labels"].items())


def explain(
    streams: Mapping[str, Columns], rules: Rule | Iterable[Rule], *, time: str = "ts", arrival: str | None = None
) -> Plan:
    """Plan rules over streams without running them; the plan's text says what is remembered and joined."""
    columns = {name: list(_names(given)) for name, given in streams.items()}
    return make_plan(rules, columns, time=time, arrival=arrival)


def with_times(alert: dict[str, Any]) -> dict[str, Any]:
    """An alert whose times are datetimes instead of microseconds."""
    witness = [{**part, "time": _datetime(part["time"])} for part in alert["witness"]]
    ends = None if alert["endsAt"] is None else _datetime(alert["endsAt"])
    return {**alert, "startsAt": _datetime(alert["startsAt"]), "endsAt": ends, "witness": witness}


def _datetime(time_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=time_us)


def _store(pages: dict[str, bytes], changed: Mapping[str, bytes | None]) -> None:
    for name, page in changed.items():
        if page is None:
            pages.pop(name, None)
        else:
            pages[name] = page


def _names(columns: Columns) -> Iterable[str]:
    return (str(name) for name in (columns.columns if hasattr(columns, "columns") else columns))


def _batches(number: int, watch: Watch, streams: Mapping[str, Columns], time: str, arrival: str | None) -> list[Batch]:
    return [_batch(number, watch, name, streams[name], time, arrival) for name in watch.streams]


def _batch(number: int, watch: Watch, name: str, columns: Columns, time: str, arrival: str | None) -> Batch:
    """Read the columns of one stream; rows without time, key or finite values are counted and left out."""
    read = watch.columns(name)
    lengths = {len(columns[column]) for column in _names(columns)}
    if len(lengths) > 1:
        message = f"stream `{name}`: columns must have equal lengths; got {sorted(lengths)}"
        raise PlanError(message)
    times, ok = _times(columns[time], f"stream `{name}`: column {time!r}")
    values = {column: _numbers(columns[column], f"stream `{name}`: column {column!r}") for column in read}
    for value in values.values():
        ok = ok & np.isfinite(value)
    places = [f"stream `{name}`: key column {column!r}" for column in watch.on]
    key, keys, known = _keys([columns[column] for column in watch.on], places, len(times))
    ok &= known
    order = times
    if arrival is not None:
        arrived, there = _times(columns[arrival], f"stream `{name}`: column {arrival!r}")
        order = np.where(there, arrived, times)
    rest = [column for column in _names(columns) if column not in {time, arrival, *watch.on, *read}]
    at = None if ok.all() else np.flatnonzero(ok)
    if at is not None:
        times, order, key = times[at], order[at], key[at]
        values = {column: value[at] for column, value in values.items()}
    payload = _Payload({column: columns[column] for column in rest}, at) if rest else None
    return Batch(number, name, keys, key, times, order, values, payload, int((~ok).sum()))


@dataclass(frozen=True)
class _Payload:
    """The columns that no rule reads, as JSON text of those rows that are asked for."""

    columns: Mapping[str, Any]
    rows: Int | None

    def of(self, at: Int) -> _Payload:
        """The payload of some rows."""
        return _Payload(self.columns, at if self.rows is None else self.rows[at])

    def take(self, at: Int) -> list[str]:
        """The texts of some rows."""
        rows = at if self.rows is None else self.rows[at]
        picked = {name: np.asarray(column)[rows].tolist() for name, column in self.columns.items()}
        return [json.dumps({name: values[i] for name, values in picked.items()}, default=str) for i in range(len(rows))]


def _times(column: Any, place: str) -> tuple[Int, NDArray[np.bool_]]:
    """Whole microseconds, and which of them are there."""
    if getattr(getattr(column, "dt", None), "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    array = np.asarray(column)
    if array.dtype.kind == "M":
        return array.astype("datetime64[us]").astype(np.int64), ~np.isnat(array)
    if array.dtype.kind in "iu":
        return array.astype(np.int64), np.ones(len(array), np.bool_)
    if array.dtype == object and all(t is None or isinstance(t, datetime | int | np.integer) for t in array):
        # pandas' NaT is a datetime that is not even itself.
        there = np.array([t is not None and t == t for t in array], np.bool_)
        return np.array([_micros(t) if ok else 0 for t, ok in zip(array, there, strict=True)], np.int64), there
    message = f"{place} must hold datetimes or whole microseconds; it holds {array.dtype}"
    raise PlanError(message)


def _micros(time: datetime | int) -> int:
    if not isinstance(time, datetime):
        return int(time)
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)


def _numbers(column: Any, place: str) -> NDArray[np.float64]:
    array = np.asarray(column)
    if array.dtype.kind in "iufb":
        return array.astype(np.float64)
    try:
        return np.array([np.nan if x is None else x for x in array], np.float64)
    except (TypeError, ValueError) as error:
        message = f"{place} must hold numbers; it holds {array.dtype}"
        raise PlanError(message) from error


def _keys(
    columns: Sequence[Any], places: Sequence[str], rows: int
) -> tuple[Int, list[tuple[str, ...]], NDArray[np.bool_]]:
    """Number the distinct keys; a key with a null is none."""
    if not columns:
        return np.zeros(rows, np.int64), [()], np.ones(rows, np.bool_)
    codes, keys = np.zeros(rows, np.int64), list[tuple[str, ...]]([()])
    known = np.ones(rows, np.bool_)
    for column, place in zip(columns, places, strict=True):
        mine, words = _encode(column, place)
        known &= mine >= 0
        codes, used = codes * len(words) + np.maximum(mine, 0), np.arange(len(words))
        if len(columns) > 1:
            used, codes = np.unique(codes, return_inverse=True)
        keys = [(*keys[i // len(words)], words[i % len(words)]) for i in used.tolist()]
    return codes, keys, known


def _encode(column: Any, place: str) -> tuple[Int, list[str]]:
    """Number the distinct values of a key column, -1 where it is null; give their texts."""
    import pyarrow as pa

    given = np.asarray(column)
    try:
        array = pa.array(given, from_pandas=True)
        kind = array.type
    except pa.ArrowException:  # values of several types
        array, kind = None, given.dtype
    plain = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_null)
    if array is None or not any(is_plain(kind) for is_plain in plain):
        message = f"{place} must hold text, whole numbers or booleans; it holds {kind}"
        raise PlanError(message)
    encoded = array.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.cast(pa.string()).to_pylist() or [""]


def _part(batches: Sequence[Batch], number: int, parts: int) -> list[Batch]:
    """The rows of those keys whose text falls into one of several parts."""
    picked = []
    for batch in batches:
        here = np.array([zlib.crc32(json.dumps(key).encode()) % parts == number for key in batch.keys], np.bool_)
        mine = _rows(batch, np.flatnonzero(here[batch.key]), first=number == 0)
        keys = [key for key, wanted in zip(batch.keys, here, strict=True) if wanted]
        picked.append(replace(mine, keys=keys, key=(np.cumsum(here) - 1)[mine.key]))
    return picked


def _cut(batches: Sequence[Batch], cuts: Sequence[int]) -> list[list[Batch]]:
    """Cut the rows of all streams, in order of arrival, into batches."""
    stream = np.repeat(np.arange(len(batches)), [len(batch.time) for batch in batches])
    order = np.argsort(np.concatenate([batch.arrival for batch in batches]), kind="stable")
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    part = np.searchsorted(np.sort(np.asarray(cuts)), position, side="right")
    return [
        [_rows(batch, np.flatnonzero(part[stream == i] == p), first=p == 0) for i, batch in enumerate(batches)]
        for p in range(len(cuts) + 1)
    ]


def _rows(batch: Batch, at: Int, *, first: bool) -> Batch:
    values = {column: value[at] for column, value in batch.values.items()}
    assert batch.payload is None or isinstance(batch.payload, _Payload)  # `_batch` made it.
    return replace(
        batch,
        key=batch.key[at],
        time=batch.time[at],
        arrival=batch.arrival[at],
        values=values,
        payload=None if batch.payload is None else batch.payload.of(at),
        quarantined=batch.quarantined if first else 0,
    )
