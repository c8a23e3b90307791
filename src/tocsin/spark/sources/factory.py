"""Factory source: generated rows of a factory, by row number.

Spark's own sources deliver ranges of row numbers, or seconds of the clock. A Python function replaces each of them by
its rows (`mapInArrow`), so that a stream needs no Python process of its own.

| stream | source of the ranges |
| --- | --- |
| bounded | `range` |
| streaming, with `rows` | text files in `RUN/factory/<stream>`, one per range; a start with more `rows` adds files |
| streaming, by the clock | `rate`: one row per second since the first start of the query |
| streaming, `rate: 0` | `rate-micro-batch`: the next ranges in each micro-batch |

Guarantee: the offsets of these sources and the arguments determine the rows. A repeated micro-batch has the same rows.

With `rows`, or a rate of 0, rows arrive as fast as Spark reads them, and their event times begin at a fixed time. Other
factories are live: a row is there at most one second after its arrival time, and after a pause of the query it reads
the rows of the pause. Their event times are the present unless `start` is set.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.errors import PlanError, RunError
from tocsin.factory import SENSORS, START_US, Factory
from tocsin.rules.durations import time_us
from tocsin.rules.rulefile import Stream
from tocsin.run_directory import read_manifest
from tocsin.spark.sources.data_sources import stream_reader
from tocsin.spark.sources.raw_fields import Fields, of_columns

FOLDER, NOW = "factory", "now"
SCHEMA = "machine string, ts timestamp, arrived long, value double"
# Rows of a range, and ranges of a micro-batch. A task reads some ranges.
RANGE_ROWS, BATCH_RANGES = 100_000, 5
_STEP_ROWS = 20_000
_SECOND_US = 1_000_000
# Spark reads files in the order of their modification times.
_FIRST_FILE_S = 1_700_000_000
_MICROSECOND = timedelta(microseconds=1)

# The row numbers of a range: the first row, and the row after the last row.
Ranges = Iterator[tuple[int, int]]


def read(session: SparkSession, stream: Stream, *, streaming: bool, run_dir: Path | str | None = None) -> Fields:
    """Open a factory; its columns are `machine`, `ts` and `value`, and rows arrive by its own clock."""
    _check(stream, streaming=streaming)
    if not streaming:
        frame = _bounded(session, stream)
    elif run_dir is None:
        message = f"stream `{stream.name}`: source factory needs a run directory"
        raise PlanError(message)
    elif _is_live(stream):
        frame = _live(session, stream, first_start_us(run_dir))
    else:
        frame = _streaming(session, stream, Path(run_dir))
    return replace(of_columns(frame), rest=lambda used: None, arrived=F.col("arrived"))


def check_end(streams: Iterable[Stream]) -> None:
    """Raise a RunError if `--once` would read a factory that has no end and does not follow the clock."""
    for stream in streams:
        options = stream.source.options
        if stream.source.kind == "factory" and not options.get("rows") and not _is_live(stream):
            message = f"stream `{stream.name}`: source factory needs `rows` or a `rate` above 0 with --once"
            raise RunError(message)


def first_start_us(run_dir: Path | str) -> int:
    """Return the time of the first start of a run; all sensors of a machine begin at this time."""
    manifest = read_manifest(run_dir)
    return time_us(manifest.started[0], "started") if manifest and manifest.started else time.time_ns() // 1_000


def factory_of(stream: Stream, since_us: int = START_US) -> Factory:
    """Return the generator of a stream. The event times of a live factory begin at `since_us`."""
    given = {name: value for name, value in stream.source.options.items() if value is not None}
    disorder = given.get("disorder", 0)
    start = given.get("start", NOW if _is_live(stream) else START_US)
    return Factory(
        machines=int(given.get("machines", 10)),
        seed=int(given.get("seed", 0)),
        rate=float(given.get("rate", 100)),
        disorder_us=disorder // _MICROSECOND if isinstance(disorder, timedelta) else int(disorder),
        outages=int(given.get("outages", 0)),
        start_us=since_us if start == NOW else int(start),
    )


def write_ranges(folder: Path, rows: int) -> None:
    """Write the ranges up to `rows` that are not in the folder yet, one file per range.

    The name of a file has the end of its range.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    first, number = (written[-1] if written else 0), len(written)
    while first < rows:
        stop = min(first + RANGE_ROWS, rows)
        hidden = folder / f".{stop:016}"
        hidden.write_text(f"{first} {stop}\n", "ascii")
        os.utime(hidden, (_FIRST_FILE_S + number, _FIRST_FILE_S + number))
        hidden.replace(folder / f"{stop:016}")
        first, number = stop, number + 1


