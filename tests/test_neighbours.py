"""No rule's answer depends on what the rules beside it read."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tocsin import Rule, run_local
from tocsin.local import run

SECOND = 1_000_000
VALUES = st.one_of(st.none(), st.sampled_from([float("nan"), float("inf")]), st.integers(-3, 3).map(float))
ROWS = st.lists(st.tuples(st.integers(0, 12), VALUES, VALUES, st.sampled_from(["x", "y"])), max_size=12)

RULES = [
    Rule("Warm", "air.temp > 0", on=["m"], within="2s"),
    Rule("WarmKept", "air.temp > 0", on=["m"], within="2s", shapes={"air.temp": "increasing"}),
    Rule("Damp", "air.hum > wall.hum", on=["m"], within="3s", shapes={"air.hum": "increasing"}),
    Rule("Both", "air.temp + air.hum > wall.temp", on=["m"], within="3s"),
    Rule("Every", "air.temp > wall.temp", on=["m"], within="3s", emit="all"),
]


def table(rows: list[tuple[int, Any, Any, str]]) -> dict[str, list[Any]]:
    return {
        "ts": [t * SECOND for t, *_ in rows],
        "arrival": list(range(len(rows))),
        "m": ["k"] * len(rows),
        "temp": [temp for _, temp, _, _ in rows],
        "hum": [hum for _, _, hum, _ in rows],
        "note": [note for *_, note in rows],
    }


@given(ROWS, ROWS, st.sets(st.integers(0, len(RULES) - 1), min_size=2))
def test_a_rule_gives_the_same_alerts_alone_and_beside_others(air: Any, wall: Any, chosen: set[int]) -> None:
    streams = {"air": table(air), "wall": table(wall)}
    together = run_local(streams, [RULES[i] for i in chosen], arrival="arrival")
    for i in chosen:
        alone = run_local(streams, RULES[i], arrival="arrival")
        assert [alert for alert in together if alert["alert"] == RULES[i].alert] == alone


def test_a_row_without_one_value_serves_the_rules_that_read_the_others() -> None:
    rows = {"ts": [0, SECOND], "m": ["k", "k"], "temp": [5.0, None], "hum": [None, 7.0]}
    result = run({"air": rows}, [Rule("Warm", "air.temp > 0", on=["m"]), Rule("Damp", "air.hum > 0", on=["m"])])
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
