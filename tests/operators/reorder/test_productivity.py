"""The productivity of rows by delay against its definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naive import disorder as naive
from tocsin.operators.reorder.productivity import (
    ProductivityProfile,
    close_interval,
    coarse_delay,
    new_profile,
    take_results,
)

BINS, GRAIN = 8, 10
Row = tuple[int, int, int, bool]
rows = st.lists(st.tuples(st.integers(0, 95), st.integers(0, 50), st.integers(0, 9), st.booleans()), max_size=40)


def take(profile: ProductivityProfile, rows: list[Row]) -> None:
    delay, cross, results = (np.array([row[n] for row in rows], np.int64) for n in range(3))
    in_order = np.array([row[3] for row in rows], np.bool_)
    take_results(profile, GRAIN, delay, cross.astype(float), results.astype(float), in_order)


@given(delay=st.integers(0, 10**9), grain=st.integers(1, 10**6))
def test_coarse_delays_are_rounded_up(delay: int, grain: int) -> None:
    assert coarse_delay(delay, grain) == naive.coarse(delay, grain)


@given(intervals=st.lists(rows, min_size=1, max_size=3))
def test_each_interval_has_maps_of_its_own(intervals: list[list[Row]]) -> None:
    profile = new_profile(BINS)
    for interval in intervals:
        take(profile, interval)
        usable = [row for row in interval if naive.coarse(row[0], GRAIN) < BINS]
        expected = naive.productivity(usable, GRAIN)
        cross, results, produced, true = close_interval(profile)
        for found, by_delay in zip((cross, results), expected, strict=True):
            assert found.tolist() == [by_delay.get(d, 0) for d in range(max(by_delay, default=-1) + 1)]
        assert produced == sum(row[2] for row in usable if row[3])
        assert true == sum(expected[1].values())


def test_rows_out_of_order_are_credited_the_best_of_the_interval() -> None:
    profile = new_profile(BINS)
    take(profile, [(0, 6, 2, True), (25, 0, 0, False), (0, 4, 3, True), (25, 0, 0, False)])
    cross, results, produced, true = close_interval(profile)
    assert cross.tolist() == [10, 0, 0, 12]
    assert results.tolist() == [5, 0, 0, 6]
    assert (produced, true) == (5, 11)


def test_without_a_row_in_order_there_is_no_credit() -> None:
    profile = new_profile(BINS)
    take(profile, [(25, 7, 7, False)])
    assert close_interval(profile)[3] == 0.0
