"""Dead-letter files: all invalid rows of a micro-batch, with their reason and their text, in one file.

`RUN/late` has late rows in files of the same kind.

Guarantee: a repeated micro-batch replaces its file by an equal file. A file is complete or does not exist.
Cost: rows that Spark tasks have staged in files are copied in chunks, and are never in memory together.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tocsin.errors import RunError
from tocsin.files import replace_file
from tocsin.rules.durations import event_text

DEAD = "dead"
# Folder with late rows.
LATE = "late"
_STAGING = "_staging"
_CHUNK = 1 << 20
_NAME = re.compile(r"(\d{12})\.jsonl")


class DeadRow(NamedTuple):
    """An invalid row: its micro-batch, its stream, the reason and the text of the row."""

    batch: int
    stream: str
    reason: str
    raw: str


class StagedRows(NamedTuple):
    """File of the staging folder with invalid rows of one stream, in the format of a dead-letter file."""

    stream: str
    file: str
    rows: int


def format_late_row(text: str) -> str:
    """Return the line of a late row, with its time in the format of the alert log."""
    row = json.loads(text)
    return json.dumps({**row, "time": event_text(row["time"])})


class DeadLetterWriter:
    """Writer of the files of a folder, for one process. Spark tasks write many rows to `staging` instead."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.staging = self.folder / _STAGING

    def clear(self) -> None:
        """Delete the staged rows of an earlier attempt of a micro-batch."""
        shutil.rmtree(self.staging, ignore_errors=True)

    def write(
        self, batch: int, lines: Iterable[str], staged: Sequence[StagedRows] = (), files: Sequence[str] = ()
    ) -> Mapping[str, int]:
        """Write rows, each a JSON object with stream, reason and raw; return the number of rows per stream.

        `files` has lines about unreadable source files. They are written but do not count as rows.
        """
        counts: Counter[str] = Counter()
        encoded = []
        for line in lines:
            counts[json.loads(line)["stream"]] += 1
            encoded.append(f"{line}\n".encode("utf-8", "replace"))
        for part in staged:
            counts[part.stream] += part.rows
        encoded += [f"{line}\n".encode() for line in files]
        if counts or files:
            self.folder.mkdir(parents=True, exist_ok=True)
            copied = (chunk for part in staged for chunk in self._read_chunks(part.file))
            replace_file(self.folder / f"{batch:012}.jsonl", chain(encoded, copied))
        if staged:
            self.clear()
        return dict(counts)

    def _read_chunks(self, name: str) -> Iterator[bytes]:
        path = self.staging / name
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
        except FileNotFoundError:
            message = f"run directory: `{path}` must be in a folder that driver and workers share; file not found"
            raise RunError(message) from None


def read_dead(run_dir: Path | str, since: int = 0) -> Iterator[DeadRow]:
    """Yield the invalid rows of a run in order, from micro-batch `since`. Unreadable lines are skipped."""
    folder = Path(run_dir) / DEAD
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for name in names:
        match = _NAME.fullmatch(name)
        if match and int(match[1]) >= since:
            with (folder / name).open("rb") as file:
                yield from (row for line in file if (row := _parse_row(int(match[1]), line)) is not None)


def _parse_row(batch: int, line: bytes) -> DeadRow | None:
    try:
        row = json.loads(line)
        return DeadRow(batch, str(row["stream"]), str(row["reason"]), str(row["raw"]))
    except (ValueError, KeyError, TypeError):
        return None
