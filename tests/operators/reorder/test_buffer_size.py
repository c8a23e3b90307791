"""The choice of a wait against Alg. 3 and Eq. 7, written out in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import isnan

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from naive import disorder as naive
from operators.reorder.recall_settings import BINS, Setting, settings_of_disorder
from tocsin.operators.reorder.buffer_size import (
    STRATEGIES,
    ResultMonitor,
    add_interval,
    choose_wait,
    instant_recall,
    new_monitor,
)
from tocsin.operators.reorder.recall_model import build_model, cross_recalls, new_shape, selectivity_ratios

sizes = st.integers(0, 10**6)
requirements = st.floats(0.0, 1.0) | st.sampled_from([0.9, 0.95, 0.99, 0.999, 1.0])


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@given(setting=settings_of_disorder(), required=requirements)
def test_the_wait_is_that_of_alg_3(strategy: str, setting: Setting, required: float) -> None:
    wait, tried = setting.next_wait(required, by_delay=strategy == "noneqsel")
    # Within rounding of the requirement doubles may decide otherwise; but where nothing is missing they are exact.
    whole = [recall == 1 for recall in setting.recalls(by_delay=False)]
    near = [at for at, recall in enumerate(tried) if abs(recall - Fraction(required)) < 1e-12]
    assume(all(required == tried[at] == whole[at] for at in near))
    found, estimated = STRATEGIES[strategy].search(setting.model(), required)
    assert found * setting.grain == wait
    recalls = setting.recalls(by_delay=strategy == "noneqsel")
    assert estimated == pytest.approx(float(recalls[found]), rel=1e-12)


@given(seed=st.integers(0, 10**6), required=st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0]))
def test_long_delays_are_searched_as_one_wait_after_the_other(seed: int, required: float) -> None:
    rng = np.random.default_rng(seed)
    bins, streams = 1500, int(rng.integers(1, 5))
    histograms = np.array([np.bincount(rng.zipf(1.5, 2000).clip(1, bins) - 1, minlength=bins) for _ in range(streams)])
    largest = np.array([np.flatnonzero(row)[-1] for row in histograms])
    cross = rng.integers(0, 1000, bins).astype(float)
    results = np.floor(cross * rng.random(bins) * rng.choice([0, 1], bins, p=[0.7, 0.3]))
    shape = new_shape(rng.integers(1, 400, streams) * 5, 10, 10)
    model = build_model(shape, histograms, largest, rng.integers(0, 200, streams), cross, results)
    recalls = cross_recalls(model, 0, model.last + 2)
    for strategy, factor in (("eqsel", np.ones(model.last + 2)), ("noneqsel", None)):
        by_wait = recalls * (selectivity_ratios(model, 0, model.last + 2) if factor is None else factor)
        reached = np.flatnonzero(by_wait[: model.last + 1] >= required)
        expected = reached[0] if len(reached) else model.last + 1
        assert STRATEGIES[strategy].search(model, required) == (expected, by_wait[expected])


@given(wanted=st.floats(0.0, 1.0), produced=sizes, true=sizes, true_next=sizes)
def test_eq_7_gives_what_the_next_interval_must_reach(wanted: float, produced: int, true: int, true_next: int) -> None:
    exact = naive.instant_requirement(Fraction(wanted), Fraction(produced), Fraction(true), Fraction(true_next))
    # What is subtracted has a rounding of its own, which a small interval magnifies.
    loose = 1e-15 * (true + true_next + produced) / max(true_next, 1)
    assert instant_recall(wanted, produced, true, true_next) == pytest.approx(float(exact), rel=1e-12, abs=2 * loose)


def test_a_surplus_is_spent_and_a_lack_is_made_up() -> None:
    assert instant_recall(0.9, 900.0, 1000.0, 100.0) == pytest.approx(0.9)
    assert instant_recall(0.9, 920.0, 1000.0, 100.0) == pytest.approx(0.7)
    assert instant_recall(0.9, 995.0, 1000.0, 100.0) == 0.0
    assert instant_recall(0.9, 880.0, 1000.0, 100.0) == 1.0
    assert instant_recall(0.9, 5.0, 6.0, 0.0) == 0.9


@given(over=st.integers(1, 9), intervals=st.lists(st.tuples(sizes, sizes), max_size=20))
def test_the_monitor_holds_the_last_period_less_one_interval(over: int, intervals: list[tuple[int, int]]) -> None:
    monitor = new_monitor(over * 10, 10)
    for produced, true in intervals:
        add_interval(monitor, produced, true)
    kept = intervals[-(over - 1) :] if over > 1 else []
    assert monitor.produced.sum() == sum(produced for produced, _ in kept)
    assert monitor.true.sum() == sum(true for _, true in kept)


SETTING = Setting([{0: 50, 4: 30, 8: 20}], [10], [0], 1, 1, cross={0: 80, 8: 20}, results={0: 10, 8: 10})


def decide(
    monitor: ResultMonitor, wait: int, true: float, wanted: float = 0.8, pace: int = 99
) -> tuple[int, float, float]:
    return choose_wait(
        SETTING.model(),
        monitor,
        wait,
        true=true,
        wanted=wanted,
        strategy=STRATEGIES["noneqsel"],
        enough=30.0,
        max_change=pace,
    )


def test_with_enough_results_the_wait_follows_the_strategy_and_eq_7() -> None:
    # 100 true results before, 75 of them produced; 50 more: 0.8 of 150 less 75 is 45 of these 50.
    wait, estimated, required = decide(ResultMonitor(np.array([75.0]), np.array([100.0])), 3, 50.0)
    assert required == pytest.approx(0.9)
    assert (wait, estimated) == (8, 1.0)


@given(wait=st.integers(0, BINS), pace=st.integers(1, BINS))
def test_the_wait_moves_by_at_most_its_pace(wait: int, pace: int) -> None:
    # Without a pace the wait would be 8.
    found, estimated, _ = decide(ResultMonitor(np.array([75.0]), np.array([100.0])), wait, 50.0, pace=pace)
    assert found == min(max(8, wait - pace), wait + pace)
    on_the_way = sum(n for d, n in SETTING.histograms[0].items() if d <= found) / 100
    assert estimated == pytest.approx(on_the_way)


@given(wait=st.integers(0, BINS), true=st.floats(0.0, 29.0))
def test_few_results_in_an_interval_change_nothing(wait: int, true: float) -> None:
    found, estimated, required = decide(ResultMonitor(np.array([75.0]), np.array([100.0])), wait, true)
    assert found == wait
    assert isnan(required)
    assert estimated == pytest.approx(sum(n for d, n in SETTING.histograms[0].items() if d <= wait) / 100)


@given(wait=st.integers(0, BINS), true=st.floats(0.0, 29.0))
def test_few_results_in_the_whole_period_leave_delays_to_decide(wait: int, true: float) -> None:
    found, estimated, required = decide(ResultMonitor(np.zeros(3), np.array([9.0, 0.0, 0.0])), wait, true)
    assert (found, estimated, required) == (4, pytest.approx(0.8), 0.8)
