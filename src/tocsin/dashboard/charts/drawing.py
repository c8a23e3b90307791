"""Chart kit: SVG drawings with escaped texts, scales, axes with units, steps and read-outs.

All charts of the dashboard and of backtest reports use this module. Colours are CSS classes of `drawings.css`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from markupsafe import Markup

from tocsin.dashboard.markup import visible

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_STEPS = (
    *(10**power * digit for power in range(6) for digit in (1, 2, 5)),
    *(seconds * _SECOND for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY for days in (1, 2, 4, 7, 14, 28, 91, 182, 365, 1826, 3652, 36525, 365250)),
)


def number(value: float) -> str:
    """Return a coordinate as text, rounded to a tenth of a pixel.

    >>> number(3.0), number(3.14159)
    ('3', '3.1')
    """
    return f"{value:.1f}".removesuffix(".0")


def fit_label(text: str, most: int = 26) -> str:
    """Return the label of a line or bar, cut to `most` characters.

    >>> fit_label("humidity", 4)
    'hum…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


class Drawing:
    """Drawing of a size in pixels. Screen readers read the `title`."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[Markup] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """Draw a straight line."""
        self._add("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)

    def box(self, x: float, y: float, width: float, height: float, kind: str, hint: str = "") -> None:
        """Draw a rectangle. Browsers show the hint when the pointer rests on it."""
        self._add("rect", kind, hint, x=x, y=y, width=max(width, 0.0), height=height)

    def dot(self, x: float, y: float, radius: float, kind: str, hint: str = "") -> None:
        """Draw a circle."""
        self._add("circle", kind, hint, cx=x, cy=y, r=radius)

    def dots(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Draw many small dots as one element: lines of length 0 with round ends."""
        steps = "".join(f"M{number(x)},{number(y)}h0" for x, y in points)
        if steps:
            self._parts.append(Markup('<path class="dots {}" d="{}"/>').format(kind, steps))

    def path(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Draw a line through points."""
        steps = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        if steps:
            self._parts.append(Markup('<polyline class="{}" points="{}"/>').format(kind, steps))

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """Draw a text."""
        parts = (kind, number(x), number(y), anchor, visible(words))
        self._parts.append(Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(*parts))

    def time_axis(self, x: Scale, top: float, base: float, most: int = 8) -> None:
        """Draw the axis of event time or wall-clock time, in microseconds: grid lines, and times in UTC below."""
        left, right = x.begin, x.end
        for time, text in time_ticks(round(x.low), round(x.high), most):
            at = x(time)
            self.line(at, top, at, base, "grid")
            anchor = "start" if at < left + 16 else "end" if at > right - 16 else "middle"
            self.text(at, base + 16, text, "tick", anchor)

    def value_axis(self, y: Scale, left: float, right: float, ticks: Iterable[tuple[float, str]]) -> None:
        """Draw an axis of values: grid lines, and numbers with their units at the left."""
        for value, text in ticks:
            self.line(left, y(value), right, y(value), "grid")
            self.text(left - 7, y(value) + 4, text, "tick", "end")

    def steps(self, points: Sequence[tuple[float, float]], end: float, kind: str) -> None:
        """Draw values that hold until the next point, the last one until `end`."""
        corners = list[tuple[float, float]]()
        for x, y in points:
            if corners:
                corners.append((x, corners[-1][1]))
            corners.append((x, y))
        if corners:
            self.path([*corners, (max(end, corners[-1][0]), corners[-1][1])], kind)

    def readout(self, x: float, top: float, width: float, height: float, text: str) -> None:
        """Add an invisible column. The page shows its text below the chart when the pointer is in the column."""
        self.box(x, top, width, height, "hit", text)

    def markup(self) -> Markup:
        """Return the drawing as HTML."""
        head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            self.width, self.height, visible(self.title)
        )
        return head + Markup("").join(self._parts) + Markup("</svg>")

    def _add(self, name: str, kind: str, hint: str = "", **places: float) -> None:
        inside = Markup(" ").join(Markup('{}="{}"').format(key, number(value)) for key, value in places.items())
        tag = Markup('<{} class="{}" {}').format(Markup(name), kind, inside)
        end = Markup("><title>{}</title></{}>").format(visible(hint), Markup(name)) if hint else Markup("/>")
        self._parts.append(tag + end)


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
