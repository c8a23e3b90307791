"""What one rule says about itself: every sentence that refuses it."""

from __future__ import annotations

import math
import re
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from tocsin import NoData, RangeRule, Rule, RuleError

PLACE = 'rule "hot": '
BARE: dict[str, tuple[type[Rule | NoData | RangeRule], dict[str, Any]]] = {
    "`within`": (Rule, {"within": 120}),
    "`within[('a', 'b')]`": (Rule, {"within": {("a", "b"): (0, 120)}}),
    "`for`": (Rule, {"for_": 120}),
    "`keep_firing_for`": (Rule, {"keep_firing_for": 120}),
    "`stale`": (Rule, {"stale": 120}),
    "`allowed_lateness`": (Rule, {"allowed_lateness": 120}),
    "`idle_timeout`": (Rule, {"idle_timeout": 120}),
    "`hop`": (Rule, {"within": "1h", "hop": 120}),
    "`quality.wait`": (Rule, {"quality": {"wait": 120}}),
    "`quality.deadline`": (Rule, {"emit": "all", "quality": {"deadline": 120}}),
    "`quality.period`": (Rule, {"quality": {"recall": 0.9, "period": 120}}),
    "`quality.adapt_every`": (Rule, {"quality": {"recall": 0.9, "adapt_every": 120}}),
    "`quality.step`": (Rule, {"quality": {"recall": 0.9, "step": 120}}),
    "`quality.model.granularity`": (Rule, {"quality": {"model": {"granularity": 120}}}),
    "`for` of NoData": (NoData, {"stream": "a", "for_": 120}),
    "`within` of RangeRule": (RangeRule, {"within": 120}),
    "`rearm` of RangeRule": (RangeRule, {"rearm": 120}),
}


@pytest.mark.parametrize("name", BARE)
def test_a_rule_is_rejected_when_a_duration_is_a_number_without_a_unit(name: str) -> None:
    kind, given = BARE[name]
    own = {Rule: {"alert": "hot", "expr": "a - b > 1"}, RangeRule: {"alert": "hot", "values": "a.x", "requests": "b"}}
    field = name.removesuffix(" of NoData").removesuffix(" of RangeRule")
    with pytest.raises(RuleError, match=rf"{re.escape(field)} must be a duration .*; got 120, a number without a unit"):
        kind(**own.get(kind, {}) | given)


