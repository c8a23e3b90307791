"""Chart of delays: one bar per class of delays, and one for event times in the future. The bounds of classes double."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from tocsin.dashboard.charts.drawing import Drawing
from tocsin.formatting import format_count, format_duration, format_share
from tocsin.run_directory.delay_histogram import AHEAD, NONE, delay_class_bounds

_CLASS = re.compile(r"-?[0-9]{1,4}")
WIDTH, LEFT, RIGHT, ROW, TOP = 640, 150, 140, 22, 6


class Class(NamedTuple):
    """Class of delays: its title, the number and share of its rows, and whether their event times are in the future."""

    words: str
    rows: int
    share: float
    is_ahead: bool


def classes_of(counts: Mapping[str, int]) -> list[Class]:
    """Return all classes between the first and the last class with rows."""
    found = {int(name): number for name, number in counts.items() if _CLASS.fullmatch(name) and number > 0}
    found = {number: rows for number, rows in found.items() if AHEAD <= number <= 64}
    whole = sum(found.values())
    usual = [number for number in found if number != AHEAD]
    numbers = [AHEAD] * (AHEAD in found) + list(range(min(usual), max(usual) + 1) if usual else [])
    return [_class(number, found.get(number, 0), whole) for number in numbers]


def _class(number: int, rows: int, whole: int) -> Class:
    low, high = delay_class_bounds(number)
    words = "in the future" if number == AHEAD else f"up to {_bound(high)}"
    words = words if number in {AHEAD, NONE} else f"{_bound(low)} to {_bound(high)}"
    return Class(words, rows, rows / whole if whole else 0.0, number == AHEAD)


def _bound(seconds: float) -> str:
    """Return a bound of a class of delays. The bounds double, so from one second on two digits are enough.

    >>> _bound(0.256), _bound(1.024), _bound(65.536)
    ('256 ms', '1 s', '1 min 6 s')
    """
    return format_duration((float(f"{seconds:.2g}") if 1 <= seconds < 60 else round(seconds, 3)) * 1e6)


def delays(classes: Sequence[Class]) -> Markup:
    """Draw one bar per class. The class with the shortest delays is first."""
    whole = sum(one.rows for one in classes)
    drawing = Drawing(WIDTH, TOP * 2 + ROW * max(len(classes), 1), f"delay of {format_count(whole, 'row')} by class")
    most = max((one.rows for one in classes), default=1) or 1
    for place, one in enumerate(classes):
        y = TOP + ROW * place
        drawing.text(LEFT - 8, y + 14, one.words, "tick", "end")
        width = (WIDTH - LEFT - RIGHT) * one.rows / most
        drawing.box(LEFT, y + 3, max(width, 1.5) if one.rows else 0.0, ROW - 7, "ahead" if one.is_ahead else "bar")
        drawing.text(
            LEFT + width + 6,
            y + 14,
            f"{format_count(one.rows, 'row')} ({format_share(one.share)})" if one.rows else "0 rows",
            "tick",
        )
    return drawing.markup()
