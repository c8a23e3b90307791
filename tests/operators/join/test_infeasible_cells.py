"""Rows that can only give false evaluations are passed over, and no alert shows it, whatever the cut into batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.example_counts import ENGINE
from tests.strategies import Case, cases
from tests.test_semantics import run, stories
from tocsin import Rule, local
from tocsin.operators.join import batch_slice, corner_bounds
from tocsin.operators.join import operator as join_operator

SECOND = 1_000_000
DOMAINS = {"a": (-8.0, 8.0), "b": (-8.0, 8.0), "c": (-8.0, 8.0)}
# Of two and three streams; rising, falling, both; undefined below -6 and for a quiet sum of 0.
CONDITIONS = (
    "a - b > {t}",
    "abs(a - b) >= {t}",
    "a + b - c > {t}",
    "max(a, b) - c > {t}",
    "a > {t} and b < 0",
    "a > {t} or b > {t}",
    "sqrt(a + 6) - b > {t}",
    "a - b > {t} * 2 - c / 4",
)
LENGTHS = (None, "1s", "3s", "20s")
OPTIONS: dict[str, tuple[Any, ...]] = {
    "condition": CONDITIONS,
    "t": (1, 3, 5),
    "within": ("1s", "1s", "2s", "5s"),
    "closed": ("both", "both", "both", "left", "neither"),
    "hop": (*[None] * 7, "2s"),
    "for_": (None, *LENGTHS),
    "keep_firing_for": LENGTHS,
    "stale": LENGTHS,
    "idle_timeout": LENGTHS,
    "allowed_lateness": ("0s", "4s", "1h", "1h"),
    "recovery": (None, None, 0),
    "emit": (*["witness"] * 9, "all"),
}
SETTINGS = st.fixed_dictionaries({name: st.sampled_from(options) for name, options in OPTIONS.items()})


def rule_of(name: str, given_: dict[str, Any]) -> Rule:
    options = {key: value for key, value in given_.items() if value is not None}
    expr = options.pop("condition").format(t=options.pop("t"))
    read = [stream for stream in "abc" if stream in expr.replace("abs", "").replace("max", "").replace("and", "")]
    if options["emit"] == "all":
        options = {key: options[key] for key in options if key not in {"for_", "keep_firing_for", "stale"}}
    if " and " in expr or " or " in expr or "/" in expr or options.get("recovery", 0) > given_["t"]:
        options.pop("recovery", None)
    if options["emit"] == "all":
        options.pop("recovery", None)
    return Rule(name, expr, on="m", domains={stream: DOMAINS[stream] for stream in read}, **options)


def levels(seed: int, rows: int, disorder: int) -> dict[str, dict[str, Any]]:
    """Three streams that stay at a level for a while; with gaps, ties, and a step out of the domain now and then."""
    random, streams = np.random.default_rng(seed), {}
    for name in "abc":
        count = int(random.integers(rows // 2, rows + 1))
        time = np.cumsum(random.choice([0, 1, 2, 30], count, p=[0.1, 0.7, 0.19, 0.01]))
        value = np.repeat(random.choice([-4.0, -1.0, 0.0, 1.0, 2.0, 5.0], count), random.integers(3, 25, count))[:count]
        value += random.choice([-0.5, 0.0, 0.5], count)
        value[random.random(count) < 0.005] = 40.0
        behind = random.choice([0, 0, disorder]) + disorder * (random.random(count) < 0.03)
        keys = random.choice(["x", "y"], count, p=[0.9, 0.1])
        streams[name] = {"ts": time * SECOND, "m": keys, "value": value, "arrival": (time + behind) * SECOND}
    return streams


def alerts(streams: dict[str, Any], rules: list[Rule], cuts: list[int]) -> list[dict[str, Any]]:
    return local.run_local(streams, rules, arrival="arrival", cuts=sorted(set(cuts)))


@ENGINE
@given(
    st.lists(SETTINGS, min_size=1, max_size=3),
    st.integers(0, 10**6),
    st.sampled_from([10, 60, 150]),
    st.sampled_from([0, 0, 3, 6, 50]),
    st.lists(st.integers(1, 300), max_size=6),
    st.sampled_from([(0, 0), (3, 0), (0, 20), (3, 20)]),
)
def test_passing_rows_over_changes_no_alert(
    settings: list[dict[str, Any]], seed: int, rows: int, disorder: int, cuts: list[int], fewest: tuple[int, int]
) -> None:
    rules = [rule_of(f"r{number}", one) for number, one in enumerate(settings)]
    streams = levels(seed, rows, disorder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_slice, "ROWS_PER_CELL", fewest[0])
        patch.setattr(join_operator, "MIN_ROWS_FOR_CELLS", fewest[1])
        found = alerts(streams, rules, []), alerts(streams, rules, cuts)
        patch.setattr(corner_bounds, "MAX_CORNERS", 0)
        assert found == (alerts(streams, rules, []), alerts(streams, rules, cuts))


@ENGINE
@given(cases(shaped=True, streams_of_a_rule=(2, 2, 3)), st.lists(st.integers(1, 20), max_size=3))
def test_with_the_shortest_cells_the_oracles_small_inputs_give_what_they_gave(case: Case, cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_slice, "ROWS_PER_CELL", 0)
        found = stories(run(case, cuts=sorted(set(cuts))))
        patch.setattr(corner_bounds, "MAX_CORNERS", 0)
        assert stories(run(case)) == found


def tried(streams: dict[str, Any], rule: Rule) -> tuple[int, list[dict[str, Any]]]:
    """How many rows were tried, and what came of it."""
    count, combine = 0, join_operator.evaluate_probes

    def counted(tuples: Any, probes: Any, *rest: Any, every: bool) -> Any:
        nonlocal count
        count += int((~probes.partner_only).sum())
        return combine(tuples, probes, *rest, every=every)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_operator, "evaluate_probes", counted)
        return count, local.run_local(streams, rule)


def test_of_a_short_peak_in_a_long_quiet_time_the_rows_around_it_are_tried() -> None:
    time = np.arange(10_000)
    value = np.where((time >= 5_000) & (time < 5_010), 9.0, 0.0)
    streams = {name: {"ts": time * SECOND, "m": ["x"] * 10_000, "value": value} for name in "ab"}
    rule = Rule("peak", "a + b > 12", on="m", within="2s", keep_firing_for="1m", domains={"a": (0, 9), "b": (0, 9)})
    count, found = tried(streams, rule)
    assert [alert["state"] for alert in found] == ["firing", "resolved"]
    # Cells of 64 s: those around the peak, one more in which it ends, and the last, which progress may not have passed.
    assert count <= 2 * 64 * 5


def stream(rows: list[tuple[float, float]], first_arrival: int = 0) -> dict[str, list[Any]]:
    """Rows (second, value) of one key; they arrive as they stand, beside those of the other streams."""
    arrival = list(range(first_arrival, first_arrival + 2 * len(rows), 2))
    time, value = [round(t * SECOND) for t, _ in rows], [v for _, v in rows]
    return {"ts": time, "m": ["x"] * len(rows), "value": value, "arrival": arrival}


def lives(streams: dict[str, Any], rule: Rule, **options: Any) -> list[tuple[str, float, float | None]]:
    """State, start and end of what is raised, in seconds; cells as short as they can be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_slice, "ROWS_PER_CELL", 0)
        found = local.run_local(streams, rule, arrival="arrival", **options)
    return [(one["state"], one["startsAt"].timestamp(), one["endsAt"] and one["endsAt"].timestamp()) for one in found]


