"""Alert batches for tests: built from dict rows, in the slow and obvious way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from tocsin.runtime.alert_batch import NO_TIME, STATES, AlertBatch, AlertSource, ShownPayload, WitnessStream, text_array
from tocsin.runtime.contract import ALERT_TIMES

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batches_of(rows: Iterable[Mapping[str, Any]]) -> list[AlertBatch]:
    """Return one batch per dict row; times are microseconds."""
    return [batch_of(row) for row in rows]


def batch_of(row: Mapping[str, Any]) -> AlertBatch:
    """Return a batch of one row. All labels are key columns."""
    witness = row["witness"]
    streams = tuple(WitnessStream(part["stream"], tuple(part["values"]), frozenset()) for part in witness)
    texts = [None if part["payload"] is None else json.dumps(part["payload"]) for part in witness]
    start, fires, end = ([NO_TIME if row[name] is None else row[name]] for name in ALERT_TIMES)
    values = [value for part in witness for value in part["values"].values()]
    return AlertBatch(
        AlertSource(row["alert"], (), tuple(row["labels"]), streams),
        [tuple(row["labels"].values())],
        np.zeros(1, np.int64),
        text_array([row["id"]]),
        np.array([STATES.index(row["state"])], np.int8),
        start=np.array(start),
        fires=np.array(fires),
        end=np.array(end),
        sequence=np.zeros(1, np.int64),
        late=np.zeros(1, np.bool_),
        value=np.array([row["value"]], np.float64),
        margin=np.array([row["margin"]], np.float64),
        times=np.array([[part["time"] for part in witness]], np.int64),
        values=np.array([values], np.float64),
        payload=ShownPayload.of(streams, np.array([texts], object).reshape(1, len(streams))),
        quality=text_array([row["quality"]]),
    )


def with_times(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose times are datetimes instead of microseconds."""
    witness = [{**part, "time": _datetime(part["time"])} for part in row["witness"]]
    times = {name: None if row[name] is None else _datetime(row[name]) for name in ALERT_TIMES}
    return {**row, **times, "witness": witness}


def _datetime(time_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=time_us)
