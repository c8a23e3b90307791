"""A rule that waits answers as the same rule would on rows that arrive in the order in which it takes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import CUTS, Driver, parts_of, plan_of, settled, stories
from tests.durations import us
from tests.example_counts import ENGINE
from tests.naive.alerts import naive_alerts
from tests.naive.waiting import taken_in_order
from tests.strategies import Case, cases, signed_sum
from tests.test_semantics import _in_oracle_form as in_oracle_form
from tests.test_semantics import stories as semantic_stories
from tocsin import Rule, ThresholdSorter, local, run_local
from tocsin.rules.limits import Limits

WAITS = st.sampled_from([0, 1, 2, 3, 5, 8, 30, 100])
IDLES = st.sampled_from([0, 2, 7, 40, 1000])
DISORDERED = cases(shaped=True, disorder=("between", "bounded", "unbounded"))


def usable(streams: Mapping[str, Mapping[str, Any]]) -> list[tuple[Any, str, int, int]]:
    """List the rows that the rule can use in order of arrival: key, stream, time, place in the stream."""
    found = []
    for place, (name, table) in enumerate(streams.items()):
        for i, time in enumerate(table["ts"]):
            if table["machine"][i] is not None and math.isfinite(table["value"][i]):
                found.append((table["arrival"][i], place, i, table["machine"][i], name, int(time)))
    return [(key, name, time, i) for _, _, i, key, name, time in sorted(found, key=lambda row: row[:3])]


def in_the_order_taken(
    streams: Mapping[str, Mapping[str, Any]], wait: int | Sequence[int], idle: int
) -> dict[str, dict[str, Any]]:
    """Give the usable rows with the moment at which each is taken as its arrival."""
    rows = usable(streams)
    tables: dict[str, dict[str, list[Any]]] = {
        name: {column: [] for column in table} for name, table in streams.items()
    }
    for moment, number in enumerate(taken_in_order([row[:3] for row in rows], wait, idle)):
        _, name, _, i = rows[number]
        for column in set(tables[name]) - {"arrival"}:
            tables[name][column].append(streams[name][column][i])
        tables[name]["arrival"].append(moment)
    return {name: {column: np.array(cells, np.asarray(streams[name][column]).dtype) for column, cells in table.items()}
            for name, table in tables.items()}  # fmt: skip


@ENGINE
@given(DISORDERED, WAITS, IDLES, CUTS, st.booleans())
def test_waiting_is_taking_rows_in_another_order(
    case: Case, wait: int, idle: int, cuts: list[int], through_pages: bool
) -> None:
    streams, keywords = case.arrays(), case.keywords() | {"idle_timeout": us(idle)}
    plan = plan_of(streams, Rule(**keywords, quality={"wait": us(wait)}), arrival="arrival")
    waited = Driver(plan, through_pages=through_pages).run(parts_of(plan, streams, cuts, "arrival"))
    ordered = in_the_order_taken(streams, wait, idle)
    plain = plan_of(ordered, Rule(**keywords), arrival="arrival")
    expected = Driver(plain, through_pages=False).run(parts_of(plain, ordered, (), "arrival"))
    assert stories(waited.alert_rows()) == stories(expected.alert_rows())
    for name, counts in settled(expected.counts).items():
        mine = waited.counts[name]
        assert {part: mine.get(part, 0) for part in counts if part not in {"received", "quarantined"}} == {
            part: number for part, number in counts.items() if part not in {"received", "quarantined"}
        }


MOST = st.integers(-9, 3).map(lambda halves: halves / 2)
LIMITS = st.fixed_dictionaries({"m1": MOST}, optional={"m2": MOST})


@ENGINE
@given(cases(disorder=("between", "bounded", "unbounded")), LIMITS, WAITS, IDLES, CUTS)
def test_a_rule_with_limits_that_waits_is_for_each_key_that_of_the_oracles(
    case: Case, limits: dict[str, float], wait: int, idle: int, cuts: list[int]
) -> None:
    """Rows are taken as one oracle says, and of each key they mean what the other says, with its number in the rule."""
    names, streams = case.rule.join.streams, case.arrays()
    of = {key: signed_sum(names, (1, -1, 1, -1)[: len(names)], ">", Fraction(most)) for key, most in limits.items()}
    table = Limits("limits.csv", ("machine",), ("most",), {(key,): (most,) for key, most in limits.items()})
    expr = next(iter(of.values())).text.rpartition(" ")[0] + " by.most"
    own = {
        "expr": expr,
        "limits": {"by": table},
        "idle_timeout": us(idle),
        "quality": {"wait": us(wait)},
        "recovery": None,
        "domains": {},
    }
    keywords = case.keywords() | own | {"shapes": dict.fromkeys(f"{name}.value" for name in names)}
    found = [
        in_oracle_form(row, case.rule) for row in run_local(streams, Rule(**keywords), arrival="arrival", cuts=cuts)
    ]
    ordered, expected = in_the_order_taken(streams, wait, idle), []
    for key, condition in of.items():
        mine = {name: {c: cells[t["machine"] == key].tolist() for c, cells in t.items()} for name, t in ordered.items()}
        rule = replace(
            case.rule, condition=condition.judge, idle_timeout_us=idle, recovery=None, shape=None, domain=None
        )
        expected += naive_alerts(mine, rule)
    assert semantic_stories(found) == semantic_stories(expected)


@ENGINE
@given(cases(shaped=True, disorder=("bounded",)), CUTS)
def test_with_a_wait_as_long_as_every_delay_alerts_are_those_of_sorted_rows(case: Case, cuts: list[int]) -> None:
    streams, keywords = case.arrays(), case.keywords() | {"allowed_lateness": "1000s"}
    plan = plan_of(streams, Rule(**keywords | {"idle_timeout": "1000s"}, quality={"wait": "1s"}), arrival="arrival")
    waited = Driver(plan, through_pages=True).run(parts_of(plan, streams, cuts, "arrival"))
    by_time = {name: dict(table) | {"arrival": np.asarray(table["ts"])} for name, table in streams.items()}
    plain = plan_of(by_time, Rule(**keywords), arrival="arrival")
    expected = Driver(plain, through_pages=False).run(parts_of(plain, by_time, (), "arrival"))
    assert not any(row["quality"] == "exact late" for row in waited.alert_rows())
    if all(len(set(table["ts"])) == len(table["ts"]) for table in streams.values()) and _apart(streams):
        assert stories(waited.alert_rows()) == stories(expected.alert_rows())


def _apart(streams: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether no two rows have the same time: those would be taken as they arrived."""
    times = [int(time) for table in streams.values() for time in table["ts"]]
    return len(set(times)) == len(times)


