"""Dead rows: those that could not be used, all of them, with the reason and their text; a file per micro-batch.

Guarantee: a micro-batch that is run again replaces its file by an equal one. A file is there whole or not at all.
Cost: rows that were put aside by others, in files, are copied; they are never in memory together.
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
# Where rows are that came too late: the same files, with other lines.
LATE = "late"
_ASIDE = "_aside"
_CHUNK = 1 << 20
_NAME = re.compile(r"(\d{12})\.jsonl")


class DeadRow(NamedTuple):
    """A row that could not be used, in which micro-batch and why."""

    batch: int
    stream: str
    reason: str
    raw: str


class Aside(NamedTuple):
    """Dead rows of a stream that stand in a file of their own, in the lines of the file that is to have them."""

    stream: str
    file: str
    rows: int


def late_line(text: str) -> str:
    """A row that came late as its file has it: with its time written as in the alert log."""
    row = json.loads(text)
    return json.dumps({**row, "time": event_text(row["time"])})


class DeadWriter:
    """Writes the dead rows of micro-batches; one process at a time. Others may put many of them into `aside`."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.aside = self.folder / _ASIDE

    def clear(self) -> None:
        """Forget what an earlier try of a micro-batch put aside."""
        shutil.rmtree(self.aside, ignore_errors=True)

    def write(
        self, batch: int, lines: Iterable[str], aside: Sequence[Aside] = (), files: Sequence[str] = ()
    ) -> Mapping[str, int]:
        """Write rows, each a JSON object with stream, reason and raw; return the number of rows per stream.

        `files` has lines about unreadable files. They are written but do not count as rows.
        """
        counts: Counter[str] = Counter()
        written = []
        for line in lines:
            counts[json.loads(line)["stream"]] += 1
            written.append(f"{line}\n".encode("utf-8", "replace"))
        for part in aside:
            counts[part.stream] += part.rows
        written += [f"{line}\n".encode() for line in files]
        if counts or files:
            self.folder.mkdir(parents=True, exist_ok=True)
            copied = (chunk for part in aside for chunk in self._chunks(part.file))
            replace_file(self.folder / f"{batch:012}.jsonl", chain(written, copied))
        if aside:
            self.clear()
        return dict(counts)

    def _chunks(self, name: str) -> Iterator[bytes]:
        path = self.aside / name
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
        except FileNotFoundError:
            message = f"run directory: `{path}` must be in a folder that driver and workers share; it is not there"
            raise RunError(message) from None


def read_dead(run_dir: Path | str, since: int = 0) -> Iterator[DeadRow]:
    """Read the dead rows of a run from a micro-batch on, in order; what cannot be read is left out."""
    folder = Path(run_dir) / DEAD
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for name in names:
        match = _NAME.fullmatch(name)
        if match and int(match[1]) >= since:
            with (folder / name).open("rb") as file:
                yield from (row for line in file if (row := _row(int(match[1]), line)) is not None)


def _row(batch: int, line: bytes) -> DeadRow | None:
    try:
        row = json.loads(line)
        return DeadRow(batch, str(row["stream"]), str(row["reason"]), str(row["raw"]))
    except (ValueError, KeyError, TypeError):
        return None
