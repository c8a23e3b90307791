"""Where waiting meets the rest: the clock of a running query, rules that change their place, waits that were stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.driver import Driver, parts_of, plan_of, settled, watch_logics
from tests.test_waiting import one
from tocsin import Rule, local
from tocsin.runtime.session import Session

SECOND = 1_000_000
HOUR = 3600 * SECOND


def seconds(first: int, last: int) -> list[int]:
    return [SECOND * i for i in range(first, last + 1)]


def steady(first: int, last: int) -> dict[str, dict[str, np.ndarray]]:
    """Two streams with a row each second, whose sum is always 2."""
    times = seconds(first, last)
    return {name: one(times, [1.0] * len(times)) for name in "ab"}


def told(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["alert"], row["state"], row["startsAt"], row["endsAt"]) for row in rows]


def run_timers(driver: Driver, now_us: int) -> list[tuple[Any, ...]]:
    """Call at each time that is asked for, until none is."""
    found: list[tuple[Any, ...]] = []
    for _ in range(20):
        timer = driver.session.next_timer()
        if timer is None:
            return found
        assert timer > now_us, "a timer in the past would fire for ever"
        now_us = timer
        found += told(driver.take(driver.session.advance(now_us)))
    raise AssertionError(found)


@pytest.mark.parametrize("through_pages", [True, False])
def test_a_life_is_not_ended_by_silence_while_rows_that_continue_it_wait(through_pages: bool) -> None:
    """Rows of 0 to 20 s, the last 5 s of which wait for a minute: one life, until 20 s and `stale` (10 s) more."""
    rule = Rule("x", "a + b > 0", within="10s", on="machine", quality={"wait": "5s"})
    plan = plan_of(steady(0, 20), rule)
    driver = Driver(plan, through_pages=through_pages)
    first = told(driver.take(driver.session.push(parts_of(plan, steady(0, 20))[0], HOUR)))
    assert first == [("x", "firing", 0, None)]
    assert run_timers(driver, HOUR) == [("x", "resolved", 0, 30 * SECOND)]


def test_a_rule_with_a_shorter_idle_does_not_end_lives_over_rows_that_wait() -> None:
    short = Rule("short", "a + b > 0", within="10s", on="machine", quality={"wait": "5s"}, idle_timeout="1s")
    long = Rule("long", "a + b > 1", within="10s", on="machine", quality={"wait": "5s"}, idle_timeout="100s")
    plan = plan_of(steady(0, 20), [short, long])
    driver = Driver(plan)
    driver.take(driver.session.push(parts_of(plan, steady(0, 20))[0], HOUR))
    assert sorted(run_timers(driver, HOUR)) == [
        ("long", "resolved", 0, 30 * SECOND),
        ("short", "resolved", 0, 30 * SECOND),
    ]


def changed(before: Sequence[Rule], after: Sequence[Rule]) -> list[tuple[Any, ...]]:
    """Go on with other rules: what is said at once."""
    plan = plan_of(steady(0, 20), before)
    driver = Driver(plan)
    driver.take(driver.session.push(parts_of(plan, steady(0, 20))[0], 0))
    return told(Session(plan_of(steady(0, 20), after), driver.pages).push([], 1).alert_rows())


def test_rules_that_wait_otherwise_may_stand_in_any_order_and_wait_otherwise_again() -> None:
    def rule(alert: str, wait: str) -> Rule:
        return Rule(alert, "a + b > 0", within="10s", on="machine", quality={"wait": wait})

    both = [rule("A", "5s"), rule("B", "6s")]
    assert changed(both, both[::-1]) == []
    assert changed(both, [rule("A", "6s"), rule("B", "5s")]) == []
    assert changed(both, [rule("B", "7s"), rule("A", "max")]) == []
    assert changed(both[:1], both) == []


def test_each_rule_that_waits_has_its_own_idle_and_the_largest_counts() -> None:
    def idle_timeout_us(*rules: Rule) -> int:
        (watch,) = plan_of(steady(0, 1), rules).watches
        assert watch.order is not None
        return watch.order.idle_timeout_us

    given = {"expr": "a + b > 0", "on": "machine", "quality": {"wait": "5s"}}
    short, plain, far = (
        Rule(name, **given, within=within, idle_timeout=idle)
        for name, within, idle in [("short", "1s", "2s"), ("plain", "1s", None), ("far", "10m", None)]
    )
    assert idle_timeout_us(short) == 2 * SECOND
    assert idle_timeout_us(short, plain) == idle_timeout_us(plain, short) == 60 * SECOND
    assert idle_timeout_us(short, far, plain) == 600 * SECOND


def late_by_hours() -> dict[str, dict[str, Any]]:
    random, count = np.random.default_rng(1), 3000
    arrival = np.arange(count) * SECOND
    ts = arrival - (random.random(count) < 0.3) * random.integers(0, HOUR, count)
    table = one(ts.tolist(), [1.0] * count) | {"arrival": arrival}
    return {"a": table, "b": table}


@pytest.mark.parametrize("kind", ["max", "observed", "eqsel", "noneqsel"])
def test_a_wait_that_was_stored_is_no_longer_than_what_is_allowed_now(kind: str) -> None:
    def rule(allowed_lateness: str, grain: str) -> Rule:
        quality = {"recall": 1.0, "in_order": True, "strategy": kind, "step": grain}
        waits: dict[str, Any] = {"quality": {"wait": "max"} if kind == "max" else quality}
        return Rule("x", "a + b > 0", within="10s", on="machine", allowed_lateness=allowed_lateness, **waits)

    streams = late_by_hours()
    plan = plan_of(streams, rule("48h", "10s"), arrival="arrival")
    driver = Driver(plan)
    out = driver.session.push(parts_of(plan, streams, (), "arrival")[0])
    assert out.metrics.section("waits")["x"]["wait_us"] > 90 * SECOND
    driver.take(out)
    after = plan_of(streams, rule("1m", "10ms"), arrival="arrival")
    nothing = parts_of(
        after, {name: one([0], [1.0]) | {"arrival": np.zeros(1, np.int64)} for name in "ab"}, (), "arrival"
    )[0]
    most = 60 * SECOND if kind == "max" else 8192 * 10_000
    assert Session(after, driver.pages).push(nothing).metrics.section("waits")["x"]["wait_us"] == most


@pytest.mark.parametrize(("wait", "late"), [("none", 1), ("4m", 1), ("20m", 0)])
def test_allowed_lateness_counts_from_rows_that_were_taken_so_a_longer_wait_loses_less(wait: str, late: int) -> None:
    """The row of minute 3 comes when minute 10 was taken, 7 minutes after it; or while all wait, and then in order."""
    minutes = np.array([0, 10, 15, 3]) * 60 * SECOND
    streams = {"a": one(minutes.tolist(), [1.0, 1.0, 1.0, 9.0]) | {"arrival": np.arange(4)}}
    rule = Rule("x", "a > 5", on="machine", allowed_lateness="5m", quality={"wait": wait})
    found = local.run_local_detailed(streams, rule, arrival="arrival")
    assert found.counts["a"]["late"] == late
    fired = [row["startsAt"].minute for row in found.alerts if row["state"] == "firing"]
    assert fired == [3] * (1 - late)


def test_rows_that_wait_for_nobody_any_more_are_counted_where_they_were_counted_before() -> None:
    """Two rules read two columns of one stream, so their rows wait apart; then one of them goes."""
    streams = steady(0, 2)
    streams["a"]["temp"] = np.ones(3)
    both = [of_column("A", "value"), of_column("B", "temp")]
    plan = plan_of(streams, both)
    driver = Driver(plan)
    driver.take(driver.session.push(parts_of(plan, streams)[0]))
    assert {name: counts["held"] for name, counts in driver.result.counts.items()} == {"a": 6, "b": 6}
    after = Session(plan_of(streams, both[:1]), driver.pages)
    assert settled(after.push([]).counts) == {name: {"held": -3, "expired": 3} for name in "ab"}
    for taken in after.end().counts.values():
        assert (taken["held"], taken["retained"] + taken["omitted"]) == (-3, 3)


def of_column(alert: str, column: str) -> Rule:
    return Rule(alert, f"a.{column} + b.value > 0", within="10s", on="machine", quality={"wait": "5s"})


def test_a_column_with_few_rows_holds_up_no_rule_of_another_column() -> None:
    """Of a hundred rows of a two have `temp`: what A says after each call is what it says alone."""
    streams = steady(0, 99)
    streams["a"]["temp"] = np.where(np.arange(100) % 50 == 0, 1.0, np.nan)
    rules, said = [of_column("A", "value"), of_column("B", "temp")], []
    for given in (rules[:1], rules, rules[::-1]):
        plan = plan_of(streams, given)
        session = Session(plan)
        pair = 2 * len(given)  # Rows are sent to each way of waiting by itself.
        calls = [session.push(part) for part in parts_of(plan, streams, range(pair, 100 * pair, pair))]
        said.append([[row for row in out.alert_rows() if row["alert"] == "A"] for out in calls])
    assert said[0] == said[1] == said[2]
    # A pair a second: with the sixth the first has waited for 5 s.
    assert [len(alerts) for alerts in said[0][:6]] == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 3]])
def test_rows_that_waited_have_their_payload_still(cuts: list[int]) -> None:
    """Of four rows of a, which come as 3, 1, 2, 9 s, each true one is told with the note that it came with."""
    a = one([3 * SECOND, SECOND, 2 * SECOND, 9 * SECOND], [1.0, 1.0, 1.0, 0.0])
    a |= {"arrival": np.arange(4), "note": np.array(["three", "one", "two", "nine"], object)}
    rule = Rule("x", "a > 0.5", within=0, on="machine", emit="all", quality={"wait": "5s"})
    plan = plan_of({"a": a}, rule, arrival="arrival")
    result = Driver(plan).run(parts_of(plan, {"a": a}, cuts, "arrival"))
    notes = [row["witness"][0]["payload"]["note"] for row in result.alert_rows()]
    assert notes == ["one", "two", "three"]


def test_results_in_order_are_those_of_rows_that_were_not_behind() -> None:
    """With a wait of 1 s, 2 s comes in order after 3 s, and 1 s behind 5 s does not: of 4 results 3 are in order."""
    a = one([3 * SECOND, 2 * SECOND, 5 * SECOND, SECOND], [1.0] * 4) | {"arrival": np.arange(4)}
    rule = Rule("x", "a > 0.5", within=0, on="machine", emit="all", quality={"wait": "1s"})
    plan = plan_of({"a": a}, rule, arrival="arrival")
    result = Driver(plan).run(parts_of(plan, {"a": a}, (), "arrival"))
    assert [row["startsAt"] // SECOND for row in result.alert_rows()] == [2, 3, 1, 5]
    assert result.metrics.results_by_period()["x"] == {0: (3, 4)}
    assert result.counts["a"]["behind"] == 1


def test_a_key_that_is_freed_leaves_the_rows_of_the_keys_behind_it_in_place() -> None:
    """Of m, which came first, nothing waits after 10 s; when it is freed the row of n waits, and is n's."""
    rule = Rule("x", "a > 0", within=0, on="machine", quality={"wait": "5s"}, idle_timeout="10s")
    tables = [one([SECOND], [-1.0]), one([HOUR], [1.0]) | {"machine": np.array(["n"], object)}]
    plan = plan_of({"a": tables[0]}, rule, key_ttl="1h")
    driver = Driver(plan)
    driver.take(driver.session.push(parts_of(plan, {"a": tables[0]})[0], 0))
    driver.take(driver.session.advance(10 * SECOND))
    driver.take(driver.session.push(parts_of(plan, {"a": tables[1]})[0], HOUR))
    driver.take(driver.session.advance(HOUR + SECOND))
    assert driver.result.counts["a"]["freed_keys"] == driver.result.counts["a"]["held"] == 1
    fired = driver.take(driver.session.advance(HOUR + 20 * SECOND))
    assert [(row["labels"], row["state"]) for row in fired] == [({"machine": "n"}, "firing")]


