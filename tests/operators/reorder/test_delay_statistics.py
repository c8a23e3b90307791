"""Adwin and skews by stream against lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naive import adwin as naive_adwin
from naive import disorder as naive
from tocsin.operators.reorder.adwin import Adwin, new_adwin
from tocsin.operators.reorder.delay_statistics import (
    DELTA,
    largest_delays,
    pack_delays,
    sync_estimates,
    take_arrivals,
    unpack_delays,
)

BINS, GRAIN, HISTORY = 16, 10, 256
Arrivals = tuple[np.ndarray, np.ndarray, np.ndarray]
seeds = st.integers(0, 10**6)


def arrivals_of(seed: int, rows: int = 900) -> Arrivals:
    """Rows of three streams, the third of which may be silent; delays change, and a few are beyond the last bin."""
    rng = np.random.default_rng(seed)
    stream = rng.integers(0, rng.integers(2, 4), rows)
    half = rng.integers(0, rows)
    delay = np.concatenate([rng.integers(0, 30, half), rng.integers(100, 170, rows - half)])
    delay[rng.random(rows) < rng.choice([0.0, 0.5])] = 0
    return stream, delay, rng.integers(0, 200, rows)


def take(delays: Adwin, arrivals: Arrivals, begin: int = 0, end: int | None = None) -> None:
    take_arrivals(delays, GRAIN, DELTA, *(column[begin:end] for column in arrivals))


def equal(one: Adwin, other: Adwin) -> bool:
    """Tell whether two states are alike; what lies in a ring outside of the window is of no use."""
    first, second = pack_delays(one), pack_delays(other)
    same = all(np.array_equal(first[name], second[name]) for name in first)
    return same and np.array_equal(one.histogram, other.histogram)


@given(seed=seeds)
def test_histograms_and_skews_are_those_of_the_adaptive_windows(seed: int) -> None:
    arrivals = arrivals_of(seed)
    delays = new_adwin(3, BINS, HISTORY)
    take(delays, arrivals)
    windows = [naive_adwin.Adwin(HISTORY, DELTA) for _ in range(3)]
    skews: list[list[int]] = [[], [], []]
    for stream, delay, skew in zip(*(column.tolist() for column in arrivals), strict=True):
        d = naive.coarse(delay, GRAIN)
        if d >= BINS:
            continue
        windows[stream].take(d)
        # A window loses its oldest rows only.
        skews[stream] = [*skews[stream], min(skew, BINS * GRAIN)][-len(windows[stream].window) :]
    for i, window in enumerate(windows):
        assert delays.histogram[i].tolist() == np.bincount(window.window, minlength=BINS).tolist()
        assert largest_delays(delays)[i] == max(window.window, default=-1)
    assert sync_estimates(delays).tolist() == naive.sync_estimates(skews)


def test_before_any_arrival_there_is_nothing_to_wait_for() -> None:
    delays = new_adwin(2, BINS, HISTORY)
    assert sync_estimates(delays).tolist() == [0, 0]
    assert largest_delays(delays).tolist() == [-1, -1]
    assert equal(delays, unpack_delays(pack_delays(delays), BINS, HISTORY))


def test_a_stored_window_takes_at_most_two_bytes_per_row() -> None:
    rng = np.random.default_rng(3)
    delays = new_adwin(1, 8192, 65_536)
    take_arrivals(
        delays, 1, DELTA, np.zeros(100_000, np.int64), rng.integers(0, 8000, 100_000), np.zeros(100_000, np.int64)
    )
    arrays = pack_delays(delays)
    assert sum(array.nbytes for array in arrays.values()) < 140_000
