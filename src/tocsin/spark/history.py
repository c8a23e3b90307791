"""Run rule files over history: Spark's bounded path from the sources of a file to alerts, counts and dead rows.

The same plan, operator and kernels as in a running query; only the end of the input differs. Sources are read as a run
reads them (`spark/sources/registry.py`): `tocsin explain` too starts a JVM for one key rather than parse rows in a
second way, which would one day convert a time or a number differently and explain what did not happen.

Memory: what the operator gives is kept on the disks of the executors and fetched partition by partition, so the driver
holds one partition of alerts. Keys are divided into many buckets, one of which is in memory at a time per core.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.errors import RunError
from tocsin.plan import Plan, Watch
from tocsin.rules.rulefile import Stream
from tocsin.runtime.alert_arrow import unpack_alerts
from tocsin.runtime.alert_batch import AlertBatch
from tocsin.spark.alerts import prepare
from tocsin.spark.blobs import ARRIVAL, PAYLOAD, RAW, REASON, TIME
from tocsin.spark.feeds import feeds_of, payload_of
from tocsin.spark.rows import dead_line
from tocsin.spark.sources.registry import FILES, read
from tocsin.spark.stateful import run_stateful
from tocsin.spark.versions import Versions
from tocsin.trace import Dead, KeyRows

# Buckets of a bounded run: a bucket's rows may all be in memory at once, where files hold whole keys.
BUCKETS = 64
# Rows of one key that are worth tracing in memory.
MOST_ROWS = 2_000_000


class TooManyRowsError(RunError):
    """More rows are asked for than are worth holding in memory."""


@dataclass(frozen=True)
class Span:
    """From when to when rows are read, in microseconds; an open end is None. Both ends belong to it."""

    from_us: int | None = None
    to_us: int | None = None

    def holds(self, time: Column) -> Column:
        """Tell which rows are inside; those without a time are dead, and are told wherever they stand."""
        inside = F.lit(True)
        if self.from_us is not None:
            inside &= time >= F.lit(self.from_us)
        if self.to_us is not None:
            inside &= time <= F.lit(self.to_us)
        return inside if self.from_us is None and self.to_us is None else time.isNull() | inside


def open_streams(session: SparkSession, streams: Mapping[str, Stream], span: Span) -> dict[str, DataFrame]:
    """Open the sources of streams, bounded, with the rows of a span.

    Rows of files arrived when they say so, or at their time. A stream that says nothing of arrival has no such column:
    eight bytes less of each row pass the shuffle.
    """
    frames = {}
    for name, stream in streams.items():
        frame = read(session, stream, streaming=False).where(span.holds(F.col(TIME)))
        silent = stream.arrival is None and stream.source.kind in FILES
        frames[name] = frame.drop(ARRIVAL) if silent else frame
    return frames


def without_arrival(frames: Mapping[str, DataFrame], streams: Mapping[str, Stream]) -> list[str]:
    """The streams that name a column of arrival and have rows, none of which has it; so it is perhaps misspelt.

    A row that has it ends the search, so all rows are looked at only where there is something to tell.
    """
    named = [name for name, stream in streams.items() if stream.arrival is not None]
    usable = {name: frames[name].where(F.col(REASON).isNull()) for name in named}
    there = F.col(ARRIVAL).isNotNull()
    return [name for name in named if usable[name].where(there).isEmpty() and not usable[name].isEmpty()]


def reach(frames: Mapping[str, DataFrame]) -> tuple[int, int] | None:
    """The oldest and the newest time of streams; None if no row has one."""
    ends = [frame.agg(F.min(TIME), F.max(TIME)).collect()[0] for frame in frames.values()]
    found = [(first, last) for first, last in ends if first is not None]
    return (min(first for first, _ in found), max(last for _, last in found)) if found else None


def has_usable_row(session: SparkSession, stream: Stream) -> bool:
    """Return whether any row of a stream, at any time, can be used. The first usable row ends the search."""
    return not read(session, stream, streaming=False).where(F.col(REASON).isNull()).isEmpty()


def arriving(frames: Mapping[str, DataFrame]) -> frozenset[str]:
    """The streams that say when their rows arrived."""
    return frozenset(name for name, frame in frames.items() if ARRIVAL in frame.columns)


def in_order(frames: Mapping[str, DataFrame], watches: Sequence[Watch]) -> dict[str, DataFrame]:
    """The rows that watches can use, each as if it had arrived at its time, without what only people read."""
    found = {}
    for name in dict.fromkeys(name for watch in watches for name in watch.streams):
        mine = [watch for watch in watches if name in watch.streams]
        read = dict.fromkeys(column for watch in mine for column in (*watch.on, *watch.columns(name)))
        found[name] = frames[name].where(F.col(REASON).isNull()).select(*(F.col(f"`{one}`") for one in read), TIME)
    return found


def buckets_for(plans: Iterable[Plan]) -> int:
    """Into how many parts keys are divided where plans run side by side."""
    return min(plan.most_buckets(BUCKETS) for plan in plans)


@contextmanager
def rows_of_plans(frames: Mapping[str, DataFrame], plans: Sequence[Plan]) -> Iterator[Rows]:
    """Run plans side by side over bounded streams; what they gave can be read until the context ends."""
    session, buckets = next(iter(frames.values())).sparkSession, buckets_for(plans)
    prepare(session, idle_timers=None)
    versions = Versions.of([plan.with_emission_times().over(buckets) for plan in plans])
    versions.warm_up()
    feeds = feeds_of(dict(frames), versions.watches(), TIME, ARRIVAL)
    rows = run_stateful(feeds, versions, buckets).persist(StorageLevel.DISK_ONLY)
    try:
        rows.count()
        yield Rows(rows)
    finally:
        rows.unpersist()


@dataclass(frozen=True)
class Rows:
    """Output rows of a bounded run."""

    frame: DataFrame

    def told(self) -> Iterator[AlertBatch | dict[str, Any]]:
        """Yield alert batches and metrics, partition by partition."""
        for row in self.frame.where(F.col("kind").isin("alerts", "metrics")).toLocalIterator():
            if row["kind"] == "alerts":
                yield from unpack_alerts(bytes(row["alerts"]))
            else:
                yield json.loads(row["json"])

    def dead(self, version: int = 0) -> list[dict[str, Any]]:
        """Say of the rows that a version could not use how many there are per stream and reason, with two of them."""
        grouped = (
            self._dead(version)
            .groupBy("stream", "reason")
            .agg(F.count("*").alias("count"), F.min("raw").alias("least"), F.max("raw").alias("most"))
        )
        found = [row.asDict() for row in grouped.collect()]
        for row in found:
            row["samples"] = list(dict.fromkeys([row.pop("least"), row.pop("most")]))
        return sorted(found, key=lambda row: (-row["count"], row["stream"], row["reason"]))

    def dead_lines(self, most: int, version: int = 0) -> Iterator[str]:
        """Give rows that a version could not use as JSON text, up to a number."""
        for row in self._dead(version).limit(most).toLocalIterator():
            yield dead_line(row["stream"], row["reason"], row["raw"])

    def _dead(self, version: int) -> DataFrame:
        """Rows that no version can use, and those that the rules of this one refuse."""
        fields = F.from_json("json", "stream string, reason string, raw string, version int").alias("row")
        dead = self.frame.where(F.col("kind") == "dead").select(fields).select("row.*")
        return dead.where(F.col("version").isNull() | (F.col("version") == version)).drop("version")


@dataclass(frozen=True)
class Wanted:
    """Rows of one key in a span."""

    key: tuple[str, ...]
    span: Span


def rows_of_keys(
    frames: Mapping[str, DataFrame], watch: Watch, wanted: Sequence[Wanted], most: int = MOST_ROWS
) -> list[tuple[dict[str, KeyRows], list[Dead]]]:
    """Fetch the rows of some keys, each in its span; all at once, in one pass over each stream."""
    found: list[tuple[dict[str, KeyRows], list[Dead]]] = [({}, []) for _ in wanted]
    for name in watch.streams:
        columns = [*watch.on, TIME, *watch.columns(name), REASON, RAW]
        columns += [ARRIVAL] * (ARRIVAL in frames[name].columns)
        kinds = {field.name: field.dataType for field in frames[name].schema.fields}
        payload = payload_of(name, kinds, [watch], (TIME, ARRIVAL))
        frame = frames[name].select(*(F.col(f"`{column}`") for column in dict.fromkeys(columns)), *payload)
        inside = F.lit(False)
        for one in wanted:
            inside |= _is_wanted(watch, one)
        table = frame.where(inside).limit(most + 1).toArrow()
        if table.num_rows > most:
            message = (
                f"stream `{name}`: a key must have at most {most:,} rows to be traced; this key has more: use --from"
            )
            raise TooManyRowsError(message)
        for (rows, dead), one in zip(found, wanted, strict=True):
            rows[name], gone = _key_rows(table.filter(_mask(table, watch, one)), name, watch)
            dead.extend(gone)
    return found


def _is_wanted(watch: Watch, one: Wanted) -> Column:
    inside = one.span.holds(F.col(TIME))
    for column, text in zip(watch.on, one.key, strict=True):
        inside &= F.col(f"`{column}`") == F.lit(text)
    return inside


def _mask(table: pa.Table, watch: Watch, one: Wanted) -> pa.Array:
    mine = np.ones(table.num_rows, np.bool_)
    for column, text in zip(watch.on, one.key, strict=True):
        texts = table.column(column).to_pylist()
        mine &= np.fromiter((found == text for found in texts), np.bool_, len(texts))
    time, there = _whole(table, TIME)
    if one.span.from_us is not None:
        mine &= ~there | (time >= one.span.from_us)
    if one.span.to_us is not None:
        mine &= ~there | (time <= one.span.to_us)
    return pa.array(mine)


def _whole(table: pa.Table, column: str) -> tuple[Any, Any]:
    """Whole numbers of a column, 0 where it is null, and where it is not."""
    array = table.column(column).combine_chunks()
    there = array.is_valid().to_numpy(zero_copy_only=False)
    return array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), there


def _key_rows(table: pa.Table, stream: str, watch: Watch) -> tuple[KeyRows, list[Dead]]:
    """Split a table into rows that can be used, and those that cannot."""
    time, there = _whole(table, TIME)
    arrival, arrived = _whole(table, ARRIVAL if ARRIVAL in table.column_names else TIME)
    fine = table.column(REASON).is_null().to_numpy(zero_copy_only=False) & there
    texts = zip(*(table.filter(pa.array(~fine)).column(name).to_pylist() for name in (REASON, RAW)), strict=True)
    dead = [Dead(stream, reason or "the row has no time", raw or "") for reason, raw in texts]
    values = {
        column: table.column(column).combine_chunks().cast(pa.float64()).to_numpy(zero_copy_only=False)[fine]
        for column in watch.columns(stream)
    }
    order = np.where(arrived, arrival, time)
    payload = None
    if PAYLOAD in table.column_names:
        payload = table.column(PAYLOAD).combine_chunks().to_numpy(zero_copy_only=False)[fine]
    return KeyRows(time[fine], order[fine], values, payload), dead
