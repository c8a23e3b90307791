"""Anytime joins and rows that are sent again, rows that cannot be used, and deadlines that pass while rows go."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given

from tests.driver import Driver, parts_of, plan_of
from tests.example_counts import ENGINE
from tests.test_cpu import Columns, matches, pairs, run_plan, unlimited
from tests.test_cpu_clocks import FOREVER, OFFSETS, ROWS, exact, streams_of, with_clocks
from tocsin import Rule
from tocsin.runtime.session import Session


def alike(rows: list[tuple[int, str, int]]) -> Columns:
    """Streams in which rows of one key and time are equal."""
    streams = streams_of(rows)
    for columns in streams.values():
        columns["value"] = np.ones(len(columns["ts"]))
    return streams


@ENGINE
@given(ROWS, OFFSETS)
def test_a_row_that_is_still_there_changes_nothing_when_it_comes_again(steps: Any, offsets: Any) -> None:
    streams = alike(with_clocks(steps, offsets))
    plan = unlimited(
        plan_of(streams, pairs(within="10us", allowed_lateness="5us", quality={"cpu": "1 core"}), arrival="arrival")
    )
    assert matches(run_plan(plan, streams).alert_rows()) == exact(streams, within=10, allowed_lateness=FOREVER)


def test_a_row_of_a_slow_stream_that_comes_again_long_after_gives_nothing_twice() -> None:
    second = 1_000_000
    streams = alike([(side, "x", i * second) for i in range(6) for side in (0, 1)] + [(0, "x", 0)])
    out = run_plan(plan_of(streams, pairs(quality={"cpu": "100%"}), arrival="arrival"), streams)
    assert [row["startsAt"] for row in out.alert_rows()] == [i * second for i in range(6)]
    assert out.counts["a"]["duplicates"] == 1


def test_a_call_whose_rows_cannot_be_used_moves_no_time() -> None:
    streams = streams_of([(side, "k", 10 * i) for i in range(400) for side in (0, 1)])
    plan = plan_of(streams, pairs(quality={"cpu": "1%"}), arrival="arrival")
    driver = Driver(plan, through_pages=True)
    driver.session.push(parts_of(plan, streams, (), "arrival")[0], 1_000_000)
    odd = streams_of([(0, "k", 10**5)])
    odd["a"]["value"] = np.array([np.nan])
    for again in (False, True):
        session = Session(plan, driver.pages | dict(driver.session.changed_pages())) if again else driver.session
        session.push(parts_of(plan, odd, (), "arrival")[0], 60_000_000)
        assert session.next_timer() == 2_000_000


def test_what_is_past_its_deadline_is_not_looked_at_when_rows_go() -> None:
    # In half a second come more pairs than there are units for; then nothing, until rows have to go.
    streams = streams_of([(side, "k", 500 * i) for i in range(1200) for side in (0, 1)] + [(0, "other", 10_600_000)])
    given_: dict[str, Any] = {"within": "400ms", "on": "machine", "emit": "all", "allowed_lateness": "10s"}
    late, soon = (
        Rule("pair", "a + b > 1", **given_, quality={"cpu": "1%", "deadline": deadline}) for deadline in (None, "1s")
    )
    found = [run_plan(plan_of(streams, rule, arrival="arrival"), streams) for rule in (late, soon)]
    assert len(found[1].alert_rows()) < len(found[0].alert_rows()) / 4
    assert found[1].counts["a"]["unprocessed"] > 0
