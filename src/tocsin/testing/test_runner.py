"""Test runner: run the tests of a file in this process, and compare the alerts with the expected ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tocsin.errors import TocsinError
from tocsin.testing.compare import Difference, compare
from tocsin.testing.failure_reason import explain_missing_alert
from tocsin.testing.model import Case, Scenario, Suite
from tocsin.testing.replay import Alert, KnownAlerts, Replay
from tocsin.testing.rule_groups import RuleGroup, plan_rule_groups
from tocsin.testing.series_rows import make_batches

# Alert events with the arrival time of the rows that raised them.
Story = tuple[tuple[int, Alert], ...]


@dataclass(frozen=True)
class CaseResult:
    """Result of a case: the known alerts and their differences, or `error` if the test could not run."""

    case: Case
    alerts: tuple[Alert, ...] = ()
    differences: tuple[Difference, ...] = ()
    error: str = ""

    @property
    def ok(self) -> bool:
        """True if all alerts are as expected."""
        return not self.differences and not self.error


@dataclass(frozen=True)
class Result:
    """Result of a test; `story` has all alert events if debugging is on."""

    scenario: Scenario
    cases: tuple[CaseResult, ...]
    story: Story = ()

    @property
    def ok(self) -> bool:
        """True if all alerts are as expected."""
        return all(case.ok for case in self.cases)


@dataclass
class Runner:
    """Runner of the tests of one file; its rules are planned once."""

    suite: Suite
    is_debugging: bool = False

    @cached_property
    def groups(self) -> list[RuleGroup]:
        """Planned rules of the rule files."""
        return plan_rule_groups(self.suite.files)

    def run(self, scenario: Scenario) -> Result:
        """Run one test."""
        names = {case.alertname for case in scenario.cases}
        runs, error, story = list[_Run](), "", list[tuple[int, Alert]]()
        try:
            for group in self.groups:
                if names & group.alerts:
                    runs.append(_replay(scenario, group, names, is_debugging=self.is_debugging))
                    story += runs[-1].story
        except TocsinError as problem:
            error = f"the engine rejects the test: {problem}"
        cases = [self._case(scenario, case, runs, error) for case in scenario.cases]
        return Result(scenario, tuple(cases), tuple(sorted(story, key=lambda event: event[0])))

    def _case(self, scenario: Scenario, case: Case, runs: list[_Run], error: str) -> CaseResult:
        if error:
            return CaseResult(case, error=error)
        alerts = tuple(
            alert for run in runs for alert in run.known[case.eval_time_us].alerts if alert.name == case.alertname
        )
        differences = compare(case.expected, alerts, fuzzy=self.suite.fuzzy)
        reasoned = tuple(_with_reason(one, scenario, case, runs) for one in differences)
        return CaseResult(case, alerts, reasoned)


@dataclass(frozen=True)
class _Run:
    """Result of one rule group in a test."""

    group: RuleGroup
    known: Mapping[int, KnownAlerts]
    story: Story


def _replay(scenario: Scenario, group: RuleGroup, names: set[str], *, is_debugging: bool) -> _Run:
    watch = group.select(names)
    replay = Replay(scenario, watch, group.rule, make_batches(scenario, group.file, watch))
    requested = {case.eval_time_us for case in scenario.cases}
    times = requested | set(replay.arrivals()) if is_debugging else requested
    known = {}
    for time in sorted(times):
        replay.advance_to(time)
        if time in requested:
            known[time] = replay.known_alerts(time)
    return _Run(group, known, tuple(replay.story))


def _with_reason(difference: Difference, scenario: Scenario, case: Case, runs: list[_Run]) -> Difference:
    """Add the reason why an alert is missing, from the first rule of its name that has one.

    Rules that can raise the alert with its labels come first.
    """
    if difference.kind != "missing":
        return difference
    for run in sorted(runs, key=lambda run: not run.group.raises(case.alertname, difference.labels)):
        if case.alertname in run.group.alerts:
            time = case.eval_time_us
            reason = explain_missing_alert(
                scenario, run.group, run.known[time], case.alertname, difference.labels, time
            )
            if reason:
                return replace(difference, reason=reason)
    return difference


def run_suite(suite: Suite, scenarios: Iterable[Scenario], *, is_debugging: bool = False) -> Iterator[Result]:
    """Run tests of a file one by one, and yield their results."""
    runner = Runner(suite, is_debugging)
    for scenario in scenarios:
        yield runner.run(scenario)
