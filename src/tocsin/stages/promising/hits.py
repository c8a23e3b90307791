"""Hits: how many results a pair of rows gives, learnt by key, for what promises most.

Idea: summaries say how many pairs a key has; how many of them a condition calls true differs by key as well. So pairs
that were tried and results that they gave are counted in a table by the key's number, and a ratio is taken of them,
drawn to what is typical of keys while few pairs were tried. What is learnt takes effect with the next block of arrivals
(`settle`), so that no cut into calls shows; what is old counts ever less. Pairs that there are, tried or not, are
counted by place too: with the ratios they say how many results there were to find.
Guarantee: none but that the same pairs in the same blocks give the same ratios. Keys that fall into one place share it.
Cost: O(1) per pair and per row; `SLOTS` places, or as many as are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import Float, Int

SLOTS = 1024
# As many pairs of the typical ratio are believed to have been tried with each key.
PRIOR = 4.0
# The most pairs of a key that count for what is typical.
MOST = 32.0
# After a block, what was learnt before counts for this much.
KEEP = 0.98
_WRITTEN = ("tried", "given", "there", "close")


class Hits:
    """Pairs tried and results given, by place: what holds, and what was learnt since; pairs that there were since.

    `close` are pairs tried, of all places, whose rows were near enough to each other.
    """

    def __init__(self, slots: int = SLOTS) -> None:
        self.slots = slots
        self.tried, self.given, self.there = np.zeros((2, slots)), np.zeros((2, slots)), np.zeros(slots)
        self.close = np.zeros(2)
        self._known: Float | None = None

    @property
    def near(self) -> float:
        """The share of pairs tried whose rows are near enough to each other to be evaluated; one at first."""
        return float((self.close[0] + 1.0) / (self.tried[0].sum() + 1.0))

    @property
    def mean(self) -> float:
        """Results of a pair that is tried; one at first."""
        return float((self.given[0].sum() + 1.0) / (self.tried[0].sum() + 1.0))

    @property
    def learnt(self) -> tuple[float, float, float]:
        """Of what has not taken effect: pairs tried, those near enough, results."""
        return float(self.tried[1].sum()), float(self.close[1]), float(self.given[1].sum())

    @property
    def typical(self) -> float:
        """Results of a pair of any key: keys that promise much are tried more, so none counts for much more."""
        weight = np.minimum(self.tried[0], MOST)
        ratio = self.given[0] / np.maximum(self.tried[0], 1e-9)
        return float((weight @ ratio + 1.0) / (weight.sum() + 1.0))

    def ratios(self, keys: Int) -> Float:
        """The results that a pair of each key is to give."""
        return np.asarray(self._ratios()[keys % self.slots])

    def _ratios(self) -> Float:
        """The ratios of all places; they stay as they are until what was learnt takes effect."""
        if self._known is None:
            self._known = np.asarray((self.given[0] + PRIOR * self.typical) / (self.tried[0] + PRIOR))
        return self._known

    def meet(self, keys: Int, pairs: Int) -> None:
        """Learn how many pairs there are, tried or not, by key."""
        self.there += np.bincount(keys % self.slots, pairs, self.slots)

    def learn(self, keys: Int, given: Float, near: int) -> None:
        """Learn of pairs, by key, how many results each gave; so many of them were near enough."""
        place = keys % self.slots
        self.close[1] += near
        self.tried[1] += np.bincount(place, minlength=self.slots)
        self.given[1] += np.bincount(place, given, self.slots)

    def settle(self) -> float:
        """Let what was learnt take effect; gives the results that all pairs since the last time are to have."""
        for counts in (self.tried, self.given, self.close):
            counts[0] = counts[0] * KEEP + counts[1]
            counts[1] = 0.0
        self._known = None
        expected = float(self.there @ self._ratios())
        self.there[:] = 0.0
        return expected

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        return {f"hits.{name}": getattr(self, name) for name in _WRITTEN}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """State that was written."""
        self.tried, self.given, self.there, self.close = (arrays[f"hits.{name}"] for name in _WRITTEN)
        self._known = None
