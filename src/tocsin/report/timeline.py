"""The alerts of one rule over the whole range: a line per key, the busiest first."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tocsin.report.axis import Scale, time_ticks
from tocsin.report.result import Result
from tocsin.report.svg import Drawing
from tocsin.rules.durations import duration_text
from tocsin.trace.model import Life
from tocsin.trace.words import date

WIDTH, LEFT, RIGHT, ROW, TOP, BOTTOM = 960, 190, 12, 20, 6, 24
MOST_KEYS = 20
MATCH = "match"
# More bars than pixels show nothing more: those that fall on one another are drawn as one.
_MOST_BARS = 400


def timeline(
    result: Result, lives: Sequence[Life], on: Sequence[str], axis: tuple[int, int] | None = None
) -> tuple[Markup, int]:
    """Draw the lives of a rule; give the drawing, and how many keys it leaves out.

    `axis` is from when to when it is drawn, if not over the whole range.
    """
    keys: dict[tuple[str, ...], list[Life]] = {}
    for life in lives:
        keys.setdefault(tuple(life.labels.get(column, "") for column in on), []).append(life)
    busiest = sorted(keys, key=lambda key: (-_length(result, keys[key]), key))
    shown = busiest[:MOST_KEYS]
    low, high = axis or _range(result, lives)
    height = TOP + ROW * len(shown) + BOTTOM
    drawing = Drawing(WIDTH, height, f"time line of {len(lives)} alerts of {len(keys)} keys")
    x = Scale(low, high, LEFT, WIDTH - RIGHT)
    base = TOP + ROW * len(shown)
    for time, text in time_ticks(low, high):
        drawing.line(x(time), TOP, x(time), base, "grid")
        drawing.text(x(time), base + 16, text, "tick", "middle")
    for row, key in enumerate(shown):
        y = TOP + ROW * row
        drawing.text(LEFT - 8, y + 14, _cut(", ".join(key) or "all rows"), "label", "end")
        drawing.line(LEFT, y + ROW / 2, WIDTH - RIGHT, y + ROW / 2, "rule")
        _bars(drawing, result, keys[key], x, y)
    return drawing.markup(), len(keys) - len(shown)


def _range(result: Result, lives: Sequence[Life]) -> tuple[int, int]:
    """From the first row to the last, and all alerts."""
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
        hint = _hint(result, life) if count == 1 else f"{count} alerts from {date(life.start_us)}"
        drawing.box(begin, y + 4, max(end - begin, 2), ROW - 8, kind_of(life.state, is_late=life.is_late), hint)


def kind_of(state: str, *, is_late: bool) -> str:
    """How a life is drawn: what was found late and what only matched apart from what fired."""
    return "late" if is_late else MATCH if state == MATCH else "firing"


def _hint(result: Result, life: Life) -> str:
    length = duration_text(result.end_of(life) - life.start_us)
    ends = "not ended" if life.end_us is None else date(life.end_us)
    return f"{date(life.start_us)} to {ends} ({length}), margin {life.margin:.6g}{', late' * life.is_late}"


def _length(result: Result, lives: Sequence[Life]) -> int:
    return sum(result.end_of(life) - life.start_us + 1 for life in lives)


def _cut(text: str, most: int = 26) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
