"""Plan the rules of a rule file. The file declares all that is known about the columns of its streams."""

from __future__ import annotations

from collections.abc import Iterable

from tocsin.errors import Diagnostics
from tocsin.plan.divide import divide_run, share_cores
from tocsin.plan.plan import Plan
from tocsin.plan.ranges import RangeWatch
from tocsin.plan.resolve import Planned, plan_rules
from tocsin.plan.steps import Watch
from tocsin.rules.no_data import AnyRule
from tocsin.rules.rulefile import RuleFile


def plan_file(file: RuleFile, rules: Iterable[AnyRule] | None = None) -> Plan:
    """Plan rules of a file, by default all rules with the rules of `no_data`. Raise all errors together.

    Rules with different key columns share nothing, so each set of key columns is planned separately.
    """
    planned = check_plan(file, rules)
    planned.diagnostics.raise_errors()
    assert planned.plan is not None
    return planned.plan


def check_plan(file: RuleFile, rules: Iterable[AnyRule] | None = None) -> Planned:
    """Plan rules of a file as `plan_file` does, and collect all errors."""
    groups: dict[tuple[str, ...], list[AnyRule]] = {}
    every: list[AnyRule] = [*file.rules, *file.no_data, *file.ranges]
    for rule in every if rules is None else rules:
        groups.setdefault(tuple(rule.on), []).append(rule)
    diagnostics, scope, quality = Diagnostics(), file.scope, file.quality
    if not groups:
        diagnostics.add("no-rules", ["groups"], f"{file.path}: `groups` must have at least one rule", "no rule")
    watches, ranges = list[Watch](), list[RangeWatch]()
    for mine in groups.values():
        planned = plan_rules(mine, scope, quality=quality)
        diagnostics += planned.diagnostics
        if planned.plan is not None:
            watches += planned.plan.watches
            ranges += planned.plan.ranges
    if diagnostics:
        return Planned(None, diagnostics)
    divided = share_cores(divide_run(watches, quality.memory, diagnostics), quality.cpu)
    return Planned(None if diagnostics else Plan(divided, tuple(ranges)), diagnostics)
