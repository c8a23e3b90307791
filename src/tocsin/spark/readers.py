"""Readers of streams that a run can find again by name when its rule file names more of them, or fewer."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

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