def ranges_by_time(seconds: Iterable[tuple[int, int]], factory: Factory, sensor: str, since_us: int) -> Ranges:
    """Return the rows that arrive in the second after each (number, time in microseconds).

    Second 0 has all rows since the first start, because the query starts later than the run.
    """
    begun_us = factory.start_us - since_us
    for number, time_us_ in seconds:
        first = factory.arrived_by(sensor, time_us_ + begun_us) if number else 0
        yield first, factory.arrived_by(sensor, time_us_ + begun_us + _SECOND_US)


def _bounded(session: SparkSession, stream: Stream) -> DataFrame:
    rows = int(stream.source.options["rows"])
    parts = -(-rows // RANGE_ROWS)
    first = F.col("id") * RANGE_ROWS
    ranges = session.range(0, parts, 1, parts).select(first, F.least(first + RANGE_ROWS, F.lit(rows)))
    return _generated(ranges, factory_of(stream), _sensor(stream))


def _streaming(session: SparkSession, stream: Stream, run_dir: Path) -> DataFrame:
    reader = stream_reader(session, stream.name)
    if rows := stream.source.options.get("rows"):
        folder = run_dir.absolute() / FOLDER / stream.name
        write_ranges(folder, int(rows))
        lines = reader.option("maxFilesPerTrigger", BATCH_RANGES).text(str(folder))
        ranges = lines.select(*(F.split_part("value", F.lit(" "), F.lit(part)).cast("long") for part in (1, 2)))
    else:
        numbers = reader.format("rate-micro-batch").option("rowsPerBatch", BATCH_RANGES).load()
        ranges = numbers.select(F.col("value") * RANGE_ROWS, (F.col("value") + 1) * RANGE_ROWS)
    return _generated(ranges, factory_of(stream), _sensor(stream))


def _live(session: SparkSession, stream: Stream, since_us: int) -> DataFrame:
    factory, sensor = factory_of(stream, since_us), _sensor(stream)
    seconds = stream_reader(session, stream.name).format("rate").option("numPartitions", 1).load()

    def ranges(rows: Iterable[tuple[int, int]]) -> Ranges:
        return ranges_by_time(rows, factory, sensor, since_us)

    return _generated(seconds.select("value", F.unix_micros("timestamp")), factory, sensor, ranges)


def _generated(
    frame: DataFrame,
    factory: Factory,
    sensor: str,
    ranges: Callable[[Iterable[tuple[int, int]]], Iterable[tuple[int, int]]] = iter,
) -> DataFrame:
    """Replace each row of two numbers by the rows of its range. `ranges` converts the numbers to row numbers."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            pairs = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
            for first, stop in ranges(pairs):
                yield from _batches(factory, sensor, first, stop)

    return frame.mapInArrow(run, SCHEMA)


def _batches(factory: Factory, sensor: str, first: int, stop: int) -> Iterator[pa.RecordBatch]:
    for begin in range(first, stop, _STEP_ROWS):
        columns = factory.read(sensor, begin, min(begin + _STEP_ROWS, stop))
        yield pa.RecordBatch.from_pydict(
            {
                "machine": pa.array(columns["machine"], pa.string()),
                "ts": pa.array(columns["ts"], pa.int64()).cast(pa.timestamp("us", "UTC")),
                "arrived": pa.array(columns["arrived"]),
                "value": pa.array(columns["value"]),
            }
        )


def _sensor(stream: Stream) -> str:
    return str(stream.source.options.get("sensor") or (stream.name if stream.name in SENSORS else SENSORS[0]))


def _check(stream: Stream, *, streaming: bool) -> None:
    place = f"stream `{stream.name}`: source factory"
    odd = [*(set(stream.keys) - {"machine"}), *({stream.time} - {"ts"}), *(set(stream.values) - {"value"})]
    if odd:
        message = f"{place} has only the columns `machine` (key), `ts` (time) and `value`; got {sorted(odd)[0]!r}"
        raise PlanError(message)
    if not streaming and not stream.source.options.get("rows"):
        message = f"{place} needs `rows` for a bounded input"
        raise PlanError(message)
    if stream.source.options.get("start") == NOW and not _is_live(stream):
        message = f"{place} needs a time as `start` unless it has a `rate` above 0 and no `rows`; got `now`"
        raise PlanError(message)


def _is_live(stream: Stream) -> bool:
    """Return whether rows arrive by the clock."""
    return not stream.source.options.get("rows") and stream.source.options.get("rate") != 0