def test_rows_that_wait_are_found_again_where_streams_are_named_in_another_order() -> None:
    streams = steady(0, 2)
    streams["a"]["value"] *= 3.0
    rule = Rule("B", "a - b > 0", within="10s", on="machine", quality={"wait": "5s"})
    plan = plan_of(streams, rule)
    driver = Driver(plan)
    driver.take(driver.session.push(parts_of(plan, streams)[0]))
    after = Session(plan_of({name: streams[name] for name in "ba"}, rule), driver.pages)
    (watch,) = watch_logics(after)
    assert watch.reads.views[0].stream == "b", "the views have other numbers now"
    fired = after.end().alert_rows()
    assert [(row["alert"], row["state"], row["value"]) for row in fired] == [("B", "firing", 2.0)]


def test_rows_that_came_later_than_rows_wait_are_told() -> None:
    a = one([3 * SECOND, 5 * SECOND, SECOND], [0.0, 0.0, 9.0]) | {"arrival": np.arange(3)}
    plan = plan_of({"a": a}, Rule("x", "a > 20", within=0, on="machine", quality={"wait": "1s"}), arrival="arrival")
    late = Driver(plan).run(parts_of(plan, {"a": a}, (), "arrival")).late
    assert [(row["stream"], row["time"], row["values"]) for row in late] == [("a", SECOND, {"value": 9.0})]
    assert "after the reorder wait" in late[0]["reason"]


