"""The sampling fraction that memory allows: against all sets of results, exact distributions, simulated windows."""

from __future__ import annotations

from math import exp, floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import memory as naive
from tocsin.operators.retention.utility.age_model import AgeCurve
from tocsin.operators.retention.utility.sampling_fraction import (
    expected_at_most,
    missed_shares,
    overflow_chance,
    planned_use,
    pps_fraction,
    pps_use,
    solve,
    uniform_use_by_age,
    uniform_use_by_frequency,
    variance,
)

FRACTIONS = st.floats(0.001, 1)


def poisson(mean: float, most: int) -> list[float]:
    chances = [exp(-mean)]
    for k in range(1, most):
        chances.append(chances[-1] * mean / k)
    return chances


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 7)), min_size=1, max_size=4), FRACTIONS)
def test_theorem_4_2_is_the_average_over_all_sets_of_results(values: list[tuple[int, int]], p: float) -> None:
    window, r1 = 12.0, 3.0
    own = np.array([count for count, _ in values], np.float64) / sum(count for count, _ in values)
    total = max(1, sum(n for _, n in values))
    other, r2 = np.array([n for _, n in values]) / total, total / window
    stays = [naive.expected_stay([window * i / n for i in range(1, n + 1)], p) for _, n in values]
    wanted = r1 * sum(f * stay for f, stay in zip(own, stays, strict=True))
    assert uniform_use_by_frequency(own, other, r1, r2, window, p) == pytest.approx(wanted, abs=1e-9)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), FRACTIONS)
def test_theorem_4_3_is_the_average_over_all_sets_of_results(p_of_age: list[int], p: float) -> None:
    ages = [2.5 * (age + 1) for age, count in enumerate(p_of_age) for _ in range(count)]
    curve = AgeCurve(np.array(p_of_age, np.float64), 2.5)
    assert uniform_use_by_age(curve, 4.0, p) == pytest.approx(4 * naive.expected_stay(ages, p), abs=1e-9)


@given(st.floats(0, 1))
def test_the_fraction_uses_the_average_that_was_planned(share: float) -> None:
    def use(p: float) -> float:
        return uniform_use_by_age(AgeCurve(np.array([1.0, 1.0, 2.0, 1.0])), 10, p)

    assert use(1.0) == pytest.approx(40)
    assert use(solve(use, 40 * share)) == pytest.approx(40 * share, abs=1e-6)
    assert solve(use, 41) == 1


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9)), min_size=1, max_size=6), st.floats(0.01, 1))
def test_pps_takes_no_row_with_a_probability_above_1_and_uses_its_memory(
    values: list[tuple[int, int]], share: float
) -> None:
    rows, n = (np.array(column, np.float64) for column in zip(*values, strict=True))
    useful = float(rows[n > 0].sum())
    p = pps_fraction(rows, n, share * useful)
    assert pps_use(rows, n, p) == pytest.approx(share * useful)
    everything = pps_fraction(rows, n, useful + 1)
    assert (np.minimum(1, everything * n[n > 0]) == 1).all()


@given(st.floats(0.1, 200), st.floats(0, 3))
def test_the_chance_of_overflow_is_above_that_of_random_arrivals(mean: float, over: float) -> None:
    memory = mean + over * mean**0.5
    exact = 1 - sum(poisson(mean, floor(memory) + 1))
    assert overflow_chance(mean, mean, memory) >= exact - 1e-12
    # Each of 2 mean rows is held with probability 1/2: less variance, and a closer bound.
    assert overflow_chance(mean, variance(mean, 2 * mean, 0.0), memory) <= overflow_chance(mean, mean, memory) + 1e-12


@pytest.mark.parametrize("dispersion", [0.0, 1.0])
def test_memory_that_is_planned_overflows_no_more_often_than_the_chance_asked_for(dispersion: float) -> None:
    memory, most, chance, moments = 60, 100, 0.01, 20_000
    planned = planned_use(memory, most, chance, dispersion)
    assert memory - 6 * memory**0.5 < planned < memory
    random = np.random.default_rng(4)
    rows = np.full(moments, most) if dispersion == 0 else random.poisson(most, moments)
    held = random.binomial(rows, planned / most)
    assert (held > memory).mean() <= chance
    assert (held > memory).any()
    spread = variance(planned, most, dispersion)
    assert held.var() == pytest.approx(spread, rel=0.05)


def test_with_memory_for_every_row_all_of_it_is_planned() -> None:
    assert planned_use(100, 100, 0.01, dispersion=0.0) == 100
    assert planned_use(100, 50) == 50
    assert 0 < planned_use(1, 100) < 1


@given(st.floats(1e-9, 60))
def test_the_share_of_results_beyond_what_was_expected_is_that_of_the_definition(mean: float) -> None:
    shares, chances = missed_shares(mean), poisson(mean, 300)
    for n in (0, 1, 5, floor(mean), floor(mean) + 10):
        wanted = sum((k - n) * chance for k, chance in enumerate(chances) if k > n) / mean
        assert shares[n] == pytest.approx(wanted, abs=1e-9)
    n = expected_at_most(mean, 0.01)
    assert shares[n] <= 0.01 < shares[n - 1]


def test_many_results_of_a_row_are_expected_with_a_small_margin() -> None:
    assert expected_at_most(0.0, 0.01) == 0
    # Four standard deviations of 5,000 are 283.
    assert 5000 < expected_at_most(5000.0, 1e-4) < 5283
