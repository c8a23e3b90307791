"""The time of a bucket against its definition, and what a join may count on."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.naive import elapsed as naive
from tocsin.runtime.contract import Int
from tocsin.stages.promising.elapsed import elapse, new_elapsed

STEPS = st.lists(st.integers(-30, 40), max_size=120)


def whole(times: Int, allowed_lateness: int, leap: int) -> tuple[list[int], list[bool]]:
    given_, behind = elapse(new_elapsed(), times, allowed_lateness, leap)
    return given_.tolist(), behind.tolist()


@given(STEPS, st.integers(0, 50), st.integers(1, 60), st.lists(st.integers(0, 120), max_size=4).map(sorted))
def test_it_is_as_defined_in_any_cut(steps: list[int], allowed_lateness: int, leap: int, cuts: list[int]) -> None:
    times = np.cumsum(np.array(steps, np.int64)) + 1_700_000_000_000_000
    expected = naive.elapsed(times.tolist(), allowed_lateness, leap)
    assert whole(times, allowed_lateness, leap) == expected
    clock, parts = new_elapsed(), []
    for part in np.split(times, [min(cut, len(times)) for cut in cuts]):
        parts.append(elapse(clock, part, allowed_lateness, leap)[0])
    assert np.concatenate(parts).tolist() == expected[0]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 25)), min_size=2, max_size=150), st.integers(25, 40))
def test_rows_come_no_further_apart_than_times_and_allowed_lateness(rows: list[tuple[int, int]], leap: int) -> None:
    # Each row comes at most 25 behind the newest, however long the gaps between rows are.
    gaps, delays = np.array(rows, np.int64).T
    times, allowed_lateness = np.cumsum(gaps) - delays, 25
    given_ = np.array(whole(times, allowed_lateness, leap)[0])
    assert (np.diff(given_) >= 0).all()
    apart = np.abs(times[:, None] - times[None, :])
    assert (np.abs(given_[:, None] - given_[None, :]) <= apart + allowed_lateness).all()


def test_one_clock_in_the_future_moves_it_by_a_leap_and_it_goes_on() -> None:
    times = np.arange(200) * 10
    times[50] += 10**9
    given_ = np.array(whole(times, 30, 40)[0])
    assert given_[50] == given_[49] + 40
    assert given_[51] == given_[50]
    # Two blocks later at the latest it moves as the rows do.
    assert (np.diff(given_)[50 + 66 :] == 10).all()
