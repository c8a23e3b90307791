"""Engine in one process, without a JVM: rule tests, notebooks, the edge, and the yardstick of the Spark engine."""

from __future__ import annotations

import json
import os
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from tocsin.columns import EPOCH, Payload, read_cells, read_keys, read_numbers, read_table, read_times
from tocsin.errors import PlanError
from tocsin.logic import ALERT_TIMES, FIRST_US, LAST_US, Batch, Found, Int, Out
from tocsin.plan import Plan, RangeWatch, Watch, make_plan
from tocsin.rules import AnyRule
from tocsin.rules.cpu import read_cpu
from tocsin.rules.memory import read_memory

# Arrival may be any whole number.
ANY_WHOLE = 2**63 - 1
# Rows of one call; with few, what a call costs by itself would show.
ROWS_PER_CALL = 250_000
MOST_CALLS = 10_000
# A thread for fewer rows would cost more than it saves.
ROWS_PER_THREAD = 200_000

# Columns by name: a mapping of arrays, or a DataFrame of pandas; and the same, read.
Columns = Any
Table = Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """Alerts of a run by rule and key, per stream what became of its rows, and the bytes of state left.

    For alerts whose rows wait: the last wait and the recall expected, results in order and in all per period, and rows
    that came too late. Rows that a rule could not use, with the reason. For alerts whose memory is limited: what it
    found in the end.
    """

    alerts: list[dict[str, Any]]
    counts: dict[str, dict[str, int]]
    state_bytes: int
    waits: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    results: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    late: list[dict[str, Any]] = field(default_factory=list)
    dead: list[dict[str, Any]] = field(default_factory=list)
    memory: dict[str, Found] = field(default_factory=dict)


def run_local(
    streams: Mapping[str, Columns],
    rules: AnyRule | Iterable[AnyRule],
    *,
    time: str = "ts",
    arrival: str | None = None,
    cuts: Sequence[int] = (),
    memory: str | int | None = None,
    cpu: str | None = None,
) -> list[dict[str, Any]]:
    """Run rules over bounded streams and give their alerts.

    Parameters
    ----------
    streams
        Columns of each stream: arrays by name, a table of Arrow, or a DataFrame of pandas.
    rules
        One or several Rules, and NoData for streams whose keys must be heard.
    time
        Column of event time: datetimes, or whole microseconds since 1970.
    arrival
        Column by which rows arrived; without it they are taken in order of event time.
    cuts
        Numbers of rows, in order of arrival, after which to cut the input into batches, the state being written and
        read between them.
    memory
        How much state all joins together may keep, as `200MB`; what does not fit is shed.
    cpu
        How much processor time all joins of two streams that emit all may use together, as `50%` of a core.
    """
    result = run(streams, rules, time=time, arrival=arrival, cuts=cuts, memory=memory, cpu=cpu)
    if result.dead:
        first = result.dead[0]
        text = (
            f"{len(result.dead):,} rows or more could not be used, as of stream `{first['stream']}`: {first['reason']}"
        )
        warnings.warn(f"{text}; `tocsin.local.run` gives them", stacklevel=2)
    return result.alerts