def test_a_late_row_names_the_rules_that_read_it_and_how_long_rows_waited() -> None:
    """The last row is 8 s behind: more than a wait of 1 s and an allowed lateness of 2 s, less than a wait of 20 s."""
    a = one([3 * SECOND, 5 * SECOND, 9 * SECOND, SECOND], [0.0] * 4) | {"arrival": np.arange(4)}
    given: dict[str, Any] = {"expr": "a > 20", "within": 0, "on": "machine"}
    rules = [
        Rule("x", **given, quality={"wait": "1s"}),
        Rule("y", **given, quality={"wait": "1s"}),
        Rule("z", **given, quality={"wait": "20s"}),
    ]
    plan = plan_of({"a": a}, [*rules, Rule("n", **given, allowed_lateness="2s")], arrival="arrival")
    late = Driver(plan).run(parts_of(plan, {"a": a}, (), "arrival")).late
    assert [(row["rules"], row["wait_us"], "dropped" in row["reason"]) for row in late] == [
        (["x", "y"], SECOND, False),
        (["n"], None, True),
    ]


def test_the_window_of_a_stream_is_the_widest_of_the_rules_that_wait_together() -> None:
    given = {"expr": "a + b > 0", "on": "machine", "quality": {"wait": "5s"}}
    far, near = Rule("far", **given, within="20s"), Rule("near", **given, within="1s")
    for rules in ([far, near], [near, far]):
        (watch,) = plan_of(steady(0, 1), rules).watches
        assert watch.order is not None
        assert watch.order.windows_us == (20 * SECOND, 20 * SECOND)


