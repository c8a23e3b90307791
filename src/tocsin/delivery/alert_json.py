"""Alert JSON: conversion between the alert rows of a run and lines of the alert log.

A line is one object of strict JSON with the public columns of an alert event. Times are RFC 3339 text in UTC. NaN and
infinite numbers become null, because JSON cannot represent them. A time outside the years 1 to 9999 is moved to the
nearest time inside, so that one wrong clock does not stop detection.

`encode_batch` writes alert batches column by column. `encode_alert` writes one alert event that was read from a log.
Both write the same line for the same alert.

Complexity: `encode_batch` takes about 5 us per alert row, `encode_alert` 10 us.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, NoReturn

import numpy as np

from tocsin.rules.durations import event_text
from tocsin.runtime.alert_batch import NO_TIME, STATES, AlertBatch
from tocsin.runtime.contract import ALERT_TIMES, FIRST_US, LAST_US, Float, Int
from tocsin.runtime.payload import mapping_encoder

# An alert event (one state change of an alert) with its public columns, as parsed from JSON.
Alert = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LENGTH = len("1970-01-01T00:00:00.000000Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
# `_JSON` of each mapping of texts.
_encode_mappings = mapping_encoder(",", ":", ensure_ascii=False)


def alert_from_row(row: Mapping[str, Any]) -> Alert:
    """Convert a result row of a run to an alert event.

    Times may be integers in microseconds, datetimes with a time zone, or RFC 3339 text.

    >>> alert_from_row({"alert": "Hot", "id": "1f", "state": "firing", "labels": {"m": "p"}, "startsAt": 0})["startsAt"]
    '1970-01-01T00:00:00.000000Z'
    """
    place = f"alert {row['alert']!r}"
    present_times = [name for name in ALERT_TIMES if name == "startsAt" or row.get(name) is not None]
    alert = {
        "alert": str(row["alert"]),
        "id": str(row["id"]),
        "state": row["state"],
        "labels": _to_string_mapping(row["labels"]),
        **dict.fromkeys(ALERT_TIMES),
        **{name: _time_text(row[name], f"{place}: `{name}`") for name in present_times},
        "value": _finite_or_none(row.get("value")),
        "margin": _finite_or_none(row.get("margin")),
        "witness": [_build_witness_part(part, place) for part in row.get("witness") or ()],
        "quality": str(row.get("quality") or ""),
        "annotations": _to_string_mapping(row.get("annotations") or {}),
    }
    fault = _find_state_fault(alert)
    if fault:
        message = f"{place}: {fault}"
        raise ValueError(message)
    return alert


def alert_page_url(dashboard: str, alert_id: str) -> str:
    """Return the dashboard URL of an alert; an empty text without a dashboard.

    >>> alert_page_url("http://board:8484/", "0a45")
    'http://board:8484/alerts/0a45'
    """
    return f"{dashboard.rstrip('/')}/alerts/{alert_id}" if dashboard else ""


def with_link(alert: Alert, dashboard: str) -> Alert:
    """Return an alert event with a `generatorURL`; without a dashboard, return the event itself."""
    return {**alert, "generatorURL": alert_page_url(dashboard, alert["id"])} if dashboard else alert


def encode_alert(alert: Alert) -> bytes:
    """Return the line of an alert event, without the newline."""
    return _JSON(alert).encode("utf-8", "replace")


def encode_batch(batch: AlertBatch, annotations: Sequence[Mapping[str, str]] = ()) -> bytes:
    """Return the lines of a batch, each with a newline. `annotations` has one mapping per row, or is empty."""
    if not len(batch):
        return b""
    times = _time_texts([batch.start, batch.fires, batch.end, *batch.times.T])
    states, labels = list(map(_JSON, STATES)), list(map(_JSON, batch.labels()))
    columns = [
        map(encode_basestring, batch.id.tolist()),
        [states[state] for state in batch.state.tolist()],
        [labels[key] for key in batch.key.tolist()],
        *times[:3],
        _number_texts(batch.value),
        _number_texts(batch.margin),
        *_witness_columns(batch, times[3:]),
        map(encode_basestring, batch.quality.tolist()),
    ]
    parts = []
    for stream in batch.source.streams:
        names = "" if stream.is_optional else ",".join(f"{_JSON(name)}:\0" for name in stream.columns)
        values = "\0" if stream.is_optional else f"{{{names}}}"
        parts.append(f'{{"stream":{_JSON(stream.name)},"time":\0,"values":{values},"payload":\0}}')
    form = (
        f'{{"alert":{_JSON(batch.source.alert)},"id":\0,"state":\0,"labels":\0,"startsAt":\0,"firesAt":\0,"endsAt":\0,'
        f'"value":\0,"margin":\0,"witness":[{",".join(parts)}],"quality":\0,"annotations":\0}}\n'
    )
    columns.append(_encode_mappings(annotations) if annotations else ["{}"] * len(batch))
    # JSON escapes the character 0 in texts, so it can only mark the places of columns.
    pattern = form.replace("%", "%%").replace("\0", "%s")
    return "".join([pattern % row for row in zip(*columns, strict=True)]).encode("utf-8", "replace")


def _witness_columns(batch: AlertBatch, times: Sequence[Sequence[str]]) -> Iterable[Iterable[str]]:
    """Yield the texts of time, values and payload of each stream."""
    shown, begin = [*_encode_mappings(batch.payload.distinct), "null"], 0
    for i, stream in enumerate(batch.source.streams):
        yield times[i]
        values = [_number_texts(column) for column in batch.values[:, begin : begin + len(stream.columns)].T]
        begin += len(stream.columns)
        if stream.is_optional:
            names = [_JSON(name) for name in stream.columns]
            rows = zip(*values, strict=True) if values else [()] * len(batch)
            yield [_optional_values(names, row) for row in rows]
        else:
            yield from values
        # Position -1 is the last text.
        yield [shown[place] for place in batch.payload.position[:, i].tolist()]


def _optional_values(names: Sequence[str], texts: Sequence[str]) -> str:
    return "{" + ",".join([f"{name}:{text}" for name, text in zip(names, texts, strict=True) if text != "null"]) + "}"


def _number_texts(numbers: Float) -> list[str]:
    texts = list(map(float.__repr__, numbers.tolist()))
    for i in np.flatnonzero(~np.isfinite(numbers)).tolist():
        texts[i] = "null"
    return texts


def _time_texts(columns: Sequence[Int]) -> list[list[str]]:
    """Return times as JSON. Most times occur several times, so each distinct time is formatted once."""
    times, place = np.unique(np.concatenate(columns), return_inverse=True)
    moments = np.clip(times, FIRST_US, LAST_US).astype("datetime64[us]")
    texts = [f'"{text}Z"' for text in np.datetime_as_string(moments).tolist()]
    if len(times) and times[0] == NO_TIME:
        texts[0] = "null"
    found = [texts[i] for i in place.tolist()]
    count = len(columns[0])
    return [found[begin : begin + count] for begin in range(0, len(found), count)]


def decode_alert(line: bytes) -> Alert:
    """Parse one line; raise a ValueError with the reason if it is not a valid alert event."""
    alert = _STRICT.decode(line.decode("utf-8", "surrogatepass"))
    fault = find_alert_fault(alert)
    if fault:
        raise ValueError(fault)
    return alert  # type: ignore[no-any-return]


def _reject_constant(constant: str) -> NoReturn:
    message = f"numbers must be finite; got {constant}"
    raise ValueError(message)


# One decoder for all lines. `json.loads` would create one per line, which takes as long as parsing a short line.
_STRICT = json.JSONDecoder(parse_constant=_reject_constant)


def find_alert_fault(alert: Any) -> str:
    """Return why a parsed line is not a valid alert event; an empty text if it is valid."""
    if not isinstance(alert, dict):
        return f"an alert must be an object; got {type(alert).__name__}"
    for key in ("alert", "id", "quality"):
        if not isinstance(alert.get(key), str):
            return f"`{key}` must be text; got {_format_value(alert.get(key))}"
    for key in ("labels", "annotations"):
        if not _is_string_mapping(alert.get(key)):
            return f"`{key}` must be a mapping of texts; got {_format_value(alert.get(key))}"
    for key in ALERT_TIMES:
        if not (_is_time(alert.get(key)) or (key != "startsAt" and alert.get(key) is None)):
            return f"`{key}` must be a time; got {_format_value(alert.get(key))}"
    for key in ("value", "margin"):
        if not _is_number(alert.get(key)):
            return f"`{key}` must be a number or null; got {_format_value(alert.get(key))}"
    return _find_state_fault(alert) or _find_witness_fault(alert.get("witness"))


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return the fingerprint that Alertmanager computes for a label set (64-bit FNV-1a).

    >>> fingerprint({"alertname": "Hot", "machine": "press-7"})
    'cc67d787c4672241'
    """
    code = 0xCBF29CE484222325
    for pair in sorted(pair for pair in labels.items() if pair[1]):
        for byte in b"".join(text.encode("utf-8", "replace") + b"\xff" for text in pair):
            code = ((code ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{code:016x}"


def labels_with_alertname(alert: Alert) -> dict[str, str]:
    """Return the labels with `alertname`: the identity of an alert in Alertmanager."""
    return {**alert["labels"], "alertname": alert["alert"]}


def state_change_time(alert: Alert) -> str:
    """Return the event time of a state change: the end of the alert, else its firing time, else its start."""
    time: str = alert["endsAt"] or alert["firesAt"] or alert["startsAt"]
    return time


def format_time(seconds: float) -> str:
    """Return a Unix time in seconds as RFC 3339 text.

    >>> format_time(1.5)
    '1970-01-01T00:00:01.500000Z'
    """
    return event_text(round(seconds * 1_000_000))


def parse_seconds(text: str) -> float:
    """Return a time of the alert log as a Unix time in seconds."""
    return (datetime.fromisoformat(text) - _EPOCH) / timedelta(seconds=1)


def parse_microseconds(text: str) -> int:
    """Return a time of the alert log as a Unix time in microseconds.

    >>> parse_microseconds("1970-01-01T00:00:01.500000Z")
    1500000
    """
    time_us = _parse_log_time(text)
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND if time_us is None else time_us


# Cached, because a line contains the same time several times, and all lines of an alert contain its start.
@lru_cache(maxsize=4096)
def _parse_log_time(text: str) -> int | None:
    """Return a Unix time in microseconds; None if the text does not have the time format of the alert log."""
    if not _TIME.fullmatch(text):
        return None
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
    except ValueError:
        return None


def _time_text(time: Any, place: str) -> str:
    if isinstance(time, int) and not isinstance(time, bool):
        return event_text(time)
    if isinstance(time, datetime) and time.tzinfo is not None:
        return event_text((time - _EPOCH) // _MICROSECOND)
    if isinstance(time, str) and _is_time(time):
        return time
    message = f"{place} must be an integer in microseconds, a datetime with a time zone or RFC 3339 text; got {time!r}"
    raise ValueError(message)


def _build_witness_part(part: Mapping[str, Any], place: str) -> dict[str, Any]:
    payload = part.get("payload")
    return {
        "stream": str(part["stream"]),
        "time": _time_text(part["time"], f"{place}: `time` of the witness"),
        "values": {str(name): _finite_or_none(value) for name, value in part["values"].items()},
        "payload": None if payload is None else {str(k): None if v is None else str(v) for k, v in payload.items()},
    }


def _finite_or_none(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _to_string_mapping(texts: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(text) for name, text in texts.items()}


def _is_time(time: Any) -> bool:
    # The length is checked first, so that overlong texts do not fill the cache.
    return isinstance(time, str) and len(time) == _LENGTH and _parse_log_time(time) is not None


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value))


def _is_string_mapping(texts: Any) -> bool:
    return isinstance(texts, dict) and {str}.issuperset(map(type, texts.values()))


def _find_state_fault(alert: Alert) -> str:
    state = alert.get("state")
    if state not in STATES:
        return f"`state` must be one of {', '.join(STATES)}; got {_format_value(state)}"
    if state in {"resolved", "match"} and alert["endsAt"] is None:
        return f"`endsAt` must be a time if the state is {state}; got null"
    return ""


def _find_witness_fault(witness: Any) -> str:
    if not isinstance(witness, list):
        return f"`witness` must be a list; got {_format_value(witness)}"
    for part in witness:
        if not isinstance(part, dict) or not isinstance(part.get("stream"), str) or not _is_time(part.get("time")):
            return f"`witness` must hold streams and times; got {_format_value(part)}"
        values = part.get("values")
        if not isinstance(values, dict) or not all(map(_is_number, values.values())):
            return f"`values` of the witness must be a mapping of numbers; got {_format_value(values)}"
        if not isinstance(part.get("payload"), dict | None):
            return f"`payload` of the witness must be a mapping or null; got {_format_value(part.get('payload'))}"
    return ""


def _format_value(value: Any) -> str:
    return ascii(value)[:60]


def encode_alerts(alerts: Iterable[Alert]) -> bytes:
    """Return the content of a JSON file of the alert log."""
    return b"".join(encode_alert(alert) + b"\n" for alert in alerts)