RANGE = {"domains": {"a": (-9.0, 9.0), "b": (-9.0, 9.0)}, "on": "m"}


def test_a_life_is_ended_where_the_first_false_evaluation_comes_long_after() -> None:
    # `b` is silent from second 99 on, so nothing is evaluated until it is back.
    a = stream([(t, 9.0) for t in range(100)] + [(t, 0.0) for t in range(100, 4_000)])
    b = stream([(t, 9.0) for t in range(99)] + [(t, 0.0) for t in range(3_000, 4_000)])
    b["arrival"] = [2 * time // SECOND + 1 for time in b["ts"]]
    rule = Rule("long", "a + b > 12", within="1s", stale="2h", idle_timeout="2h", **RANGE)
    assert lives({"a": a, "b": b}, rule) == [("firing", 0.0, None), ("resolved", 0.0, 3_000.0)]


def test_what_holds_a_life_is_not_passed_over() -> None:
    # From second 50 on the value is below the threshold, from second 120 on below the one of recovery.
    a = stream([(t, 5.0 if t < 50 else 2.0 if t < 120 else -5.0) for t in range(300)])
    b = stream([(t + 0.25, 0.0) for t in range(300)], 1)
    rule = Rule("held", "a - b > 3", within="1s", stale="5s", recovery=0, **RANGE)
    assert lives({"a": a, "b": b}, rule) == [("firing", 0.25, None), ("resolved", 0.25, 120.0)]


def test_what_progress_has_not_reached_ends_a_life_that_begins_before_it() -> None:
    # When `b` brings second 9, the false evaluation of second 10 is there already, and waits.
    a, b = stream([(0, 0.0), (10, 0.0)]), stream([(0, 0.0), (8, 0.0), (9, -9.0)], 1)
    a["arrival"], b["arrival"] = [0, 3], [1, 2, 4]
    rule = Rule("waits", "a - b > 3", within="5s", stale="1h", idle_timeout="1h", **RANGE)
    assert lives({"a": a, "b": b}, rule, cuts=[4]) == [("firing", 9.0, None), ("resolved", 9.0, 10.0)]


def test_late_evaluations_end_late_lives_whatever_cannot_be_true() -> None:
    quiet = [(t, 0.0) for t in range(1_000)]
    a, b = stream(quiet), stream([*quiet, (100.5, -9.0), (1_000, 0.0), (200.5, -1.0)], 1)
    rule = Rule("late", "a - b > 3", within="1s", stale="1h", **RANGE)
    assert lives({"a": a, "b": b}, rule) == [("firing", 100.5, None), ("resolved", 100.5, 200.5)]


@pytest.mark.parametrize("cuts", [[], [2]])
def test_a_row_of_which_nothing_is_known_matters_to_its_partners_alone(cuts: list[int]) -> None:
    # The row of `c` outside its domain is far away, and has expired where the input is cut. Either `a` is as good as
    # the other, so the most extreme one is shown.
    a, b, c = stream([(90, -9.0), (100, -4.0), (100.5, -3.5)]), stream([(100.5, 2.5)]), stream([(0, 99.0), (100, -4.5)])
    a["arrival"], b["arrival"], c["arrival"] = [1, 3, 4], [5], [0, 2]
    rule = Rule(
        "far",
        "max(a, b) - c > 3",
        on="m",
        within="1s",
        allowed_lateness="4s",
        domains=dict.fromkeys("abc", (-9.0, 9.0)),
    )
    (found,) = local.run_local({"a": a, "b": b, "c": c}, rule, arrival="arrival", cuts=cuts)[:1]
    assert [part["values"]["value"] for part in found["witness"]] == [-3.5, 2.5, -4.5]
