"""Waits that follow the rows: neither cuts nor pages show, and rows are taken as the oracle says for such a wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import Driver, parts_of, plan_of, settled, stories
from tests.durations import us
from tests.example_counts import examples
from tests.naive.results import results_by_period
from tests.naive.waiting import taken_in_order, waits_by_largest_delay
from tests.test_waiting import in_the_order_taken, usable
from tocsin import Rule, local, run_local
from tocsin.plan import Plan
from tocsin.runtime.session import Session

SECOND = 1_000_000
IDLE = 4 * SECOND
FOLLOWING: dict[str, dict[str, Any]] = {
    "max": {"quality": {"wait": "max"}},
    "observed": {"quality": {"recall": 0.9, "period": "20s", "in_order": True}},
    "by delays": {"quality": {"recall": 0.9, "period": "20s", "in_order": True, "strategy": "eqsel"}},
    "by productivity": {"quality": {"recall": 0.9, "period": "20s", "in_order": True, "strategy": "noneqsel"}},
}


def late_rows(seed: int, count: int = 1500) -> dict[str, dict[str, Any]]:
    """Two streams of two machines, 50 rows a second, a third of them up to 3 s late."""
    random = np.random.default_rng(seed)
    streams = {}
    for name in "ab":
        arrival = np.arange(count) * 20_000
        ts = arrival - (random.random(count) < 0.3) * random.integers(0, 3_000_000, count)
        value, machine = np.round(random.normal(0, 1, count), 1), random.choice(["m", "n"], count).astype(object)
        streams[name] = {"ts": ts, "arrival": arrival, "value": value, "machine": machine}
    return streams


def told(plan: Plan, streams: Any, cuts: Sequence[int], stored: Sequence[bool]) -> tuple[Any, ...]:
    """Take rows in calls, with pages written and read back after some of them: alerts, counts, results and the wait."""
    driver, last = Driver(plan), None
    for number, part in enumerate(parts_of(plan, streams, cuts, "arrival")):
        driver.through_pages = bool(stored) and stored[number % len(stored)]
        out = driver.session.push(part)
        last = out.metrics.section("waits")["x"]
        driver.take(out)
    driver.take(driver.session.end())
    numbers = settled(driver.result.counts), driver.result.metrics.results_by_period(), last
    return stories(driver.result.alert_rows()), *numbers


def following(kind: str, **given: Any) -> Rule:
    return Rule("x", "a - b > 2", within="1s", on="machine", **(FOLLOWING[kind] | given))


CUTS = st.lists(st.integers(0, 600), max_size=8).map(sorted)


def waits_row_by_row(plan: Plan, streams: Any, count: int) -> list[int]:
    """The wait in force when each row comes, as the plan tells it."""
    session = Session(plan)
    parts = parts_of(plan, streams, range(1, count), "arrival")
    assert len(parts) == count
    after = [session.push(part).metrics.section("waits")["x"]["wait_us"] for part in parts]
    return [0, *after[:-1]]


@pytest.mark.parametrize("kind", FOLLOWING)
@examples(2)
@given(seed=st.integers(0, 10**6), cuts=CUTS)
def test_rows_are_taken_as_the_oracle_says_while_the_wait_changes(kind: str, seed: int, cuts: list[int]) -> None:
    """Alerts are those of the rule without a wait on rows that arrive as the oracle takes them."""
    streams = late_rows(seed, 400)
    # For five seconds one machine has no rows in one of the streams: that is longer than `idle_timeout`.
    quiet = (streams["a"]["machine"] == "n") & (abs(streams["a"]["arrival"] - 4 * SECOND) < 2.5 * SECOND)
    streams["a"] = {name: column[~quiet] for name, column in streams["a"].items()}
    rule = following(kind, keep_firing_for="1s", idle_timeout=us(IDLE))
    plan = plan_of(streams, rule, arrival="arrival")
    rows = usable(streams)
    waits = waits_row_by_row(plan, streams, len(rows))
    assert max(waits) > 0, "the wait must have moved"
    if kind == "max":
        assert waits == waits_by_largest_delay([row[:3] for row in rows], SECOND, 3600 * SECOND)
    ordered = in_the_order_taken(streams, waits, IDLE)
    plain = Rule("x", "a - b > 2", within="1s", on="machine", keep_firing_for="1s", idle_timeout=us(IDLE))
    expected = run_local(ordered, plain, arrival="arrival")
    assert stories(run_local(streams, rule, arrival="arrival", cuts=cuts)) == stories(expected)
    counts = told(plan, streams, cuts, [True])[1]
    assert [counts[name]["received"] for name in "ab"] == [len(streams[name]["ts"]) for name in "ab"]


# What a rule says of its streams: nothing, so all rows stay; or enough for most of them to be left out.
SAID: dict[str, dict[str, Any]] = {
    "nothing": {"shapes": {"a": None, "b": None}},
    "domains": {"domains": {"a": (-9, 9), "b": (-9, 9)}},
    "shapes": {"shapes": {"a": "increasing", "b": "decreasing"}},
}


@pytest.mark.parametrize("said", SAID)
@examples(10)
@given(seed=st.integers(0, 10**6), wait=st.sampled_from([0, 200_000, SECOND, 9 * SECOND]), cuts=CUTS)
def test_results_are_counted_whatever_was_left_out(said: str, seed: int, wait: int, cuts: list[int]) -> None:
    """A late row that is left out at once is a result all the same, in order or not, if it is true."""
    streams = late_rows(seed, 150)
    rule = Rule(
        "x", "a - b > 2", within="1s", on="machine", quality={"wait": us(wait)}, idle_timeout=us(IDLE), **SAID[said]
    )
    found = local.run_local_detailed(streams, rule, arrival="arrival", cuts=cuts)
    rows = usable(streams)
    order = [rows[number] for number in taken_in_order([row[:3] for row in rows], wait, IDLE)]
    taken = [(key, name, time, float(streams[name]["value"][i])) for key, name, time, i in order]
    expected = results_by_period(taken, lambda a, b: a - b > 2, "a", SECOND, 60 * SECOND)
    assert found.metrics.results_by_period()["x"] == expected
    assert (sum(counts["omitted"] for counts in found.counts.values()) > 0) == (said != "nothing")


@pytest.mark.parametrize("kind", FOLLOWING)
def test_a_wait_is_as_long_with_omission_as_without(kind: str) -> None:
    """If late rows that are left out gave nothing, delays would seem to matter less, and the wait be too short."""
    streams = late_rows(4, 1500)
    found = [local.run_local_detailed(streams, following(kind, **SAID[said]), arrival="arrival") for said in SAID]
    first, *others = ([one.metrics.section("waits"), one.metrics.results_by_period()] for one in found)
    assert all(other == first for other in others)
    assert [counts["omitted"] > 0 for one in found for counts in one.counts.values()] == [False] * 2 + [True] * 4


@pytest.mark.parametrize("period", ["1h", "1d"])
@pytest.mark.parametrize("strategy", ["observed", "noneqsel"])
def test_what_a_bucket_keeps_of_results_is_bounded_however_long_the_period_is(period: str, strategy: str) -> None:
    """Two numbers for each of 3,600 intervals; all else, of few rows with few delays, takes less than 16 kB."""
    quality = {"recall": 0.9, "in_order": True, "period": period, "strategy": strategy}
    streams = late_rows(1, 100)
    plan = plan_of(streams, following("observed", quality=quality), arrival="arrival")
    session = Session(plan)
    session.push(parts_of(plan, streams, (), "arrival")[0])
    page = session.changed_pages()[f"{plan.watches[0].name}/pace"]
    assert page is not None
    assert 16 * 3599 < len(page) < 16 * 3600 + 16_384
