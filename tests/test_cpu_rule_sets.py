"""Large sets of rules of one stream within a budget: who shares, what is said, who is served, what goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.driver import Driver, limited_logics, parts_of, plan_of, settled, stories
from tests.one_stream import Columns, results
from tests.test_cpu import matches, run_plan
from tocsin import Rule, local
from tocsin.cli.arguments import check_file
from tocsin.interim.cpu.selection_pipeline import OneStreamPipeline
from tocsin.plan import Plan, plan_file
from tocsin.rules.limits import Limits
from tocsin.rules.quality import Cpu, Quality
from tocsin.runtime.metrics import OUTCOMES
from tocsin.runtime.session import Session

MORE: dict[str, Any] = {"on": "machine", "emit": "all"}


def stream(rows: int, keys: int = 5, step: int = 1_000, seed: int = 1) -> Columns:
    draw = np.random.default_rng(seed)
    names = np.array([f"k{number}" for number in range(keys)], dtype=object)
    x, y = draw.normal(0, 1, rows).round(3), draw.normal(0, 1, rows).round(3)
    return {
        "a": {"ts": np.arange(rows) * step, "machine": names[draw.integers(0, keys, rows)], "x": x, "y": y,
              "arrival": np.arange(rows)}
    }  # fmt: skip


def bands(count: int, **more: Any) -> list[Rule]:
    lows = np.linspace(-2, 2, count).round(3).tolist()
    return [Rule(f"band{i}", f"a.x > {low} and a.x < {low + 0.1:.3f}", **MORE | more) for i, low in enumerate(lows)]


def limited(streams: Columns, rules: Any, cores: float, deadline: int | None = 200_000, unit_ns: float = 8.0) -> Plan:
    return plan_of(streams, rules, arrival="arrival", quality=Quality(cpu=Cpu(cores, deadline))).calibrated(unit_ns)


def test_rules_of_a_stream_share_a_budget_and_say_by_what_rows_are_found() -> None:
    streams = stream(10) | {"b": stream(10)["a"]}
    rules = [
        *bands(3),
        Rule("both", "a.x > 1 and a.y < 0", **MORE),
        Rule("every", "a.x * a.y > 2", **MORE),
        Rule("elsewhere", "a.x > 1", on=(), emit="all"),
        Rule("pair", "a.x > b.x", within="1s", **MORE),
        Rule("life", "a.x > 1", on="machine"),
        Rule("alone", "a.x > 2", **MORE, quality={"deadline": "10s"}),
    ]
    plan = plan_of(streams, rules, arrival="arrival", quality=Quality(cpu=Cpu(0.6)))
    found = {watch.rules[0].alert: watch.anytime for watch in plan.watches}
    shares = {name: None if one is None else (one.cores, one.window_us) for name, one in found.items()}
    minute = 60_000_000
    assert shares == {
        "band0": (pytest.approx(0.2), minute), "elsewhere": (pytest.approx(0.2), minute),
        "pair": (pytest.approx(0.2), 2_000_000), "life": None, "alone": (1.0, 10_000_000),
    }  # fmt: skip
    text = str(plan)
    assert "; if the budget is exceeded, process rows by priority; rows that wait longer than 1m count" in text
    guide = "rows are looked up by x (7 bins) and x (3 bins); of 5 rules, 3 decided by ranges only, 1 evaluated on"
    assert f"Index: {guide} the rows of a range, 1 evaluated on every row" in text
    assert "wait longer than 10s (deadline) count as unprocessed" in text


def test_the_cpu_of_a_file_covers_rules_of_one_stream(tmp_path: Path) -> None:
    rules = """\
quality: {cpu: 50%}
streams:
  a: {source: {json: {path: in}}, keys: [item]}
groups:
  - name: g
    rules:
      - {alert: Hot, expr: a > 80, on: [item], emit: all}
      - {alert: Band, expr: a > 20 and a < 30, on: [item], emit: all}
