"""Waits that buckets agree on: control rows hold from their time on, whatever the cuts, and all come to one wait."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.driver import parts_of, plan_of
from tocsin import Rule, RunError
from tocsin.interim.reorder.wait_agreement import Agreement
from tocsin.interim.reorder.wait_controller import MOST_PENDING, PACE, WaitController
from tocsin.plan import Plan
from tocsin.runtime.contract import Out
from tocsin.runtime.session import Session

SECOND = 1_000_000
START = 1000 * SECOND
KEYS = 8
QUALITY = {"recall": 0.9, "period": "10s", "in_order": True}


def streams(seed: int, seconds: int = 60, late: float = 0.2, longest: int = 4) -> dict[str, dict[str, Any]]:
    """Two streams; each of the keys has five rows a second, some of them late."""
    random, found = np.random.default_rng(seed), {}
    for name in "ab":
        rows = 5 * KEYS * seconds
        arrival = np.sort(random.integers(0, seconds * SECOND, rows))
        delay = (random.random(rows) < late) * random.integers(0, longest * SECOND, rows)
        machine = np.array([f"m{key}" for key in random.integers(0, KEYS, rows)], object)
        value = random.normal(0, 1, rows).round(2)
        found[name] = {"ts": START + arrival - delay, "arrival": arrival, "machine": machine, "value": value}
    return found


def rule(**given: Any) -> Rule:
    domains = {"a": (-9, 9), "b": (-9, 9)}
    return Rule("far", "a - b > 2.5", within="1s", on="machine", domains=domains, **({"quality": QUALITY} | given))


TABLES = streams(1)
PLAN = plan_of(TABLES, rule(), arrival="arrival").sharing()
NAME = PLAN.watches[0].name


def control(wait_s: float, from_s: float, watch: str = NAME) -> dict[str, Any]:
    return {"watch": watch, "wait_us": round(wait_s * SECOND), "from_us": START + round(from_s * SECOND)}


def by_second(plan: Plan, tables: dict[str, dict[str, Any]], seconds: int = 60) -> list[Any]:
    whole = sum(len(table["ts"]) for table in tables.values())
    return parts_of(plan, tables, [whole * second // seconds for second in range(1, seconds)], "arrival")


def waits(plan: Plan, rows: dict[int, list[dict[str, Any]]], tables: dict[str, dict[str, Any]] = TABLES) -> list[int]:
    """The wait after each second, control rows having come before some of them."""
    session, found = Session(plan), []
    for second, part in enumerate(by_second(plan, tables)):
        assert session.control(rows.get(second, [])) == Out()
        found.append(session.push(part).metrics.section("waits")["far"]["wait_us"])
    return found


def test_a_wait_holds_from_its_time_on_and_is_gone_to_at_the_pace() -> None:
    own, told = waits(PLAN, {}), waits(PLAN, {0: [control(9, 30)]})
    assert own[-1] < 8 * SECOND, "the bucket must want another wait"
    first = next(i for i, pair in enumerate(zip(own, told, strict=True)) if pair[0] != pair[1])
    # The time of the bucket is the median of rows, of which some are late.
    assert 30 <= first <= 32
    steps = np.diff(told[first - 1 :])
    assert steps.max() <= 400_000, "a fifth of a second per second; a call may end two"
    assert (steps >= 0).all()
    late = waits(PLAN, {0: [control(2, 10)]})
    assert set(late[25:]) == {2 * SECOND}


def test_a_wait_that_comes_after_its_time_holds_at_once() -> None:
    own, told = waits(PLAN, {}), waits(PLAN, {40: [control(9, 3)]})
    assert own[:40] == told[:40]
    assert own[42] < told[42]


def test_of_several_the_one_for_the_latest_time_holds_and_of_those_the_last() -> None:
    rows = [control(3, 25), control(1, 10), control(2, 10)]
    told = waits(PLAN, {0: rows})
    assert set(told[22:24]) == {2 * SECOND}
    assert set(told[35:]) == {3 * SECOND}
    assert waits(PLAN, {0: rows[:1], 1: rows[1:]}) == told


def test_a_control_row_changes_what_is_taken_in_order() -> None:
    """The test above would hold for control rows that do nothing."""

    def taken(rows: list[dict[str, Any]]) -> int:
        session = Session(PLAN)
        session.control(rows)
        return session.push(parts_of(PLAN, TABLES, (), "arrival")[0]).counts["a"]["behind"]

    assert taken([control(9, 0)]) < taken([]) < taken([control(0, 0)])


@pytest.mark.parametrize(
    "row",
    [
        {"wait": 5},
        {"watch": NAME, "wait_us": 5},
        {"watch": NAME, "wait_us": -1, "from_us": 0},
        {"watch": NAME, "wait_us": 1.5, "from_us": 0},
        {"watch": NAME, "wait_us": True, "from_us": 0},
        {"watch": 7, "wait_us": 5, "from_us": 0},
        {"watch": NAME, "wait_us": 5, "from_us": 0, "more": 1},
    ],
)
def test_what_is_no_control_row_is_refused_in_one_sentence(row: dict[str, Any]) -> None:
    with pytest.raises(RunError, match=r"^control rows must address a pipeline of the plan; no pipeline accepts {"):
        Session(PLAN).control([row])


def test_rows_of_a_watch_that_is_gone_or_waits_otherwise_say_nothing() -> None:
    assert waits(PLAN, {0: [control(9, 0, "machine~0123")]}) == waits(PLAN, {})
    fixed = plan_of(TABLES, rule(quality={"wait": "3s"}), arrival="arrival").sharing()
    assert set(waits(fixed, {0: [control(9, 0), control(9, 0, fixed.watches[0].name)]})) == {3 * SECOND}
    alone = plan_of(TABLES, rule(), arrival="arrival")
    assert waits(alone, {0: [control(9, 0)]}) == waits(PLAN, {})


def test_only_waits_by_observed_results_are_shared_and_told() -> None:
    for given_rule in (
        rule(quality={"wait": "max"}),
        rule(quality=QUALITY | {"strategy": "eqsel"}),
        rule(),
    ):
        plan = plan_of(TABLES, given_rule, arrival="arrival")
        told = Session(plan.sharing()).push(parts_of(plan, TABLES, (), "arrival")[0]).reports
        assert (len(told) == 1) == (given_rule == rule())
        assert Session(plan).push(parts_of(plan, TABLES, (), "arrival")[0]).reports == []


def test_a_plan_that_does_not_share_leaves_what_was_agreed_on() -> None:
    session = Session(PLAN)
    session.control([control(9, 0)])
    parts = by_second(PLAN, TABLES)
    for part in parts[:40]:
        session.push(part)
    pages = {name: page for name, page in session.changed_pages().items() if page is not None}
    again = {shared: Session(plan, pages) for shared, plan in ((True, PLAN), (False, _alone()))}
    for part in parts[40:]:
        found = {shared: one.push(part).metrics.section("waits")["far"]["wait_us"] for shared, one in again.items()}
    assert found[False] < found[True]


def _alone() -> Plan:
    return plan_of(TABLES, rule(), arrival="arrival")


def test_state_of_a_plan_that_did_not_share_is_taken_over() -> None:
    session = Session(_alone())
    session.push(by_second(PLAN, TABLES)[0])
    pages = {name: page for name, page in session.changed_pages().items() if page is not None}
    assert f"{NAME}/{PACE}" in pages
    Session(PLAN, pages).control([control(9, 0)])


def test_a_bucket_that_lies_behind_keeps_a_bounded_number_of_waits_and_the_newest() -> None:
    order = PLAN.watches[0].order
    assert order is not None
    pace = WaitController("machine", ["x"], order)
    for second in range(10 * MOST_PENDING):
        pace.agree(second, second)
    assert [wait_us for _, wait_us in pace.pending] == [*range(MOST_PENDING - 1), 10 * MOST_PENDING - 1]


def test_buckets_of_unlike_keys_come_to_one_wait() -> None:
    """Each bucket by itself wants another wait; with control rows between calls all have the same in the end."""
    tables = [streams(3, longest=1), streams(4, longest=6)]
    ends = []
    for plan in (_alone(), PLAN):
        sessions: list[Session] = [Session(plan) for _ in tables]
        found, rows = Agreement(plan.watches), list[dict[str, Any]]()
        for parts in zip(*(by_second(plan, one) for one in tables), strict=True):
            outs = []
            for bucket, (session, part) in enumerate(zip(sessions, parts, strict=True)):
                session.control(rows)
                outs.append(session.push(part))
                for one in outs[-1].reports:
                    found.hear(bucket, json.loads(json.dumps(one)))
            rows = found.rows()
        ends.append({out.metrics.section("waits")["far"]["wait_us"] for out in outs})
    assert len(ends[0]) == 2
    assert len(ends[1]) == 1
