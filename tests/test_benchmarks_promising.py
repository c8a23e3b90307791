"""The benchmark of promising tuples: its streams follow the recipe, its measures are right, a quick run has all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import promising, promising_queries, promising_runs
from benchmarks import promising_data as data
from benchmarks.promising_data import SECOND, Arrivals
from tocsin.stages.promising.anytime_join import COSTS
from tocsin.stages.promising.exact_counter import ExactCounter
from tocsin.stages.promising.preference import Preference

pytestmark = pytest.mark.slow


def test_zipf_streams_are_seeded_and_come_at_exponential_intervals() -> None:
    rows = data.zipf(20_000)
    assert all(np.array_equal(one, other) for one, other in zip(rows, data.zipf(20_000), strict=True))
    assert np.all(np.diff(rows.time) >= 0)
    for side in (0, 1):
        gaps = np.diff(rows.time[rows.stream == side]) / SECOND
        assert gaps.mean() == pytest.approx(0.1, rel=0.03)
        assert gaps.std() == pytest.approx(0.1, rel=0.03)
    counts = np.sort(np.bincount(rows.key))[::-1]
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.15)


@pytest.mark.recordings
def test_two_stores_join_by_manufacturer_as_selectively_as_in_the_paper() -> None:
    assert data.stores("manufacturer_id", 10_000).selectivity == pytest.approx(0.067, abs=0.001)
    rows = data.stores("product_id", 1_000)
    assert [int(np.sum(rows.stream == side)) for side in (0, 1)] == [1_000, 1_000]


def test_measures_of_results() -> None:
    stream, key = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 0, 99, 99, 0, 0])
    rows = Arrivals(stream, np.arange(6) * SECOND, key)
    exact = np.array([[0, 1], [2, 3], [4, 5], [0, 5], [4, 1]])
    assert promising_runs.hist_mse(rows, exact, exact) == 0
    # 4 of 5 results and 1 of 2 lie in the first interval, the others in the last.
    assert promising_runs.hist_mse(rows, exact, exact[:2]) == pytest.approx(2 * 0.3**2)
    assert promising_runs.apart(rows, exact) == pytest.approx((1 + 1 + 1 + 5 + 3) / 5)
    assert promising_runs.outliers(rows, exact, np.array([99])) == 1
    # An index by key pays for taking in, one look, and its results: that buys one result of each of four arrivals.
    one = COSTS.insert + COSTS.scan + COSTS.emit
    assert promising_runs.by_key(rows, exact, one + 0.01) == 4
    assert promising_runs.by_key(rows, exact, 100.0) == 5


def test_rare_keys_have_a_twentieth_of_the_results() -> None:
    rows = data.zipf(1_500)
    _, exact = promising_runs.full(promising_runs.minute("SHJ"), rows)
    rare = promising_runs.rare_keys(rows, exact)
    assert 0.03 < promising_runs.outliers(rows, exact, rare) / len(exact) <= 0.05
    layout = promising_runs.minute("T4", scheme=ExactCounter(), granularity_us=2 * promising_runs.MINUTE)
    most = promising_runs.bound(rows, exact, promising_runs.MINUTE)
    _, found = promising_runs.run(layout, rows, np.inf, Preference("asc", most=most))
    assert 0.02 < len(found) / len(exact) < 0.08


def test_the_naive_selection_serves_twenty_queries_whole_and_more_in_part() -> None:
    values = promising_queries.streams(1_000)["gamma"]
    units = promising_queries.enough(values, 1)
    for count, share in ((20, 1.0), (40, 0.5)):
        asked = promising_queries.standing(values, count, 1)
        exact = [int(np.sum((values >= query.low) & (values <= query.high))) for query in asked]
        found, sums, tried = promising_queries.naive(values, asked, units)
        assert np.mean(found / exact) == pytest.approx(share, abs=0.06)
        assert np.mean(tried) / len(values) == pytest.approx(share, abs=0.06)
        assert np.all(sums <= [values[(values >= q.low) & (values <= q.high)].sum() + 1e-9 for q in asked])


def test_a_quick_run_gives_all_parts_and_plots(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert promising.main(["--quick", "--json", str(file), "--plots", str(tmp_path)]) == 0
    results = json.loads(file.read_text("utf-8"))
    assert {row["part"] for row in results["runs"]} == set(promising.PARTS)
    assert len(results["bars"]) > 10
    assert len(list(tmp_path.glob("promising_*.png"))) == 11
