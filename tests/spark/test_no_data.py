"""NoData on Spark: bounded as in memory, and by the clock while all input is silent."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

from pyspark.errors import StreamingQueryException

import tocsin
from spark.child import PATIENCE_S
from spark.scenarios import plain
from tocsin import NoData, Rule
from tocsin.spark.stateful import NO_DATA_BATCHES

pytestmark = pytest.mark.spark

SCHEMA = "ts long, m string, value double"
MINUTE = 60_000_000
RULES = [NoData("air", "5m", "m"), NoData("wall", "1h"), Rule("Warm", "air > 3", on="m")]


def write(session: Any, folder: Path, rows: list[tuple[int, str, float | None]]) -> None:
    """Put a file into the folder of a stream, whole at once."""
    session.createDataFrame(rows, SCHEMA).coalesce(1).write.mode("append").parquet(str(folder))


def test_a_bounded_query_gives_the_silences_of_the_local_engine(spark: Any) -> None:
    air = [(0, "x", 1.0), (6 * MINUTE, "x", None), (6 * MINUTE, "y", 9.0), (90 * MINUTE, "x", 1.0), (None, "x", 1.0)]
    wall = [(0, "x", 1.0), (99 * MINUTE, "z", 1.0)]
    frames = {"air": spark.createDataFrame(air, SCHEMA), "wall": spark.createDataFrame(wall, SCHEMA)}
    arrays = {
        name: dict(zip(("ts", "m", "value"), map(list, zip(*rows, strict=True)), strict=True))
        for name, rows in (("air", air), ("wall", wall))
    }
    found = plain(tocsin.alerts(frames, RULES, buckets=3).collect())
    assert len(found) == 7
    assert found == plain(tocsin.run_local(arrays, RULES))


def test_a_key_falls_silent_while_all_input_is_silent_and_comes_back(spark: Any, tmp_path: Path) -> None:
    write(spark, tmp_path / "in", [(0, "x", 1.0)])
    frame = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    out = tocsin.alerts({"air": frame}, NoData("air", "1s", "m"), idle_timers=True)
    query = out.writeStream.format("memory").queryName("no_data").trigger(processingTime="200 milliseconds").start()
    try:
        (firing,) = wait_for(spark, query, 1)
        write(spark, tmp_path / "in", [(9_000_000, "x", 1.0)])
        told = wait_for(spark, query, 2)
    finally:
        query.stop()
    assert (firing["state"], firing["labels"], firing["value"]) == ("firing", {"m": "x", "stream": "air"}, 1.0)
    (resolved,) = [row for row in told if row["state"] == "resolved" and row["id"] == firing["id"]]
    assert (resolved["value"], resolved["margin"]) == (9.0, 8.0)
    assert [part["stream"] for part in resolved["witness"]] == ["air"]


def test_a_query_that_starts_after_another_choice_was_made_is_refused(spark: Any, tmp_path: Path) -> None:
    write(spark, tmp_path / "in", [(0, "x", 1.0)])
    frame = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    first = tocsin.alerts({"air": frame}, NoData("air", "1s", "m"), idle_timers=True)
    tocsin.alerts({"air": spark.createDataFrame([(0, "x", 1.0)], SCHEMA)}, Rule("Warm", "air > 3", on="m"))
    assert spark.conf.get(NO_DATA_BATCHES) == "true", "a bounded query changed it"
    second = tocsin.alerts({"air": frame}, Rule("Warm", "air > 3", on="m"))
    refusal = "`idle_timers` must still be True when the query starts, .* start each query before you create the next"
    with pytest.raises(StreamingQueryException, match=refusal):
        _to_end(first, tmp_path / "first")
    _to_end(second, tmp_path / "second")


def _to_end(out: Any, checkpoint: Path) -> None:
    writer = out.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def wait_for(session: Any, query: Any, rows: int) -> list[Any]:
    """Wait until so many rows were told; how long that takes is not the matter."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert query.exception() is None
        told: list[Any] = session.table("no_data").collect()
        if len(told) >= rows:
            return told
        time.sleep(0.2)
    pytest.fail(f"only {len(told)} of {rows} rows were told")
