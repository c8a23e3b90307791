"""Rows that a run archived, read for one question: which files, which rows, and what is refused rather than cut off.

Idea: a file is named by its run and its micro-batch, and rows come roughly in order of time. So the rows around an
alert are in the files of its micro-batches and of those nearest to them.
Guarantee: an answer rests on all files that it needs, or there is none: where files had to be left out that may have
rows of the time that is looked at, that is said.
Cost: at most `MOST_FILES` files and `MOST_ROWS` rows per stream.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tocsin.dashboard.tracer import CannotTraceError
from tocsin.rules.rulefile import Stream

MOST_ROWS, MOST_FILES = 200_000, 4_000
PAYLOAD, FILE = "tocsin_payload", "__filename"
_REASON, _ARRIVAL = "tocsin_reason", "tocsin_arrival"
_MOMENT = pa.timestamp("us", tz="UTC")
_NAME = re.compile(r"(\d+)-(\d{12})-.*\.parquet")

Files = Mapping[int, Sequence[Path]]


def files_of(asked: Mapping[str, Any], stream: str) -> dict[int, list[Path]]:
    """The files of a stream by micro-batch, of the run that is asked about."""
    folder = Path(asked["archive"]) / stream
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        names = []
    found: dict[int, list[Path]] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match and match[1] == asked["run"]:
            found.setdefault(int(match[2]), []).append(folder / name)
    if not found:
        message = f"the archive {folder} has no rows of stream `{stream}` from this run"
        raise CannotTraceError(message)
    return dict(sorted(found.items()))


def every_file(files: Files, stream: str) -> list[Path]:
    """All files, for what all rows of a run decide."""
    every = [path for mine in files.values() for path in mine]
    if len(every) > MOST_FILES:
        message = f"the rows of stream `{stream}` are in {len(every):,} files; the limit is {MOST_FILES:,}"
        raise CannotTraceError(message)
    return every


def files_around(files: Files, batches: tuple[int, int], span: tuple[int, int], stream: Stream) -> list[Path]:
    """The files of the micro-batches of an alert and of the nearest; where others are left out, they lie outside."""
    first, last = batches
    taken: list[int] = []
    number = 0
    for batch in sorted(files, key=lambda batch: (max(first - batch, batch - last, 0), batch)):
        number += len(files[batch])
        if number > MOST_FILES:
            break
        taken.append(batch)
    low, high = min(taken, default=last + 1), max(taken, default=first - 1)
    is_cut = any(first <= batch <= last and batch not in taken for batch in files)
    is_cut = is_cut or (low > min(files) and not _middle_us(files[low], stream) < span[0])
    is_cut = is_cut or (high < max(files) and not _middle_us(files[high], stream) > span[1])
    if is_cut:
        message = f"the rows of stream `{stream.name}` around the alert are in more than {MOST_FILES:,} files"
        raise CannotTraceError(message)
    return [path for batch in sorted(taken) for path in files[batch]]


def _middle_us(paths: Sequence[Path], stream: Stream) -> float:
    """The time in the middle of the rows of a micro-batch: a few that are late or ahead do not move it."""
    table = ds.dataset([str(path) for path in paths], format="parquet").to_table(columns=[stream.time])
    times = table.column(stream.time).cast(_MOMENT).cast(pa.int64()).drop_null().to_numpy()
    return float(np.median(times)) if len(times) else float("nan")


def read_rows(files: Sequence[Path], stream: Stream, columns: Sequence[str], wanted: pc.Expression | None) -> pa.Table:
    """Rows that could be used; of columns those that are there, with the time, the arrival and the payload."""
    there = ds.dataset([str(path) for path in files], format="parquet")
    usable = pc.field(_REASON).is_null() if _REASON in there.schema.names else pc.scalar(True)
    asked = dict.fromkeys([stream.time, stream.arrival or _ARRIVAL, *columns, PAYLOAD, FILE])
    known = [name for name in asked if name in there.schema.names or name == FILE]
    table = there.head(MOST_ROWS + 1, columns=known, filter=usable if wanted is None else usable & wanted)
    if table.num_rows > MOST_ROWS:
        message = f"stream `{stream.name}` has more than {MOST_ROWS:,} rows in this period; select a shorter one"
        raise CannotTraceError(message)
    return table


def of_key(on: Sequence[str], key: Sequence[str]) -> pc.Expression | None:
    """What is true of the rows of one key."""
    wanted = None
    for column, text in zip(on, key, strict=True):
        mine = pc.field(column).cast(pa.string()) == text
        wanted = mine if wanted is None else wanted & mine
    return wanted


def between(stream: Stream, span: tuple[int, int]) -> pc.Expression:
    """What is true of the rows of a span of event time."""
    low, high = (pa.scalar(us, pa.int64()).cast(_MOMENT) for us in span)
    return (pc.field(stream.time) >= low) & (pc.field(stream.time) <= high)


def times_of(table: pa.Table, stream: Stream) -> tuple[Any, Any]:
    """When rows happened and when they came, in microseconds; one that does not say came when it happened."""
    time = table.column(stream.time).cast(_MOMENT).cast(pa.int64()).fill_null(0).to_numpy()
    arrival = stream.arrival or _ARRIVAL
    if arrival not in table.column_names:
        return time, time
    told = table.column(arrival).cast(_MOMENT).cast(pa.int64())
    return time, np.where(told.is_valid().to_numpy(), told.fill_null(0).to_numpy(), time)


def values_of(table: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
    """Columns as numbers; what is missing is none."""
    return {name: table.column(name).cast(pa.float64()).fill_null(float("nan")).to_numpy() for name in columns}


def payloads_of(table: pa.Table) -> Any:
    """What travelled along with each row; None where nothing did."""
    texts = table.column(PAYLOAD).to_pylist() if PAYLOAD in table.column_names else [None] * table.num_rows
    return np.array(texts, dtype=object)


def batches_of(table: pa.Table) -> Any:
    """The micro-batch of each row, by the name of its file."""
    return np.array([int(Path(name).name.split("-")[1]) for name in table.column(FILE).to_pylist()], np.int64)
