"""Rule groups: plan the rules of a file as a run does, in groups with the same key columns.

Rules of a group share rows, so they are planned together, including rules without a test. `allowed_lateness` and the
newest time of a key depend on all rules of the group, and NoData rules observe the streams of all rules. A test then
runs only its own rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from tocsin.plan import Silence, Threshold, Watch, plan_file
from tocsin.rules.no_data import AnyRule
from tocsin.rules.rulefile import RuleFile
from tocsin.trace.model import is_of


@dataclass(frozen=True)
class RuleGroup:
    """All rules and NoData rules of a file with the same key columns, and their plan."""

    file: RuleFile
    watch: Watch

    @property
    def steps(self) -> tuple[Threshold | Silence, ...]:
        """Planned rules and NoData rules."""
        return (*self.watch.rules, *self.watch.silences)

    @property
    def alerts(self) -> set[str]:
        """Names of the alerts."""
        return {step.alert for step in self.steps}

    def step(self, alert: str, labels: Mapping[str, str]) -> Threshold | Silence:
        """Return the planned rule of an alert. If no labels match, return the first one of this name."""
        named = [step for step in self.steps if step.alert == alert]
        return next((step for step in named if is_of(self.watch, step, alert, labels)), named[0])

    def raises(self, alert: str, labels: Mapping[str, str]) -> bool:
        """Return whether a rule of the group can raise an alert with this name and exactly these labels."""
        return any(is_of(self.watch, step, alert, labels) for step in self.steps)

    def rule(self, alert: str, labels: Mapping[str, str]) -> AnyRule:
        """Return the rule in the file that raises an alert."""
        every: list[AnyRule] = [*self.file.rules, *self.file.no_data]
        mine = [rule for rule in every if tuple(rule.on) == self.watch.on]
        return mine[self.steps.index(self.step(alert, labels))]

    def select(self, alerts: Collection[str]) -> Watch:
        """Return the keyed pipeline with only some of the rules."""
        rules = tuple(rule for rule in self.watch.rules if rule.alert in alerts)
        return replace(self.watch, rules=rules, silences=tuple(s for s in self.watch.silences if s.alert in alerts))


def plan_rule_groups(files: Iterable[RuleFile]) -> list[RuleGroup]:
    """Plan the rules of some files."""
    return [RuleGroup(file, watch) for file in files if file.rules or file.no_data for watch in plan_file(file).watches]
