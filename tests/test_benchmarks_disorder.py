"""The disorder benchmark: its data follow the recipe, its truth is the definition's, a quick run gives all figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import disorder
from benchmarks.disorder_data import SECOND, START_US, Dataset, make, synthetic
from benchmarks.disorder_runs import cuts, run, told, true_results, waiting
from benchmarks.disorder_summary import beaten, best_fixed
from naive import window_join as naive

pytestmark = pytest.mark.slow

PREDICATES = {
    "x2": lambda a, b: (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 < 25,
    "x3": lambda a, b, c: a[0] == b[0] == c[0],
    "x4": lambda a, b, c, d: a[0] == b[0] and a[1] == c[0] and a[2] == d[0],
}


def some(name: str, rows: int) -> Dataset:
    """The first rows of a dataset."""
    data = make(name, 3, quick=True)
    return data._replace(
        stream=data.stream[:rows], time_us=data.time_us[:rows], attributes=data.attributes[:rows]
    )  # fmt: skip


@pytest.mark.parametrize(("name", "streams"), [("x3", 3), ("x4", 4)])
def test_synthetic_data_follow_the_recipe(name: str, streams: int) -> None:
    data, again, other = (synthetic(name, seed, 300) for seed in (7, 7, 8))
    assert (data.time_us == again.time_us).all()
    assert not (data.time_us == other.time_us).all()
    clock = START_US + 10_000 * (1 + np.arange(30_000))
    for stream in range(streams):
        delay = clock - data.time_us[data.stream == stream]
        assert set(delay % 100_000) == {0}
        assert (delay.min(), delay.max() <= 20 * SECOND) == (0, True)
        # Rank r of a Zipf distribution of skew z comes r^-z as often as rank 1.
        skew = {"x3": (2, 3, 3), "x4": (3, 3, 3, 4)}[name][stream]
        assert (delay == 100_000).sum() / (delay == 0).sum() == pytest.approx(2.0**-skew, rel=0.1)
    assert data.attributes[:, 0].min() == 1
    assert data.attributes.max() <= 100


@pytest.mark.recordings
def test_the_match_has_the_largest_delays_that_it_should_and_no_gap() -> None:
    data = make("x2", 1)
    for stream, longest in enumerate((22, 26)):
        time = data.time_us[data.stream == stream]
        delay = np.maximum.accumulate(time) - time
        assert delay.max() / SECOND == pytest.approx(longest, abs=0.3)
    assert np.diff(np.sort(data.time_us)).max() < SECOND
    assert data.time_us.size == 132_000


@pytest.mark.parametrize("name", [pytest.param("x2", marks=pytest.mark.recordings), "x3", "x4"])
def test_the_truth_is_that_of_the_definition(name: str) -> None:
    data = some(name, 60)
    tuples = [
        (number, *row)
        for number, row in enumerate(
            zip(data.stream.tolist(), data.time_us.tolist(), data.attributes.tolist(), strict=True)
        )
    ]
    results = naive.true_results(tuples, data.windows_us, PREDICATES[name])
    truth = true_results(data)
    assert truth.results[-1] == len(results)
    for end in (START_US + 50_000, START_US + 10 * SECOND):
        expected = sum(end - 100_000 < at <= end for at, _ in results)
        assert truth.within(np.array([end]), 100_000)[0] == expected


def test_recall_grows_with_the_wait_to_one() -> None:
    data = make("x3", 2, quick=True).head(40)
    truth = true_results(data)
    recalls = [run(data, truth, waiting(way, 1.0, data), over_us=10 * SECOND).recall for way in ("none", "0.5s", "30s")]
    assert recalls[0].mean() < recalls[1].mean() < 1
    assert (recalls[2] == 1).all()
    assert len(recalls[0]) == len(cuts(data, SECOND)) - 10


def test_results_are_as_late_as_they_wait() -> None:
    data = make("x4", 2, quick=True).head(20)
    figures = told(run(data, true_results(data), waiting("2s", 1.0, data), over_us=5 * SECOND), 0.9)
    assert figures["mean_k_s"] == 2
    assert 2 <= figures["latency_s"] <= figures["latency_p99_s"] < 2.2


def row(way: str, seed: int, k: float, phi: float, phi_99: float = 1.0) -> dict[str, Any]:
    return {"data": "x3", "wanted": 0.9, "way": way, "seed": seed, "mean_k_s": k, "phi": phi, "phi_99": phi_99}


def test_a_strategy_is_beaten_only_if_no_recall_is_lower() -> None:
    paper = [row("NonEqSel", 1, 4.0, 0.9), row("NonEqSel", 2, 6.0, 0.8)]
    better = beaten([*paper, row("Measured", 1, 2.0, 0.8), row("Measured", 2, 2.5, 1.0)])
    assert (better[0]["lower_k"], better[0]["met"], better[0]["met_in_seeds"]) == (0.55, True, 1)
    assert not beaten([*paper, row("Measured", 1, 2.0, 0.8), row("Measured", 2, 2.5, 0.8)])[0]["met"]
    assert not beaten([*paper, row("Measured", 1, 4.0, 0.9), row("Measured", 2, 5.9, 0.9)])[0]["met"]


def test_the_best_fixed_wait_is_the_smallest_that_does_as_well() -> None:
    fixed = [
        {"data": "x3", "seed": 1, "mean_k_s": k, "phis": {"0.9": phi}, "phis_99": {"0.9": 1.0}}
        for k, phi in ((1.0, 0.5), (2.0, 0.9), (3.0, 1.0))
    ]
    assert best_fixed([row("Measured", 1, 2.5, 0.8)], fixed)[0]["fixed_k_s"] == 2.0
    assert best_fixed([row("Measured", 1, 2.5, 0.95)], fixed)[0]["fixed_k_s"] == 3.0


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        disorder.main(["--only", "everything"])
    assert "--only must name parts" in capsys.readouterr().err


def test_a_quick_run_gives_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    parts = "baselines,recall,fixed,grain,step"
    assert disorder.main(["--quick", "--only", parts, "--json", str(file), "--plots", str(tmp_path)]) == 0
    results = json.loads(file.read_text("utf-8"))
    assert {run["part"] for run in results["runs"]} == set(parts.split(","))
    assert set(results["summary"]) == {"baselines", "recall", "beat", "asked", "fixed", "step"}
    for name in ("figure_6", "figure_7", "waits", "figure_10", "figure_11"):
        assert (tmp_path / f"disorder_{name}.png").stat().st_size > 0
    for run_ in results["runs"]:
        assert 0 <= run_["min_recall"] <= run_["mean_recall"] <= 1
        assert 0 <= run_["phi"] <= run_["phi_99"] <= 1
