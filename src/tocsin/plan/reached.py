"""What a `RangeRule` says, as rows of output: a query that was reached, and a row that could not be used."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import NamedTuple

from tocsin.plan.ranges import RangeWatch
from tocsin.plan.report import AlertTimes, Row, mark_of, output_row
from tocsin.plan.standing import Reached
from tocsin.rules.ranges import ACTION, ID, QUERY, THRESHOLD
from tocsin.runtime.payload import shown_payload

# Of a row that could not be used.
MOST_CHARACTERS = 4096


class Element(NamedTuple):
    """A row of a stream: its time, values and payload."""

    time: int
    values: Mapping[str, float]
    payload: str | None


def range_row(watch: RangeWatch, key: Mapping[str, str], one: Reached, element: Element) -> Row:
    """One output row: the request and the element at which it was reached are its witness; an open end is left out."""
    ends = dict(zip(watch.ends, one.ends.tolist(), strict=True))
    asked = {name: end for name, end in ends.items() if math.isfinite(end)} | {THRESHOLD: float(one.threshold)}
    unread = {*key, ID, ACTION, *watch.columns(watch.requests)}
    request = {
        "stream": watch.requests,
        "time": one.time,
        "values": asked,
        "payload": shown_payload(one.payload, unread),
    }
    reached = {
        "stream": watch.data,
        "time": element.time,
        "values": dict(element.values),
        "payload": shown_payload(element.payload, {*key, *element.values}),
    }
    labels = dict(watch.labels) | dict(key) | {QUERY: one.id}
    times = AlertTimes(element.time, element.time, element.time)
    numbers = float(one.total), float(one.total - one.threshold)
    witness = [request, reached]
    rows = [[part["time"], part["values"], part["payload"]] for part in witness]
    mark = mark_of(watch.alert, labels, element.time, rows)
    return output_row(watch.alert, mark, labels, "match", times, numbers, witness, "exact")


def refused_row(watch: RangeWatch, stream: str, reason: str, key: Mapping[str, str], row: Element) -> Row:
    """A row that a rule could not use, with the reason and what the rule saw of it."""
    values = {name: value if math.isfinite(value) else None for name, value in row.values.items()}
    try:
        more = shown_payload(row.payload, {*key, *values}) or {}
    except (ValueError, RecursionError):  # That may be why.
        more = {"payload": row.payload}
    shown = {"rule": watch.alert, **key, "time": row.time, **values, **more}
    return {"stream": stream, "reason": reason, "raw": json.dumps(shown)[:MOST_CHARACTERS]}
