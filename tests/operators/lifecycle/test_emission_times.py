"""Emission times of alerts: the newest event time of the key when an engine that takes single rows emits the alert."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import CUTS, Driver, parts_of, plan_of
from tests.example_counts import ENGINE, examples
from tests.strategies import Case, cases
from tocsin import Rule
from tocsin.report import Gatherer
from tocsin.report.result import RuleSummary
from tocsin.runtime.contract import Out

SECOND = 1_000_000
HOUR = 3600 * SECOND

Streams = dict[str, dict[str, np.ndarray]]


def alert_name(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the id and the start of a firing alert."""
    return row["id"], row["startsAt"]


def emitted(out: Out) -> dict[tuple[Any, ...], int | None]:
    """Return the emission time of each alert in order."""
    rows = [both for batch in out.alerts for both in zip(batch.rows(), batch.emission_times(), strict=True)]
    firing = [both for both in rows if both[0]["state"] == "firing" and "late" not in both[0]["quality"].split()]
    return {alert_name(row): time for row, time in firing}


def oracle(streams: Streams, rule: Rule) -> dict[tuple[Any, ...], int | None]:
    """Return the emission times if each call has one row: the newest usable row of the key, or None at the end."""
    plan = plan_of(streams, rule, arrival="arrival")
    rows = sum(len(table["ts"]) for table in streams.values())
    driver, newest, found = Driver(plan, through_pages=False), dict[str, int](), dict[tuple[Any, ...], int | None]()
    for part in parts_of(plan, streams, range(1, rows), "arrival"):
        for batch in part:
            for i in range(len(batch.time)):
                if all(math.isfinite(column[i]) for column in batch.values.values()):
                    machine = batch.keys[batch.key[i]][0]
                    newest[machine] = max(newest.get(machine, -1), int(batch.time[i]))
        for row in driver.take(driver.session.push(part)):
            if row["state"] == "firing" and "late" not in row["quality"].split():
                found[alert_name(row)] = newest[row["labels"]["machine"]]
    for row in driver.take(driver.session.end()):
        if row["state"] == "firing" and "late" not in row["quality"].split():
            found[alert_name(row)] = None
    return found


def whole(streams: Streams, rule: Rule, cuts: list[int]) -> dict[tuple[Any, ...], int | None]:
    """Return the emission times if calls have many rows, as in a backtest."""
    plan = plan_of(streams, rule, arrival="arrival").with_emission_times()
    return emitted(Driver(plan, through_pages=False).run(parts_of(plan, streams, cuts, "arrival")))


def distinct_times(seed: int, lag: int, count: int = 40) -> Streams:
    """Draw rows of two streams and two keys. No two rows have equal times; one stream is slow and arrives later."""
    random = np.random.default_rng(seed)
    times, streams = random.permutation(4 * count), {}
    for name, mine in (("a", np.sort(times[:count])), ("b", np.sort(times[count : count + count // 4]))):
        arrival = np.maximum.accumulate(mine + random.integers(0, 1 + lag * (name == "b"), len(mine)))
        streams[name] = {"ts": mine, "arrival": arrival, "value": random.integers(-3, 4, len(mine)).astype(float)}
        streams[name]["machine"] = random.choice(["m", "n"], len(mine)).astype(object)
    return streams


SHAPES: dict[str, dict[str, Any]] = {
    "two streams": {"expr": "a - b > 1", "within": "9us"},
    "two streams, one of them idle": {"expr": "a - b > 1", "within": "9us", "idle_timeout": "3us"},
    "one stream that is reduced": {"expr": "a > 1", "within": "6us", "shapes": {"a": "increasing"}},
}


@pytest.mark.parametrize("shape", SHAPES)
@examples(15)
@given(st.integers(0, 2**32), st.sampled_from([0, 5, 40]), st.lists(st.integers(1, 49), max_size=4).map(sorted))
def test_the_emission_time_equals_the_oracle_when_calls_have_many_rows(
    shape: str, seed: int, lag: int, cuts: list[int]
) -> None:
    streams = distinct_times(seed, lag)
    rule = Rule("x", on="machine", allowed_lateness="1s", **SHAPES[shape])
    assert whole(streams, rule, cuts) == oracle(streams, rule)


@ENGINE
@given(cases(), CUTS)
def test_the_emission_time_is_not_after_the_oracle_when_rows_are_arbitrary(case: Case, cuts: list[int]) -> None:
    rule = Rule(**case.keywords())
    found, expected = whole(case.arrays(), rule, cuts), oracle(case.arrays(), rule)
    assert found.keys() == expected.keys()
    for name, time_us in found.items():
        emission_us = expected[name]
        assert time_us is None or emission_us is None or time_us <= emission_us


def summary(idle: str | None, slow_every_us: int) -> RuleSummary:
    """Return the backtest of a row each 10 s joined with a slow stream; the condition is true each third hour."""
    fast = np.arange(0, 12 * HOUR, 10 * SECOND)
    slow = np.arange(0, 12 * HOUR, slow_every_us)
    high = (fast - HOUR // 6) // HOUR % 3 == 1
    streams = {
        "fast": {"ts": fast, "m": np.full(len(fast), "x", object), "value": np.where(high, 9.0, 0.0)},
        "slow": {"ts": slow, "m": np.full(len(slow), "x", object), "value": np.zeros(len(slow))},
    }
    rule = Rule("Apart", "fast - slow > 5", within="1h", on="m", keep_firing_for="1m", idle_timeout=idle)
    plan = plan_of(streams, rule)
    timed = plan.with_emission_times()
    out = Driver(timed, through_pages=False).run(parts_of(timed, streams))
    gatherer = Gatherer("rules.yaml", plan)
    for batch in out.alerts:
        gatherer.take_batch(batch)
    (found,) = gatherer.result().rules
    return found


@pytest.mark.parametrize(
    ("idle", "slow_every_us", "least_us", "most_us"),
    [
        (None, 10 * SECOND, 0, 0),
        # The condition becomes true 10 minutes after a row of the slow stream, 50 minutes before the next one.
        (None, HOUR, 40 * 60 * SECOND, HOUR + 10 * SECOND),
        ("5m", HOUR, 0, 5 * 60 * SECOND + 10 * SECOND),
    ],
)
def test_the_delay_is_at_most_the_idle_timeout_when_a_stream_is_slow(
    idle: str | None, slow_every_us: int, least_us: int, most_us: int
) -> None:
    found = summary(idle, slow_every_us)
    assert found.alerts >= 3
    assert found.delay_us is not None
    assert found.longest_delay_us is not None
    assert least_us <= found.longest_delay_us <= most_us
    assert found.delay_us <= found.longest_delay_us
