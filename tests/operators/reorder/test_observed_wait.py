"""The wait by observed results: the least one under which enough of them are in order; without results, EqSel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import observed as naive
from operators.reorder import test_model_wait as adaptive
from operators.reorder.recall_settings import PAPER
from tests.example_counts import examples
from tocsin.operators.reorder.model_wait import ModelWait
from tocsin.operators.reorder.observed_wait import MIN_RESULTS, PRIOR, ObservedWait
from tocsin.operators.reorder.wait_policy import RecallConfig, WaitPolicy

GRAIN = 10_000
FREE = PAPER | {"max_change": 1e9, "bins": 2048}


def quality(recall: float, **more: Any) -> RecallConfig:
    return RecallConfig(recall, **(FREE | more))


def feed(wait: WaitPolicy, stream: Any, delay: Any, results: Any, in_order: Any = None) -> None:
    stream, delay = np.asarray(stream, np.int64), np.asarray(delay, np.int64)
    order = np.ones(len(stream), np.bool_) if in_order is None else np.asarray(in_order, np.bool_)
    skew = np.zeros(len(stream), np.int64)
    wait.note_arrivals(stream, delay, skew)
    wait.note_results(delay, skew, np.ones(len(stream)), np.asarray(results, np.float64), order)


def drawn(seed: int, rows: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    delay = np.where(random.random(rows) < 0.3, random.integers(1, 300 * GRAIN, rows), 0)
    return random.integers(0, 2, rows), delay, (random.random(rows) < np.where(delay > 0, 0.3, 0.05)).astype(float)


@pytest.mark.parametrize("recall", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_without_results_it_is_eqsel(recall: float, seed: int) -> None:
    stream, delay, _ = drawn(seed)
    windows = [5_000_000, 3_000_000]
    waits: list[WaitPolicy] = [ObservedWait(quality(recall), windows), ModelWait(quality(recall), windows, "eqsel")]
    for wait in waits:
        feed(wait, stream, delay, np.zeros(len(stream)))
        wait.adapt()
    assert waits[0].wait_us == waits[1].wait_us
    assert waits[0].estimated == waits[1].estimated


class Literal:
    """Steps of adaptation as they are written out; delays and skews are kept as in the test of the paper's steps."""

    def __init__(self, quality: RecallConfig) -> None:
        self.quality, self.wait = quality, 0
        self.rows = adaptive.Literal(quality, "eqsel")
        self.known: dict[int, float] = {}
        self.true: list[int] = []

    def adapt(self, rows: Sequence[tuple[int, int, int]], intervals: int) -> list[float]:
        """Choose the wait; give how far each recall that was looked at lies from what was required."""
        quality = self.quality
        fresh = naive.needs(rows, quality.grain_us, quality.bins)
        if fresh:
            self.known = naive.retained(self.known, fresh, intervals * quality.every_us / quality.over_us)
        self.true += [0] * (intervals - 1) + [sum(fresh.values())]
        true = sum(self.true[-(quality.over_us // quality.every_us - 1) :])
        histograms, syncs = self.rows.recent()
        required = naive.requirement(quality.recall, true, quality.enough)
        found, tried = naive.next_wait(
            self.known, histograms, adaptive.WINDOWS, syncs, quality.basic_us, quality.grain_us, required
        )
        most = intervals * int(quality.max_change * quality.every_us / quality.grain_us)
        self.wait = min(max(found, self.wait - most), self.wait + most)
        return [abs(recall - required) for recall in tried]


@examples(40)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.02, 0.2, 3.0]), st.sampled_from([0.03, 0.25]))
def test_each_step_is_what_is_written_out(seed: int, busy: float, pace: float) -> None:
    rng = np.random.default_rng(seed)
    asked = replace(adaptive.QUALITY, recall=float(rng.choice([0.5, 0.9, 0.99, 1.0])), max_change=pace)
    wait, literal = ObservedWait(asked, adaptive.WINDOWS), Literal(asked)
    for _ in range(12):
        arrivals, (delay, skew, cross, _, in_order) = adaptive.interval_of(rng, wait.wait_us, busy)
        results = rng.poisson(busy * rng.choice([0, 1, 4]), len(delay))
        intervals = int(rng.choice([1, 1, 3]))
        wait.note_arrivals(*arrivals)
        wait.note_results(delay, skew, cross, results.astype(float), in_order)
        literal.rows.note_arrivals(arrivals)
        distances = literal.adapt(
            [(int(d), int(s), int(n)) for d, s, n in zip(delay, skew, results, strict=True)], intervals
        )
        wait.adapt(intervals)
        # Within rounding of the requirement doubles may decide otherwise, and from there on all is different.
        if any(0 < distance < 1e-12 for distance in distances):
            return
        assert wait.wait_us == literal.wait * asked.grain_us