def one(ts: list[int], value: list[float]) -> dict[str, np.ndarray]:
    return {"ts": np.array(ts, np.int64), "machine": np.array(["m"] * len(ts), object), "value": np.array(value)}


@pytest.mark.parametrize("through_pages", [True, False])
def test_rows_of_a_key_that_falls_silent_are_taken_after_idle_by_the_clock(through_pages: bool) -> None:
    rule = Rule("x", "a + b > 0", within="10s", on="machine", quality={"wait": "5s"}, idle_timeout="30s")
    streams = {"a": one([1_000_000], [1.0]), "b": one([2_000_000], [1.0])}
    plan = plan_of(streams, rule)
    driver = Driver(plan, through_pages=through_pages)
    minute = 60_000_000
    assert driver.take(driver.session.push(parts_of(plan, streams)[0], minute)) == []
    assert settled(driver.result.counts)["a"] == {"received": 1, "held": 1}
    assert driver.session.next_timer() == minute + 30_000_000
    assert driver.take(driver.session.advance(minute + 29_999_999)) == []
    fired = driver.take(driver.session.advance(minute + 30_000_000))
    # By then the clock says that nothing was heard for longer than `stale`, 10 s.
    told = [(row["state"], row["startsAt"], row["endsAt"]) for row in fired]
    assert told == [("firing", 2_000_000, None), ("resolved", 2_000_000, 12_000_000)]
    assert settled(driver.result.counts)["a"] == {"received": 1, "retained": 1}


