"""Anytime joins under attack: odd budgets, deadlines, values, one hot key, restarts at any row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import Driver, parts_of, plan_of, settled, stories
from tests.example_counts import ENGINE
from tests.test_cpu import matches, pairs, run_plan
from tests.test_cpu_clocks import FOREVER, OFFSETS, ROWS, exact, stale_at_once, streams_of, with_clocks
from tests.test_memory import zipf_streams
from tocsin import Rule, local
from tocsin.runtime.metrics import OUTCOMES

UNITS_NS = st.sampled_from([1e-3, 1.0, 1e3, 1e6, 1e9])


@ENGINE
@given(
    ROWS,
    OFFSETS,
    st.sampled_from([{}, {"cpu": "0.001%"}, {"cpu": "50%"}, {"cpu": "1000 cores"}]),
    st.sampled_from([None, "1us", "7us", "1000s"]),
    UNITS_NS,
    st.lists(st.integers(0, 80), max_size=6).map(sorted),
)
def test_whatever_the_budget_nothing_is_invented_doubled_or_lost_uncounted(
    steps: Any, offsets: Any, cpu: dict[str, str], deadline: str | None, unit_ns: float, cuts: list[int]
) -> None:
    if not cpu and deadline is None:
        deadline = "1us"
    streams = streams_of(with_clocks(steps, offsets))
    rules = [
        pairs(within="10us", allowed_lateness="5us", quality={"deadline": deadline} | cpu),
        Rule(
            "close",
            "a > b",
            within="3us",
            on="machine",
            emit="all",
            allowed_lateness="9us",
            quality={"deadline": deadline} | cpu,
        ),
    ]
    with stale_at_once():
        plan = plan_of(streams, rules, arrival="arrival").calibrated(unit_ns)
        whole = run_plan(plan, streams, through_pages=False)
        split = run_plan(plan, streams, cuts)
    assert stories(split.alert_rows()) == stories(whole.alert_rows())
    assert settled(split.counts) == settled(whole.counts)
    for counts in whole.counts.values():
        assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES)
        assert min(counts.values()) >= 0
    endless = [
        pairs(within="10us", allowed_lateness=FOREVER),
        Rule("close", "a > b", within="3us", on="machine", emit="all", allowed_lateness=FOREVER),
    ]
    found = matches(whole.alert_rows())
    assert not found - matches(local.run_local_detailed(streams, endless, arrival="arrival").alerts)
    if not any(counts["unprocessed"] for counts in whole.counts.values()):
        plain = [
            pairs(within="10us", allowed_lateness="5us"),
            Rule("close", "a > b", within="3us", on="machine", emit="all", allowed_lateness="9us"),
        ]
        assert not matches(local.run_local_detailed(streams, plain, arrival="arrival").alerts) - found


@ENGINE
@given(ROWS, OFFSETS, st.sampled_from(["20%", "100%"]), UNITS_NS, st.lists(st.integers(1, 5_000_000), max_size=80))
def test_work_in_silence_invents_and_doubles_nothing(
    steps: Any, offsets: Any, cpu: str, unit_ns: float, waits: list[int]
) -> None:
    streams = streams_of(with_clocks(steps, offsets))
    with stale_at_once():
        plan = plan_of(
            streams,
            pairs(within="10us", allowed_lateness="5us", quality={"cpu": cpu, "deadline": "1s"}),
            arrival="arrival",
        )
        plan = plan.calibrated(unit_ns)
        parts = parts_of(plan, streams, range(1, 80), "arrival")
        out = Driver(plan).run_with_pauses(parts, waits)
    found = matches(out.alert_rows())
    assert not found - exact(streams, within=10, allowed_lateness=FOREVER)
    assert all(min(counts.values()) >= 0 for counts in out.counts.values())


@pytest.mark.parametrize("cpu", ["0.001%", "10%", "1000 cores"])
def test_odd_values_and_one_hot_key(cpu: str) -> None:
    streams = zipf_streams(400, 1, 3)
    for columns in streams.values():
        values = columns["value"]
        values[::7], values[1::11], values[2::13], values[3::17] = np.nan, 1e308, -1e308, np.inf
        columns["ts"][::5] = columns["ts"][0]
    endless = matches(local.run_local_detailed(streams, pairs(allowed_lateness=FOREVER), arrival="arrival").alerts)
    for deadline in (None, "1us"):
        plan = plan_of(streams, pairs(quality={"cpu": cpu, "deadline": deadline}), arrival="arrival")
        whole = run_plan(plan, streams, through_pages=False)
        split = run_plan(plan, streams, [1, 100, 101, 640])
        assert stories(split.alert_rows()) == stories(whole.alert_rows())
        # A row that is sent again when its window is long over is a row of its own.
        assert set(matches(whole.alert_rows())) <= set(endless)
        for counts in whole.counts.values():
            assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES) == 400
            assert counts["quarantined"] > 0


def test_rows_of_keys_without_number_and_with_odd_ones_are_joined_like_others() -> None:
    odd = ["nan", "1e308", "", "-0.0", "0.0", "\u0000", "ключ"]
    rows = [(i % 2, odd[i % 7], i) for i in range(140)]
    streams = streams_of(rows)
    found = local.run_local_detailed(
        streams, pairs(within="20us", allowed_lateness="5us", quality={"cpu": "1000 cores"}), arrival="arrival"
    )
    assert matches(found.alerts) == exact(streams, within=20, allowed_lateness=5)
    assert len({row["labels"]["machine"] for row in found.alerts}) == 7