@pytest.mark.parametrize("recall", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_wait_is_the_least_that_would_have_had_enough_results_in_order(recall: float, seed: int) -> None:
    stream, delay, results = drawn(seed, 40_000)
    wait = ObservedWait(quality(recall, enough=1e12), [5_000_000, 3_000_000])
    feed(wait, stream, delay, results)
    wait.adapt()
    gave, k = np.ceil(delay[results > 0] / GRAIN), wait.wait_us // GRAIN
    share = np.mean(gave <= k)
    # What all rows say is worth `PRIOR` results beside the thousands that there are.
    slip = PRIOR / len(gave)
    assert share >= recall - slip
    assert np.mean(gave <= k - 1) < recall + slip
    assert wait.estimated == pytest.approx(share, abs=slip)


def test_results_among_late_rows_lengthen_the_wait_and_among_early_ones_shorten_it() -> None:
    stream, delay, _ = drawn(4, 20_000)
    found = []
    for gives in (delay > 200 * GRAIN, delay >= 0, delay == 0):
        wait = ObservedWait(quality(0.9), [5_000_000, 3_000_000])
        feed(wait, stream, delay, gives.astype(float))
        wait.adapt()
        found.append(wait.wait_us)
    assert found[0] > found[1] > found[2]


def test_results_of_a_whole_period_are_retained_when_there_are_many() -> None:
    """In 30 of 60 seconds rows are late. Afterwards K covers them while they are in the last period."""
    wait = ObservedWait(quality(0.9, enough=1e12), [5_000_000])
    zeros, many = np.zeros(2000, np.int64), np.ones(2000)
    waits = []
    for second in range(240):
        feed(wait, zeros, np.full(2000, 500 * GRAIN) if second < 30 else zeros, many)
        wait.adapt()
        waits.append(wait.wait_us)
    assert wait.observed.sum() == pytest.approx(2000 * 60, rel=0.05)
    assert waits[59] == 500 * GRAIN
    assert waits[-1] == 0


def test_old_results_expire_with_new_results() -> None:
    wait = ObservedWait(quality(0.9, enough=1e12, over_us=1_000_000), [5_000_000])
    zeros, many = np.zeros(2000, np.int64), np.ones(2000)
    feed(wait, zeros, np.full(2000, 500 * GRAIN), many)
    wait.adapt()
    assert wait.wait_us == 500 * GRAIN
    feed(wait, zeros[:200], zeros[:200], many[:200])
    wait.adapt()
    assert wait.observed.sum() == pytest.approx(2000 * math.exp(-200 / MIN_RESULTS) + 200)
    before = wait.observed.sum()
    feed(wait, zeros, zeros, many)
    wait.adapt()
    assert wait.observed.sum() == pytest.approx(before * math.exp(-1) + 2000)  # One period has passed.
    for _ in range(3):
        feed(wait, zeros, zeros, many)
        wait.adapt()
    assert wait.wait_us == 0


def test_a_recall_of_one_waits_for_every_result() -> None:
    stream, delay, results = drawn(5)
    wait = ObservedWait(quality(1.0), [5_000_000, 3_000_000])
    feed(wait, stream, delay, results)
    wait.adapt()
    assert wait.wait_us >= math.ceil(delay[results > 0].max() / GRAIN) * GRAIN


def test_what_cannot_be_waited_for_is_not_learnt_from() -> None:
    wait = ObservedWait(quality(0.9), [5_000_000])
    feed(wait, np.zeros(100, np.int64), np.full(100, 10**12), np.ones(100))
    wait.adapt()
    assert wait.wait_us == 0


def test_k_does_not_swing() -> None:
    """A few results a second, whose delays differ widely: the wait moves by little from one second to the next."""
    random = np.random.default_rng(6)
    wait = ObservedWait(quality(0.95, max_change=0.2), [5_000_000, 5_000_000])
    waits = []
    for _ in range(600):
        delay = np.where(random.random(200) < 0.2, (random.pareto(1.5, 200) * 100 * GRAIN).astype(int) % 10**7, 0)
        feed(wait, random.integers(0, 2, 200), delay, random.random(200) < 0.02, delay <= wait.wait_us)
        wait.adapt()
        waits.append(wait.wait_us)
    steps = np.abs(np.diff(waits[60:]))
    assert steps.max() <= 200_000
    assert np.ptp(waits[300:]) <= np.median(waits[300:])
