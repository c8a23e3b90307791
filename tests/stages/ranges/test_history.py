"""Readings of the elements of an era, beside plain sums: ranges whose ends meet elements, borders and each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.stages.ranges.cuts import next_number
from tocsin.stages.ranges.history import SUMMED, USED, History, no_history, sum_up, weight_inside, weight_of_cover
from tocsin.stages.ranges.rank_table import make_table, weights_inside


def filled(points: np.ndarray, weights: np.ndarray, summed: int, units_log2: int) -> History:
    """An era of some elements, of which the first are summed, in two goes."""
    history = no_history(points.shape[1], len(points) + 1, points[: len(points) // 2 + 1], units_log2)
    for stop in (summed // 2, summed, len(points)):
        start = history.seen[USED]
        history.points[start:stop], history.weights[start:stop] = points[start:stop], weights[start:stop]
        history.seen[USED] = stop
        if stop <= summed:
            sum_up(history)
    assert history.seen[SUMMED] == summed
    return history


@given(st.data(), st.sampled_from([2, 3]), st.sampled_from([3, 40, 1000]), st.integers(2, 5))
def test_a_reading_is_the_sum_of_what_lies_in_the_range_and_a_cover_is_no_less(
    data: st.DataObject, dims: int, domain: int, units_log2: int
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n = data.draw(st.integers(1, 400))
    # A small domain has many equal coordinates, which then are borders too, several of them at once.
    points = rng.integers(0, domain, (n, dims)).astype(float)
    weights = rng.integers(1, 1 << 40, n)
    low = rng.integers(-1, domain + 1, (20, dims)).astype(float)
    high = low + rng.integers(0, domain + 1, (20, dims))
    low[0], high[1] = -np.inf, np.inf
    spans = np.concatenate([low, next_number(high, np.inf)], axis=1)
    history = filled(points, weights, data.draw(st.integers(0, n)), units_log2)
    sums = [int(weights[((points >= a) & (points <= b)).all(axis=1)].sum()) for a, b in zip(low, high, strict=True)]
    assert [weight_inside(history, spans, slot) for slot in range(20)] == sums
    assert all(weight_of_cover(history, spans, slot) >= total for slot, total in enumerate(sums))
    if dims == 2:
        some = np.arange(19, -1, -2)
        assert weights_inside(make_table(points, weights), spans, some).tolist() == [sums[slot] for slot in some]


def test_a_cover_is_exact_where_a_range_ends_at_borders() -> None:
    points = np.array([[x, y] for x in range(8) for y in range(8)], dtype=float)
    history = filled(points, np.ones(64, dtype=np.int64), 64, 2)
    inside = history.borders[:, 0] + 0.5, history.borders[:, 2] - 0.5
    spans = np.concatenate(inside)[None]
    assert weight_of_cover(history, spans, 0) >= weight_inside(history, spans, 0) > 0


def test_no_elements_are_no_weight() -> None:
    table = make_table(np.zeros((0, 2)), np.zeros(0, dtype=np.int64))
    spans = np.array([[-np.inf, -np.inf, np.inf, np.inf]])
    assert weights_inside(table, spans, np.array([0])).tolist() == [0]


@pytest.mark.parametrize("count", [1, 2, 3, 255, 256, 257])
def test_a_table_takes_any_number_of_elements(count: int) -> None:
    points = np.arange(2.0 * count).reshape(count, 2)
    spans = np.array([[0.0, 0.0, 2.0 * count, 2.0 * count], [2.0, 0.0, 3.0, 9.0]])
    found = weights_inside(make_table(points, np.full(count, 7)), spans, np.array([0, 1]))
    assert found.tolist() == [7 * count, 7 if count > 1 else 0]
