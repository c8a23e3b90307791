"""Feeds: the columns of a stream as the operator reads them, once for all key sets."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
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
from tocsin.plan import RangeWatch, Watch
from tocsin.spark.blobs import ARRIVAL, PAYLOAD, RAW, REASON, TIME, VALUE, Feed

WHOLE = (ByteType, ShortType, IntegerType, LongType)
NUMBERS = (*WHOLE, FloatType, DoubleType, DecimalType)
TEXTS = (StringType, CharType, VarcharType)


def feeds_of(
    frames: dict[str, DataFrame], watches: Sequence[Watch | RangeWatch], time: str, arrival: str | None
) -> list[tuple[DataFrame, list[Feed]]]:
    """Every stream that a watch reads, narrowed to what they read of it, with a feed for each of them.

    They stay in the order in which they are declared, by which rows that arrive together are taken.
    """
    read = {name for watch in watches for name in watch.streams}
    return [_feeds(name, frame, watches, time, arrival) for name, frame in frames.items() if name in read]


def _feeds(
    name: str, frame: DataFrame, watches: Sequence[Watch | RangeWatch], time: str, arrival: str | None
) -> tuple[DataFrame, list[Feed]]:
    mine = [(number, watch) for number, watch in enumerate(watches) if name in watch.streams]
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    arrival = arrival if arrival in kinds else None
    columns = [_key(name, key, kinds[key]) for key in dict.fromkeys(key for _, watch in mine for key in watch.on)]
    columns.append(micros(name, time, kinds[time]).alias(TIME))
    for column in dict.fromkeys(column for _, watch in mine for column in watch.columns(name)):
        if not isinstance(kinds[column], NUMBERS):
            message = (
                f"stream `{name}`: column {column!r} must contain numbers; its type is {kinds[column].simpleString()}"
            )
            raise PlanError(message)
        columns.append(by_name(column).cast("double").alias(VALUE + column))
    if arrival is not None:
        columns.append(micros(name, arrival, kinds[arrival]).alias(ARRIVAL))
    payload = payload_of(name, kinds, [watch for _, watch in mine], (time, arrival))
    dead = REASON in kinds
    columns += payload + [F.col(REASON), F.col(RAW)] * dead
    feeds = []
    for number, watch in mine:
        shown = bool(payload) and not watch.is_only_heard(name)
        read = tuple(watch.columns(name))
        parts, parted = (watch.shards, name == watch.requests) if isinstance(watch, RangeWatch) else (1, False)
        feeds.append(Feed(number, name, watch.on, read, arrival is not None, shown, dead, parts, parted))
    return frame.select(*columns), feeds


def payload_of(
    name: str, kinds: dict[str, DataType], watches: Sequence[Watch | RangeWatch], special: tuple[str, str | None]
) -> list[Column]:
    """The columns that some rule does not read, as one text; of a stream that is only heard nothing is shown."""
    heard = [watch for watch in watches if not watch.is_only_heard(name)]
    if not heard:
        return []
    read = set.intersection(*({*watch.on, *watch.read_by_all(name)} for watch in heard))
    rest = [column for column in kinds if column not in {*special, *read, PAYLOAD, REASON, RAW}]
    if PAYLOAD in kinds:
        return [_with_rest(rest).alias(PAYLOAD)]
    if not rest:
        return []
    text = F.to_json(F.struct(*(by_name(column).alias(column) for column in rest)), {"ignoreNullFields": "false"})
    return [F.make_valid_utf8(text).alias(PAYLOAD)]


def _with_rest(rest: Sequence[str]) -> Column:
    """The payload that a source gives, with columns that it reads and some rule does not."""
    if not rest:
        return F.col(PAYLOAD)
    given = F.coalesce(F.from_json(PAYLOAD, "map<string,string>"), F.create_map().cast("map<string,string>"))
    more = F.create_map(*(part for name in rest for part in (F.lit(name), by_name(name).cast("string"))))
    return F.make_valid_utf8(F.to_json(F.map_concat(given, more)))


def by_name(name: str) -> Column:
    """A column by its very name, whatever signs are in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def _key(stream: str, column: str, kind: DataType) -> Column:
    """A key column: it becomes text once per distinct key, in Python. Text that is not UTF-8 is no key."""
    if isinstance(kind, (*WHOLE, BooleanType)):
        return by_name(column)
    if not isinstance(kind, TEXTS):
        place, found = f"stream `{stream}`: key column {column!r}", kind.simpleString()
        message = f"{place} must contain strings, integers or booleans; its type is {found}"
        raise PlanError(message)
    text = by_name(column).cast("string")
    return F.when(F.is_valid_utf8(text), text).alias(column)


def latest_us(max_ahead_us: int) -> Column:
    """Return the time of the micro-batch plus `max_ahead_us`; a repeated micro-batch has the time of its first run."""
    return F.unix_micros(F.current_timestamp()) + F.lit(max_ahead_us)


def without_future(frame: DataFrame, time: str, max_ahead_us: int) -> DataFrame:
    """Return the rows with null for each time that is after `latest_us`, so that they are quarantined."""
    latest, kind = latest_us(max_ahead_us), frame.schema[time].dataType
    if isinstance(kind, TimestampType):
        latest = F.timestamp_micros(latest)
    elif isinstance(kind, TimestampNTZType):
        # A cast to this type would use the time zone of the session.
        latest = F.timestamp_add("MICROSECOND", latest, F.lit("1970-01-01").cast(kind))
    elif not isinstance(kind, WHOLE):
        return frame  # `micros` rejects the column.
    return frame.withColumn(time, F.when(by_name(time) <= latest, by_name(time)))


def micros(stream: str, column: str, kind: DataType) -> Column:
    """A column of times as the operator reads it."""
    if isinstance(kind, TimestampType):
        return F.unix_micros(by_name(column))
    if isinstance(kind, TimestampNTZType):
        # A time without a zone is read as UTC. Every cast inside Spark would use the session's zone; Arrow's does not.
        return by_name(column)
    if isinstance(kind, WHOLE):
        return by_name(column).cast("long")
    found = kind.simpleString()
    message = f"stream `{stream}`: column {column!r} must be a timestamp or integer microseconds; its type is {found}"
    raise PlanError(message)
