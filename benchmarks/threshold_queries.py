"""The queries of the Spark benchmark, each measured in a process of its own: the rule, and what it stands beside.

The query of the rule uses only public names of the package, so that an older version can run it. The other queries
import internal names where they need them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.startup import tree_cpu_seconds
from benchmarks.workloads import START_US
from tocsin.spark import LOCAL_DISK_CONF

if TYPE_CHECKING:
    from tocsin.runtime.contract import Batch, Listener, Out, Pages, Pipeline

BUCKETS, PARTITIONS, DELAY = 2, 2, "10 seconds"
SESSION = LOCAL_DISK_CONF | {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
}
STORES = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
STATES = ("pending", "firing", "resolved", "match")
SCHEMA = "key long, ts timestamp, value double"


@dataclass(frozen=True)
class Run:
    """One query to be measured in a process of its own; all that it depends on."""

    part: str
    query: str
    within_s: int
    keys: int = 1000
    rows: int = 2_000_000
    files: int = 20
    limit: float = 30
    store: str = "rocksdb"
    page_bytes: int = 0
    budget_s: float | None = None
    emit: str = "witness"
    # Condition without declared shapes, instead of `r - s > limit`.
    expr: str = ""
    # Types of the columns of the files in Spark's notation: key, event time, value.
    schema: str = SCHEMA
    # Worktree of the older version whose package runs the query, or nothing for this version.
    against: str = ""

    @property
    def name(self) -> str:
        """Name in the results."""
        words = [self.query, f"{self.within_s}s", f"{self.keys} keys", f"{self.rows // self.files} rows a batch"]
        words += ["memory store"] * (self.store == "memory") + ["emit: all"] * (self.emit == "all")
        return ", ".join([*words, *["old"] * bool(self.against)])


def child(run_json: str, folder: str, checkpoint: str, answer: str) -> None:
    """Measure one query; the body of a child process."""
    run = Run(**json.loads(run_json))
    bodies: dict[str, Callable[[], dict[str, Any]]] = {
        "reference": lambda: reference(run, Path(folder)),
        "local": lambda: local(run, Path(folder)),
        "duckdb 1 thread": lambda: duckdb(run, Path(folder), 1),
        "duckdb all threads": lambda: duckdb(run, Path(folder), os.cpu_count() or 1),
    }
    result = bodies[run.query]() if run.query in bodies else streaming(run, Path(folder), checkpoint)
    Path(answer).write_text(json.dumps(result), encoding="utf-8")


def rule(run: Run) -> Any:
    """The rule that all queries ask; rows may be as late as Spark's join lets them be."""
    from tocsin import Rule

    shapes = {} if run.expr else {"r": "increasing", "s": "decreasing"}
    return Rule(
        alert="Hot", expr=run.expr or f"r - s > {run.limit}", within=f"{run.within_s}s", on=["key"], shapes=shapes,
        emit=run.emit, allowed_lateness="10s",
    )  # fmt: skip


def columns(folder: Path) -> dict[str, dict[str, Any]]:
    """Read a workload into memory."""
    tables = {name: pq.read_table(folder / name).rename_columns(["key", "ts", "value"]) for name in "rs"}
    return {
        name: {
            "key": table["key"].cast("int64").to_numpy(),
            "ts": table["ts"].cast("int64").to_numpy(),
            "value": table["value"].to_numpy(),
        }
        for name, table in tables.items()
    }


def reference(run: Run, folder: Path) -> dict[str, Any]:
    """Run the plan without an engine and without an end of input, as a stream has none; compile what is compiled."""
    from tocsin.local import explain
    from tocsin.runtime.contract import Batch
    from tocsin.runtime.session import Session

    streams = columns(folder)
    keys = [(str(key),) for key in range(run.keys)]
    batches = [
        Batch(0, name, keys, rows["key"], rows["ts"], rows["ts"], {"value": rows["value"]})
        for name, rows in streams.items()
    ]
    begin = time.perf_counter()
    session = Session(explain(streams, rule(run)))
    alerts = [alert["state"] for alert in session.push(batches).alert_rows()]
    size = sum(len(page or b"") for page in session.changed_pages().values())
    states = {state: alerts.count(state) for state in STATES}
    return {"seconds": time.perf_counter() - begin, "alerts": states, "state_bytes": size}


