"""How far one request of a range has come, out of the rows that its run archived: the run's own logic on one key.

Runs in the process of `tracer.py`. Rows are taken micro-batch by micro-batch, as the run took them, so the answer is
the engine's; the state of the run itself is in its checkpoint, which only Spark reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.dashboard.archive import (
    batches_of,
    every_file,
    files_of,
    of_key,
    payloads_of,
    read_rows,
    times_of,
    values_of,
)
from tocsin.dashboard.tracer import CannotTraceError, few_rows, rule_file
from tocsin.logic import Batch
from tocsin.plan import Plan, RangeWatch
from tocsin.plan.file import plan_file
from tocsin.plan.listed import alive_requests
from tocsin.rules.ranges import ID, QUERY
from tocsin.rules.rulefile import RuleFile, Stream


def progress_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Say of one request whether it is alive, what has fallen into its range by now, and how often it was reached."""
    file = rule_file(asked)
    watch = next((one for one in plan_file(file).ranges if one.alert == asked["alert"]), None)
    if watch is None:
        message = f"the rule file has no rule {asked['alert']!r} with ranges"
        raise CannotTraceError(message)
    keys = _keys_of(asked, file, watch)
    if not keys:
        message = "the archive has no request with this id"
        raise CannotTraceError(message)
    return {"found": [_of_key(asked, file, watch, key) for key in sorted(keys)[:20]]}


def _keys_of(asked: Mapping[str, Any], file: RuleFile, watch: RangeWatch) -> set[tuple[str, ...]]:
    """The keys for which a request of this id came."""
    table = _read(asked, file.streams[watch.requests], watch.on, None)
    texts = payloads_of(table)
    keys = zip(*(table.column(name).cast(pa.string()).to_pylist() for name in watch.on), strict=True)
    named = list(keys) if watch.on else [()] * table.num_rows
    return {key for key, text in zip(named, texts, strict=True) if _id(text) == asked["id"] and None not in key}


def _id(text: str | None) -> str | None:
    try:
        found = json.loads(text or "{}").get(ID)
    except (ValueError, RecursionError, AttributeError):
        return None
    return None if found is None or isinstance(found, bool) else str(found)


def _read(asked: Mapping[str, Any], stream: Stream, columns: Sequence[str], wanted: pc.Expression | None) -> pa.Table:
    return read_rows(every_file(files_of(asked, stream.name), stream.name), stream, columns, wanted)


def _of_key(asked: Mapping[str, Any], file: RuleFile, watch: RangeWatch, key: tuple[str, ...]) -> dict[str, Any]:
    """Take the rows of one key through the rule, and look up the request in what it remembers then."""
    batches: dict[int, list[Batch]] = {}
    for name in watch.streams:
        for number, batch in _batches(asked, file.streams[name], watch, key):
            batches.setdefault(number, []).append(batch)
    few_rows(sum(len(batch.time) for mine in batches.values() for batch in mine))
    logic, pages, reached = Plan((), (replace(watch, spread=1),)).build({}), dict[str, bytes](), 0
    for number in sorted(batches):
        out = logic.on_data(batches[number])
        reached += sum(alert["labels"].get(QUERY) == asked["id"] for alert in out.alerts)
    pages |= {name: page for name, page in logic.changed_pages().items() if page is not None}
    alive = [one for one in alive_requests(pages) if one.query == asked["id"]]
    told = {"key": dict(zip(watch.on, key, strict=True)), "reached": reached, "alive": bool(alive)}
    for one in alive:
        told |= {"total": one.total, "threshold": one.threshold, "since_us": one.since_us, "ends": one.ends}
    return told


def _batches(
    asked: Mapping[str, Any], stream: Stream, watch: RangeWatch, key: tuple[str, ...]
) -> list[tuple[int, Batch]]:
    """The rows of one key and stream by micro-batch, each in order of arrival."""
    read = watch.columns(stream.name)
    table = _read(asked, stream, read, of_key(watch.on, key))
    time, came = times_of(table, stream)
    numbers, values, payload = batches_of(table), values_of(table, read), payloads_of(table)
    found = []
    for number in np.unique(numbers).tolist():
        at = np.flatnonzero(numbers == number)
        at = at[np.argsort(came[at], kind="stable")]
        some = {name: column[at] for name, column in values.items()}
        found.append((number, Batch(0, stream.name, [key], at * 0, time[at], came[at], some, payload[at])))
    return found
