"""The alerts of a rule over event time: how far beyond its threshold each went, and below it when alerts fired.

Of each pixel the largest margin and the smallest of the alerts there are drawn, so neither a spike nor a long low alert
is hidden by its neighbours. Cost: n log n for n alerts, then one mark per pixel.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tocsin.dashboard.alertindex import Known
from tocsin.report.axis import Scale, number_ticks, time_ticks
from tocsin.report.svg import Drawing
from tocsin.trace.words import date, number

WIDTH, LEFT, RIGHT, TOP, PANEL, BAR, BOTTOM = 960, 70, 12, 22, 150, 34, 24
PIXELS = WIDTH - LEFT - RIGHT
# So few alerts have a hint each.
_MOST_HINTS = 300


@dataclass(frozen=True)
class Bar:
    """An alert: from when to when, its largest margin, whether it was found late, and words for a pointer."""

    start_us: int
    end_us: int
    margin: float
    is_late: bool
    hint: str = ""


def bars_of(alerts: Sequence[Known], newest_us: int, begin_us: int | None = None) -> list[Bar]:
    """The records: alerts that fired, those that are open up to the newest time that is known."""
    found = []
    for one in alerts:
        end_us = max(newest_us, one.start_us) if one.end_us is None else one.end_us
        if not one.has_fired or one.margin is None or (begin_us is not None and end_us < begin_us):
            continue
        hint = ""
        if len(alerts) <= _MOST_HINTS:
            whose = ", ".join(value for _, value in one.labels)[:120]
            until = "now" if one.end_us is None else date(end_us)
            hint = f"{whose}: {date(one.start_us)} to {until}, margin {number(one.margin)}{', late' * one.is_late}"
        found.append(Bar(one.start_us, end_us, one.margin, one.is_late, hint))
    return found


def margins(bars: Sequence[Bar], low_us: int, high_us: int) -> Markup:
    """Draw the margins above the threshold, and the alerts as bars on the same axis."""
    height = TOP + PANEL + BAR + BOTTOM
    drawing = Drawing(WIDTH, height, f"margins of {len(bars):,} alerts above the threshold, and when they fired")
    x = Scale(low_us, high_us, LEFT, WIDTH - RIGHT)
    most, least = (max((bar.margin for bar in bars), default=1.0), min((bar.margin for bar in bars), default=0.0))
    low, high = min(least, 0.0), max(most, 0.0)
    high = high + 0.06 * (high - low) if high > low else low + 1.0
    y = Scale(low, high, TOP + PANEL, TOP)
    drawing.text(LEFT, TOP - 8, "largest margin of each alert", "name")
    for value, text in number_ticks(low, high):
        drawing.line(LEFT, y(value), WIDTH - RIGHT, y(value), "grid")
        drawing.text(LEFT - 8, y(value) + 4, text, "tick", "end")
    base = TOP + PANEL + BAR
    for time, text in time_ticks(low_us, high_us):
        drawing.line(x(time), TOP, x(time), base, "grid")
        drawing.text(x(time), base + 16, text, "tick", "middle")
    _draw(drawing, bars, x, y)
    drawing.line(LEFT, y(0.0), WIDTH - RIGHT, y(0.0), "zero")
    drawing.text(LEFT - 8, base - 10, "firing", "label", "end")
    return drawing.markup()


def _draw(drawing: Drawing, bars: Sequence[Bar], x: Scale, y: Scale) -> None:
    top = TOP + PANEL + 12
    if len(bars) <= _MOST_HINTS:
        for bar in bars:
            begin, width = x(bar.start_us), max(x(bar.end_us) - x(bar.start_us), 2.0)
            kind = "late" if bar.is_late else "firing"
            drawing.box(
                begin,
                min(y(bar.margin), y(0.0)),
                width,
                max(abs(y(bar.margin) - y(0.0)), 1.0),
                f"peak {kind}",
                bar.hint,
            )
            drawing.box(begin, top, width, BAR - 20, kind, bar.hint)
        return
    for pixel, (least, most) in enumerate(columns(bars, x.low, x.high, PIXELS)):
        if most is not None and least is not None:
            at = LEFT + pixel
            drawing.box(at, min(y(most), y(0.0)), 1.0, max(abs(y(most) - y(0.0)), 1.0), "peak firing")
            drawing.box(at, y(least) - 0.5, 1.0, 1.0, "least")
            drawing.box(at, top, 1.0, BAR - 20, "firing")


def columns(bars: Sequence[Bar], low: float, high: float, pixels: int) -> list[tuple[float, float] | tuple[None, None]]:
    """Of each pixel the smallest and the largest margin of the alerts that touch it; None where none does."""
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
