"""The benchmark of the edge filter: benchmarks/RESULTS.md has its results for the recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import edge as benchmark

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")


@pytest.fixture(scope="module")
def points() -> list[dict[str, Any]]:
    return benchmark.measure_bytes()


@pytest.mark.recordings
def test_table_of_bytes_has_the_results_of_the_recordings(points: list[dict[str, Any]]) -> None:
    for recording in {point["recording"] for point in points}:
        for shape in benchmark.SHAPES:
            chosen = [point for point in points if (point["recording"], point["shape"]) == (recording, shape)]
            cells = " | ".join(f"{point['rows_sent']:,} / {point['share']:.1%}" for point in chosen)
            assert f"| {recording}, {shape} | {cells} |" in TEXT


@pytest.mark.recordings
def test_fewest_rows_are_sent_when_the_maximum_delay_is_the_interval(points: list[dict[str, Any]]) -> None:
    fewest = {"occupancy, light, 1 h": 1928, "occupancy, temperature, 1 h": 3788, "DEBS 2012, mf01, 1 s": 5007}
    for point in points:
        if point["max_delay"] == "1" and point["shape"] == "quasiconvex":
            assert point["rows_sent"] == fewest[point["recording"]]


@pytest.mark.slow
def test_benchmark_writes_all_results_when_it_runs_on_small_inputs(tmp_path: Path) -> None:
    assert benchmark.main(["--quick", "--json", str(tmp_path / "edge.json"), "--plots", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "edge.json").read_text())
    assert set(results) == {"load_before", "bytes", "start", "speed"}
    assert set(results["speed"]) == set(benchmark.CASES)
    assert (tmp_path / "edge_max_delay.png").exists() == bool(results["bytes"])
