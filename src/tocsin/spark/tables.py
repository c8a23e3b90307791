"""Streams for queries: files as they are, or the streams of a rule file, bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, DecimalType, LongType, TimestampNTZType, TimestampType

from tocsin.errors import PlanError
from tocsin.query.model import BOOLEAN, FRACTION, MOMENT, MOST_DIGITS, OTHER, TEXT, WHOLE, Kind
from tocsin.rules.rulefile import Stream
from tocsin.spark.blobs import RAW, REASON, TIME
from tocsin.spark.carried import can_be_carried
from tocsin.spark.feeds import NUMBERS, TEXTS, by_name
from tocsin.spark.feeds import WHOLE as WHOLE_KINDS
from tocsin.spark.history import Span
from tocsin.spark.sources.data_sources import read_parquet
from tocsin.spark.sources.registry import read

KINDS = ("parquet", "csv", "json", "jsonl")
_MOMENTS = (TimestampType, TimestampNTZType)


def kind_of(path: str) -> str:
    """The kind of a file by its name; of a folder by its name, or by the first file in it that has one.

    >>> kind_of("sales.parquet"), kind_of("sales.csv.gz")
    ('parquet', 'csv')
    """
    inside = sorted(Path(path).rglob("*")) if Path(path).is_dir() else []
    for one in (Path(path), *inside):
        for suffix in reversed(one.suffixes):
            if suffix[1:].lower() in KINDS:
                return suffix[1:].lower()
    message = (
        f"a path must end in .{', .'.join(KINDS)}, or be a directory of files with one of these names; got {path!r}"
    )
    raise PlanError(message)


def open_path(session: SparkSession, path: str) -> DataFrame:
    """Open files with the columns and types that they have; those of CSV are found by looking at all rows."""
    kind = kind_of(path)
    if kind == "parquet":
        return read_parquet(session, path)
    if kind == "csv":
        return session.read.csv(path, header=True, inferSchema=True)
    return session.read.json(path)


def open_rules(session: SparkSession, streams: Mapping[str, Stream], time: str, span: Span) -> dict[str, DataFrame]:
    """Open the streams of a rule file: keys as text, values as doubles, the time under one name in all of them.

    Rows that cannot be used are there with the reason (`REASON`, `RAW`), to be counted.
    """
    frames = {}
    for name, stream in streams.items():
        frame = read(session, stream, streaming=False).where(span.holds(F.col(TIME)))
        columns = [by_name(column) for column in dict.fromkeys([*stream.keys, *stream.values])]
        frames[name] = frame.select(*columns, F.timestamp_micros(TIME).alias(time), REASON, RAW)
    return frames


class Table:
    """A stream as queries read it: each column by its very name, which Spark may take for another.

    `names` are its columns, `kinds` what they hold. Rows that a source marked as not usable are `is_dead`.
    """

    def __init__(self, frame: DataFrame) -> None:
        fields = [(field.name, field.dataType) for field in frame.schema.fields]
        self.frame = frame.toDF(*(f"c{i}" for i in range(len(fields))))
        self._places = {name: f"c{i}" for i, (name, _) in enumerate(fields)}
        self.kinds = dict(fields)
        self.names = [name for name, _ in fields if name not in (REASON, RAW)]

    def place(self, name: str) -> str:
        """How the frame calls a column."""
        return self._places[name]

    def column(self, name: str) -> Column:
        """A column."""
        return F.col(self._places[name])

    def columns(self, names: Sequence[str]) -> list[tuple[Column, DataType]]:
        """Columns with what they hold."""
        return [(self.column(name), self.kinds[name]) for name in names]

    @property
    def dead(self) -> list[Column]:
        """Why rows cannot be used and what they say, where the source tells."""
        return [self.column(name).alias(name) for name in (REASON, RAW) if name in self._places]

    @property
    def is_dead(self) -> Column:
        """Which rows cannot be used."""
        return self.column(REASON).isNotNull() if REASON in self._places else F.lit(False)

    @property
    def query_kinds(self) -> dict[str, Kind]:
        """What columns can be used for."""
        return {name: _query_kind(self.kinds[name]) for name in self.names}


def _query_kind(kind: DataType) -> Kind:
    groups = {WHOLE: WHOLE_KINDS, FRACTION: NUMBERS, TEXT: TEXTS, BOOLEAN: (BooleanType,), MOMENT: _MOMENTS}
    group = next((group for group, kinds in groups.items() if isinstance(kind, kinds)), OTHER)
    # No long beyond 2^53 survives as a double.
    is_double = kind.precision <= MOST_DIGITS if isinstance(kind, DecimalType) else not isinstance(kind, LongType)
    return Kind(kind.simpleString(), group, is_double, can_be_carried(kind))
