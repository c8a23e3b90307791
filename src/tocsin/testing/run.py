"""Run the tests of a test file on the engine in this process, and compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tocsin.errors import TocsinError
from tocsin.testing.compare import Difference, compare
from tocsin.testing.model import Case, Scenario, Suite
from tocsin.testing.reason import explain
from tocsin.testing.replay import Alert, Moment, Replay
from tocsin.testing.rows import make_batches
from tocsin.testing.units import Unit, make_units

# When rows arrived, and what was told because of them.
Story = tuple[tuple[int, Alert], ...]


@dataclass(frozen=True)
class CaseResult:
    """What became of a case: the alerts there are, and how they differ; `error` says why it could not be run."""

    case: Case
    alerts: tuple[Alert, ...] = ()
    differences: tuple[Difference, ...] = ()
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether all is as expected."""
        return not self.differences and not self.error


@dataclass(frozen=True)
class Result:
    """What became of a test; `story` has all alerts over time, if they were asked for."""

    scenario: Scenario
    cases: tuple[CaseResult, ...]
    story: Story = ()

    @property
    def ok(self) -> bool:
        """Whether all is as expected."""
        return all(case.ok for case in self.cases)


@dataclass
class Runner:
    """Run tests of one file; its rules are planned once."""

    suite: Suite
    is_debugging: bool = False

    @cached_property
    def units(self) -> list[Unit]:
        """The plans of the rule files."""
        return make_units(self.suite.files)

    def run(self, scenario: Scenario) -> Result:
        """Run one test."""
        names = {case.alertname for case in scenario.cases}
        runs, error, story = list[_Run](), "", list[tuple[int, Alert]]()
        try:
            for unit in self.units:
                if names & unit.alerts:
                    runs.append(_replay(scenario, unit, names, is_debugging=self.is_debugging))
                    story += runs[-1].story
        except TocsinError as problem:
            error = f"the engine refuses it: {problem}"
        cases = [self._case(scenario, case, runs, error) for case in scenario.cases]
        return Result(scenario, tuple(cases), tuple(sorted(story, key=lambda told: told[0])))

    def _case(self, scenario: Scenario, case: Case, runs: list[_Run], error: str) -> CaseResult:
        if error:
            return CaseResult(case, error=error)
        alerts = tuple(
            alert for run in runs for alert in run.moments[case.eval_time_us].alerts if alert.name == case.alertname
        )
        differences = compare(case.expected, alerts, fuzzy=self.suite.fuzzy)
        reasoned = tuple(_with_reason(one, scenario, case, runs) for one in differences)
        return CaseResult(case, alerts, reasoned)


@dataclass(frozen=True)
class _Run:
    """One unit's part in a test."""

    unit: Unit
    moments: Mapping[int, Moment]
    story: Story


def _replay(scenario: Scenario, unit: Unit, names: set[str], *, is_debugging: bool) -> _Run:
    watch = unit.only(names)
    replay = Replay(scenario, watch, unit.rule, make_batches(scenario, unit.file, watch))
    asked = {case.eval_time_us for case in scenario.cases}
    times = asked | set(replay.arrivals()) if is_debugging else asked
    moments = {}
    for time in sorted(times):
        replay.go_to(time)
        if time in asked:
            moments[time] = replay.moment(time)
    return _Run(unit, moments, tuple(replay.story))


def _with_reason(difference: Difference, scenario: Scenario, case: Case, runs: list[_Run]) -> Difference:
    """Say why an alert is missing, as the first rule of its name that has something to say."""
    if difference.kind != "missing":
        return difference
    for run in runs:
        if case.alertname in run.unit.alerts:
            time = case.eval_time_us
            reason = explain(scenario, run.unit, run.moments[time], case.alertname, difference.labels, time)
            if reason:
                return replace(difference, reason=reason)
    return difference


def run_suite(suite: Suite, scenarios: Iterable[Scenario], *, is_debugging: bool = False) -> Iterator[Result]:
    """Run tests of a file, one after the other."""
    runner = Runner(suite, is_debugging)
    for scenario in scenarios:
        yield runner.run(scenario)
