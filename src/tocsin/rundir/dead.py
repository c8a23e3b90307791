"""Dead rows: those that could not be used, all of them, with the reason and their text; a file per micro-batch.

Guarantee: a micro-batch that is run again replaces its file by an equal one. A file is there whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tocsin.files import replace_file

DEAD = "dead"
_NAME = re.compile(r"(\d{12})\.jsonl")


class DeadRow(NamedTuple):
    """A row that could not be used, in which micro-batch and why."""

    batch: int
    stream: str
    reason: str
    raw: str


class DeadWriter:
    """Writes the dead rows of micro-batches; one process at a time."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def write(self, batch: int, lines: Iterable[str]) -> Mapping[str, int]:
        """Write rows, each a JSON object with stream, reason and raw; give how many there are per stream."""
        counts: dict[str, int] = {}
        written = []
        for line in lines:
            stream = json.loads(line)["stream"]
            counts[stream] = counts.get(stream, 0) + 1
            written.append(line)
        if written:
            self.folder.mkdir(parents=True, exist_ok=True)
            data = ("\n".join(written) + "\n").encode("utf-8", "replace")
            replace_file(self.folder / f"{batch:012}.jsonl", data)
        return counts


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
