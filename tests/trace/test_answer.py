"""Each kind of answer with its sentence: why an alert was or was not there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tocsin import Rule
from tocsin.plan import Plan, make_plan
from tocsin.rules.limits import Limits
from tocsin.trace import Answer, Dead, KeyRows, Traced, trace, why
from tocsin.trace.model import DUPLICATES

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
JOIN = Rule("Warm", "air - surface > 2", within="10s", on="machine", allowed_lateness="1h")
COLUMNS = ["machine", "ts", "value"]


def plan_of(*rules: Rule) -> Plan:
    return make_plan(rules, {"air": COLUMNS, "surface": COLUMNS})


def rows(text: str) -> KeyRows:
    """Read `second:value` or `second:value@arrival`."""
    parts = [[*part.partition("@")[0].split(":"), part.partition("@")[2]] for part in text.split()]
    time = np.array([int(second) * SECOND for second, _, _ in parts], np.int64)
    arrival = np.array([int(moment or second) * SECOND for second, _, moment in parts], np.int64)
    return KeyRows(time, arrival, {"value": np.array([float(value) for _, value, _ in parts])})


def traced(*rules: Rule, dead: tuple[Dead, ...] = (), **streams: str) -> Traced:
    watch = plan_of(*rules).watches[0]
    return trace(watch, ("m1",), {name: rows(text) for name, text in streams.items()}, dead)


def answer(*rules: Rule, at: int, around: int | None = None, dead: tuple[Dead, ...] = (), **streams: str) -> Answer:
    found = traced(*rules, dead=dead, **streams)
    return why(found, found.watch.rules[0], at * SECOND, None if around is None else around * SECOND)


def told(*rules: Rule, at: int, around: int | None = None, **streams: str) -> list[tuple[str, str]]:
    found = answer(*rules, at=at, around=around, **streams)
    return [(reason.kind, reason.text) for reason in found.reasons]


def hot(**more: Any) -> Rule:
    return Rule("Hot", "air > 20", **{"within": "1m", "on": "machine", **more})


def test_it_fired() -> None:
    found = answer(JOIN, at=5, air="0:21 5:24 60:10", surface="1:20 5:20 60:20")
    assert found.verdict == "firing"
    (reason,) = found.reasons
    assert reason.kind == "fired"
    assert reason.text == (
        f"it fired: alert {reason.facts['id']} from 1970-01-01T00:00:05Z until 1970-01-01T00:00:15Z; value 4, "
        "largest margin 2 with air 24 at 1970-01-01T00:00:05Z, surface 20 at 1970-01-01T00:00:01Z"
    )
    assert (reason.facts["startsAt"], reason.facts["endsAt"]) == (5 * SECOND, 15 * SECOND)


@pytest.mark.parametrize(
    ("limit", "said"), [("memory", "memory budget is enough"), ("cpu", "CPU budget is enough for all pairs")]
)
def test_of_a_rule_with_a_budget_it_is_said_that_a_run_may_find_less(limit: str, said: str) -> None:
    rule = replace(JOIN, emit="all", quality={limit: {"memory": "1MB", "cpu": "1%"}[limit]})
    *_, (kind, text) = told(rule, at=5, air="0:21 5:24 60:10", surface="1:20 5:20 60:20")
    assert kind == "budget-assumed"
    assert said in text


def test_it_fired_and_has_not_ended() -> None:
    (reason,) = answer(hot(), at=7, air="0:19 5:21 9:22").reasons
    assert "from 1970-01-01T00:00:05Z and is still open at the last row; value 22, largest margin 2" in reason.text


def test_it_fired_late() -> None:
    found = answer(JOIN, at=5, air="0:9 5:24 40:9 90:9 200:9", surface="5:20@300 12:30@301")
    assert found.verdict == "firing"
    assert "; it is a late alert, raised by an out-of-order row; " in found.reasons[0].text


@pytest.mark.parametrize(("air", "ending"), [
    ("0:21 60:22 120:22 180:10", "; it fired at 1970-01-01T00:02:00Z"),
    ("0:21 60:22 90:10", "; it ended at 1970-01-01T00:01:30Z without firing"),
    ("0:21 60:22", "; the input ends before"),
])  # fmt: skip
def test_it_was_pending(air: str, ending: str) -> None:
    found = answer(hot(for_="2m"), at=70 if "90" not in air else 80, air=air)
    assert found.verdict == "pending"
    assert [reason.text for reason in found.reasons] == [
        f"pending since 1970-01-01T00:00:00Z, because `for` is 2m{ending}"
    ]


def test_it_stayed_below_the_threshold() -> None:
    assert told(JOIN, at=6, air="0:21 5:21.5", surface="1:20 6:20") == [
        ("below", "below the threshold: the closest of 3 evaluations within 10s is at 1970-01-01T00:00:05Z: value 1.5, "
         "margin -0.5 (air 21.5 at 1970-01-01T00:00:05Z, surface 20 at 1970-01-01T00:00:01Z)")
    ]  # fmt: skip


def test_it_held_but_at_another_time() -> None:
    reasons = told(hot(), at=40, around=30, air="0:10 20:21 30:12 40:10")
    assert reasons == [
        (
            "true-nearby",
            "the condition was true at 1970-01-01T00:00:20Z, 20 s before: value 21, margin 1 (air 21 at "
            "1970-01-01T00:00:20Z)",
        )
    ]


def test_a_stream_is_missing() -> None:
    assert told(JOIN, at=100, air="58:30 100:30", surface="58:20") == [
        ("missing", "no row of `surface` within 10s; the nearest is 42 s before")
    ]
    assert told(JOIN, at=0, air="0:30") == [("missing", "no valid row of `surface` for this key")]
    assert told(JOIN, at=100, air="158:30", surface="0:20") == [
        ("missing", "no row of `air` within 10s; the nearest is 58 s after"),
        ("missing", "no row of `surface` within 10s; the nearest is 1 min 40 s before"),
    ]


def test_a_key_that_no_source_has_is_told() -> None:
    assert told(JOIN, at=0, air="", surface="") == [("missing", "the sources have no row of this key (machine=m1)")]


def test_rows_lie_outside_the_band() -> None:
    assert told(JOIN, at=6, air="0:30", surface="12:20") == [
        ("outside-bounds", "outside the time bound: `surface` at 1970-01-01T00:00:12Z is 12 s after `air` at "
         "1970-01-01T00:00:00Z; `within` allows a distance of at most 10s, exceeded by 2 s")
    ]  # fmt: skip
    bounds = Rule("Warm", "air - surface > 2", within={("air", "surface"): ("1s", "5s")}, on="machine")
    assert told(bounds, at=6, around=10, air="6:30", surface="4:20") == [
        ("outside-bounds", "outside the time bound: `surface` at 1970-01-01T00:00:04Z is 2 s before `air` at "
         "1970-01-01T00:00:06Z; `within` allows 1s to 5s after, exceeded by 3 s")
    ]  # fmt: skip
    hopping = Rule("Warm", "air - surface > 2", within="10s", hop="10s", on="machine")
    assert told(hopping, at=10, air="9:30", surface="11:20") == [
        ("outside-bounds", "outside the time bound: no window of 10s, hopping by 10s, contains a row of each stream")
    ]


def test_the_condition_is_undefined() -> None:
    rule = Rule("Log", "ln(air) > 1", on="machine")
    assert told(rule, at=0, air="0:-1 1:0") == [
        ("undefined", "the condition is undefined in all 2 evaluations within 1m, for example by x/0 or ln(0)")
    ]


def test_a_row_was_left_out_with_its_bracket() -> None:
    reasons = told(hot(shapes={"air": "increasing"}), at=20, around=5, air="0:19 20:15 40:18")
    assert reasons[-1] == (
        "omitted", "omitted: the row of `air` at 1970-01-01T00:00:20Z (air 15), because it is between rows "
        "at least as large: 19 at 1970-01-01T00:00:00Z and 18 at 1970-01-01T00:00:40Z, 40 s apart (at most 1m is "
        "allowed)",
    )  # fmt: skip
    both = told(hot(shapes={"air": "quasiconvex"}), at=20, around=5, air="0:19 10:5 20:15 30:6 40:18")
    assert both[-1][1].endswith(
        "because it is between rows at least as large: 19 at 1970-01-01T00:00:00Z and 18 at 1970-01-01T00:00:40Z, "
        "40 s apart (at most 1m is allowed), and it is between rows at least as small: 5 at 1970-01-01T00:00:10Z and 6 "
        "at "
        "1970-01-01T00:00:30Z, 20 s apart (at most 1m is allowed)"
    )
    same = told(hot(shapes={"air": "increasing"}), at=20, around=5, air="20:15 20:16")
    assert same[-1][1].endswith("because a row at least as large has the same time (16 at 1970-01-01T00:00:20Z)")
    hopping = hot(shapes={"air": "increasing"}, hop="1m")
    assert told(hopping, at=20, around=5, air="0:19 20:15 40:18")[-1][1].endswith(
        "because every window that contains it contains a row at least as large (19 at 1970-01-01T00:00:00Z)"
    )


def test_a_row_that_came_behind_was_left_out_and_not_evaluated() -> None:
    reasons = told(hot(shapes={"air": "increasing"}), at=20, around=5, air="0:19 40:18 20:15@50")
    assert reasons[-1][1].endswith("40 s apart (at most 1m is allowed); it arrived out of order and was not evaluated")


def test_a_row_that_came_again_is_a_duplicate() -> None:
    reasons = told(JOIN, at=0, air="0:21 0:21@3", surface="0:20")
    assert (
        "duplicates",
        "duplicate: the row of `air` at 1970-01-01T00:00:00Z (air 21) equals an earlier row, so it changes nothing",
    ) in reasons


def test_rows_that_differ_in_their_payload_alone_are_both_there() -> None:
    watch = plan_of(replace(JOIN, shapes={"air": None, "surface": None})).watches[0]
    air = replace(rows("0:21 0:21@3 0:21@4"), payload=np.array(['{"by": "a"}', '{"by": "b"}', '{"by": "a"}'], object))
    found = trace(watch, ("m1",), {"air": air, "surface": rows("0:20")})
    assert found.stores[0].count() == {"kept": 2, "duplicates": 1}
    assert [found.stores[0].fate[row] == DUPLICATES for row in range(3)] == [False, False, True]
    # The surface meets the first of them; the second meets the surface.
    assert [(one.stream, one.row) for one in found.evaluations[0]] == [("surface", 0), ("air", 1)]


def test_only_what_the_rule_itself_leaves_out_is_told() -> None:
    every, beside = hot(), Rule("Cold", "air < 0", within="1m", on="machine", shapes={"air": "decreasing"})
    found = traced(every, beside, air="0:19 10:20 20:19")
    assert found.stores_of(found.watch.rules[0])[0].count() == {"kept": 2, "omitted": 1}
    assert [[reason.kind for reason in why(found, rule, 10 * SECOND).reasons] for rule in found.watch.rules] == [
        ["below"], ["below", "omitted"],
    ]  # fmt: skip


def test_a_domain_that_a_neighbour_declares_is_not_told() -> None:
    shapes = {"air": "increasing", "surface": "decreasing"}
    plain = replace(JOIN, shapes=shapes)
    bounded = replace(plain, alert="Bounded", domains={"air": (-40, 85)})
    found = traced(plain, bounded, air="0:99", surface="0:99")
    kinds = [[reason.kind for reason in why(found, rule, 0).reasons] for rule in found.watch.rules]
    assert kinds == [["below"], ["below", "out-of-domain"]]


def test_a_key_that_stands_in_no_table_of_limits_is_told() -> None:
    table = Limits("limits.csv", ("machine",), ("least", "most"), {("m2",): (1.0, 2.0)})
    rule = Rule("Hot", "air > by.most - by.least", on="machine", limits={"by": table})
    assert told(rule, at=0, air="0:30") == [
        (
            "without-limits",
            "no row for machine=m1 in the limits table `by`: a comparison with its columns is never true",
        )
    ]
    half = replace(rule, expr="air > 20 or air > by.most")
    assert answer(half, at=0, air="0:30").verdict == "firing"


def test_a_row_came_too_late() -> None:
    reasons = told(JOIN, at=0, air="0:30@4001 4000:1", surface="4000:1")
    assert reasons[-1] == (
        "late", "late: the row of `air` at 1970-01-01T00:00:00Z (air 30) arrived when the newest row of its key was "
        "1 h 7 min later; `allowed_lateness` is 1h, so it was dropped",
    )  # fmt: skip


def test_rows_could_not_be_used() -> None:
    dead = (Dead("air", "time `ts` is missing", "{}"), *[Dead("air", "broken", "x", 0)] * 4)
    found = answer(hot(), at=0, air="0:nan 1:5", dead=dead)
    assert [reason.text for reason in found.reasons][1:] == [
        "invalid: the row of `air` at 1970-01-01T00:00:00Z has no finite value of `air`",
        "invalid: a row of `air`: time `ts` is missing",
        "invalid: a row of `air` at 1970-01-01T00:00:00Z: broken",
        "and 3 more rows of `air` that are invalid",
    ]


def test_a_value_lies_outside_its_domain() -> None:
    rule = hot(shapes={"air": "increasing"}, domains={"air": (-40, 85)})
    reasons = told(rule, at=0, air="0:999")
    assert reasons[-1] == (
        "out-of-domain", "outside the domain [-40, 85]: the row of `air` at 1970-01-01T00:00:00Z (air 999) is retained "
        "and covers no other row",
    )  # fmt: skip


def test_of_many_rows_a_few_are_told() -> None:
    reasons = told(hot(shapes={"air": "increasing"}), at=20, air="0:19 10:1 20:1 21:2 22:3 23:4 24:3 40:18")
    kinds = [kind for kind, _ in reasons]
    assert kinds.count("omitted") == 3
    assert reasons[-1] == ("omitted", "and 4 more rows of `air` that were omitted")
    dead = (Dead("air", "broken", "x", 0),) * 3
    found = answer(hot(), at=0, air="0:5", dead=dead)
    assert found.reasons[-1].text == "and 1 more row of `air` that is invalid"


def test_rules_of_one_name_are_told_apart_by_their_labels() -> None:
    low, high = (Rule("Hot", f"air > {n}", on="machine", labels={"level": str(n)}) for n in (10, 30))
    found = traced(low, high, air="0:20 1:21")
    verdicts = [why(found, rule, 0).verdict for rule in found.watch.rules]
    assert verdicts == ["firing", "not firing"]


def test_an_alert_of_a_rule_with_more_labels_is_not_that_of_its_namesake() -> None:
    plain, low = Rule("Hot", "air > 30", on="machine"), Rule("Hot", "air > 10", on="machine", labels={"level": "10"})
    found = traced(plain, low, air="0:20 1:21")
    assert [why(found, rule, 0).verdict for rule in found.watch.rules] == ["not firing", "firing"]
