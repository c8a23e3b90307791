"""No rule's answer depends on what the rules beside it read."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.example_counts import ENGINE
from tocsin import Rule, local, run_local
from tocsin.local import explain, run_local_detailed
from tocsin.runtime.session import Session

SECOND = 1_000_000
VALUES = st.one_of(st.none(), st.sampled_from([float("nan"), float("inf"), -0.0]), st.integers(-3, 3).map(float))
ROWS = st.lists(st.tuples(st.integers(0, 12), VALUES, VALUES, st.sampled_from(["x", "y"])), max_size=12)

RULES = [
    Rule("Warm", "air.temp > 0", on=["m"], within="2s"),
    Rule("WarmKept", "air.temp > 0", on=["m"], within="2s", shapes={"air.temp": "increasing"}),
    Rule("Damp", "air.hum > wall.hum", on=["m"], within="3s", shapes={"air.hum": "increasing", "wall.hum": None}),
    Rule("Both", "air.temp + air.hum > wall.temp", on=["m"], within="3s", shapes={"air.temp": None, "wall.temp": None}),
    Rule("Every", "air.temp > wall.temp", on=["m"], within="3s", emit="all"),
]


def sorted_by_time(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row[0])


def table(rows: list[tuple[int, Any, Any, str]]) -> dict[str, list[Any]]:
    return {
        "ts": [t * SECOND for t, *_ in rows],
        "arrival": list(range(len(rows))),
        "m": ["k"] * len(rows),
        "temp": [temp for _, temp, _, _ in rows],
        "hum": [hum for _, _, hum, _ in rows],
        "note": [note for *_, note in rows],
    }


@ENGINE
@given(ROWS, ROWS, st.sets(st.integers(0, len(RULES) - 1), min_size=2))
def test_a_rule_gives_the_same_alerts_alone_and_beside_others(air: Any, wall: Any, chosen: set[int]) -> None:
    streams = {"air": table(air), "wall": table(wall)}
    together = run_local(streams, [RULES[i] for i in chosen], arrival="arrival")
    for i in chosen:
        alone = run_local(streams, RULES[i], arrival="arrival")
        assert [alert for alert in together if alert["alert"] == RULES[i].alert] == alone


SHORT = {"on": ["m"], "within": "3s", "allowed_lateness": "2s"}
# Of a row that comes behind, what stays remembered decides whether it is evaluated, and neighbours share that: whole.
WHOLE = dict.fromkeys(["air.temp", "air.hum", "wall.temp", "wall.hum"])
LATE_RULES = [
    Rule("Temp", "air.temp > wall.temp", shapes={"air.temp": None, "wall.temp": None}, **SHORT),
    Rule("Hum", "air.hum > wall.hum", shapes={"air.hum": "increasing", "wall.hum": None}, **SHORT),
    Rule("Crossed", "air.temp > wall.hum", emit="all", **SHORT),
    Rule("All", "air.temp + wall.hum > wall.temp + air.hum", shapes=WHOLE, **SHORT),
]


@ENGINE
@given(ROWS, ROWS, st.sets(st.integers(0, len(LATE_RULES) - 1), min_size=2))
def test_the_values_that_others_read_make_no_row_late(air: Any, wall: Any, chosen: set[int]) -> None:
    streams = {"air": table(air), "wall": table(wall)}
    together = run_local(streams, [LATE_RULES[i] for i in chosen], arrival="arrival")
    for i in chosen:
        alone = run_local(streams, LATE_RULES[i], arrival="arrival")
        assert [alert for alert in together if alert["alert"] == LATE_RULES[i].alert] == alone


def told(rules: list[Rule], rows: list[tuple[int, Any, Any, str]]) -> list[tuple[str, str, int]]:
    """Drive rules by a clock that shows the time of each row, and 1 s later; give what is told, and when."""
    streams = {"air": table(rows)}
    plan = explain(streams, rules, arrival="arrival")
    session, found = Session(plan), []
    for i in range(len(rows)):
        one = {"air": {name: column[i : i + 1] for name, column in streams["air"].items()}}
        for now, call in ((rows[i][0], None), (rows[i][0] + 1, session.advance)):
            batches = local._batches(0, plan.watches[0], one, "ts", "arrival")
            out = session.push(batches, now * SECOND) if call is None else call(now * SECOND)
            found += [(alert["alert"], alert["state"], now) for alert in out.alert_rows()]
    return found


@ENGINE
@given(ROWS.map(sorted_by_time))
def test_rows_that_only_others_can_use_do_not_stop_a_rules_clock(rows: Any) -> None:
    both = Rule("Both", "air.temp + air.hum > 0", on=["m"], stale="2s", idle_timeout="1s")
    beside = Rule("Warm", "air.temp > 0", on=["m"])
    assert [one for one in told([both, beside], rows) if one[0] == "Both"] == told([both], rows)


def test_rows_that_differ_in_the_sign_of_zero_are_equal_whatever_else_is_read_of_them() -> None:
    rows = {"ts": [0, 0], "m": ["k", "k"], "temp": [0.0, -0.0], "hum": [1.0, 1.0]}
    rule = Rule("Every", "air.temp >= wall.temp", on=["m"], within="3s", emit="all")
    beside = Rule("Damp", "air.hum > wall.hum", on=["m"], within="3s")
    streams = {"air": rows, "wall": {name: column[:1] for name, column in rows.items()}}
    alone = run_local(streams, rule)
    assert len(alone) == 1
    assert [alert for alert in run_local(streams, [rule, beside]) if alert["alert"] == "Every"] == alone


def test_a_rule_that_reads_every_column_shows_no_payload_whoever_stands_beside_it() -> None:
    rows = {"ts": [0], "m": ["k"], "temp": [1.0], "hum": [1.0]}
    whole, part = Rule("Whole", "air.temp + air.hum > 0", on=["m"]), Rule("Part", "air.temp > 0", on=["m"])
    alone, beside = run_local({"air": rows}, whole), run_local({"air": rows}, [whole, part])
    assert [alert["witness"][0]["payload"] for alert in alone] == [None]
    assert [alert for alert in beside if alert["alert"] == "Whole"] == alone


def test_a_row_without_one_value_serves_the_rules_that_read_the_others() -> None:
    rows = {"ts": [0, SECOND], "m": ["k", "k"], "temp": [5.0, None], "hum": [None, 7.0]}
    result = run_local_detailed(
        {"air": rows}, [Rule("Warm", "air.temp > 0", on=["m"]), Rule("Damp", "air.hum > 0", on=["m"])]
    )
    assert [(alert["alert"], alert["value"]) for alert in result.alerts if alert["state"] == "firing"] == [
        ("Damp", 7.0),
        ("Warm", 5.0),
    ]
    for store in ("air(temp)", "air(hum)"):
        assert (result.counts[store]["received"], result.counts[store]["quarantined"]) == (2, 1)
    assert [alert["witness"][0]["payload"] for alert in result.alerts if alert["state"] == "firing"] == [
        {"temp": None},
        {"hum": None},
    ]
