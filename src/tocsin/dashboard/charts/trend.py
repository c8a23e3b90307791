"""Numbers of a run over time: a few lines in one small drawing, each with dashes of its own and its name above.

Of one moment there is nothing to draw: its numbers are written instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tocsin.dashboard.series import Series, Stretch
from tocsin.report.axis import Scale, days_text, duration_ticks, number_ticks, time_ticks
from tocsin.report.svg import Drawing
from tocsin.trace.words import date

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 184, 62, 14, 38, 24
LEADING, MOST_SIGNS = 20, 50
PIXELS = WIDTH - LEFT - RIGHT
MOST_LINES = 4


@dataclass(frozen=True)
class Line:
    """One line: its name, and of each pixel the smallest and the largest number."""

    name: str
    stretches: Sequence[Stretch]


@dataclass(frozen=True)
class Trend:
    """What a drawing shows: its title, from when to when in seconds, its lines, and how a number is written.

    Round numbers are those of `base`: 1024 for bytes, 60 for lengths of time in seconds.
    """

    title: str
    begin: float
    stop: float
    lines: Sequence[Line]
    write: Callable[[float], str]
    base: int = 10


def trend_of(title: str, series: Iterable[tuple[str, Series]], write: Callable[[float], str], base: int = 10) -> Trend:
    """The records of a drawing: all that is known of some numbers, those that are largest now first."""
    known = [(name, one) for name, one in series if len(one)]
    known.sort(key=lambda pair: -(pair[1].last or 0.0))
    known = known[:MOST_LINES]
    begin = min((one.start[0] for _, one in known), default=0.0)
    stop = max((one.end[-1] for _, one in known), default=0.0)
    lines = [Line(name, one.stretches(begin, stop, PIXELS)) for name, one in known]
    return Trend(title, begin, stop, lines, write, base)


def trend(records: Trend) -> Markup:
    """Draw the lines over one axis of time that begins at nought, or below it."""
    is_moment = records.begin == records.stop
    drawing = Drawing(WIDTH, TOP + LEADING * (len(records.lines) + 1) if is_moment else HEIGHT, _words(records))
    drawing.text(0, 12, records.title, "name")
    if is_moment:
        _write(drawing, records)
        return drawing.markup()
    low = min(0.0, *(one.low for line in records.lines for one in line.stretches))
    high = max(one.high for line in records.lines for one in line.stretches)
    high = high if high > low else low + 1.0
    x = Scale(records.begin, records.stop, LEFT, WIDTH - RIGHT)
    y = Scale(low, high, HEIGHT - BOTTOM, TOP)
    for value in _ticks(low, high, records.base):
        drawing.line(LEFT, y(value), WIDTH - RIGHT, y(value), "grid")
        drawing.text(LEFT - 6, y(value) + 4, records.write(value), "tick", "end")
    ends = (round(records.begin * 1e6), round(records.stop * 1e6))
    drawing.text(WIDTH - RIGHT, 12, days_text(*ends), "tick", "end")
    for time, text in time_ticks(*ends, 4):
        at = x(time / 1e6)
        anchor = "start" if at < LEFT + 16 else "end" if at > WIDTH - RIGHT - 16 else "middle"
        drawing.text(at, HEIGHT - 7, text, "tick", anchor)
    for number, line in enumerate(records.lines):
        points = points_of(line.stretches, x, y)
        drawing.path(points, f"line line-{number}")
        if len(points) == 1:  # A path of one point shows nothing.
            drawing.dot(*points[0], 3.5, f"point-{number}")
    if len(records.lines) > 1:
        _name(drawing, [line.name for line in records.lines])
    return drawing.markup()


def _write(drawing: Drawing, records: Trend) -> None:
    """Write the numbers of the one moment that is known, as after one micro-batch; or that there is none."""
    for number, line in enumerate(records.lines):
        named = f"{line.name[:MOST_SIGNS]}: " if len(records.lines) > 1 else ""
        drawing.text(0, TOP + LEADING * number, f"{named}{records.write(line.stretches[-1].high)}")
    said = f"one moment so far: {date(round(records.begin) * 1_000_000)}" if records.lines else "nothing yet"
    drawing.text(0, TOP + LEADING * len(records.lines), said, "tick")


def _ticks(low: float, high: float, base: int) -> list[float]:
    """Round numbers between two; of bytes, in the unit that the largest is written in."""
    if base == 60 and low >= 0:
        return duration_ticks(high)
    unit = 1.0
    while base == 1024 and high >= unit * base and unit < base**3:
        unit *= base
    return [value * unit for value, _ in number_ticks(low / unit, high / unit, 3)]


def _name(drawing: Drawing, names: Sequence[str]) -> None:
    """Name the lines, each beside a piece of it."""
    room = (WIDTH - 8) / len(names)
    for number, name in enumerate(names):
        at = 8 + room * number
        drawing.path([(at, 23), (at + 22, 23)], f"line line-{number}")
        drawing.text(at + 27, 27, name[: int((room - 34) / 6.2)], "tick")


def points_of(
    stretches: Iterable[Stretch], x: Callable[[float], float], y: Callable[[float], float]
) -> list[tuple[float, float]]:
    """A line through the smallest and the largest number of each stretch, the nearer to the last point first."""
    points: list[tuple[float, float]] = []
    for one in stretches:
        ends = [(x(one.start), y(one.low)), (x(one.end), y(one.high))]
        if one.low == one.high:
            ends = ends[:1] if one.start == one.end else ends
        elif points and abs(points[-1][1] - ends[1][1]) < abs(points[-1][1] - ends[0][1]):
            ends = [(x(one.start), y(one.high)), (x(one.end), y(one.low))]
        points += ends
    return points


def _words(records: Trend) -> str:
    """The drawing in words: what each line is now, and its smallest and largest number."""
    told = []
    for line in records.lines:
        if line.stretches:
            low, high = min(one.low for one in line.stretches), max(one.high for one in line.stretches)
            ends = "" if records.begin == records.stop else f", from {records.write(low)} to {records.write(high)}"
            told.append(f"{line.name} is {records.write(line.stretches[-1].high)}{ends}")
    return f"{records.title}: {'; '.join(told) or 'nothing yet'}"
