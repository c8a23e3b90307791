"""Which rules wait together, which need not wait at all, and what the plan says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tocsin import Rule
from tocsin.plan import Plan, make_plan, plan_changes
from tocsin.plan.changes import describe_plan
from tocsin.rules.limits import Limits

COLUMNS = {name: ["ts", "m", "value"] for name in ("air", "wall", "door")}
RECALL = {"recall": 0.99, "period": "1m"}


def rule(alert: str = "A", expr: str = "air - wall > 3", **given: Any) -> Rule:
    domains = {name: (-40, 80) for name in COLUMNS if name in expr}
    return Rule(alert, expr, within="10s", on="m", domains=domains, **given)


def plan(*rules: Rule) -> Plan:
    return make_plan(rules, COLUMNS)


def test_a_rule_that_does_not_wait_has_no_order() -> None:
    assert plan(rule()).watches[0].order is None
    assert plan(rule(quality={"wait": "none"})) == plan(rule())


def test_rules_that_wait_alike_for_the_same_streams_share_a_watch() -> None:
    found = plan(rule("A", quality={"wait": "5s"}), rule("B", "air - wall > 9", quality={"wait": "5s"}))
    assert [[one.alert for one in watch.rules] for watch in found.watches] == [["A", "B"]]


def test_rules_that_wait_otherwise_or_for_other_streams_touch_no_other() -> None:
    rules = [
        rule("A"),
        rule("B", quality={"wait": "5s"}),
        rule("C", quality={"wait": "6s"}),
        rule("D", "air - wall + door > 3", quality={"wait": "5s"}),
    ]
    found = plan(*rules)
    assert [[one.alert for one in watch.rules] for watch in found.watches] == [["A"], ["B"], ["C"], ["D"]]
    assert len({watch.name for watch in found.watches}) == 4
    assert [watch.name for watch in found.watches] == [plan(one).watches[0].name for one in rules]
    for one, watch in zip(rules, found.watches, strict=True):
        alone = plan(one).watches[0]
        assert (watch.stores, watch.rules) == (alone.stores, alone.rules)


def test_a_recall_alone_asks_for_no_wait_and_the_plan_says_why() -> None:
    found = plan(rule(quality=RECALL))
    assert found.watches[0].order is None
    assert "no wait: without `for`, rows are joined on arrival and the recall is 1 (configured: 0.99)" in str(found)


@pytest.mark.parametrize(
    "given",
    [{"for_": "30s", "quality": RECALL}, {"quality": RECALL | {"in_order": True}}, {"quality": {"wait": "max"}}],
)
def test_for_and_order_need_a_wait(given: dict[str, Any]) -> None:
    found = plan(rule(**given))
    assert found.watches[0].order is not None
    assert "no wait" not in str(found)
    assert "Reorder: rows wait as long as" in str(found)


def test_the_plan_says_how_long_rows_wait_at_most() -> None:
    assert "Reorder: rows wait 5s;" in str(plan(rule(quality={"wait": "5s"})))
    assert "the largest delay so far, at most `allowed_lateness`;" in str(plan(rule(quality={"wait": "max"})))
    # 8,192 grains of 1 ms.
    grained = plan(rule(quality=RECALL | {"in_order": True, "step": "1ms"}))
    assert "as long as a recall of 0.99 over 1m needs, at most 8.19 s;" in str(grained)


@pytest.mark.parametrize(
    "given", [{"quality": {"wait": "5s"}}, {"quality": {"wait": "max"}}, {"for_": "30s", "quality": RECALL}]
)
def test_each_rule_that_waits_says_that_late_rows_are_joined_too(given: dict[str, Any]) -> None:
    assert "a later row can raise a late alert;" in str(plan(rule(**given)))


def test_a_stream_is_waited_for_a_minute_a_span_or_as_the_rule_says() -> None:
    def idle_timeout_us(**given: Any) -> int:
        order = plan(rule(quality={"wait": "5s"}, **given)).watches[0].order
        assert order is not None
        return order.idle_timeout_us

    assert idle_timeout_us() == 60_000_000
    assert idle_timeout_us(idle_timeout="7s") == 7_000_000
    far = make_plan(Rule("A", "air - wall > 3", within="10m", on="m", quality={"wait": "5s"}), COLUMNS).watches[0].order
    assert far is not None
    assert far.idle_timeout_us == 600_000_000


def test_the_window_of_a_stream_is_how_far_it_may_lie_behind_another() -> None:
    bounds = {("air", "wall"): ("-5s", "20s")}  # -5 s <= t_wall - t_air <= 20 s
    order = (
        make_plan(Rule("A", "air - wall > 3", within=bounds, on="m", quality={"wait": "5s"}), COLUMNS).watches[0].order
    )
    assert order is not None
    assert order.windows_us == (20_000_000, 5_000_000)


def test_rules_wait_together_if_they_read_the_same_columns_however_these_are_named() -> None:
    columns = {"air": ["ts", "m", "value", "temp"], "wall": ["ts", "m", "value"]}
    limits = {"by": Limits("t.csv", ("m",), ("most",), {("x",): (1.0,)})}
    rules = [
        rule("A", "air.value - wall > 3", quality={"wait": "5s"}),
        rule("B", "air - wall.value > 9", quality={"wait": "5s"}),
        rule("C", "air.temp - wall > 3", quality={"wait": "5s"}),
        rule("D", "air.temp - wall + air.value > 3", quality={"wait": "5s"}),
        rule("E", "air.value - air.temp + wall > 3", quality={"wait": "5s"}),
        rule("F", "air - wall > by.most", quality={"wait": "5s"}, limits=limits),
    ]
    found = make_plan([replace(one, domains={}) for one in rules], columns)
    assert [[one.alert for one in watch.rules] for watch in found.watches] == [["A", "B", "F"], ["C"], ["D", "E"]]


def test_another_wait_keeps_the_state_of_a_rule() -> None:
    before, after = plan(rule(quality={"wait": "5s"})), plan(rule(quality=RECALL | {"in_order": True}))
    assert plan_changes(describe_plan(before), describe_plan(after)) == []


def test_what_becomes_of_rules_that_wait_is_said_by_the_rules_that_state_is_of() -> None:
    before = plan(
        rule("A", quality={"wait": "5s"}), rule("B", quality={"wait": "6s"}), rule("C", quality={"wait": "max"})
    )
    after = plan(
        rule("0", quality={"wait": "1s"}), rule("A", quality={"wait": "6s"}), rule("B", quality={"wait": "5s"})
    )
    said = plan_changes(describe_plan(before), describe_plan(after))
    assert said[:3] == [
        "keys m (rules with a reorder wait): no rule uses this pipeline any more; its state is dropped",
        'rule "C": it was removed; its open alerts end',
        'rule "0": it is new; it starts with the retained rows',
    ]
    # Of the rule that is new: what it remembers of its two streams.
    assert [text.endswith("its rows are retained from now on") for text in said[3:]] == [True, True]


def test_rule_keeps_its_state_when_it_gains_or_loses_a_wait() -> None:
    without, waiting = (describe_plan(plan(one)) for one in (rule(), rule(quality={"wait": "5s"})))
    assert plan_changes(without, waiting) == plan_changes(waiting, without) == []
