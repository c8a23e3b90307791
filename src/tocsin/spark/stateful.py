"""Run any step on Spark: rows fold into blobs, blobs go to their bucket, one stateful operator calls a `Session` there.

Streaming uses `transformWithStateInPandas`: its map state lets a batch write the pages that changed and no others,
where `applyInPandasWithState` carries the whole state to Python and back in each batch. The price seen is about 7 s
more for the first batch; on later batches the two could not be told apart on a busy machine. It needs the RocksDB state
store (`SETTINGS`), protobuf and grpcio. A bounded input takes the same blobs through `mapInArrow`.

The operator returns rows of a kind with JSON text, and alert batches as bytes (`runtime/alert_arrow.py`).
`spark/results.py` reads both.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from tocsin.errors import RunError
from tocsin.run_directory.progress import add_counts_by_name
from tocsin.runtime.alert_arrow import pack_alerts
from tocsin.runtime.contract import Out, Step
from tocsin.runtime.session import Session
from tocsin.spark.blobs import BLOBS, Feed, Piece, read_blob
from tocsin.spark.buckets import bucket_ids
from tocsin.spark.plan_session_cache import PlanSessionCache
from tocsin.spark.row_counter import EVALUATED, RowCounter
from tocsin.spark.rows import calls, dead_line, fold, in_order, wake

if TYPE_CHECKING:
    import pandas as pd

# What a session needs before the query starts; partitions are the user's choice, as many as there are cores to use.
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Write what changed in each batch, not a snapshot of the store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A blob has megabytes, and Spark would put 10,000 of them into one transfer to Python.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
}
# Whether a query runs micro-batches without rows, for what timers say. It is read when a query starts.
NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
# For sessions whose checkpoints lie on a local disk: the way Spark chooses by itself starts some 50 processes per
# micro-batch there (`readlink`, `chmod`), a third of its time. Elsewhere Spark's own choice is right.
LOCAL_DISK_CONF = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
# For sessions with a local master: Spark forks its Python workers from a process that has imported Tocsin already. On a
# cluster Tocsin may be shipped to the workers, where the process would not find it. Simplified tracebacks are an
# environment variable of the workers of `mapInArrow` only, so that the operator would need a second process.
LOCAL_MASTER_CONF = {
    "spark.python.daemon.module": "tocsin.spark.worker_daemon",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
# The module that Spark runs to set up the state variables of a query. It prints five lines about its progress.
DRIVER_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"
MAGIC, VERSION = "tocsin-state", 4
# The entry beside the pages that says what they belong to.
HEAD = "head"

_RAW = "kind string, json string, alerts binary"
_COLUMNS = ["kind", "json", "alerts"]

# How late rows came: per stream, how many of each class of delays.
Delays = Mapping[str, Mapping[str, int]]
_NO_DELAYS: Delays = {}

# Output row of the operator: a kind (alerts, answer, metrics, late, report, dead, aside), JSON text, and alert batches
# as bytes. A row of the kind `alerts` has bytes, all other rows have text.
OutputRow = tuple[str, str | None, bytes | None]
Rows = Sequence[OutputRow]


@dataclass(frozen=True)
class Work:
    """What every worker must know."""

    step: Step
    feeds: tuple[Feed, ...]
    ids: tuple[int, ...]
    # Whether the query acts in silence, where that was chosen; then the time for which no query ran is no silence.
    acts: bool | None = None
    # Tells this query from others that the same worker serves, of other steps or earlier ones.
    query: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def facts(self) -> dict[str, Any]:
        """What state is bound to; state of anything else is refused."""
        return {"magic": MAGIC, "version": VERSION, "buckets": len(self.ids)}


def run_stateful(
    streams: Sequence[tuple[DataFrame, Sequence[Feed]]],
    step: Step,
    buckets: int = 4,
    control: DataFrame | None = None,
    *,
    acts: bool | None = None,
    aside: str | None = None,
) -> DataFrame:
    """Run a step over streaming or over bounded DataFrames, one per stream with the feeds that read it.

    `spark/results.py` reads what it gives. A row of `control` calls every bucket, whether there are rows for it or not;
    its text, if it has any, is a control row for the session.

    With `acts` a query acts in silence, and the time for which none ran is no silence: what is due by the clock waits
    for as long as it would have. A query that is started with another choice than this is refused. State is bound to
    the number of buckets, not to the number of shuffle partitions: Spark reads that number from the checkpoint. What a
    step takes over of another's pages is its own affair.
    `aside` is a folder, seen by driver and workers, for rows not usable that are too many to travel: a row `aside`
    names the file.
    """
    frames = [frame for frame, _ in streams]
    streaming = frames[0].isStreaming
    if any(frame.isStreaming != streaming for frame in frames):
        message = "streams must be all streaming or all bounded; got both"
        raise RunError(message)
    kinds = tuple(feed for _, feeds in streams for feed in feeds)
    work = Work(step, kinds, tuple(bucket_ids(buckets)), acts)
    blobs, number = [], 0
    for frame, feeds in streams:
        columns = dict.fromkeys(column for feed in feeds for column in feed.columns)
        blobs.append(frame.select(*columns).mapInArrow(fold(list(enumerate(feeds, number)), work.ids, aside), BLOBS))
        number += len(feeds)
    if control is not None:
        blobs.append(control.mapInArrow(wake(kinds[0], work.ids), BLOBS))
    rows = blobs[0]
    for more in blobs[1:]:
        rows = rows.unionAll(more)
    if streaming:
        return rows.groupBy("bucket").transformWithStateInPandas(_Operator(work), _RAW, "append", "ProcessingTime")
    partitions = int(frames[0].sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    sorted_rows = rows.repartition(partitions, "bucket").sortWithinPartitions("bucket", "first")
    return sorted_rows.mapInArrow(_bounded(work), _RAW)


# One per Python worker. A task finds the plan sessions that earlier tasks of this worker kept.
_sessions = PlanSessionCache()


class _Operator(StatefulProcessor):
    """The operator of one partition: Spark calls it per bucket."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        _mute_driver_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        _check_silence(self.work.acts)
        self.handle = handle
        # One variable for all: Spark sets up each anew, some 20 ms, in every task.
        self.pages = handle.getMapState("pages", "name string", "page binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Hand over the rows of one batch."""
        pieces = [read_blob(blob, self.work.feeds) for frame in rows for blob in frame["blob"]]
        batches = in_order(pieces, self.work.feeds)
        dead = _dead(pieces, self.work.feeds)
        # Which file is read first is left to chance; a batch that is run again must take them alike.
        control = sorted((row for piece in pieces for row in piece.control), key=json.dumps)
        control = [_unaddressed(row) for row in control if row.get("bucket", key[0]) == key[0]]

        def call(session: Session, now_us: int) -> Out:
            out = session.control(control) if control else Out()
            out.add(session.push(batches, now_us))
            return out

        yield from self._call(key, timerValues, call, dead, _delays(pieces, self.work.feeds))

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        """Advance processing time."""
        yield from self._call(key, timerValues, lambda session, now_us: session.advance(now_us), fired=True)

    def close(self) -> None:
        """Leave nothing open."""

    def _call(
        self,
        key: Any,
        times: TimerValues,
        call: Callable[[Session, int], Out],
        dead: Rows = (),
        delays: Delays = _NO_DELAYS,
        *,
        fired: bool = False,
    ) -> Iterator[pd.DataFrame]:
        now_ms = times.getCurrentProcessingTimeInMs()
        head = self._head()
        rested = self._rested_ms(head, now_ms)
        session = self._session(key[0], head)
        out = call(session, (now_ms - rested) * 1000)
        sizes = self._write(session.changed_pages(), head.get("sizes", {}))
        gained = sum(sizes.values()) - sum(head.get("sizes", {}).values())
        old_ms = None if fired else head.get("timer")  # Spark removes a timer that has fired.
        due_us = session.next_timer()
        timer = self._set_timer(old_ms, None if due_us is None else due_us + rested * 1000, now_ms)
        mark = uuid.uuid4().hex
        new_head = {**self.work.facts, "mark": mark, "timer": timer, "sizes": sizes}
        new_head |= {"query": self.work.query, "now": now_ms, "rested": rested}
        self.pages.updateValue((HEAD,), (json.dumps(new_head).encode(),))
        _sessions.keep_session(self.work.query, key[0], mark, session)
        out.metrics.record("state_bytes", gained)
        for stream, classes in delays.items():
            for name, rows in classes.items():
                out.metrics.record("delays", rows, stream, name)
        reports = [("report", json.dumps({"bucket": key[0], **one}), None) for one in out.reports]
        # The driver worker of each query imports this module, and does without pandas.
        import pandas as pd

        yield pd.DataFrame([*output_rows(out, key[0]), *reports, *dead], columns=_COLUMNS)

    def _write(self, changed: Mapping[str, bytes | None], sizes: Mapping[str, int]) -> dict[str, int]:
        """Store the pages that changed; give the sizes of all."""
        for name, page in changed.items():
            if page is None:
                self.pages.removeKey((name,))
            else:
                self.pages.updateValue((name,), (page,))
        now = {**sizes, **{name: len(page or b"") for name, page in changed.items()}}
        return {name: size for name, size in now.items() if size}

    def _head(self) -> dict[str, Any]:
        stored = self.pages.getValue((HEAD,))
        if stored is None:
            return {}
        head: dict[str, Any] = json.loads(stored[0])
        check_head(head, self.work.facts)
        return head

    def _rested_ms(self, head: Mapping[str, Any], now_ms: int) -> int:
        """For how long no query has run since the state was begun, as far as this bucket can tell.

        While something is due, timers call it, so its last call was shortly before the stop. A batch that is run again
        has the state and the time of its first try, and so the same answer.
        """
        rested: int = head.get("rested", 0)
        if self.work.acts and head.get("query", self.work.query) != self.work.query:
            rested += max(0, now_ms - head["now"])
        return rested

    def _session(self, bucket: int, head: Mapping[str, Any]) -> Session:
        session = _sessions.take_session(self.work.query, bucket, head.get("mark", ""))
        if session is not None:
            return session
        pages = {name[0]: bytes(page[0]) for name, page in self.pages.iterator()} if head else {}
        pages.pop(HEAD, None)
        return Session(self.work.step, pages)

    def _set_timer(self, old_ms: int | None, timer_us: int | None, now_ms: int) -> int | None:
        """Have a timer no later than asked for; one that is due already fires in the next batch.

        With each batch the time asked for moves on a little. A timer that stands earlier stays: when it fires, the
        session finds nothing to do, and the next is set. Moving it in every batch would cost Spark 20 ms each time.
        """
        new_ms = None if timer_us is None else max(-(-timer_us // 1000), now_ms + 1)
        if old_ms is not None and (new_ms is None or old_ms <= new_ms):
            return old_ms
        if old_ms is not None:
            self.handle.deleteTimer(old_ms)
        if new_ms is not None:
            self.handle.registerTimer(new_ms)
        return new_ms


def _mute_driver_worker() -> None:
    """Switch off `print` in the module of the driver worker; other output and all errors remain.

    Spark starts this process once per query, and copies its standard output to the terminal of the user.
    """
    main = sys.modules["__main__"]
    if getattr(main.__spec__, "name", None) == DRIVER_WORKER:
        vars(main)["print"] = lambda *_: None


def _unaddressed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A control row without the bucket that it is for."""
    return {name: value for name, value in row.items() if name != "bucket"}


def _check_silence(acts: bool | None) -> None:
    """Refuse to run in a query that was started when the session had another choice; tasks know its settings."""
    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(NO_DATA_BATCHES)
    if acts is not None and found is not None and found != str(acts).lower():
        message = (
            f"`idle_timers` must still be {acts} when the query starts, because a session has one value for all "
            "queries; "
            "another query has changed it: start each query before you create the next"
        )
        raise RunError(message)


def check_head(head: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Refuse state that was not written in this layout."""
    words = {"magic": "format", "version": "version of the state", "buckets": "number of buckets"}
    for name, word in words.items():
        if head.get(name) != facts[name]:
            message = (
                f"the state in the checkpoint must have the {word} {facts[name]!r}; got {head.get(name)!r}: "
                "use the earlier version or setting, or start with a new checkpoint"
            )
            raise RunError(message)


def output_rows(out: Out, bucket: int) -> Rows:
    """Return the output of a call as rows of the operator: alerts, answers, late and dead rows, and metrics."""
    kinds = {"answer": out.answers, "late": out.late, "dead": out.dead}
    rows: list[OutputRow] = [("alerts", None, data) for data in pack_alerts(out.alerts)]
    rows += [(kind, json.dumps(row), None) for kind, mine in kinds.items() for row in mine]
    metrics = {"bucket": bucket, "metrics": out.metrics.to_json()}
    return [*rows, ("metrics", json.dumps(metrics), None)] if out.metrics else rows


def _delays(pieces: Iterable[Piece], feeds: Sequence[Feed]) -> Delays:
    """How late the rows of each stream came, where they say when they arrived."""
    whole: dict[str, dict[str, int]] = {}
    for piece in pieces:
        whole = add_counts_by_name(whole, {feeds[piece.feed].stream: piece.delays} if piece.delays else {})
    return whole


def _dead(pieces: Iterable[Piece], feeds: Sequence[Feed]) -> Rows:
    """The rows that could not be used, as rows of text; of those put aside, where and how many."""
    rows: list[OutputRow] = []
    for piece in pieces:
        stream = feeds[piece.feed].stream
        rows += [("dead", dead_line(stream, *row), None) for row in piece.dead]
        if piece.aside is not None:
            name, number = piece.aside
            rows.append(("aside", json.dumps({"stream": stream, "file": name, "rows": number}), None))
    return rows


def _bounded(work: Work) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_partition(batches, work)

    return run


def run_partition(batches: Iterable[pa.RecordBatch], work: Work) -> Iterator[pa.RecordBatch]:
    """Run the buckets of one partition of a bounded input to their end; rows come by (bucket, first arrival)."""
    rows = (row for batch in batches for row in zip(*(batch.column(i).to_pylist() for i in range(3)), strict=True))
    # A stream is in several feeds if several key sets read it; its rows are counted in the first feed.
    first = {feed.stream: feed.key_set for feed in reversed(work.feeds)}
    with RowCounter(EVALUATED) as counter:
        for bucket, mine in groupby(rows, key=lambda row: row[0]):
            session = Session(work.step)
            dead: list[OutputRow] = []
            for call in calls(_pieces(mine, work.feeds, dead), work.feeds):
                yield _record_batch([*output_rows(session.push(call), bucket), *dead])
                dead.clear()
                counter.add(sum(len(batch.time) for batch in call if batch.key_set == first[batch.stream]))
            ended = session.end()
            ended.metrics.record("state_bytes", sum(len(page or b"") for page in session.changed_pages().values()))
            yield _record_batch(output_rows(ended, bucket))


def _pieces(
    rows: Iterable[tuple[int, int, bytes]], feeds: Sequence[Feed], dead: list[OutputRow]
) -> Iterator[tuple[int, Piece]]:
    """Read blobs with their first arrival, and set aside what could not be used."""
    for _, first, blob in rows:
        piece = read_blob(blob, feeds)
        dead += _dead([piece], feeds)
        yield first, piece


def _record_batch(rows: Rows) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    kinds = (pa.string(), pa.string(), pa.binary())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, _COLUMNS)
