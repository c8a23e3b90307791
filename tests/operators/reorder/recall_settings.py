"""Settings for the model of recall, drawn at random: delays, windows, skews, productivity, in small whole numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from naive import disorder as naive
from tocsin.operators.reorder.recall_model import RecallModel, build_model, new_shape

BINS = 12
# P, L, g and b of the paper, and bins for 82 s.
PAPER = {"over_us": 60_000_000, "every_us": 1_000_000, "grain_us": 10_000, "basic_us": 10_000, "bins": 8192}


@dataclass(frozen=True)
class Setting:
    """What the model of recall is made from; histograms and maps by coarse delay."""

    histograms: list[dict[int, int]]
    windows: list[int]
    syncs: list[int]
    basic: int
    grain: int
    cross: dict[int, int] = field(default_factory=dict)
    results: dict[int, int] = field(default_factory=dict)

    def model(self) -> RecallModel:
        histograms = np.array([[h.get(d, 0) for d in range(BINS)] for h in self.histograms], np.int64)
        largest = np.array([max((d for d, n in h.items() if n), default=-1) for h in self.histograms], np.int64)
        end = max([*self.cross, *self.results], default=-1) + 1
        cross, results = (np.array([by.get(d, 0) for d in range(end)], np.float64) for by in (self.cross, self.results))
        shape = new_shape(np.array(self.windows, np.int64), self.basic, self.grain)
        return build_model(shape, histograms, largest, np.array(self.syncs, np.int64), cross, results)

    def recalls(self, *, by_delay: bool) -> list[Fraction]:
        """Eq. 5 for every K that Alg. 3 may try, and some more, in grains."""
        waits = [wait * self.grain for wait in range(BINS + 3)]
        given = (self.histograms, self.windows, self.syncs)
        return [
            naive.recall(*given, wait, self.basic, self.grain)
            * (naive.selectivity_ratio(self.cross, self.results, wait, self.grain) if by_delay else 1)
            for wait in waits
        ]

    def next_wait(self, required: float, *, by_delay: bool) -> tuple[int, list[Fraction]]:
        maps = (self.cross, self.results) if by_delay else None
        given = (self.histograms, self.windows, self.syncs, self.basic, self.grain)
        return naive.next_wait(*given, Fraction(required), maps)


histograms = st.dictionaries(st.integers(0, BINS - 1), st.integers(0, 50), max_size=6)
maps = st.dictionaries(st.integers(0, BINS - 1), st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=6)


@st.composite
def settings_of_disorder(draw: st.DrawFn) -> Setting:
    """One to four streams; some delivered nothing; basic windows and grains of any two lengths."""
    streams = draw(st.integers(1, 4))
    by_delay = draw(maps)
    return Setting(
        [draw(histograms) for _ in range(streams)],
        [draw(st.integers(0, 60)) for _ in range(streams)],
        [draw(st.integers(0, 25)) for _ in range(streams)],
        draw(st.integers(1, 12)),
        draw(st.integers(1, 12)),
        {d: results + more for d, (results, more) in by_delay.items()},
        {d: results for d, (results, _) in by_delay.items()},
    )
