"""The Spark benchmark runs, says what it says it says, and its queries find what the local engine finds. No times."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks import threshold_spark as bench
from benchmarks.threshold_queries import STATES, Run, columns, rule
from benchmarks.threshold_ratios import ratios, summarize
from benchmarks.workloads import two_streams
from tocsin.local import run_local

pytestmark = pytest.mark.slow

WANTED = {"date", "machine", "versions", "quick", "notes", "reference", "runs", "summary", "ratios"}


def rows_of(milliseconds: list[int]) -> list[dict[str, Any]]:
    return [
        {"rows": 1000, "ms": {"triggerExecution": ms, "addBatch": ms // 2}, "state": [], "cpu_s": ms / 500}
        for ms in milliseconds
    ]


def told(run: Run, seconds: float, batches: list[int]) -> dict[str, Any]:
    return asdict(run) | {"name": run.name, "seconds": seconds, "batches": rows_of(batches), "whole": True}


def test_the_first_batch_stands_apart_and_repeats_are_met_by_their_median() -> None:
    run = Run("tocsin", "tocsin", 10)
    runs = [told(run, 9, [5000, 1000, 1000]), told(run, 9, [7000, 2000, 2000]), told(run, 9, [6000, 4000, 4000])]
    (row,) = summarize(runs).values()
    assert (row["first_ms"], row["later_ms"], row["later_rows_per_s"], row["runs"]) == (6000, 2000, 500, 3)


def test_ratios_compare_the_queries_of_one_part() -> None:
    tocsin, nothing = Run("tocsin", "tocsin", 10), Run("nothing", "nothing", 10)
    join = Run("spark_join", "join", 10)
    runs = [told(tocsin, 9, [5000, 1000]), told(nothing, 9, [4000, 800]), told(join, 9, [9000, 20000])]
    told_ratios = ratios(summarize(runs))
    assert told_ratios["tocsin / nothing, later batches, 10s"] == {"value": 1.25, "asked": "<= 1.3", "met": True}
    assert told_ratios["tocsin - nothing, first batch, s, 10s"]["value"] == 1.0
    assert told_ratios["throughput, tocsin / join, 10s"] == {"value": 20.0, "asked": ">= 10", "met": True}


def test_ratios_compare_both_versions_when_an_older_version_ran() -> None:
    new, old = Run("tocsin", "tocsin", 10), Run("tocsin", "tocsin", 10, against="older")
    found = ratios(summarize([told(new, 9, [5000, 1000, 1000]), told(old, 9, [4000, 2000, 2000])]))
    assert found["new / old, first_cpu_s, 10s"] == {"value": 1.25, "asked": "<= 1.0", "met": False}
    assert found["new / old, later_cpu_s, 10s"] == {"value": 0.5, "asked": "<= 1.05", "met": True}


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(SystemExit, match="--only must name parts"):
        bench.main(["--only", "everything"])


@pytest.mark.spark
def test_quick_run_finds_the_alerts_of_the_local_engine(tmp_path: Path) -> None:
    file, plot = tmp_path / "out.json", tmp_path / "plot.png"
    only = ["--only", "tocsin,local", "--data", str(tmp_path)]
    assert bench.main(["--quick", *only, "--json", str(file), "--plot", str(plot)]) == 0
    results = json.loads(file.read_text("utf-8"))
    assert set(results) == WANTED
    assert plot.stat().st_size > 0
    by_query = {run["query"]: run for run in results["runs"]}
    assert set(by_query) == {"tocsin", "local", "duckdb 1 thread", "duckdb all threads"}
    streamed = by_query["tocsin"]
    assert [batch["rows"] for batch in streamed["batches"]] == [10_000] * 4
    assert all(batch["ms"]["triggerExecution"] > 0 for batch in streamed["batches"])
    assert 0 < sum(batch["cpu_s"] for batch in streamed["batches"]) < streamed["cpu_s"]
    run = Run(**{name: streamed[name] for name in Run.__dataclass_fields__})
    folder = tmp_path / "again"
    two_streams(folder, run.keys, run.rows, run.files)
    states = Counter(alert["state"] for alert in run_local(columns(folder), rule(run)))
    assert states["firing"] > 10
    # A stream has no end, so only the reference, which is not told of one, must agree in all states.
    assert streamed["alerts"] == results["reference"]["10s"]["alerts"]
    assert streamed["alerts"]["firing"] == states["firing"]
    assert by_query["local"]["alerts"] == {state: states[state] for state in STATES}
