"""Fuzzed input through each source: the run goes on and every row is accounted for, by an oracle that reads bytes."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fuzzed
from benchmarks.fuzz_sources import differences, found_rows, run, stream, write_json
from tocsin import Rule

pytestmark = pytest.mark.spark

ROWS = 10_000
HOUR = 3_600_000_000


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "mqtt"])
def test_every_row_is_usable_or_dead_as_the_oracle_says(spark: Any, tmp_path: Path, kind: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # pytest shows it when the test fails
    told = run(spark, kind, ROWS, seed, tmp_path / kind)
    assert told["differences"] == []
    assert told["dead"] + told["usable"] + told["no row"] == ROWS
    assert min(told["dead"], told["usable"]) > ROWS // 50


def test_a_stream_takes_fuzzed_files_as_a_bounded_read_does(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.sources.registry import read

    folder = tmp_path / "in"
    folder.mkdir()
    expected = write_json(folder, 2_000, 7)
    frame = read(spark, stream("json", {"path": str(folder), "max_files_per_batch": 1}), streaming=True)
    query = frame.writeStream.format("memory").queryName("fuzzed").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination(120)
    assert differences(expected, found_rows(spark.table("fuzzed"))) == []


def test_a_run_counts_every_row_it_was_given(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.alerts import rows_of
    from tocsin.spark.results import merged_metrics
    from tocsin.spark.sources.registry import read

    expected = write_json(tmp_path, 5_000, 11)
    frame = read(spark, stream("json", {"path": str(tmp_path)}), streaming=False)
    rule = Rule("Hot", "fuzz.temp > 1", on=["machine"], within="1m")
    found = rows_of({"fuzz": frame}, rule, time="_tocsin_time", arrival="_tocsin_arrival").collect()
    counts = merged_metrics(row.json for row in found if row.kind == "metrics").section("counts")["fuzz"]
    assert counts["received"] == 5_000 - expected[None]
    # A row without `temp` is of no use to this rule, and is counted so; only a dead one has a reason.
    lacking = sum(count for row, count in expected.items() if isinstance(row, tuple) and row[2][0] is None)
    assert counts["quarantined"] == expected[fuzzed.DEAD] + lacking
    dead = [json.loads(row.json) for row in found if row.kind == "dead"]
    assert sum(bool(row["reason"]) for row in dead) == expected[fuzzed.DEAD]


def test_one_clock_in_the_future_makes_nobody_else_late(spark: Any, tmp_path: Path) -> None:
    from tocsin.runtime.alert_arrow import unpack_alerts
    from tocsin.spark.alerts import rows_of
    from tocsin.spark.results import merged_metrics
    from tocsin.spark.sources.registry import read

    now, century = 1_767_225_600_000_000, 4_102_444_800_000_000
    (tmp_path / "in").mkdir()
    for number in range(3):
        rows = [{"machine": "ahead", "ts": century + number, "temp": 0}, {"machine": "behind", "ts": 0, "temp": 0}]
        rows += [{"machine": f"m{m}", "ts": now + number * HOUR, "temp": 50} for m in range(20)]
        file = tmp_path / "in" / f"{number}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        # Spark takes files by the time of their last change.
        os.utime(file, (number, number))
    given = stream("json", {"path": str(tmp_path / "in"), "max_files_per_batch": 1})
    frame = read(spark, given, streaming=True)
    rule = Rule("Hot", "fuzz.temp > 40", on=["machine"], within="1m", allowed_lateness="1h")
    told = rows_of({"fuzz": frame}, rule, time="_tocsin_time", arrival="_tocsin_arrival")
    query = told.writeStream.format("memory").queryName("clocks").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination(120)
    found = spark.table("clocks").collect()
    counts = merged_metrics(row.json for row in found if row.kind == "metrics").section("counts")["fuzz"]
    assert (counts["received"], counts.get("late", 0), counts.get("quarantined", 0)) == (66, 0, 0)
    alerts = [
        one for row in found if row.kind == "alerts" for batch in unpack_alerts(row.alerts) for one in batch.rows()
    ]
    assert {row["labels"]["machine"] for row in alerts if row["state"] == "firing"} == {f"m{m}" for m in range(20)}
    assert {row["quality"] for row in alerts} == {"exact"}
