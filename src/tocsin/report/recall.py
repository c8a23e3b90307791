"""Recall of rules whose rows wait: which share of the true results came in order, period by period.

A result is a row that makes a condition true. On history the truth is known: it is what the same plan finds when every
row comes in order of its event time. A result that came out of order is found all the same, and is not counted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

from tocsin.plan import Plan
from tocsin.rules.durations import duration_text
from tocsin.rules.quality import FIXED, RECALL, ReorderWait

# Periods of event time by their first microsecond: results in order, and in all.
Periods = Mapping[int, tuple[int, int]]
# Of how many periods each is told; of more, the lowest of each stretch.
MOST_PERIODS = 2_000


@dataclass(frozen=True)
class Period:
    """A period of event time that has true results, and how many of them came in order."""

    start_us: int
    in_order: int
    true: int

    @property
    def recall(self) -> float:
        """The share that came in order."""
        return self.in_order / self.true


@dataclass(frozen=True)
class Stretch:
    """Neighbouring periods as one: from when to when, the lowest of them, and how many they are."""

    start_us: int
    end_us: int
    lowest: Period
    count: int


@dataclass(frozen=True)
class Recall:
    """The recall that a rule reached; `waits_us` are the waits in force as parts of the keys were done.

    Without `by_arrival` no stream says when its rows arrived: they were taken in order of time, and nothing is shown.
    """

    alert: str
    waiting: ReorderWait
    periods: tuple[Period, ...]
    waits_us: tuple[int, ...] = ()
    longest_us: int = 0
    by_arrival: bool = True

    @property
    def asked(self) -> float | None:
        """The recall that the rule asks for; None: it asks for a wait."""
        return self.waiting.recall if self.waiting.kind == RECALL else None

    @property
    def asked_text(self) -> str:
        """Requested recall or wait as text."""
        if self.asked is not None:
            return f"recall {self.asked:g} over {duration_text(self.waiting.period_us)}"
        return f"wait {duration_text(self.waiting.wait_us) if self.waiting.kind == FIXED else 'max'}"

    @property
    def whole(self) -> Period | None:
        """All periods added up; None where there is no true result."""
        true = sum(period.true for period in self.periods)
        return Period(self.periods[0].start_us, sum(period.in_order for period in self.periods), true) if true else None

    @property
    def lowest(self) -> Period | None:
        """The first of the periods with the least recall."""
        return min(self.periods, key=lambda period: period.recall, default=None)

    @property
    def reached(self) -> float | None:
        """The share of periods that reached what was asked; None: no recall was asked for, or there are none."""
        if self.asked is None or not self.periods:
            return None
        return sum(period.recall >= self.asked for period in self.periods) / len(self.periods)

    @property
    def wait_us(self) -> int:
        """The wait in the middle of those in force."""
        return median_low(self.waits_us) if self.waits_us else self.longest_us

    def stretches(self, most: int) -> Iterator[Stretch]:
        """Give the periods, or at most so many stretches of them."""
        count = len(self.periods)
        cuts = range(count + 1) if count <= most else [count * i // most for i in range(most + 1)]
        for begin, end in pairwise(cuts):
            mine = self.periods[begin:end]
            lowest = min(mine, key=lambda period: period.recall)
            yield Stretch(mine[0].start_us, mine[-1].start_us + self.waiting.period_us, lowest, len(mine))


def recall_text(period: Period | None) -> str:
    """Write a recall with four digits; it is 1 only where nothing is missing.

    >>> recall_text(Period(0, 1, 1)), recall_text(Period(0, 999_999, 1_000_000)), recall_text(None)
    ('1', '0.9999', '-')
    """
    if period is None:
        return "-"
    return "1" if period.in_order == period.true else f"{period.in_order * 10_000 // period.true / 10_000:.4f}"


def recalls(
    plan: Plan,
    found: Mapping[str, Periods],
    true: Mapping[str, Periods],
    waits_us: Mapping[str, Sequence[int]],
    longest_us: Mapping[str, int],
    arriving: frozenset[str],
) -> Iterator[Recall]:
    """Compare, for each rule whose rows wait, what a run found with the truth; `arriving` streams tell of arrival.

    Where none does, rows came in order of time: what the run itself found is the truth.
    """
    told = set()
    for watch in plan.watches:
        by_arrival = not arriving.isdisjoint(watch.streams)
        for rule in watch.rules:
            name = rule.alert
            if watch.order is None or name in told:
                continue
            told.add(name)
            mine = found.get(name, {})
            periods = tuple(_periods(mine, true.get(name, {}) if by_arrival else mine))
            waits = tuple(waits_us.get(name, ()))
            yield Recall(name, watch.order.waiting, periods, waits, longest_us.get(name, 0), by_arrival)


def _periods(found: Periods, true: Periods) -> Iterator[Period]:
    """Periods with true results; rows of one time may come in either order, and find one more than the truth."""
    for start_us, (_, whole) in sorted(true.items()):
        if whole:
            yield Period(start_us, min(found.get(start_us, (0, 0))[0], whole), whole)


def alike(given: Sequence[Recall]) -> list[tuple[list[str], Recall]]:
    """Bring together rules that wait together: the names of all, and one recall for them."""
    found: dict[tuple[ReorderWait, tuple[Period, ...]], tuple[list[str], Recall]] = {}
    for recall in given:
        names, _ = found.setdefault((recall.waiting, recall.periods), ([], recall))
        names.append(recall.alert)
    return list(found.values())
