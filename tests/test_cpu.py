"""Rules whose processor time is limited: nothing invented, all found where units suffice, the most promising first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.driver import CUTS, Driver, parts_of, plan_of, settled, stories
from tests.example_counts import ENGINE
from tests.strategies import Case, cases
from tests.test_memory import zipf_streams
from tocsin import Rule, RuleError, local
from tocsin.cli.arguments import check_file
from tocsin.plan import Plan, plan_file
from tocsin.rules.quality import Cpu, Quality
from tocsin.runtime.contract import Out
from tocsin.runtime.session import Session
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.preference import Preference

Columns = dict[str, dict[str, Any]]


def pairs(**more: Any) -> Rule:
    given_ = {"within": "100ms", "on": "machine", "emit": "all", "allowed_lateness": "200ms"} | more
    return Rule("pair", "a + b > 1", **given_)


def run_plan(plan: Plan, streams: Columns, cuts: Sequence[int] = (), *, through_pages: bool = True) -> Out:
    return Driver(plan, through_pages=through_pages).run(parts_of(plan, streams, cuts, "arrival"))


def unlimited(plan: Plan) -> Plan:
    """The same plan without any limit."""
    watches = [
        replace(watch, anytime=None if watch.anytime is None else replace(watch.anytime, cores=None, deadline_us=None))
        for watch in plan.watches
    ]
    return replace(plan, watches=tuple(watches))


def matches(alerts: Sequence[Mapping[str, Any]]) -> Counter[Any]:
    """The results of each rule, whatever their quality says."""
    return Counter((row["alert"], row["id"], row["value"], row["margin"]) for row in alerts)


@pytest.mark.parametrize("disorder", [20_000, 2_000_000])
@pytest.mark.parametrize("cpu", ["50 cores", "0.1%"])
def test_the_share_of_results_is_absent_when_rows_are_out_of_order(disorder: int, cpu: str) -> None:
    streams = zipf_streams(700, 20, 1, disorder=disorder)
    plan = plan_of(streams, pairs(quality={"cpu": cpu}, allowed_lateness="10s"), arrival="arrival").calibrated(100.0)
    driver, shares = Driver(plan), set[float | None]()
    for part in parts_of(plan, streams, range(50, 1400, 50), "arrival"):
        out = driver.session.push(part)
        driver.take(out)
        shares.add(out.metrics.section("cpu")["pair"]["results"])
    assert shares <= {None, 1.0}
    assert {row["quality"] for row in driver.result.alert_rows()} <= {"exact", "subset"}


def test_the_share_of_results_is_absent_when_no_pair_is_a_result() -> None:
    streams = zipf_streams(700, 20, 1)
    for table in streams.values():
        table["value"] = -np.abs(table["value"])
    plan = plan_of(streams, pairs(quality={"cpu": "0.1%"}), arrival="arrival").calibrated(100.0)
    driver, shares = Driver(plan), set[Any]()
    for part in parts_of(plan, streams, range(50, 1400, 50), "arrival"):
        out = driver.session.push(part)
        driver.take(out)
        shares.add(tuple(out.metrics.section("cpu")["pair"].values()))
    assert driver.result.alert_rows() == []
    assert {results for _, results in shares} <= {None, 1.0}


TWO = cases(shaped=True, emit="all", streams_of_a_rule=(2, 2, 2))


@ENGINE
@given(TWO, CUTS)
def test_without_a_limit_the_answer_is_that_of_the_ordinary_join(case: Case, cuts: list[int]) -> None:
    # The allowed lateness is longer than all disorder. The bucket measures lateness over all its keys.
    streams, given_ = case.arrays(), case.keywords() | {"allowed_lateness": "1s"}
    exact = local.run_local_detailed(streams, Rule(**given_), arrival="arrival").alerts
    plan = unlimited(plan_of(streams, Rule(**given_, quality={"cpu": "1 core"}), arrival="arrival"))
    found = run_plan(plan, streams, cuts)
    assert matches(found.alert_rows()) == matches(exact)
    assert {row["quality"].removesuffix(" out-of-domain") for row in found.alert_rows()} <= {"exact"}


SHARE = "`quality.cpu` must be a share of a core such as 50%, or a number of cores such as 2 cores"


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ({"quality": {"cpu": "half"}}, f"{SHARE}; got 'half'"),
        ({"quality": {"cpu": 0.5}}, f"{SHARE}; got 0.5; did you mean `50%` or `0.5 cores`?"),
        ({"quality": {"cpu": "0%"}}, "`quality.cpu` must be above 0 and at most 100,000 cores; got '0%'"),
        ({"quality": {"deadline": 0}}, "`quality.deadline` must be longer than 0; got 0"),
        (
            {"quality": {"cpu": "5%"}, "emit": "witness"},
            "`quality.cpu` needs `emit: all`, because a CPU budget can omit results; got `emit: witness`",
        ),
        (
            {"quality": {"deadline": "2s"}, "emit": "witness"},
            "`quality.deadline` needs `emit: all`, because a CPU budget can omit results; got `emit: witness`",
        ),
        (
            {"quality": {"deadline": "2s", "memory": "1MB"}},
            "`quality.deadline` cannot be combined with `quality.memory`; got '2s' and '1MB'",
        ),
        (
            {"quality": {"cpu": "5%", "wait": "2s"}},
            "`quality.cpu` cannot be combined with `quality.wait`; got '5%' and '2s'",
        ),
        (
            {"quality": {"cpu": "5%", "recall": 0.9}},
            "`quality.cpu` cannot be combined with `quality.recall`; got '5%' and 0.9",
        ),
    ],
)
def test_what_a_rule_cannot_have_is_refused(given_: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RuleError, match="^" + re.escape(f'rule "pair": {sentence}') + "$"):
        pairs(**given_)


def test_a_file_names_the_place_of_what_it_cannot_have(tmp_path: Path) -> None:
    rules = """\
