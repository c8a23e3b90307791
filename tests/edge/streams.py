"""Hypothesis: rows of one key or several, in order and not, with ties, repetitions, gaps and clocks set back."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tocsin.edge.reducer import Rows
from tocsin.edge.settings import Settings

SHAPES = ("increasing", "decreasing", "quasiconvex")


@dataclass(frozen=True)
class Stream:
    """Rows as they arrive, with the settings under which they are reduced."""

    keys: list[str]
    t: list[int]
    values: list[list[float]]
    settings: Settings

    def rows(self, start: int = 0, stop: int | None = None) -> Rows:
        """Give a part as the reducer takes it; the line of a row is its number."""
        part = slice(start, len(self.t) if stop is None else stop)
        numbers = list(range(len(self.t)))[part]
        lines = [b"%d\n" % number for number in numbers]
        return Rows(self.keys[part], self.t[part], [column[part] for column in self.values], lines, numbers)


@st.composite
def streams(draw: st.DrawFn, most: int = 16, *, in_order: bool = False, keys: int = 1, whole: bool = False) -> Stream:
    """Draw a stream; `whole` holds as long as the interval."""
    length = draw(st.integers(1, 6))
    hold = length if whole else draw(st.integers(0, length))
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=1 if whole else 2))
    values = tuple(f"v{place}" for place in range(len(shapes)))
    settings = Settings("t", values, length, hold, tuple(shapes))
    count = draw(st.integers(0, most))
    steps = st.sampled_from((0, 1, 1, 1, 2, 3, 7) if in_order else (0, 1, 1, 1, 2, 3, 7, -1, -2, -4, -20))
    t, now = [], 0
    for step in draw(st.lists(steps, min_size=count, max_size=count)):
        now += step
        t.append(now)
    number = st.integers(0, 3).map(float)
    columns = [draw(st.lists(number, min_size=count, max_size=count)) for _ in shapes]
    names = draw(st.lists(st.sampled_from("abc"[:keys]), min_size=count, max_size=count)) if keys > 1 else []
    return Stream(names, t, columns, settings)
