"""ADWIN against lists, and what it is for: to keep what is steady and to forget what has changed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naive import adwin as naive
from tocsin.operators.reorder.adwin import (
    COUNT,
    CUTS,
    LARGEST,
    OPEN_OTHER,
    OTHER,
    SQUARES,
    START,
    Adwin,
    new_adwin,
    take_rows,
)

DELTA = 0.002
seeds = st.integers(0, 10**6)


def values_of(seed: int, rows: int = 1500, largest: int = 60) -> np.ndarray:
    """Stretches with means of their own, some of one value only."""
    rng = np.random.default_rng(seed)
    stretches = [
        rng.binomial(largest, rng.choice([0.0, 0.02, 0.3, 0.9]), rng.integers(1, 700)) for _ in range(rows // 100)
    ]
    return np.concatenate(stretches)[:rows].astype(np.int64)


def take(adwin: Adwin, values: np.ndarray, stream: int = 0) -> None:
    take_rows(adwin, np.full(len(values), stream), values, 2 * values, DELTA)


def window_of(adwin: Adwin, i: int = 0) -> list[int]:
    places = (adwin.facts[i, START] + np.arange(adwin.facts[i, COUNT])) % adwin.ring.shape[1]
    return adwin.ring[i, places].tolist()


@given(seed=seeds, capacity=st.sampled_from([256, 512, 4096]))
def test_the_window_and_its_histogram_are_those_of_lists(seed: int, capacity: int) -> None:
    adwin, slow = new_adwin(1, 64, capacity), naive.Adwin(capacity, DELTA)
    values = values_of(seed)
    for begin in range(0, len(values), 100):
        take(adwin, values[begin : begin + 100])
        for value in values[begin : begin + 100].tolist():
            slow.take(value)
        window = slow.window
        assert window_of(adwin) == window
        assert adwin.histogram[0].tolist() == np.bincount(window, minlength=64).tolist()
        facts = adwin.facts[0]
        assert facts[CUTS] == slow.cuts
        assert facts[LARGEST] == max(window)
        assert facts[SQUARES] == sum(value * value for value in window)
        assert facts[OTHER] + facts[OPEN_OTHER] == 2 * sum(window)


@given(seed=seeds, cuts=st.lists(st.integers(0, 1500), max_size=8))
def test_any_cut_into_calls_gives_the_same_state(seed: int, cuts: list[int]) -> None:
    values = values_of(seed)
    stream = np.random.default_rng(seed).integers(0, 3, len(values))
    whole, cut = new_adwin(3, 64, 256), new_adwin(3, 64, 256)
    take_rows(whole, stream, values, values, DELTA)
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(values)], strict=True):
        take_rows(cut, stream[begin:end], values[begin:end], values[begin:end], DELTA)
    for one, other in zip(whole, cut, strict=True):
        assert np.array_equal(one, other)


@given(seed=seeds)
def test_streams_do_not_disturb_each_other(seed: int) -> None:
    values = values_of(seed, 600)
    both, alone = new_adwin(2, 64, 256), new_adwin(1, 64, 256)
    for begin in range(0, len(values), 50):
        take(both, values[begin : begin + 50], 0)
        take(both, 63 - values[begin : begin + 50], 1)
    take(alone, values)
    assert window_of(both, 0) == window_of(alone)


def test_a_value_beyond_the_last_bin_is_passed_over() -> None:
    adwin = new_adwin(1, 8, 256)
    take(adwin, np.array([1, 8, 3, 10**9]))
    assert window_of(adwin) == [1, 3]


def test_without_a_change_nothing_is_dropped_but_for_the_bound() -> None:
    adwin, rng = new_adwin(1, 2048, 8192), np.random.default_rng(5)
    for _ in range(8):
        take(adwin, rng.zipf(2.0, 1000).clip(1, 2000) - 1)
    assert (adwin.facts[0, COUNT], adwin.facts[0, CUTS]) == (8000, 0)
    take(adwin, rng.zipf(2.0, 10_000).clip(1, 2000) - 1)
    assert adwin.facts[0, CUTS] == 0
    assert 3 * 8192 // 4 < adwin.facts[0, COUNT] <= 8192


def test_after_a_change_the_window_holds_little_of_what_was_before() -> None:
    adwin, rng = new_adwin(1, 256, 65_536), np.random.default_rng(6)
    take(adwin, rng.poisson(20, 20_000))
    take(adwin, rng.poisson(100, 1000))
    assert adwin.facts[0, CUTS] > 0
    assert sum(value < 60 for value in window_of(adwin)) < 100
