"""The Spark half of the demo: folders of Parquet as streams of a run, and what its state holds at some moment."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tocsin.delivery import AlertLog
from tocsin.rules.rulefile import RuleFile
from tocsin.run_directory import Progress, RunDir
from tocsin.runtime.contract import ALERT_TIMES
from tocsin.runtime.state_registry import Shard
from tocsin.spark.run import Options, run
from tocsin.spark.session import run_session
from tocsin.spark.stateful import HEAD

# Two cores are enough, and as many partitions as buckets.
_MASTER, _PARTITIONS = "local[2]", 2


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


def run_file(
    file: RuleFile, run_dir: Path, report: Callable[[Progress], None], ready: Callable[[str], None], batch: int
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Run a rule file over the files that are there; give the rows of its alert log, and sizes of state as of a batch.

    `report` is called after each micro-batch, `ready` with Spark's version when it has started.
    """
    sizes: dict[str, int] = {}

    @contextmanager
    def session() -> Iterator[SparkSession]:
        place = RunDir(run_dir)
        with run_session(place, master=_MASTER, conf={}, partitions=_PARTITIONS, kafka=False) as started:
            ready(started.version)
            yield started
            sizes.update(state_bytes(started, run_dir, batch, tuple(file.streams)))

    options = Options(run_dir, once=True, master=_MASTER, conf={"spark.sql.shuffle.partitions": str(_PARTITIONS)})
    run(file, options, threading.Event(), report, session)
    rows = [_with_times(alert) for _, alert in AlertLog(run_dir / "alerts").read()]
    return sorted(rows, key=lambda row: (row["startsAt"], row["id"])), sizes


def _with_times(alert: Mapping[str, Any]) -> dict[str, Any]:
    """An alert of the log with its times as such."""
    witness = [{**part, "time": datetime.fromisoformat(part["time"])} for part in alert["witness"]]
    times = {name: None if alert[name] is None else datetime.fromisoformat(alert[name]) for name in ALERT_TIMES}
    return {**alert, **times, "witness": witness}


def state_bytes(session: SparkSession, folder: Path, batch: int, streams: tuple[str, ...]) -> dict[str, int]:
    """Return the bytes of retained rows by stream, and of all pages, in Spark's state store after a micro-batch."""
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
        sizes["all"] += len(page)
        # The demo has one key column. The facts of a retention section are the name of its input view.
        for section in Shard.read(page, width=1).leftover.values():
            if section.kind == "retention":
                sizes[section.facts] += sum(array.nbytes for array in section.arrays.values() if array.dtype != object)
    return sizes
