"""Axes: scales from times and numbers to pixels, and ticks at round values."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_STEPS = (
    *(10**power * digit for power in range(6) for digit in (1, 2, 5)),
    *(seconds * _SECOND for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY for days in (1, 2, 4, 7, 14, 28, 91, 182, 365, 1826, 3652, 36525, 365250)),
)


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [begin, end]."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of a value. Values outside the scale are at its edge."""
        if self.high <= self.low:
            return (self.begin + self.end) / 2
        # Halves: the difference of two numbers near the largest float is infinite.
        part = 1.0 if math.isfinite(self.high - self.low) else 0.5
        low = part * self.low
        share = min(max((part * value - low) / (part * self.high - low), 0.0), 1.0)
        return self.begin + share * (self.end - self.begin)


def time_ticks(low: int, high: int, most: int = 8) -> list[tuple[int, str]]:
    """Return round times between two times, with their texts.

    >>> time_ticks(0, 600_000_000, 4)
    [(0, '00:00'), (300000000, '00:05'), (600000000, '00:10')]
    >>> [text for _, text in time_ticks(40_000_000, 41_000_000, 4)]
    ['00:00:40.0', '00:00:40.5', '00:00:41.0']
    >>> len(time_ticks(0, 480_000_000))
    9
    """
    step = next((step for step in _STEPS if (high - low) / step <= most), _STEPS[-1])
    first = -(-low // step) * step
    return [(time, _time(time, step)) for time in range(first, high + 1, step)][: 2 * most]


def _time(time_us: int, step: int) -> str:
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return str(time_us)
    if step >= _DAY:
        return moment.strftime("%d %b" if step < 91 * _DAY else "%b %Y")
    if moment.hour == moment.minute == moment.second == moment.microsecond == 0 and step >= _HOUR:
        return moment.strftime("%d %b")
    if step >= _MINUTE:
        return moment.strftime("%H:%M")
    # As many digits as the step has: a step of 0.5 s has one digit.
    fraction = f".{moment.microsecond:06}"[: 8 - len(str(step))] if step < _SECOND else ""
    return moment.strftime("%H:%M:%S") + fraction


def days_text(low: int, high: int) -> str:
    """Return the dates of an axis, whose marks may be hours, and the time zone.

    >>> days_text(0, 3_600_000_000), days_text(0, 90_000_000_000)
    ('1970-01-01 UTC', '1970-01-01 to 1970-01-02 UTC')
    """
    try:
        first, last = ((_EPOCH + timedelta(microseconds=time)).strftime("%Y-%m-%d") for time in (low, high))
    except OverflowError:
        return ""
    return f"{first} UTC" if first == last else f"{first} to {last} UTC"


def duration_ticks(high: float) -> list[float]:
    """Return round durations from 0 to a number of seconds: whole seconds, minutes, hours or days.

    >>> duration_ticks(50_000.0), duration_ticks(2.0)
    ([0.0, 21600.0, 43200.0], [0.0, 1.0, 2.0])
    """
    most = 3
    step = next((step / _SECOND for step in _STEPS if high * _SECOND / step <= most), _STEPS[-1] / _SECOND)
    return [k * step for k in range(math.floor(high / step + 1e-9) + 1)][: 2 * most]


def number_ticks(low: float, high: float, most: int = 4) -> list[tuple[float, str]]:
    """Return round numbers between two numbers, with their texts.

    >>> [text for _, text in number_ticks(0.0, 1.0)]
    ['0', '0.5', '1']
    """
    width = high - low
    if not width > 0:
        return [(low, f"{low:g}")]
    if not math.isfinite(width):
        # A round step would exceed the largest float.
        return [(value, f"{value:.2g}") for value in (low, 0.0, high)]
    if width / most < sys.float_info.min:
        # The range has too few floats for a round step.
        return [(value, f"{value:.2g}") for value in (low, high)]
    power = 10.0 ** math.floor(math.log10(width / most))
    step = next((digit * power for digit in (1, 2, 5, 10) if width / (digit * power) <= most), 10 * power)
    first = math.ceil(low / step - 1e-9)
    return [(k * step, f"{k * step:.6g}") for k in range(first, math.floor(high / step + 1e-9) + 1)]
