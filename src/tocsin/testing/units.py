"""Plan the rules of a file for tests: as a run would, in groups that share their rows.

Rules with the same key columns share rows, so they are planned together, the untested ones too: `outage` and the newest
time of a key are those of the group. Then only the tested rules are driven. Silences hear the streams of all rules with
their key columns, and are driven apart from them: no rule notices them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from tocsin.plan import Watch
from tocsin.plan.file import plan_file
from tocsin.rules.model import Rule
from tocsin.rules.no_data import AnyRule
from tocsin.rules.rulefile import RuleFile


@dataclass(frozen=True)
class Unit:
    """Rules of one file with the same key columns and different names, or its silences on them, and their plan."""

    file: RuleFile
    rules: Mapping[str, AnyRule]
    watch: Watch

    def only(self, alerts: Collection[str]) -> Watch:
        """The watch that drives some of the rules alone."""
        mine = [alert for alert in alerts if isinstance(self.rules.get(alert), Rule)]
        rules = tuple(rule for rule in self.watch.rules if rule.alert in mine)
        return replace(self.watch, rules=rules, silences=tuple(s for s in self.watch.silences if s.alert in alerts))


def make_units(files: Iterable[RuleFile]) -> list[Unit]:
    """Plan the rules of some files."""
    units = []
    for file in files:
        groups: dict[tuple[tuple[str, ...], int], list[Rule]] = {}
        counts: dict[str, int] = {}
        for rule in file.rules:
            # A case names alerts, so those of one name, which differ in their labels, are driven apart.
            counts[rule.alert] = counts.get(rule.alert, 0) + 1
            groups.setdefault((tuple(rule.on), counts[rule.alert]), []).append(rule)
        units += [_unit(file, rules) for rules in groups.values()]
        units += [_hearing(file, on) for on in dict.fromkeys(tuple(silence.on) for silence in file.no_data)]
    return units


def _unit(file: RuleFile, rules: list[Rule]) -> Unit:
    return Unit(file, {rule.alert: rule for rule in rules}, plan_file(file, rules).watches[0])


def _hearing(file: RuleFile, on: tuple[str, ...]) -> Unit:
    silences = [silence for silence in file.no_data if tuple(silence.on) == on]
    beside = [rule for rule in file.rules if tuple(rule.on) == on]
    return Unit(file, {one.alert: one for one in silences}, plan_file(file, [*beside, *silences]).watches[0])
