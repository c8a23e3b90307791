"""Event times: numbers with a unit, or ISO 8601 text, parsed to integer microseconds since 1970.

Rounding: digits below a microsecond are truncated in nanoseconds and in ISO 8601. A fraction of a larger unit is
rounded to the nearest microsecond, so that decimal seconds are read as written. A time without an offset is in UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite
from typing import Any

# Microseconds per unit. Nanoseconds are divided instead.
UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NAIVE, _AWARE = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)  # noqa: DTZ001 - for times without an offset
# Sums of a time and a few intervals do not overflow int64 below this bound.
LIMIT_US = 1 << 61

TimeParser = Callable[[Any], int]


def build_time_parser(unit: str) -> TimeParser:
    """Return a function that parses one time, a number of `unit` or a text. It raises ValueError for other values.

    >>> parse_s, parse_ms = build_time_parser("s"), build_time_parser("ms")
    >>> parse_ms(1500), parse_s(0.1), parse_s("1970-01-01T00:00:01Z"), parse_s("2.5")
    (1500000, 100000, 1000000, 2500000)
    """

    def parse_time(time: Any) -> int:
        if isinstance(time, str):
            time_us = _parse_text(time, unit)
        elif type(time) is int or type(time) is float:
            time_us = _parse_number(time, unit)
        else:
            message = f"a time must be a number or a text; got {type(time).__name__}"
            raise ValueError(message)
        if not -LIMIT_US < time_us < LIMIT_US:
            message = f"a time must be within 70,000 years of 1970; got {time!r}"
            raise ValueError(message)
        return time_us

    return parse_time


def parse_iso_time(text: str) -> int:
    """Parse ISO 8601. Raise ValueError for other texts.

    >>> parse_iso_time("2015-02-02 14:19:00.25+01:00") - parse_iso_time("2015-02-02 13:19:00")
    250000
    """
    time = datetime.fromisoformat(text)
    since_1970 = time - (_NAIVE if time.tzinfo is None else _AWARE)
    return (since_1970.days * 86_400 + since_1970.seconds) * 1_000_000 + since_1970.microseconds


def _parse_number(time: float, unit: str) -> int:
    if isinstance(time, int):
        return time // 1_000 if unit == "ns" else time * UNIT_US[unit]
    if not isfinite(time):
        message = f"a time must be finite; got {time!r}"
        raise ValueError(message)
    return int(time // 1_000) if unit == "ns" else round(time * UNIT_US[unit])


def _parse_text(time: str, unit: str) -> int:
    """Parse ISO 8601 if the text has a `T` or a date, otherwise a number."""
    text = time.strip()
    if "T" in text or ("-" in text[1:] and "e" not in text.lower()):
        return parse_iso_time(text)
    # Python also accepts `1_000` and the digits of other scripts.
    if not text.isascii() or "_" in text:
        message = f"a time must be a number or ISO 8601; got {time!r}"
        raise ValueError(message)
    try:
        return _parse_number(int(text), unit)
    except ValueError:
        return _parse_number(float(text), unit)
