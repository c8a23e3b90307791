"""SQL in, a DataFrame out: streams are narrowed to what a query reads, and its plan runs as that of any rule."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, TimestampNTZType, TimestampType

from tocsin.plan import selection_unit_nanoseconds, unit_nanoseconds
from tocsin.query import Aggregates, Filter, JoinQuery, Selection, parse_sql, resolve
from tocsin.query.model import ENDS, ERROR, KEY, NUMBER, ONE, ROW, TIME, Column, Value
from tocsin.query.read import Script
from tocsin.query.steps import plan_of, read_of, select_of
from tocsin.spark import blobs
from tocsin.spark.alerts import check_buckets, check_frames, prepare, rows_of
from tocsin.spark.carried import carried, carry, column_of
from tocsin.spark.feeds import WHOLE, micros
from tocsin.spark.results import alerts, counted, merged_metrics
from tocsin.spark.stateful import run_stateful
from tocsin.spark.tables import Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = "tocsin_number"

log = logging.getLogger(__name__)


def sql(
    text: str,
    streams: Mapping[str, DataFrame] | None = None,
    *,
    spark: SparkSession | None = None,
    time: str = "ts",
    buckets: int | None = None,
) -> DataFrame:
    """Return the result of a SQL query over streams as a DataFrame, which is streaming if the streams are.

    Parameters
    ----------
    text
        Any number of `CREATE SUMMARY` and one `SELECT`, or several of one stream, separated by semicolons.
        docs/reference/sql.md has the syntax.
    streams
        A DataFrame per stream that the text names, all streaming or all bounded.
    spark
        Session whose tables and views have the streams that `streams` lacks.
    time
        Column of event time of all streams: a timestamp, or integer microseconds since 1970.
    buckets
        Number of buckets of the keys of a join; default: the number of shuffle partitions.
    """
    script = parse_sql(text)
    frames = _frames(script.stream_names(), dict(streams or {}), spark)
    asked, answer = ask(script, frames, time, buckets=buckets)
    if not asked.is_exact:
        log.warning("the result may be incomplete: %s", asked.shortage)
    return answer


def ask(
    script: Script,
    frames: Mapping[str, DataFrame],
    time: str,
    *,
    buckets: int | None = None,
    seen: Observation | None = None,
) -> tuple[JoinQuery | Selection | Aggregates, DataFrame]:
    """Say what a script asks of streams, and give the answer; `seen` is told what became of their rows."""
    check_frames(frames)
    tables = {name: Table(frame) for name, frame in frames.items()}
    kinds = {name: table.query_kinds for name, table in tables.items()}
    asked = resolve(script, {name: table.names for name, table in tables.items()}, time, kinds)
    used = [tables[source.name] for source in asked.streams]
    if isinstance(asked, JoinQuery):
        return asked, _pairs(asked, used, time, buckets, seen)
    if isinstance(asked, Aggregates) and used[0].frame.isStreaming and asked.layout.window_us is None:
        script.refuse(
            "an aggregate over the whole stream needs bounded input; add a WINDOW for a streaming DataFrame",
            script.select,
        )
    return asked, _of_one(asked, used[0], time, seen)


def new_observation() -> Observation:
    """What counts can be read of when the answer is there."""
    return Observation("tocsin_query")


def counts_seen(seen: Observation) -> tuple[dict[str, dict[str, int]], dict[str, list[str]]]:
    """What became of the rows of each stream; and why some could not be used, where the source told it."""
    reasons: dict[str, list[str]] = {}
    for stream, reason in sorted(tuple(row) for row in seen.get["dead"] or ()):
        reasons.setdefault(stream, []).append(reason)
    return merged_metrics(seen.get["metrics"] or ()).section("counts"), reasons


def _frames(names: Sequence[str], given: dict[str, DataFrame], spark: SparkSession | None) -> dict[str, DataFrame]:
    """The streams that are given, and those that the session knows by name."""
    known = {name.lower() for name in given}
    for name in names:
        # A name with other signs is none that the session has; it would be read as SQL.
        if spark is not None and name.lower() not in known and name.isidentifier() and spark.catalog.tableExists(name):
            given[name] = spark.table(name)
    return given


def _observed(rows: DataFrame, seen: Observation | None) -> DataFrame:
    """Return the output rows of the operator. `seen` observes counts and reasons of invalid rows."""
    if seen is None:
        return rows
    why = F.when(F.col("kind") == "dead", F.from_json("json", "stream string, reason string"))
    return counted(rows, seen, F.collect_set(why).alias("dead"))


def _pairs(
    asked: JoinQuery, tables: Sequence[Table], time: str, buckets: int | None, seen: Observation | None
) -> DataFrame:
    first = tables[0].frame
    number = prepare(first.sparkSession, idle_timers=None) if buckets is None else buckets
    check_buckets(number)
    plan = plan_of(asked, bounded=not first.isStreaming).over(number)
    if first.isStreaming and plan.is_limited_in_work:
        plan = plan.calibrated(unit_nanoseconds())
    read = [set(plan.key_sets[0].columns(source.alias)) for source in asked.streams]
    sides = {source.alias: _side(asked, i, tables[i], time, read[i]) for i, source in enumerate(asked.streams)}
    rows = rows_of(sides, plan, time=TIME, buckets=number)
    found = alerts(_observed(rows, seen)).select(F.col("witness")["payload"].alias("p"))
    texts = {i: F.col("p")[i][ROW] for i in range(len(tables))}
    return _outputs(found, texts, asked.outputs, tables)


def _side(asked: JoinQuery, i: int, table: Table, time: str, read: Collection[str]) -> DataFrame:
    """A stream of a join, narrowed to what is read of it."""
    wanted = [name for name in (*asked.read[i], *asked.preferred[i]) if name in read]
    numbers = {name: table.column(name).cast("double") for name in wanted}
    for name in asked.preferred[i]:
        if name in numbers:
            # A row that lacks what is preferred is a row all the same.
            numbers[name] = F.coalesce(_finite(numbers[name]), F.lit(0.0))
    # Tells apart rows that are equal in all that is asked for: each is a row of its own.
    own = F.uuid() if table.frame.isStreaming else F.monotonically_increasing_id()
    return _filtered(table, asked.streams[i].filters, time).select(
        table.column(asked.keys[i]).alias(KEY),
        table.column(time).alias(TIME),
        F.lit(1.0).alias(ONE),
        *(number.alias(name) for name, number in numbers.items()),
        carry(table.columns(_names(asked.outputs, i)), own.alias(_NUMBER)).alias(ROW),
        *table.dead,
    )


def _of_one(asked: Selection | Aggregates, table: Table, time: str, seen: Observation | None) -> DataFrame:
    step, source, gives = select_of(asked), asked.streams[0], isinstance(asked, Selection)
    frame, names = table.frame, [] if isinstance(asked, Aggregates) else _names(asked.outputs, 0)
    rows = [micros(source.alias, table.place(time), table.kinds[time]).alias(blobs.TIME)]
    read = read_of(asked).items()
    numbers = {name: F.lit(0.0) if column is None else table.column(column).cast("double") for name, column in read}
    rows += [number.alias(blobs.VALUE + name) for name, number in numbers.items()]
    rows += [carry(table.columns(names)).alias(blobs.PAYLOAD)] * gives
    feed = blobs.Feed(0, source.alias, (), step.columns, payload=gives, dead=bool(table.dead))
    prepare(frame.sparkSession, idle_timers=False if frame.isStreaming else None)
    if frame.isStreaming and asked.budget.cores is not None:
        step = replace(step, unit_ns=selection_unit_nanoseconds())
    step.warm_up()
    narrow = _filtered(table, source.filters, time).select(*rows, *table.dead)
    found = _observed(run_stateful([(narrow, [feed])], step, 1), seen).where(F.col("kind") == "answer")
    if isinstance(asked, Aggregates):
        return _windows(asked, found)
    parsed = found.select(F.from_json("json", "query int, row string").alias("a"))
    which = [(F.col("a")["query"] + 1).alias(NUMBER)] if len(asked.queries) > 1 else []
    return _outputs(parsed, {0: F.col("a")["row"]}, asked.outputs, [table], which)


def _names(outputs: Sequence[Column], stream: int) -> list[str]:
    """The columns of a stream that the answer has, each once."""
    return list(dict.fromkeys(column.column for column in outputs if column.stream == stream))


def _outputs(
    found: DataFrame,
    texts: Mapping[int, SparkColumn],
    outputs: Sequence[Column],
    tables: Sequence[Table],
    more: Sequence[SparkColumn] = (),
) -> DataFrame:
    """Make columns again of the texts of each stream; more columns stand before them."""
    names = {i: _names(outputs, i) for i in texts}
    read = {i: carried(text, [tables[i].kinds[name] for name in names[i]]) for i, text in texts.items()}
    whole = found.select(*more, *(struct.alias(f"s{i}") for i, struct in read.items()))
    columns = [
        column_of(F.col(f"s{one.stream}"), names[one.stream].index(one.column), tables[one.stream].kinds[one.column])
        for one in outputs
    ]
    kept = [F.col(NUMBER)] * len(more)
    return whole.select(*kept, *(column.alias(one.name) for column, one in zip(columns, outputs, strict=True)))


def _windows(asked: Aggregates, found: DataFrame) -> DataFrame:
    kinds = dict.fromkeys(one.kind for one in asked.outputs)
    fields = "start_us long, end_us long, " + ", ".join(f"`{kind}` array<double>" for kind in kinds)
    told = found.select(F.from_json("json", fields).alias("t"))
    ends = [F.timestamp_micros(f"t.{end}_us").alias(name) for end, name in zip(("start", "end"), ENDS, strict=True)]
    columns = [
        F.col("t")[one.kind][place].alias(one.name + word)
        for one in asked.outputs
        for place, word in ((0, ""), (1, ERROR))
    ]
    return told.select(*(ends if asked.layout.window_us is not None else []), *columns)


def _finite(number: SparkColumn) -> SparkColumn:
    return F.when(~F.isnan(number) & (F.abs(number) < F.lit(float("inf"))), number)


def _filtered(table: Table, filters: Sequence[Filter], time: str) -> DataFrame:
    """The rows that all filters let pass; those that cannot be used pass too, and are counted."""
    frame = table.frame
    for one in filters:
        kind = table.kinds[one.column]
        make = _moment if one.column == time else _literal
        holds = _holds(table.column(one.column), one.op, [make(value, kind) for value in one.values])
        frame = frame.where(holds | table.is_dead)
    return frame


def _holds(column: SparkColumn, op: str, values: Sequence[SparkColumn]) -> SparkColumn:
    if op == "is null":
        return column.isNull()
    if op == "is not null":
        return column.isNotNull()
    if op == "in":
        return column.isin(*values)
    first = values[0]
    compared = {"=": column == first, "<>": column != first, "<": column < first, "<=": column <= first}
    return (compared | {">": column > first, ">=": column >= first})[op]


def _literal(value: Value, kind: DataType) -> SparkColumn:
    """A value as Spark would compare a column with it: numbers that are no doubles to their last digit."""
    if isinstance(value, Decimal):
        return F.lit(value) if isinstance(kind, (*WHOLE, DecimalType)) else F.lit(float(value))
    return F.lit(value)


def _moment(value: Value, kind: DataType) -> SparkColumn:
    moment_us = int(value)
    if isinstance(kind, WHOLE):
        return F.lit(moment_us)
    if isinstance(kind, TimestampNTZType):
        naive = (_EPOCH + timedelta(microseconds=moment_us)).replace(tzinfo=None)
        return F.lit(naive.isoformat()).cast("timestamp_ntz")
    assert isinstance(kind, TimestampType)
    return F.timestamp_micros(F.lit(moment_us))
