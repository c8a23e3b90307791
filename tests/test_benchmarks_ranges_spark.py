"""The benchmark of ranges on Spark runs, and its queries find what the rule in memory finds. No times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

from benchmarks import ranges_spark as bench
from benchmarks.ranges_queries import SYMBOLS, Size
from tocsin.hashing import assign_buckets

pytestmark = pytest.mark.slow

WANTED = {"date", "machine", "versions", "quick", "notes", "size", "summary", "reference", "runs"}


def test_each_bucket_has_two_symbols() -> None:
    assert sorted(assign_buckets(("symbol",), list(SYMBOLS), 2)) == [0, 0, 1, 1]


def test_rates_leave_the_first_batch_out_and_repeats_are_met_by_their_median() -> None:
    def batch(kind: str, ms: int) -> dict[str, Any]:
        return {"kind": kind, "rows": 1000, "ms": ms, "state_bytes": 500, "written_bytes": 7}

    runs = [
        {"query": "tocsin", "batches": [batch("register", 9000), batch("register", ms), batch("elements", 2 * ms)]}
        for ms in (1000, 250, 500)
    ]
    (row,) = bench.summarize(Size(queries=100), runs).values()
    assert (row["first_ms"], row["register_rows_per_s"], row["elements_rows_per_s"]) == (9000, 2000, 1000)
    assert (row["elements_written_bytes"], row["state_bytes"], row["state_bytes_per_query"]) == (7, 500, 5)


@pytest.mark.spark
def test_quick_run_finds_the_alerts_of_the_rule_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert bench.main(["--quick", "--data", str(tmp_path), "--json", str(file)]) == 0
    results = json.loads(file.read_text("utf-8"))
    assert set(results) == WANTED
    by_query = {run["query"]: run for run in results["runs"]}
    assert set(by_query) == {"tocsin", "nothing"}
    assert by_query["tocsin"]["alerts"] == results["reference"]["alerts"] > 50
    assert by_query["nothing"]["alerts"] == 0
    for run in by_query.values():
        assert [batch["kind"] for batch in run["batches"]] == ["register"] * 2 + ["elements"] * 3
        assert [batch["rows"] for batch in run["batches"]] == [5000] * 2 + [20_000 // 3 + 100] * 3
    elements = by_query["tocsin"]["batches"][2:]
    assert all(0 < batch["written_bytes"] < batch["state_bytes"] for batch in elements)
