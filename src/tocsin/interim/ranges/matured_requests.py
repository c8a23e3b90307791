"""Alert batch of a range rule: its matured requests; and the dead letter of a row that it cannot use."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tocsin.interim.ranges.key_requests import Reached
from tocsin.plan.ranges import RangeWatch
from tocsin.rules.ranges import ACTION, ID, QUERY, THRESHOLD
from tocsin.runtime.alert_batch import (
    MATCH,
    AlertBatch,
    AlertSource,
    Key,
    ShownPayload,
    WitnessStream,
    request_ids,
    text_array,
)
from tocsin.runtime.contract import Float, Int
from tocsin.runtime.metrics import quality_text
from tocsin.runtime.payload import unread_columns

# Limit of the text of a row in a dead letter.
MOST_CHARACTERS = 4096


class Element(NamedTuple):
    """A row of a stream: its time, values and payload."""

    time: int
    values: Mapping[str, float]
    payload: str | None


class Elements(NamedTuple):
    """Rows of a stream: their times, values and payload."""

    time: Int
    values: Float
    payload: Sequence[str | None]


@lru_cache(maxsize=4096)
def request_source(watch: RangeWatch) -> AlertSource:
    """Return the constants of the alerts of a range rule. The id of the request is a label."""
    unread = frozenset({*watch.on, ID, ACTION, *watch.columns(watch.requests)})
    data = tuple(watch.columns(watch.data))
    request = WitnessStream(watch.requests, (*watch.ends, THRESHOLD), unread, is_optional=True)
    element = WitnessStream(watch.data, data, frozenset({*watch.on, *data}))
    return AlertSource(watch.alert, tuple(watch.labels), (*watch.on, QUERY), (request, element))


def request_alerts(watch: RangeWatch, key: Key, reached: Sequence[Reached], elements: Elements) -> AlertBatch:
    """Return matured requests of one key as alert rows; `elements` has the element that matured each request.

    The witness is the request and the element. An open end of the request is not shown.
    """
    source, count = request_source(watch), len(reached)
    total = np.array([one.total for one in reached], np.float64)
    margin = np.array([float(one.total - one.threshold) for one in reached])
    asked = [[*one.ends.tolist(), float(one.threshold)] for one in reached]
    texts = np.array([[one.payload for one in reached], elements.payload], object).T
    batch = AlertBatch(
        source,
        [(*key, one.id) for one in reached],
        np.arange(count),
        np.full(count, "", object),
        np.full(count, MATCH, np.int8),
        start=elements.time,
        fires=elements.time,
        end=elements.time,
        sequence=np.zeros(count, np.int64),
        late=np.zeros(count, np.bool_),
        value=total,
        margin=margin,
        times=np.stack([np.array([one.time for one in reached], np.int64), elements.time], axis=1),
        values=np.concatenate([np.array(asked, np.float64), elements.values], axis=1),
        payload=ShownPayload.of(source.streams, texts),
        quality=np.full(count, quality_text(), object),
    )
    return replace(batch, id=text_array(request_ids(batch)))


def refused_row(watch: RangeWatch, stream: str, reason: str, key: Mapping[str, str], row: Element) -> dict[str, str]:
    """Return a dead letter: the reason, and the values of the row that the rule reads."""
    values = {name: value if math.isfinite(value) else None for name, value in row.values.items()}
    try:
        more = unread_columns(row.payload, {*key, *values}) or {}
    except (ValueError, RecursionError):  # The payload may be the reason.
        more = {"payload": row.payload}
    shown = {"rule": watch.alert, **key, "time": row.time, **values, **more}
    return {"stream": stream, "reason": reason, "raw": json.dumps(shown)[:MOST_CHARACTERS]}
