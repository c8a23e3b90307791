"""The wait by observed results: the least one under which enough of them are in order; without results, EqSel."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.pages import pack, unpack
from tocsin.stages.order.adaptive import AdaptiveWait, Quality
from tocsin.stages.order.observed import LASTING, PRIOR, ObservedWait

GRAIN = 10_000
FREE = {"pace": 1e9, "bins": 2048}


def quality(recall: float, **more: Any) -> Quality:
    return Quality(recall, strategy="EqSel", **(FREE | more))


def feed(wait: AdaptiveWait, stream: Any, delay: Any, results: Any, in_order: Any = None) -> None:
    stream, delay = np.asarray(stream, np.int64), np.asarray(delay, np.int64)
    order = np.ones(len(stream), np.bool_) if in_order is None else np.asarray(in_order, np.bool_)
    wait.note_arrivals(stream, delay, np.zeros(len(stream), np.int64))
    wait.note_results(stream, delay, np.ones(len(stream)), np.asarray(results, np.float64), order)


def drawn(seed: int, rows: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    delay = np.where(random.random(rows) < 0.3, random.integers(1, 300 * GRAIN, rows), 0)
    return random.integers(0, 2, rows), delay, (random.random(rows) < np.where(delay > 0, 0.3, 0.05)).astype(float)


@pytest.mark.parametrize("recall", [0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_without_results_it_is_eqsel(recall: float, seed: int) -> None:
    stream, delay, _ = drawn(seed)
    waits = [kind(quality(recall), [5_000_000, 3_000_000]) for kind in (ObservedWait, AdaptiveWait)]
    for wait in waits:
        feed(wait, stream, delay, np.zeros(len(stream)))
        wait.adapt()
    assert waits[0].wait_us == waits[1].wait_us
    assert waits[0].estimated == waits[1].estimated


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


def test_old_results_are_forgotten_as_new_ones_come() -> None:
    wait = ObservedWait(quality(0.9, enough=1e12), [5_000_000])
    zeros, many = np.zeros(2000, np.int64), np.ones(2000)
    feed(wait, zeros, np.full(2000, 500 * GRAIN), many)
    wait.adapt()
    assert wait.wait_us == 500 * GRAIN
    before = wait.observed.sum()
    feed(wait, zeros, zeros, many)
    wait.adapt()
    assert wait.observed.sum() == pytest.approx(before * math.exp(-2000 / LASTING) + 2000)
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
    wait = ObservedWait(quality(0.95, pace=0.2), [5_000_000, 5_000_000])
    waits = []
    for _ in range(600):
        delay = np.where(random.random(200) < 0.2, (random.pareto(1.5, 200) * 100 * GRAIN).astype(int) % 10**7, 0)
        feed(wait, random.integers(0, 2, 200), delay, random.random(200) < 0.02, delay <= wait.wait_us)
        wait.adapt()
        waits.append(wait.wait_us)
    steps = np.abs(np.diff(waits[60:]))
    assert steps.max() <= 200_000
    assert np.ptp(waits[300:]) <= np.median(waits[300:])


@given(st.integers(0, 10**6), st.lists(st.integers(0, 600), max_size=5), st.booleans())
def test_neither_cuts_nor_pages_show(seed: int, cuts: list[int], through_pages: bool) -> None:
    stream, delay, results = drawn(seed, 600)
    in_order = delay < 50 * GRAIN
    whole = ObservedWait(quality(0.9), [5_000_000, 3_000_000])
    parts = ObservedWait(quality(0.9), [5_000_000, 3_000_000])
    for begin in (0, 300):
        end = begin + 300
        feed(whole, stream[begin:end], delay[begin:end], results[begin:end], in_order[begin:end])
        whole.adapt()
        inner = [begin, *sorted(cut for cut in cuts if begin < cut < end), end]
        for a, b in pairwise(inner):
            feed(parts, stream[a:b], delay[a:b], results[a:b], in_order[a:b])
            if through_pages:
                stored = unpack(pack(parts.arrays()))[0]
                parts = ObservedWait(quality(0.9), [5_000_000, 3_000_000])
                parts.load(stored)
        parts.adapt()
        assert (parts.wait_us, parts.estimated) == (whole.wait_us, whole.estimated)
