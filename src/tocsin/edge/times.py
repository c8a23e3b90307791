"""Event times in whole microseconds since 1970: numbers with a unit, or ISO 8601.

Nanoseconds and digits after the sixth are cut, fractions of a larger unit are rounded to the microsecond: so decimal
seconds come out as they were written. A time without an offset is taken as UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite
from typing import Any

# Microseconds of each unit that has at least one.
SCALE = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NAIVE, _AWARE = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)  # noqa: DTZ001 - for times without an offset
# Far enough from the ends of 64 bits for sums with intervals.
LIMIT_US = 1 << 61

Reader = Callable[[Any], int]


def reader(unit: str) -> Reader:
    """Make the function that reads one time, a number or a text; it raises ValueError for what is no time.

    >>> reader("ms")(1500), reader("s")(0.1), reader("s")("1970-01-01T00:00:01Z"), reader("s")("2.5")
    (1500000, 100000, 1000000, 2500000)
    """

    def read(time: Any) -> int:
        if isinstance(time, str):
            found = _of_text(time, unit)
        elif type(time) is int or type(time) is float:
            found = _of_number(time, unit)
        else:
            message = f"a time must be a number or a text; got {type(time).__name__}"
            raise ValueError(message)
        if not -LIMIT_US < found < LIMIT_US:
            message = f"a time must be within 70,000 years of 1970; got {time!r}"
            raise ValueError(message)
        return found

    return read


def _of_number(time: float, unit: str) -> int:
    if isinstance(time, int):
        return time // 1_000 if unit == "ns" else time * SCALE[unit]
    if not isfinite(time):
        message = f"a time must be finite; got {time!r}"
        raise ValueError(message)
    return int(time // 1_000) if unit == "ns" else round(time * SCALE[unit])


def _of_text(time: str, unit: str) -> int:
    """Read ISO 8601 if the text looks like it, else a number."""
    text = time.strip()
    if "T" in text or ("-" in text[1:] and "e" not in text.lower()):
        return iso(text)
    if not text.isascii() or "_" in text:
        message = f"a time must be a number or ISO 8601; got {time!r}"
        raise ValueError(message)
    try:
        return _of_number(int(text), unit)
    except ValueError:
        return _of_number(float(text), unit)


def iso(text: str) -> int:
    """Read ISO 8601.

    >>> iso("2015-02-02 14:19:00.25+01:00") - iso("2015-02-02 13:19:00")
    250000
    """
    stamp = datetime.fromisoformat(text)
    since = stamp - (_NAIVE if stamp.tzinfo is None else _AWARE)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
