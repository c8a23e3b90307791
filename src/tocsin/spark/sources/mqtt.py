"""MQTT source: Spark's Python data source API over a spool.

Spark keeps the reader of a stream in one Python process beside the driver while the query runs. This process writes
the spool (`mqtt_client.py`), and offsets are message numbers. A second reader of the same spool (a DataFrame that a
query uses twice) only reads. Each retry of a micro-batch has the same offsets, so it has the same rows. A partition
contains its rows, at most a few hundred KiB, because executors may not see the driver's disk. A bounded read can be
long, so its partitions contain offsets only, and executors read the spool.

`commit` discards the messages of the previous micro-batch, not of the last one. Another reader of the same query may
plan the last micro-batch a little later, but it has then passed the previous one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tocsin.errors import PlanError, RunError
from tocsin.rules.rulefile import Stream
from tocsin.rules.secret import Secret
from tocsin.spark.sources.data_sources import Declared, load
from tocsin.spark.sources.mqtt_client import MOST_PAYLOAD, Collector, Subscription, client_id, need_paho
from tocsin.spark.sources.mqtt_spool import LOST, SpoolReader, discard
from tocsin.spark.sources.raw_fields import ARRIVED, LINE, Fields, of_json

NAME = "tocsin_mqtt"
SCHEMA = "topic string, payload binary, size long, arrived long"
# A micro-batch holds at most so many messages and bytes, a partition (a task) so many bytes.
BATCH_ROWS, BATCH_BYTES, PARTITION_BYTES = 200_000, 32 << 20, 512 << 10
_DAMAGED = "the message was damaged in the spool"

_log = logging.getLogger(__name__)


def read(session: SparkSession, stream: Stream, *, streaming: bool, run_dir: Path | str | None) -> Fields:
    """Listen to a topic, or, bounded, read what the spool holds; payloads are lines of JSON.

    A field `topic` that the payload lacks is the topic of the message.
    """
    session.dataSource.register(MqttSource)
    rows = load(session, NAME, stream.name, _options(stream, run_dir), streaming=streaming)
    arrived = F.when(F.col("size") != LOST, F.col("arrived"))
    lines = rows.select(F.col("payload").cast("string").alias(LINE), arrived.alias(ARRIVED), "topic", "size")
    fields = of_json(lines)

    def field(name: str) -> tuple[Any, Any]:
        column, kind = fields.field(name)
        return (F.coalesce(column, F.col("topic")) if name == "topic" else column), kind

    size = f"the payload has more than {MOST_PAYLOAD:,} bytes"
    broken = F.when(F.col("size") > MOST_PAYLOAD, size).when(F.col("size") == LOST, _DAMAGED).otherwise(fields.broken)
    return Fields(fields.frame, field, fields.rest, fields.text, broken, fields.arrived)


def _options(stream: Stream, run_dir: Path | str | None) -> dict[str, str]:
    """What the source is told; Spark hides a `password` wherever it shows options."""
    need_paho()
    given = stream.source.options
    folder = given.get("spool") or (Path(run_dir) / "spool" / stream.name if run_dir is not None else None)
    if folder is None:
        message = f"stream `{stream.name}`: source mqtt needs a run directory, or `spool`, a directory for messages"
        raise PlanError(message)
    host, port, topic = str(given["host"]), int(given.get("port") or 1883), str(given["topic"])
    qos = given.get("qos")
    options = {
        "host": host,
        "port": str(port),
        "topic": topic,
        "qos": str(1 if qos is None else qos),
        "client_id": str(given.get("client_id") or client_id(stream.name, host, port, topic)),
        "spool": str(Path(folder).absolute()),
    }
    for name in ("username", "password"):
        if given.get(name):
            # The name of a user is told under a name that Spark hides, too.
            options["password_user" if name == "username" else name] = _plain(given[name])
    _subscription(options)
    return options


def _plain(text: Any) -> str:
    return text.reveal() if isinstance(text, Secret) else str(text)


def _subscription(options: Any) -> Subscription:
    login = [Secret(text) if (text := options.get(name)) else None for name in ("password_user", "password")]
    return Subscription(
        options["host"], options["topic"], int(options["port"]), int(options["qos"]), options["client_id"], *login
    )


class MqttSource(Declared):
    """The source as Spark knows it; a row per message."""

    word, columns = NAME, SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read what the spool holds."""
        return _Bounded(self.options["spool"])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Listen."""
        return _Listening(dict(self.options), self.options["spool"])


class Messages(InputPartition):
    """Messages themselves, as columns."""

    def __init__(self, columns: list[list[Any]]) -> None:
        self.columns = columns


def _partitions(spool: SpoolReader, start: int, stop: int) -> list[Messages]:
    """Cut a range into partitions that are no burden for a task."""
    made = []
    while start < stop:
        upto = spool.end_within(start, stop, BATCH_ROWS, PARTITION_BYTES)
        rows = [(m.topic.decode("utf-8", "replace"), m.payload, m.size, m.arrived_us) for m in spool.read(start, upto)]
        made.append(Messages([list(column) for column in zip(*rows, strict=True)]))
        start = upto
    return made


def _batches(partition: Messages) -> Iterator[pa.RecordBatch]:
    kinds = {"topic": pa.string(), "payload": pa.binary(), "size": pa.int64(), "arrived": pa.int64()}
    if not partition.columns:
        return
    columns = zip(partition.columns, kinds.values(), strict=True)
    yield pa.RecordBatch.from_arrays([pa.array(column, kind) for column, kind in columns], names=list(kinds))


class SpoolPartition(InputPartition):
    """Messages of a spool by number."""

    def __init__(self, folder: str, start: int, stop: int) -> None:
        self.folder, self.start, self.stop = folder, start, stop


class _Bounded(DataSourceReader):
    """Reads a spool where the tasks run: all of it at once would be too much to travel."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def partitions(self) -> Sequence[InputPartition]:
        spool = SpoolReader(self.folder)
        start, stop = spool.span()
        made = []
        while start < stop:
            upto = spool.end_within(start, stop, BATCH_ROWS, BATCH_BYTES)
            made.append(SpoolPartition(self.folder, start, upto))
            start = upto
        return made or [SpoolPartition(self.folder, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpoolPartition)
        spool, start = SpoolReader(partition.folder), partition.start
        while start < partition.stop:
            upto = spool.end_within(start, partition.stop, BATCH_ROWS, PARTITION_BYTES)
            for messages in _partitions(spool, start, upto):
                yield from _batches(messages)
            start = upto


class _Listening(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader; it is also made where partitions are read, so nothing is opened before Spark asks for offsets."""

    def __init__(self, options: dict[str, str], folder: str) -> None:
        self.options, self.folder = options, folder
        self._collector: Collector | None = None
        self._spool: SpoolReader | None = None
        self._upto: int | None = None
        self._committed = 0

    def initialOffset(self) -> dict[str, int]:
        return {"next": self._open().span()[0]}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(BATCH_ROWS)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is there: what the spool has, and what the broker kept for this session."""
        spool = self._open()
        if self._collector is not None and not self._collector.settle():
            self._check()
            _log.warning("%s: no connection to the broker; only the spool is read", self._collector.subscription.place)
        self._upto = spool.span()[1]

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        spool = self._open()
        self._check()
        first, end = spool.span()
        begin = start["next"]
        if not first <= begin <= end:
            message = (
                f"spool {self.folder}: message {begin}, where the checkpoint continues, is missing; "
                f"the spool begins with message {first} and ends before message {end}"
            )
            raise RunError(message)
        end = end if self._upto is None else min(end, self._upto)
        return {"next": max(begin, spool.end_within(begin, end, BATCH_ROWS, BATCH_BYTES))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _partitions(self._open(), start["next"], end["next"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Messages)
        return _batches(partition)

    def commit(self, end: dict[str, int]) -> None:
        if self._collector is not None:
            discard(self.folder, self._committed)
        self._committed = end["next"]

    def stop(self) -> None:
        if self._collector is not None:
            self._collector.close()
            self._collector = None

    def _open(self) -> SpoolReader:
        """The spool; who finds nobody writing it begins to."""
        if self._spool is None:
            self._spool = SpoolReader(self.folder)
        if self._collector is None:
            try:
                self._collector = Collector(_subscription(self.options), self.folder)
            except RunError as error:
                _log.debug("%s; this reader only reads the spool", error)
        return self._spool

    def _check(self) -> None:
        if self._collector is not None and self._collector.refusal:
            raise RunError(self._collector.refusal)
