"""Sources: what a rule file says of a stream becomes a DataFrame, streaming or bounded.

Every kind gives fields, as it can; one place makes keys, time and values of them, and says why a row cannot be used.
Such a row stays in the DataFrame with the reason and its text, so that it is counted and shown, and never stops a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NumericType, StringType, TimestampNTZType, TimestampType

from tocsin.errors import PlanError
from tocsin.rules.rulefile import Stream
from tocsin.spark.blobs import PAYLOAD, RAW, REASON

FIELDS, LINE, ARRIVED = "_tocsin_fields", "_tocsin_line", "_tocsin_arrived"
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_PER_MICROSECOND = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}
# Times that Spark and Python can both write: years 1 to 9999.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999


def read(session: SparkSession, stream: Stream, *, streaming: bool) -> DataFrame:
    """Open the source of a stream: keys as text, time in microseconds, values as doubles, arrival if there is one."""
    opened = _open(session, stream, streaming=streaming)
    return _typed(opened, stream)


def _open(session: SparkSession, stream: Stream, *, streaming: bool) -> DataFrame:
    kinds: Mapping[str, Callable[[Any, Stream, bool], DataFrame]] = {
        "parquet": _parquet,
        "json": _json_lines,
        "csv": _csv,
        "kafka": _kafka,
    }
    kind = stream.source.kind
    if kind not in kinds:
        message = f"stream `{stream.name}`: source must be one of {', '.join(kinds)}; got {kind}"
        raise PlanError(message)
    return kinds[kind](session, stream, streaming)


def _reader(session: SparkSession, stream: Stream, streaming: bool) -> Any:
    if not streaming:
        return session.read
    most = stream.source.options.get("max_files_per_batch")
    return session.readStream.option("maxFilesPerTrigger", most) if most else session.readStream


def _parquet(session: SparkSession, stream: Stream, streaming: bool) -> DataFrame:
    """Columns as the files have them; a stream takes those of the files that are there when it starts."""
    path = str(stream.source.options["path"])
    reader = _reader(session, stream, streaming)
    frame: DataFrame = (reader.schema(session.read.parquet(path).schema) if streaming else reader).parquet(path)
    return frame


def _json_lines(session: SparkSession, stream: Stream, streaming: bool) -> DataFrame:
    lines = _reader(session, stream, streaming).text(str(stream.source.options["path"]))
    return _of_json(lines.where(F.trim("value") != "").select(F.col("value").alias(LINE)))


def _of_json(lines: DataFrame) -> DataFrame:
    """A map of texts per line; null where the line is no JSON object in UTF-8."""
    return lines.withColumn(FIELDS, F.when(F.is_valid_utf8(LINE), F.from_json(LINE, "map<string,string>")))


def _csv(session: SparkSession, stream: Stream, streaming: bool) -> DataFrame:
    """Columns by the header of the first file; all files have it. Header lines are no rows."""
    path = str(stream.source.options["path"])
    names = _header(session, path) or _names(stream)
    schema = ", ".join(f"`{name}` string" for name in [*names, LINE])
    reader = _reader(session, stream, streaming).schema(schema).option("columnNameOfCorruptRecord", LINE)
    rows: DataFrame = reader.csv(path)
    is_header = F.lit(True)
    for name in names:
        is_header &= F.trim(F.col(f"`{name}`")).eqNullSafe(F.lit(name))
    return rows.where(~is_header)


def _header(session: SparkSession, path: str) -> list[str]:
    first = session.read.option("header", "true").csv(path).columns
    return [name.strip() for name in first]


def _names(stream: Stream) -> list[str]:
    """The columns that a rule file names, in its order."""
    names = [*stream.keys, stream.time, *[stream.arrival] * (stream.arrival is not None), *stream.values]
    return list(dict.fromkeys(name for name in names if name))


def _kafka(session: SparkSession, stream: Stream, streaming: bool) -> DataFrame:
    """Values of messages as lines; they arrived when the broker says."""
    options = dict(stream.source.options)
    reader = (session.readStream if streaming else session.read).format("kafka")
    reader = reader.option("kafka.bootstrap.servers", options["servers"]).option("subscribe", options["topic"])
    if streaming:
        reader = reader.option("startingOffsets", options.get("starting", "earliest"))
    for name, value in dict(options.get("options") or {}).items():
        reader = reader.option(name, value)
    lines = reader.load().select(F.col("value").cast("string").alias(LINE), F.col("timestamp").alias(ARRIVED))
    if options.get("format", "json") == "json":
        return _of_json(lines)
    names = _names(stream)
    parsed = F.from_csv(LINE, ", ".join(f"`{name}` string" for name in names))
    return lines.withColumn("_row", parsed).select(LINE, ARRIVED, *(F.col(f"_row.`{name}`") for name in names))


def _typed(frame: DataFrame, stream: Stream) -> DataFrame:
    """Make keys, time and values of the fields, and tell what is wrong with a row."""
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    mapped = FIELDS in kinds

    def field(name: str) -> tuple[Column, DataType]:
        if mapped:
            return F.col(FIELDS)[name], StringType()
        return (F.col(f"`{name}`"), kinds[name]) if name in kinds else (F.lit(None), StringType())

    columns, reasons = dict[str, Column](), list[Column]()
    for name in stream.keys:
        given = field(name)[0].cast("string")
        columns[name] = F.when(F.is_valid_utf8(given), given)
        reasons.append(_why(given, F.is_valid_utf8(given), f"key `{name}`", "text in UTF-8"))
    given, kind = field(stream.time)
    columns[stream.time] = _micros(given, kind, stream.time_unit)
    reasons.append(_why(given, columns[stream.time].isNotNull(), f"time `{stream.time}`", "a time from year 1 to 9999"))
    for name in stream.values:
        given, kind = field(name)
        columns[name] = given.try_cast("double")
        fine = columns[name].isNotNull() & ~F.isnan(columns[name]) & (F.abs(columns[name]) < float("inf"))
        reasons.append(_why(given, fine, f"value `{name}`", "a finite number"))
    if stream.arrival is not None:
        columns[stream.arrival] = _micros(*field(stream.arrival), stream.time_unit)
    elif ARRIVED in kinds:
        columns[ARRIVED] = F.unix_micros(ARRIVED)
    return _with_rest(frame, columns, reasons, kinds)


def _with_rest(
    frame: DataFrame, columns: Mapping[str, Column], reasons: list[Column], kinds: Mapping[str, DataType]
) -> DataFrame:
    """Add the fields that no rule reads, and reason and text of rows that cannot be used."""
    reason = F.concat_ws("; ", *reasons)
    if FIELDS in kinds:
        reason = F.when(F.col(FIELDS).isNull(), "it is not a JSON object in UTF-8").otherwise(reason)
    known = [name for name in kinds if name not in {FIELDS, LINE, ARRIVED, *columns}]
    if FIELDS in kinds:
        rest = F.map_filter(FIELDS, lambda name, _: ~name.isin(*columns))
        payload = [F.when(F.size(rest) > 0, F.to_json(rest)).alias(PAYLOAD)]
    else:
        payload = [F.col(f"`{name}`") for name in known]
    plain = [F.col(f"`{name}`") for name in kinds if name not in {FIELDS, LINE, ARRIVED}]
    texts = [*[F.col(LINE)] * (LINE in kinds), *[F.to_json(F.struct(*plain))] * bool(plain)]
    bad = reason != ""
    return frame.select(
        *(column.alias(name) for name, column in columns.items()),
        *payload,
        F.when(bad, reason).alias(REASON),
        F.when(bad, F.make_valid_utf8(F.coalesce(*texts))).alias(RAW),
    )


def _why(given: Column, fine: Column, what: str, wanted: str) -> Column:
    return F.when(given.isNull(), f"{what} is missing").when(~fine, f"{what} is not {wanted}")


def _micros(given: Column, kind: DataType, unit: str) -> Column:
    """Microseconds since 1970, or null; numbers count in the stream's unit, texts are numbers or ISO 8601 in UTC."""
    if isinstance(kind, (TimestampType, TimestampNTZType)):
        micros = F.unix_micros(given.cast("timestamp"))
    elif isinstance(kind, NumericType):
        micros = _scaled(given, unit)
    else:
        text = given.cast("string")
        micros = F.when(text.rlike(_NUMBER), _scaled(text, unit)).otherwise(F.unix_micros(F.try_to_timestamp(text)))
    return F.when((micros >= _FIRST_US) & (micros <= _LAST_US), micros)


def _scaled(number: Column, unit: str) -> Column:
    """Whole microseconds of a number; whole numbers stay exact."""
    whole = number.try_cast("decimal(38,9)")
    factor = _PER_MICROSECOND[unit]
    scaled = F.try_multiply(whole, F.lit(factor).cast("decimal(10,3)"))
    return F.floor(scaled).try_cast("long")
