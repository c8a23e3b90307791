"""Durations and times as people write them, in whole microseconds.

The text of a duration is Prometheus's (`1h30m`, `10s`, `500ms`; also `us`), with a sign where a bound may be negative;
that of a time is ISO 8601.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from tocsin.errors import Diagnostic, RuleError, value_text
from tocsin.runtime.contract import FIRST_US, LAST_US
from tocsin.times import parse_iso_time

# A number has no unit, so only 0 is a duration.
Duration = str | timedelta | Literal[0]

_UNITS = {
    "w": 604_800_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_PART = re.compile(r"([0-9]{1,15})(ms|us|w|d|h|m|s)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# 3,000 years: sums of a few bounds stay far from the ends of int64.
MOST_US = 10**17
# Default limit for times in the future. It is longer than any offset of a time zone, so a local time without a zone
# stays usable, and shorter than a wrong date.
MAX_AHEAD = "1d"


def microseconds(duration: Duration, where: str, *, signed: bool = False, others: Sequence[str] = ()) -> int:
    """Return a duration in microseconds. The only number that is a duration is the integer 0.

    `others` are words that the field accepts besides durations. The error for other text lists them.

    >>> microseconds("1h30m", "rule")
    5400000000
    >>> microseconds("-5s", "rule", signed=True)
    -5000000
    """
    value = _read(duration, where, others)
    if value < 0 and not signed:
        raise _error(duration, "out-of-range", f"{where} must not be negative")
    if abs(value) > MOST_US:
        raise _error(duration, "out-of-range", f"{where} must be shorter than 3,000 years")
    return value


def _error(value: object, code: str, message: str) -> RuleError:
    return RuleError(Diagnostic(code, (), message, value_text(value)))


def _read(duration: Duration, where: str, others: Sequence[str]) -> int:
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if isinstance(duration, int) and not isinstance(duration, bool) and duration == 0:
        return 0
    if isinstance(duration, str):
        text = duration.strip()
        sign = -1 if text.startswith("-") else 1
        body = text[1:] if text[:1] in {"+", "-"} else text
        if body == "0":
            return 0
        parts = _PART.findall(body)
        if parts and "".join(number + unit for number, unit in parts) == body:
            return sign * sum(int(number) * _UNITS[unit] for number, unit in parts)
    words = f", or one of {', '.join(others)}" if others else ""
    message = f"{where} must be a duration such as '10s', '1h30m' or '500ms'{words}"
    number = value_text(duration).strip("' ").removesuffix(".0")
    found, hint = value_text(duration), ""
    if re.fullmatch(r"[+-]?[0-9]{1,50}", number):
        found, hint = f"{found}, a number without a unit", f"for seconds write '{number}s'"
    raise RuleError(Diagnostic("invalid-duration", (), message, found, hint))


def time_us(text: str, where: str) -> int:
    """Parse a time in ISO 8601 to microseconds since 1970. A time without an offset is in UTC.

    >>> time_us("1970-01-01T00:01:00Z", "rule"), time_us("1970-01-02", "rule")
    (60000000, 86400000000)
    """
    try:
        return parse_iso_time(text)
    except ValueError:
        raise _error(text, "invalid-time", f"{where} must be a time such as 2026-01-01T00:00:00Z") from None


def duration_text(value_us: int) -> str:
    """Write microseconds the short way.

    >>> duration_text(5_400_000_000)
    '1h30m'
    """
    if value_us == 0:
        return "0s"
    rest, text = abs(value_us), "-" if value_us < 0 else ""
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text


def event_text(time_us: int) -> str:
    """Write an event time.

    >>> event_text(1)
    '1970-01-01T00:00:00.000001Z'
    """
    inside = min(max(time_us, FIRST_US), LAST_US)
    moment = _EPOCH + timedelta(microseconds=inside)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
