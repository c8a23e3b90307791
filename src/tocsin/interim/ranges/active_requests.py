"""The requests that are alive, read from the pages of a bucket: each with how far it has come."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tocsin.interim.ranges.key_requests import KeyQueries
from tocsin.interim.ranges.range_pipeline import RANGES, facts_of, parts_of
from tocsin.plan.ranges import RangeWatch
from tocsin.rules.ranges import ACTION, ID
from tocsin.runtime.contract import Pages
from tocsin.runtime.payload import unread_columns
from tocsin.runtime.state_registry import readable


class Alive(NamedTuple):
    """A request that is alive: rule and key, its own columns, and the total by now."""

    alert: str
    labels: dict[str, str]
    key: dict[str, str]
    query: str
    since_us: int
    ends: dict[str, float]
    threshold: int
    total: int
    payload: dict[str, str | None]


def alive_requests(pages: Pages) -> Iterator[Alive]:
    """Give the alive requests of all rules and keys that have pages; an open end is left out."""
    keys: dict[tuple[str, int], dict[str, bytes]] = {}
    for name, page in pages.items():
        if name.startswith(RANGES):
            step, key, part = parts_of(name)
            keys.setdefault((step, key), {})[part] = page
    for (step, number), parts in keys.items():
        facts = facts_of(parts, step, number)
        with readable(f"{RANGES}{step}/{number}"):
            watch = _step(facts["step"])
            queries = KeyQueries(watch, parts)
        yield from _of_key(watch, dict(zip(watch.on, facts["key"], strict=False)), queries)


def _step(facts: dict[str, Any]) -> RangeWatch:
    """Make the step of what a page says of it."""
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}
    known["labels"] = tuple((name, value) for name, value in facts["labels"])
    return RangeWatch(**known)


def _of_key(watch: RangeWatch, key: dict[str, str], queries: KeyQueries) -> Iterator[Alive]:
    of = queries.registered
    slots = np.array(sorted(of.slot.values()), np.int64)
    unread = {ID, ACTION, *key, *watch.columns(watch.requests)}
    for slot, total in zip(slots.tolist(), queries.index.progress(slots).tolist(), strict=True):
        ends = dict(zip(watch.ends, of.ends[slot].tolist(), strict=True))
        yield Alive(
            watch.alert,
            dict(watch.labels),
            key,
            of.id[slot] or "",
            int(of.time[slot]),
            {name: end for name, end in ends.items() if math.isfinite(end)},
            int(of.threshold[slot]),
            total,
            unread_columns(of.payload[slot], unread) or {},
        )
