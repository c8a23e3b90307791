"""The rows that decided an alert, on one axis of time: a line per input, and the window that they span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from tocsin.deliver.encode import micros_of
from tocsin.report.axis import Scale, time_ticks
from tocsin.report.svg import Drawing
from tocsin.trace.words import date, named, number

WIDTH, LEFT, RIGHT, ROW, TOP, BOTTOM = 720, 150, 24, 34, 10, 24
_LEAST_US = 1_000_000


class Chosen(NamedTuple):
    """A row of the witness: its stream, its time, and its values in words."""

    stream: str
    time_us: int
    words: str


def chosen_of(witness: Sequence[Mapping[str, Any]]) -> list[Chosen]:
    """The records: the rows of a witness as the log has it."""
    found = []
    for part in witness:
        values = [(str(name), value) for name, value in part["values"].items()]
        words = ", ".join(f"{named('', n).strip('.') or 'value'} {'-' if v is None else number(v)}" for n, v in values)
        found.append(Chosen(str(part["stream"]), micros_of(part["time"]), words))
    return found


def chosen(rows: Sequence[Chosen]) -> Markup:
    """Draw the rows, each with its values, and the span between the first and the last."""
    first, last = min(row.time_us for row in rows), max(row.time_us for row in rows)
    pad = max((last - first) // 3, _LEAST_US)
    drawing = Drawing(
        WIDTH, TOP + ROW * len(rows) + BOTTOM, f"{len(rows)} rows that decided, {date(first)} to {date(last)}"
    )
    x = Scale(first - pad, last + pad, LEFT, WIDTH - RIGHT)
    base = TOP + ROW * len(rows)
    drawing.box(x(first), TOP, max(x(last) - x(first), 2.0), base - TOP, "span")
    for time, text in time_ticks(first - pad, last + pad, 5):
        drawing.line(x(time), TOP, x(time), base, "grid")
        drawing.text(x(time), base + 16, text, "tick", "middle")
    for place, row in enumerate(rows):
        y = TOP + ROW * place + ROW / 2
        drawing.text(LEFT - 10, y + 4, row.stream[:20], "label", "end")
        drawing.line(LEFT, y, WIDTH - RIGHT, y, "rule")
        drawing.dot(x(row.time_us), y, 5, "kept", f"{row.stream}: {row.words} at {date(row.time_us)}")
        drawing.dot(x(row.time_us), y, 9, "witness")
        right = x(row.time_us) < (LEFT + WIDTH) / 2
        drawing.text(
            x(row.time_us) + (15 if right else -15), y - 6, row.words[:40], "tick", "start" if right else "end"
        )
    return drawing.markup()
