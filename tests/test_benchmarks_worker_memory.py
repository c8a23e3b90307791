"""The benchmark of worker memory runs, and its workers hold at most one logic per bucket. No times, no sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

from benchmarks import worker_memory as bench

pytestmark = pytest.mark.slow


def test_quick_run_counts_at_most_one_logic_per_bucket(tmp_path: Path) -> None:
    file, plot = tmp_path / "out.json", tmp_path / "plot.png"
    assert bench.main(["--quick", "--json", str(file), "--plot", str(plot)]) == 0
    results = json.loads(file.read_text("utf-8"))
    assert set(results) == {"date", "machine", "load_before", "quick", "batches", "summary", "runs"}
    samples = results["runs"]["this"]["samples"]
    assert [len(sample) for sample in samples] == [bench.WORKERS] * 20
    # Both partitions were in both workers, or the benchmark would not show the effect of a move.
    assert results["summary"]["this"]["most_logics_in_a_worker"] == bench.BUCKETS
    assert all(0 < one["bytes"] and 0 < one["logics"] <= bench.BUCKETS for sample in samples for one in sample)
    assert results["runs"]["this"]["state_bytes"] > 0
    assert plot.stat().st_size > 0
