"""Laws of the engine over drawn plans: batch boundaries, state round trips, row outcomes, budgets and results.

Each example runs one plan several times and compares the runs with each other and with the oracles of `tests/naive`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, target
from hypothesis import strategies as st

from tests.driver import Driver, parts_of, settled, stories
from tests.example_counts import ENGINE, examples
from tests.laws.drawn_plans import FAMILIES, LIMITED, Drawn, drawn_plans
from tests.naive.alerts import naive_alerts
from tests.naive.waiting import waits_by_largest_delay
from tests.test_semantics import _exact as exact_results
from tests.test_semantics import _in_oracle_form as in_oracle_form
from tests.test_semantics import stories as semantic_stories
from tests.test_waiting import in_the_order_taken, usable
from tocsin import jit
from tocsin.interim.cpu import row_log
from tocsin.operators.retention.utility import row_utility
from tocsin.plan import RANGES
from tocsin.plan.budget import Budget
from tocsin.runtime.contract import Batch, Out
from tocsin.runtime.state_codec import unpack

FOREVER = 10**15
SECOND = 1_000_000
# Examples of the laws that repeat runs of the first law in another form.
FEWER = examples(12)


@contextmanager
def steps_for_few_rows() -> Iterator[None]:
    """Let the engine judge its models and evict stale rows after a few rows, so that small inputs reach these steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_utility, "EVERY", 50)
        patch.setattr(row_log, "FEWEST_STALE", 1)
        patch.setattr(Budget, "traces", 5)
        yield


@contextmanager
def interpreted_kernels() -> Iterator[None]:
    """Interpret all kernels, also kernels that this process has loaded."""
    token = jit._MODE.set(jit._INSIDE)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        jit._MODE.reset(token)


class LawDriver(Driver):
    """A driver that checks the memory budgets of the plan after each call.

    Attributes:
        most: largest share of a memory budget that was in use.
        waits: wait and expected recall of each rule after the last call that reports them.
    """

    def __init__(self, drawn: Drawn, *, through_pages: bool = True) -> None:
        super().__init__(drawn.plan, through_pages=through_pages)
        self.drawn, self.most = drawn, 0.0
        self.waits: dict[str, dict[str, float | None]] = {}

    def take(self, out: Out) -> list[dict[str, Any]]:
        """Check the call and the memory that the plan uses after it."""
        alerts = super().take(out)
        self.waits = out.metrics.section("waits") or self.waits
        for watch in self.plan.watches:
            if watch.budget is None or not self.through_pages:
                continue
            limit = watch.budget.share
            if watch.budget.memory.unit == "rows":
                used = sum(self.result.counts.get(lane, {}).get("retained", 0) for lane in self.drawn.case.streams)
                # Elements in the windows of range rules are counted as retained, and belong to no budget.
                used -= sum(
                    rows
                    for name, page in self.pages.items()
                    if name.startswith(RANGES) and name.endswith("/key")
                    for rows in unpack(page)[1]["retained"].values()
                )
                limit *= sum(other.budget is not None for other in self.plan.watches)
            else:
                used = sum(len(page) for name, page in self.pages.items() if name.startswith(f"{watch.name}/"))
            assert used <= limit, watch.name
            self.most = max(self.most, used / limit)
        return alerts


def answer(driver: LawDriver) -> tuple[Any, ...]:
    """Return everything that a run reports and that batch boundaries must not change."""
    out = driver.result
    late, dead = (Counter(map(repr, rows)) for rows in (out.late, out.dead))
    numbers = settled(out.counts), out.metrics.results_by_period(), driver.waits, out.metrics.section("newest_us")
    return stories(out.alert_rows()), *numbers, late, dead


def other_order(batch: Batch) -> Batch:
    """Return the same rows with keys in the opposite order."""
    return replace(batch, keys=list(batch.keys)[::-1], key=len(batch.keys) - 1 - batch.key)


def run_once(drawn: Drawn) -> LawDriver:
    """Run the plan in one call."""
    driver = LawDriver(drawn, through_pages=False)
    driver.take(driver.session.control(drawn.control))
    driver.run(parts_of(drawn.plan, drawn.streams, (), "arrival"))
    return driver


def run_in_batches(drawn: Drawn) -> LawDriver:
    """Run the plan in drawn batches, with keys in another order and state that is written and read."""
    driver = LawDriver(drawn)
    driver.take(driver.session.control(drawn.control))
    for number, part in enumerate(parts_of(drawn.plan, drawn.streams, drawn.cuts, "arrival")):
        driver.through_pages = drawn.stored[number % len(drawn.stored)]
        driver.take(driver.session.push([other_order(batch) for batch in part]))
    driver.take(driver.session.end())
    return driver


@pytest.mark.parametrize("family", FAMILIES)
@ENGINE
@given(data=st.data())
def test_drawn_plan_obeys_the_laws_when_batches_and_state_round_trips_vary(family: str, data: st.DataObject) -> None:
    drawn = data.draw(drawn_plans(family))
    with steps_for_few_rows():
        once, batched = run_once(drawn), run_in_batches(drawn)
    whole = once.result
    for label in drawn.labels:
        event(f"{family}: {label}")
    lost = sum(counts.get("shed", 0) + counts.get("unprocessed", 0) for counts in whole.counts.values())
    event(f"{family}: {'loses rows' if lost else 'loses no row'}")
    event(f"{family}: {'has alerts' if whole.alert_rows() else 'has no alert'}")
    target(float(len(whole.alert_rows())), label="alerts")
    is_waiting = any(one["wait_us"] for one in once.waits.values())
    event(f"{family}: {'waits' if is_waiting else 'does not wait'}")
    assert answer(batched) == answer(once)
    for name, counts in whole.counts.items():
        if name in drawn.streams:
            # Each keyed pipeline that reads the stream counts its rows.
            rows, pipelines = len(drawn.streams[name]["ts"]), len(drawn.plan.key_sets)
            assert counts["received"] in [number * rows for number in range(1, pipelines + 1)]
    check_results(drawn, whole, lost=lost)


