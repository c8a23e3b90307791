"""What a window has lost: the weight of expired elements, by query.

Elements expire in the order in which they came, so a range index that is fed with them counts, for a query that is
registered in it just before the first element of its life, exactly those expired elements that had counted for it. A
query whose life is younger than the oldest element that counts has lost nothing; it waits in line.
"""

from __future__ import annotations

import numpy as np

from tocsin.runtime.contract import Int
from tocsin.stages.ranges.index import RangeIndex
from tocsin.stages.ranges.recent import Moments, Recent
from tocsin.stages.ranges.requests import LARGEST_THRESHOLD
from tocsin.stages.ranges.slots import EXPIRED, SINCE, Line, Slots

# Elements that expire in one call of the index: of the largest weight, a quarter of the largest threshold.
MOST = 1 << 18


class Expired:
    """The elements before number `past` of the stream have expired."""

    def __init__(self, dims: int, past: int = 0) -> None:
        self.past = past
        self._index = RangeIndex(dims)
        self._young = Line(SINCE)
        self._waits = False

    def begin(self, slots: Slots, which: Int) -> None:
        """Let lives begin."""
        self._young.add(slots, which)

    def end(self, which: Int) -> None:
        """Let lives end; one that has lost nothing yet is no longer in line, since its slot says otherwise."""
        if len(which):
            self._index.terminate(which)
            self._waits = True

    def lost(self, which: Int) -> Int:
        """Give the weight that lives have lost, or a number that grows with it: only differences count."""
        return np.maximum(self._index.progress(which), 0)

    def advance(self, slots: Slots, recent: Recent, stop: int) -> None:
        """Let the elements before number `stop` expire, and lives end that should have."""
        while self.past < stop or self._waits:
            part = min(stop, self.past + MOST)
            young = self._young.take(slots, part)
            if len(young):
                at = np.maximum(slots.facts[young, SINCE] - self.past, 0)
                self._index.register(young, slots.low[young], slots.high[young], LARGEST_THRESHOLD, at)
            values, weights, _ = recent.part(self.past, part)
            full = self._index.push(values, weights)
            self._waits = False
            for slot, index, total in zip(*(column.tolist() for column in full), strict=True):
                self._begin_sum_anew(slots, slot, total, recent.part(self.past + index + 1, part))
            self.past = part

    def _begin_sum_anew(self, slots: Slots, slot: int, total: int, rest: Moments) -> None:
        """Go on with a life whose losses have reached the largest threshold there is."""
        low, high = slots.low[slot], slots.high[slot]
        inside = ((rest.values >= low) & (rest.values <= high)).all(axis=1)
        slots.facts[slot, EXPIRED] -= total + int(rest.weights[inside].sum())
        self._index.register([slot], low[None], high[None], LARGEST_THRESHOLD)
        self._waits = True