@pytest.mark.parametrize("zero", [0, "0", timedelta(0)])
def test_a_rule_accepts_0_as_a_duration(zero: Any) -> None:
    rule = Rule("hot", "a + b > 1", within=zero, for_=zero, stale=zero, idle_timeout=zero, quality={"wait": zero})
    assert rule.quality_options.wait.wait_us == 0


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"alert": " "}, 'rule " ": `alert`' " must be a name; got ' '"),
    "a name that is no text": ({"alert": 5}, 'rule "5": `alert`' " must be a name; got 5"),
    "a condition that is no text": ({"expr": 5}, PLACE + "`expr` must be text; got int"),
    "an unknown emit": ({"emit": "some"}, PLACE + "`emit` must be one of witness, all; got 'some'"),
    "an unknown closed": (
        {"closed": "open"}, PLACE + "`closed` must be one of both, neither, left, right; got 'open'"),
    "an unknown shape": (
        {"shapes": {"a": "convex"}},
        PLACE + "`shapes['a']` must be one of increasing, decreasing, quasiconvex, unreduced; got 'convex'"),
    "a negative window": ({"within": "-5s"}, PLACE + "`within` must not be negative; got '-5s'"),
    "a window that is no duration": ({"within": "soon"}, PLACE + "`within` must be a duration such as '10s'"),
    "a negative for": ({"for_": "-1s"}, PLACE + "`for` must not be negative; got '-1s'"),
    "a negative keep_firing_for": ({"keep_firing_for": "-1s"}, PLACE + "`keep_firing_for` must not be negative"),
    "a negative stale": ({"stale": "-1s"}, PLACE + "`stale` must not be negative; got '-1s'"),
    "a negative allowed lateness": (
        {"allowed_lateness": "-1s"},
        PLACE + "`allowed_lateness` must not be negative; got '-1s'",
    ),
    "a negative idle timeout": ({"idle_timeout": "-1s"}, PLACE + "`idle_timeout` must not be negative; got '-1s'"),
    "a negative hop": ({"hop": "-1s"}, PLACE + "`hop` must not be negative; got '-1s'"),
    "a hop that stands still": ({"hop": "0s"}, PLACE + "`hop` must be longer than 0; got '0s'"),
    "hop with bounds per pair": (
        {"hop": "1s", "within": {("a", "b"): ("0s", "1s")}},
        PLACE + "`hop` needs one `within`, the length of its windows; got bounds per pair"),
    "a pair of one": ({"within": {("a",): (0, 1)}}, PLACE + "`within[('a',)]` must name two different streams"),
    "a pair of a stream with itself": (
        {"within": {("a", "a"): (0, 1)}}, PLACE + "`within[('a', 'a')]` must name two different streams"),
    "a pair that is no pair": ({"within": {"ab": (0, 1)}}, PLACE + "`within['ab']` must name two different streams"),
    "one bound for a pair": (
        {"within": {("a", "b"): "5s"}}, PLACE + "`within[('a', 'b')]` must be (lower, upper); got '5s'"),
    "reversed bounds": (
        {"within": {("a", "b"): ("5s", "-5s")}},
        PLACE + "`within[('a', 'b')]` must have lower <= upper; got ('5s', '-5s')"),
    "a bound that is no duration": (
        {"within": {("a", "b"): (0, "soon")}}, PLACE + "`within[('a', 'b')]` must be a duration such as '10s'"),
    "a reversed domain": (
        {"domains": {"a": (10, 0)}}, PLACE + "`domains['a']` must be (low, high) with low < high; got (10, 0)"),
    "an empty domain": ({"domains": {"a": (1, 1)}}, PLACE + "`domains['a']` must be (low, high) with low < high"),
    "a domain of NaN": ({"domains": {"a": (math.nan, 1)}}, PLACE + "`domains['a']` must be (low, high)"),
    "a domain of one number": (
        {"domains": {"a": 3}}, PLACE + "`domains['a']` must be (low, high) with low < high; got 3"),
    "a label that is no name": (
        {"labels": {"a-b": "x"}}, PLACE + "label and key names must look like `team_1`; got 'a-b'"),
    "a key column that is no name": (
        {"on": ["my key"]}, PLACE + "label and key names must look like `team_1`; got 'my key'"),
    "a key column that is no text": ({"on": [3]}, PLACE + "label and key names must look like `team_1`; got 3"),
    "a label that is a key column": (
        {"on": "site", "labels": {"site": "x"}}, PLACE + "`labels` must not repeat key columns; both have 'site'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    given, message = REFUSED[name]
    with pytest.raises(RuleError, match="^" + re.escape(message)):
        Rule(**{"alert": "hot", "expr": "a + b > 0", "within": "5s"} | given)


def test_a_rule_needs_a_name_and_a_condition_only() -> None:
    rule = Rule("hot", "a > 0")
    assert (rule.within, rule.on, rule.emit, rule.closed, rule.location) == (None, (), "witness", "both", 'rule "hot"')


def test_one_key_column_may_be_given_as_text() -> None:
    assert Rule("hot", "a > 0", on="machine").on == ("machine",)


def test_a_shape_may_be_left_open() -> None:
    assert Rule("hot", "a > 0", shapes={"a": None}).shapes == {"a": None}


def test_bounds_may_be_lists_and_equal() -> None:
    assert Rule("hot", "a + b > 0", within={("a", "b"): ["5s", "5s"]}).alert == "hot"


def test_a_rule_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'expr'"):
        Rule("hot", "a > 0").expr = "a > 1"  # type: ignore[misc]
