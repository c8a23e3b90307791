"""The adaptive wait as a whole: each step against the equations, and what must hold of any wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import adwin as naive_adwin
from naive import disorder as naive
from operators.reorder.recall_settings import PAPER
from tests.example_counts import examples
from tocsin.operators.reorder.delay_statistics import DELTA
from tocsin.operators.reorder.model_wait import ModelWait
from tocsin.operators.reorder.wait_policy import FixedWait, MaxWait, RecallConfig, WaitPolicy
from tocsin.runtime.state_codec import pack, unpack

# Intervals of a small system: grains of 10, windows of 35 and 80, P of five L.
QUALITY = RecallConfig(0.9, over_us=5000, every_us=1000, grain_us=10, basic_us=5, bins=16, history=256, enough=10.0)
WINDOWS = (35, 80)
Columns = tuple[np.ndarray, ...]
seeds = st.integers(0, 10**6)
strategies = st.sampled_from(["eqsel", "noneqsel"])


def interval_of(rng: np.random.Generator, wait_us: int, busy: float) -> tuple[Columns, Columns]:
    """Arrivals and joined rows of an interval, in whole numbers; how many rows are out of order follows the wait."""
    rows = int(rng.integers(0, 120))
    stream, delay = rng.integers(0, 2, rows), rng.geometric(0.03, rows) - 1
    delay[rng.random(rows) < 0.5] = 0
    arrivals = stream, delay, rng.integers(0, 60, rows)
    in_order = delay <= wait_us
    results = np.where(in_order, rng.poisson(busy, rows), 0)
    return arrivals, (
        delay,
        arrivals[2],
        (results + rng.integers(0, 9, rows)).astype(float),
        results.astype(float),
        in_order,
    )


class Literal:
    """Steps of adaptation by the equations alone."""

    def __init__(self, quality: RecallConfig, strategy: str) -> None:
        self.quality, self.strategy, self.wait = quality, strategy, 0
        self.windows = [naive_adwin.Adwin(quality.history, DELTA) for _ in WINDOWS]
        self.skews: list[list[int]] = [[] for _ in WINDOWS]
        self.sizes: list[tuple[int, int]] = []

    def note_arrivals(self, arrivals: Columns) -> None:
        for stream, delay, skew in zip(*(column.tolist() for column in arrivals), strict=True):
            if (d := naive.coarse(delay, self.quality.grain_us)) < self.quality.bins:
                self.windows[stream].take(d)
                self.skews[stream].append(skew)

    def recent(self) -> tuple[list[dict[int, int]], list[int]]:
        """The histogram of delays of each stream, and what it leads the slowest by, over its window."""
        windows = [window.window for window in self.windows]
        skews = [of[len(of) - len(window) :] for of, window in zip(self.skews, windows, strict=True)]
        return [{d: window.count(d) for d in set(window)} for window in windows], naive.sync_estimates(skews)

    def adapt(self, rows: Columns) -> list[Fraction]:
        """Choose the wait; give how far each recall that was looked at lies from what was required."""
        quality = self.quality
        joined = [
            (delay, int(cross), int(results), in_order)
            for delay, _, cross, results, in_order in zip(*(column.tolist() for column in rows), strict=True)
            if naive.coarse(delay, quality.grain_us) < quality.bins
        ]
        maps = naive.productivity(joined, quality.grain_us)
        true = sum(maps[1].values())
        self.sizes.append((sum(row[2] for row in joined if row[3]), true))
        kept = self.sizes[-(quality.over_us // quality.every_us - 1) :]
        true_before, required = sum(size for _, size in kept), Fraction(quality.recall)
        if true < quality.enough <= true_before:
            return []
        is_enough = true >= quality.enough
        if is_enough:
            produced = sum(size for size, _ in kept)
            required = naive.instant_requirement(required, Fraction(produced), Fraction(true_before), Fraction(true))
        histograms, syncs = self.recent()
        found, tried = naive.next_wait(
            histograms, WINDOWS, syncs, quality.basic_us, quality.grain_us, required,
            maps if is_enough and self.strategy == "noneqsel" else None,
        )  # fmt: skip
        most = int(quality.max_change * quality.every_us) // quality.grain_us * quality.grain_us
        self.wait = min(max(found, self.wait - most), self.wait + most) if is_enough else found
        return [abs(recall - required) for recall in tried]


@examples(40)
@given(seed=seeds, strategy=strategies, busy=st.sampled_from([0.0, 0.05, 0.2, 3.0]), pace=st.sampled_from([0.03, 0.25]))
def test_each_step_is_that_of_the_equations(seed: int, strategy: str, busy: float, pace: float) -> None:
    rng = np.random.default_rng(seed)
    quality = replace(QUALITY, recall=float(rng.choice([0.5, 0.9, 0.99])), max_change=pace)
    adaptive, literal = ModelWait(quality, WINDOWS, strategy), Literal(quality, strategy)
    for _ in range(12):
        arrivals, rows = interval_of(rng, adaptive.wait_us, busy * rng.choice([0, 1, 1, 4]))
        adaptive.note_arrivals(*arrivals)
        adaptive.note_results(*rows)
        literal.note_arrivals(arrivals)
        distances = literal.adapt(rows)
        adaptive.adapt()
        # Within rounding of the requirement doubles may decide otherwise, and from there on all is different.
        if any(0 < distance < 1e-12 for distance in distances):
            return
        assert adaptive.wait_us == literal.wait


def run(make: Callable[[], WaitPolicy], seed: int, cut: int, *, paged: bool = False) -> list[tuple[int, float]]:
    """Take ten intervals, cut into calls of `cut` rows, perhaps with all state written and read back between them."""
    rng, seen, wait = np.random.default_rng(seed), [], make()
    for _ in range(10):
        arrivals, rows = interval_of(rng, 50, 1.0)
        for begin in range(0, len(arrivals[0]) + 1, cut):
            wait.note_arrivals(*(column[begin : begin + cut] for column in arrivals))
            wait.note_results(*(column[begin : begin + cut] for column in rows))
            if paged:
                stored, _ = unpack(pack(wait.state_arrays()))
                wait = make()
                wait.restore_state(stored)
        wait.adapt()
        seen.append((wait.wait_us, wait.estimated))
    return seen


def test_the_largest_delay_is_waited_for_from_the_next_interval_on() -> None:
    wait = MaxWait(most_us=1000)
    stream, nothing = np.zeros(3, np.int64), np.zeros(3, np.int64)
    wait.note_arrivals(stream, np.array([0, 70, 5]), nothing)
    assert wait.wait_us == 0
    wait.adapt()
    assert wait.wait_us == 70
    wait.note_arrivals(stream, np.array([0, 1001, 60]), nothing)
    wait.adapt()
    assert wait.wait_us == 70


def test_a_fixed_wait_stays() -> None:
    assert {now for now, _ in run(lambda: FixedWait(5_000_000), 1, 50)} == {5_000_000}
    assert FixedWait().wait_us == 0


def test_before_anything_arrives_nothing_is_waited_for() -> None:
    wait = ModelWait(RecallConfig(0.99, **PAPER), [5_000_000], "noneqsel")
    assert isnan(wait.estimated)
    wait.adapt()
    assert (wait.wait_us, wait.estimated) == (0, 1.0)


def test_a_replay_of_old_rows_changes_nothing() -> None:
    wait = ModelWait(RecallConfig(0.99, **PAPER), [5_000_000, 5_000_000], "noneqsel")
    rng = np.random.default_rng(2)
    stream, delay, skew = rng.integers(0, 2, 5000), rng.integers(0, 300_000, 5000), np.zeros(5000, np.int64)
    wait.note_arrivals(stream, delay, skew)
    wait.adapt()
    before = wait.wait_us
    wait.note_arrivals(stream, delay + 3_600_000_000, skew)
    wait.note_results(delay + 3_600_000_000, skew, np.ones(5000), np.ones(5000), np.ones(5000, np.bool_))
    wait.adapt()
    assert wait.wait_us == before > 0


def test_of_state_that_does_not_fit_only_the_wait_is_taken_over() -> None:
    old = ModelWait(replace(QUALITY, grain_us=7), WINDOWS, "eqsel")
    run(lambda: old, 4, 50)
    new = ModelWait(QUALITY, WINDOWS, "eqsel")
    new.restore_state(old.state_arrays())
    assert new.wait_us == old.wait_us // 10 * 10
    assert int(new.delays.facts[:, 0].sum()) == 0


def simulate(strategy: str, results_of: list[float], seconds: int, seed: int = 8) -> list[int]:
    """Waits of each second: two streams of 100 rows/s with long delays that do not change, results as drawn."""
    wait = ModelWait(RecallConfig(0.95, **PAPER), [5_000_000, 5_000_000], strategy)
    rng, waits = np.random.default_rng(seed), []
    for second in range(seconds):
        # Every interval has the very same delays, from 0 to 10 s, in another order.
        delay = rng.permutation(np.repeat(np.minimum((1.0 / np.linspace(1, 0.01, 100) - 1) * 100_000, 1e7), 2)).astype(
            int
        )
        stream, in_order = np.arange(200) % 2, delay <= wait.wait_us
        results = np.where(in_order, rng.poisson(results_of[second % len(results_of)], 200), 0).astype(float)
        wait.note_arrivals(stream, delay, np.zeros(200, np.int64))
        wait.note_results(delay, np.zeros(200, np.int64), np.full(200, 500.0), results, in_order)
        wait.adapt()
        waits.append(wait.wait_us)
    return waits


def steps(waits: list[int]) -> list[int]:
    return [abs(after - before) for before, after in pairwise(waits)]


@pytest.mark.parametrize("strategy", ["eqsel", "noneqsel"])
@pytest.mark.parametrize("results", [0.0, 0.001, 0.005, 0.02], ids=["none", "one in 5 s", "one", "four"])
def test_with_few_results_the_wait_does_not_swing(strategy: str, results: float) -> None:
    waits = simulate(strategy, [results], 150)
    # By delays alone: the wait of the whole histogram, which differs a little between streams.
    assert min(waits) > 0
    assert max(steps(waits)) <= 50_000


def test_the_wait_stays_while_results_pause() -> None:
    pause = [50.0] * 20 + [0.0] * 30
    waits = simulate("noneqsel", pause, 150)
    for begin in (20, 70, 120):
        assert set(waits[begin : begin + 30]) == {waits[begin - 1]}


def test_after_a_whole_period_without_results_delays_alone_decide() -> None:
    silent, paused = simulate("noneqsel", [0.0], 130), simulate("noneqsel", [50.0] * 10 + [0.0] * 120, 130)
    # 59 intervals keep the wait; then there is no result left in P - L.
    assert set(paused[10:68]) == {paused[9]}
    assert paused[69:] == silent[69:]


def test_intervals_without_rows_count_for_the_last_period_and_let_the_wait_go_further() -> None:
    """Results of P are those of P in time; what may be gone in one interval may be gone in each that has passed."""
    zeros, ones = np.zeros(40, np.int64), np.ones(40)
    wait = ModelWait(QUALITY, [35], "eqsel")
    for intervals in (1, 1, 3):
        wait.note_arrivals(zeros, zeros + 140, zeros)
        wait.note_results(zeros, zeros, ones, ones, np.ones(40, np.bool_))
        wait.adapt(intervals)
    # P less L has four intervals: of the two before the last three one has left.
    assert wait.monitor.true.tolist() == [40.0, 0.0, 0.0, 40.0]
    slow = replace(QUALITY, max_change=0.02)
    steps = [ModelWait(slow, [35], "eqsel") for _ in range(2)]
    for wait, intervals in zip(steps, (1, 3), strict=True):
        wait.note_arrivals(zeros, zeros + 140, zeros)
        wait.note_results(zeros, zeros, ones, ones, np.ones(40, np.bool_))
        wait.adapt(intervals)
    assert [wait.wait_us for wait in steps] == [20, 60]
