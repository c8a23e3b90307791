"""How late the rows of a stream came: a bar per class of delays, which double; rows ahead of the clock apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from tocsin.report.svg import Drawing
from tocsin.rundir.delays import AHEAD, NONE, delay_class
from tocsin.trace.words import rounded

_CLASS = re.compile(r"-?[0-9]{1,4}")
WIDTH, LEFT, RIGHT, ROW, TOP = 640, 130, 120, 22, 6


class Class(NamedTuple):
    """A class of delays: in words, how many rows, which share of all, and whether its rows came from the future."""

    words: str
    rows: int
    share: float
    is_ahead: bool


def classes_of(counts: Mapping[str, int]) -> list[Class]:
    """The records: every class from the first that has rows to the last."""
    found = {int(name): number for name, number in counts.items() if _CLASS.fullmatch(name) and number > 0}
    found = {number: rows for number, rows in found.items() if AHEAD <= number <= 64}
    whole = sum(found.values())
    usual = [number for number in found if number != AHEAD]
    numbers = [AHEAD] * (AHEAD in found) + list(range(min(usual), max(usual) + 1) if usual else [])
    return [_class(number, found.get(number, 0), whole) for number in numbers]


def _class(number: int, rows: int, whole: int) -> Class:
    low, high = delay_class(number)
    words = "ahead of the clock" if number == AHEAD else f"up to {_written(high)}"
    words = words if number in {AHEAD, NONE} else f"{_written(low)} to {_written(high)}"
    return Class(words, rows, rows / whole if whole else 0.0, number == AHEAD)


def _written(seconds: float) -> str:
    """Two digits are enough where lengths double.

    >>> _written(0.256), _written(1.024), _written(65.536)
    ('256ms', '1s', '1m6s')
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g}ms"
    return f"{seconds:.2g}s" if seconds < 60 else rounded(round(seconds) * 1_000_000)


def delays(classes: Sequence[Class]) -> Markup:
    """Draw a bar per class, the shortest delays first."""
    whole = sum(one.rows for one in classes)
    drawing = Drawing(WIDTH, TOP * 2 + ROW * max(len(classes), 1), f"how late {whole:,} rows came, by classes")
    most = max((one.rows for one in classes), default=1) or 1
    for place, one in enumerate(classes):
        y = TOP + ROW * place
        drawing.text(LEFT - 8, y + 14, one.words, "tick", "end")
        width = (WIDTH - LEFT - RIGHT) * one.rows / most
        drawing.box(LEFT, y + 3, max(width, 1.5) if one.rows else 0.0, ROW - 7, "ahead" if one.is_ahead else "bar")
        drawing.text(
            LEFT + width + 6, y + 14, f"{one.rows:,} ({100 * one.share:.1f} %)" if one.rows else "none", "tick"
        )
    return drawing.markup()
