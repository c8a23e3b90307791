"""Plans side by side: each gives what it gives alone, and rows that are read alike are read once. No JVM is started."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

import tocsin
from tests.driver import parts_of
from tests.example_counts import ENGINE
from tests.strategies import Case, cases
from tocsin import RunError, local
from tocsin.plan import Plan
from tocsin.runtime.contract import Out
from tocsin.runtime.session import Session
from tocsin.runtime.state_codec import pack
from tocsin.spark.versions import Versions


def run(step: Any, calls: list[list[Any]]) -> Out:
    session, out = Session(step), Out()
    for call in calls:
        out.add(session.push(call))
    out.add(session.end())
    return out


def plan_of(case: Case, **changes: Any) -> Plan:
    rule = tocsin.Rule(**{**case.keywords(), **changes})
    return local.explain(case.arrays(), rule, arrival="arrival")


@ENGINE
@given(cases(shaped=True))
def test_each_version_gives_what_it_gives_alone(case: Case) -> None:
    plans = [plan_of(case), plan_of(case, keep_firing_for="5us", allowed_lateness="3us")]
    versions = Versions.of(plans)
    assert len(versions.routes) == 1
    calls = parts_of(plans[0], case.arrays(), [3, 7], "arrival")
    together = run(versions, calls)
    for number, plan in enumerate(plans):
        alone = run(plan, calls)
        mine = [row for batch in together.alerts if batch.version == number for row in batch.rows()]
        assert Counter(map(repr, alone.alert_rows())) == Counter(map(repr, mine))
        metrics = together.metrics.without_prefix(f"{number}:")
        assert metrics.section("version_bytes") == {"": size(plan, calls)}
        assert metrics.section("counts") == alone.counts
    oldest = {name: min(table["ts"]) for name, table in case.arrays().items() if len(table["ts"])}
    known = together.metrics.without_prefix("0:").section("oldest_us")
    assert all(known[name] >= oldest[name] for name in known)


def size(plan: Plan, calls: list[list[Any]]) -> int:
    session = Session(plan)
    for call in calls:
        session.push(call)
    session.end()
    return sum(len(page or b"") for page in session.changed_pages().values())


def test_versions_with_other_keys_or_columns_have_feeds_of_their_own() -> None:
    columns = {"a": ["ts", "machine", "value", "other"]}
    rule = tocsin.Rule("x", "a.value > 1", on="machine")
    plans = [
        tocsin.plan.make_plan(one, columns)
        for one in (rule, replace(rule, expr="a.value > 2"), replace(rule, expr="a.other > 1"), replace(rule, on=()))
    ]
    assert Versions.of(plans).routes == (((0, 0), (1, 0)), ((2, 0),), ((3, 0),))


def test_state_of_an_earlier_run_is_refused() -> None:
    plan = tocsin.plan.make_plan(tocsin.Rule("x", "a > 1"), {"a": ["ts", "value"]})
    with pytest.raises(RunError, match="only over a bounded input"):
        Session(Versions.of([plan]), {"0/0": pack({})})
