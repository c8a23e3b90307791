"""The factory as a source: rows by number, so offsets are row numbers and replay exactly.

Without `rows`, those rows are there that have arrived in the time since the first start, which the offsets keep: a
query that was down finds what would have come meanwhile. Such a factory is live: its event times are those of the
clock, unless `start` says otherwise. With `rows`, or a rate of 0, rows come as fast as they are taken, and begin at a
fixed time, so that they are the same in every run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tocsin.errors import PlanError, RunError
from tocsin.factory import SENSORS, START_US, Factory
from tocsin.rules.durations import time_us
from tocsin.rules.rulefile import Stream
from tocsin.rundir import read_manifest
from tocsin.spark.fields import Fields, of_columns
from tocsin.spark.readers import Declared, load

NAME, NOW = "tocsin_factory", "now"
SCHEMA = "machine string, ts timestamp, arrived long, value double"
BATCH_ROWS, PARTITION_ROWS = 500_000, 100_000
_MICROSECOND = timedelta(microseconds=1)


def read(session: SparkSession, stream: Stream, *, streaming: bool, run_dir: Path | str | None = None) -> Fields:
    """Open a factory; its columns are `machine`, `ts` and `value`, and rows arrive by its own clock."""
    _check(stream, streaming=streaming)
    session.dataSource.register(FactorySource)
    options = _options(stream) | {"since_us": str(_since_us(run_dir))}
    fields = of_columns(load(session, NAME, stream.name, options, streaming=streaming))
    return replace(fields, rest=lambda used: None, arrived=F.col("arrived"))


def _check(stream: Stream, *, streaming: bool) -> None:
    place = f"stream `{stream.name}`: source factory"
    odd = [*(set(stream.keys) - {"machine"}), *({stream.time} - {"ts"}), *(set(stream.values) - {"value"})]
    if odd:
        message = f"{place} has the columns `machine` (a key), `ts` (the time) and `value`; got {sorted(odd)[0]!r}"
        raise PlanError(message)
    if not streaming and not stream.source.options.get("rows"):
        message = f"{place} must be told `rows` where its end is wanted; it has none"
        raise PlanError(message)
    if stream.source.options.get("start") == NOW and not _is_live(stream):
        message = f"{place} must have a time as `start` where its rows do not come by the clock; got `now`"
        raise PlanError(message)


def _is_live(stream: Stream) -> bool:
    """Whether rows come as the clock goes."""
    return not stream.source.options.get("rows") and stream.source.options.get("rate") != 0


def _since_us(run_dir: Path | str | None) -> int:
    """When the first row comes: the first start of the run, so that sensors of one machine belong together."""
    manifest = None if run_dir is None else read_manifest(run_dir)
    return time_us(manifest.started[0], "started") if manifest and manifest.started else time.time_ns() // 1_000


def _options(stream: Stream) -> dict[str, str]:
    given = {name: value for name, value in stream.source.options.items() if value is not None}
    disorder = given.get("disorder", 0)
    told = {
        "machines": given.get("machines", 10),
        "seed": given.get("seed", 0),
        "rate": given.get("rate", 100),
        "outages": given.get("outages", 0),
        "disorder_us": disorder // _MICROSECOND if isinstance(disorder, timedelta) else disorder,
        "rows": given.get("rows", 0),
        "sensor": given.get("sensor", stream.name if stream.name in SENSORS else SENSORS[0]),
        "start": given.get("start", NOW if _is_live(stream) else START_US),
    }
    return {name: str(value) for name, value in told.items()}


class FactorySource(Declared):
    """The source as Spark knows it; a row per reading."""

    word, columns = NAME, SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read all rows."""
        return _Bounded(self._factory, self.options["sensor"], int(self.options["rows"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Read rows as they come to be."""
        return _Running(self._factory, self.options)

    @property
    def _factory(self) -> Factory:
        given = self.options
        return Factory(
            int(given["machines"]),
            int(given["seed"]),
            float(given["rate"]),
            int(given["disorder_us"]),
            int(given["outages"]),
            START_US if given["start"] == NOW else int(given["start"]),
        )


class Range(InputPartition):
    """Rows of a sensor by number."""

    def __init__(self, factory: dict[str, Any], sensor: str, first: int, stop: int) -> None:
        self.factory, self.sensor, self.first, self.stop = factory, sensor, first, stop


def _ranges(factory: Factory, sensor: str, first: int, stop: int) -> list[Range]:
    cuts = [*range(first, stop, PARTITION_ROWS), stop]
    return [Range(asdict(factory), sensor, begin, end) for begin, end in pairwise(cuts)]


def _batches(part: Range) -> Iterator[pa.RecordBatch]:
    factory, step = Factory(**part.factory), 20_000
    for first in range(part.first, part.stop, step):
        columns = factory.read(part.sensor, first, min(first + step, part.stop))
        stamps = pa.array(columns["ts"], pa.int64()).cast(pa.timestamp("us", "UTC"))
        yield pa.RecordBatch.from_pydict(
            {
                "machine": pa.array(columns["machine"], pa.string()),
                "ts": stamps,
                "arrived": pa.array(columns["arrived"]),
                "value": pa.array(columns["value"]),
            }
        )


class _Bounded(DataSourceReader):
    def __init__(self, factory: Factory, sensor: str, rows: int) -> None:
        self.factory, self.sensor, self.rows = factory, sensor, rows

    def partitions(self) -> Sequence[InputPartition]:
        return _ranges(self.factory, self.sensor, 0, self.rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return _batches(partition)


class _Running(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, factory: Factory, options: Mapping[str, str]) -> None:
        self.factory, self.sensor, self.rows = factory, options["sensor"], int(options["rows"])
        self.since_us, self.by_clock = int(options["since_us"]), options["start"] == NOW
        self._now_us: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"next": 0, "since_us": self.since_us}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(BATCH_ROWS)

    def prepareForTriggerAvailableNow(self) -> None:
        if not self.rows and not self.factory.rate:
            message = "source factory must be told `rows` or a `rate` above 0 where all that is there is wanted"
            raise RunError(message)
        self._now_us = time.time_ns() // 1_000

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        first = start["next"]
        due = min(self._due(start["since_us"]), first + BATCH_ROWS)
        return {"next": max(first, due), "since_us": start["since_us"]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _ranges(self._since(start["since_us"]), self.sensor, start["next"], end["next"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return _batches(partition)

    def _since(self, since_us: int) -> Factory:
        """The factory as of its first start, which the offsets have, however often the stream was opened since."""
        return replace(self.factory, start_us=since_us) if self.by_clock else self.factory

    def _due(self, since_us: int) -> int:
        """How many rows there are by now."""
        if self.rows:
            return self.rows
        if not self.factory.rate:
            return 1 << 62
        now_us = time.time_ns() // 1_000 if self._now_us is None else self._now_us
        factory = self._since(since_us)
        return factory.arrived_by(self.sensor, factory.start_us + now_us - since_us)
