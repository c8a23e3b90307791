"""Estimates of what was not worked on: their errors hold for values beyond the histogram and of columns beside it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np
import pytest

from tocsin.runtime.contract import Float
from tocsin.stages.promising.books import Pace
from tocsin.stages.promising.estimates import ByBin
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.selection import PROMISES, Query
from tocsin.stages.promising.windows import WindowedAggregates

ROWS, EVERY_US = 20_000, 1_000_000
LAYOUT = Layout("T4", EVERY_US, window_us=2 * EVERY_US, zones=8, scheme=Histogram(0.0, 100.0, 50))
TIMES = np.arange(ROWS) * 1_000

Draw = Callable[[np.random.Generator], Float]


def normal(random: np.random.Generator) -> Float:
    return random.normal(0, 30, ROWS)


def lognormal(random: np.random.Generator) -> Float:
    return random.lognormal(3, 1.0, ROWS)


@pytest.mark.parametrize("units", [8.0, 12.0, 20.0])
@pytest.mark.parametrize(
    ("draw", "query"),
    [
        (normal, Query(-inf, inf)),
        (normal, Query(-40.5, 33.0)),
        (lognormal, Query(7.3, inf)),
        (lognormal, Query(90.0, 150.0)),
    ],
)
def test_errors_hold_where_values_lie_beyond_the_histogram(draw: Draw, query: Query, units: float) -> None:
    values = draw(np.random.default_rng(4))
    aggregates = WindowedAggregates(LAYOUT, query, EVERY_US, PROMISES["avg"], Pace(units, 0.0))
    told = aggregates.take(TIMES, values) + aggregates.end()
    away: dict[str, list[float]] = {"count": [], "sum": [], "avg": [], "median": []}
    for one in told:
        inside = (TIMES >= one.start_us) & (TIMES < one.end_us) & (values >= query.low) & (values <= query.high)
        mine = values[inside]
        truth = {"count": len(mine), "sum": mine.sum(), "avg": mine.mean(), "median": np.median(mine)}
        for kind, found in away.items():
            value, error = getattr(one, kind)
            found.append(abs(value - truth[kind]) / max(error, 1e-9 * (1 + abs(truth[kind]))))
    for kind in ("count", "sum", "avg"):
        assert np.mean(np.array(away[kind]) <= 2) >= 0.8, kind
    assert all(max(found) <= 5 for found in away.values()), away


@pytest.mark.parametrize("units", [12.0, 16.0])
def test_errors_of_another_column_go_by_what_was_seen_of_it(units: float) -> None:
    random = np.random.default_rng(5)
    values, other = random.uniform(0, 100, ROWS), random.normal(1_000_000, 50, ROWS)
    query = Query(20.0, 70.0)
    aggregates = WindowedAggregates(LAYOUT, query, EVERY_US, PROMISES["sum"], Pace(units, 0.0), other=True)
    told = aggregates.take(TIMES, values, other) + aggregates.end()
    inside = (values >= query.low) & (values <= query.high)
    off, errors = [], []
    for one in told:
        mine = other[inside & (TIMES >= one.start_us) & (TIMES < one.end_us)]
        off.append(abs(one.avg.value - mine.mean()))
        errors.append(one.avg.error)
    assert max(errors) < 50
    assert np.mean(np.array(off) <= 2 * np.array(errors) + 1e-6) >= 0.8


def _found(left: list[float], seen: list[int], sums: list[float], squares: list[float]) -> ByBin:
    middle, spread = Histogram(0.0, 10.0, 1).covered(-inf, inf)
    arrays = np.array(seen, np.int64)
    return ByBin(np.array(left), np.ones(3), arrays, arrays, np.array(sums), np.array(squares), middle, spread)


def test_nothing_is_known_of_values_beyond_the_histogram_that_nobody_saw() -> None:
    found = _found([0.0, 0.0, 7.0], [1, 2, 0], [-3.0, 9.0, 0.0], [0.0, 0.5, 0.0])
    assert found.count() == (10, 0)
    assert found.total().error == inf
    assert found.average().error == inf


def test_what_was_worked_on_whole_has_no_error() -> None:
    found = _found([0.0, 0.0, 0.0], [1, 2, 0], [-3.0, 9.0, 0.0], [0.0, 0.5, 0.0])
    assert (found.count(), found.total(), found.average()) == ((3, 0), (6, 0), (2, 0))


def test_where_sums_are_beyond_all_numbers_what_is_left_has_an_infinite_error() -> None:
    found = _found([0.0, 0.0, 3.0], [1, 2, 2], [-3.0, 9.0, np.inf], [0.0, 0.5, np.nan])
    assert found.count().value == 8
    assert found.total() == (inf, inf)


def test_a_median_beyond_the_histogram_is_within_what_its_place_allows() -> None:
    random = np.random.default_rng(6)
    beyond = random.normal(-50, 10, 300)
    beyond = beyond[beyond < 0]
    squares = [float(((beyond - beyond.mean()) ** 2).sum()), 0.0, 0.0]
    found = _found([1000.0, 0.0, 100.0], [len(beyond), 0, 100], [float(beyond.sum()), 0.0, 2_000.0], squares)
    value, error = found.median()
    assert 0 < error < 20
    assert abs(value - np.quantile(beyond, 0.5 * 1.5)) < 2 * error
