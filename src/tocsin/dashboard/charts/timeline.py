"""Timeline of the alerts of one rule: one line per key. The keys with the longest time firing are first."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tocsin.dashboard.charts.drawing import Drawing, Scale, fit_label
from tocsin.formatting import format_count, format_duration, format_event_time, format_number
from tocsin.report.result import Result
from tocsin.trace.model import Life

WIDTH, LEFT, RIGHT, ROW, TOP, BOTTOM = 960, 190, 12, 20, 6, 24
MOST_KEYS = 20
MATCH = "match"
# A line with more bars than this merges bars that are less than one pixel apart.
_MOST_BARS = 400


def timeline(
    result: Result, lives: Sequence[Life], on: Sequence[str], axis: tuple[int, int] | None = None
) -> tuple[Markup, int]:
    """Draw the alerts of a rule by key. Return the drawing and the number of keys without a line.

    `axis` has the first and the last time of the drawing; without it, the drawing covers all rows and alerts.
    """
    keys: dict[tuple[str, ...], list[Life]] = {}
    for life in lives:
        keys.setdefault(tuple(life.labels.get(column, "") for column in on), []).append(life)
    busiest = sorted(keys, key=lambda key: (-_length(result, keys[key]), key))
    shown = busiest[:MOST_KEYS]
    low, high = axis or _range(result, lives)
    height = TOP + ROW * len(shown) + BOTTOM
    title = f"{format_count(len(lives), 'alert')} of {format_count(len(keys), 'key')} over event time"
    drawing = Drawing(WIDTH, height, title)
    x = Scale(low, high, LEFT, WIDTH - RIGHT)
    base = TOP + ROW * len(shown)
    drawing.time_axis(x, TOP, base)
    for row, key in enumerate(shown):
        y = TOP + ROW * row
        drawing.text(LEFT - 8, y + 14, fit_label(", ".join(key) or "all rows"), "label", "end")
        drawing.line(LEFT, y + ROW / 2, WIDTH - RIGHT, y + ROW / 2, "rule")
        _bars(drawing, result, keys[key], x, y)
    return drawing.markup(), len(keys) - len(shown)


def _range(result: Result, lives: Sequence[Life]) -> tuple[int, int]:
    """Return the first and the last time of all rows and alerts."""
    times = [life.start_us for life in lives] + [result.end_of(life) for life in lives]
    times += [time for time in (result.oldest_us, result.newest_us) if time is not None]
    return min(times, default=0), max(times, default=1)


def _bars(drawing: Drawing, result: Result, lives: Sequence[Life], x: Scale, y: float) -> None:
    drawn: list[tuple[float, float, Life, int]] = []
    for life in sorted(lives, key=lambda one: one.start_us):
        begin, end = x(life.start_us), x(result.end_of(life))
        if drawn and len(lives) > _MOST_BARS and begin - drawn[-1][1] < 1 and life.is_late == drawn[-1][2].is_late:
            first, last, one, count = drawn[-1]
            drawn[-1] = (first, max(last, end), one, count + 1)
        else:
            drawn.append((begin, end, life, 1))
    for begin, end, life, count in drawn:
        hint = _hint(result, life) if count == 1 else f"{count:,} alerts from {format_event_time(life.start_us)} on"
        drawing.box(begin, y + 4, max(end - begin, 2), ROW - 8, kind_of(life.state, is_late=life.is_late), hint)


def kind_of(state: str, *, is_late: bool) -> str:
    """Return the CSS class of an alert: `late`, `match` or `firing`."""
    return "late" if is_late else MATCH if state == MATCH else "firing"


def _hint(result: Result, life: Life) -> str:
    length = format_duration(result.end_of(life) - life.start_us)
    end = f"still open after {length}" if life.end_us is None else f"to {format_event_time(life.end_us)} ({length})"
    margin = f"margin {format_number(life.margin)}"
    return f"{format_event_time(life.start_us)} {end}, {margin}{', late alert' * life.is_late}"


def _length(result: Result, lives: Sequence[Life]) -> int:
    return sum(result.end_of(life) - life.start_us + 1 for life in lives)