def test_a_key_whose_rows_wait_is_not_freed() -> None:
    rule = Rule("x", "a + b > 0", within="10s", on="machine", quality={"wait": "5s"}, idle_timeout="2h")
    streams = {"a": one([1_000_000], [1.0]), "b": one([2_000_000], [-9.0])}
    plan = plan_of(streams, rule, key_ttl="1h")
    driver = Driver(plan)
    driver.take(driver.session.push(parts_of(plan, streams)[0], 0))
    driver.take(driver.session.advance(3_700_000_000))
    assert settled(driver.result.counts)["a"] == {"received": 1, "held": 1}
    driver.take(driver.session.advance(7_200_000_000))
    assert settled(driver.result.counts)["a"] == {"received": 1, "expired": 1, "freed_keys": 1}


def test_a_clock_in_the_future_holds_no_row_of_its_key_and_none_of_another() -> None:
    day = 86_400_000_000
    times = [1_000_000 * i for i in range(1, 60)]
    a = {"ts": np.array([*times[:10], times[10] + day, *times[11:], *times]), "value": np.ones(118)}
    a["machine"] = np.array(["m"] * 59 + ["n"] * 59, object)
    b = {"ts": np.array(times * 2), "value": np.ones(118), "machine": a["machine"]}
    for table in (a, b):
        table["arrival"] = np.array([*times, *times])
    rule = Rule("x", "a + b > 1", within="2s", on="machine", quality={"wait": "5s"}, allowed_lateness="48h")
    plan = plan_of({"a": a, "b": b}, rule, arrival="arrival")
    out = Driver(plan).session.push(parts_of(plan, {"a": a, "b": b}, (), "arrival")[0])
    assert {row["labels"]["machine"] for row in out.alert_rows()} == {"m", "n"}
    # Key n holds what is less than 5 s old. Of key m the row from tomorrow waits, those behind its clock do not.
    assert out.counts["a"]["held"] == 5 + 1
    assert out.counts["a"]["behind"] == 0


@ENGINE
@given(st.integers(0, 10**6), st.sampled_from([0, 500_000, 3_000_000]), st.sampled_from([1_000_000, 4_000_000]))
def test_omission_before_ordering_loses_no_alarm(seed: int, wait: int, within: int) -> None:
    """Leave out at the emitter, in pieces and out of order, then wait: near each alarm of all rows there is one."""
    random = np.random.default_rng(seed)
    streams, kept = {}, {}
    for name, sign in (("a", 1.0), ("b", -1.0)):
        count = 60
        arrival = np.sort(random.integers(0, 30_000_000, count))
        ts = arrival - (random.random(count) < 0.4) * random.integers(0, 4_000_000, count)
        table = {"ts": ts, "arrival": arrival, "value": random.integers(-6, 7, count).astype(float)}
        sorter = ThresholdSorter(2 * within, shape="increasing" if sign > 0 else "decreasing")
        for part in np.array_split(np.arange(count), 4):
            sorter.push(ts[part], table["value"][part], part)
        stay = np.sort(sorter.retained_ids())
        table["machine"] = np.full(count, "m", object)
        streams[name], kept[name] = table, {column: cells[stay] for column, cells in table.items()}
    rule = {"alert": "x", "expr": "a - b > 9", "within": us(within), "on": "machine", "stale": us(within)}
    full = local.run_local_detailed({n: dict(t) for n, t in streams.items()}, Rule(**rule)).alerts
    found = local.run_local_detailed(
        kept, Rule(**rule, quality={"wait": us(wait)}, idle_timeout="1h"), arrival="arrival"
    ).alerts
    ends = {(row["id"], row["quality"]): row["endsAt"] for row in found if row["state"] == "resolved"}
    fired = [row for row in found if row["state"] == "firing"]
    # An alert that has no end still fires at the last row.
    lives = [(row["startsAt"], ends.get((row["id"], row["quality"]), local.EPOCH + us(30_000_000))) for row in fired]
    # Rows of the witness lie at most `within` apart, and what stands for one at most twice that from it.
    far = us(3 * within)
    for row in full:
        if row["state"] == "firing":
            best = max(part["time"] for part in row["witness"])
            assert any(start - far <= best <= end + far for start, end in lives)
