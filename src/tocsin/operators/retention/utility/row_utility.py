"""Row utility: the expected results of the rows of two streams, learned from the rows in order of arrival.

Algorithm: `StreamMonitor` measures frequencies of keys and lifetimes of sampled rows. After every `EVERY` rows, the
models choose a policy for each lane: PROB, AGE or RECENT. They also divide the memory between the lanes, so that the
last byte of each lane has the same benefit. If no model fits a lane, its newest rows have the largest utility, and
nothing is predicted. If a model fits one lane only, a row of the other lane has the average utility of its lane.

Guarantees: the result depends on the rows in order of arrival and not on batch boundaries.

Complexity: `size` bytes at most; the models use a tenth of the memory and at most a megabyte.

References: Srivastava, Widom, VLDB 2004, sections 2.3 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.operators.retention.shedding import BY_AGE, BY_KEY, BY_TIME, NO_TICK, Utilities
from tocsin.operators.retention.utility.frequency_model import rate_curve
from tocsin.operators.retention.utility.memory_curves import RateCurve, divide, together, told
from tocsin.operators.retention.utility.model_selection import Choice
from tocsin.operators.retention.utility.space_saving import Shares, shares_of
from tocsin.operators.retention.utility.stream_monitor import Monitor
from tocsin.plan.budget import GRANULES, Budget
from tocsin.rules.quality import AUTO, BYTES, MODEL_WORDS
from tocsin.runtime.contract import Bools, Float, Int

# After so many rows models are judged anew.
EVERY = 2_000
RECENT, AGE, PROB = "RECENT", "AGE", "PROB"
_CODES = (RECENT, AGE, PROB)
_SOURCES = {RECENT: BY_TIME, AGE: BY_AGE, PROB: BY_KEY}
# Standard error of a recall that only curves predict, and standard errors on each side of an interval.
_UNKNOWN_ERROR, _INTERVAL = 0.1, 2.0
# Bytes of a model for each life that is known, with the rows watched and the counters that go with it; and for each
# granule of age, of which that has 20; and of what a sampler knows of as many counters.
_PER_LIFE, _PER_GRANULE, _PER_SAMPLED = 4_400, 24, 256
_FEWEST_LIVES, _MOST_LIVES = 8, 250


def row_utility_of(budget: Budget, *, is_unreduced: bool) -> RowUtility | None:
    """Models for a budget, if a tenth of it is enough for them; at most a megabyte."""
    each = _PER_LIFE + _PER_GRANULE * (budget.granules - GRANULES) + _PER_SAMPLED * budget.samples
    room = _MOST_LIVES * _PER_LIFE
    if budget.memory.unit == BYTES:
        least = min(budget.share // 4, _FEWEST_LIVES * each) if is_unreduced else 0
        room = min(room, max(budget.share // 10, least))
    lives = room // each
    return RowUtility(budget.windows_us, lives, budget.granules, budget.model.by) if lives >= _FEWEST_LIVES else None


class RowUtility:
    """The models of a bucket, the policy of each lane, and the share of memory that each lane has."""

    def __init__(self, windows_us: Sequence[int], lives: int, granules: int = GRANULES, by: str = AUTO) -> None:
        """Learn from so many lives of each lane."""
        self.windows_us = list(windows_us)
        windows = self.windows_us[0], self.windows_us[1]
        self.granules = granules
        self.monitor = Monitor(windows, granules, room=lives, lives=2 * lives, counters=8 * lives, by=by)
        self.policy = [RECENT, RECENT]
        self.priorities = np.zeros((2, granules))
        # The share of memory that the first lane has, where models say so, and the recall that is predicted.
        self.split = self.predicted = self.error = float("nan")
        self.judged = 0
        self.points = np.zeros((0, 2))
        # Standard error of the predicted recall.
        self.error = float("nan")
        self.shares = [self.monitor.shares_now(lane) for lane in (0, 1)]

    def learn(
        self, lane: Int, time: Int, key: Int, stamp: Int, lost: Bools, shed: tuple[Int, Int, Int] | None = None
    ) -> None:
        """Observe rows in order of arrival, each with a time that never decreases. Lost rows were shed on arrival.

        `shed` are rows that were shed: the row after which a row was shed, its lane and its stamp.
        """
        self.monitor.take(lane, time, key, stamp, lost, shed)
        del self.monitor.drifts[:-16]

    def is_due(self) -> bool:
        """Tell whether models are to be judged anew."""
        return self.monitor.received - self.judged >= EVERY

    def judge(self, memory: float, row_bytes: Sequence[float]) -> None:
        """Choose policies for so many bytes, of which rows of each lane take so many each.

        What fits is asked with half of the memory each; then, with what each lane has, what is best.
        """
        self.judged = self.monitor.received
        choices = [self.monitor.choice(lane, memory / 2 / each) for lane, each in enumerate(row_bytes)]
        curves = [self._curve(lane, choice.model, row_bytes[lane]) for lane, choice in enumerate(choices)]
        known = {lane: curve for lane, curve in enumerate(curves) if curve is not None and curve.most > 0}
        every = [known[lane] if lane in known else self._line(lane, row_bytes[lane]) for lane in (0, 1)]
        divided = [curve for curve in every if curve is not None] if known else []
        self.split = self.predicted = self.error = float("nan")
        self.points = np.zeros((0, 2))
        if len(divided) == len(every):
            shares = divide(divided, memory)
            self.split = shares[0] / max(sum(shares), 1.0)
            choices = [self.monitor.choice(lane, shares[lane] / each) for lane, each in enumerate(row_bytes)]
            if all(lane in known or not self.monitor.lives(lane).met.any() for lane in (0, 1)):
                self._predict(known, shares, choices)
        self.policy = [choice.policy for choice in choices]
        self.priorities = np.array([self.monitor.age_curve(lane).priorities() for lane in (0, 1)])
        self.shares = [self.monitor.shares_now(lane) for lane in (0, 1)]

    def _predict(self, known: Mapping[int, RateCurve], shares: Sequence[float], choices: Sequence[Choice]) -> None:
        """Foretell what the lanes that have results find: with these shares as tried on lives, else as curves say."""
        whole, found, variance = together(list(known.values())), 0.0, 0.0
        for lane, curve in known.items():
            choice = choices[lane]
            share = None if choice.recall is None else min(choice.recall[choice.policy], 1.0)
            found += curve.rate_at(shares[lane]) if share is None else curve.most * share
            error = _UNKNOWN_ERROR if choice.error is None else choice.error[choice.policy]
            variance += (curve.most * error) ** 2
        self.predicted, self.error = found / whole.most, float(np.sqrt(variance)) / whole.most
        self.points = told(whole.memory, whole.rate / whole.most)

    def utilities(self, share: float) -> Utilities:
        """Return the order of the rows of both lanes, with rows that cost at most `share`."""
        width = [max(window // self.granules, 1) for window in self.windows_us]
        # A lane whose window is shorter than a tick is exact only in order of time.
        tick = max(max(self.windows_us) // max(self.granules, GRANULES), 1)
        policies = [policy if self.learns else RECENT for policy in self.policy]
        source = [
            _SOURCES[policy] if window >= tick else BY_TIME
            for policy, window in zip(policies, self.windows_us, strict=True)
        ]
        tick = tick if any(one != BY_TIME for one in source) else NO_TICK
        target = [share * self.split, share * (1 - self.split)] if self.learns else []
        priorities = np.column_stack([self.priorities, np.zeros(len(self.priorities))])
        window = np.array(self.windows_us, np.int64)
        return Utilities(
            np.array(source), window, priorities, np.array(width), tick, np.array(target, np.float64), np.inf,
            is_sampled=False,
        )  # fmt: skip

    def expected_results(self, lane: int, key: Int) -> Float:
        """Return the utility by key of rows of a lane, with the frequencies of the last judgement."""
        return shares_of(self.shares[1 - lane], key)

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

    def _line(self, lane: int, row_bytes: float) -> RateCurve | None:
        """What memory in bytes buys where all rows are worth the same; None: no life is over.

        Lives that met nothing may be few: it is taken that the next one would have met a row.
        """
        lives, own, window = self.monitor.lives(lane), self.monitor.rate(lane), self.windows_us[lane]
        n = max(int(lives.met.sum()), 1) / max(len(lives.time), 1)
        return RateCurve(np.array([0.0, own * window * row_bytes]), np.array([0.0, own * n])) if own > 0 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval that has the recall with a probability of about 95 %, or None if nothing is predicted."""
        if np.isnan(self.predicted):
            return None
        margin = _INTERVAL * self.error
        return max(self.predicted - margin, 0.0), min(self.predicted + margin, 1.0)

    @property
    def learns(self) -> bool:
        """Tell whether models say how memory is divided."""
        return not np.isnan(self.split)

    def lose(self, lane: int, stamp: Int) -> None:
        """Learn which rows were shed."""
        self.monitor.lose(lane, stamp)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        codes = np.array(
            [*(_CODES.index(policy) for policy in self.policy), self.judged, MODEL_WORDS.index(self.monitor.by)]
        )
        numbers = np.array([self.split, self.predicted, self.error])
        mine: dict[str, NDArray[Any]] = {"codes": codes, "numbers": numbers, "priorities": self.priorities}
        mine["points"] = self.points
        mine["shares.key"] = np.stack([one.key for one in self.shares])
        mine["shares.share"] = np.stack([one.share for one in self.shares])
        return mine | {f"monitor.{name}": array for name, array in self.monitor.arrays().items()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """State that was written; models of other sizes begin anew."""
        mine = {name.removeprefix("monitor."): part for name, part in arrays.items() if name.startswith("monitor.")}
        fresh = self.monitor.arrays()
        if mine.keys() != fresh.keys() or any(mine[name].shape != fresh[name].shape for name in fresh):
            return
        self.monitor.load(mine)
        first, second, judged, *by = arrays["codes"].tolist()
        if (MODEL_WORDS[by[0]] if by else AUTO) == self.monitor.by:  # Else it is judged anew by what the rule says now.
            self.judged, self.policy = judged, [_CODES[first], _CODES[second]]
            self.split, self.predicted, self.error = arrays["numbers"].tolist()
            self.shares = [Shares(*parts) for parts in zip(arrays["shares.key"], arrays["shares.share"], strict=True)]
            self.priorities, self.points = arrays["priorities"], arrays["points"]


def _spread(every: Int, keys: Int, frequencies: Float) -> Float:
    """Frequencies by the keys of both streams; 0 where a stream does not know one."""
    spread = np.zeros(len(every))
    spread[np.searchsorted(every, keys)] = frequencies
    return spread
