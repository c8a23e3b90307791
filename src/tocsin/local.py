"""Engine in one process, without a JVM: rule tests, notebooks, the edge, and the yardstick of the Spark engine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

import numpy as np

from tocsin.columns import EPOCH, Payload, read_cells, read_keys, read_numbers, read_table, read_times
from tocsin.errors import PlanError
from tocsin.hashing import assign_buckets, key_text
from tocsin.jit import use_interpreted_kernels
from tocsin.plan import Plan, RangeWatch, Watch, make_plan
from tocsin.rules import AnyRule
from tocsin.rules.quality import RUN_KEYS, parse_quality
from tocsin.runtime.contract import FIRST_US, LAST_US, Batch, Int, Out
from tocsin.runtime.metrics import Metrics
from tocsin.runtime.session import Session, store_pages

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
    """Result of a run.

    Attributes
    ----------
    alerts
        Alert events by rule and key.
    metrics
        Row counts, results by period, waits, and the recall under the budgets.
    state_bytes
        Bytes of the state at the end.
    late
        Rows that arrived too late, and rows that were used out of order.
    dead
        Rows that a rule could not use, with the reason.
    """

    alerts: list[dict[str, Any]]
    metrics: Metrics
    state_bytes: int
    late: list[dict[str, Any]] = field(default_factory=list)
    dead: list[dict[str, Any]] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Row counts by input view and name."""
        counts: dict[str, dict[str, int]] = self.metrics.section("counts")
        return counts


def run_local(
    streams: Mapping[str, Columns],
    rules: AnyRule | Iterable[AnyRule],
    *,
    time: str = "ts",
    arrival: str | None = None,
    cuts: Sequence[int] = (),
    quality: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Run rules over bounded streams in this process and return their alert events.

    Parameters
    ----------
    streams
        Columns of each stream: arrays by name, a table of Arrow, or a DataFrame of pandas.
    rules
        One or several Rules, RangeRules and NoData.
    time
        Column of event time: datetimes, or integer microseconds since 1970.
    arrival
        Column of the arrival; without it, rows are processed in order of event time.
    cuts
        Batch boundaries: numbers of rows in arrival order. State is written and read between two batches.
    quality
        Budgets of all rules together: `{"memory": "200MB"}` for the state of joins, `{"cpu": "50%", "deadline": "5s"}`
        for the processing of rules with `emit` all.
    """
    result = run_local_detailed(streams, rules, time=time, arrival=arrival, cuts=cuts, quality=quality)
    if result.dead:
        first = result.dead[0]
        text = (
            f"{len(result.dead):,} or more rows are invalid, for example in stream `{first['stream']}`: "
            f"{first['reason']}"
        )
        warnings.warn(f"{text}; `tocsin.local.run_local_detailed` returns them", stacklevel=2)
    return result.alerts


def run_local_detailed(
    streams: Mapping[str, Columns],
    rules: AnyRule | Iterable[AnyRule],
    *,
    time: str = "ts",
    arrival: str | None = None,
    cuts: Sequence[int] = (),
    quality: Mapping[str, Any] | None = None,
) -> Result:
    """Run rules like `run_local`, and return a Result: alerts, row outcomes and the size of the state."""
    tables = _tables(streams)
    plan = explain(tables, rules, time=time, arrival=arrival, quality=quality)
    batches = [batch for i, watch in enumerate(plan.key_sets) for batch in _batches(i, watch, tables, time, arrival)]
    rows = sum(len(batch.time) for batch in batches)
    threads = min(os.cpu_count() or 1, rows // ROWS_PER_THREAD)
    # A budget is one for all keys: divided over threads, what is found would depend on the machine.
    if len(_checked(cuts)) or threads < 2 or any(watch.budget or watch.anytime for watch in plan.watches):
        calls = _cut(batches, cuts) if len(cuts) else _calls(batches)
        with use_interpreted_kernels(rows):
            return _run_calls(plan, calls, restart=len(cuts) > 0)
    key_columns = [watch.on for watch in plan.key_sets]

    def run_bucket(number: int) -> Result:
        return _run_calls(plan, _calls(_bucket(batches, key_columns, number, threads)))

    with ThreadPoolExecutor(threads) as pool:
        return _joined(pool.map(run_bucket, range(threads)))


def _run_calls(plan: Plan, calls: Sequence[Sequence[Batch]], *, restart: bool = False) -> Result:
    """Run a plan to the end of its input; with `restart` its state is written and read between calls."""
    out, pages = Out(), dict[str, bytes]()
    session = Session(plan)
    for number, call in enumerate(calls):
        if restart and number:
            store_pages(pages, session.changed_pages())
            session = Session(plan, pages)
        out.add(session.push(call))
    out.add(session.end())
    store_pages(pages, session.changed_pages())
    out.metrics.drop_recalls({batch.source.alert for batch in out.alerts})
    alerts = _sorted(chain.from_iterable(batch.rows(_datetime) for batch in out.alerts))
    return Result(alerts, out.metrics, sum(len(page) for page in pages.values()), out.late, out.dead)


def _joined(results: Iterable[Result]) -> Result:
    """Put results of different keys together."""
    whole, size, alerts = Out(), 0, list[dict[str, Any]]()
    for result in results:
        alerts += result.alerts
        whole.add_bucket(Out(late=result.late, dead=result.dead, metrics=result.metrics))
        size += result.state_bytes
    return Result(_sorted(alerts), whole.metrics, size, whole.late, whole.dead)


def _sorted(alerts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return alerts by rule and key. The changes of an alert keep their order."""
    return sorted(alerts, key=lambda alert: (alert["alert"], *sorted(alert["labels"].items())))


def explain(
    streams: Mapping[str, Columns],
    rules: AnyRule | Iterable[AnyRule],
    *,
    time: str = "ts",
    arrival: str | None = None,
    quality: Mapping[str, Any] | None = None,
) -> Plan:
    """Return the plan of rules over streams; its text shows the retained rows, the join and the proofs."""
    columns = _names(_tables(streams))
    return make_plan(rules, columns, time=time, arrival=arrival, quality=parse_quality(quality, RUN_KEYS))


def _tables(streams: Mapping[str, Columns]) -> dict[str, Table]:
    if not isinstance(streams, Mapping) or not streams:
        found = "an empty mapping" if isinstance(streams, Mapping) else type(streams).__name__
        message = f"`streams` must map names to columns; got {found}"
        raise PlanError(message)
    return {name: read_table(given, f"stream `{name}`") for name, given in streams.items()}


def _names(tables: Mapping[str, Table]) -> dict[str, list[str]]:
    return {name: list(table) for name, table in tables.items()}


def _checked(cuts: Sequence[int]) -> Sequence[int]:
    if not isinstance(cuts, Sequence | np.ndarray) or any(not isinstance(cut, int | np.integer) for cut in cuts):
        message = f"`cuts` must be a list of row numbers; got {cuts!r}"
        raise PlanError(message)
    return cuts


def _datetime(time_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=min(max(time_us, FIRST_US), LAST_US))


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


def _bucket(batches: Sequence[Batch], key_columns: Sequence[Sequence[str]], number: int, buckets: int) -> list[Batch]:
    """Return the rows of the keys of one bucket."""
    picked = []
    for batch in batches:
        here = assign_buckets(key_columns[batch.key_set], [key_text(key) for key in batch.keys], buckets) == number
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
