"""Allot: divide what a run may keep over its joins and buckets, by what memory buys in each.

    bucket → Out.reports → Allotment (in the engine, between calls) → control rows → on_control of that bucket

Idea: every bucket tells its share, how much it would use, and which share of its results memory buys
(`row_utility.py`; where
no model fits, as many as memory), or, where results are sampled, with which error (`row_sampling.py`; where no model
fits,
that of rows which all give equally many). ALLOC then finds the memory of each join so that the least recall by weight
is as large, and the largest weighted error as small, as can be. Recall and error cannot be weighed against each other:
joins that sample and joins that do not have pools of their own, in proportion to what they would use. Within a join,
buckets get what finds most, or what makes its estimates closest. A join with memory of its own is divided over its
buckets in the same way.
Guarantee: the shares in force never add up to more than the memory, at any moment, however calls fail and are repeated:
a share is lowered first, and what that frees is given away only when the bucket has told that it keeps to it. Nothing
is given before every bucket has told its share, as after a start.
Cost: per watch and bucket one curve; `alloc` when something has changed.
Source: Srivastava, Widom, VLDB 2004, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tocsin.errors import RunError
from tocsin.operators.retention.utility.alloc import alloc_mixed
from tocsin.operators.retention.utility.memory_curves import (
    ErrorCurve,
    RateCurve,
    concave,
    divide,
    divide_errors,
    errors_together,
    together,
)
from tocsin.plan.budget import LEAST, Budget
from tocsin.plan.steps import Watch
from tocsin.runtime.memory_pool import Share

# A share that differs by less than this part of it is not worth telling: each costs a file and a call.
WORTH_TELLING = 1 / 16

Place = tuple[str, int]


def read_share(row: Mapping[str, Any]) -> Share:
    """Read a control row, or refuse it."""
    share = row.get("share")
    texts = [row.get(name) for name in ("watch", "terms")]
    named = row.keys() == set(Share._fields) and all(isinstance(text, str) for text in texts)
    if not named or type(share) is not int or share < 1:
        message = f"control rows must address a pipeline of the plan; no pipeline accepts {row!r}"
        raise RunError(message)
    return Share(row["watch"], share, row["terms"])


class Told(NamedTuple):
    """What a bucket has told: its share, what its models and one page take, what it would use, and what that buys.

    `points` have memory and recall, or, of a sample, memory and error; `results` is of how many results. `rows` are
    remembered in what is `used`.
    """

    share: int
    fixed: int
    need: int
    points: Sequence[tuple[float, float]]
    results: float = 0.0
    rows: int = 1
    used: int = 1

    @property
    def curve(self) -> RateCurve:
        """Results by memory beyond `fixed`: as the models say, else in proportion; a bucket counts by what it uses."""
        need = max(float(self.need), 1.0)
        if len(self.points) < 2:
            return RateCurve(np.array([0.0, need]), np.array([0.0, need]))
        memory, recall = np.array(self.points, np.float64).T
        scale = need / max(float(memory[-1]), 1.0)
        return concave(memory * scale, recall * need)

    @property
    def errors(self) -> ErrorCurve:
        """Errors by memory beyond `fixed`: as the models say, else those of rows that all give equally many results."""
        need = max(float(self.need), 1.0)
        if len(self.points) < 2:
            share = np.geomspace(1 / 512, 1.0, 32)
            rows = max(need * self.rows / max(self.used, 1), 1.0)
            return ErrorCurve(need * share, np.sqrt((1 - share) / (share * rows)))
        memory, error = np.array(self.points, np.float64).T
        return ErrorCurve(memory * need / max(float(memory[-1]), 1.0), error)


class Sampled(NamedTuple):
    """The buckets of a join that samples: the errors of each, and how much each counts."""

    curves: list[ErrorCurve]
    results: list[float]

    @classmethod
    def of(cls, told: Sequence[Told]) -> Sampled:
        """Buckets count by their results; where one does not know them, by what they use."""
        known = all(one.results > 0 and len(one.points) > 1 for one in told)
        return cls([one.errors for one in told], [one.results if known else max(one.need, 1.0) for one in told])


class Allotment:
    """What the buckets of a plan have told, and what each has been given."""

    def __init__(self, watches: Iterable[Watch]) -> None:
        watches = tuple(watches)
        self.alerts = {watch.name: sorted({rule.alert for rule in watch.rules}) for watch in watches}
        budgets = {watch.name: watch.budget for watch in watches}
        self.budgets = {name: budget for name, budget in budgets.items() if budget is not None and budget.told}
        self.told: dict[Place, Told] = {}
        # The most that each bucket may have at this moment: its share, or what it was given and has not told yet.
        self.given: dict[Place, int] = {}
        # Shares that were given and are not told yet.
        self.growing: dict[Place, int] = {}
        # Places that were asked to give up memory and have not told yet that they did.
        self.lowered: set[Place] = set()
        # What places were asked to shrink to that could not yet: open alerts are kept. They shrink as these end.
        self.asked: dict[Place, int] = {}
        self.news = False

    def hear(self, bucket: int, told: Mapping[str, Any]) -> None:
        """Take what a bucket told."""
        place = (told["watch"], bucket)
        if told["watch"] in self.budgets:
            self.told[place] = Told(**{name: told[name] for name in Told._fields if name in told})
            # What was given may be on its way still; what was lowered holds from now on.
            self.lowered.discard(place)
            if told["share"] <= self.asked.get(place, 0):
                self.asked.pop(place)
            if told["share"] >= self.growing.get(place, 0):
                self.growing.pop(place, None)
            self.given[place] = self.growing.get(place, told["share"])
            self.news = True

    def rows(self) -> list[dict[str, Any]]:
        """Control rows, each for one bucket: shares that are lower, and higher ones as far as there is room."""
        if not self.news or any(not self._all_told(name) for name in self.budgets):
            return []
        self.news = False
        rows: list[dict[str, Any]] = []
        for pool in self._pools():
            rows += self._move(pool)
        return rows

    def _all_told(self, name: str) -> bool:
        return sum(watch == name for watch, _ in self.told) == self.budgets[name].buckets

    def _pools(self) -> list[list[str]]:
        """Watches that share memory: those that share that of the run, and each that has its own."""
        pooled = [name for name, budget in self.budgets.items() if budget.pooled]
        return [mine for mine in [pooled, *([name] for name in self.budgets if name not in pooled)] if mine]

    def _move(self, pool: Sequence[str]) -> list[dict[str, Any]]:
        total = sum(self.budgets[name].memory.amount for name in pool)
        wanted = self._wanted(pool, total)
        rows, free = [], total - sum(self.given[place] for place in wanted)
        for place, share in wanted.items():
            settled = place not in self.growing and place not in self.lowered
            if settled and share < (1 - WORTH_TELLING) * self.asked.get(place, self.given[place]):
                self.lowered.add(place)
                self.asked[place] = share
                rows.append(self._row(place, share))
        for place, share in wanted.items():
            more = 0 if place in self.lowered else min(share - self.given[place], free)
            if more > WORTH_TELLING * self.given[place]:
                self.given[place] += more
                self.growing[place] = self.given[place]
                self.asked.pop(place, None)
                free -= more
                rows.append(self._row(place, self.given[place]))
        return rows

    def _wanted(self, pool: Sequence[str], total: int) -> dict[Place, int]:
        """The best shares: what no bucket can use is divided evenly."""
        places = {name: sorted(place for place in self.told if place[0] == name) for name in pool}
        fixed = {place: self._least(place) for mine in places.values() for place in mine}
        room = total - sum(fixed.values())
        if room <= 0:
            return {place: self.told[place].share for place in fixed}
        told = {name: [self.told[place] for place in mine] for name, mine in places.items()}
        subsets = {name: [one.curve for one in told[name]] for name in pool if not self.budgets[name].samples}
        samples = {name: Sampled.of(told[name]) for name in pool if name not in subsets}
        found = self._alloc(subsets, samples, room)
        wanted = {}
        for name, amount in found.items():
            if name in subsets:
                parts = divide(subsets[name], amount)
            else:
                parts = divide_errors(*samples[name], amount)
            for place, part in zip(places[name], parts, strict=True):
                wanted[place] = fixed[place] + int(part)
        spare = max(total - sum(wanted.values()), 0) // max(len(wanted), 1)
        return {place: share + spare for place, share in wanted.items()}

    def _alloc(
        self, subsets: Mapping[str, Sequence[RateCurve]], samples: Mapping[str, Sampled], room: float
    ) -> dict[str, float]:
        """The memory of each join."""
        recalls = [together(curves) for curves in subsets.values()]
        needs = [lambda quality, curve=curve: curve.memory_for(quality * curve.most) for curve in recalls]
        errors = [errors_together(*of).memory_for for of in samples.values()]
        first, second = ([self.budgets[name].weight for name in names] for names in (subsets, samples))
        found = alloc_mixed(needs, errors, room, (first, second))
        return dict(zip([*subsets, *samples], [*found.subsets, *found.samples], strict=True))

    @property
    def shares(self) -> dict[str, int]:
        """By alert, what all buckets of its join may keep, as far as they have told."""
        whole: dict[str, int] = {}
        for (name, _), told in self.told.items():
            for alert in self.alerts[name]:
                whole[alert] = whole.get(alert, 0) + told.share
        return whole

    def _least(self, place: Place) -> int:
        """What a bucket has in any case."""
        budget: Budget = self.budgets[place[0]]
        return min(max(LEAST[budget.memory.unit], self.told[place].fixed * 2), budget.share)

    def _row(self, place: Place, share: int) -> dict[str, Any]:
        return {"bucket": place[1], **Share(place[0], share, self.budgets[place[0]].terms)._asdict()}
