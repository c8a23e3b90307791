"""Rows of equal time and rows that arrive twice: reduced plans, full plans and the oracle raise the same alerts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import CUTS, settled
from tests.durations import us, us_bounds
from tests.example_counts import ENGINE
from tests.naive.alerts import naive_alerts, naive_counts
from tests.strategies import COARSE, Case, cases
from tests.test_semantics import INSIDE, run, stories
from tests.test_semantics import _in_oracle_form as in_oracle_form
from tocsin import Rule, local

NOTES = ("r1", "r1", "r2", None)
TIED: dict[str, Any] = {"steps": COARSE, "notes": NOTES, "levels": 3, "streams_of_a_rule": (2, 2, 3)}
IN_ORDER = cases(shaped=True, disorder=INSIDE, **TIED)
SECOND = 1_000_000


def table(rows: Sequence[tuple[Any, ...]]) -> dict[str, np.ndarray]:
    """Build a stream of one machine from rows of (time, value) or (time, value, note)."""
    columns = {
        "ts": np.array([row[0] for row in rows], np.int64),
        "machine": np.array(["m1"] * len(rows), object),
        "value": np.array([row[1] for row in rows], np.float64),
    }
    return columns | ({"note": np.array([row[2] for row in rows], object)} if rows and len(rows[0]) > 2 else {})


def full(rule: Rule) -> Rule:
    """Return the rule with a plan that omits no row."""
    return replace(rule, shapes=dict.fromkeys(rule.shapes))


def changes(streams: dict[str, Any], rule: Rule, **options: Any) -> list[tuple[str, int, int | None]]:
    """Return state, start and end of each output row in microseconds."""

    def micros(time: Any) -> int | None:
        return None if time is None else round(time.timestamp() * SECOND)

    rows = local.run_local_detailed(streams, rule, **options).alerts
    return [(row["state"], micros(row["startsAt"]), micros(row["endsAt"])) for row in rows]


EXAMPLES = {
    "a row repeats an omitted row": (
        {
            "a": table([(0, 9), (SECOND, 1), (SECOND, 9), (SECOND, 1)]),
            "b": table([(0, 0), (SECOND, 0)]),
        },
        Rule("x", "a - b > 5", within="1s", on="machine", shapes={"a": "increasing", "b": "decreasing"}),
    ),
    "a row differs from a retained row in its payload": (
        {
            "air": table([(0, 2, None)]),
            "wall": table([(1_000, -2, "r1"), (1_000, 5, "r2"), (1_000, -2, "r3")]),
        },
        Rule("x", "air > wall", within="1s", on="machine", shapes={"air": "increasing", "wall": "decreasing"}),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_reduced_plan_raises_the_alerts_of_the_full_plan_when_rows_have_one_time(name: str) -> None:
    streams, rule = EXAMPLES[name]
    assert changes(streams, rule) == changes(streams, full(rule))


def test_repeat_of_an_omitted_row_changes_nothing_when_it_is_at_the_newest_time() -> None:
    streams, rule = EXAMPLES["a row repeats an omitted row"]
    b = table([(0, 0), (SECOND, 0)])
    once = {"a": table([(0, 9), (SECOND, 1), (SECOND, 9)]), "b": b}
    assert changes(streams, rule) == changes(once, rule)


def test_row_with_another_payload_is_evaluated_when_an_equal_row_is_retained() -> None:
    streams, rule = EXAMPLES["a row differs from a retained row in its payload"]
    assert [state for state, *_ in changes(streams, rule)] == ["firing", "resolved", "firing"]


@ENGINE
@given(IN_ORDER, CUTS)
def test_reduced_plan_raises_the_alerts_of_the_oracle_when_times_are_coarse_and_rows_repeat(
    case: Case, cuts: list[int]
) -> None:
    assert stories(run(case, cuts=sorted(cuts)), "witness") == stories(naive_alerts(case.streams, case.rule), "witness")


# Few values at few times, so most rows are tied, many repeat, and evaluations alternate at one time.
CROWDED = st.lists(
    st.tuples(
        st.sampled_from("aaabbc"), st.integers(0, 2), st.sampled_from([0, 0, 0, 1]), st.sampled_from([None, None, "r1"])
    ),
    min_size=10,
    max_size=24,
)
EXPRS = {
    "a - b > 0": ["increasing", "decreasing"],
    "abs(a - b) > 1": ["quasiconvex", "quasiconvex"],
    "a - b + c >= 2": ["increasing", "decreasing", "increasing"],
    "max(a, c) - b > 0": ["quasiconvex", "decreasing", "quasiconvex"],
}
BESIDE = {
    "none": [],
    "opposite": [Rule("other", "a + b < 1", within="9us", on="machine", shapes={"a": "decreasing", "b": "decreasing"})],
    "every": [Rule("other", "a + b > 1", within="1us", on="machine", emit="all")],
    "single": [Rule("other", "a > 1", within="3us", on="machine", shapes={"a": "increasing"})],
}
LIVES = [
    {},
    {"keep_firing_for": "1us"},
    {"for_": "1us", "stale": "5us"},
    {"hop": "3us", "stale": "2us"},
    {"closed": "neither"},
]


def crowd(rows: Sequence[tuple[str, int, int, str | None]]) -> dict[str, dict[str, np.ndarray]]:
    """Build streams from rows of (stream, value, step of time, note) that arrive in order of time."""
    times = np.cumsum([step for _, _, step, _ in rows])
    streams = {}
    for name in "abc":
        mine = [i for i, row in enumerate(rows) if row[0] == name]
        columns = table([(times[i], rows[i][1], rows[i][3]) for i in mine] or [(0, 0, None)])
        streams[name] = {column: cells[: len(mine)] for column, cells in columns.items()}
        streams[name]["arrival"] = np.array(mine, np.int64)
    return streams


@ENGINE
@given(
    CROWDED,
    st.sampled_from(sorted(EXPRS)),
    st.sampled_from(LIVES),
    st.sampled_from(sorted(BESIDE)),
    st.sampled_from([None, 0, 1, 3]),
    CUTS,
)
def test_reduced_plan_raises_the_alerts_of_the_full_plan_when_rows_crowd_at_few_times(
    rows: list[Any], expr: str, life: dict[str, Any], kind: str, wait: int | None, cuts: list[int]
) -> None:
    streams = crowd(rows)
    names = [name for name in "abc" if name in expr.replace("abs", "").replace("max", "")]
    shapes = dict(zip(names, EXPRS[expr], strict=True))
    rule = Rule("x", expr, on="machine", shapes=shapes, **{"within": "2us", "idle_timeout": "9us"} | life)
    waiting = replace(rule, quality=None if wait is None else {"wait": us(wait)})
    found = local.run_local_detailed(streams, [waiting, *BESIDE[kind]], arrival="arrival", cuts=sorted(cuts)).alerts
    expected = local.run_local_detailed(streams, full(rule), arrival="arrival").alerts
    assert without_witness(row for row in found if row["alert"] == "x") == without_witness(expected)


def without_witness(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return output rows without their witness. A reduced plan may choose another one among equals."""
    return [{name: value for name, value in row.items() if name != "witness"} for row in rows]


