"""The archive: every row received, those left out and those not usable too, as Parquet by stream.

Idea: rows are written by the very tasks that read them for detection, on their way; no source is read twice. A task
writes aside, and the driver puts the files of a micro-batch in place when all of it is done.
Guarantee: exactly once by (micro-batch, stream): one that is run again replaces its files, however its rows are cut
into tasks then. A reader may see a part of the newest micro-batch for a moment.
Cost: each row passes through Python once more. The archive is searched once, by the first micro-batch of a run. The
folder must be one that driver and workers share.

`ARCHIVE/<stream>/<run>-<batch>-<task>.parquet` has the columns that the rule file names, event time as a timestamp and,
with names of our own, arrival, the fields that no rule reads, and reason and text of rows that could not be used. So it
is a source for the same stream.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tocsin.errors import RunError
from tocsin.files import sync_path
from tocsin.rules.rulefile import Stream
from tocsin.spark.blobs import ARRIVAL, TIME

STAGING = "_staging"
# How Spark tells the tasks of a micro-batch which one it is.
_BATCH = "streaming.sql.batchId"
_ROWS = 131_072
_MOMENT = pa.timestamp("us", tz="UTC")

# Columns of ours -> what the rule file calls them.
Names = Mapping[str, str]


class Archive:
    """Folder of the rows of a run.

    `run` is part of the file names, because all runs number their micro-batches alike; `first_batch` is the number of
    Spark's micro-batch 0 in this run.
    """

    def __init__(self, folder: str, run: str, first_batch: int = 0) -> None:
        if "://" in folder:
            message = f"archive: `path` must be a directory that driver and workers share; got the address {folder!r}"
            raise RunError(message)
        self.folder, self.run, self.first_batch = Path(folder).absolute(), run, first_batch
        self.staging = self.folder / STAGING / run
        self._newest = -1

    def passing(self, stream: Stream, frame: DataFrame) -> DataFrame:
        """The same rows, each written aside on its way."""
        writer = _writer(str(self.staging), stream)
        return frame.mapInArrow(writer, frame.schema)

    def clear(self, batch: int) -> None:
        """Forget what an earlier try of a micro-batch wrote aside."""
        shutil.rmtree(self._aside(batch), ignore_errors=True)

    def commit(self, batch: int) -> None:
        """Put the files of a micro-batch in the place of those of an earlier try."""
        aside = self._aside(batch)
        written = [path for path in sorted(aside.glob("*/*.parquet")) if not path.name.startswith(".")]
        name = f"{self.run}-{batch + self.first_batch:012}"
        places = {path: self.folder / path.parent.name / f"{name}-{path.name}" for path in written}
        for old in self._earlier(batch, name).difference(places.values()):
            old.unlink()
        for path, place in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
        for folder in {place.parent for place in places.values()}:
            sync_path(folder)
        shutil.rmtree(aside, ignore_errors=True)

    def _earlier(self, batch: int, name: str) -> set[Path]:
        """The files of an earlier try; a query that fails ends, so only the first micro-batch of a run may have one."""
        is_new, self._newest = batch > self._newest >= 0, batch
        return set() if is_new else set(self.folder.glob(f"*/{name}-*.parquet"))

    def _aside(self, batch: int) -> Path:
        return self.staging / f"{batch:012}"


def _writer(staging: str, stream: Stream) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # Only names travel to the workers: a source may hold a password.
    folder, names = stream.name, {TIME: stream.time} | ({ARRIVAL: stream.arrival} if stream.arrival else {})

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty(_BATCH) or 0)
        path = Path(staging) / f"{batch:012}" / folder / f"{context.partitionId():05}.parquet"
        return _written(batches, path, f".{path.stem}.{context.taskAttemptId()}", names)

    return run


def _written(batches: Iterable[pa.RecordBatch], path: Path, beside: str, names: Names) -> Iterator[pa.RecordBatch]:
    """Hand rows on and write them, in row groups of a good size; a task that is tried again replaces its file."""
    temporary, writer, held = path.with_name(beside), None, list[pa.RecordBatch]()
    try:
        for batch in batches:
            held.append(batch)
            if sum(piece.num_rows for piece in held) >= _ROWS:
                writer, held = _flushed(writer, held, temporary, names), []
            yield batch
        if held:
            writer = _flushed(writer, held, temporary, names)
    finally:
        if writer is not None:
            writer.close()
    if writer is not None:
        sync_path(temporary)
        temporary.replace(path)


def _flushed(
    writer: pq.ParquetWriter | None, held: list[pa.RecordBatch], path: Path, names: Names
) -> pq.ParquetWriter | None:
    table = as_archived(pa.Table.from_batches(held), names)
    if not table.num_rows:
        return writer
    if writer is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = pq.ParquetWriter(path, table.schema)
    writer.write_table(table)
    return writer


def as_archived(table: pa.Table, names: Names) -> pa.Table:
    """The columns of the archive: times under their own names, and names of ours as a user may name a column."""
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        is_moment = name in (TIME, ARRIVAL) and pa.types.is_integer(column.type)
        plain = name.removeprefix("_") if name.startswith("_tocsin_") else name
        columns[names.get(name, plain)] = column.cast(_MOMENT) if is_moment else column
    return pa.table(columns)
