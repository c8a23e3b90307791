"""Anytime joins and rows that are sent again, rows that cannot be used, and deadlines that pass while rows go."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_cpu import Columns, matches, pairs, run_plan, unlimited
from tests.test_cpu_clocks import FOREVER, OFFSETS, ROWS, exact, stale_at_once, streams_of, with_clocks
from tests.test_laws import CUTS, Driver, parts_of, plan_of, settled, stories
from tocsin import Rule


def alike(rows: list[tuple[int, str, int]]) -> Columns:
    """Streams in which rows of one key and time are equal."""
    streams = streams_of(rows)
    for columns in streams.values():
        columns["value"] = np.ones(len(columns["ts"]))
    return streams


@settings(deadline=None)
@given(ROWS, OFFSETS, st.sampled_from(["0.001%", "20%", "1000 cores"]), st.booleans(), CUTS)
def test_no_cut_shows_where_rows_come_again(steps: Any, offsets: Any, cpu: str, early: bool, cuts: list[int]) -> None:
    streams = alike(with_clocks(steps, offsets))
    plan = plan_of(
        streams, pairs(within="10us", outage="5us", cpu=cpu, deadline="40us" if early else None), arrival="arrival"
    )
    with stale_at_once():
        whole, split = run_plan(plan, streams, through_pages=False), run_plan(plan, streams, cuts)
    assert stories(split.alerts) == stories(whole.alerts)
    assert settled(split.counts) == settled(whole.counts)


@settings(deadline=None)
@given(ROWS, OFFSETS)
def test_a_row_that_is_still_there_changes_nothing_when_it_comes_again(steps: Any, offsets: Any) -> None:
    streams = alike(with_clocks(steps, offsets))
    plan = unlimited(plan_of(streams, pairs(within="10us", outage="5us", cpu="1 core"), arrival="arrival"))
    assert matches(run_plan(plan, streams).alerts) == exact(streams, within=10, outage=FOREVER)


def test_a_row_of_a_slow_stream_that_comes_again_long_after_gives_nothing_twice() -> None:
    second = 1_000_000
    streams = alike([(side, "x", i * second) for i in range(6) for side in (0, 1)] + [(0, "x", 0)])
    out = run_plan(plan_of(streams, pairs(cpu="100%"), arrival="arrival"), streams)
    assert [row["startsAt"] for row in out.alerts] == [i * second for i in range(6)]
    assert out.counts["a"]["omitted"] == 1


def test_a_call_whose_rows_cannot_be_used_moves_no_time() -> None:
    streams = streams_of([(side, "k", 10 * i) for i in range(400) for side in (0, 1)])
    plan = plan_of(streams, pairs(cpu="1%"), arrival="arrival")
    driver = Driver(plan, through_pages=True)
    driver.logic.on_data(parts_of(plan, streams, (), "arrival")[0], 1_000_000)
    odd = streams_of([(0, "k", 10**5)])
    odd["a"]["value"] = np.array([np.nan])
    for again in (False, True):
        logic = plan.build(driver.pages | dict(driver.logic.changed_pages())) if again else driver.logic
        logic.on_data(parts_of(plan, odd, (), "arrival")[0], 60_000_000)
        assert logic.next_timer() == 2_000_000


def test_what_is_past_its_deadline_is_not_looked_at_when_rows_go() -> None:
    # In half a second come more pairs than there are units for; then nothing, until rows have to go.
    streams = streams_of([(side, "k", 500 * i) for i in range(1200) for side in (0, 1)] + [(0, "other", 10_600_000)])
    given_: dict[str, Any] = {"within": "400ms", "on": "machine", "emit": "all", "outage": "10s", "cpu": "1%"}
    late, soon = Rule("pair", "a + b > 1", **given_), Rule("pair", "a + b > 1", **given_, deadline="1s")
    found = [run_plan(plan_of(streams, rule, arrival="arrival"), streams) for rule in (late, soon)]
    assert len(found[1].alerts) < len(found[0].alerts) / 4
    assert found[1].counts["a"]["unprocessed"] > 0