@ENGINE
@given(cases(**TIED))
def test_full_plan_shows_the_witness_of_the_oracle_when_combinations_tie(case: Case) -> None:
    assert stories(run(case)) == stories(naive_alerts(case.streams, case.rule))


def test_witness_has_the_earliest_times_when_one_stream_has_two_rows_of_one_time() -> None:
    # Both rows of `b` reach 4 with the row of `c` at 2. Only the second one reaches 4 with the row of `c` at 1.
    streams = {
        "b": table([(0, 1), (0, 2)]),
        "c": table([(1, 2), (2, 3)]),
        "a": table([(3, 0)]),
    }
    shapes = dict.fromkeys(("a", "b", "c"))
    bounds = us_bounds({("b", "c"): (-5, 5), ("b", "a"): (-5, 5)})
    rule = Rule("x", "min(b + c, 4) + a > 3", within=bounds, on="machine", shapes=shapes)
    rows = local.run_local_detailed(streams, rule).alerts
    times = [[part["time"].microsecond for part in row["witness"]] for row in rows if row["state"] == "firing"]
    assert times == [[0, 1, 3]]


WAIT_EXAMPLE = {
    "a": table([(0, 5), (0, 0), (30 * SECOND, 0)]),
    "b": table([(0, 1), (20 * SECOND, 0), (40 * SECOND, 0)]),
}