@pytest.mark.parametrize("family", FAMILIES)
@FEWER
@given(data=st.data())
def test_drawn_plan_returns_the_same_results_when_kernels_are_interpreted(family: str, data: st.DataObject) -> None:
    drawn = data.draw(drawn_plans(family))
    with steps_for_few_rows():
        with interpreted_kernels():
            interpreted = run_once(drawn)
        assert answer(interpreted) == answer(run_once(drawn))


@pytest.mark.parametrize("family", FAMILIES)
@FEWER
@given(data=st.data())
def test_drawn_plan_gives_the_same_alerts_when_state_is_read_between_calls_and_timers(
    family: str, data: st.DataObject
) -> None:
    drawn = data.draw(drawn_plans(family))
    drivers = []
    with steps_for_few_rows():
        for through_pages in (False, True):
            driver = LawDriver(drawn, through_pages=through_pages)
            parts = parts_of(drawn.plan, drawn.streams, drawn.cuts, "arrival")
            driver.run_with_pauses(parts, drawn.pauses)
            drivers.append(driver)
    assert answer(drivers[1]) == answer(drivers[0])
    check_are_results(drawn, drivers[0].result.alert_rows())


def check_results(drawn: Drawn, out: Out, *, lost: int) -> bool:
    """Check the alerts of the main rule against the oracles; return whether an oracle states all of them."""
    found = check_are_results(drawn, out.alert_rows())
    if not drawn.has_exact_answer or lost:
        return False
    expected = expected_alerts(drawn)
    if drawn.family.startswith("cpu"):  # With a CPU budget, the order of evaluations does not make a match late.
        expected = [row | {"late": False} for row in expected]
    if drawn.family in LIMITED and drawn.case.rule.emit == "all":
        missed = Counter(map(repr, exact_results(expected))) - Counter(map(repr, exact_results(found)))
        assert not missed
    elif drawn.case.rule.emit == "all":
        assert Counter(map(repr, exact_results(found))) == Counter(map(repr, exact_results(expected)))
    else:
        without = ("witness",) if drawn.case.shapes else ()
        assert semantic_stories(found, *without) == semantic_stories(expected, *without)
    event(f"{drawn.family}: equals the oracle")
    return True


def check_are_results(drawn: Drawn, alerts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Check that each witness is a true combination of the full join; return the alerts in the form of the oracle."""
    rule = drawn.case.rule
    found = [in_oracle_form(dict(row), rule) for row in alerts if row["alert"] == rule.alert]
    combinations: dict[str, tuple[float, float]] = {}
    for key, streams in rows_by_key(drawn, drawn.case.streams).items():
        endless = replace(rule_of(drawn, key), emit="all", strict=False, allowed_lateness_us=FOREVER, recovery=None)
        for row in naive_alerts(streams, endless):
            combinations[identity(row)] = (float(row["margin"]), float(row["value"]))
    for row in found:
        assert combinations.get(identity(row)) == (row["margin"], row["value"]), row
    return found


def identity(row: Mapping[str, Any]) -> str:
    """Return the key and the rows of a combination as text."""
    return repr((row["key"], [(stream, time, float(values["value"])) for stream, time, values in row["witness"]]))


def rule_of(drawn: Drawn, key: Any) -> Any:
    """Return the rule of the oracle for one key."""
    rule = drawn.case.rule
    return replace(rule, condition=drawn.conditions[key].judge) if drawn.conditions else rule


def rows_by_key(drawn: Drawn, streams: Mapping[str, Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Return the rows of each key that has a condition of its own, or all rows if all keys have the same condition."""
    if not drawn.conditions:
        return {None: dict(streams)}
    places = {
        key: {name: [i for i, whose in enumerate(table["machine"]) if whose == key] for name, table in streams.items()}
        for key in drawn.conditions
    }
    return {
        key: {name: {column: [cells[i] for i in mine[name]] for column, cells in table.items()}
              for name, table in streams.items()}
        for key, mine in places.items()
    }  # fmt: skip


def expected_alerts(drawn: Drawn) -> list[dict[str, Any]]:
    """Return all alerts of the main rule by the oracle, on rows in the order in which they are taken."""
    streams: Mapping[str, Mapping[str, Any]] = drawn.case.streams
    rule = drawn.case.rule
    assert rule.idle_timeout_us is not None
    main = {name: drawn.streams[name] for name in drawn.case.streams}
    if drawn.wait is not None:
        streams = as_lists(in_the_order_taken(main, drawn.wait, rule.idle_timeout_us))
    elif drawn.family == "largest delay":
        rows = [row[:3] for row in usable(main)]
        waits = waits_by_largest_delay(rows, SECOND, rule.allowed_lateness_us, rule.idle_timeout_us)
        streams = as_lists(in_the_order_taken(main, waits, rule.idle_timeout_us))
    by_key = rows_by_key(drawn, streams)
    return [row for key, mine in by_key.items() for row in naive_alerts(mine, rule_of(drawn, key))]


def as_lists(streams: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, dict[str, list[Any]]]:
    """Return arrays as lists, the form of the oracles."""
    return {name: {column: cells.tolist() for column, cells in table.items()} for name, table in streams.items()}
