"""Trend charts: a few numbers of a run over time as steps, each with its own dashes and its name above.

A number of a micro-batch holds until the next micro-batch. If several micro-batches share a pixel, the line covers
their smallest and largest number. The pointer reads out time and values. After a single micro-batch, the chart shows
its numbers as text instead of lines.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from tocsin.dashboard.charts.drawing import Drawing, Scale, days_text, duration_ticks, number_ticks
from tocsin.dashboard.series import Series, Stretch
from tocsin.formatting import format_event_time, format_second

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 184, 62, 14, 38, 24
LEADING, MOST_SIGNS = 20, 50
# Columns of the read-out. More columns are narrower than a pointer.
MOST_COLUMNS = 96
PIXELS = WIDTH - LEFT - RIGHT
MOST_LINES = 4


@dataclass(frozen=True)
class Line:
    """One line: its name, and of each pixel the smallest and the largest number."""

    name: str
    stretches: Sequence[Stretch]


@dataclass(frozen=True)
class Trend:
    """Content of a chart: its title, the first and the last time in seconds, its lines, and the text of a number.

    `base` selects the round numbers of the axis: 1024 for bytes, 60 for durations in seconds, else 10.
    """

    title: str
    begin: float
    stop: float
    lines: Sequence[Line]
    write: Callable[[float], str]
    base: int = 10


def trend_of(title: str, series: Iterable[tuple[str, Series]], write: Callable[[float], str], base: int = 10) -> Trend:
    """Return the content of a chart with all values of some series. The series with the largest last value is first."""
    known = [(name, one) for name, one in series if len(one)]
    known.sort(key=lambda pair: -(pair[1].last or 0.0))
    known = known[:MOST_LINES]
    begin = min((one.start[0] for _, one in known), default=0.0)
    stop = max((one.end[-1] for _, one in known), default=0.0)
    # The last micro-batch has no successor. Its numbers are drawn for the mean interval.
    most = max((len(one) for _, one in known), default=0)
    stop += (stop - begin) / (most - 1) if most > 1 else 0.0
    lines = [Line(name, one.stretches(begin, stop, PIXELS)) for name, one in known]
    return Trend(title, begin, stop, lines, write, base)


def trend(records: Trend) -> Markup:
    """Draw the lines over time. The axis of values includes 0."""
    is_moment = records.begin == records.stop
    drawing = Drawing(WIDTH, TOP + LEADING * (len(records.lines) + 1) if is_moment else HEIGHT, _words(records))
    drawing.text(0, 12, records.title, "name")
    if is_moment:
        _write(drawing, records)
        return drawing.markup()
    low = min(0.0, *(one.low for line in records.lines for one in line.stretches))
    high = max(one.high for line in records.lines for one in line.stretches)
    high = high if high > low else low + 1.0
    ends = (round(records.begin * 1e6), round(records.stop * 1e6))
    x = Scale(*ends, LEFT, WIDTH - RIGHT)
    y = Scale(low, high, HEIGHT - BOTTOM, TOP)
    drawing.value_axis(y, LEFT, WIDTH - RIGHT, ((n, records.write(n)) for n in _ticks(low, high, records.base)))
    drawing.text(WIDTH - RIGHT, 12, days_text(*ends), "tick", "end")
    drawing.time_axis(x, TOP, HEIGHT - BOTTOM, 4)
    for number, line in enumerate(records.lines):
        drawing.steps(points_of(line.stretches, lambda time: x(time * 1e6), y), WIDTH - RIGHT, f"line line-{number}")
    _read_out(drawing, records, x)
    if len(records.lines) > 1:
        _name(drawing, [line.name for line in records.lines])
    return drawing.markup()


def _read_out(drawing: Drawing, records: Trend, x: Scale) -> None:
    """Add a column per moment with its time and values, at most `MOST_COLUMNS`."""
    moments = sorted({one.end for line in records.lines for one in line.stretches})
    moments = moments[:: -(-len(moments) // MOST_COLUMNS)]
    starts = [[one.start for one in line.stretches] for line in records.lines]
    for begin, end in pairwise([*moments, records.stop]):
        texts = [format_second(round(begin * 1e6))]
        for line, times in zip(records.lines, starts, strict=True):
            place = bisect_right(times, begin) - 1
            if place >= 0:
                one = line.stretches[place]
                values = dict.fromkeys([records.write(one.low), records.write(one.high)])
                texts.append(f"{line.name[:MOST_SIGNS]} {' to '.join(values)}")
        left, right = x(begin * 1e6), x(end * 1e6)
        drawing.readout(
            left, TOP, max(right - left, 1.0), HEIGHT - BOTTOM - TOP, ": ".join([texts[0], ", ".join(texts[1:])])
        )


def _write(drawing: Drawing, records: Trend) -> None:
    """Write the numbers of the only micro-batch, or a note if there are no micro-batches."""
    for number, line in enumerate(records.lines):
        named = f"{line.name[:MOST_SIGNS]}: " if len(records.lines) > 1 else ""
        drawing.text(0, TOP + LEADING * number, f"{named}{records.write(line.stretches[-1].high)}")
    moment = format_event_time(round(records.begin) * 1_000_000)
    note = f"one micro-batch so far: {moment}" if records.lines else "no data yet"
    drawing.text(0, TOP + LEADING * len(records.lines), note, "tick")


def _ticks(low: float, high: float, base: int) -> list[float]:
    """Return round numbers between two numbers. Sizes are round in the unit of the largest size."""
    if base == 60 and low >= 0:
        return duration_ticks(high)
    unit = 1.0
    while base == 1024 and high >= unit * base and unit < base**3:
        unit *= base
    return [value * unit for value, _ in number_ticks(low / unit, high / unit, 3)]


def _name(drawing: Drawing, names: Sequence[str]) -> None:
    """Draw the legend: a piece of each line and its name."""
    room = (WIDTH - 8) / len(names)
    for number, name in enumerate(names):
        at = 8 + room * number
        drawing.path([(at, 23), (at + 22, 23)], f"line line-{number}")
        drawing.text(at + 27, 27, name[: int((room - 34) / 6.2)], "tick")


def points_of(
    stretches: Iterable[Stretch], x: Callable[[float], float], y: Callable[[float], float]
) -> list[tuple[float, float]]:
    """Return points through the smallest and largest value of each stretch, the one nearer to the last point first."""
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
    """Return the content as text: the last, the smallest and the largest value of each line."""
    told = []
    for line in records.lines:
        if line.stretches:
            low, high = min(one.low for one in line.stretches), max(one.high for one in line.stretches)
            ends = "" if records.begin == records.stop else f", from {records.write(low)} to {records.write(high)}"
            told.append(f"{line.name} is {records.write(line.stretches[-1].high)}{ends}")
    return f"{records.title}: {'; '.join(told) or 'no data yet'}"
