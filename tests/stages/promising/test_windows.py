"""Aggregates by windows: exact with unlimited units, estimates with their errors otherwise; no cut shows."""

from __future__ import annotations

from math import inf
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import promising as naive
from stages.promising.test_selection import CHEAP, columns, layouts, numbers, rows
from tocsin.stages.promising.books import Pace
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import FOREVER, Layout
from tocsin.stages.promising.selection import PROMISES, Query
from tocsin.stages.promising.windows import WindowedAggregates

# How long windows are, and how often one begins.
lengths = st.sampled_from(
    [(1, None), (3, None), (10, None), (45, None), (10, 5), (10, 3), (3, 1), (45, 44), (45, 7), (None, None)]
)


@st.composite
def asked(draw: st.DrawFn) -> Query:
    low, high = sorted((draw(numbers), draw(numbers)))
    since = draw(st.sampled_from([-FOREVER, 5, 20]))
    return Query(low, high, since, draw(st.sampled_from([FOREVER, since + 30])))


@given(layouts(), asked(), rows, lengths, st.integers(-100, 100))
def test_unlimited_units_tell_every_window_exactly(
    layout: Layout, query: Query, given_: Any, windows: Any, begin: int
) -> None:
    times, values = columns(given_)
    times = times + begin
    every, slide = windows
    aggregates = WindowedAggregates(layout, query, every, slide_us=slide)
    told = aggregates.take(times, values) + aggregates.end()
    wanted = naive.windows(times.tolist(), values.tolist(), query, every, slide)
    assert [None if every is None else one.start_us for one in told] == list(wanted)
    for one, mine in zip(told, wanted.values(), strict=True):
        assert one.count == (len(mine), 0)
        assert one.sum == (pytest.approx(sum(mine)), 0)
        assert one.avg == (pytest.approx(sum(mine) / len(mine)), 0)
        if every is not None:
            assert one.end_us - one.start_us == every
            assert one.median == (median(mine), 0)
    assert aggregates.selection.unprocessed == 0


@given(layouts(), asked(), rows, lengths, st.sampled_from([0.0, 2.0, 4.0, 9.0]), st.integers(1, 20))
def test_no_cut_and_no_page_shows(
    layout: Layout, query: Query, given_: Any, windows: Any, units: float, size: int
) -> None:
    times, values = columns(given_)

    def made() -> WindowedAggregates:
        every, slide = windows
        pace = Pace(units, 0.0)
        return WindowedAggregates(layout, query, every, PROMISES["sum"], pace, slide_us=slide, costs=CHEAP)

    whole, cut = made(), made()
    wanted, told = whole.take(times, values), []
    for begin in range(0, len(given_), size):
        told += cut.take(times[begin : begin + size], values[begin : begin + size])
        arrays = cut.arrays()
        cut = made()
        cut.load(arrays)
    # A NaN is not equal to itself.
    assert str(told) == str(wanted)
    assert str(cut.end()) == str(whole.end())


def test_fewer_units_tell_all_windows_with_errors_that_hold() -> None:
    rng = np.random.default_rng(3)
    times = np.arange(20_000) * 1000
    values = rng.gamma(2.0, 10.0, len(times))
    layout = Layout("T3", 1_000_000, window_us=2_000_000, zones=8, scheme=Histogram(0.0, 100.0, 50))
    query = Query(7.3, 42.1)
    aggregates = WindowedAggregates(layout, query, 1_000_000, PROMISES["sum"], Pace(8.0, 0.0))
    told = aggregates.take(times, values) + aggregates.end()
    wanted = naive.windows(times.tolist(), values.tolist(), query, 1_000_000)
    assert aggregates.selection.unprocessed > 4000
    assert [one.start_us for one in told] == list(wanted)
    for kind, exact in (("count", len), ("sum", sum), ("avg", np.mean), ("median", median)):
        off = np.array([getattr(one, kind).value - exact(wanted[one.start_us]) for one in told])
        errors = np.array([getattr(one, kind).error for one in told])
        assert errors.max() > 0
        # The errors are those of single estimates: most lie within two of them, and none is far off.
        assert np.mean(np.abs(off) <= 2 * errors + 1e-9) >= 0.8, kind
        assert np.all(np.abs(off) <= 5 * errors + 1e-9), kind


def test_another_column_than_the_one_of_the_range_is_added_up() -> None:
    layout = Layout("T3", 10, window_us=10, zones=2, scheme=Histogram(0.0, 4.0, 4))
    aggregates = WindowedAggregates(layout, Query(1, 2), 5)
    times, values = np.arange(10), np.arange(10) % 4.0
    told = aggregates.take(times, values, 100.0 * times) + aggregates.end()
    assert [(one.start_us, one.sum.value, one.median.value) for one in told] == [(0, 300, 150), (5, 2000, 600)]


@pytest.mark.parametrize(
    ("values", "total", "median"), [([1e308, 1e308], inf, 1e308), ([-1e308, 1.6e308], 1.6e308 - 1e308, 0.3e308)]
)
def test_sums_beyond_all_numbers_are_infinite_and_medians_are_not(
    values: list[float], total: float, median: float
) -> None:
    layout = Layout("T3", 10, window_us=10, zones=2, scheme=Histogram(0.0, 4.0, 4))
    aggregates = WindowedAggregates(layout, Query(-inf, inf), 10)
    # Without Numba, NumPy warns of the overflow.
    with np.errstate(over="ignore"):
        (told,) = aggregates.take(np.arange(2), np.array(values)) + aggregates.end()
    assert (told.count, told.sum, told.avg) == ((2, 0), (total, 0), (total / 2, 0))
    assert told.median == (pytest.approx(median), 0)


@pytest.mark.parametrize(("length", "slide"), [(0, None), (5, 0), (5, 6)])
def test_a_window_must_have_a_length_and_leave_no_gap(length: int, slide: int | None) -> None:
    layout = Layout("T3", 10, window_us=10, zones=2, scheme=Histogram(0.0, 4.0, 4))
    found = 0 if slide is None else slide
    with pytest.raises(ValueError, match=f"`slide_us` must be from 1 to `length_us`; got {found} and {length}"):
        WindowedAggregates(layout, Query(1, 2), length, slide_us=slide)
