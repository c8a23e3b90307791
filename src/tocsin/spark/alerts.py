"""DataFrames and rules in, a DataFrame of alerts out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from tocsin.errors import PlanError
from tocsin.plan import Plan, Watch, make_plan
from tocsin.rules import Rule
from tocsin.rules.durations import Duration
from tocsin.spark.blobs import ARRIVAL, PAYLOAD, RAW, REASON, TIME, Feed
from tocsin.spark.results import alerts as public_alerts
from tocsin.spark.results import counted, total
from tocsin.spark.rows import MOST_BUCKETS
from tocsin.spark.stateful import SETTINGS, run_stateful

METRICS = "tocsin"
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_NUMBERS = (*_WHOLE, FloatType, DoubleType, DecimalType)
_TEXTS = (StringType, CharType, VarcharType)
_TIMES = (TimestampType, TimestampNTZType)
_SPARK_DEFAULT_PARTITIONS = "200"

log = logging.getLogger(__name__)


def alerts(
    streams: Mapping[str, DataFrame],
    rules: Rule | Iterable[Rule],
    *,
    time: str = "ts",
    arrival: str | None = None,
    buckets: int | None = None,
    key_ttl: Duration | None = None,
    act_in_silence: bool = False,
) -> DataFrame:
    """Watch streams by rules and give their alerts as a DataFrame, streaming if the streams are.

    Parameters
    ----------
    streams
        A DataFrame per stream, all streaming or all bounded. A variable `air` of a rule reads its column `value`, or
        the only column besides time and keys; `air.temp` reads `temp`; the columns that no rule reads travel with a row
        as payload.
    rules
        One or several rules.
    time
        Column of event time: a timestamp, or whole microseconds since 1970.
    arrival
        Column by which rows arrived (a timestamp or a whole number); without it the rows of a micro-batch are taken in
        order of event time.
    buckets
        Into how many parts keys are divided, at most 32,767; default: as many as shuffle partitions. State is bound to
        this number.
    key_ttl
        Forget keys that were silent for this long, in processing time, and have no open alert.
    act_in_silence
        Let a streaming query also act while all its input is silent (resolve, stop waiting, forget keys), at the price
        of empty micro-batches; such a query never ends by itself, so not with `availableNow`. Without it, what is due
        happens with the next rows of any key.

    Counts per stream (received, retained, omitted, late, ...) are observed metrics of the query; `counts_of` reads
    them.
    """
    return public_alerts(
        rows_of(
            streams,
            rules,
            time=time,
            arrival=arrival,
            buckets=buckets,
            key_ttl=key_ttl,
            act_in_silence=act_in_silence,
        )
    )


def rows_of(
    streams: Mapping[str, DataFrame],
    rules: Rule | Iterable[Rule] | Plan,
    *,
    time: str = "ts",
    arrival: str | None = None,
    buckets: int | None = None,
    key_ttl: Duration | None = None,
    act_in_silence: bool = False,
    passing: Callable[[str, DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """Watch streams like `alerts`, and give all that the operator says: alerts, counts and rows not usable, as text.

    Rules may be planned already. `passing` is called with each stream that is read, and gives the rows to read instead;
    it sees each row once, however many key sets there are.
    """
    _check_frames(streams)
    columns = {name: frame.columns for name, frame in streams.items()}
    plan = rules
    if not isinstance(plan, Plan):
        plan = make_plan(plan, columns, time=time, arrival=arrival, key_ttl=key_ttl)
    session = next(iter(streams.values())).sparkSession
    partitions = prepare(session, act_in_silence=act_in_silence)
    number = partitions if buckets is None else buckets
    check_buckets(number)
    feeds: list[tuple[DataFrame, Feed]] = []
    for i, watch in enumerate(plan.watches):
        for name in watch.streams:
            again = any(feed.stream == name for _, feed in feeds)
            frame = streams[name] if passing is None or again else passing(name, streams[name])
            feeds.append(feed_of(i, watch, name, frame, time, arrival))
    plan.warm_up()
    rows = run_stateful(feeds, plan, number)
    return counted(rows, f"{METRICS}_{plan.fingerprint}")


def check_buckets(number: int) -> None:
    """Refuse a number of buckets that is no number of parts, or more than rows can be sorted by."""
    if number < 1:
        message = f"`buckets` must be at least 1; got {number}"
        raise PlanError(message)
    if number > MOST_BUCKETS:
        message = f"`buckets` must be at most {MOST_BUCKETS}; got {number}"
        raise PlanError(message)


def counts_of(metrics: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Read the counts per stream out of the observed metrics of a query's progress (`progress.observedMetrics`)."""
    for name, row in metrics.items():
        if name.startswith(f"{METRICS}_"):
            return total(row["counts"] or ())[0].counts
    return {}


