"""Plan the rules of a file for tests: as a run does, in groups that share their rows.

Rules with the same key columns share rows, so they are planned together, the untested ones too: `outage` and the newest
time of a key are those of the group, and silences hear the streams of all. Then only the tested ones are driven.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from tocsin.plan import Threshold, Watch
from tocsin.plan.file import plan_file
from tocsin.plan.steps import Silence
from tocsin.rules.no_data import AnyRule
from tocsin.rules.rulefile import RuleFile
from tocsin.trace.model import is_of


@dataclass(frozen=True)
class Unit:
    """All rules of one file with the same key columns, and its silences on them, with their plan."""

    file: RuleFile
    watch: Watch

    @property
    def steps(self) -> tuple[Threshold | Silence, ...]:
        """What is driven: rules and silences."""
        return (*self.watch.rules, *self.watch.silences)

    @property
    def alerts(self) -> set[str]:
        """The names of its alerts."""
        return {step.alert for step in self.steps}

    def step(self, alert: str, labels: Mapping[str, str]) -> Threshold | Silence:
        """What raises an alert; where no labels fit, the first one of that name."""
        named = [step for step in self.steps if step.alert == alert]
        return next((step for step in named if is_of(self.watch, step, alert, labels)), named[0])

    def rule(self, alert: str, labels: Mapping[str, str]) -> AnyRule:
        """What the file says of the rule that raises an alert."""
        every: list[AnyRule] = [*self.file.rules, *self.file.no_data]
        mine = [rule for rule in every if tuple(rule.on) == self.watch.on]
        return mine[self.steps.index(self.step(alert, labels))]

    def only(self, alerts: Collection[str]) -> Watch:
        """The watch that drives some of the rules alone."""
        rules = tuple(rule for rule in self.watch.rules if rule.alert in alerts)
        return replace(self.watch, rules=rules, silences=tuple(s for s in self.watch.silences if s.alert in alerts))


def make_units(files: Iterable[RuleFile]) -> list[Unit]:
    """Plan the rules of some files."""
    return [Unit(file, watch) for file in files if file.rules or file.no_data for watch in plan_file(file).watches]
