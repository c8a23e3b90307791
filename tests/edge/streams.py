"""Hypothesis strategies: rows of one or several keys, with ties, gaps, and out-of-order rows up to a clock reset."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tocsin.edge.keyed_reducer import KeyedRows
from tocsin.edge.settings import Settings

SHAPES = ("increasing", "decreasing", "quasiconvex")


@dataclass(frozen=True)
class Stream:
    """Rows in arrival order, and the settings of their reduction."""

    keys: list[str]
    t: list[int]
    values: list[list[float]]
    settings: Settings

    def rows(self, start: int = 0, stop: int | None = None) -> KeyedRows:
        """Return a slice as input of the keyed reducer. Line and serial number are the index of the row."""
        part = slice(start, len(self.t) if stop is None else stop)
        numbers = list(range(len(self.t)))[part]
        lines = [b"%d\n" % number for number in numbers]
        return KeyedRows(self.keys[part], self.t[part], [column[part] for column in self.values], lines, numbers)


@st.composite
def streams(
    draw: st.DrawFn, max_rows: int = 16, *, in_order: bool = False, keys: int = 1, is_full_delay: bool = False
) -> Stream:
    """Draw a stream with at most `keys` keys; one key has no name.

    With `is_full_delay`, the stream has one value field, and its maximum delay is the interval.
    """
    length = draw(st.integers(1, 6))
    max_delay = length if is_full_delay else draw(st.integers(0, length))
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=1 if is_full_delay else 2))
    values = tuple(f"v{index}" for index in range(len(shapes)))
    settings = Settings("t", values, length, max_delay, tuple(shapes))
    count = draw(st.integers(0, max_rows))
    steps = st.sampled_from((0, 1, 1, 1, 2, 3, 7) if in_order else (0, 1, 1, 1, 2, 3, 7, -1, -2, -4, -20))
    t, now = [], 0
    for step in draw(st.lists(steps, min_size=count, max_size=count)):
        now += step
        t.append(now)
    number = st.integers(0, 3).map(float)
    columns = [draw(st.lists(number, min_size=count, max_size=count)) for _ in shapes]
    names = draw(st.lists(st.sampled_from("abc"[:keys]), min_size=count, max_size=count)) if keys > 1 else []
    return Stream(names, t, columns, settings)
