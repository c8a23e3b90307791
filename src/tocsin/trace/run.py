"""Run the rows of one key through a watch, and say what became of them.

The rows run in an ordinary session, and a listener collects outcomes and evaluations, so a trace and a run agree.
Complexity: the cost of the run, and one Python object per evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tocsin.plan import Plan, Watch
from tocsin.runtime.contract import NEVER, NEVER_SEEN, Batch, Int
from tocsin.runtime.session import Session
from tocsin.trace.listener import StoreOutcomes, TraceListener
from tocsin.trace.model import (
    DUPLICATES,
    EXPIRED,
    KEPT,
    LATE,
    OMITTED,
    PASSED,
    QUARANTINED,
    Dead,
    KeyRows,
    StoreTrace,
    Traced,
)


def trace(watch: Watch, key: Sequence[str], rows: Mapping[str, KeyRows], dead: Sequence[Dead] = ()) -> Traced:
    """Trace the rows of one key to the end of a bounded input.

    Parameters
    ----------
    watch
        Rules with the same key columns, as they were planned together: they share `allowed_lateness` and what is
        remembered.
    key
        The texts of the key, in the order of the watch's columns.
    rows
        Rows of that key by stream; a stream that is not there has none.
    dead
        Rows of that key that could not be used; they are told, and change nothing.
    """
    # One key is explained as if there were time for all its pairs.
    supposed, watch = _supposed(watch), replace(watch, anytime=None)
    given = {name: rows.get(name, _no_rows(watch, name)) for name in watch.streams}
    # Evaluations of a rule that emits all are looked at as those of any other.
    watched = replace(watch, rules=tuple(replace(rule, emit="witness") for rule in watch.rules))
    listener = TraceListener(watched, given)
    session = Session(Plan((watched,)), listener=listener)
    batches = _batches(given, tuple(key), watch)
    out = session.push(batches)
    out.add(session.end())
    size = sum(len(data or b"") for data in session.changed_pages().values())
    if watched != watch:
        plain = Session(Plan((watch,)))
        out = plain.push(batches)
        out.add(plain.end())
    behind = _behind(given, watch)
    stores = tuple(_store(one, given[one.store.stream], behind[one.store.stream]) for one in listener.stores)
    evaluations = tuple(tuple(found) for found in listener.evaluations)
    alerts, counts = tuple(out.alert_rows()), dict(out.counts)
    return Traced(watch, tuple(key), given, stores, evaluations, alerts, tuple(dead), size, counts, supposed)


def _supposed(watch: Watch) -> str:
    """What is taken for granted of a rule with a budget: other keys share it, and they are not looked at here."""
    if watch.anytime is not None and watch.anytime.is_limited:
        what = "pairs" if watch.anytime.guided is None else "rows"
        return f"this assumes that the CPU budget is enough for all {what}; a run may find fewer results"
    if watch.budget is not None:
        return "this assumes that the memory budget is enough for all keys; a run may find fewer results"
    return ""


def _no_rows(watch: Watch, stream: str) -> KeyRows:
    empty = np.zeros(0, np.int64)
    return KeyRows(empty, empty, {column: np.zeros(0) for column in watch.columns(stream)})


def _batches(rows: Mapping[str, KeyRows], key: tuple[str, ...], watch: Watch) -> list[Batch]:
    return [
        Batch(
            0,
            name,
            [key],
            np.zeros(len(mine), np.int64),
            mine.time,
            mine.arrival,
            {column: mine.values[column] for column in watch.columns(name)},
            mine.payload,
        )
        for name, mine in rows.items()
    ]


def _behind(rows: Mapping[str, KeyRows], watch: Watch) -> dict[str, Int]:
    """By how much each row came behind the newest of its key, itself included; streams only heard count not."""
    names = list(rows)
    time = np.concatenate([rows[name].time for name in names])
    counts = np.repeat([not watch.is_only_heard(name) for name in names], [len(rows[name]) for name in names])
    order = np.argsort(np.concatenate([rows[name].arrival for name in names]), kind="stable")
    newest = np.maximum.accumulate(np.where(counts, time, NEVER_SEEN)[order])
    behind = np.zeros(len(time), np.int64)
    behind[order] = np.where(counts[order], newest - time[order], 0)
    cuts = np.cumsum([len(rows[name]) for name in names])[:-1]
    return dict(zip(names, np.split(behind, cuts), strict=True))


def _finite(rows: KeyRows, columns: Sequence[str]) -> NDArray[np.bool_]:
    finite = np.ones(len(rows), np.bool_)
    for column in columns:
        finite &= np.isfinite(rows.values[column])
    return finite


def _store(outcomes: StoreOutcomes, rows: KeyRows, behind: Int) -> StoreTrace:
    store = outcomes.store
    fate = np.full(len(rows), LATE, np.int8)
    fate[~_finite(rows, store.columns)] = QUARANTINED
    came = outcomes.rank >= 0
    fate[came] = EXPIRED if store.remember else PASSED
    fate[came & (outcomes.left != NEVER)] = OMITTED
    fate[outcomes.repeated] = DUPLICATES
    fate[outcomes.retained] = KEPT
    return StoreTrace(store, rows, fate, outcomes.rank, outcomes.left, outcomes.silent, behind)
