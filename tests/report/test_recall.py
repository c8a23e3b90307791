"""The recall of rules whose rows wait: compared with the truth, told in tables and JSON, and drawn."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.dashboard.test_backtest_report import ABOUT, Tags
from tests.report.cases import MINUTE
from tocsin import Rule, local
from tocsin.cli.tables import lines_of, object_of
from tocsin.dashboard.backtest_report import MOST_NAMED, page
from tocsin.dashboard.charts.curve import MOST_STEPS, curve
from tocsin.report import Gatherer, Period, Recall, Result
from tocsin.report.recall import MOST_PERIODS
from tocsin.rules.quality import FIXED, RECALL, ReorderWait
from tocsin.runtime.metrics import Metrics

SECOND = 1_000_000
ASKED = {"recall": 0.9, "period": "1m", "in_order": True}


def rule(alert: str = "Hot", **given: Any) -> Rule:
    return Rule(alert, "air - surface > 5", within="2s", on="machine", allowed_lateness="1h", **given)


def disordered(most_delay_s: int, seconds: int = 300) -> dict[str, dict[str, Any]]:
    """Readings a second of two streams, hot every other ten seconds; a third of them come late."""
    rng = np.random.default_rng(11)
    tables = {}
    for name, level in (("air", 20.0), ("surface", 12.0)):
        ts = np.arange(seconds) * SECOND
        late = rng.integers(0, most_delay_s + 1, seconds) * (rng.random(seconds) < 0.3) * SECOND
        value = np.where((np.arange(seconds) // 10) % 2 == 0, level, 15.0)
        tables[name] = {"ts": ts, "at": ts + late, "machine": np.full(seconds, "m1", object), "value": value}
    return tables


def gathered(tables: dict[str, dict[str, Any]], *rules: Rule) -> Result:
    """Run rules in this process over rows as they arrived, and over the same in order of time."""
    plan = local.explain(tables, rules, arrival="at")
    gatherer = Gatherer("rules.yaml", plan, frozenset(tables))
    found = local.run_local_detailed(tables, rules, arrival="at")
    gatherer.count(Metrics(**json.loads(json.dumps(found.metrics.to_json()))))
    by_time = {name: {**table, "at": table["ts"]} for name, table in tables.items()}
    gatherer.take_truth(local.run_local_detailed(by_time, rules, arrival="at").metrics)
    return gatherer.result()


def results_of(periods: dict[int, tuple[int, int]]) -> Metrics:
    """Return results in order and all results of the alert Hot by period."""
    stored = {str(start): {"in_order": in_order, "all": whole} for start, (in_order, whole) in periods.items()}
    return Metrics(results={"Hot": stored})


def made(*shares: tuple[int, int], waiting: ReorderWait | None = None) -> Recall:
    """A recall with a period a minute."""
    periods = tuple(Period(i * MINUTE, in_order, true) for i, (in_order, true) in enumerate(shares) if true)
    return Recall("Hot", waiting or ReorderWait(RECALL, recall=0.9), periods)


def test_what_comes_in_order_has_a_recall_of_one_whatever_is_waited() -> None:
    found = gathered(
        disordered(0),
        rule("A", quality={"wait": "0s"}),
        rule("B", quality={"wait": "max"}),
        rule("C", quality=ASKED),
        rule("D"),
    )
    assert [recall.alert for recall in found.recalls] == ["A", "B", "C"]
    for recall in found.recalls:
        assert recall.whole is not None
        assert recall.whole.in_order == recall.whole.true > 100
        assert {period.recall for period in recall.periods} == {1.0}
        assert [period.start_us for period in recall.periods] == [minute * MINUTE for minute in range(5)]
    assert [recall.reached for recall in found.recalls] == [None, None, 1.0]


def test_who_waits_longer_finds_more_in_order() -> None:
    waits = {"A": "0s", "B": "2s", "C": "8s"}
    found = gathered(disordered(8), *(rule(name, quality={"wait": wait}) for name, wait in waits.items()))
    none, some, whole = (recall.whole for recall in found.recalls)
    assert none is not None
    assert some is not None
    assert whole is not None
    assert none.recall < some.recall < whole.recall == 1.0
    assert none.true == some.true == whole.true
    assert [(recall.wait_us, recall.longest_us) for recall in found.recalls] == [
        (0, 0), (2 * SECOND, 2 * SECOND), (8 * SECOND, 8 * SECOND),
    ]  # fmt: skip


def test_numbers_are_those_of_the_periods_that_have_true_results() -> None:
    recall = made((10, 10), (9, 10), (0, 0), (4, 5))
    assert recall.whole == Period(0, 23, 25)
    assert recall.lowest == Period(3 * MINUTE, 4, 5)
    assert recall.reached == 2 / 3
    assert made((4, 5), waiting=ReorderWait(FIXED)).reached is None


def test_a_result_more_than_the_truth_does_not_make_up_for_one_that_is_missing() -> None:
    plan = local.explain(disordered(0), rule(quality={"wait": "1s"}), arrival="at")
    gatherer = Gatherer("x", plan, frozenset({"air"}))
    gatherer.count(results_of({0: (11, 12), MINUTE: (8, 10), 2 * MINUTE: (3, 3)}))
    gatherer.count(results_of({MINUTE: (1, 1)}))
    gatherer.take_truth(results_of({0: (10, 10), MINUTE: (10, 10), 3 * MINUTE: (1, 1)}))
    (recall,) = gatherer.result().recalls
    assert recall.periods == (Period(0, 10, 10), Period(MINUTE, 9, 10), Period(3 * MINUTE, 0, 1))


def test_the_wait_told_is_that_in_the_middle_of_parts_that_found_something() -> None:
    plan = local.explain(disordered(0), rule(quality={"wait": "max"}), arrival="at")
    gatherer = Gatherer("x", plan, frozenset({"air"}))
    for wait_us, results in ((0, {}), (3, {0: (1, 1)}), (5, {0: (1, 1)}), (90, {})):
        metrics = results_of(results)
        metrics.record("wait_us", wait_us, "Hot")
        gatherer.count(metrics)
    (recall,) = gatherer.result().recalls
    assert (recall.wait_us, recall.longest_us, recall.periods) == (3, 90, ())


def test_without_arrival_the_table_says_that_nothing_could_be_late() -> None:
    plan = local.explain(disordered(0), rule(quality={"wait": "1s"}), arrival="at")
    gatherer = Gatherer("x", plan)
    gatherer.count(results_of({0: (4, 4)}))
    found = gatherer.result()
    assert found.recalls[0].periods == (Period(0, 4, 4),)
    told = list(lines_of([found], None, {"rows": 1, "seconds": 1.0}))
    assert "no stream of Hot declares `arrival`: rows were read in event-time order, and none was late" in told
    assert "A live run can have a lower recall." in page(found, ABOUT)


def test_the_table_and_the_object_tell_of_each_rule() -> None:
    plan = local.explain(disordered(0), rule(), arrival="at")
    found = replace(made((99_999, 100_000), (4, 5), (10, 10)), waits_us=(1_500_000,), longest_us=2 * SECOND)
    fixed = replace(made((1, 1), waiting=ReorderWait(FIXED, 5 * SECOND)), alert="Warm")
    result = Result("x", plan, (), (), (), recalls=(found, fixed))
    told = list(lines_of([result], None, {"rows": 1, "seconds": 1.0}))
    assert re.split(r"\s{2,}", next(line for line in told if line.startswith("Hot"))) == [
        "Hot", "recall 0.9 over 1m", "0.9999", "0.8000", "66.7%", "3", "1.5 s", "2 s",
    ]  # fmt: skip
    assert re.split(r"\s{2,}", next(line for line in told if line.startswith("Warm")))[1:5] == [
        "wait 5s",
        "1",
        "1",
        "-",
    ]
    one, two = object_of([result], None, 1.0)["recall"]
    assert (one["requested_recall"], one["lowest"], one["reached"], one["periods"]) == (0.9, 0.8, 2 / 3, 3)
    assert (one["in_order"], one["true"]) == (100_013, 100_015)
    assert one["each"][1] == {"start_us": MINUTE, "in_order": 4, "true": 5, "recall": 0.8}
    assert (two["requested_recall"], two["reached"], two["recall"]) == (None, None, 1.0)


def test_a_result_without_waits_says_nothing_of_recall() -> None:
    found = gathered(disordered(0), rule())
    assert found.recalls == ()
    assert object_of([found], None, 1.0)["recall"] == []
    assert not any("recall" in line for line in lines_of([found], None, {"rows": 1, "seconds": 1.0}))
    assert "Recall" not in page(found, ABOUT)


def test_of_many_periods_the_lowest_of_each_stretch_is_told() -> None:
    shares = [(10, 10)] * (5 * MOST_PERIODS)
    shares[7_777] = (1, 10)
    recall = made(*shares)
    found = list(recall.stretches(MOST_PERIODS))
    assert len(found) == MOST_PERIODS
    assert sum(stretch.count for stretch in found) == len(shares)
    assert [stretch.lowest.start_us for stretch in found if stretch.lowest.recall < 1] == [7_777 * MINUTE]
    assert [stretch.end_us for stretch in found][:-1] == [stretch.start_us for stretch in found][1:]
    assert len(curve(recall)) < 200_000
    assert curve(recall).count("the lowest recall of ") == MOST_STEPS


def test_a_curve_has_a_line_for_what_was_asked_and_marks_what_falls_short() -> None:
    drawing = curve(made((10, 10), (7, 10), (9, 10), (0, 0), (10, 10)))
    (asked,) = re.findall(r'<line class="asked" x1="70" y1="([\d.]+)" x2="936" y2="([\d.]+)"/>', drawing)
    tops = {kind: re.findall(rf'<rect class="{kind}" x="[\d.]+" y="([\d.]+)"', drawing) for kind in ("enough", "short")}
    assert len(tops["enough"]) == 3
    assert len(tops["short"]) == 1
    # Places grow downwards.
    assert all(float(top) <= float(asked[0]) for top in tops["enough"])
    assert float(tops["short"][0]) > float(asked[0]) == float(asked[1])
    assert "7 of 10 results in order, recall 0.7000" in drawing
    # A gap cuts the line: the three first minutes, and the last.
    assert [len(line.split()) for line in re.findall(r'class="reached" points="([^"]+)"', drawing)] == [6, 2]


def test_a_curve_of_a_fixed_wait_has_no_line_and_one_period_fills_it() -> None:
    drawing = curve(made((3, 4), waiting=ReorderWait(FIXED)))
    assert 'class="asked"' not in drawing
    assert 'class="short"' not in drawing
    assert re.findall(r'class="enough" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', drawing) == [("70", "866")]


@pytest.mark.parametrize("shares", [[(0, 5)], [(5, 5)], [(99_999, 100_000)], [(0, 1), (1, 1)]])
def test_a_curve_has_places_for_every_share(shares: list[tuple[int, int]]) -> None:
    drawing = curve(made(*shares))
    _, height = re.search(r'viewBox="0 0 (\d+) (\d+)"', drawing).groups()  # type: ignore[union-attr]
    places = re.findall(r' y[12]?="([^"]*)"', drawing)
    assert all(0 <= float(place) <= float(height) for place in places)
    assert ">1<" in drawing


def test_rules_that_wait_together_are_drawn_once_and_hostile_names_make_no_elements() -> None:
    hostile = "<script>&"
    plan = local.explain(disordered(0), rule(), arrival="at")
    first, none = made((9, 10)), replace(made(), alert="Never")
    result = Result("x", plan, (), (), (), recalls=(first, replace(first, alert=hostile), none))
    text = page(result, ABOUT)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert "script" not in tags.seen
    assert "Hot, &lt;script&gt;&amp;: in-order recall by period of event time" in text
    assert text.count('class="asked"') == 1
    assert "No results." in text
    many = replace(result, recalls=tuple(replace(first, alert=f"R{number}") for number in range(MOST_NAMED + 3)))
    assert "R3, R4 and 3 more: in-order recall by period of event time" in page(many, ABOUT)
