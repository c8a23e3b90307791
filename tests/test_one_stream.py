"""A rule of one stream with `within` and a shape: the condition is called on few rows, and no alarm is missed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given

import tocsin
from tests import test_laws
from tests.driver import CUTS, MINUTE, Driver, one_machine, parts_of, plan_of, settled, watch_logics
from tests.example_counts import ENGINE
from tests.naive.alerts import judge, replay
from tests.naive.join import may_join
from tests.strategies import LONG, Case, reduced
from tests.test_semantics import _in_oracle_form, example, stories, told
from tocsin import Rule, local
from tocsin.operators.join import compiled_rule
from tocsin.operators.join import operator as join_operator

Key = tuple[Any, ...]


@dataclass
class Called:
    """The rows that the condition was called on: (key, time, margin) of each, and how many it was given in all."""

    rows: list[tuple[Key, int, float]] = field(default_factory=list)
    handed_over: int = 0
    hoisted: int = 0


@contextmanager
def calls(driver: Driver) -> Iterator[Called]:
    """Watch what is handed to the machine of expressions, by the join and by what is computed once per row."""
    called, combine, evaluate_number = Called(), join_operator.evaluate_probes, compiled_rule.evaluate_number

    def counted(tuples: Any, probes: Any, *rest: Any, every: bool) -> Any:
        answer = combine(tuples, probes, *rest, every=every)
        (shard,) = watch_logics(driver.session)[0].shards
        found = np.flatnonzero(answer[0].found).tolist()
        called.rows += [
            (shard.keys.names[probes.key[p]], int(tuples.time[probes.row[p]]), float(answer[0].margin[p]))
            for p in found
        ]
        called.handed_over += len(tuples.time)
        return answer

    def counted_number(part: Any, columns: Any) -> Any:
        called.hoisted += max(len(column) for column in columns.values())
        return evaluate_number(part, columns)

    with (
        mock.patch.object(join_operator, "evaluate_probes", counted),
        mock.patch.object(compiled_rule, "evaluate_number", counted_number),
    ):
        yield called


def drive(case: Case, cuts: Sequence[int] = (), *, through_pages: bool = False) -> tuple[list[dict[str, Any]], Called]:
    """Run the product; the driver checks counts and state after each call."""
    streams = case.arrays()
    plan = plan_of(streams, Rule(**case.keywords()), arrival="arrival")
    driver = Driver(plan, through_pages=through_pages)
    with calls(driver) as called:
        out = driver.run(parts_of(plan, streams, cuts, "arrival"))
    return [_in_oracle_form(row, case.rule) for row in out.alert_rows()], called


def product(case: Case) -> list[dict[str, Any]]:
    return drive(case)[0]


def oracle(case: Case) -> list[dict[str, Any]]:
    return replay(case.streams, case.rule).output


@pytest.fixture(params=[oracle, product], ids=["oracle", "product"])
def answer(request: pytest.FixtureRequest) -> Callable[[Case], list[dict[str, Any]]]:
    return request.param


@ENGINE
@given(reduced(disorder=("none",)))
def test_in_order_the_rows_are_those_of_the_oracle(case: Case) -> None:
    assert stories(product(case)) == stories(oracle(case))


@ENGINE
@given(reduced())
def test_out_of_order_the_rows_are_those_of_the_oracle(case: Case) -> None:
    sliding = replace(case, rule=replace(case.rule, join=replace(case.rule.join, hop=None)))
    if sliding.rule.reduction is not None:
        assert stories(product(sliding)) == stories(oracle(sliding))


@ENGINE
@given(reduced())
def test_a_true_row_has_an_evaluated_one_beside_it_with_a_margin_no_smaller(case: Case) -> None:
    evaluated = defaultdict(list)
    for key, time, margin in drive(case)[1].rows:
        evaluated[key].append((time, margin))
    reduction = case.rule.reduction
    assert reduction is not None
    for row in replay(case.streams, case.rule).served:
        margin, truth, _ = judge(case.rule, (row,))
        if truth and may_join(case.rule.join, {row.stream: row.time}):
            reach = 0 if reduction.is_outside(row) else reduction.interval
            assert any(abs(time - row.time) <= reach and m >= margin for time, m in evaluated[row.key]), row


@ENGINE
@given(reduced(disorder=("none",)), CUTS)
def test_in_order_the_condition_is_called_on_the_retained_rows_only(case: Case, cuts: list[int]) -> None:
    case = replace(case, rule=replace(case.rule, allowed_lateness_us=LONG))
    called, rule, reduction = drive(case, cuts)[1], case.rule, case.rule.reduction
    assert reduction is not None
    usable = [row for row in replay(case.streams, rule).served if may_join(rule.join, {row.stream: row.time})]
    outside = {(row.key, row.time, row.columns["value"]): row for row in usable if reduction.is_outside(row)}
    inside = [row for row in usable if not reduction.is_outside(row)]
    marked = tocsin.retained(
        [row.time for row in inside], [row.columns["value"] for row in inside], rule.join.within or 0,
        shape=rule.shape or "", closed=rule.join.closed, hop=rule.join.hop, group=[row.key[0] for row in inside],
    )  # fmt: skip
    kept = [row for row, mark in zip(inside, marked, strict=True) if mark] + list(outside.values())
    expected = sorted((row.key, row.time, float(judge(rule, (row,))[0])) for row in kept)
    assert sorted(called.rows) == expected
    # A value outside its domain is remembered even where no hopping window holds it.
    spare = 0 if rule.domain is None or rule.join.hop is None else len(case.streams["a"]["ts"])
    assert len(expected) <= called.handed_over <= len(expected) + spare
    assert called.hoisted in (0, called.handed_over)


def shaped(text: str, within: int = 3, closed: str = "both", **rule: Any) -> Case:
    """Make a case of one stream that is watched for being above 0, and rises with its value."""
    case = example([text], {"within": within, "closed": closed}, **rule)
    return replace(case, rule=replace(case.rule, shape="increasing"), shapes={"a.value": "increasing"})


EXAMPLES = {
    # a     1     1            the dips lie between larger values at most 3 apart: they are not evaluated
    #   -3                -3
    #      -4  -5  -4
    #   0  1  2 3  4 5    6
    "a peak with a dip in it is one life": (
        shaped("0:-3 1:-4 2:1 3:-5 4:1 5:-4 6:-3"), ["firing 2", "resolved 2-6"], [0, 2, 4, 6]),
    # a   1 1 1 1 1 1 1 1 1 1  of equal values, one in every window of length 3
    #     0     3     6     9
    "of a plateau one row per window is evaluated, and the life goes on": (
        shaped(" ".join(f"{t}:1" for t in range(10))), ["firing 0"], [0, 3, 6, 9]),
    # a   1   1 1   1          the retained rows are 2 * within apart, and the default of `stale` bears it
    #     0   3 4   6
    "rows that are left out do not make a life stale": (
        shaped("0:1 3:1 4:1 6:1"), ["firing 0"], [0, 3, 6]),
    "a row between larger ones at exactly the interval is left out": (
        shaped("0:1 1:-1 3:1"), ["firing 0"], [0, 3]),
    "a row between larger ones further apart is not": (
        shaped("0:1 1:-1 4:1"), ["firing 0", "resolved 0-1", "firing 4"], [0, 1, 4]),
    "nor one at exactly the interval of windows that are open at both ends": (
        shaped("0:1 1:-1 3:1", closed="neither"), ["firing 0", "resolved 0-1", "firing 3"], [0, 1, 3]),
    "at the end of input all that is remembered is evaluated": (
        shaped("7:1"), ["firing 7"], [7]),
    # a   1 1                  the newest is 20, progress 17: 1 comes behind, between larger ones
    #                     -1
    #     0 1 2           20
    "a late row that finds itself left out is not evaluated": (
        shaped("0:1 2:1 20:-1 1:-1@21"), ["firing 0", "resolved 0-8"], [0, 2, 20]),
    "a late row that is needed is evaluated at once, late": (
        shaped("0:-1 10:-1 20:-1 3:1@21"), ["firing 3 late", "resolved 3-9 late"], [0, 10, 3, 20]),
    # a   1          1         4 comes after 6, but progress is 3: in time, though it was waited for
    #         -1
    "a row that comes behind but above the progress is in time": (
        shaped("0:1 6:1 4:-1@7 12:1"), ["firing 0", "resolved 0-4", "firing 6"], [0, 4, 6, 12]),
    "a row that is sent again is evaluated once": (
        shaped("0:1 9:-1 0:1@10 9:-1@11"), ["firing 0", "resolved 0-6"], [0, 9]),
    "a given `stale` is taken at its word": (
        shaped("0:1 3:1 4:1 6:1", stale_us=2), ["firing 0", "resolved 0-2", "firing 3", "resolved 3-5", "firing 6"],
        [0, 3, 6]),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, answer: Callable[[Case], list[dict[str, Any]]]) -> None:
    case, expected, _ = EXAMPLES[name]
    assert told(case, answer) == expected


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_rows_evaluated_in_the_example(name: str) -> None:
    case, _, times = EXAMPLES[name]
    assert [time for _, time, _ in drive(case)[1].rows] == times
    assert [evaluation.time for evaluation in replay(case.streams, case.rule).evaluations] == times


HOT = Rule("hot", "a > 0", within="5us", on="machine", shapes={"a": "increasing"})


def test_a_row_is_settled_by_the_first_row_an_interval_later() -> None:
    streams = {"a": one_machine([0, 4, 5, 6], [1, -1, -2, -3])}
    plan = plan_of(streams, HOT)
    driver = Driver(plan)
    fired = [driver.take(driver.session.push(part)) for part in parts_of(plan, streams, [1, 2, 3])]
    assert [[(row["state"], row["startsAt"]) for row in rows] for rows in fired] == [[], [], [("firing", 0)], []]


def test_the_condition_is_called_on_few_rows_of_a_dense_stream() -> None:
    random = np.random.default_rng(5)
    ts, value = np.arange(20_000), np.round(random.normal(0, 1, 20_000).cumsum(), 2)
    streams = {"a": one_machine(ts, value)}
    plan = plan_of(
        streams, Rule("far", "sqrt(abs(a) * 2) > 9", within="1000us", on="machine", shapes={"a": "quasiconvex"})
    )
    driver = Driver(plan)
    with calls(driver) as called:
        driver.run(parts_of(plan, streams, [5_000, 5_001, 12_000]))
    kept = int(tocsin.retained(ts, value, 1_000).sum())
    assert kept < 2_500
    assert called.hoisted == called.handed_over == len(called.rows) == kept
    assert settled(driver.result.counts)["a"] == {"received": 20_000, "retained": kept, "omitted": 20_000 - kept}


def test_a_value_outside_its_domain_is_evaluated_and_excuses_no_other() -> None:
    rule = Rule("x", "a > 0", within="5us", on="machine", shapes={"a": "increasing"}, domains={"a": (-9, 9)})
    result = local.run_local_detailed({"a": one_machine([0, 1, 2], [12, -3, 12])}, rule)
    assert [(row["state"], row["quality"]) for row in result.alerts] == [
        ("firing", "exact out-of-domain"), ("resolved", "exact out-of-domain"), ("firing", "exact out-of-domain")
    ]  # fmt: skip
    assert settled(result.counts)["a"] == {"received": 3, "retained": 3, "out_of_domain": 2}


def test_what_is_not_settled_does_not_expire_when_another_stream_runs_ahead() -> None:
    # b moves the newest time of the key far beyond the allowed lateness. The only row of a waits for the end.
    a = one_machine([0], [1]) | {"arrival": np.array([0])}
    b = one_machine([900, 901, 902], [1, 1, 1]) | {"arrival": np.array([1, 2, 3])}
    hot = Rule("hot", "a > 0", within="5us", on="machine", shapes={"a": "increasing"}, allowed_lateness="10us")
    other = Rule("other", "b > 9", on="machine", allowed_lateness="10us")
    for cuts in ([], [1, 2, 3]):
        result = local.run_local_detailed({"a": a, "b": b}, [hot, other], arrival="arrival", cuts=cuts)
        assert [(row["alert"], row["state"]) for row in result.alerts] == [("hot", "firing")]
        assert settled(result.counts)["a"] == {"received": 1, "retained": 1}


@pytest.mark.parametrize("through_pages", [True, False])
def test_after_a_long_quiet_all_that_is_remembered_is_evaluated(through_pages: bool) -> None:
    def send(ts: Sequence[int], value: Sequence[float], now: int) -> list[tuple[str, int]]:
        part = parts_of(plan, {"a": one_machine(ts, value)})[0]
        return [(row["state"], row["startsAt"]) for row in driver.take(driver.session.push(part, now))]

    plan = plan_of({"a": one_machine([], [])}, replace(HOT, stale="1h", idle_timeout="2s"), key_ttl="3s")
    driver = Driver(plan, through_pages=through_pages)
    assert send([0, 3], [-1, 1], MINUTE) == []
    assert driver.session.next_timer() == MINUTE + 2_000_000
    assert driver.take(driver.session.advance(MINUTE + 1_999_999)) == []
    assert [row["startsAt"] for row in driver.take(driver.session.advance(MINUTE + 2_000_000))] == [3]
    # What was evaluated is not evaluated again; a row at the progress is in time and settled, one below it is late.
    assert send([3], [1], MINUTE) == []
    assert send([3], [2], MINUTE) == []
    assert send([2], [3], MINUTE) == [("firing", 2)]
    assert send([5], [-1], MINUTE) == []
    assert send([10], [-2], MINUTE) == [("resolved", 3)]


def test_a_key_whose_rows_are_not_settled_is_not_freed() -> None:
    streams = {"a": one_machine([0], [-1])}
    plan = plan_of(streams, replace(HOT, idle_timeout="10s"), key_ttl="1s")
    driver = Driver(plan)
    driver.take(driver.session.push(parts_of(plan, streams)[0], MINUTE))
    driver.take(driver.session.advance(MINUTE + 5_000_000))
    assert settled(driver.result.counts)["a"] == {"received": 1, "retained": 1}
    driver.take(driver.session.advance(MINUTE + 10_000_000))
    assert settled(driver.result.counts)["a"] == {"received": 1, "expired": 1, "freed_keys": 1}


def test_a_reduced_rule_beside_others_is_that_rule_alone() -> None:
    random, rows = np.random.default_rng(11), 400
    streams = {}
    for name in ("a", "b"):
        ts = random.integers(0, 300, rows)
        streams[name] = one_machine(ts, random.integers(-4, 5, rows) / 2) | {
            "arrival": ts + random.integers(0, 9, rows), "note": np.arange(rows),
        }  # fmt: skip
    rules = [
        Rule("join", "a - b > 3", within="3us", on="machine", shapes={"a": "increasing", "b": "decreasing"}),
        HOT,
        Rule("every", "a > 1", within="5us", on="machine", for_="2us", shapes={"a": "increasing"}),
        Rule("longer", "a > 1", within="20us", on="machine", shapes={"a": "increasing"}),
        Rule("same", "a > 1.5", within="5us", on="machine", shapes={"a": "increasing"}),
    ]
    together = test_laws.stories(local.run_local_detailed(streams, rules, arrival="arrival", cuts=[100, 333]).alerts)
    for rule in rules:
        alone = test_laws.stories(local.run_local_detailed(streams, rule, arrival="arrival").alerts)
        assert alone == {whose: story for whose, story in together.items() if whose[0] == rule.alert}
        assert alone


def test_the_witness_of_a_row_that_waited_has_its_payload() -> None:
    streams = {"a": one_machine([0, 1, 9], [1, 2, -1]) | {"note": np.array(["first", "best", "last"], dtype=object)}}
    for cuts in ([], [1, 2]):
        fired, ended = local.run_local_detailed(streams, HOT, cuts=cuts).alerts
        assert fired["witness"][0]["payload"] == {"note": "first"}
        assert ended["witness"][0]["payload"] == {"note": "best"}
