"""Limits that differ per key: a rule with a table is, for each key, the rule with that key's number in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.example_counts import ENGINE
from tocsin import Rule, RuleError, run_local
from tocsin.local import run_local_detailed
from tocsin.rules.limits import Limits
from tocsin.runtime.metrics import OUTCOMES

SECOND = 1_000_000
ROWS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("xyz"), st.integers(-3, 3).map(float)), max_size=14)
TABLE = Limits("limits.csv", ("m",), ("low", "high"), {("x",): (-1.0, 1.0), ("y",): (0.0, 2.0)})

ONE = Rule("Hot", "a > by.high", on=["m"], limits={"by": TABLE}, stale="3s")
RULES = [
    ONE,
    replace(ONE, within="2s", shapes={"a": "increasing"}),
    replace(ONE, recovery=-2),
    replace(ONE, expr="a - b > by.high + by.low", within="2s", shapes={"a": "increasing", "b": "decreasing"}),
    replace(ONE, expr="b < by.low and a > 2 * by.high", within="3s", for_="1s", keep_firing_for="1s"),
    replace(ONE, expr="a * by.high > b", within="2s", emit="all"),
]


def table(rows: list[tuple[int, str, float]]) -> dict[str, list[Any]]:
    times, machines, values = ([row[i] for row in rows] for i in range(3))
    return {"ts": [t * SECOND for t in times], "arrival": list(range(len(rows))), "m": machines, "value": values}


@ENGINE
@given(ROWS, ROWS, st.sampled_from(RULES), st.lists(st.integers(0, 20), max_size=3))
def test_a_table_is_a_number_for_each_key(a: Any, b: Any, rule: Rule, cuts: list[int]) -> None:
    streams = {"a": table(a), "b": table(b)}
    found = run_local(streams, rule, arrival="arrival", cuts=sorted(cuts))
    for key, (low, high) in TABLE.rows.items():
        expr = rule.expr.replace("by.low", f"({low})").replace("by.high", f"({high})").replace("(1.0)", "1.0")
        plain = replace(rule, expr=expr.replace("(2.0)", "2.0"), limits={})
        expected = [alert for alert in run_local(streams, plain, arrival="arrival") if alert["labels"]["m"] == key[0]]
        assert [alert for alert in found if alert["labels"]["m"] == key[0]] == expected
    assert not [alert for alert in found if alert["labels"]["m"] == "z"]


@ENGINE
@given(ROWS, ROWS, st.sampled_from(RULES), st.lists(st.integers(0, 20), max_size=3))
def test_rows_of_keys_that_the_table_does_not_have_are_counted(a: Any, b: Any, rule: Rule, cuts: list[int]) -> None:
    streams = {"a": table(a), "b": table(b)}
    found = run_local_detailed(streams, rule, arrival="arrival", cuts=sorted(cuts)).counts
    for stream, counts in found.items():
        expected = sum(key not in TABLE.rows for key in zip(streams[stream]["m"]))
        assert counts.get("without_limits", 0) == expected
        assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES)


@ENGINE
@given(ROWS, ROWS, st.lists(st.integers(0, 20), max_size=3))
def test_a_rule_with_time_enough_reads_the_table_as_one_without_a_budget(a: Any, b: Any, cuts: list[int]) -> None:
    streams = {"a": table(a), "b": table(b)}
    rule = replace(ONE, expr="a * by.high > b", within="2s", emit="all", allowed_lateness="1h")
    rich = replace(rule, quality={"cpu": "64 cores"})
    found = run_local(streams, rich, arrival="arrival", cuts=sorted(cuts))
    expected = run_local(streams, rule, arrival="arrival")
    assert sorted(row["id"] for row in found) == sorted(row["id"] for row in expected)
    assert {row["id"]: row["margin"] for row in found} == {row["id"]: row["margin"] for row in expected}


def test_a_row_is_counted_once_however_many_rules_miss_its_key_and_only_where_one_does() -> None:
    rules = [ONE, replace(ONE, alert="Cold", expr="a < by.low"), Rule("Dry", "b > 0", on=["m"])]
    rows = table([(0, "z", 1.0), (1, "x", 1.0), (2, "z", 1.0)])
    counts = run_local_detailed({"a": rows, "b": rows}, rules, arrival="arrival").counts
    assert (counts["a"]["without_limits"], counts["b"]["without_limits"]) == (2, 0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"expr": "a > by.top"}, r"`by` must name a column of its table \(low, high\); got top"),
        ({"expr": "a > by"}, r"`by` must name a column of its table \(low, high\); got no column"),
        ({"expr": "by.low > 1"}, "`expr` must read 1 to 8 streams; got 0"),
        ({"expr": "a > 1", "limits": {"a": TABLE}}, r"`limits\['a'\]` must not have the name of a stream"),
        ({"recovery": 2}, "`recovery` must not be above the threshold of `>`; got 2 and the threshold 1"),
        ({"expr": "a > b", "recovery": 0}, "`recovery` needs one comparison with a number or a column of limits"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RuleError, match=sentence):
        run_local({"a": table([]), "b": table([])}, replace(ONE, within="1s", **change))


def test_a_recovery_threshold_keeps_an_alert_firing_between_the_two() -> None:
    rows = [(0, "x", 5.0), (1, "x", 9.0), (2, "x", 6.0), (3, "x", 4.0), (4, "x", 6.0)]
    found = run_local({"a": table(rows)}, Rule("Hot", "a > 8", on=["m"], recovery=5))
    assert [(alert["state"], alert["startsAt"].second, alert["value"]) for alert in found] == [
        ("firing", 1, 9.0),
        ("resolved", 1, 9.0),
    ]
    assert found[1]["endsAt"].second == 3


def test_rules_of_one_name_differ_by_their_labels() -> None:
    rules = [Rule("Hot", f"a > {limit}", on=["m"], labels={"severity": name}) for name, limit in (("w", 1), ("c", 5))]
    found = run_local({"a": table([(0, "x", 3.0), (1, "x", 9.0)])}, rules)
    assert [
        (alert["labels"]["severity"], alert["startsAt"].second) for alert in found if alert["state"] == "firing"
    ] == [
        ("c", 1),
        ("w", 0),
    ]
