"""Plan the rules of a rule file: what its streams say of their columns is all that there is to know."""

from __future__ import annotations

from collections.abc import Iterable

from tocsin.errors import PlanError
from tocsin.plan.divide import divide_run, share_cores
from tocsin.plan.plan import Plan
from tocsin.plan.ranges import RangeWatch
from tocsin.plan.resolve import make_plan
from tocsin.plan.steps import Watch
from tocsin.rules.no_data import AnyRule
from tocsin.rules.rulefile import RuleFile

# No column of a file can have these names, so neither is taken for a value.
TIME, ARRIVAL = " time", " arrival"


def plan_file(file: RuleFile, rules: Iterable[AnyRule] | None = None) -> Plan:
    """Plan rules of a file over its streams: all, with those that watch for silence, unless some are named.

    A key column that a rule does not join on is not offered to it as a value, so each set of key columns is planned
    apart; rules with different ones never share anything.
    """
    groups: dict[tuple[str, ...], list[AnyRule]] = {}
    every: list[AnyRule] = [*file.rules, *file.no_data, *file.ranges]
    for rule in every if rules is None else rules:
        groups.setdefault(tuple(rule.on), []).append(rule)
    if not groups:
        message = f"{file.path}: `groups` must have at least one rule; got no rule"
        raise PlanError(message)
    watches, ranges = list[Watch](), list[RangeWatch]()
    for on, mine in groups.items():
        columns = {name: [*on, TIME, ARRIVAL, *stream.values] for name, stream in file.streams.items()}
        plan = make_plan(mine, columns, time=TIME, arrival=ARRIVAL, quality=file.quality)
        watches += plan.watches
        ranges += plan.ranges
    quality = file.quality
    return Plan(share_cores(divide_run(watches, quality.memory), quality.cpu), tuple(ranges))
