"""Formatting: numbers, durations, times and sizes as text for people.

All output of commands, reports and pages uses these functions. Rule files and other exact texts use
`tocsin.rules.durations` instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Units of durations from a minute on, in microseconds.
_LONG_UNITS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000))
_SHORT_UNITS = (("s", 1_000_000), ("ms", 1_000), ("us", 1))


def format_event_time(time_us: int) -> str:
    """Return an event time in RFC 3339 with as many digits as it needs. A time outside of all dates stays a number.

    >>> format_event_time(1_500_000), format_event_time(60_000_000)
    ('1970-01-01T00:00:01.500000Z', '1970-01-01T00:01:00Z')
    """
    try:
        time = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us}us"
    return time.replace(tzinfo=None).isoformat() + "Z"


def format_second(time_us: int) -> str:
    """Return an event time to the second with its date, in UTC.

    >>> format_second(1_500_000)
    '1970-01-01 00:00:01'
    """
    return format_event_time(time_us // 1_000_000 * 1_000_000).replace("T", " ").removesuffix("Z")


def format_duration(value_us: float) -> str:
    """Return a duration in microseconds with at most two units, rounded.

    >>> format_duration(90_061_000_001), format_duration(125_400_000), format_duration(1_512_345)
    ('1 d 1 h', '2 min 5 s', '1.51 s')
    >>> format_duration(0), format_duration(-350_000), format_duration(59_999_999)
    ('0 s', '-350 ms', '1 min')
    """
    value = round(abs(value_us))
    sign = "-" if value_us < 0 < value else ""
    for unit, size in _SHORT_UNITS:
        # Three digits. A value that they round up to the next unit belongs to that unit.
        if value >= 59_950_000:
            break
        number = float(f"{value / size:.3g}")
        if number >= 1:
            return f"{sign}{number:g} {unit}"
    for (unit, size), (next_unit, next_size) in pairwise(_LONG_UNITS):
        parts = round(value / next_size)
        if parts * next_size >= size:
            count, rest = divmod(parts, size // next_size)
            return f"{sign}{count} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return "0 s"


def format_number(value: float) -> str:
    """Return a number with at most six significant digits.

    >>> format_number(0.1 + 0.2), format_number(1500), format_number(2.5e20)
    ('0.3', '1500', '2.5e+20')
    """
    if not math.isfinite(value) or abs(value) >= 1e15:
        return f"{value:.6g}"
    # Adding 0 turns -0.0 into 0.0.
    return repr(float(f"{value:.6g}") + 0.0).removesuffix(".0")


def format_count(number: int, noun: str) -> str:
    """Return a number of things.

    >>> format_count(1, "row"), format_count(2_000, "row"), format_count(0, "key")
    ('1 row', '2,000 rows', '0 keys')
    """
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def format_size(size: float) -> str:
    """Return a number of bytes.

    >>> format_size(2048), format_size(17)
    ('2.0 KiB', '17 B')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return ""


def format_share(share: float, about: str = "") -> str:
    """Return a share in percent. A share between 0 and 1 is never rounded to 0% or 100%.

    >>> format_share(0.9996), format_share(0.0614, "about "), format_share(0.5), format_share(2e-7)
    ('more than 99.9%', 'about 6.1%', '50%', 'less than 0.1%')
    >>> format_share(0.0), format_share(1.0)
    ('0%', '100%')
    """
    if 0.999 < share < 1:
        return "more than 99.9%"
    if 0 < share < 0.001:
        return "less than 0.1%"
    return f"{about}{100 * share:.1f}".removesuffix(".0") + "%"


def format_lag(seconds: float) -> str:
    """Return a lag as text. A negative lag belongs to a stream with event times in the future.

    >>> format_lag(50_001.0), format_lag(-0.5), format_lag(1e12)
    ('13 h 53 min', '500 ms ahead', 'more than 30 years')
    """
    if abs(seconds) >= 1e9:
        return "more than 30 years" + " ahead" * (seconds < 0)
    return f"{format_duration(abs(seconds) * 1e6)}{' ahead' * (seconds < 0)}"


def format_short(value: float) -> str:
    """Return a number with three digits and an SI prefix, for an axis.

    >>> format_short(1500), format_short(2_500_000), format_short(0.5)
    ('1.5k', '2.5M', '0.5')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def format_seconds(seconds: float) -> str:
    """Return a number of seconds as a duration, for an axis.

    >>> format_seconds(0.25), format_seconds(90.0)
    ('250 ms', '1 min 30 s')
    """
    return format_duration(seconds * 1e6)


def format_labels(labels: Mapping[str, str]) -> str:
    """Return labels in the notation of Prometheus.

    >>> format_labels({"severity": "critical", "machine": "m1"})
    '{machine="m1", severity="critical"}'
    """
    quoted = (f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))
    return f"{{{', '.join(quoted)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
