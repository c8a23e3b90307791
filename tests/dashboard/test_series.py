"""Numbers over time: of every stretch of pixels the smallest and the largest are drawn, however many there were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.dashboard.charts.delays import classes_of
from tocsin.dashboard.charts.margins import Bar, columns
from tocsin.dashboard.charts.trend import points_of
from tocsin.dashboard.series import Series

NUMBERS = st.lists(st.tuples(st.integers(0, 50), st.integers(-100, 100)), min_size=1, max_size=300)


def _series(steps: list[tuple[int, int]], most: int) -> tuple[Series, list[tuple[float, float]]]:
    made, points, time = Series(most), [], 0.0
    for step, number in steps:
        time += step
        made.add(time, float(number))
        points.append((time, float(number)))
    return made, points


@given(NUMBERS, st.integers(2, 40), st.integers(1, 30))
def test_no_spike_hides_and_nothing_is_drawn_that_was_not_there(
    steps: list[tuple[int, int]], most: int, pixels: int
) -> None:
    series, points = _series(steps, most)
    assert len(series) <= most
    begin, stop = points[0][0], points[-1][0]
    found = series.stretches(begin, stop, pixels)
    assert len(found) <= pixels
    assert min(one.low for one in found) == min(number for _, number in points)
    assert max(one.high for one in found) == max(number for _, number in points)
    for time, number in points:
        assert any(one.start <= time <= one.end and one.low <= number <= one.high for one in found)
    for one in found:
        inside = [number for time, number in points if one.start <= time <= one.end]
        assert one.low in inside
        assert one.high in inside


@given(NUMBERS)
def test_a_drawn_line_goes_through_the_extremes_of_each_stretch(steps: list[tuple[int, int]]) -> None:
    series, points = _series(steps, 64)
    found = series.stretches(points[0][0], points[-1][0], 20)
    drawn = points_of(found, lambda time: time, lambda number: number)
    for one in found:
        assert {one.low, one.high} <= {y for x, y in drawn if one.start <= x <= one.end}


def test_a_time_that_goes_back_is_taken_as_of_the_last() -> None:
    series = Series()
    for time, number in ((5.0, 1.0), (3.0, 2.0), (6.0, 3.0)):
        series.add(time, number)
    assert [(one.start, one.low) for one in series.stretches(0.0, 10.0, 100)] == [(5.0, 1.0), (6.0, 3.0)]
    assert series.stretches(0.0, 10.0, 100)[0].high == 2.0


BARS = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 400), st.integers(-20, 50)).map(
        lambda one: Bar(one[0], one[0] + one[1], float(one[2]), "firing")
    ),
    max_size=60,
)


@given(BARS, st.integers(1, 25))
def test_each_pixel_has_the_smallest_and_the_largest_margin_of_the_alerts_that_touch_it(
    bars: list[Bar], pixels: int
) -> None:
    low, high = 100.0, 900.0
    width = (high - low) / pixels
    found = columns(bars, low, high, pixels)
    for pixel in range(pixels):
        begin, stop = low + pixel * width, low + (pixel + 1) * width
        mine = [
            bar.margin
            for bar in bars
            if bar.end_us >= begin and bar.end_us >= low and bar.start_us <= high
            and (bar.start_us < stop or pixel == pixels - 1)
        ]  # fmt: skip
        assert found[pixel] == ((min(mine), max(mine)) if mine else (None, None))


@pytest.mark.parametrize("name", ["--5", "²", "٣", "5\n", "-", "", "9" * 5000])
def test_a_class_of_delays_that_is_no_number_is_passed_over(name: str) -> None:
    assert [one.rows for one in classes_of({name: 7, "3": 2})] == [2]
