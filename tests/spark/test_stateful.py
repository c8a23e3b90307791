"""The adapter runs any step: here a toy, in batches, over a restart, bounded, with timers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark.child import PATIENCE_S
from spark.toy_step import Toy
from tocsin.errors import RunError

pytestmark = pytest.mark.spark

SCHEMA = "key long, _tocsin_time long, _tocsin_value_value double"
BAD_TIME, BAD_KEY = (3, None, 1.0), (None, 50, 1.0)


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    from tocsin.spark.stateful import SETTINGS

    extra = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    settings = {**SETTINGS, **extra}
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def write(folder: Path, number: int, rows: list[tuple[int | None, int | None, float | None]]) -> None:
    folder.mkdir(exist_ok=True)
    columns = list(zip(*rows, strict=True))
    table = pa.table(
        {
            "key": pa.array(columns[0], pa.int64()),
            "_tocsin_time": pa.array(columns[1], pa.int64()),
            "_tocsin_value_value": pa.array(columns[2], pa.float64()),
        }
    )
    path = folder / f"{number:03d}.parquet"
    pq.write_table(table, path)
    os.utime(path, (number + 1, number + 1))  # Spark takes files by age; disks tell it in steps of some milliseconds.


def feeds(session: Any, folder: Path, *, streaming: bool = True) -> list[Any]:
    from tocsin.spark.blobs import Feed

    reader = session.readStream.option("maxFilesPerTrigger", 1) if streaming else session.read
    return [
        (reader.schema(SCHEMA).parquet(str(folder / name)), [Feed(0, name, ("key",), ("value",))])
        for name in ("r", "s")
    ]


def run(session: Any, folder: Path, step: Toy, *, buckets: int = 4) -> list[Any]:
    """Run what is there to its end; give all alerts written so far."""
    from tocsin.spark.results import alerts
    from tocsin.spark.stateful import run_stateful

    out = alerts(run_stateful(feeds(session, folder), step, buckets))
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(folder / "check"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    query.awaitTermination(120)
    return sorted(session.read.parquet(str(folder / "out")).collect(), key=lambda row: (row.startsAt, row.id))


def test_rows_of_all_batches_count_once_also_after_a_restart(session: Any, tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path / "r", n, [(key, 100 * n + key, 1.0 if key == 7 else -1.0) for key in range(20)])
        write(tmp_path / "s", n, [(key, 100 * n + 50 + key, -1.0) for key in range(20)])
    first = run(session, tmp_path, Toy())
    assert [row.id for row in first] == ["7#1", "7#3", "7#5"]
    assert first[0].startsAt == datetime(1970, 1, 1, 0, 0, 0, 7)  # noqa: DTZ001
    assert first[0].witness[0].values == {"value": 1.0}
    assert first[0].margin == float("-inf")
    assert first[0].labels == {"key": "7"}
    write(tmp_path / "r", 3, [(7, 900, 1.0)])
    assert [row.id for row in run(session, tmp_path, Toy())] == ["7#1", "7#3", "7#5", "7#7"]


def test_a_bounded_input_is_seen_in_order_and_ended(session: Any, tmp_path: Path) -> None:
    from tocsin.spark.results import alerts
    from tocsin.spark.stateful import run_stateful

    for n in (2, 0, 1):
        write(tmp_path / "r", n, [(1, 100 * n + 10 * i, 1.0) for i in range(5)])
        write(tmp_path / "s", n, [(1, 100 * n + 10 * i, -1.0) for i in range(5)])
    rows = run_stateful(feeds(session, tmp_path, streaming=False), Toy())
    got = alerts(rows).collect()
    # Both streams hold the same times; r comes first in each, so its rows are the odd ones.
    assert [row.id for row in got if row.alert == "above"] == [f"1#{2 * i + 1}" for i in range(15)]
    assert [row.id for row in got if row.alert == "end"] == ["1#30"]


def test_broken_rows_are_counted_and_not_passed(session: Any, tmp_path: Path) -> None:
    from pyspark.sql import Observation

    from tocsin.spark.results import alerts, counted, merged_metrics
    from tocsin.spark.stateful import run_stateful

    write(
        tmp_path / "r",
        0,
        [(1, 10, 1.0), BAD_TIME, BAD_KEY, (1, 20, None), (1, 30, float("nan")), (1, 40, float("inf"))],
    )
    write(tmp_path / "s", 0, [(1, 15, 1.0)])
    seen = Observation("counts")
    rows = run_stateful(feeds(session, tmp_path, streaming=False), Toy())
    got = alerts(counted(rows, seen)).collect()
    assert [row.id for row in got if row.alert == "above"] == ["1#1", "1#2"]
    whole = merged_metrics(seen.get["metrics"]).without_zero_counts()
    counts = whole.section("counts")
    assert counts == {"r": {"received": 6, "quarantined": 5, "expired": 1}, "s": {"received": 1, "expired": 1}}


def test_a_timer_fires_when_the_input_has_stopped(session: Any, tmp_path: Path) -> None:
    from tocsin.spark.results import alerts, counted, merged_metrics
    from tocsin.spark.stateful import run_stateful

    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    for name in ("r", "s"):
        write(tmp_path / name, 0, [(key, key, -1.0) for key in range(4)])
    out = alerts(counted(run_stateful(feeds(session, tmp_path), Toy(quiet_us=1_500_000)), "counts"))
    query = out.writeStream.format("memory").queryName("quiet").trigger(processingTime="500 milliseconds").start()
    try:
        until = time.monotonic() + PATIENCE_S
        while query.isActive and session.table("quiet").count() < 4 and time.monotonic() < until:
            time.sleep(0.5)
        assert query.exception() is None
        assert sorted(row.id for row in session.table("quiet").collect()) == ["0#2", "1#2", "2#2", "3#2"]
        seen = [p.observedMetrics["counts"] for p in query.recentProgress if "counts" in p.observedMetrics]
        received = [dict(merged_metrics(row["metrics"]).items("received")) for row in seen]
        assert sum(one.get(("r",), 0) for one in received) == 4
    finally:
        query.stop()


def test_bucket_ids_have_consecutive_hashes_in_spark(session: Any) -> None:
    from pyspark.sql import functions as F

    from tocsin.spark.buckets import bucket_ids
    from tocsin.spark.rows import MOST_BUCKETS

    ids = bucket_ids(MOST_BUCKETS)
    numbers = session.createDataFrame(pa.table({"n": pa.array(ids, pa.int32())}))
    hashes = [row.h for row in numbers.select(F.hash("n").alias("h")).collect()]
    assert ids[0] == 0
    assert hashes == list(range(hashes[0], hashes[0] + MOST_BUCKETS))
    assert min(hashes) >= 0
    for partitions in (1, 2, 3, 7, 8):
        places = [h % partitions for h in hashes[:24]]
        assert {places.count(p) for p in range(partitions)} <= {24 // partitions, -(-24 // partitions)}


def test_spark_computes_the_bucket_of_a_key(session: Any) -> None:
    from pyspark.sql import functions as F

    from tocsin.hashing import assign_buckets

    frame = session.range(200).select(F.concat(F.lit("mü"), F.col("id").cast("string")).alias("key"))
    rows = frame.select("key", F.crc32(F.concat(F.lit("machine,site"), "key")).alias("crc")).collect()
    buckets = assign_buckets(("machine", "site"), [row.key for row in rows], 24)
    assert buckets.tolist() == [row.crc % 24 for row in rows]


def test_state_must_bear_our_mark() -> None:
    from tocsin.spark.stateful import check_head

    facts = {"magic": "m", "version": 1, "buckets": 1}
    with pytest.raises(RunError, match="version of the state 1; got 2"):
        check_head({**facts, "version": 2}, facts)


def test_state_is_rejected_when_its_bucket_numbers_depend_on_partitions() -> None:
    from tocsin.spark.stateful import VERSION, check_head

    facts = {"magic": "m", "version": VERSION, "buckets": 1}
    with pytest.raises(RunError, match=r"version of the state 4; got 3: .* start with a new checkpoint"):
        check_head({**facts, "version": 3, "partitions": 1}, facts)