def test_a_few_rows_from_the_future_do_not_stop_the_wait_from_following_the_rows() -> None:
    """One row in ten is of a clock that stands a year ahead: the wait is still the largest delay of the others."""
    count = 4000
    arrival = np.arange(count) * (SECOND // 10)
    ts = arrival - np.where((np.arange(count) % 7 == 0) & (np.arange(count) > 2000), 3 * SECOND, 0)
    machine = np.full(count, "m", object)
    machine[::10], ts[::10] = "future", 365 * 24 * HOUR
    a = {"ts": ts, "arrival": arrival, "machine": machine, "value": np.ones(count)}
    plan = plan_of({"a": a}, Rule("x", "a > 0", within=0, on="machine", quality={"wait": "max"}), arrival="arrival")
    out = Driver(plan).session.push(parts_of(plan, {"a": a}, (), "arrival")[0])
    # The clock of m stands where the row 0.1 s before has moved it.
    assert out.metrics.section("waits")["x"]["wait_us"] == 29 * SECOND // 10


@pytest.mark.parametrize("given", [{"quality": {"wait": "max"}}, {"quality": {"recall": 0.9, "in_order": True}}])
def test_a_burst_from_the_future_does_not_stop_the_wait_from_following_the_rows(given: dict[str, Any]) -> None:
    """Hundred rows of one machine come a year ahead, all at once: what comes after them moves the wait all the same."""
    count = 6000
    arrival = np.arange(count) * (SECOND // 10)
    ts = arrival - np.where((np.arange(count) % 3 == 0) & (np.arange(count) > 2000), 3 * SECOND, 0)
    machine = np.full(count, "m", object)
    machine[1000:1100], ts[1000:1100] = "future", 365 * 24 * HOUR
    a = {"ts": ts, "arrival": arrival, "machine": machine, "value": np.ones(count)}
    plan = plan_of({"a": a}, Rule("x", "a > 0", within=0, on="machine", **given), arrival="arrival")
    out = Driver(plan).session.push(parts_of(plan, {"a": a}, (), "arrival")[0])
    # The clock of m stands where the row 0.1 s before has moved it.
    assert out.metrics.section("waits")["x"]["wait_us"] == 29 * SECOND // 10


def test_a_clock_that_stands_does_not_hold_rows_for_ever() -> None:
    """All rows have one time and go on coming: after `idle_timeout` without anything taken they are taken."""
    rule = Rule("x", "a + b > 0", within="10s", on="machine", quality={"wait": "5s"}, idle_timeout="30s")
    plan = plan_of(steady(0, 1), rule)
    driver, held = Driver(plan), []
    for minute in range(10):
        for second in range(0, 60, 10):
            now_us = 3600 * SECOND + minute * 60 * SECOND + second * SECOND
            driver.take(driver.session.push(parts_of(plan, steady(0, 1))[0], now_us))
            timer = driver.session.next_timer()
            if timer is not None and timer <= now_us + 10 * SECOND:
                driver.take(driver.session.advance(timer))
            held.append(driver.result.counts["a"]["held"])
    assert 0 in held
    # Six calls a minute of one row each: never more wait than came in half a minute.
    assert max(held) <= 4


def test_what_the_clock_lets_go_is_learnt_and_written() -> None:
    rule = Rule(
        "x", "a + b > 0", within="10s", on="machine", idle_timeout="30s", quality={"recall": 0.9, "in_order": True}
    )
    plan = plan_of(steady(0, 1), rule)
    session = Session(plan)
    # Rows of the one stream wait for the other.
    streams = {"a": steady(0, 40)["a"], "b": steady(0, 20)["b"]}
    session.push(parts_of(plan, streams)[0], 0)
    session.changed_pages()
    session.advance(3600 * SECOND)
    assert f"{plan.watches[0].name}/pace" in session.changed_pages()


def test_a_row_that_rules_take_in_several_ways_is_counted_once_for_each_under_one_name() -> None:
    a = one(seconds(0, 9), [1.0] * 10)
    given: dict[str, Any] = {"expr": "a > 20", "within": 0, "on": "machine"}
    rules = [Rule("x", **given, quality={"wait": "2s"}), Rule("y", **given, quality={"wait": "3s"}), Rule("n", **given)]
    plan = plan_of({"a": a}, rules)
    counts = Driver(plan).session.push(parts_of(plan, {"a": a})[0]).counts["a"]
    # The clock stands at 9 s: those after 7 s wait for one rule, those after 6 s for the other.
    assert (counts["received"], counts["held"]) == (3 * 10, 2 + 3)
    fates = ("retained", "omitted", "duplicates", "expired", "shed", "late", "quarantined", "unprocessed")
    assert counts["received"] == counts["held"] + sum(counts.get(name, 0) for name in fates)
