"""The Spark half of the demo: a local session, folders of Parquet read as streams, and what a run tells of itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tocsin.pages import unpack
from tocsin.rules import Rule
from tocsin.spark.alerts import alerts, counts_of
from tocsin.spark.session import stderr_to
from tocsin.spark.stateful import HEAD, ON_LOCAL_DISK

_SCHEMA = "machine string, ts timestamp, arrived timestamp, value double"
_QUIET = """\
rootLogger.level = error
rootLogger.appenderRef.none.ref = none
appender.none.type = Null
appender.none.name = none
"""


@contextmanager
def local_session(folder: Path) -> Iterator[SparkSession]:
    """Start Spark inside this machine, on two cores, without UI or log, and stop it in the end."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = folder / "log4j2.properties"
    quiet.write_text(_QUIET)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("tocsin-demo")
    for name, value in (ON_LOCAL_DISK | settings).items():
        builder = builder.config(name, value)
    with stderr_to(folder / "jvm.log"):
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def write_batch(folder: Path, number: int, columns: Mapping[str, Any]) -> None:
    """Write one micro-batch of a stream as a file; Spark takes files in order of their age."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = pa.timestamp("us", tz="UTC")
    table = pa.table(
        {
            "machine": pa.array(columns["machine"], pa.string()),
            "ts": pa.array(columns["ts"], pa.int64()).cast(moment),
            "arrived": pa.array(columns["arrived"], pa.int64()).cast(moment),
            "value": pa.array(columns["value"], pa.float64()),
        }
    )
    path = folder / f"{number:04}.parquet"
    pq.write_table(table, path)
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def run_query(
    session: SparkSession, rule: Rule, folder: Path, streams: tuple[str, ...], report: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Run the rule over the files written under `folder`, one per stream and micro-batch; give the rows of alerts.

    `report` is called after each micro-batch with its number, its time in seconds and the counts that it gained.
    """
    frames = {
        name: session.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name in streams
    }
    query = (
        alerts(frames, rule, arrival="arrived")
        .writeStream.format("parquet")
        .option("path", str(folder / "alerts"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    reported, ended = -1, False
    while not ended:
        ended = bool(query.awaitTermination(1))
        for progress in query.recentProgress:
            if progress.batchId > reported and progress.numInputRows:
                reported = progress.batchId
                counts = counts_of(progress.observedMetrics)
                report({"batch": reported, "seconds": progress.batchDuration / 1000, "counts": counts})
    rows = session.read.parquet(str(folder / "alerts")).orderBy("startsAt", "id").collect()
    return [row.asDict(recursive=True) for row in rows]


def state_bytes(session: SparkSession, folder: Path, batch: int, streams: tuple[str, ...]) -> dict[str, int]:
    """Read Spark's state store as of a micro-batch: bytes of remembered rows per stream, and of all pages."""
    stored = (
        session.read.format("statestore")
        .option("batchId", batch)
        .option("stateVarName", "pages")
        .load(str(folder / "checkpoint"))
    )
    sizes = dict.fromkeys((*streams, "all"), 0)
    for row in stored.collect():
        if row.user_map_key.name == HEAD:
            continue
        page = bytes(row.user_map_value.page)
        arrays, facts = unpack(page)
        sizes["all"] += len(page)
        for store, name in facts["stores"].items():
            mine = [array for key, array in arrays.items() if key.startswith(f"s{store}.") and array.dtype != object]
            sizes[name] += sum(array.nbytes for array in mine)
    return sizes
