"""An alert as a line of the log: strict JSON, one object with the public columns, times as RFC 3339 text in UTC.

A number that is not finite becomes null: JSON has no other word for it. A time outside the years 1 to 9999 is moved to
the nearest one inside; text has no room for it, and one wild clock must not stop detection.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NoReturn

from tocsin.logic import ALERT_TIMES
from tocsin.rules.durations import event_text

STATES = ("pending", "firing", "resolved", "inactive", "match")

# A change of state with its public columns, as JSON holds it.
Alert = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LENGTH = len("1970-01-01T00:00:00.000000Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def alert_of(row: Mapping[str, Any]) -> Alert:
    """Bring a row of a run into its public form; times are microseconds, aware datetimes or text already.

    >>> alert_of({"alert": "Hot", "id": "1f", "state": "firing", "labels": {"m": "p"}, "startsAt": 0})["startsAt"]
    '1970-01-01T00:00:00.000000Z'
    """
    place = f"alert {row['alert']!r}"
    given = [name for name in ALERT_TIMES if name == "startsAt" or row.get(name) is not None]
    alert = {
        "alert": str(row["alert"]),
        "id": str(row["id"]),
        "state": row["state"],
        "labels": _texts(row["labels"]),
        **dict.fromkeys(ALERT_TIMES),
        **{name: _time_of(row[name], f"{place}: `{name}`") for name in given},
        "value": _number(row.get("value")),
        "margin": _number(row.get("margin")),
        "witness": [_part_of(part, place) for part in row.get("witness") or ()],
        "quality": str(row.get("quality") or ""),
        "annotations": _texts(row.get("annotations") or {}),
    }
    fault = _state_fault(alert)
    if fault:
        message = f"{place}: {fault}"
        raise ValueError(message)
    return alert


def encode(alert: Alert) -> bytes:
    """Write one line, without its end."""
    text = json.dumps(alert, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def decode(line: bytes) -> Alert:
    """Read one line; a ValueError says what is wrong with it."""
    alert = _STRICT.decode(line.decode("utf-8", "surrogatepass"))
    fault = fault_of(alert)
    if fault:
        raise ValueError(fault)
    return alert  # type: ignore[no-any-return]


def _no_number(word: str) -> NoReturn:
    message = f"numbers must be finite; got {word}"
    raise ValueError(message)


# Made once: `json.loads` would make one per line, which takes as long as a short line.
_STRICT = json.JSONDecoder(parse_constant=_no_number)


def fault_of(alert: Any) -> str:
    """Say why something is not an alert; nothing if it is one."""
    if not isinstance(alert, dict):
        return f"an alert must be an object; got {type(alert).__name__}"
    for key in ("alert", "id", "quality"):
        if not isinstance(alert.get(key), str):
            return f"`{key}` must be text; got {_shown(alert.get(key))}"
    for key in ("labels", "annotations"):
        if not _is_texts(alert.get(key)):
            return f"`{key}` must be a mapping of texts; got {_shown(alert.get(key))}"
    for key in ALERT_TIMES:
        if not (_is_time(alert.get(key)) or (key != "startsAt" and alert.get(key) is None)):
            return f"`{key}` must be a time; got {_shown(alert.get(key))}"
    for key in ("value", "margin"):
        if not _is_number(alert.get(key)):
            return f"`{key}` must be a number or null; got {_shown(alert.get(key))}"
    return _state_fault(alert) or _witness_fault(alert.get("witness"))


def fingerprint(labels: Mapping[str, str]) -> str:
    """Hash a label set as Alertmanager does (64-bit FNV-1a), so that both name an alert alike.

    >>> fingerprint({"alertname": "Hot", "machine": "press-7"})
    'cc67d787c4672241'
    """
    code = 0xCBF29CE484222325
    for pair in sorted(pair for pair in labels.items() if pair[1]):
        for byte in b"".join(text.encode("utf-8", "replace") + b"\xff" for text in pair):
            code = ((code ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{code:016x}"


def full_labels(alert: Alert) -> dict[str, str]:
    """The labels with `alertname`, which are an alert's identity for Alertmanager."""
    return {**alert["labels"], "alertname": alert["alert"]}


