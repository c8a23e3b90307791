"""Readers of streams that a run can find again by name when its rule file names more of them, or fewer.

Sources of our own, in Python, declare here what they have in common: `Declared` is one of them, `load` opens any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.readwriter import DataStreamReader

from tocsin.errors import PlanError

# With these, a checkpoint knows its sources by name, and some may come and go between two starts (Spark 4.2).
NAMED_SOURCES = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}
_EVOLUTION = next(iter(NAMED_SOURCES))


def stream_reader(session: SparkSession, name: str) -> DataStreamReader:
    """A reader for a stream; named where the session lets sources have names."""
    named = session.conf.get(_EVOLUTION, "false") == "true"
    return session.readStream.name(name) if named else session.readStream


def load(session: SparkSession, kind: str, name: str, options: Mapping[str, str], *, streaming: bool) -> DataFrame:
    """Open a source of a kind that Spark knows by its word, for the stream of a name."""
    reader = (stream_reader(session, name) if streaming else session.read).format(kind)
    for option, value in options.items():
        reader = reader.option(option, value)
    return reader.load()


def read_parquet(session: SparkSession, path: str) -> DataFrame:
    """Open Parquet files; of what Spark does not read, say what would help."""
    try:
        return session.read.parquet(path)
    except PySparkException as error:
        if error.getCondition() != "PARQUET_TYPE_ILLEGAL":
            raise
        message = (
            f"{path} must have columns that Spark can read; {str(error).splitlines()[0]} If the times "
            'are in nanoseconds, write microseconds, in pandas with `to_parquet(..., coerce_timestamps="us")`'
        )
        raise PlanError(message) from None


class Declared(DataSource):
    """A source by the word for `format` and its columns; Spark asks for them by these names."""

    word: ClassVar[str]
    columns: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return cls.word

    def schema(self) -> str:
        """The columns of a row."""
        return self.columns
