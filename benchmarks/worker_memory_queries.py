"""The query of `worker-memory`, measured in a process of its own, and the rows that it reads."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import numpy as np
import pyarrow.parquet as pq

from benchmarks.backtest import children, cpu_seconds, memory
from benchmarks.ranges_queries import WeighedLogic
from benchmarks.threshold_queries import PARTITIONS, SCHEMA, SESSION
from benchmarks.workloads import readings
from tocsin.logic import Batch, Logic, Out, Pages, Step

BUCKETS = 4
STREAMS = ("r", "s")
WITHIN_S = 120


@dataclass(frozen=True)
class Size:
    """Amount of work: micro-batches, keys, and rows of each stream in a micro-batch."""

    batches: int = 500
    keys: int = 500
    rows: int = 2000

    @property
    def name(self) -> str:
        """Name of its folder."""
        return "_".join(str(part) for part in asdict(self).values())


def write(folder: Path, size: Size, seed: int = 1) -> None:
    """Write one file per stream and micro-batch."""
    for place, name in enumerate(STREAMS):
        rng = np.random.default_rng([seed, place])
        (folder / name).mkdir(parents=True)
        for number in range(size.batches):
            path = folder / name / f"part-{number:05}.parquet"
            pq.write_table(readings(rng, size.keys, size.rows, number * size.rows), path)
            os.utime(path, (number, number))  # Spark reads files in the order of this time.


def child(size: str, folder: str, work: str, answer: str) -> None:
    """Run the query and write its measurements; the body of a child process."""
    body = streaming(Size(**json.loads(size)), Path(folder), Path(work))
    Path(answer).write_text(json.dumps(body), encoding="utf-8")


def streaming(size: Size, folder: Path, work: Path) -> dict[str, Any]:
    """Run the query to its end, and sample the Python workers after each micro-batch."""
    from pyspark.sql import SparkSession

    from tocsin import Rule
    from tocsin.local import explain
    from tocsin.spark.alerts import prepare
    from tocsin.spark.feeds import feeds_of
    from tocsin.spark.results import alerts, counted
    from tocsin.spark.stateful import run_stateful

    builder = SparkSession.builder.master(f"local[{PARTITIONS}]")
    for name, value in SESSION.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    prepare(session, act_in_silence=False)
    rule = Rule("Hot", "r - s > 30", within=f"{WITHIN_S}s", on=["key"], emit="all")
    plan = explain({name: {"key": [], "ts": [], "value": []} for name in STREAMS}, rule)
    plan.warm_up()
    reader = session.readStream.option("maxFilesPerTrigger", 1)
    frames = {name: reader.schema(SCHEMA).parquet(str(folder / name)) for name in STREAMS}
    workers = work / "workers"
    workers.mkdir()
    rows = run_stateful(feeds_of(frames, plan.key_sets, "ts", None), CountedStep(plan, workers), BUCKETS)
    begin = time.perf_counter()
    writer = alerts(counted(rows, "said")).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True).start()
    samples = [*_samples(query, workers)]
    query.awaitTermination()
    seconds = time.perf_counter() - begin
    spent = {name: sum(map(cpu_seconds, those)) for name, those in _processes(workers).items()}
    session.stop()
    return {"seconds": seconds, "cpu_seconds": spent, "samples": samples}


def _samples(query: Any, workers: Path) -> Iterator[dict[str, Any]]:
    """Yield a sample of all workers for each micro-batch that the poll observes."""
    last, active = None, True
    while active:
        active = query.isActive
        progress = query.lastProgress
        if progress is not None and progress.batchId != last:
            last = progress.batchId
            found = {path.name: int(path.read_text()) for path in _reports(workers)}
            told = {pid: {"bytes": memory(int(pid)), "logics": logics} for pid, logics in found.items()}
            yield {"batch": last, "ms": progress.durationMs.get("triggerExecution"), "workers": told}
        time.sleep(0.1)


def _reports(workers: Path) -> list[Path]:
    """Return the files that workers wrote; the name of each is the process id."""
    return [path for path in workers.iterdir() if not path.suffix]


def _processes(workers: Path) -> dict[str, list[int]]:
    """Return the Python workers, and all processes of this benchmark."""
    return {"workers": [int(path.name) for path in _reports(workers)], "all": sorted(children(os.getpid()))}


@dataclass(frozen=True)
class CountedStep:
    """A step that reports how many of its logics a worker holds, in a file per worker."""

    step: Step
    folder: Path

    def build(self, pages: Pages) -> CountedLogic:
        return CountedLogic(self.step.build(pages), self.folder)


class CountedLogic(WeighedLogic):
    """The logic of the step; `alive` has all instances of this process."""

    alive: ClassVar[WeakSet[CountedLogic]] = WeakSet()

    def __init__(self, logic: Logic, folder: Path) -> None:
        super().__init__(logic)
        self.file = folder / str(os.getpid())
        self.alive.add(self)

    def on_data(self, batches: Sequence[Batch], now_us: int | None = None) -> Out:
        """Process rows, then write the number of logics."""
        out = super().on_data(batches, now_us)
        new = self.file.with_suffix(".new")
        new.write_text(str(len(self.alive)))
        new.replace(self.file)
        return out


def summarize(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the largest number of logics in a worker, and the memory of workers early and late in the run."""
    samples = run["samples"]
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth], samples[-tenth:]
    return {
        "micro_batches": samples[-1]["batch"] + 1,
        "workers": len(samples[-1]["workers"]),
        "most_logics_in_a_worker": max(one["logics"] for row in samples for one in row["workers"].values()),
        "early_mb_per_worker": _mean_mb(early),
        "late_mb_per_worker": _mean_mb(late),
        "growth_mb_per_worker": round(_mean_mb(late) - _mean_mb(early), 1),
        "median_ms": float(np.median([row["ms"] for row in samples])),
        "cpu_seconds": {name: round(seconds, 1) for name, seconds in run["cpu_seconds"].items()},
        "seconds": round(run["seconds"], 1),
    }


def _mean_mb(samples: Sequence[Mapping[str, Any]]) -> float:
    return round(float(np.mean([one["bytes"] for row in samples for one in row["workers"].values()])) / 1e6, 1)
