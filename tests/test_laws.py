"""The laws of `tocsin.logic`, held by plans over random streams: splits, pages, purity, empty batches, counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.durations import us
from tests.strategies import LONG, Case, cases
from tocsin import Rule, RunError, local
from tocsin.logic import COUNTS, Batch, Out
from tocsin.plan import Plan, make_plan

Columns = Mapping[str, Mapping[str, np.ndarray]]
FATES = ("held", "retained", "expired", "omitted", "duplicates", "shed", "late", "quarantined", "unprocessed")
MINUTE = 60_000_000
CUTS = st.lists(st.integers(0, 40), max_size=6).map(sorted)


def plan_of(streams: Columns, rules: Rule | Sequence[Rule], **options: Any) -> Plan:
    return make_plan(rules, {name: list(columns) for name, columns in streams.items()}, **options)


def parts_of(plan: Plan, streams: Columns, cuts: Sequence[int] = (), arrival: str | None = None) -> list[list[Batch]]:
    """Read the streams as the engine does, cut them, and let nobody write to what is handed over."""
    numbered = enumerate(plan.watches)
    batches = [batch for i, watch in numbered for batch in local._batches(i, watch, streams, "ts", arrival)]
    parts = local._cut(batches, cuts) if cuts else [batches]
    for batch in (batch for part in parts for batch in part):
        for array in (batch.key, batch.time, batch.arrival, *batch.values.values()):
            array.flags.writeable = False
    return parts


class Driver:
    """An engine for tests: it checks counts and state after each call, and can write and read the pages."""

    def __init__(self, plan: Plan, *, through_pages: bool = True) -> None:
        self.plan, self.through_pages = plan, through_pages
        self.pages: dict[str, bytes] = {}
        self.logic = plan.build(self.pages)
        self.result = Out()

    def take(self, out: Out) -> list[dict[str, Any]]:
        self.result.add(out)
        for name, counts in self.result.counts.items():
            assert set(counts) <= set(COUNTS), name
            assert counts.get("received", 0) == sum(counts.get(fate, 0) for fate in FATES), (name, counts)
        for page in (page for watch in self.logic.watches for page in watch.pages):
            page.check()
        for promising in self.logic.promising:
            promising.check()
        if self.through_pages:
            for name, data in self.logic.changed_pages().items():
                if data is None:
                    del self.pages[name]  # Only what was there may go.
                else:
                    self.pages[name] = data
            self.logic = self.plan.build(self.pages)
        return out.alerts

    def run(self, parts: Iterable[Sequence[Batch]]) -> Out:
        for part in parts:
            self.take(self.logic.on_data(part))
        self.take(self.logic.on_end())
        return self.result

    def run_with_pauses(self, parts: Iterable[Sequence[Batch]], pauses_us: Iterable[int]) -> Out:
        """Let time pass between calls, and timers come; where no pause is left, none."""
        now = 10**12
        for part, pause in zip(parts, chain(pauses_us, repeat(0)), strict=False):
            self.take(self.logic.on_data(part, now))
            now += pause
            timer = self.logic.next_timer()
            if timer is not None and timer <= now:
                self.take(self.logic.on_time(now))
        self.take(self.logic.on_end())
        return self.result


def stories(rows: Iterable[Mapping[str, Any]]) -> dict[Any, list[Any]]:
    """Give what happened to each key of each rule in order; keys do not wait for each other."""
    told: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        told[row["alert"], tuple(sorted(row["labels"].items())), row["quality"]].append(dict(row))
    return dict(told)


def table(machine: Sequence[Any], ts: Sequence[Any], **columns: Sequence[Any]) -> dict[str, np.ndarray]:
    return {
        "ts": np.array(ts),
        "machine": np.array(machine, dtype=object),
        **{n: np.array(v) for n, v in columns.items()},
    }


def one_machine(ts: Sequence[int], value: Sequence[float]) -> dict[str, np.ndarray]:
    return table(["m"] * len(ts), np.array(ts, np.int64), value=np.array(value, np.float64))


def settled(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {name: {count: number for count, number in mine.items() if number} for name, mine in counts.items()}


@given(cases(shaped=True), CUTS, st.booleans())
def test_splits_and_pages_change_neither_rows_nor_counts(case: Case, cuts: list[int], through_pages: bool) -> None:
    streams = case.arrays()
    plan = plan_of(streams, Rule(**case.keywords()), arrival="arrival")
    whole = Driver(plan, through_pages=False).run(parts_of(plan, streams, (), "arrival"))
    split = Driver(plan, through_pages=through_pages).run(parts_of(plan, streams, cuts, "arrival"))
    assert stories(split.alerts) == stories(whole.alerts)
    assert settled(split.counts) == settled(whole.counts)


HOPPING = cases(shaped=True, disorder=("bounded", "unbounded"), streams_of_a_rule=(2, 2, 3), kinds=("hop",))


@given(HOPPING, CUTS)
def test_splits_change_nothing_in_hopping_windows_with_disorder(case: Case, cuts: list[int]) -> None:
    streams, rule = case.arrays(), Rule(**case.keywords())
    plan = plan_of(streams, rule, arrival="arrival")
    whole = Driver(plan, through_pages=False).run(parts_of(plan, streams, (), "arrival"))
    split = Driver(plan).run(parts_of(plan, streams, cuts, "arrival"))
    assert stories(split.alerts) == stories(whole.alerts)
    assert settled(split.counts) == settled(whole.counts)


@given(cases(shaped=True), CUTS)
def test_the_local_engine_cuts_as_the_test_engine_does(case: Case, cuts: list[int]) -> None:
    streams, rule = case.arrays(), Rule(**case.keywords())
    for column in (column for columns in streams.values() for column in columns.values()):
        column.flags.writeable = False
    whole = local.run(streams, rule, arrival="arrival")
    split = local.run(streams, rule, arrival="arrival", cuts=cuts)
    assert stories(split.alerts) == stories(whole.alerts)
    assert settled(split.counts) == settled(whole.counts)
    for name, counts in whole.counts.items():
        assert counts["received"] == len(streams[name]["ts"])


@given(cases(shaped=True, emit="all"), CUTS)
def test_splits_and_pages_change_no_match(case: Case, cuts: list[int]) -> None:
    streams = case.arrays()
    plan = plan_of(streams, Rule(**case.keywords()), arrival="arrival")
    whole = Driver(plan, through_pages=False).run(parts_of(plan, streams, (), "arrival"))
    split = Driver(plan).run(parts_of(plan, streams, cuts, "arrival"))
    assert stories(split.alerts) == stories(whole.alerts)


TWO_STREAMS = cases(shaped=True, emit="all", streams_of_a_rule=(2, 2, 2))


@given(TWO_STREAMS, CUTS, st.sampled_from([{"cpu": "1%"}, {"cpu": "100%"}, {"deadline": "3us"}]))
def test_splits_pages_and_the_order_of_keys_change_no_match_where_work_is_limited(
    case: Case, cuts: list[int], limit: dict[str, Any]
) -> None:
    streams = case.arrays()
    plan = plan_of(streams, Rule(**case.keywords(), **limit), arrival="arrival").calibrated(100.0)
    assert plan.is_limited_in_work
    whole = Driver(plan, through_pages=False).run(parts_of(plan, streams, (), "arrival"))
    parts = [[_other_order(batch) for batch in part] for part in parts_of(plan, streams, cuts, "arrival")]
    split = Driver(plan).run(parts)
    assert stories(split.alerts) == stories(whole.alerts)
    assert settled(split.counts) == settled(whole.counts)


ONE_STREAM = cases(emit="all", streams_of_a_rule=(1, 1, 1))


@given(ONE_STREAM, CUTS, st.sampled_from([{"cpu": "1%"}, {"cpu": "100%"}, {"deadline": "3us"}]))
def test_splits_pages_and_the_order_of_keys_change_no_match_of_one_stream_where_work_is_limited(
    case: Case, cuts: list[int], limit: dict[str, Any]
) -> None:
    streams = case.arrays()
    rules = [
        Rule(**case.keywords()),
        Rule("other", "a > 0", on="machine", emit="all"),
        Rule("own", "a < 1", on=(), emit="all", **limit),
    ]
    options = {"arrival": "arrival", "cpu": Rule("x", "a > 0", emit="all", **limit).spending}
    plan = plan_of(streams, rules, **options).calibrated(100.0)
    assert plan.is_limited_in_work
    whole = Driver(plan, through_pages=False).run(parts_of(plan, streams, (), "arrival"))
    parts = [[_other_order(batch) for batch in part] for part in parts_of(plan, streams, cuts, "arrival")]
    split = Driver(plan).run(parts)
    assert stories(split.alerts) == stories(whole.alerts)
    assert settled(split.counts) == settled(whole.counts)


def _other_order(batch: Batch) -> Batch:
    """The same rows, whose keys are numbered the other way round."""
    return replace(batch, keys=list(batch.keys)[::-1], key=len(batch.keys) - 1 - batch.key)


@given(cases(), CUTS)
def test_rules_with_different_keys_in_one_plan_are_those_rules_alone(case: Case, cuts: list[int]) -> None:
    streams, given_rule = case.arrays(), case.keywords() | {"outage": us(LONG)}
    rules = [
        Rule(**given_rule),
        Rule(**given_rule | {"alert": "anywhere", "on": ()}),
        Rule("single", "a > 0", within="3us", on="machine", outage=us(LONG)),
        Rule(**given_rule | {"alert": "strict", "for_": "2us", "keep_firing_for": "2us"}),
    ]
    together = local.run(streams, rules, arrival="arrival", cuts=cuts)
    alone = [alert for rule in rules for alert in local.run(streams, rule, arrival="arrival").alerts]
    assert stories(together.alerts) == stories(alone)


def test_a_rule_of_one_stream_sees_the_rows_that_another_rule_leaves_out() -> None:
    # -5 comes last, between two larger values: of no use where f rises with a, and the alarm of the other rule.
    a = one_machine([0, 2, 1], [3, 3, -5]) | {"arrival": np.arange(3)}
    b = one_machine([], []) | {"arrival": np.zeros(0, np.int64)}
    rises = Rule("rises", "a + b > 0", within="10us", on="machine", shapes={"a": "increasing"})
    cold = Rule("cold", "a < 0", within="10us", on="machine")
    result = local.run({"a": a, "b": b}, [rises, cold], arrival="arrival")
    assert settled(result.counts)["a"] == {"received": 3, "retained": 2, "omitted": 1}
    assert [(row["alert"], row["state"], row["value"]) for row in result.alerts] == [("cold", "firing", -5.0)]


RULE = Rule(
    "x", "a + b > 0", within="10us", on="machine", shapes={"a": "increasing", "b": "increasing"}, outage="100us"
)


def test_empty_batches_and_streams_are_fine() -> None:
    none = one_machine([], [])
    streams = {"a": one_machine([1, 2], [1.0, 1.0]), "b": none}
    plan = plan_of(streams, RULE)
    driver = Driver(plan)
    empty = parts_of(plan, {"a": none, "b": none})[0]
    for part in ([], empty, parts_of(plan, streams)[0], empty, []):
        assert driver.take(driver.logic.on_data(part)) == []
    assert driver.take(driver.logic.on_end()) == []
    assert settled(driver.result.counts) == {"a": {"received": 2, "retained": 2}, "b": {}}
    assert local.run({"a": none, "b": none}, RULE).alerts == []
    assert local.run({"a": none, "b": none}, RULE, cuts=[0, 3]).alerts == []


def test_control_rows_that_no_step_takes_are_refused() -> None:
    """Those that one takes obey the laws too (`plan/test_shared_wait.py`)."""
    logic = plan_of({"a": one_machine([], []), "b": one_machine([], [])}, RULE).build({})
    assert logic.on_control([]) == Out()
    with pytest.raises(RunError, match=r"^control rows must address a step of the plan; no step takes {'wait': 5}$"):
        logic.on_control([{"wait": 5}])


def test_rows_that_cannot_be_used_are_quarantined_and_counted() -> None:
    times = np.array([1, 2, 3, 4, 5, "NaT", 7], dtype="datetime64[us]")
    values = np.array([1.0, np.nan, np.inf, -np.inf, 1.0, 1.0, 1.0])
    a = {"ts": times, "machine": np.array(["m", "m", "m", "m", None, "m", "m"], dtype=object), "value": values}
    b = table(["m", "m"], [6, 7], value=np.array([1.0, None], dtype=object))
    for cuts in ([], [1], [0, 2, 3]):
        result = local.run({"a": a, "b": b}, RULE, cuts=cuts)
        assert settled(result.counts) == {
            "a": {"received": 7, "quarantined": 5, "retained": 2},
            "b": {"received": 2, "quarantined": 1, "retained": 1},
        }
        assert [(row["state"], row["margin"]) for row in result.alerts] == [("firing", 2.0)]


def test_a_row_too_late_is_counted_and_one_too_old_has_expired() -> None:
    a = one_machine([0, 500, 300, 450], [1, 1, 1, 1]) | {"arrival": np.arange(4)}
    b = one_machine([500], [-9]) | {"arrival": np.array([9])}
    counts = settled(local.run({"a": a, "b": b}, RULE, arrival="arrival").counts)
    assert counts["a"] == {"received": 4, "late": 1, "expired": 1, "retained": 2}


def test_rules_with_the_same_keys_share_the_largest_outage() -> None:
    # 10 comes 20 behind: too late by the outage of 5, not by that of 30; a rule with other keys is not concerned.
    a = one_machine([30, 10], [-1, 1]) | {"arrival": np.arange(2)}
    short, long, other = (
        Rule(name, "a > 0", within=0, on=on, outage=us(outage_us))
        for name, on, outage_us in [("short", "machine", 5), ("long", "machine", 30), ("other", (), 30)]
    )

    def fired(*rules: Rule) -> list[str]:
        alerts = local.run({"a": a}, rules, arrival="arrival").alerts
        return [row["alert"] for row in alerts if row["state"] == "firing"]

    assert (fired(short), fired(long), fired(short, other)) == ([], ["long"], ["other"])
    assert fired(short, long) == ["long", "short"]
    assert settled(local.run({"a": a}, [short, long], arrival="arrival").counts)["a"] == {"received": 2, "expired": 2}


def test_a_row_is_remembered_as_long_as_it_may_excuse_another_whatever_the_batches() -> None:
    # The interval of a is 8. When 11 comes, 6 lies below 2 and 9, and above 5 and 11: it goes, if 2 is still there.
    a = one_machine([5, 6, 2, 9, 19, 11], [0, 1, 2, 2, 1, 0]) | {"arrival": np.arange(6)}
    b = one_machine([], []) | {"arrival": np.zeros(0, np.int64)}
    rule = Rule("x", "abs(a) + b > 9", within="4us", on="machine", shapes={"a": "quasiconvex"}, outage="8us")
    for cuts in ([], [5], [1, 2, 3, 4, 5]):
        counts = settled(local.run({"a": a, "b": b}, rule, arrival="arrival", cuts=cuts).counts)
        assert counts["a"] == {"received": 6, "retained": 5, "omitted": 1}


def test_a_row_behind_one_that_was_refused_is_behind_whatever_the_batches() -> None:
    # One hopping window holds all. 5 at 1 excuses 4 at 3, the newest of its stream, which is refused and forgotten;
    # 3 at 2 then comes behind it and is left out: it is no evaluation, though no newer row of a is remembered.
    a = one_machine([1, 3, 2], [5, 4, 3]) | {"arrival": np.array([1, 2, 3])}
    b = one_machine([0], [0]) | {"arrival": np.array([0])}
    rule = Rule("x", "a + b > 3.5", within="10us", hop="100us", on="machine", shapes={"a": "increasing"})
    for cuts in ([], [3], [1, 2, 3]):
        result = local.run({"a": a, "b": b}, rule, arrival="arrival", cuts=cuts)
        assert [(row["state"], row["startsAt"].microsecond) for row in result.alerts] == [("firing", 1)], cuts
        assert settled(result.counts)["a"] == {"received": 3, "retained": 1, "omitted": 2}


def test_a_value_outside_its_domain_stays_is_counted_and_excuses_no_other() -> None:
    # f = r * s**2 rises with r; 12 lies outside [0, 10], so r = 5 between two of them stays, and so do they.
    settings: dict[str, Any] = {"within": "10us", "on": "machine", "shapes": {"r": "increasing", "s": "quasiconvex"}}
    outside = {"r": one_machine([0, 1, 2], [12, 5, 12]), "s": one_machine([], [])}
    inside = {"r": one_machine([0, 1, 2], [9, 5, 9]), "s": one_machine([], [])}
    rule = Rule("x", "r * s**2 > 3", domains={"r": (0, 10)}, **settings)
    assert settled(local.run(outside, rule).counts)["r"] == {"received": 3, "retained": 3, "out_of_domain": 2}
    assert settled(local.run(inside, rule).counts)["r"] == {"received": 3, "retained": 2, "omitted": 1}
    without = Rule("x", "r * s**2 > 3", **settings)
    assert settled(local.run(outside, without).counts)["r"] == {"received": 3, "retained": 2, "omitted": 1}
    # A negative r lies between larger ones, which would excuse it if it were inside.
    below = {"r": one_machine([0, 1, 2], [5, -1, 5]), "s": one_machine([], [])}
    assert settled(local.run(below, rule).counts)["r"] == {"received": 3, "retained": 3, "out_of_domain": 1}


def test_a_partner_outside_its_domain_is_evaluated_with_what_is_left() -> None:
    # s = 0 between -1, 1 and -1, 1 is left out, rightly while r >= 0. Then r = -1 arrives: 0 would have been true, but
    # the guarantee does not cover combinations with a value outside its domain.
    rule = Rule("x", "r * s**2 > -1", within="10us", on="machine", domains={"r": (0, 10)},
                shapes={"r": "increasing", "s": "quasiconvex"})  # fmt: skip
    streams = {"s": one_machine([0, 1, 2, 3, 4], [-1, 1, 0, -1, 1]), "r": one_machine([5], [-1])}
    result = local.run(streams, rule)
    assert settled(result.counts) == {
        "s": {"received": 5, "retained": 4, "omitted": 1}, "r": {"received": 1, "retained": 1, "out_of_domain": 1}
    }  # fmt: skip
    assert result.alerts == []
