"""Chart of a witness: one line per row over event time, and the span of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from tocsin.dashboard.charts.drawing import Drawing, Scale
from tocsin.delivery.alert_json import parse_microseconds
from tocsin.formatting import format_count, format_event_time, format_number
from tocsin.trace.words import named

WIDTH, LEFT, RIGHT, ROW, TOP, BOTTOM = 720, 150, 24, 34, 10, 24
_LEAST_US = 1_000_000


class Chosen(NamedTuple):
    """Row of a witness: its stream, its time, and its values as text."""

    stream: str
    time_us: int
    words: str


def chosen_of(witness: Sequence[Mapping[str, Any]]) -> list[Chosen]:
    """Return the rows of a witness of the alert log."""
    found = []
    for part in witness:
        values = [(str(name), value) for name, value in part["values"].items()]
        words = ", ".join(
            f"{named('', n).strip('.') or 'value'} {'-' if v is None else format_number(v)}" for n, v in values
        )
        found.append(Chosen(str(part["stream"]), parse_microseconds(part["time"]), words))
    return found


def chosen(rows: Sequence[Chosen]) -> Markup:
    """Draw the rows with their values, and the span between the first and the last row."""
    first, last = min(row.time_us for row in rows), max(row.time_us for row in rows)
    pad = max((last - first) // 3, _LEAST_US)
    drawing = Drawing(
        WIDTH,
        TOP + ROW * len(rows) + BOTTOM,
        f"witness of {format_count(len(rows), 'row')}, {format_event_time(first)} to {format_event_time(last)}",
    )
    x = Scale(first - pad, last + pad, LEFT, WIDTH - RIGHT)
    base = TOP + ROW * len(rows)
    drawing.box(x(first), TOP, max(x(last) - x(first), 2.0), base - TOP, "span")
    drawing.time_axis(x, TOP, base, 5)
    for place, row in enumerate(rows):
        y = TOP + ROW * place + ROW / 2
        drawing.text(LEFT - 10, y + 4, row.stream[:20], "label", "end")
        drawing.line(LEFT, y, WIDTH - RIGHT, y, "rule")
        drawing.dot(x(row.time_us), y, 5, "kept", f"{row.stream}: {row.words} at {format_event_time(row.time_us)}")
        drawing.dot(x(row.time_us), y, 9, "witness")
        right = x(row.time_us) < (LEFT + WIDTH) / 2
        drawing.text(
            x(row.time_us) + (15 if right else -15), y - 6, row.words[:40], "tick", "start" if right else "end"
        )
    return drawing.markup()
