"""The laws of the contract, held by plans over random streams: splits, pages, purity, empty batches, counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.driver import CUTS, Driver, one_machine, parts_of, plan_of, settled, stories, table
from tests.durations import us
from tests.example_counts import ENGINE
from tests.strategies import LONG, Case, cases
from tocsin import Rule, RunError, local
from tocsin.runtime.contract import Out
from tocsin.runtime.session import Session


@ENGINE
@given(cases(shaped=True), CUTS)
def test_the_local_engine_cuts_as_the_test_engine_does(case: Case, cuts: list[int]) -> None:
    streams, rule = case.arrays(), Rule(**case.keywords())
    for column in (column for columns in streams.values() for column in columns.values()):
        column.flags.writeable = False
    whole = local.run_local_detailed(streams, rule, arrival="arrival")
    split = local.run_local_detailed(streams, rule, arrival="arrival", cuts=cuts)
    assert stories(split.alerts) == stories(whole.alerts)
    assert settled(split.counts) == settled(whole.counts)
    for name, counts in whole.counts.items():
        assert counts["received"] == len(streams[name]["ts"])


@ENGINE
@given(cases(), CUTS)
def test_rules_with_different_keys_in_one_plan_are_those_rules_alone(case: Case, cuts: list[int]) -> None:
    streams, given_rule = case.arrays(), case.keywords() | {"allowed_lateness": us(LONG)}
    rules = [
        Rule(**given_rule),
        Rule(**given_rule | {"alert": "anywhere", "on": ()}),
        Rule("single", "a > 0", within="3us", on="machine", allowed_lateness=us(LONG)),
        Rule(**given_rule | {"alert": "strict", "for_": "2us", "keep_firing_for": "2us"}),
    ]
    together = local.run_local_detailed(streams, rules, arrival="arrival", cuts=cuts)
    alone = [alert for rule in rules for alert in local.run_local_detailed(streams, rule, arrival="arrival").alerts]
    assert stories(together.alerts) == stories(alone)


def test_a_rule_of_one_stream_sees_the_rows_that_another_rule_leaves_out() -> None:
    # -5 comes last, between two larger values: of no use where f rises with a, and the alarm of the other rule.
    a = one_machine([0, 2, 1], [3, 3, -5]) | {"arrival": np.arange(3)}
    b = one_machine([], []) | {"arrival": np.zeros(0, np.int64)}
    rises = Rule("rises", "a + b > 0", within="10us", on="machine", shapes={"a": "increasing"})
    cold = Rule("cold", "a < 0", within="10us", on="machine")
    result = local.run_local_detailed({"a": a, "b": b}, [rises, cold], arrival="arrival")
    assert settled(result.counts)["a"] == {"received": 3, "retained": 2, "omitted": 1}
    assert [(row["alert"], row["state"], row["value"]) for row in result.alerts] == [("cold", "firing", -5.0)]


RULE = Rule(
    "x",
    "a + b > 0",
    within="10us",
    on="machine",
    shapes={"a": "increasing", "b": "increasing"},
    allowed_lateness="100us",
)


def test_empty_batches_and_streams_are_fine() -> None:
    none = one_machine([], [])
    streams = {"a": one_machine([1, 2], [1.0, 1.0]), "b": none}
    plan = plan_of(streams, RULE)
    driver = Driver(plan)
    empty = parts_of(plan, {"a": none, "b": none})[0]
    for part in ([], empty, parts_of(plan, streams)[0], empty, []):
        assert driver.take(driver.session.push(part)) == []
    assert driver.take(driver.session.end()) == []
    assert settled(driver.result.counts) == {"a": {"received": 2, "retained": 2}, "b": {}}
    assert local.run_local_detailed({"a": none, "b": none}, RULE).alerts == []
    assert local.run_local_detailed({"a": none, "b": none}, RULE, cuts=[0, 3]).alerts == []


def test_control_rows_that_no_step_takes_are_refused() -> None:
    """Those that one takes obey the laws too (`plan/test_shared_wait.py`)."""
    session = Session(plan_of({"a": one_machine([], []), "b": one_machine([], [])}, RULE))
    assert session.control([]) == Out()
    with pytest.raises(
        RunError, match=r"^control rows must address a pipeline of the plan; no pipeline accepts {'wait': 5}$"
    ):
        session.control([{"wait": 5}])


def test_rows_that_cannot_be_used_are_quarantined_and_counted() -> None:
    times = np.array([1, 2, 3, 4, 5, "NaT", 7], dtype="datetime64[us]")
    values = np.array([1.0, np.nan, np.inf, -np.inf, 1.0, 1.0, 1.0])
    a = {"ts": times, "machine": np.array(["m", "m", "m", "m", None, "m", "m"], dtype=object), "value": values}
    b = table(["m", "m"], [6, 7], value=np.array([1.0, None], dtype=object))
    for cuts in ([], [1], [0, 2, 3]):
        result = local.run_local_detailed({"a": a, "b": b}, RULE, cuts=cuts)
        assert settled(result.counts) == {
            "a": {"received": 7, "quarantined": 5, "retained": 2},
            "b": {"received": 2, "quarantined": 1, "retained": 1},
        }
        assert [(row["state"], row["margin"]) for row in result.alerts] == [("firing", 2.0)]


def test_a_row_too_late_is_counted_and_one_too_old_has_expired() -> None:
    a = one_machine([0, 500, 300, 450], [1, 1, 1, 1]) | {"arrival": np.arange(4)}
    b = one_machine([500], [-9]) | {"arrival": np.array([9])}
    counts = settled(local.run_local_detailed({"a": a, "b": b}, RULE, arrival="arrival").counts)
    assert counts["a"] == {"received": 4, "late": 1, "expired": 1, "retained": 2}


def test_rules_with_the_same_keys_share_the_largest_allowed_lateness() -> None:
    # 10 comes 20 behind: later than the allowed 5, not than the allowed 30; a rule with other keys is not concerned.
    a = one_machine([30, 10], [-1, 1]) | {"arrival": np.arange(2)}
    short, long, other = (
        Rule(name, "a > 0", within=0, on=on, allowed_lateness=us(allowed_lateness_us))
        for name, on, allowed_lateness_us in [("short", "machine", 5), ("long", "machine", 30), ("other", (), 30)]
    )

    def fired(*rules: Rule) -> list[str]:
        alerts = local.run_local_detailed({"a": a}, rules, arrival="arrival").alerts
        return [row["alert"] for row in alerts if row["state"] == "firing"]

    assert (fired(short), fired(long), fired(short, other)) == ([], ["long"], ["other"])
    assert fired(short, long) == ["long", "short"]
    assert settled(local.run_local_detailed({"a": a}, [short, long], arrival="arrival").counts)["a"] == {
        "received": 2,
        "expired": 2,
    }


def test_a_row_is_remembered_as_long_as_it_may_excuse_another_whatever_the_batches() -> None:
    # The interval of a is 8. When 11 comes, 6 lies below 2 and 9, and above 5 and 11: it goes, if 2 is still there.
    a = one_machine([5, 6, 2, 9, 19, 11], [0, 1, 2, 2, 1, 0]) | {"arrival": np.arange(6)}
    b = one_machine([], []) | {"arrival": np.zeros(0, np.int64)}
    rule = Rule("x", "abs(a) + b > 9", within="4us", on="machine", shapes={"a": "quasiconvex"}, allowed_lateness="8us")
    for cuts in ([], [5], [1, 2, 3, 4, 5]):
        counts = settled(local.run_local_detailed({"a": a, "b": b}, rule, arrival="arrival", cuts=cuts).counts)
        assert counts["a"] == {"received": 6, "retained": 5, "omitted": 1}


def test_a_row_behind_one_that_was_refused_is_behind_whatever_the_batches() -> None:
    # One hopping window holds all. 5 at 1 excuses 4 at 3, the newest of its stream, which is refused and forgotten;
    # 3 at 2 then comes behind it and is left out: it is no evaluation, though no newer row of a is remembered.
    a = one_machine([1, 3, 2], [5, 4, 3]) | {"arrival": np.array([1, 2, 3])}
    b = one_machine([0], [0]) | {"arrival": np.array([0])}
    rule = Rule("x", "a + b > 3.5", within="10us", hop="100us", on="machine", shapes={"a": "increasing"})
    for cuts in ([], [3], [1, 2, 3]):
        result = local.run_local_detailed({"a": a, "b": b}, rule, arrival="arrival", cuts=cuts)
        assert [(row["state"], row["startsAt"].microsecond) for row in result.alerts] == [("firing", 1)], cuts
        assert settled(result.counts)["a"] == {"received": 3, "retained": 1, "omitted": 2}


def test_a_value_outside_its_domain_stays_is_counted_and_excuses_no_other() -> None:
    # f = r * s**2 rises with r; 12 lies outside [0, 10], so r = 5 between two of them stays, and so do they.
    def counts_of_r(streams: dict[str, Any], rule: Rule) -> dict[str, int]:
        return settled(local.run_local_detailed(streams, rule).counts)["r"]

    settings: dict[str, Any] = {"within": "10us", "on": "machine", "shapes": {"r": "increasing", "s": "quasiconvex"}}
    outside = {"r": one_machine([0, 1, 2], [12, 5, 12]), "s": one_machine([], [])}
    inside = {"r": one_machine([0, 1, 2], [9, 5, 9]), "s": one_machine([], [])}
    rule = Rule("x", "r * s**2 > 3", domains={"r": (0, 10)}, **settings)
    assert counts_of_r(outside, rule) == {"received": 3, "retained": 3, "out_of_domain": 2}
    assert counts_of_r(inside, rule) == {"received": 3, "retained": 2, "omitted": 1}
    without = Rule("x", "r * s**2 > 3", **settings)
    assert counts_of_r(outside, without) == {"received": 3, "retained": 2, "omitted": 1}
    # A negative r lies between larger ones, which would excuse it if it were inside.
    below = {"r": one_machine([0, 1, 2], [5, -1, 5]), "s": one_machine([], [])}
    assert counts_of_r(below, rule) == {"received": 3, "retained": 3, "out_of_domain": 1}


def test_a_partner_outside_its_domain_is_evaluated_with_what_is_left() -> None:
    # s = 0 between -1, 1 and -1, 1 is left out, rightly while r >= 0. Then r = -1 arrives: 0 would have been true, but
    # the guarantee does not cover combinations with a value outside its domain.
    rule = Rule("x", "r * s**2 > -1", within="10us", on="machine", domains={"r": (0, 10)},
                shapes={"r": "increasing", "s": "quasiconvex"})  # fmt: skip
    streams = {"s": one_machine([0, 1, 2, 3, 4], [-1, 1, 0, -1, 1]), "r": one_machine([5], [-1])}
    result = local.run_local_detailed(streams, rule)
    assert settled(result.counts) == {
        "s": {"received": 5, "retained": 4, "omitted": 1}, "r": {"received": 1, "retained": 1, "out_of_domain": 1}
    }  # fmt: skip
    assert result.alerts == []
