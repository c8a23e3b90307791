"""The strategy Measured: what it counts as lost, what it requires, and that it waits less and more steadily."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.p004.window_join import Equal, WindowJoin, completed_results
from naive import measured as naive
from operators.reorder.recall_settings import PAPER
from operators.reorder.test_model_wait import QUALITY, WINDOWS, run
from tests.example_counts import examples
from tocsin.operators.reorder.k_slack import NEVER_IDLE
from tocsin.operators.reorder.measured_wait import lost_results, spread_recall
from tocsin.operators.reorder.model_wait import ModelWait
from tocsin.operators.reorder.reorder_rows import new_clocks, reorder_rows
from tocsin.operators.reorder.wait_policy import RecallConfig, WaitPolicy
from tocsin.runtime.contract import NEVER_SEEN

rows = st.tuples(st.integers(0, 90), st.integers(0, 99), st.booleans())
sizes = st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda two: (min(two), max(two)))


@given(st.lists(rows, max_size=30))
def test_lost_results_are_the_results_of_late_rows_that_a_wait_can_save(joined: list[tuple[int, int, bool]]) -> None:
    delay, found, in_order = (np.array([row[i] for row in joined], kind) for i, kind in enumerate((int, float, bool)))
    assert lost_results(80, delay, found, in_order) == naive.lost(joined, 80)


@given(st.lists(sizes, max_size=20), st.integers(1, 21), st.floats(0.0, 1.0))
def test_what_is_required_is_spread_over_two_thirds_of_the_period(
    intervals: list[tuple[int, int]], periods: int, wanted: float
) -> None:
    intervals = ([(0, 0)] * periods + intervals)[-(periods - 1) :] if periods > 1 else []
    produced, true = (np.array([size[i] for size in intervals], float) for i in (0, 1))
    exact = naive.required(Fraction(wanted), intervals, periods)
    assert spread_recall(wanted, produced, true) == pytest.approx(float(exact), rel=1e-9, abs=1e-9)


def test_with_neither_lack_nor_surplus_the_aim_is_required() -> None:
    true = np.full(59, 1000.0)
    assert spread_recall(0.9, 0.96 * true, true) == pytest.approx(0.96)
    # 2 % short over the third of P that stays: 1 % more over the two thirds that come.
    assert spread_recall(0.9, 0.94 * true, true) == pytest.approx(0.97)
    assert spread_recall(0.9, 0.2 * true, true) == pytest.approx(0.985)
    assert spread_recall(0.9, true, true) == pytest.approx(0.94)
    assert spread_recall(0.9, np.zeros(59), np.zeros(59)) == pytest.approx(0.96)


def disordered(seed: int, seconds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Streams, times and values of 100 rows/s in each of two streams, in order of arrival; delays have a long tail."""
    rng = np.random.default_rng(seed)
    count = 100 * seconds
    time = np.arange(count) * 10_000
    delay = np.minimum(50_000 * rng.pareto(1.2, (2, count)), 8e6) * (rng.random((2, count)) < 0.5)
    order = np.argsort(np.concatenate([time + delay[0], time + delay[1] + 1]), kind="stable")
    stream = np.repeat([0, 1], count)[order]
    values = np.minimum(rng.zipf(1.6, (2 * count, 1)), 20).astype(float)
    return stream, np.tile(time, 2)[order], values[order]


def simulate(strategy: str, recall: float, seconds: int = 150) -> tuple[np.ndarray, float, float]:
    """Waits of each second, and results produced and estimated as true over the last minute but one."""
    stream, time, values = disordered(5, seconds)
    windows = [2_000_000, 2_000_000]
    wait = ModelWait(RecallConfig(recall, **PAPER), windows, strategy)
    join, clocks = WindowJoin(windows, Equal(21), count_late=True), new_clocks(1, 2)
    held, stage, waits = np.empty(0, np.int64), np.empty(0, np.int64), []
    (delay, skews), joined = np.full((2, len(time)), -1), NEVER_SEEN
    for at in range(0, len(time), 200):
        new = np.arange(at, min(at + 200, len(time)))
        all_rows, stages = np.concatenate((held, new)), np.concatenate((stage, np.zeros(len(new), np.int64)))
        group = np.zeros(len(all_rows), np.int64)
        left, _, stages, late, skew = reorder_rows(
            clocks, group, stream[all_rows], time[all_rows], stages, wait.wait_us, NEVER_IDLE
        )
        delay[new], skews[new] = late[len(held) :], skew[len(held) :]
        taken = all_rows[left]
        cross, results, in_order, _ = join.take(stream[taken], time[taken], values[taken])
        wait.note_arrivals(stream[new], late[len(held) :], skew[len(held) :])
        completed = completed_results(windows, stream[taken], time[taken], results, in_order, joined)
        joined = int(time[taken].max(initial=joined))
        wait.note_results(delay[taken], skews[taken], cross, completed, in_order)
        wait.adapt()
        waits.append(wait.wait_us)
        held, stage = all_rows[stages > 0], stages[stages > 0]
    return np.array(waits), float(wait.monitor.produced.sum()), float(wait.monitor.true.sum())


@pytest.mark.parametrize("wanted", [0.5, 0.7, 0.9])
def test_produced_and_lost_are_the_true_results_nearly(wanted: float) -> None:
    stream, time, values = disordered(5, 150)
    order = np.argsort(time, kind="stable")
    taken = WindowJoin([2_000_000] * 2, Equal(21)).take(stream[order], time[order], values[order])
    rate = float(taken.results[time[order] >= 60_000_000].mean()) * 200
    _, produced, true = simulate("measured", wanted)
    assert produced < 0.98 * true
    assert true / 59 == pytest.approx(rate, rel=0.03)


def test_it_waits_less_and_more_steadily_than_the_strategies_of_the_paper() -> None:
    waits = {strategy: simulate(strategy, 0.9)[0][60:] for strategy in ("eqsel", "noneqsel", "measured")}
    for strategy in ("eqsel", "noneqsel"):
        assert waits["measured"].mean() < 0.9 * waits[strategy].mean()
        assert waits["measured"].std() < waits[strategy].std()


@pytest.mark.parametrize("strategy", ["eqsel", "noneqsel", "measured"])
def test_a_wait_moves_by_at_most_a_fifth_of_the_interval_once_there_are_results(strategy: str) -> None:
    waits = simulate(strategy, 0.99)[0][5:]
    assert max(abs(after - before) for before, after in pairwise(waits.tolist())) <= 200_000


@examples(30)
@given(seed=st.integers(0, 10**6), cut=st.integers(1, 130))
def test_no_cut_and_no_page_shows(seed: int, cut: int) -> None:
    def make() -> WaitPolicy:
        return ModelWait(QUALITY, WINDOWS, "measured")

    whole = run(make, seed, 1000)
    assert run(make, seed, cut) == whole
    assert run(make, seed, cut, paged=True) == whole
