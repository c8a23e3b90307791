"""Worth: what the rows of a watch with two lanes are worth to each other, learnt from the rows as they come.

Idea: the models of the streams (`stages/memory`) say, per lane, how many results a row gives by its key or its age,
which of the two fits, and how memory is best divided between the lanes. They are judged anew after every `EVERY` rows.
Where neither fits nothing is predicted, and the newest rows stay.
Guarantee: all of it follows from the rows in order of arrival; a cut into calls does not show.
Cost: `size` bytes at most; the models are a tenth of the memory, and no more than a megabyte.
Source: Srivastava, Widom, VLDB 2004, sections 2.3 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.logic import Bools, Float, Int
from tocsin.stages.memory.curves import RateCurve, divide, together
from tocsin.stages.memory.frequencies import frequency_of
from tocsin.stages.memory.frequency import rate_curve
from tocsin.stages.memory.going import PAST, first_to_go, worth_by_age
from tocsin.stages.memory.monitor import Monitor

# After so many rows models are judged anew.
EVERY = 2_000
# Granules of age in a window.
GRANULES = 20
RECENT, AGE, PROB = "RECENT", "AGE", "PROB"
_CODES = (RECENT, AGE, PROB)
# Bytes of a model for each life that is known, with the rows watched and the counters that go with it.
_PER_LIFE = 4_300
_MOST_LIVES = 250
# Points of a curve that are told to others.
_POINTS = 17


class Rows(NamedTuple):
    """Rows of one lane that are remembered: event time and key, which is a number that is hers alone."""

    time: Int
    key: Int


class Worth:
    """The models of a bucket, the policy of each lane, and the share of memory that each lane has."""

    # The least and the most bytes that models are learnt with.
    LEAST, MOST = 8 * _PER_LIFE, _MOST_LIVES * _PER_LIFE

    def __init__(self, windows_us: Sequence[int], room: int) -> None:
        """Learn with about so many bytes."""
        lives = min(room, self.MOST) // _PER_LIFE
        self.windows_us = [max(int(us), 1) for us in windows_us]
        windows = self.windows_us[0], self.windows_us[1]
        self.monitor = Monitor(windows, GRANULES, room=lives, lives=2 * lives, counters=8 * lives)
        self.policy = [RECENT, RECENT]
        self.priorities = np.zeros((2, GRANULES))
        # The share of memory that the first lane has, where models say so, and the recall that is predicted.
        self.split = self.predicted = float("nan")
        self.judged = 0
        self.points = np.zeros((0, 2))

    def learn(self, lane: Int, time: Int, key: Int, stamp: Int) -> None:
        """Learn of rows in order of arrival, each at a time that never goes back."""
        self.monitor.take(lane, time, key, stamp)
        del self.monitor.drifts[:-16]

    def is_due(self) -> bool:
        """Tell whether models are to be judged anew."""
        return self.monitor.received - self.judged >= EVERY

    def judge(self, memory: float, row_bytes: Sequence[float]) -> None:
        """Choose policies for so many bytes, of which rows of each lane take so many each."""
        self.judged = self.monitor.received
        half = [memory / 2 / each for each in row_bytes]
        choices = [self.monitor.choice(lane, rows) for lane, rows in enumerate(half)]
        self.policy = [choice.policy for choice in choices]
        curves = [self._curve(lane, choice.model, row_bytes[lane]) for lane, choice in enumerate(choices)]
        self.priorities = np.array([self.monitor.age_curve(lane).priorities() for lane in (0, 1)])
        known = [curve for curve in curves if curve is not None and curve.most > 0]
        self.split = self.predicted = float("nan")
        self.points = np.zeros((0, 2))
        if len(known) == 2:
            whole, shares = together(known), divide(known, memory)
            self.split = shares[0] / max(sum(shares), 1.0)
            found = [self._found(lane, shares[lane] / row_bytes[lane], known[lane]) for lane in (0, 1)]
            self.predicted = sum(found) / whole.most
            at = np.unique(np.linspace(0, len(whole.memory) - 1, _POINTS).astype(np.int64))
            self.points = np.stack([whole.memory[at], whole.rate[at] / whole.most], axis=1)

    def _found(self, lane: int, rows: float, curve: RateCurve) -> float:
        """The rate of results that a lane finds with memory for so many rows, as tried on lives."""
        recall = self.monitor.choice(lane, rows).recall
        return curve.most * (0.0 if recall is None else min(recall[self.policy[lane]], 1.0))

    def _curve(self, lane: int, model: str, row_bytes: float) -> RateCurve | None:
        """What memory in bytes buys, by the model that fits."""
        monitor, window = self.monitor, self.windows_us[lane]
        if model == "neither":
            return None
        own, other = monitor.rate(lane), monitor.rate(1 - lane)
        if model == "age":
            curve = monitor.age_curve(lane).rate_curve(own)
        else:
            (keys, f_own), (others, f_others) = monitor.frequencies(lane), monitor.frequencies(1 - lane)
            every = np.union1d(keys, others)
            curve = rate_curve(_spread(every, keys, f_own), _spread(every, others, f_others), own, other, window)
        return RateCurve(curve.memory * row_bytes, curve.rate)

    def order(self, lane: int, rows: Rows, now_us: int) -> Int:
        """Sort rows of a lane by when they are to go."""
        age = now_us - rows.time
        granule = np.zeros(len(age), np.int64)
        rises: Bools = np.zeros(len(age), np.bool_)
        worth = np.zeros(len(age))
        if self.policy[lane] == AGE:
            width = self.windows_us[lane] / GRANULES
            worth, granule, rises = worth_by_age(np.maximum(age, 0), self.priorities[lane], width)
        elif self.policy[lane] == PROB:
            keys, place = np.unique(rows.key, return_inverse=True)
            frequencies = self.monitor.watched[1 - lane].frequencies
            worth = np.array([frequency_of(frequencies, key) for key in keys.tolist()])[place.reshape(-1)]
        worth = np.where(age > self.windows_us[lane], PAST, worth)
        return first_to_go(worth, granule, rises, rows.time, rows.key)

    @property
    def learns(self) -> bool:
        """Tell whether both lanes have a model."""
        return not np.isnan(self.split)

    def lose(self, lane: int, stamp: Int) -> None:
        """Learn which rows were shed."""
        self.monitor.lose(lane, stamp)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        codes = np.array([_CODES.index(policy) for policy in self.policy] + [self.judged])
        numbers = np.array([self.split, self.predicted])
        mine: dict[str, NDArray[Any]] = {"codes": codes, "numbers": numbers, "priorities": self.priorities}
        mine["points"] = self.points
        return mine | {f"monitor.{name}": array for name, array in self.monitor.arrays().items()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """State that was written; models of other sizes begin anew."""
        mine = {name.removeprefix("monitor."): part for name, part in arrays.items() if name.startswith("monitor.")}
        fresh = self.monitor.arrays()
        if mine.keys() != fresh.keys() or any(mine[name].shape != fresh[name].shape for name in fresh):
            return
        self.monitor.load(mine)
        first, second, self.judged = arrays["codes"].tolist()
        self.policy = [_CODES[first], _CODES[second]]
        self.split, self.predicted = arrays["numbers"].tolist()
        self.priorities, self.points = arrays["priorities"], arrays["points"]


def _spread(every: Int, keys: Int, frequencies: Float) -> Float:
    """Frequencies by the keys of both streams; 0 where a stream does not know one."""
    spread = np.zeros(len(every))
    spread[np.searchsorted(every, keys)] = frequencies
    return spread