def _check_frames(streams: Mapping[str, DataFrame]) -> None:
    if not streams:
        message = "`streams` must name at least one DataFrame; got none"
        raise PlanError(message)
    for name, frame in streams.items():
        if not hasattr(frame, "isStreaming") or not hasattr(frame, "sparkSession"):
            message = f"stream `{name}` must be a DataFrame of Spark; got {type(frame).__name__}"
            raise PlanError(message)
    kinds = {name: frame.isStreaming for name, frame in streams.items()}
    if len(set(kinds.values())) > 1:
        first = {kind: name for name, kind in kinds.items()}
        streaming, bounded = first[True], first[False]
        message = f"streams must be all streaming or all bounded; `{streaming}` is streaming and `{bounded}` is not"
        raise PlanError(message)


def prepare(session: SparkSession, *, act_in_silence: bool) -> int:
    """Set what the operator needs, for all queries of the session started from now on; give the shuffle partitions."""
    # Timers alone would make an empty micro-batch twice a second, and `availableNow` would never end.
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(act_in_silence).lower())
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    partitions = session.conf.get("spark.sql.shuffle.partitions") or _SPARK_DEFAULT_PARTITIONS
    if partitions == _SPARK_DEFAULT_PARTITIONS:
        # 200 tasks per micro-batch would cost more than the work in them.
        partitions = str(_parallelism(session))
        session.conf.set("spark.sql.shuffle.partitions", partitions)
        log.info("spark.sql.shuffle.partitions was Spark's default of 200; set to %s", partitions)
    return int(partitions)


def _parallelism(session: SparkSession) -> int:
    """Cores of the session; a remote session does not tell."""
    try:
        return max(1, int(session.sparkContext.defaultParallelism))
    except Exception:  # Spark Connect raises its own kind of error for what it lacks.
        return 4


def feed_of(
    number: int, watch: Watch, name: str, frame: DataFrame, time: str, arrival: str | None
) -> tuple[DataFrame, Feed]:
    """One stream as one key set reads it."""
    read = watch.columns(name)
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    columns = [_key(name, key, kinds[key]) for key in watch.on]
    columns.append(_micros(name, time, kinds[time]).alias(TIME))
    for column in read:
        if not isinstance(kinds[column], _NUMBERS):
            message = f"stream `{name}`: column {column!r} must hold numbers; it holds {kinds[column].simpleString()}"
            raise PlanError(message)
        columns.append(F.col(column).cast("double").alias(column))
    if arrival is not None:
        columns.append(_micros(name, arrival, kinds[arrival]).alias(ARRIVAL))
    used = {time, arrival, *watch.on, *watch.read_by_all(name), PAYLOAD, REASON, RAW}
    rest = [column for column in frame.columns if column not in used]
    if PAYLOAD in kinds:
        columns.append(F.col(PAYLOAD))
    elif rest:
        text = F.to_json(F.struct(*rest), {"ignoreNullFields": "false"})
        columns.append(F.make_valid_utf8(text).alias(PAYLOAD))
    dead, payload = REASON in kinds, bool(rest) or PAYLOAD in kinds
    columns += [F.col(REASON), F.col(RAW)] if dead else []
    return frame.select(*columns), Feed(number, name, watch.on, tuple(read), arrival is not None, payload, dead)


def _key(stream: str, column: str, kind: DataType) -> Column:
    """A key column: it becomes text once per distinct key, in Python. Text that is not UTF-8 is no key."""
    if isinstance(kind, (*_WHOLE, BooleanType)):
        return F.col(column)
    if not isinstance(kind, _TEXTS):
        place, found = f"stream `{stream}`: key column {column!r}", kind.simpleString()
        message = f"{place} must hold text, whole numbers or booleans; it holds {found}"
        raise PlanError(message)
    text = F.col(column).cast("string")
    return F.when(F.is_valid_utf8(text), text).alias(column)


def _micros(stream: str, column: str, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return F.unix_micros(F.col(column))
    if isinstance(kind, TimestampNTZType):
        # A time without a zone is read as UTC. Every cast inside Spark would use the session's zone; Arrow's does not.
        return F.col(column)
    if isinstance(kind, _WHOLE):
        return F.col(column).cast("long")
    found = kind.simpleString()
    message = f"stream `{stream}`: column {column!r} must be a timestamp or whole microseconds; it is {found}"
    raise PlanError(message)
