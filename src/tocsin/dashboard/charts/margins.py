"""Chart of margins: the largest margin of each alert over event time, and bars below for the time of each alert.

Each pixel shows the smallest and the largest margin of its alerts, so the chart hides neither a spike nor a long alert
with a small margin. Complexity: O(n log n) for n alerts, and one mark per pixel.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tocsin.dashboard.alert_records import AlertRecord
from tocsin.dashboard.charts.drawing import Drawing, Scale, days_text, number_ticks
from tocsin.dashboard.charts.timeline import LEFT, MATCH, RIGHT, WIDTH, kind_of
from tocsin.dashboard.charts.trend import points_of
from tocsin.dashboard.series import Stretch
from tocsin.formatting import format_count, format_event_time, format_number

# The chart of alerts by key below has the same edges, so both charts share one time axis.
TOP, PANEL, BAR, BOTTOM = 22, 150, 34, 24
PIXELS = WIDTH - LEFT - RIGHT
# With more alerts, alerts have no hints.
_MOST_HINTS = 300
_LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Bar:
    """Alert in the chart: start, end, largest margin, kind, and the text for the pointer."""

    start_us: int
    end_us: int
    margin: float
    kind: str
    hint: str = ""


def bars_of(alerts: Sequence[AlertRecord], newest_us: int, begin_us: int) -> list[Bar]:
    """Return the alerts that fired. An open alert ends at the newest known time."""
    found = []
    for one in alerts:
        end_us = max(newest_us, one.start_us) if one.end_us is None else one.end_us
        if not one.has_fired or one.margin is None or end_us < begin_us:
            continue
        hint = ""
        if len(alerts) <= _MOST_HINTS:
            whose = ", ".join(value for _, value in one.labels)[:120]
            until = "now" if one.end_us is None else format_event_time(end_us)
            least = "at least " * one.is_open
            margin = f"{least}{format_number(one.margin)}{', late alert' * one.is_late}"
            hint = f"{whose}: {format_event_time(one.start_us)} to {until}, margin {margin}"
        found.append(Bar(one.start_us, end_us, one.margin, kind_of(one.state, is_late=one.is_late), hint))
    return found


def margins(bars: Sequence[Bar], low_us: int, high_us: int, line: Sequence[Stretch] = ()) -> Markup:
    """Draw the margins of alerts, and the alerts as bars. `line` is the margin of one key over time."""
    drawing = Drawing(WIDTH, TOP + PANEL + BAR + BOTTOM, _words(bars, line))
    x = Scale(low_us, high_us, LEFT, WIDTH - RIGHT)
    seen = [0.0, *(bar.margin for bar in bars), *(one.low for one in line), *(one.high for one in line)]
    low, high = min(seen), max(seen)
    pad = 0.06 * high - 0.06 * low
    low, high = max(low - pad * bool(line), -_LARGEST), min(high + pad, _LARGEST) if high > low else low + 1.0
    y = Scale(low, high, TOP + PANEL, TOP)
    drawing.text(
        LEFT,
        TOP - 8,
        "margin: left side minus right side" if line else "largest margin of each alert",
        "name",
    )
    drawing.text(WIDTH - RIGHT, TOP - 8, days_text(low_us, high_us), "tick", "end")
    drawing.value_axis(y, LEFT, WIDTH - RIGHT, number_ticks(low, high))
    base = TOP + PANEL + BAR
    drawing.time_axis(x, TOP, base)
    _draw(drawing, bars, x, y)
    points = points_of(line, x, y)
    drawing.path(points, "line line-0")
    if len(points) == 1:  # A path with one point is invisible.
        drawing.dot(*points[0], 3.5, "point-0")
    drawing.line(LEFT, y(0.0), WIDTH - RIGHT, y(0.0), "zero")
    drawing.text(LEFT - 8, base - 10, _what(bars), "label", "end")
    return drawing.markup()


def _words(bars: Sequence[Bar], line: Sequence[Stretch]) -> str:
    """Return the content of the chart as text."""
    told = f"largest margins of {format_count(len(bars), 'alert')}, and the times when they fired"
    if not line:
        return told
    low, high = min(one.low for one in line), max(one.high for one in line)
    return f"margin from {format_number(low)} to {format_number(high)}, where 0 is the threshold; {told}"


def _what(bars: Sequence[Bar]) -> str:
    """Return the label of the bars. A match does not fire."""
    matches = sum(bar.kind == MATCH for bar in bars)
    return "firing" if not matches else "matches" if matches == len(bars) else "both"


def _draw(drawing: Drawing, bars: Sequence[Bar], x: Scale, y: Scale) -> None:
    top = TOP + PANEL + 12
    if len(bars) <= _MOST_HINTS:
        for bar in bars:
            begin, width = x(bar.start_us), max(x(bar.end_us) - x(bar.start_us), 2.0)
            drawing.box(
                begin,
                min(y(bar.margin), y(0.0)),
                width,
                max(abs(y(bar.margin) - y(0.0)), 1.0),
                f"peak {bar.kind}",
                bar.hint,
            )
            drawing.box(begin, top, width, BAR - 20, bar.kind, bar.hint)
        return
    kind = MATCH if _what(bars) == "matches" else "firing"
    for pixel, (least, most) in enumerate(columns(bars, x.low, x.high, PIXELS)):
        if most is not None and least is not None:
            at = LEFT + pixel
            drawing.box(at, min(y(most), y(0.0)), 1.0, max(abs(y(most) - y(0.0)), 1.0), f"peak {kind}")
            drawing.box(at, y(least) - 0.5, 1.0, 1.0, "least")
            drawing.box(at, top, 1.0, BAR - 20, kind)


def columns(bars: Sequence[Bar], low: float, high: float, pixels: int) -> list[tuple[float, float] | tuple[None, None]]:
    """Return the smallest and the largest margin of the alerts of each pixel, or None for a pixel without alerts."""
    width = (high - low) / pixels if high > low else 1.0
    ordered = sorted(
        ((max(int((bar.start_us - low) / width), 0), min(int((bar.end_us - low) / width), pixels - 1), bar.margin))
        for bar in bars
        if bar.end_us >= low and bar.start_us <= high
    )
    found: list[tuple[float, float] | tuple[None, None]] = []
    smallest, largest = list[tuple[float, int]](), list[tuple[float, int]]()
    place = 0
    for pixel in range(pixels):
        while place < len(ordered) and min(ordered[place][0], pixels - 1) <= pixel:
            _, last, margin = ordered[place]
            heapq.heappush(smallest, (margin, last))
            heapq.heappush(largest, (-margin, last))
            place += 1
        for heap in (smallest, largest):
            while heap and heap[0][1] < pixel:
                heapq.heappop(heap)
        found.append((smallest[0][0], -largest[0][0]) if smallest else (None, None))
    return found