quality: {cpu: 50%, memory: 1MB}
streams:
  a: {source: {json: {path: in}}, keys: [item]}
  b: {source: {json: {path: in}}, keys: [item]}
  c: {source: {json: {path: in}}, keys: [item]}
groups:
  - name: g
    rules:
      - {alert: Many, expr: a + b + c > 1, within: 1s, on: [item], emit: all, quality: {cpu: 50%}}
      - {alert: Lives, expr: a + b > 1, within: 1s, on: [item], quality: {deadline: 2s}}
      - {alert: Odd, expr: a + b > 1, within: 1s, on: [item], emit: all, quality: {cpu: lots}}
"""
    (tmp_path / "rules.yaml").write_text(rules)
    mistakes = check_file(tmp_path / "rules.yaml", {}).errors
    assert [(one.line, one.column, str(one).partition(": `")[2][:40]) for one in mistakes] == [
        (1, 16, "quality.cpu` cannot be combined with `qu"),
        (9, 94, "quality.cpu` needs one or two streams; `"),
        (10, 85, "quality.deadline` needs `emit: all`, bec"),
        (11, 89, "quality.cpu` must be a share of a core s"),
    ]
    head = rules.replace("memory: 1MB", "deadline: 3s").partition("      - {alert: Many")[0]
    near = "      - {alert: Near, expr: a > b, within: 1s, on: [item], emit: all}"
    (tmp_path / "rules.yaml").write_text(head + near)
    file = check_file(tmp_path / "rules.yaml", {}).file
    assert file is not None
    assert file.quality.cpu == Cpu(0.5, 3_000_000)
    (watch,) = plan_file(file).over(4).watches
    assert watch.anytime is not None
    assert watch.anytime.pace(10.0).per_us == pytest.approx(0.5 / 4 * 100)
    assert "for each of 4 buckets" in str(watch)


def test_a_rule_must_read_one_stream_or_two() -> None:
    rule = Rule("x", "a + b + c > 1", within="1s", on="machine", emit="all", quality={"cpu": "50%"})
    columns = {name: {"ts": [], "machine": [], "value": []} for name in "abc"}
    with pytest.raises(RuleError, match=r'^rule "x": `quality.cpu` needs one or two streams; `expr` reads 3$'):
        plan_of(columns, rule)


def test_a_run_limits_memory_or_work() -> None:
    columns = {name: {"ts": [], "machine": [], "value": []} for name in "ab"}
    sentence = r"^`quality.cpu` cannot be combined with `quality.memory`; got '5%' and '1MB'$"
    with pytest.raises(RuleError, match=sentence):
        local.explain(columns, pairs(), quality={"memory": "1MB", "cpu": "5%"})


def test_rules_of_a_run_share_a_join_where_they_read_the_same_and_others_are_left_alone() -> None:
    streams = zipf_streams(50, 3, 1)
    rules = [
        pairs(),
        Rule("other", "a - b > 0", within="1s", on="machine", emit="all"),
        Rule("elsewhere", "a - b > 0", within="1s", emit="all"),
        Rule("life", "a + b > 1", within="1s", on="machine"),
        Rule("alone", "a + b > 2", within="1s", on="machine", emit="all", quality={"cpu": "20%"}),
    ]
    plan = plan_of(streams, rules, arrival="arrival", quality=Quality(cpu=Cpu(0.6, 4_000_000)))
    found = {tuple(rule.alert for rule in watch.rules): watch.anytime for watch in plan.watches}
    shared, own = found["pair", "other"], found["alone",]
    assert shared is not None
    assert own is not None
    assert (shared.cores, shared.deadline_us, shared.window_us) == (0.3, 4_000_000, 2_000_000)
    assert (own.cores, own.deadline_us, own.allowed_lateness_us) == (0.2, None, 1_000_000)
    assert found["life",] is None
    assert (
        "CPU: 30% of a core, a share of the budget of the run; if the budget is exceeded, process pairs by priority"
        in str(plan)
    )


def test_rules_that_have_their_own_have_a_state_of_their_own() -> None:
    streams = zipf_streams(600, 40, 5)
    rules = [
        pairs(),
        pairs(labels={"of": "one"}, quality={"cpu": "5%"}),
        pairs(labels={"of": "two"}, quality={"cpu": "40%"}),
    ]
    plan = plan_of(streams, rules, arrival="arrival", quality=Quality(cpu=Cpu(0.1)))
    assert len({watch.apart for watch in plan.watches}) == len({watch.name for watch in plan.watches}) == 3
    whole = run_plan(plan, streams, through_pages=False)
    split = run_plan(plan, streams, [100, 250, 251, 400])
    assert stories(split.alert_rows()) == stories(whole.alert_rows())
    assert settled(split.counts) == settled(whole.counts)


def test_rules_that_share_a_join_find_what_each_finds_alone() -> None:
    streams = zipf_streams(400, 20, 3, disorder=20_000)
    rules = [pairs(), Rule("close", "a - b > 0", within="10ms", on="machine", emit="all", allowed_lateness="200ms")]
    together = local.run_local_detailed(streams, rules, arrival="arrival", quality={"cpu": "1000 cores"}).alerts
    exact = local.run_local_detailed(streams, rules, arrival="arrival").alerts
    assert matches(together) == matches(exact)
    assert len({row["alert"] for row in exact}) == 2


def test_less_work_finds_less_says_so_and_finds_more_than_by_order_of_arrival_alone() -> None:
    streams = zipf_streams(4_000, 400, 5)
    exact = matches(local.run_local_detailed(streams, pairs(), arrival="arrival").alerts)
    shares = []
    for cpu in ("50%", "2%", "1.5%"):
        plan = plan_of(streams, pairs(quality={"cpu": cpu}), arrival="arrival")
        found = run_plan(plan, streams, through_pages=False)
        assert not matches(found.alert_rows()) - exact
        shares.append(len(found.alert_rows()) / exact.total())
        anytime = plan.watches[0].anytime
        assert anytime is not None
        plain = replace(anytime, summary=Layout("SHJ", buckets=256))
        newest = run_plan(Plan((replace(plan.watches[0], anytime=plain),)), streams, through_pages=False)
        assert len(found.alert_rows()) >= len(newest.alert_rows())
        lost = sum(counts["unprocessed"] for counts in found.counts.values())
        told = {row["quality"].split()[0] for row in found.alert_rows()[100:]}
        assert (lost > 0, "subset" in told) == (cpu != "50%",) * 2
        rows, results = found.metrics.section("cpu")["pair"].values()
        assert rows is not None
        assert results is not None
        assert (rows < 1, results < 1) == (cpu != "50%",) * 2
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1 > shares[1]


@pytest.mark.parametrize("cpu", ["2%", "5%", "8%", "20%"])
def test_what_is_not_found_is_counted_and_said(cpu: str) -> None:
    streams = zipf_streams(4_000, 400, 5)
    exact = matches(local.run_local_detailed(streams, pairs(), arrival="arrival").alerts)
    found = run_plan(plan_of(streams, pairs(quality={"cpu": cpu}), arrival="arrival"), streams)
    lost = sum(counts["unprocessed"] for counts in found.counts.values())
    assert lost or matches(found.alert_rows()) == exact
    if lost:
        assert any(row["quality"].startswith("subset") for row in found.alert_rows())
        assert len(found.alert_rows()) < exact.total() or lost < 400


def test_nothing_is_found_after_its_deadline() -> None:
    streams = zipf_streams(800, 20, 7)
    plan = plan_of(streams, pairs(quality={"cpu": "3%", "deadline": "16ms"}), arrival="arrival")
    session, late, found = Session(plan), [], 0
    for part in parts_of(plan, streams, range(1, 1600), "arrival"):
        now = max((int(batch.time.max()) for batch in part if len(batch.time)), default=0)
        alerts = session.push(part).alert_rows()
        found += len(alerts)
        late += [row for row in alerts if row["endsAt"] < now - 16_000]
    assert found > 100
    assert not late
    # Of a row that was given up nothing is forgotten: it is a partner of those to come.
    wide = plan_of(streams, pairs(quality={"cpu": "3%", "deadline": "10s"}), arrival="arrival")
    ids = [{row["id"] for row in run_plan(one, streams).alert_rows()} for one in (wide, plan)]
    assert ids[0] - ids[1]


def test_work_goes_on_while_no_rows_come() -> None:
    streams = zipf_streams(300, 5, 2)
    exact = matches(local.run_local_detailed(streams, pairs(), arrival="arrival").alerts)
    plan = plan_of(streams, pairs(quality={"cpu": "2%"}), arrival="arrival")
    driver, now = Driver(plan), 5_000_000
    (part,) = parts_of(plan, streams, (), "arrival")
    driver.take(driver.session.push(part, now))
    some = len(driver.result.alert_rows())
    while (timer := driver.session.next_timer()) is not None:
        assert timer > now
        now = timer
        driver.take(driver.session.advance(now))
    assert some < len(driver.result.alert_rows())
    lost = sum(counts["unprocessed"] for counts in driver.result.counts.values())
    assert (matches(driver.result.alert_rows()) == exact) == (lost == 0)


def test_a_deadline_passes_while_no_rows_come() -> None:
    streams = zipf_streams(300, 5, 2)
    plan = plan_of(streams, pairs(quality={"cpu": "2%", "deadline": "8s"}), arrival="arrival").calibrated(1e5)
    driver, now = Driver(plan), 5_000_000
    (part,) = parts_of(plan, streams, (), "arrival")
    driver.take(driver.session.push(part, now))
    while (timer := driver.session.next_timer()) is not None and timer < 60_000_000:
        now = timer
        driver.take(driver.session.advance(now))
    assert 5_000_000 < now <= 5_000_000 + 9_000_000


def test_one_clock_in_the_future_costs_its_neighbours_nothing() -> None:
    # In the ordinary join the other rows of its key would be late.
    streams = zipf_streams(400, 10, 4)
    whole = streams["a"]
    streams["a"] = {name: np.delete(column, 100) for name, column in whole.items()}
    exact = matches(local.run_local_detailed(streams, pairs(), arrival="arrival").alerts)
    streams["a"] = whole | {"ts": whole["ts"] + np.where(np.arange(400) == 100, 10**12, 0)}
    found = local.run_local_detailed(streams, pairs(quality={"cpu": "1000 cores"}), arrival="arrival")
    assert matches(found.alerts) == exact
    assert 0 < sum(counts["behind"] for counts in found.counts.values()) < 66


def test_a_row_that_is_sent_twice_changes_nothing() -> None:
    streams = zipf_streams(200, 5, 9, payload=True)
    twice = {
        name: {column: np.concatenate([values, values]) for column, values in columns.items()}
        for name, columns in streams.items()
    }
    once = local.run_local_detailed(streams, pairs(quality={"cpu": "10 cores"}), arrival="arrival")
    again = local.run_local_detailed(twice, pairs(quality={"cpu": "10 cores"}), arrival="arrival", cuts=[150, 333])
    assert matches(again.alerts) == matches(once.alerts)
    assert {name: counts["duplicates"] for name, counts in again.counts.items()} == {"a": 200, "b": 200}


@pytest.mark.parametrize("unit_ns", [1e4, 3e4, 1e5, 2e5])
@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_clock_that_is_sent_twice_invents_nothing(seed: int, unit_ns: float) -> None:
    # The second moves the clock of the bucket again, and is no row of the join.
    rng, second = np.random.default_rng(seed), 1_000_000
    times = np.arange(98 + seed) * second // 10
    wrong = 10**6 * second
    times = np.concatenate([times[:60], [wrong], times[60:], [wrong]])
    side, number = rng.integers(0, 2, len(times)) * (times < wrong), np.arange(len(times))
    machine = np.where(times < wrong, rng.choice(["m", "n"], len(times)), "m").astype(object)
    value = np.where(times < wrong, rng.normal(size=len(times)), 1.0)
    whole = {"ts": times, "machine": machine, "value": value, "arrival": number}
    streams = {
        name: {column: values[side == i] for column, values in whole.items()} for i, name in enumerate(("a", "b"))
    }
    given_ = {"within": "2s", "allowed_lateness": "10s"}
    exact = local.run_local_detailed(streams, pairs(within="2s", allowed_lateness="1000h"), arrival="arrival").alerts
    plan = plan_of(streams, pairs(quality={"cpu": "50%"}, **given_), arrival="arrival").calibrated(unit_ns)
    found = run_plan(plan, streams, range(0, 110, 7))
    assert sum(counts["duplicates"] for counts in found.counts.values()) == 1
    assert not matches(found.alert_rows()) - matches(exact)


def test_state_goes_on_with_another_share_and_other_rules_and_is_forgotten_with_the_last() -> None:
    streams = zipf_streams(1_000, 5, 6)
    short = {"within": "20ms", "allowed_lateness": "20ms"}
    plan = plan_of(streams, pairs(quality={"cpu": "10%"}, **short), arrival="arrival")
    first, second = parts_of(plan, streams, [300], "arrival")
    driver = Driver(plan)
    driver.take(driver.session.push(first))
    pages = dict(driver.pages)
    changed = plan_of(streams, [pairs(quality={"cpu": "20%"}, **short)], arrival="arrival")
    more = Session(changed, pages).push(second)
    assert more.counts["a"]["retained"] < sum(len(batch.time) for batch in second if batch.stream == "a")
    plain = Session(plan_of(streams, pairs(**short), arrival="arrival"), pages)
    retained = {name: counts["retained"] for name, counts in driver.result.counts.items()}
    gone = plain.push([])
    assert gone.counts == {name: {"received": 0, "retained": -rows, "expired": rows} for name, rows in retained.items()}
    assert set(plain.changed_pages().items()) == {(name, None) for name in pages}


def test_the_calibration_of_a_state_holds_for_its_whole_life() -> None:
    streams = zipf_streams(500, 10, 8)

    def calibrated(unit_ns: float) -> Plan:
        plan = plan_of(streams, pairs(quality={"cpu": "5%"}), arrival="arrival")
        return plan.calibrated(unit_ns)

    slow, fast = calibrated(80.0), calibrated(1.0)
    parts = parts_of(slow, streams, [500], "arrival")
    began_slow = Driver(slow)
    began_slow.take(began_slow.session.push(parts[0]))
    went_on = Session(fast, began_slow.pages).push(parts[1])
    assert went_on.alert_rows() == Session(slow, began_slow.pages).push(parts[1]).alert_rows()
    assert len(run_plan(fast, streams).alert_rows()) > len(run_plan(slow, streams).alert_rows())


def test_a_join_may_be_guided_by_a_preference_and_summaries_of_its_own() -> None:
    streams = zipf_streams(2_000, 50, 11)
    plan = plan_of(streams, pairs(quality={"cpu": "5%"}), arrival="arrival")
    (watch,) = plan.watches
    assert watch.anytime is not None
    exact = matches(local.run_local_detailed(streams, pairs(), arrival="arrival").alerts)
    means = {}
    for order in ("desc", "asc"):
        prefer = Preference(order, "a.value + b.value + 0 * count(a.machine)")
        own = replace(watch.anytime, preference=prefer, summary=Layout("T4", 50_000, buckets=64))
        found = run_plan(Plan((replace(watch, anytime=own),)), streams, [700])
        assert not matches(found.alert_rows()) - exact
        means[order] = np.mean([row["value"] for row in found.alert_rows()])
    assert means["desc"] > means["asc"]
