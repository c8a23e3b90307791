"""Readings of the elements of an era, beside plain sums: ranges whose ends meet elements, borders and each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.stages.ranges.cuts import next_number
from tocsin.stages.ranges.history import SUMMED, USED, History, no_history, sum_up, weight_inside, weight_of_cover
from tocsin.stages.ranges.places import place_of, places_among
from tocsin.stages.ranges.sweep import weights_inside


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
        assert weights_inside(points, weights, spans).tolist() == sums


def test_a_cover_is_exact_where_a_range_ends_at_borders() -> None:
    points = np.array([[x, y] for x in range(8) for y in range(8)], dtype=float)
    history = filled(points, np.ones(64, dtype=np.int64), 64, 2)
    numbers = np.array([axis.numbers[:4] for axis in history.borders])
    inside = numbers[:, 1] + 0.5, numbers[:, 3] - 0.5
    spans = np.concatenate(inside)[None]
    assert weight_of_cover(history, spans, 0) >= weight_inside(history, spans, 0) > 0


def test_no_elements_are_no_weight() -> None:
    spans = np.array([[-np.inf, -np.inf, np.inf, np.inf]])
    assert weights_inside(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), spans).tolist() == [0]


def test_no_ranges_have_no_weights() -> None:
    assert weights_inside(np.ones((3, 2)), np.ones(3, dtype=np.int64), np.zeros((0, 4))).tolist() == []


@pytest.mark.parametrize("count", [1, 64, 300, 5000])
def test_a_sweep_adds_up_any_part_of_the_line(count: int) -> None:
    # Each range is a row, from its own number to the last; an element is in as many as its number says.
    rng, at = np.random.default_rng(count), np.arange(float(count))
    spans = np.stack([np.zeros(count), at, np.full(count, 2.0), np.full(count, float(count))], axis=1)
    points, weights = np.stack([np.ones(count), rng.permutation(at)], axis=1), rng.integers(1, 1 << 40, count)
    points[0, 0] = 2.0  # Behind all ranges.
    weights[0], sums = 0, np.zeros(count, dtype=np.int64)
    sums[points[:, 1].astype(int)] = weights
    assert weights_inside(points, weights, spans).tolist() == np.cumsum(sums[::-1])[::-1].tolist()


@given(st.lists(st.floats(allow_nan=False), max_size=60), st.lists(st.floats(allow_nan=False), max_size=60))
def test_a_place_is_that_of_the_last_number_that_is_not_above(numbers: list[float], values: list[float]) -> None:
    ordered = np.sort(np.array([-np.inf, *numbers]))
    places = places_among(ordered)
    asked = [*values, *numbers]
    found = [place_of(places, value) for value in asked]
    assert found == (np.searchsorted(ordered, asked, side="right") - 1).tolist()


def test_places_among_numbers_that_are_close_to_each_other_beside_some_that_are_far() -> None:
    ordered = np.array([-np.inf, -1e300, *np.linspace(0, 1, 1000), 1e300])
    places = places_among(ordered)
    values = np.linspace(-0.1, 1.1, 333)
    found = [place_of(places, value) for value in values]
    assert found == (np.searchsorted(ordered, values, side="right") - 1).tolist()