"""
    (tmp_path / "rules.yaml").write_text(rules)
    checked = check_file(tmp_path / "rules.yaml", {})
    assert (checked.errors, checked.warnings) == ((), ())
    assert checked.file is not None
    (watch,) = plan_file(checked.file).watches
    assert watch.anytime is not None
    (tmp_path / "rules.yaml").write_text(rules.replace(", emit: all", ""))
    (warning,) = check_file(tmp_path / "rules.yaml", {}).warnings
    assert "`quality.cpu` has no effect: no rule has `emit: all`, at most two streams and no wait" in str(warning)


def test_limits_per_key_narrow_by_the_least_and_decide_by_their_own() -> None:
    streams = stream(3_000, keys=4)
    table = Limits("limits.csv", ("machine",), ("limit",), {("k0",): (0.5,), ("k1",): (1.0,), ("k2",): (-9.0,)})
    rule = Rule("over", "a.x - 0.5 > by_machine.limit", **MORE, limits={"by_machine": table})
    exact = matches(local.run_local_detailed(streams, rule, arrival="arrival").alerts)
    plan = limited(streams, rule, 1_000.0)
    assert plan.watches[0].anytime is not None
    assert plan.watches[0].anytime.guided is not None
    (found,) = plan.watches[0].anytime.guided.ranges
    assert -8.6 < found.low < -8.4
    assert matches(run_plan(plan, streams, [7, 800, 801]).alert_rows()) == exact
    assert exact.total() > 700


def test_less_work_finds_less_and_says_so_and_every_rule_is_served() -> None:
    streams, rules = stream(6_000), bands(40)
    exact = matches(local.run_local_detailed(streams, rules, arrival="arrival").alerts)
    shares = []
    for cores in (100.0, 0.012, 0.008):
        found = run_plan(limited(streams, rules, cores), streams, through_pages=False)
        assert not matches(found.alert_rows()) - exact
        shares.append(len(found.alert_rows()) / exact.total())
        told = {row["quality"].split()[0] for row in found.alert_rows() if row["startsAt"] > 3_000_000}
        lost = found.counts["a"]["unprocessed"]
        assert (lost > 0, told) == ((True, {"subset"}) if cores < 1 else (False, {"exact"}))
        of_rows, of_results = found.metrics.section("cpu")["band0"].values()
        assert of_rows is not None
        assert of_results is not None
        assert (of_rows < 1, of_results < 1) == (cores < 1,) * 2
    assert shares[0] == 1 > shares[1] > shares[2] > 0.05
    # No rule is starved by those that promise as much.
    served = Counter(row["alert"] for row in found.alert_rows())
    there = Counter({rule.alert: 0 for rule in rules})
    for (alert, *_), count in exact.items():
        there[alert] += count
    each = [served[name] / there[name] for name in there if there[name] > 60]
    assert len(each) > 20
    assert min(each) > shares[2] / 3


def test_what_conditions_beside_the_range_hardly_ever_meet_comes_last() -> None:
    streams = stream(8_000)
    often = [Rule(f"often{i}", f"a.x > {i / 10} and a.y > -9", **MORE) for i in range(10)]
    rare = [Rule(f"rare{i}", f"a.x > {i / 10 - 3} and a.y > {5 + i}", **MORE) for i in range(60)]
    found = run_plan(limited(streams, rare + often, 0.05, 100_000), streams, through_pages=False)
    exact = local.run_local_detailed(streams, rare + often, arrival="arrival").alerts
    assert found.counts["a"]["unprocessed"] > 0
    # To evaluate all would have taken most of the units; learnt, it is left until what gives results is done.
    assert len(found.alert_rows()) > 0.1 * len(exact)
    late = [row for row in found.alert_rows() if row["startsAt"] > 4_000_000]
    assert len(late) > len(found.alert_rows()) / 4


@pytest.mark.parametrize("cores", [1e-5, 0.05, 1_000.0])
def test_odd_values_equal_rows_and_clocks_in_the_future(cores: float) -> None:
    streams = stream(400, keys=2)
    columns = streams["a"]
    x, time = columns["x"], columns["ts"]
    x[::7], x[1::11], x[2::13], x[3::17], x[4::19] = np.nan, 1e308, -1e308, np.inf, -0.0
    time[::5], time[100] = time[0], 10**15
    for name in ("ts", "machine", "x", "y"):
        columns[name][200:220] = columns[name][210]
    rules = [*bands(10), Rule("zero", "a.x >= 0", **MORE), Rule("huge", "a.x * 10 > 1 or a.x < -1e307", **MORE)]
    endless = matches(
        local.run_local_detailed(
            streams, [replace(rule, allowed_lateness="100000d") for rule in rules], arrival="arrival"
        ).alerts
    )
    plan = limited(streams, rules, cores)
    whole, split = run_plan(plan, streams, through_pages=False), run_plan(plan, streams, [1, 100, 101, 333])
    assert stories(split.alert_rows()) == stories(whole.alert_rows())
    assert settled(split.counts) == settled(whole.counts)
    assert not matches(whole.alert_rows()) - endless
    assert cores < 1 or matches(whole.alert_rows()) == endless
    counts = whole.counts["a"]
    assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES) == 400
    assert counts["quarantined"] > 0


def test_thousands_of_rules_find_what_they_find_alone() -> None:
    streams = stream(300)
    rules = bands(2_000)
    exact = matches(local.run_local_detailed(streams, rules, arrival="arrival").alerts)
    found = run_plan(limited(streams, rules, 1e5), streams, [100])
    assert matches(found.alert_rows()) == exact
    assert exact.total() > 1_000


def test_a_deadline_passes_while_no_rows_come_and_work_goes_on_until_then() -> None:
    streams, rules = stream(500, step=10), bands(40)
    plan = limited(streams, rules, 0.05, 8_000_000, unit_ns=1e3)
    driver, now = Driver(plan), 5_000_000
    (part,) = parts_of(plan, streams, (), "arrival")
    driver.take(driver.session.push(part, now))
    some = len(driver.result.alert_rows())
    while (timer := driver.session.next_timer()) is not None and timer < 60_000_000:
        now = timer
        driver.take(driver.session.advance(now))
    assert 5_000_000 < now <= 5_000_000 + 10_000_000
    exact = local.run_local_detailed(streams, rules, arrival="arrival").alerts
    assert some < len(driver.result.alert_rows()) < len(exact)
    assert driver.result.counts["a"]["unprocessed"] > 0


def test_rows_that_are_done_go_and_calls_write_only_new_ones() -> None:
    streams = stream(20_000)
    plan = limited(streams, bands(20), 1_000.0, 10_000_000)
    session = Session(plan)
    (promising,) = limited_logics(session)
    assert isinstance(promising, OneStreamPipeline)
    for part in parts_of(plan, streams, range(2_000, 20_000, 2_000), "arrival"):
        session.push(part)
        written = {name: data for name, data in session.changed_pages().items() if data is not None}
        assert sum(map(len, written.values())) < 400_000
    # A zone is a second, 1,000 rows; rows go with blocks.
    assert len(promising.log) < 2_500


def test_state_goes_on_with_another_share_and_of_other_rules_it_has_expired() -> None:
    streams, rules = stream(1_000), bands(20)
    plan = limited(streams, rules, 0.01)
    first, second = parts_of(plan, streams, [500], "arrival")
    driver = Driver(plan)
    driver.take(driver.session.push(first))
    pages = dict(driver.pages)
    more = Session(limited(streams, rules, 0.02), pages).push(second)
    assert more.counts["a"]["retained"] < len(second[0].time)
    retained = driver.result.counts["a"]["retained"]
    assert retained > 0
    for others in (rules[:-1], [Rule("x", "a.x > 5", **MORE)]):
        session = Session(limited(streams, others, 0.01), pages)
        gone = session.push([])
        assert gone.counts == {"a": {"received": 0, "retained": -retained, "expired": retained}}
        assert {name: None for name in pages}.items() <= session.changed_pages().items()


def test_the_calibration_of_a_state_holds_for_its_whole_life() -> None:
    streams, rules = stream(2_000), bands(20)
    slow, fast = (limited(streams, rules, 0.02, unit_ns=unit_ns) for unit_ns in (20.0, 1.0))
    parts = parts_of(slow, streams, [700], "arrival")
    driver = Driver(slow)
    driver.take(driver.session.push(parts[0]))
    went_on = Session(fast, driver.pages).push(parts[1])
    assert went_on.alert_rows() == Session(slow, driver.pages).push(parts[1]).alert_rows()
    assert len(run_plan(fast, streams).alert_rows()) > len(run_plan(slow, streams).alert_rows())


def test_a_row_that_lacks_the_values_of_one_rule_serves_the_others() -> None:
    streams = stream(200)
    streams["a"]["y"][::2] = np.nan
    rules = [Rule("x", "a.x > 0", **MORE), Rule("y", "a.y > 0 and a.x > -9", **MORE)]
    found = run_plan(limited(streams, rules, 1_000.0), streams, [50])
    exact = run_plan(plan_of(streams, rules, arrival="arrival"), streams)
    assert results(found.alert_rows()) == results(exact.alert_rows())
    assert found.counts["a(y, x)"]["quarantined"] == 100
    assert found.counts["a(x)"]["quarantined"] == 0
