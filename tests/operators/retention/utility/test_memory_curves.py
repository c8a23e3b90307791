"""How many results memory buys: against every strategy there is, on small cases, and the paper's own equations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.p001.baselines import divide_in_proportion
from naive import memory as naive
from tests.example_counts import examples
from tocsin.operators.retention.utility.age_model import AgeCurve
from tocsin.operators.retention.utility.alloc import alloc, alloc_errors, alloc_mixed
from tocsin.operators.retention.utility.frequency_model import expected_results, rate_curve
from tocsin.operators.retention.utility.memory_curves import (
    ErrorCurve,
    RateCurve,
    divide,
    divide_errors,
    errors_together,
    together,
    told,
)

AMOUNTS = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=12)


def age(*p: float) -> AgeCurve:
    return AgeCurve(np.array(p, np.float64))


def without_minima(p: list[float]) -> list[float]:
    """Make a curve rise, then fall."""
    return sorted(p[::2]) + sorted(p[1::2], reverse=True)


@pytest.mark.parametrize("corners", [0, 1, 2, 16, 17, 18, 500])
def test_of_a_curve_some_points_are_told_with_both_ends(corners: int) -> None:
    memory = np.arange(corners) * 2.0
    points = told(memory, memory**2)
    assert points.shape == (min(corners, 17), 2)
    assert (points[:, 1] == points[:, 0] ** 2).all()
    assert (np.diff(points[:, 0]) > 0).all()
    assert set(memory[[0, -1]] if corners else ()) <= set(points[:, 0])


def test_example_3_3_keeps_a_row_for_three_units_and_gives_four_results_in_them() -> None:
    curve = age(1, 1, 2, 1)
    assert curve.k_opt == 3
    assert curve.rate_curve(1).rate_at(1) == pytest.approx(4 / 3)
    assert curve.rate_curve(1).rate_at(2) == pytest.approx(8 / 3)
    assert naive.best_average([1, 1, 2, 1], 1) == pytest.approx(4 / 3)
    assert naive.best_average([1, 1, 2, 1], 2) == pytest.approx(8 / 3)


def test_example_3_4_bridges_the_minimum_and_gives_four_results_per_unit() -> None:
    curve = age(3, 0, 2)
    assert (curve.k_opt, curve.has_minima) == (1, True)
    assert curve.rate_curve(1).rate_at(2) == pytest.approx(4)
    assert naive.best_average([3, 0, 2], 2) == pytest.approx(4)


@given(AMOUNTS)
def test_priority_and_k_opt_are_those_of_the_definition(p: list[float]) -> None:
    curve = age(*p)
    assert curve.priorities() == pytest.approx([naive.priority(p, i) for i in range(len(p))])
    assert curve.k_opt == naive.k_opt(p)
    assert curve.has_minima == any(
        p[i] > p[j] < p[k] for i in range(len(p)) for j in range(i, len(p)) for k in range(j, len(p))
    )


@examples(25)
@given(st.lists(st.integers(0, 5).map(float), min_size=1, max_size=4), st.integers(1, 3))
def test_no_strategy_gives_more_and_without_minima_one_gives_as_much(p: list[float], cells: int) -> None:
    bound = age(*p).rate_curve(1).rate_at(cells)
    assert naive.best_average(p, cells) <= bound + 1e-9
    smooth = without_minima(p)
    # Between two late moments a strategy may be in the midst of a period.
    slack = max(smooth) * len(smooth) / 60
    assert naive.best_average(smooth, cells) >= age(*smooth).rate_curve(1).rate_at(cells) - slack


@given(AMOUNTS.map(without_minima), st.integers(1, 8), st.floats(0, 100))
def test_without_minima_the_rate_is_that_of_equation_3(p: list[float], r: int, memory: float) -> None:
    assert age(*p).rate_curve(r).rate_at(memory) == pytest.approx(naive.equation_3(p, memory, r), abs=1e-9)


FREQUENCIES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6)


@given(FREQUENCIES, st.integers(1, 5), st.integers(1, 5), st.integers(1, 20), st.floats(0, 120))
def test_the_rate_of_prob_is_that_of_the_definition(
    counts: list[tuple[int, int]], r1: int, r2: int, window: int, memory: float
) -> None:
    own, other = (np.array(column, np.float64) / sum(column) for column in zip(*counts, strict=True))
    curve = rate_curve(own, other, r1, r2, window)
    wanted = naive.prob(own.tolist(), other.tolist(), r1, r2, window, memory)
    assert curve.rate_at(memory) == pytest.approx(wanted, abs=1e-9)
    assert curve.rate_at(curve.memory_for(wanted)) == pytest.approx(wanted, abs=1e-9)
    assert curve.most == pytest.approx(r1 * float(own @ expected_results(other, r2, window)))


@st.composite
def curves(draw: st.DrawFn) -> RateCurve:
    """A concave curve with corners at whole numbers of rows."""
    widths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    slopes = sorted(draw(st.lists(st.integers(0, 9), min_size=len(widths), max_size=len(widths))), reverse=True)
    memory = np.concatenate([[0], np.cumsum(widths)]).astype(np.float64)
    rate = np.concatenate([[0], np.cumsum(np.multiply(widths, slopes))]).astype(np.float64)
    return RateCurve(memory, rate)


@given(st.lists(curves(), min_size=1, max_size=3), st.integers(0, 30))
def test_memory_is_divided_between_windows_as_well_as_any_division_can(given_: list[RateCurve], memory: int) -> None:
    best = naive.best_split([curve.rate_at for curve in given_], memory)
    shares = divide(given_, memory)
    assert sum(shares) <= memory + 1e-9
    assert sum(curve.rate_at(share) for curve, share in zip(given_, shares, strict=True)) == pytest.approx(best)
    assert together(given_).rate_at(memory) == pytest.approx(best)


@given(
    AMOUNTS.map(without_minima), AMOUNTS.map(without_minima), st.integers(1, 3), st.integers(1, 3), st.integers(0, 30)
)
def test_memory_is_split_between_s1_and_s2_as_equation_3_is_largest(
    p1: list[float], p2: list[float], r1: int, r2: int, memory: int
) -> None:
    shares = divide([age(*p1).rate_curve(r1), age(*p2).rate_curve(r2)], memory)
    # Corners are where a whole number of rows fits, as rates are whole: some split into whole rows is the best.
    best = max(naive.equation_3(p1, own, r1) + naive.equation_3(p2, memory - own, r2) for own in range(memory + 1))
    found = naive.equation_3(p1, shares[0], r1) + naive.equation_3(p2, shares[1], r2)
    assert sum(shares) <= memory + 1e-9
    assert found == pytest.approx(best, abs=1e-9)


@given(
    FREQUENCIES, st.integers(1, 3), st.integers(1, 3), st.tuples(st.integers(1, 6), st.integers(1, 6)), st.floats(0, 1)
)
def test_memory_is_split_between_s1_and_s2_as_the_rate_of_prob_is_largest(
    counts: list[tuple[int, int]], r1: int, r2: int, windows: tuple[int, int], part: float
) -> None:
    f1, f2 = (np.array(column, np.float64) / sum(column) for column in zip(*counts, strict=True))
    memory = part * (r1 * windows[0] + r2 * windows[1])
    curves = [rate_curve(f1, f2, r1, r2, windows[0]), rate_curve(f2, f1, r2, r1, windows[1])]

    def rate(own: float) -> float:
        first = naive.prob(f1.tolist(), f2.tolist(), r1, r2, windows[0], own)
        return first + naive.prob(f2.tolist(), f1.tolist(), r2, r1, windows[1], memory - own)

    shares = divide(curves, memory)
    assert sum(shares) <= memory + 1e-9
    # Best where one of the windows fits whole values, as the rate is straight between; the last value in part counts.
    ends = [0.0, memory]
    for f, other, r, window in ((f1, f2, r1, windows[0]), (f2, f1, r2, windows[1])):
        whole = np.cumsum(r * window * f[np.argsort(-other, kind="stable")])
        ends += [*whole.tolist(), *(memory - whole).tolist()]
    best = max(rate(own) for own in ends if 0 <= own <= memory)
    assert rate(shares[0]) == pytest.approx(best, abs=1e-9)
    assert sum(curve.rate_at(share) for curve, share in zip(curves, shares, strict=True)) == pytest.approx(
        best, abs=1e-9
    )


# The oracle tries 20,000 qualities.
@examples(25)
@given(st.lists(st.tuples(curves(), st.integers(1, 4)), min_size=1, max_size=4), st.integers(0, 40))
def test_alloc_makes_the_least_quality_as_large_as_can_be(joins: list[tuple[RateCurve, int]], memory: int) -> None:
    needs = [lambda q, curve=curve: curve.memory_for(q * curve.most) for curve, _ in joins]
    weights = [float(weight) for _, weight in joins]
    shares, least = alloc(needs, memory, weights)
    assert sum(shares) <= memory + 1e-6
    assert least == pytest.approx(naive.best_least(needs, memory, weights), abs=2e-4)
    reached = [curve.recall_at(share) / weight for (curve, weight), share in zip(joins, shares, strict=True)]
    assert min(reached) >= min(least, 1 / max(weights)) - 1e-6


@pytest.mark.parametrize("weight", [1e-200, 1e-6, 1e-3])
def test_a_join_of_next_to_no_weight_takes_nothing_from_the_others(weight: float) -> None:
    straight = [lambda q: 100.0 * q, lambda q: 100.0 * q]
    (small, large), least = alloc(straight, 60.0, [weight, 1.0])
    assert (small, large) == (pytest.approx(60 * weight, rel=0.01), pytest.approx(60, rel=0.01))
    assert least == pytest.approx(0.6, rel=0.01)
    (small, large), least = alloc(straight, 150.0, [weight, 1.0])
    assert (small, large) == (pytest.approx(50), pytest.approx(100))
    assert least == pytest.approx(0.5 / weight)


@given(st.lists(curves(), min_size=1, max_size=4), st.integers(0, 40))
def test_no_join_is_worse_off_with_alloc_than_the_worst_with_equal_shares(joins: list[RateCurve], memory: int) -> None:
    needs = [lambda q, curve=curve: curve.memory_for(q * curve.most) for curve in joins]
    prop = divide_in_proportion(needs, memory)
    assert sum(prop) <= memory + 1e-9 or sum(prop) == pytest.approx(sum(need(1.0) for need in needs))
    _, least = alloc(needs, memory)
    worst = min(curve.recall_at(share) for curve, share in zip(joins, prop, strict=True))
    assert least >= worst - 1e-6


@st.composite
def error_curves(draw: st.DrawFn) -> ErrorCurve:
    """Errors that whole amounts of memory allow; they need not fall all the way."""
    amounts = sorted(draw(st.sets(st.integers(1, 9), min_size=1, max_size=5)))
    errors = draw(
        st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0, 3.0]), min_size=len(amounts), max_size=len(amounts))
    )
    return ErrorCurve(np.array(amounts, np.float64), np.array(errors))


@given(error_curves(), st.floats(0, 10), st.sampled_from([0.0, 0.1, 0.3, 2.0]))
def test_an_error_curve_gives_the_least_memory_for_an_error(curve: ErrorCurve, memory: float, error: float) -> None:
    pairs = list(zip(curve.memory.tolist(), curve.error.tolist(), strict=True))
    assert curve.error_at(memory) == min((e for m, e in pairs if m <= memory), default=np.inf)
    wanted = max(error, min(e for _, e in pairs))
    assert curve.memory_for(error) == min(m for m, e in pairs if e <= wanted)
    assert curve.memory_for(np.inf) == 0


@given(st.lists(st.tuples(error_curves(), st.sampled_from([1.0, 2.0])), min_size=1, max_size=3), st.integers(0, 25))
def test_alloc_makes_the_largest_error_as_small_as_can_be(joins: list[tuple[ErrorCurve, float]], memory: int) -> None:
    needs, weights = [curve.memory_for for curve, _ in joins], [weight for _, weight in joins]
    shares, largest = alloc_errors(needs, memory, weights)
    assert sum(shares) <= memory
    reached = [weight * curve.error_at(share) for (curve, weight), share in zip(joins, shares, strict=True)]
    best = naive.best_largest([curve.error_at for curve, _ in joins], memory, weights)
    # Errors that no memory can lower do not count for the others.
    if all(curve.error.min() == 0 for curve, _ in joins):
        assert max(reached) == pytest.approx(best)
        assert max(reached) <= largest + 1e-9
    else:
        assert max(reached) <= max(best, *(w * float(c.error.min()) for c, w in joins)) + 1e-9
    shares_of_prop = divide_in_proportion(
        [lambda q, curve=curve: q * curve.memory_for(0.0) for curve, _ in joins], memory
    )
    by_prop = [weight * curve.error_at(share) for (curve, weight), share in zip(joins, shares_of_prop, strict=True)]
    assert max(reached) <= max(by_prop) + 1e-9


@given(
    st.lists(curves(), max_size=3),
    st.lists(error_curves(), max_size=3),
    st.integers(0, 40),
    st.sampled_from([1.0, 2.0]),
)
def test_joins_of_two_kinds_have_memories_of_their_own(
    subsets: list[RateCurve], samples: list[ErrorCurve], memory: int, weight: float
) -> None:
    by_recall = [lambda q, curve=curve: curve.memory_for(q * curve.most) for curve in subsets]
    by_error = [curve.memory_for for curve in samples]
    weights = [weight] * len(subsets), [weight] * len(samples)
    found = alloc_mixed(by_recall, by_error, memory, weights)
    whole = sum(curve.memory_for(curve.most) for curve in subsets), sum(curve.memory_for(0.0) for curve in samples)
    assert sum(found.pools) <= memory + 1e-9
    assert found.pools[0] * whole[1] == pytest.approx(found.pools[1] * whole[0])
    assert sum(found.pools) == pytest.approx(min(memory, sum(whole)))
    assert (found.subsets, found.least) == (
        (alloc(by_recall, found.pools[0], weights[0])[0], alloc(by_recall, found.pools[0], weights[0])[1])
        if subsets
        else ([], None)
    )
    assert found.samples == alloc_errors(by_error, found.pools[1], weights[1])[0]
    assert (found.largest is None) == (not samples)


@st.composite
def falling_variances(draw: st.DrawFn) -> tuple[ErrorCurve, float]:
    """Errors whose squares fall ever more slowly with each row of memory, and a number of results."""
    first, results = draw(st.integers(1, 3)), float(draw(st.integers(1, 5)))
    falls = sorted(draw(st.lists(st.integers(0, 9), max_size=5)), reverse=True)
    variance = sum(falls) + draw(st.integers(0, 4)) - np.cumsum([0, *falls])
    return ErrorCurve(first + np.arange(len(variance), dtype=np.float64), np.sqrt(variance) / 4), results


@given(st.lists(falling_variances(), min_size=1, max_size=3), st.integers(0, 20))
def test_memory_is_divided_between_samples_so_that_their_sum_is_closest(
    samples: list[tuple[ErrorCurve, float]], memory: int
) -> None:
    curves, results = [curve for curve, _ in samples], [n for _, n in samples]
    plain = [(list(zip(c.memory.astype(int).tolist(), c.error.tolist(), strict=True)), n) for c, n in samples]
    whole = errors_together(curves, results)
    for corner, error in zip(whole.memory.tolist(), whole.error.tolist(), strict=True):
        assert error == pytest.approx(naive.best_error_of_sum(plain, int(corner)), abs=1e-9)
    assert whole.error_at(memory) >= naive.best_error_of_sum(plain, memory) - 1e-9
    shares = divide_errors(curves, results, memory)
    assert sum(shares) <= memory + 1e-9
    at = [curve.error_at(share + 1e-9) for curve, share in zip(curves, shares, strict=True)]
    if memory in whole.memory:
        reached = sum((error * n) ** 2 for error, n in zip(at, results, strict=True)) ** 0.5 / sum(results)
        assert reached == pytest.approx(whole.error_at(memory), abs=1e-9)