def changed_at(alert: Alert) -> str:
    """Return the event time of a change of state: the end, else the firing time, else the start of the alert."""
    time: str = alert["endsAt"] or alert["firesAt"] or alert["startsAt"]
    return time


def time_text(seconds: float) -> str:
    """Write a moment of the clock.

    >>> time_text(1.5)
    '1970-01-01T00:00:01.500000Z'
    """
    return event_text(round(seconds * 1_000_000))


def seconds_of(text: str) -> float:
    """Read a time of the log as seconds since 1970."""
    return (datetime.fromisoformat(text) - _EPOCH) / timedelta(seconds=1)


def micros_of(text: str) -> int:
    """Read a time of the log as microseconds since 1970.

    >>> micros_of("1970-01-01T00:00:01.500000Z")
    1500000
    """
    found = _micros(text)
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND if found is None else found


# A time stands in several places of a line, and in each change of its alert.
@lru_cache(maxsize=4096)
def _micros(text: str) -> int | None:
    """A time as the log has it in microseconds since 1970; None if it is none."""
    if not _TIME.fullmatch(text):
        return None
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
    except ValueError:
        return None


def _time_of(time: Any, place: str) -> str:
    if isinstance(time, int) and not isinstance(time, bool):
        return event_text(time)
    if isinstance(time, datetime) and time.tzinfo is not None:
        return event_text((time - _EPOCH) // _MICROSECOND)
    if isinstance(time, str) and _is_time(time):
        return time
    message = f"{place} must be whole microseconds, a datetime with a time zone or RFC 3339 text; got {time!r}"
    raise ValueError(message)


def _part_of(part: Mapping[str, Any], place: str) -> dict[str, Any]:
    payload = part.get("payload")
    return {
        "stream": str(part["stream"]),
        "time": _time_of(part["time"], f"{place}: `time` of the witness"),
        "values": {str(name): _number(value) for name, value in part["values"].items()},
        "payload": None if payload is None else {str(k): None if v is None else str(v) for k, v in payload.items()},
    }


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _texts(texts: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(text) for name, text in texts.items()}


def _is_time(time: Any) -> bool:
    # One that is far too long is none, and not worth being remembered.
    return isinstance(time, str) and len(time) == _LENGTH and _micros(time) is not None


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value))


def _is_texts(texts: Any) -> bool:
    return isinstance(texts, dict) and {str}.issuperset(map(type, texts.values()))


def _state_fault(alert: Alert) -> str:
    state = alert.get("state")
    if state not in STATES:
        return f"`state` must be one of {', '.join(STATES)}; got {_shown(state)}"
    if state in {"resolved", "match"} and alert["endsAt"] is None:
        return f"`endsAt` must be a time where the state is {state}; got null"
    return ""


def _witness_fault(witness: Any) -> str:
    if not isinstance(witness, list):
        return f"`witness` must be a list; got {_shown(witness)}"
    for part in witness:
        if not isinstance(part, dict) or not isinstance(part.get("stream"), str) or not _is_time(part.get("time")):
            return f"`witness` must hold streams and times; got {_shown(part)}"
        values = part.get("values")
        if not isinstance(values, dict) or not all(map(_is_number, values.values())):
            return f"`values` of the witness must be a mapping of numbers; got {_shown(values)}"
        if not isinstance(part.get("payload"), dict | None):
            return f"`payload` of the witness must be a mapping or null; got {_shown(part.get('payload'))}"
    return ""


def _shown(value: Any) -> str:
    return ascii(value)[:60]


def lines_of(alerts: Iterable[Alert]) -> bytes:
    """Write a whole file."""
    return b"".join(encode(alert) + b"\n" for alert in alerts)
