"""Source registry: the kind of a stream's source selects the reader, which returns a DataFrame, streaming or bounded.

Each kind returns raw fields (`raw_fields.py`). `row_validation.py` derives keys, time and values from them. An invalid
row stays in the DataFrame with a reason and its text, so that it is counted and shown; it does not stop the run.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tocsin.errors import PlanError
from tocsin.plan import Plan
from tocsin.rules.rulefile import RuleFile, Stream
from tocsin.spark.session import has_local_files
from tocsin.spark.sources import factory, kafka, mqtt
from tocsin.spark.sources.data_sources import read_parquet, stream_reader
from tocsin.spark.sources.raw_fields import LINE, Fields, of_columns, of_csv, of_json
from tocsin.spark.sources.row_validation import usable

# Kinds of sources that are files.
FILES = ("parquet", "json", "csv")
# Most characters that are shown of a header.
_MOST_SHOWN = 200


def streams_of(file: RuleFile, plan: Plan) -> dict[str, Stream]:
    """The streams that a plan reads, in the order of the file; others are not opened."""
    read_ones = {name for watch in plan.key_sets for name in watch.streams}
    return {name: stream for name, stream in file.streams.items() if name in read_ones}


def read(session: SparkSession, stream: Stream, *, streaming: bool, run_dir: Path | str | None = None) -> DataFrame:
    """Open the source of a stream.

    Gives the key columns as text, `TIME` (`_tocsin_time`) in microseconds since 1970, `ARRIVAL` (`_tocsin_arrival`) in
    microseconds or null, value columns as doubles, the other fields as JSON in `PAYLOAD` (`_tocsin_payload`; not there
    if there can be none), `REASON` and `RAW`. A value that a row lacks is null. Where `REASON` is not null the row
    cannot be used, and has neither time nor values. `run_dir` is where a source keeps what it must not lose.
    """
    kinds: Mapping[str, Callable[[], Fields]] = {
        "parquet": lambda: _parquet(session, stream, streaming=streaming),
        "json": lambda: _json_lines(session, stream, streaming=streaming),
        "csv": lambda: _csv(session, stream, streaming=streaming),
        "kafka": lambda: kafka.read(session, stream, streaming=streaming),
        "mqtt": lambda: mqtt.read(session, stream, streaming=streaming, run_dir=run_dir),
        "factory": lambda: factory.read(session, stream, streaming=streaming, run_dir=run_dir),
    }
    kind = stream.source.kind
    if kind not in kinds:
        message = f"stream `{stream.name}`: source must be one of {', '.join(kinds)}; got {kind}"
        raise PlanError(message)
    return usable(kinds[kind](), stream)


def _open(session: SparkSession, stream: Stream, *, streaming: bool) -> tuple[Any, str]:
    """A reader and what it reads: of one file a stream must have the folder, and filters it by name."""
    path = str(stream.source.options["path"])
    if not streaming:
        return session.read, path
    reader, most = stream_reader(session, stream.name), stream.source.options.get("max_files_per_batch")
    if most:
        reader = reader.option("maxFilesPerTrigger", most)
    if Path(path).is_file():
        reader = reader.option("pathGlobFilter", re.sub(r"([][{}*?\\^])", r"\\\1", Path(path).name))
        path = str(Path(path).absolute().parent)
    return reader, path


def _parquet(session: SparkSession, stream: Stream, *, streaming: bool) -> Fields:
    """Columns as the files have them; a stream takes those of the files that are there when it starts."""
    reader, path = _open(session, stream, streaming=streaming)
    if streaming:
        reader = reader.schema(read_parquet(session, str(stream.source.options["path"])).schema)
    frame = reader.parquet(path) if streaming else read_parquet(session, path)
    _check_named(stream, frame.columns, "the schema of its Parquet files", ", ".join(frame.columns))
    return of_columns(frame)


def _lines(session: SparkSession, stream: Stream, *, streaming: bool) -> DataFrame:
    """The lines of text files; a line without anything is no row."""
    reader, path = _open(session, stream, streaming=streaming)
    lines: DataFrame = reader.text(path)
    return lines.where(F.trim("value") != "").select(F.col("value").alias(LINE))


def _json_lines(session: SparkSession, stream: Stream, *, streaming: bool) -> Fields:
    return of_json(_lines(session, stream, streaming=streaming))


def _csv(session: SparkSession, stream: Stream, *, streaming: bool) -> Fields:
    """Columns by the header of the first file; all files have it. Lines that repeat it are no rows."""
    header = _header(session, stream)
    lines = _lines(session, stream, streaming=streaming)
    return of_csv(lines.where(F.trim(LINE) != header.strip()), _columns(stream, header))


def _header(session: SparkSession, stream: Stream) -> str:
    first = _lines(session, stream, streaming=False).first()
    if first is None:
        path = stream.source.options["path"]
        message = (
            f"stream `{stream.name}`: {path} must contain a CSV file with a header when a run starts; no file was found"
        )
        raise PlanError(message)
    return str(first[0])


def _columns(stream: Stream, header: str) -> list[str]:
    """The names of a header; all that the stream names must be there, and none twice."""
    names = [name.strip() for name in next(csv.reader([header]))]
    place = "the header of its CSV files"
    _check_named(stream, names, place, header)
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        message = f"stream `{stream.name}`: {place} must list each column once; got {header[:_MOST_SHOWN]!r}"
        raise PlanError(message)
    return names


def _check_named(stream: Stream, names: Collection[str], place: str, shown: str) -> None:
    """Refuse a column that no row can have: all rows would be dead, or a rule never evaluated."""
    wanted = dict.fromkeys(name for name in (*stream.keys, stream.time, stream.arrival, *stream.values) if name)
    missing = [name for name in wanted if name not in names]
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        message = f"stream `{stream.name}`: {place} must have the columns {listed}; got {shown[:_MOST_SHOWN]!r}"
        raise PlanError(message)


def check_paths(streams: Iterable[Stream], master: str, conf: Mapping[str, str]) -> None:
    """Look for the files of streams before Spark starts, which takes half a minute to say that they are not there.

    Only where a plain path can mean nothing but this machine's files.
    """
    if not has_local_files(conf) or not master.startswith("local"):
        return
    for stream in streams:
        path = str(stream.source.options.get("path", "")) if stream.source.kind in FILES else ""
        if path and not re.search(r"[*?{}\[\]\\]|^[A-Za-z][A-Za-z0-9+.-]*:", path) and not Path(path).exists():
            message = f"stream `{stream.name}`: path `{path}` does not exist; it must exist when a run starts"
            raise PlanError(message)
