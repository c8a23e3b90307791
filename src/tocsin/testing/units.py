"""Plan the rules of a file for tests: as a run would, in groups that share their rows; what cannot run is set apart.

Rules with the same key columns share rows, so they are planned together, the untested ones too: `outage` and the newest
time of a key are those of the group. Then only the tested rules are driven.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tocsin.errors import TocsinError
from tocsin.plan import Plan, Watch, make_plan
from tocsin.rules.model import Rule
from tocsin.rules.rulefile import RuleFile

# No column of a file can have this name.
TIME = " time"


@dataclass(frozen=True)
class Unit:
    """Rules of one file with the same key columns and different names, and their plan."""

    file: RuleFile
    rules: Mapping[str, Rule]
    watch: Watch

    def only(self, alerts: Collection[str]) -> Watch:
        """The watch that drives some of the rules alone."""
        return replace(self.watch, rules=tuple(rule for rule in self.watch.rules if rule.alert in alerts))


@dataclass
class Units:
    """All that can run, and why the rest cannot, by alert."""

    runnable: list[Unit] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def make_units(files: Iterable[RuleFile]) -> Units:
    """Plan the rules of some files."""
    units = Units()
    for file in files:
        groups: dict[tuple[tuple[str, ...], int], list[Rule]] = {}
        counts: dict[str, int] = {}
        for rule in file.rules:
            if reason := _refusal(file, rule):
                units.refused[rule.alert] = reason
                continue
            # One plan has each name once; a rule file may have the same name with other labels.
            counts[rule.alert] = counts.get(rule.alert, 0) + 1
            groups.setdefault((tuple(rule.on), counts[rule.alert]), []).append(rule)
        units.runnable += [_unit(file, rules) for rules in groups.values()]
    return units


def _unit(file: RuleFile, rules: list[Rule]) -> Unit:
    plan = plan_rules(file, rules)
    return Unit(file, {rule.alert: rule for rule in rules}, plan.watches[0])


def plan_rules(file: RuleFile, rules: list[Rule]) -> Plan:
    """Plan rules with the same key columns over the streams of their file."""
    columns = {name: [*rules[0].on, TIME, *stream.values] for name, stream in file.streams.items()}
    return make_plan(rules, columns, time=TIME)


def _refusal(file: RuleFile, rule: Rule) -> str:
    """Say why the engine does not run a rule as it is written; nothing if it does."""
    try:
        plan = plan_rules(file, [rule])
        if rule.recovery is not None and plan == plan_rules(file, [replace(rule, recovery=None)]):
            return f"{rule.place}: `recovery` is read and checked, but no engine runs rules with it yet"
    except TocsinError as error:
        if rule.limits:
            return f"{rule.place}: `limits` are read and checked, but no engine runs rules with them yet"
        return str(error).splitlines()[0]
    return ""
