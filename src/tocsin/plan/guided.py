"""Guided: by which ranges of which columns the rows of one stream are found for its rules, within a budget.

Idea: each rule of a stream reads some columns of it (its lane), and of one of them, the same for all rules of a lane, a
range is known that holds all that can make it true (`narrow.py`). Bins end where those ranges do. All of it is fixed
when rules are planned, by what rules say: their numbers, their limits, and the domains that they declare.
Guarantee: a row outside the range of a rule does not make it true.
Cost: some tens of microseconds per rule; at most `MOST_CUTS` bins per lane, and `MOST_CELLS` of all rules together
unless there are thousands of rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tocsin.expr.syntax_tree import Key
from tocsin.plan.anytime import DEFAULT_CORES, Anytime
from tocsin.plan.identity import Lane
from tocsin.plan.narrow import Range, narrowed
from tocsin.plan.steps import Threshold, Watch
from tocsin.rules.durations import microseconds
from tocsin.rules.model import Rule
from tocsin.rules.quality import Cpu
from tocsin.stages.promising.by_column import ByColumn, Cuts, cuts_at

# At so many numbers bins of a lane may end; at fewer where the ranges of all rules would meet more bins than so many.
MOST_CUTS, LEAST_CUTS, MOST_CELLS = 128, 8, 1 << 15
# How long work on a row is carried over where no deadline is given.
CARRY_US = 60_000_000
# A declared domain is cut into so many bins.
_BINS = 16


@dataclass(frozen=True)
class Guided:
    """Of each lane the column that rows are found by, with its bins; of each rule its lane and its range there."""

    columns: tuple[str, ...]
    cuts: tuple[Cuts, ...]
    lanes: tuple[int, ...]
    ranges: tuple[Range, ...]

    @property
    def cells(self) -> int:
        """How many bins the ranges of all rules meet: so many cells may wait of each zone."""
        ranges = zip(self.lanes, self.ranges, strict=True)
        return sum(int(np.count_nonzero(self.cuts[lane].meets(one.low, one.high))) for lane, one in ranges)

    @property
    def scheme(self) -> ByColumn:
        """The bins of all lanes."""
        return ByColumn(self.cuts)

    def __str__(self) -> str:
        """Return the indexed columns and the number of rules per kind of evaluation as text."""
        whole = sum(one.whole for one in self.ranges)
        every = sum(not one.whole and not one.ends for one in self.ranges)
        kinds = [
            (whole, "decided by ranges only"),
            (len(self.ranges) - whole - every, "evaluated on the rows of a range"),
        ]
        parts = [f"{count} {what}" for count, what in [*kinds, (every, "evaluated on every row")] if count]
        columns = " and ".join(f"{name} ({cut.width} bins)" for name, cut in zip(self.columns, self.cuts, strict=True))
        return f"rows are looked up by {columns}; of {len(self.ranges)} rules, {', '.join(parts)}"


def guided_by(watch: Watch) -> Guided:
    """Choose the column of each lane, and find the range of each rule."""
    lanes = tuple(watch.lanes.index(watch.stores[rule.stores[0]].lane) for rule in watch.rules)
    chosen, ranges = list[str](), dict[int, Range]()
    for i, lane in enumerate(watch.lanes):
        mine = [r for r, of in enumerate(lanes) if of == i]
        found = {column: {r: _range(watch.rules[r], lane, column) for r in mine} for column in lane[1]}
        column = max(lane[1], key=lambda name: sum(one.ends for one in found[name].values()))
        chosen.append(column)
        ranges |= found[column]
    cuts = [list[float]() for _ in chosen]
    for r, i in enumerate(lanes):
        cuts[i] += _cuts(watch.rules[r], chosen[i], ranges[r])
    return _cut(Guided(tuple(chosen), (), lanes, tuple(ranges[r] for r in range(len(lanes)))), cuts)


def _cut(guided: Guided, cuts: Sequence[Sequence[float]]) -> Guided:
    """End bins where ranges do; where many rules have wide ranges, at fewer places."""
    most = MOST_CUTS
    while True:
        found = replace(guided, cuts=tuple(cuts_at(mine, most) for mine in cuts))
        if most <= LEAST_CUTS or found.cells <= MOST_CELLS:
            return found
        most //= 2


def _range(rule: Threshold, lane: Lane, column: str) -> Range:
    """The range of a column outside of which a rule is false; one that is false everywhere has a point for one."""
    limits = {limit.variable: list(limit.numbers.values()) for limit in rule.limits}
    found = Range()
    for key in _named(rule, lane, column):
        one = narrowed(rule.condition, key, limits)
        # A column may have two names in a condition; each of them narrows it.
        low, high = max(found.low, one.low), min(found.high, one.high)
        whole = one.whole and len(rule.columns) == 1 and not rule.topology.hop_us
        found = Range(low, high, whole, (*found.cuts, *one.cuts))
    if found.low > found.high:
        point = found.low if math.isfinite(found.low) else 0.0
        return Range(point, point)
    return found


def _named(rule: Threshold, lane: Lane, column: str) -> list[Key]:
    return [key for key, name in rule.columns if key[0] == lane[0] and name == column]


def _cuts(rule: Threshold, column: str, found: Range) -> list[float]:
    """Where bins are to end: where the range begins, behind its last number, and where else something changes."""
    cuts = [found.low, float(np.nextafter(found.high, math.inf)), *found.cuts]
    for _, name, low, high in rule.domains:
        if name == column and not found.whole and math.isfinite(high - low):
            cuts += np.linspace(low, high, _BINS + 1).tolist()
    return [cut for cut in cuts if math.isfinite(cut)]


def anytime_of_one(rules: Sequence[Rule], watch: Watch, spending: Cpu) -> Anytime:
    """What rules of one stream may spend; that of the run is divided later (`divide.share_cores`)."""
    window_us = CARRY_US if spending.deadline_us is None else spending.deadline_us
    lateness_us = [
        window_us if rule.allowed_lateness is None else microseconds(rule.allowed_lateness, "`allowed_lateness`")
        for rule in rules
    ]
    cores = DEFAULT_CORES if spending.cores is None else spending.cores
    pooled, guided = rules[0].quality_options.cpu is None, guided_by(watch)
    return Anytime(window_us, max(lateness_us), cores, spending.deadline_us, pooled=pooled, guided=guided)