def test_wait_changes_no_alert_when_rows_of_two_streams_have_one_time() -> None:
    rule = Rule("x", "a + b > 4", within="1s", stale="5s", on="machine")
    found = changes(WAIT_EXAMPLE, rule)
    assert found == [("firing", 0, None), ("resolved", 0, 5 * SECOND)]
    assert changes(WAIT_EXAMPLE, replace(rule, quality={"wait": "10s"})) == found


@ENGINE
@given(
    cases(shaped=True, disorder=("none",), **TIED),
    st.sampled_from([0, 1, 2, 3, 5, 8, 30]),
    st.sampled_from([0, 2, 7, 1000]),
    CUTS,
)
def test_wait_changes_no_alert_when_rows_arrive_in_order_of_time(
    case: Case, wait: int, idle: int, cuts: list[int]
) -> None:
    streams = {name: {**columns, "arrival": columns["ts"]} for name, columns in case.arrays().items()}
    rule = Rule(**case.keywords() | {"idle_timeout": us(idle)})
    plain = local.run_local_detailed(streams, rule, arrival="arrival").alerts
    waited = local.run_local_detailed(
        streams, replace(rule, quality={"wait": us(wait)}), arrival="arrival", cuts=sorted(cuts)
    ).alerts
    assert stories(in_oracle_form(row, case.rule) for row in waited) == stories(
        in_oracle_form(row, case.rule) for row in plain
    )


@ENGINE
@given(cases(**TIED))
def test_full_plan_counts_repeats_as_the_oracle_does(case: Case) -> None:
    counts = local.run_local_detailed(case.arrays(), Rule(**case.keywords()), arrival="arrival").counts
    for stream, expected in naive_counts(case.streams, case.rule).items():
        names = ("received", "quarantined", "late", "duplicates")
        assert {name: counts[stream].get(name, 0) for name in names} == {name: expected[name] for name in names}


@ENGINE
@given(IN_ORDER, CUTS)
def test_reduced_plan_counts_the_repeats_of_the_full_plan_when_rows_are_in_order(case: Case, cuts: list[int]) -> None:
    rule = Rule(**case.keywords())
    reduced = local.run_local_detailed(case.arrays(), rule, arrival="arrival", cuts=sorted(cuts)).counts
    whole = local.run_local_detailed(case.arrays(), full(rule), arrival="arrival").counts
    for stream in case.streams:
        assert reduced[stream].get("duplicates", 0) == whole[stream].get("duplicates", 0)


def test_rows_of_equal_values_are_two_events_when_an_unread_column_differs() -> None:
    rule = Rule("x", "a + b > 0", within="1s", on="machine", shapes={"a": None, "b": None})
    rows = [(0, 1, "id 1"), (0, 1, "id 2"), (0, 1, "id 1")]
    counts = local.run_local_detailed({"a": table(rows), "b": table([])}, rule).counts
    assert settled(counts)["a"] == {"received": 3, "retained": 2, "duplicates": 1}
    counts = local.run_local_detailed({"a": table([row[:2] for row in rows]), "b": table([])}, rule).counts
    assert settled(counts)["a"] == {"received": 3, "retained": 1, "duplicates": 2}