def run(
    streams: Mapping[str, Columns],
    rules: AnyRule | Iterable[AnyRule],
    *,
    time: str = "ts",
    arrival: str | None = None,
    cuts: Sequence[int] = (),
    memory: str | int | None = None,
    cpu: str | None = None,
) -> Result:
    """Run like `run_local`, and give counts and the size of the state too."""
    tables = _tables(streams)
    plan = explain(tables, rules, time=time, arrival=arrival, memory=memory, cpu=cpu)
    batches = [batch for i, watch in enumerate(plan.key_sets) for batch in _batches(i, watch, tables, time, arrival)]
    if len(_checked(cuts)):
        return _run_calls(plan, _cut(batches, cuts), restart=True)
    threads = min(os.cpu_count() or 1, sum(len(batch.time) for batch in batches) // ROWS_PER_THREAD)
    # A budget is one for all keys: divided over threads, what is found would depend on the machine.
    if threads < 2 or any(watch.budget or watch.anytime for watch in plan.watches):
        return _run_calls(plan, _calls(batches))
    with ThreadPoolExecutor(threads) as pool:
        return _joined(pool.map(lambda n: _run_calls(plan, _calls(_part(batches, n, threads))), range(threads)))


def _run_calls(plan: Plan, calls: Sequence[Sequence[Batch]], *, restart: bool = False) -> Result:
    """Run a plan to the end of its input; with `restart` its state is written and read between calls."""
    out, pages, waits = Out(), dict[str, bytes](), dict[str, tuple[int, float | None]]()
    logic = plan.build(pages)
    for number, call in enumerate(calls):
        if restart and number:
            _store(pages, logic.changed_pages())
            logic = plan.build(pages)
        given = logic.on_data(call)
        waits = given.waits or waits
        out.add(given)
    ended = logic.on_end()
    out.add(ended)
    _store(pages, logic.changed_pages())
    told = Out(waits=waits, memory=ended.memory)
    told.drop_recalls({alert["alert"] for alert in out.alerts})
    alerts = [with_times(alert) for alert in sorted(out.alerts, key=_whose)]
    size = sum(len(page) for page in pages.values())
    return Result(alerts, out.counts, size, told.waits, out.results, out.late, out.dead, told.memory)


def _joined(results: Iterable[Result]) -> Result:
    """Put results of different keys together."""
    whole = Out()
    size = 0
    for result in results:
        mine = Out(
            result.alerts,
            result.counts,
            waits=result.waits,
            late=result.late,
            dead=result.dead,
            results=result.results,
            memory=result.memory,
        )
        whole.add(mine)
        size += result.state_bytes
    alerts = sorted(whole.alerts, key=_whose)
    return Result(alerts, whole.counts, size, whole.waits, whole.results, whole.late, whole.dead, whole.memory)


def _whose(alert: Mapping[str, Any]) -> tuple[Any, ...]:
    """Order of alerts: by rule and key, whose changes stay in the order in which they came."""
    return alert["alert"], *sorted(alert["labels"].items())


def explain(
    streams: Mapping[str, Columns],
    rules: AnyRule | Iterable[AnyRule],
    *,
    time: str = "ts",
    arrival: str | None = None,
    memory: str | int | None = None,
    cpu: str | None = None,
) -> Plan:
    """Plan rules over streams without running them; the plan's text says what is remembered and joined."""
    limit, spending = None if memory is None else read_memory(memory), read_cpu(cpu, None)
    columns = _names(_tables(streams))
    return make_plan(rules, columns, time=time, arrival=arrival, memory=limit, cpu=spending)


def _tables(streams: Mapping[str, Columns]) -> dict[str, Table]:
    if not isinstance(streams, Mapping) or not streams:
        found = "none" if isinstance(streams, Mapping) else type(streams).__name__
        message = f"`streams` must map names to columns; got {found}"
        raise PlanError(message)
    return {name: read_table(given, f"stream `{name}`") for name, given in streams.items()}


def _names(tables: Mapping[str, Table]) -> dict[str, list[str]]:
    return {name: list(table) for name, table in tables.items()}


def _checked(cuts: Sequence[int]) -> Sequence[int]:
    if not isinstance(cuts, Sequence | np.ndarray) or any(not isinstance(cut, int | np.integer) for cut in cuts):
        message = f"`cuts` must list numbers of rows; got {cuts!r}"
        raise PlanError(message)
    return cuts


def with_times(alert: dict[str, Any]) -> dict[str, Any]:
    """An alert whose times are datetimes instead of microseconds."""
    witness = [{**part, "time": _datetime(part["time"])} for part in alert["witness"]]
    times = {name: None if alert[name] is None else _datetime(alert[name]) for name in ALERT_TIMES}
    return {**alert, **times, "witness": witness}


def _datetime(time_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=min(max(time_us, FIRST_US), LAST_US))


def _store(pages: dict[str, bytes], changed: Mapping[str, bytes | None]) -> None:
    for name, page in changed.items():
        if page is None:
            pages.pop(name, None)
        else:
            pages[name] = page


def _batches(
    number: int, watch: Watch | RangeWatch, tables: Mapping[str, Table], time: str, arrival: str | None
) -> list[Batch]:
    return [_batch(number, watch, name, tables[name], time, arrival) for name in watch.streams]


def _batch(number: int, watch: Watch | RangeWatch, name: str, table: Table, time: str, arrival: str | None) -> Batch:
    """Read the columns of one stream; rows without time or key are counted and left out."""
    place = f"stream `{name}`: column"
    times, ok = read_times(table[time], f"{place} {time!r}")
    values = {column: read_numbers(table[column], f"{place} {column!r}") for column in watch.columns(name)}
    places = [f"stream `{name}`: key column {column!r}" for column in watch.on]
    key, keys, known = read_keys([table[column] for column in watch.on], places, len(times))
    ok = ok & known
    order = times
    if arrival is not None:
        arrived, there = read_times(table[arrival], f"{place} {arrival!r}", -ANY_WHOLE, ANY_WHOLE)
        order = np.where(there, arrived, times)
    rest = [column for column in table if column not in {time, arrival, *watch.on, *watch.read_by_all(name)}]
    at = None if ok.all() else np.flatnonzero(ok)
    if at is not None:
        times, order, key = times[at], order[at], key[at]
        values = {column: value[at] for column, value in values.items()}
    payload = Payload({column: read_cells(table[column]) for column in rest}, at) if rest else None
    return Batch(number, name, keys, key, times, order, values, payload, int((~ok).sum()))


def _part(batches: Sequence[Batch], number: int, parts: int) -> list[Batch]:
    """The rows of those keys whose text falls into one of several parts."""
    picked = []
    for batch in batches:
        here = np.array([zlib.crc32(json.dumps(key).encode()) % parts == number for key in batch.keys], np.bool_)
        mine = _rows(batch, np.flatnonzero(here[batch.key]), first=number == 0)
        keys = [key for key, wanted in zip(batch.keys, here, strict=True) if wanted]
        picked.append(replace(mine, keys=keys, key=(np.cumsum(here) - 1)[mine.key]))
    return picked


def _calls(batches: Sequence[Batch]) -> list[list[Batch]]:
    """Divide rows into calls by arrival: the rows of a short time are more alike, and need less memory at once."""
    rows = sum(len(batch.time) for batch in batches)
    parts = min(-(-rows // ROWS_PER_CALL), MOST_CALLS)
    if parts < 2:
        return [list(batches)]
    some = np.sort(np.concatenate([batch.arrival[:: 1 + len(batch.time) // 1000] for batch in batches]))
    until = some[[len(some) * part // parts for part in range(1, parts)]]
    placed = [_in_parts(batch, until) for batch in batches]
    return [[_rows(batch, slice(ends[p], ends[p + 1]), first=p == 0) for batch, ends in placed] for p in range(parts)]


def _in_parts(batch: Batch, until: Int) -> tuple[Batch, list[int]]:
    """Order the rows by the part that their arrival falls into; give where the parts begin, and the end."""
    if (batch.arrival[1:] < batch.arrival[:-1]).any():
        part = np.searchsorted(until, batch.arrival, side="right").astype(np.int16)  # which NumPy sorts by radix
        batch = _rows(batch, np.argsort(part, kind="stable"), first=True)
        ends = np.cumsum(np.bincount(part, minlength=len(until) + 1)).tolist()
    else:
        ends = [*np.searchsorted(batch.arrival, until).tolist(), len(batch.time)]
    return batch, [0, *ends]


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


def _rows(batch: Batch, at: Int | slice, *, first: bool) -> Batch:
    values = {column: value[at] for column, value in batch.values.items()}
    assert batch.payload is None or isinstance(batch.payload, Payload)  # `_batch` made it.
    return replace(
        batch,
        key=batch.key[at],
        time=batch.time[at],
        arrival=batch.arrival[at],
        values=values,
        payload=None if batch.payload is None else batch.payload.of(np.r_[at]),
        quarantined=batch.quarantined if first else 0,
    )
