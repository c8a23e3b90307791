"""Rules of one stream whose work is limited: nothing invented, all found where units suffice, no cut shows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import CUTS, Driver, parts_of, plan_of, settled, stories
from tests.example_counts import ENGINE
from tests.naive.one_stream import all_true
from tests.one_stream import ROWS, RULES, Condition, dicts_of, results, rules_of, stream_of
from tests.strategies import Case, cases
from tests.test_cpu import matches, run_plan, unlimited
from tocsin import Rule, local
from tocsin.rules.quality import Cpu, Quality
from tocsin.runtime.metrics import OUTCOMES

UNITS_NS = st.sampled_from([1e-3, 1.0, 1e3, 1e6])


@ENGINE
@given(ROWS, RULES, CUTS, st.booleans())
def test_with_time_enough_all_is_found_that_the_rules_say(
    rows: Any, given_: list[Condition], cuts: list[int], limited: bool
) -> None:
    streams = stream_of(rows)
    plan = plan_of(streams, rules_of(given_), arrival="arrival", quality=Quality(cpu=Cpu(100_000.0))).calibrated(1e-6)
    found = run_plan(plan if limited else unlimited(plan), streams, cuts)
    wanted = all_true(dicts_of(streams), {f"r{i}": tree for i, (_, tree) in enumerate(given_)})
    assert results(found.alert_rows()) == wanted
    assert {row["quality"] for row in found.alert_rows()} <= {"exact"}


@ENGINE
@given(ROWS, RULES, CUTS, st.sampled_from([1e-5, 0.2, 1.0]), st.sampled_from([None, 1, 9, 10**6]), UNITS_NS)
def test_whatever_the_budget_no_cut_shows_and_nothing_is_invented_or_lost_uncounted(
    rows: Any, given_: list[Condition], cuts: list[int], cores: float, deadline: int | None, unit_ns: float
) -> None:
    streams = stream_of(rows)
    plan = plan_of(streams, rules_of(given_), arrival="arrival", quality=Quality(cpu=Cpu(cores, deadline))).calibrated(
        unit_ns
    )
    assert len(plan.watches) == 1
    whole = run_plan(plan, streams, through_pages=False)
    split = run_plan(plan, streams, cuts)
    assert stories(split.alert_rows()) == stories(whole.alert_rows())
    assert settled(split.counts) == settled(whole.counts)
    assert split.metrics.section("cpu") == whole.metrics.section("cpu")
    wanted = all_true(dicts_of(streams), {f"r{i}": tree for i, (_, tree) in enumerate(given_)})
    assert not results(whole.alert_rows()) - wanted
    for counts in whole.counts.values():
        assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES) == len(rows)
        assert min(counts.values()) >= 0
    if not any(counts["unprocessed"] for counts in whole.counts.values()):
        assert results(whole.alert_rows()) == wanted


@ENGINE
@given(ROWS, RULES, st.sampled_from([0.2, 1.0]), UNITS_NS, st.lists(st.integers(1, 5_000_000), max_size=60))
def test_work_in_silence_invents_and_doubles_nothing(
    rows: Any, given_: list[Condition], cores: float, unit_ns: float, waits: list[int]
) -> None:
    streams = stream_of(rows)
    plan = plan_of(streams, rules_of(given_), arrival="arrival", quality=Quality(cpu=Cpu(cores, 2_000_000)))
    plan = plan.calibrated(unit_ns)
    out = Driver(plan).run_with_pauses(parts_of(plan, streams, range(1, 60), "arrival"), waits)
    wanted = all_true(dicts_of(streams), {f"r{i}": tree for i, (_, tree) in enumerate(given_)})
    assert not results(out.alert_rows()) - wanted
    assert all(min(counts.values()) >= 0 for counts in out.counts.values())
    if not any(counts["unprocessed"] for counts in out.counts.values()):
        assert results(out.alert_rows()) == wanted


ONE = cases(shaped=True, emit="all", streams_of_a_rule=(1, 1, 1))


@ENGINE
@given(ONE, CUTS, st.booleans())
def test_with_time_enough_the_alerts_are_those_of_the_rule_without_a_budget(
    case: Case, cuts: list[int], limited: bool
) -> None:
    streams, given_ = case.arrays(), case.keywords() | {"allowed_lateness": "1s"}
    exact = local.run_local_detailed(streams, Rule(**given_), arrival="arrival").alerts
    plan = plan_of(streams, Rule(**given_, quality={"cpu": "100000 cores"}), arrival="arrival").calibrated(1e-6)
    found = run_plan(plan if limited else unlimited(plan), streams, cuts)
    assert matches(found.alert_rows()) == matches(exact)
    assert {row["quality"].removesuffix(" out-of-domain") for row in found.alert_rows()} <= {"exact"}


@pytest.mark.parametrize("cpu", [None, Cpu(1000.0)])
def test_an_empty_stream_and_empty_calls_are_fine(cpu: Cpu | None) -> None:
    streams = stream_of([])
    rules = rules_of([("a.x > 1", ())], quality=None if cpu else {"cpu": "1%"})
    plan = plan_of(streams, rules, arrival="arrival", quality=Quality(cpu=cpu))
    driver = Driver(plan)
    for part in ([], parts_of(plan, streams, (), "arrival")[0], []):
        assert driver.take(driver.session.push(part)) == []
    assert driver.take(driver.session.end()) == []
    assert driver.session.next_timer() is None
