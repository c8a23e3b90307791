"""What the clock does to plans: keys are freed, silent lives end, nothing waits for a stream for ever."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.driver import MINUTE, Driver, one_machine, parts_of, plan_of, settled, table, watch_logics
from tocsin import Rule
from tocsin.runtime.session import Session


@pytest.mark.parametrize("through_pages", [True, False])
def test_silent_keys_are_freed_after_their_time_to_live(through_pages: bool) -> None:
    def rows(machines: Sequence[str], ts: int, value: float) -> dict[str, np.ndarray]:
        return table(machines, [ts] * len(machines), value=[value] * len(machines))

    none = one_machine([], [])
    rule = Rule("x", "a + b > 0", within="10us", on="machine")
    plan = plan_of({"a": none, "b": none}, rule, key_ttl="5m")
    driver = Driver(plan, through_pages=through_pages)

    def send(machines: Sequence[str], ts: int, now_us: int, a: float = 1.0) -> list[str]:
        parts = parts_of(plan, {"a": rows(machines, ts, a), "b": rows(machines, ts, 1.0)})
        return [row["labels"]["machine"] for row in driver.take(driver.session.push(parts[0], now_us))]

    assert send(["m1", "m2", "m3"], 1, MINUTE, a=-9.0) == []
    assert send(["m2"], 2, 4 * MINUTE, a=-9.0) == []
    driver.take(driver.session.advance(5 * MINUTE))
    assert settled(driver.result.counts)["a"] == {"received": 4, "retained": 4}
    driver.take(driver.session.advance(7 * MINUTE))
    assert settled(driver.result.counts)["a"] == {"received": 4, "retained": 2, "expired": 2, "freed_keys": 2}
    assert sum(len(shard.keys) for shard in watch_logics(driver.session)[0].shards) == 1
    # A key that comes back begins anew, and no key gets the state of another.
    assert send(["m3", "m1", "m4"], 3, 8 * MINUTE, a=-0.5) == ["m3", "m1", "m4"]
    assert send(["m2"], 4, 8 * MINUTE, a=-0.5) == ["m2"]


def test_a_timer_stands_where_a_silent_key_is_to_be_freed() -> None:
    streams = {"a": one_machine([1], [-9]), "b": one_machine([1], [1])}
    rule = Rule("x", "a + b > 0", within="10us", on="machine")
    plan = plan_of(streams, rule, key_ttl="5m")
    driver = Driver(plan)
    assert driver.session.next_timer() is None
    driver.take(driver.session.push(parts_of(plan, streams)[0], MINUTE))
    timer = driver.session.next_timer()
    assert timer == 6 * MINUTE + 1
    driver.take(driver.session.advance(timer - 1))
    assert driver.session.next_timer() == timer
    driver.take(driver.session.advance(timer))
    assert settled(driver.result.counts)["a"] == {"received": 1, "expired": 1, "freed_keys": 1}
    assert driver.session.next_timer() is None
    without = Session(plan_of(streams, rule))
    without.push(parts_of(plan, streams)[0], MINUTE)
    assert without.next_timer() is None


def test_the_timer_of_a_busy_key_is_that_of_its_alert_though_its_time_to_live_is_over() -> None:
    streams = {"a": one_machine([1], [1]), "b": one_machine([1], [1])}
    plan = plan_of(streams, Rule("x", "a + b > 0", within="10us", on="machine", stale="1h"), key_ttl="1m")
    driver = Driver(plan)
    driver.take(driver.session.push(parts_of(plan, streams)[0], MINUTE))
    driver.take(driver.session.advance(3 * MINUTE))
    assert driver.session.next_timer() == 61 * MINUTE + 1


def test_a_key_with_an_open_alert_is_not_freed() -> None:
    streams = {"a": one_machine([1], [1]), "b": one_machine([1], [1])}
    plan = plan_of(streams, Rule("x", "a + b > 0", within="10us", on="machine", stale="1h"), key_ttl="1m")
    driver = Driver(plan)
    driver.take(driver.session.push(parts_of(plan, streams)[0], MINUTE))
    driver.take(driver.session.advance(30 * MINUTE))
    assert "freed_keys" not in settled(driver.result.counts)["a"]
    assert [row["state"] for row in driver.take(driver.session.advance(90 * MINUTE))] == ["resolved"]
    assert settled(driver.result.counts)["a"] == {"received": 1, "expired": 1, "freed_keys": 1}


def test_a_silent_life_is_resolved_by_processing_time() -> None:
    streams = {"a": one_machine([MINUTE], [1]), "b": one_machine([MINUTE], [1])}
    rule = Rule("x", "a + b > 0", within="1s", on="machine", stale="2m", keep_firing_for="1m")
    plan = plan_of(streams, rule)
    driver = Driver(plan)
    assert driver.session.next_timer() is None
    now = 1000 * MINUTE
    fired = driver.take(driver.session.push(parts_of(plan, streams)[0], now))
    assert [(row["state"], row["startsAt"]) for row in fired] == [("firing", MINUTE)]
    timer = driver.session.next_timer()
    assert timer is not None
    assert driver.take(driver.session.advance(now + MINUTE)) == []
    assert driver.take(driver.session.advance(timer - 1)) == []
    ended = driver.take(driver.session.advance(timer))
    assert [(row["state"], row["endsAt"]) for row in ended] == [("resolved", 4 * MINUTE)]
    assert driver.session.next_timer() is None


def test_an_evaluation_stops_waiting_for_a_stream_that_went_silent() -> None:
    # b is 1 s behind a, so the evaluation at 2 s waits for b; after `idle_timeout` of silence it does not.
    second = 1_000_000
    streams = {"a": one_machine([2 * second], [1]), "b": one_machine([second], [1])}
    plan = plan_of(streams, Rule("x", "a + b > 0", within="5s", on="machine", stale="1h"))
    driver = Driver(plan)
    assert driver.take(driver.session.push(parts_of(plan, streams)[0], MINUTE)) == []
    assert driver.session.next_timer() == MINUTE + 5 * second
    assert driver.take(driver.session.advance(MINUTE + 4 * second)) == []
    fired = driver.take(driver.session.advance(MINUTE + 5 * second))
    assert [(row["state"], row["startsAt"]) for row in fired] == [("firing", 2 * second)]