def local(run: Run, folder: Path) -> dict[str, Any]:
    """Run on rows in memory, once to warm up."""
    from tocsin.local import run_local_detailed as run_rows

    streams, asked = columns(folder), rule(run)
    result, seconds = _second(lambda: run_rows(streams, asked))
    states = [alert["state"] for alert in result.alerts]
    return {"seconds": seconds, "alerts": {state: states.count(state) for state in STATES}}


def duckdb(run: Run, folder: Path, threads: int) -> dict[str, Any]:
    """Let DuckDB find the pairs of rows in memory, joined on key and time bucket."""
    import duckdb as duck
    import pyarrow as pa

    connection = duck.connect()
    connection.execute(f"SET threads = {threads}")
    for name, rows in columns(folder).items():
        connection.register(name, pa.table(rows))
    us = run.within_s * 1_000_000
    query = f"""
        SELECT count(*) FROM (SELECT *, ts // {us} AS part FROM r) r
        JOIN (SELECT key, ts, value, ts // {us} + unnest([-1, 0, 1]) AS part FROM s) s
        ON r.key = s.key AND r.part = s.part
        WHERE abs(r.ts - s.ts) <= {us} AND r.value - s.value > {run.limit}
    """
    answer, seconds = _second(lambda: connection.execute(query).fetchone())
    return {"seconds": seconds, "pairs": answer[0]}


def _second(body: Callable[[], Any]) -> tuple[Any, float]:
    """Run twice, and time the second."""
    body()
    begin = time.perf_counter()
    result = body()
    return result, time.perf_counter() - begin


def streaming(run: Run, folder: Path, checkpoint: str) -> dict[str, Any]:
    """Run one streaming query to its end, or until its budget is spent; give what Spark says of each batch."""
    session = _session(run)
    reader = session.readStream.option("maxFilesPerTrigger", 1).schema(run.schema)
    frames = {name: reader.parquet(str(folder / name)).toDF("key", "ts", "value") for name in "rs"}
    queries = {"tocsin": tocsin_query, "nothing": nothing_query, "join": join_query}
    cpu_s = _cpu_by_batch(session)
    begin = time.perf_counter()
    writer = queries[run.query](frames, run).writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    whole = query.awaitTermination(run.budget_s) if run.budget_s else (query.awaitTermination(), True)[1]
    seconds = time.perf_counter() - begin
    progress = list(query.recentProgress)
    query.stop()
    while len(cpu_s) <= len(progress):  # The progress of the last batch reaches listeners a moment later.
        time.sleep(0.01)
    batches = [
        _batch(p) | {"cpu_s": round(after - before, 2)}
        for p, (before, after) in zip(progress, pairwise(cpu_s), strict=False)
        if p.numInputRows
    ]
    found = _sums(p.observedMetrics["found"].asDict() for p in progress if "found" in p.observedMetrics)
    pairs = {"pairs": found["pairs"]} if "pairs" in found else {"alerts": found}
    return {"seconds": seconds, "whole": bool(whole), "batches": batches, **pairs}


