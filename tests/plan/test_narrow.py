"""The range of a column that holds all with which a condition can be true, and the bins that end where ranges do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naive.expr import judge
from tests.one_stream import Condition, comparisons, conditions
from tocsin.expr import parse_condition
from tocsin.plan.narrow import Range, narrowed
from tocsin.stages.promising.by_column import ByColumn, cuts_at

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SMALL = st.sampled_from([0.0, 0.5, 1.0, -1.0, 2.0, 3.0, 7.25, -7.25, 5e-324, 1e308])


@given(conditions(), st.lists(st.tuples(FINITE | SMALL, FINITE | SMALL), max_size=20))
def test_outside_the_range_a_condition_is_false_and_inside_a_whole_one_true(
    one: Condition, values: list[tuple[float, float]]
) -> None:
    text, tree = one
    found = narrowed(parse_condition(text), ("a", "x"), {})
    near = [math.nextafter(end, to) for end in (found.low, found.high) for to in (-math.inf, end, math.inf)]
    for x, y in [*values, *((end, 1.0) for end in near if math.isfinite(end))]:
        true = judge(tree, {("a", "x"): x, ("a", "y"): y})[1]
        assert found.low <= x <= found.high or not true
        assert true or not found.whole or not found.low <= x <= found.high


@given(comparisons(), SMALL)
def test_the_end_of_a_range_is_the_last_number_that_can_be_true(one: Condition, y: float) -> None:
    text, tree = one
    if "a.y" in text or "abs" in text:
        return
    found = narrowed(parse_condition(text), ("a", "x"), {})
    ends = [end for end in (found.low, found.high) if math.isfinite(end) and abs(end) < 1e290]
    assert all(judge(tree, {("a", "x"): end, ("a", "y"): y})[1] for end in ends)


@pytest.mark.parametrize(
    ("text", "low", "high", "whole"),
    [
        ("a > 80", math.nextafter(80, 90), math.inf, True),
        ("a > 20 and a <= 30", math.nextafter(20, 90), 30.0, True),
        ("30 >= a and b > 2", -math.inf, 30.0, False),
        ("a - 5 >= 2", 7.0, math.inf, False),
        ("3 - a >= 1", -math.inf, 2.0, False),
        ("a > 1 or a < -1", -math.inf, math.inf, False),
        ("a > 1 or a > 5", math.nextafter(1, 2), math.inf, False),
        ("abs(a) > 1", -math.inf, math.inf, False),
        ("a * b > 1", -math.inf, math.inf, False),
        ("a > a - 1", -math.inf, math.inf, False),
        ("a >= by.limit", 3.0, math.inf, False),
        ("a - 5 <= by.limit", -math.inf, 14.0, False),
    ],
)
def test_ranges_of_conditions(text: str, low: float, high: float, whole: bool) -> None:
    found = narrowed(parse_condition(text), ("a", None), {("by", "limit"): [9.0, 3.0, 5.0]})
    assert (found.low, found.high, found.whole) == (low, high, whole)


def test_limits_are_where_bins_end() -> None:
    found = narrowed(parse_condition("a >= by.limit"), ("a", None), {("by", "limit"): [9.0, 3.0, 5.0, math.nan]})
    assert found == Range(3.0, math.inf, False, (5.0, 9.0))


@given(
    st.lists(st.tuples(SMALL, SMALL).map(sorted), min_size=1, max_size=8), st.integers(2, 6), st.lists(FINITE | SMALL)
)
def test_a_bin_is_inside_a_range_only_if_all_that_lies_in_it_is(
    ranges: list[list[float]], most: int, values: list[float]
) -> None:
    cuts = [cut for low, high in ranges for cut in (low, math.nextafter(high, math.inf))]
    scheme = ByColumn((cuts_at(cuts, most), cuts_at([], most), cuts_at(cuts, 1_000)))
    numbers = np.array([*values, *cuts, 0.0])
    for column in (0, 2):
        bins = scheme.bins_of(numbers, np.full(len(numbers), column))
        for low, high in ranges:
            part = scheme.meets(low, high, column)[bins]
            inside = (numbers >= low) & (numbers <= high)
            assert inside[part >= 1.0].all()
            assert not inside[part <= 0.0].any()
            if column == 2 and high < 1e150:
                assert set(part.tolist()) <= {0.0, 1.0}
