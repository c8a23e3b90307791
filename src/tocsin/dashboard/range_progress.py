"""How far requests of ranges have come, computed by a session over the archived rows of the run.

Runs in the process of `tracer.py`. Rows are taken micro-batch by micro-batch, as the run took them, so the answer is
the engine's; the state of the run itself is in its checkpoint, which only Spark reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

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
from tocsin.dashboard.quarantine import request_id
from tocsin.dashboard.tracer import CannotTraceError, rule_file
from tocsin.jit import use_interpreted_kernels
from tocsin.plan import Alive, Plan, RangeWatch, alive_requests, plan_file
from tocsin.rules.ranges import QUERY
from tocsin.rules.rulefile import RuleFile, Stream
from tocsin.runtime.contract import Batch
from tocsin.runtime.session import Session, store_pages

MOST_KEYS, MOST_ALIVE = 20, 20

Key = tuple[str, ...]


class _Ended(NamedTuple):
    """What rows led to: the requests that are alive, and the ids of those that were reached, as often as they were."""

    alive: list[Alive]
    reached: list[str]


def progress_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Say of one request whether it is alive, what has fallen into its range by now, and how often it was reached."""
    file, watch = _rule(asked)
    keys = _keys_of(asked, file, watch)
    if not keys:
        message = "the archive has no request with this id"
        raise CannotTraceError(message)
    some = sorted(keys)[:MOST_KEYS]
    return {"found": [_of_key(asked, file, watch, key) for key in some], "more": len(keys) - len(some)}


def alive_now(asked: Mapping[str, Any]) -> dict[str, Any]:
    """List the requests of one rule that are alive, the nearest to their thresholds first, and say how many there are.

    All rows of its streams are taken, of every key; where they are too many, nothing is told.
    """
    file, watch = _rule(asked)
    alive = _run(asked, file, watch, None).alive
    alive.sort(key=lambda one: (-one.total / one.threshold, sorted(one.key.items()), one.query))
    return {"alive": len(alive), "requests": [_told(one) for one in alive[:MOST_ALIVE]]}


def _told(one: Alive) -> dict[str, Any]:
    facts = {"total": one.total, "threshold": one.threshold, "since_us": one.since_us, "ends": one.ends}
    return {"id": one.query, "key": one.key, **facts}


def _rule(asked: Mapping[str, Any]) -> tuple[RuleFile, RangeWatch]:
    """The rule file of the run, and the step of the rule that is asked about."""
    file = rule_file(asked)
    watch = next((one for one in plan_file(file).ranges if one.alert == asked["alert"]), None)
    if watch is None:
        message = f"the rule file has no rule {asked['alert']!r} with ranges"
        raise CannotTraceError(message)
    return file, watch


def _keys_of(asked: Mapping[str, Any], file: RuleFile, watch: RangeWatch) -> set[Key]:
    """The keys for which a request of this id came."""
    table = _read(asked, file.streams[watch.requests], watch.on, None)
    pairs = zip(_keys(table, watch), payloads_of(table), strict=True)
    return {key for key, text in pairs if request_id(text) == asked["id"] and None not in key}


def _keys(table: pa.Table, watch: RangeWatch) -> list[Key]:
    """The key of each row."""
    columns = [table.column(name).cast(pa.string()).to_pylist() for name in watch.on]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _read(asked: Mapping[str, Any], stream: Stream, columns: Sequence[str], wanted: pc.Expression | None) -> pa.Table:
    return read_rows(every_file(files_of(asked, stream.name), stream.name), stream, columns, wanted)


def _of_key(asked: Mapping[str, Any], file: RuleFile, watch: RangeWatch, key: Key) -> dict[str, Any]:
    """Look up the request in what the rows of one key lead to."""
    ended = _run(asked, file, watch, key)
    alive = [one for one in ended.alive if one.query == asked["id"]]
    told = {"key": dict(zip(watch.on, key, strict=True)), "reached": ended.reached.count(asked["id"])}
    for one in alive:
        told |= _told(one)
    return told | {"alive": bool(alive)}


def _run(asked: Mapping[str, Any], file: RuleFile, watch: RangeWatch, key: Key | None) -> _Ended:
    """Take the rows of one key, or of all, through the rule."""
    batches: dict[int, list[Batch]] = {}
    for name in watch.streams:
        for number, batch in _batches(asked, file.streams[name], watch, key):
            batches.setdefault(number, []).append(batch)
    session, reached = Session(Plan((), (replace(watch, shards=1),))), list[str]()
    with use_interpreted_kernels(sum(len(batch.time) for mine in batches.values() for batch in mine)):
        for number in sorted(batches):
            reached += [alert["labels"][QUERY] for alert in session.push(batches[number]).alert_rows()]
        pages = dict[str, bytes]()
        store_pages(pages, session.changed_pages())
        return _Ended(list(alive_requests(pages)), reached)


def _batches(asked: Mapping[str, Any], stream: Stream, watch: RangeWatch, key: Key | None) -> list[tuple[int, Batch]]:
    """The rows of a stream, of one key or of all, by micro-batch, each in order of arrival."""
    read = watch.columns(stream.name)
    table = _read(asked, stream, [*watch.on, *read], None if key is None else of_key(watch.on, key))
    time, came = times_of(table, stream)
    numbers, values, payload = batches_of(table), values_of(table, read), payloads_of(table)
    named = _keys(table, watch)
    keys = {one: place for place, one in enumerate(one for one in dict.fromkeys(named) if None not in one)}
    whose = np.array([keys.get(one, -1) for one in named], np.int64)
    order = np.lexsort((came, numbers))
    order, found = order[whose[order] >= 0], []
    for at in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []:
        some = {name: column[at] for name, column in values.items()}
        batch = Batch(0, stream.name, list(keys), whose[at], time[at], came[at], some, payload[at])
        found.append((int(numbers[at[0]]), batch))
    return found