def _cpu_by_batch(session: Any) -> list[float]:
    """Return a list that receives the CPU time of this process with its JVM and workers, now and after each batch."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    spent = list[float]()

    class Clock(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            spent.append(time.process_time() + tree_cpu_seconds())

        def onQueryProgress(self, event: Any) -> None:
            spent.append(time.process_time() + tree_cpu_seconds())

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            pass

    session.streams.addListener(Clock())
    return spent


def _session(run: Run) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{PARTITIONS}]")
    store = {
        "spark.sql.streaming.stateStore.providerClass": STORES[run.store],
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    for name, value in (SESSION | store).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _batch(progress: Any) -> dict[str, Any]:
    stores = [
        {"rows": o.numRowsTotal, "memory": o.memoryUsedBytes, "commit_ms": o.commitTimeMs}
        for o in progress.stateOperators
    ]
    return {"rows": progress.numInputRows, "ms": dict(progress.durationMs), "state": stores}


def _sums(metrics: Iterable[Mapping[str, int | None]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for row in metrics:
        for name, number in row.items():
            totals[name] = totals.get(name, 0) + (number or 0)
    return totals


def tocsin_query(frames: Mapping[str, Any], run: Run) -> Any:
    """The rule, as users write it."""
    from tocsin.spark.alerts import alerts

    return _states(alerts(frames, rule(run), buckets=BUCKETS))


def nothing_query(frames: Mapping[str, Any], run: Run) -> Any:
    """All that the engine does around a step, and a step that does nothing."""
    from pyspark.sql import functions as F

    from tocsin.spark.blobs import TIME, VALUE, Feed
    from tocsin.spark.results import alerts, counted
    from tocsin.spark.stateful import SETTINGS, run_stateful

    feeds = []
    for name, frame in frames.items():
        frame.sparkSession.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        for setting, value in SETTINGS.items():
            frame.sparkSession.conf.set(setting, value)
        read = frame.select("key", F.unix_micros("ts").alias(TIME), F.col("value").alias(VALUE + "value"))
        feeds.append((read, [Feed(0, name, ("key",), ("value",))]))
    rows = run_stateful(feeds, NothingStep(run.page_bytes), BUCKETS)
    return _states(alerts(counted(rows, "tocsin_nothing")))


def _states(alerts: Any) -> Any:
    from pyspark.sql import functions as F

    return alerts.observe("found", *(F.count_if(F.col("state") == state).alias(state) for state in STATES))


def join_query(frames: Mapping[str, Any], run: Run) -> Any:
    """Spark's own join of two streams on key and time range."""
    from pyspark.sql import functions as F

    r, s = (frames[name].withWatermark("ts", DELAY).alias(name) for name in "rs")
    interval = F.expr(f"INTERVAL {run.within_s} SECONDS")
    near = (F.col("r.ts") >= F.col("s.ts") - interval) & (F.col("r.ts") <= F.col("s.ts") + interval)
    pairs = r.join(s, (F.col("r.key") == F.col("s.key")) & near & (F.col("r.value") - F.col("s.value") > run.limit))
    return pairs.observe("found", F.count(F.lit(1)).alias("pairs"))


@dataclass(frozen=True)
class NothingStep:
    """A step that reads nothing and writes one page of the given size per bucket in each batch."""

    page_bytes: int
    streams: tuple[str, ...] = ("r", "s")

    def build_pipelines(self, pages: Pages, listener: Listener | None = None) -> Sequence[Pipeline]:
        return [NothingPipeline(self)]

    def read_control(self, row: Mapping[str, Any]) -> None:
        return None


class NothingPipeline:
    """Counts rows. Half of its page is growing whole numbers and half is noise, as in a real page."""

    def __init__(self, step: NothingStep) -> None:
        self.inputs: Mapping[tuple[int, str], Sequence[str]] = {(0, name): () for name in step.streams}
        half = step.page_bytes // 16
        self.times = START_US + np.arange(half, dtype=np.int64) * 1000
        self.noise = np.random.default_rng(1).normal(size=half)

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Count the rows."""
        from tocsin.runtime.metrics import RowOutcome

        for batch in batches:
            out.metrics.count_rows(batch.stream, {RowOutcome.EXPIRED: len(batch.time)})

    def on_control(self, message: None, out: Out) -> None:
        """Do nothing."""

    def on_time(self, now_us: int, out: Out) -> None:
        """Do nothing."""

    def on_end(self, out: Out) -> None:
        """Do nothing."""

    def next_timer(self) -> int | None:
        """Return None: there is no timer."""
        return None

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the changed page."""
        from tocsin.runtime.state_codec import pack

        self.times += 1
        return {"page": pack({"times": self.times, "noise": self.noise})}
