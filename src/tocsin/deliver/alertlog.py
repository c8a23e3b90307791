"""The alert log: a folder with one file per micro-batch that had alerts, named by the batch in 12 digits.

Idea: a file is written whole under another name, forced to disk and then renamed, so a reader sees all of it or
nothing. A micro-batch that is run again replaces its file by an equal one.
Guarantee: a repeated batch doubles nothing. Readers see alerts in order of (batch, line), each with that position.
What cannot be read is reported and counted; it is passed over only when a newer file is there, for the newest may
still be written anew. Other names in the folder are ignored.
Cost: writing forces one file and its folder to disk. Reading holds one alert in memory (1,000 of a Parquet file);
each look for new files lists the folder.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.deliver.clock import CLOCK, Clock
from tocsin.deliver.encode import Alert, alert_of, decode, lines_of
from tocsin.deliver.parquet import count_parquet, parquet_of, read_parquet
from tocsin.files import open_file, replace_file

FORMATS = {"json": "jsonl", "parquet": "parquet"}
_NAME = re.compile(r"(\d{12})\.(jsonl|parquet)")
_MOST_PLACES = 10_000
# A longer line is no alert: its beginning stands for it.
_MOST_LINE = 1 << 26
_log = logging.getLogger("tocsin.deliver")


def parse_batch(name: str) -> int | None:
    """Return the number of the micro-batch in the name of an alert file; None for other names.

    >>> parse_batch("000000000007.jsonl"), parse_batch("checksums.jsonl")
    (7, None)
    """
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


class Position(NamedTuple):
    """The place of an alert in the log; places are ordered."""

    batch: int
    line: int


class AlertWriter:
    """Writes the alerts of micro-batches; one process at a time."""

    def __init__(self, folder: Path | str, form: str = "json") -> None:
        if form not in FORMATS:
            message = f"alert log: `format` must be one of {', '.join(FORMATS)}; got {form!r}"
            raise ValueError(message)
        self.folder, self.form = Path(folder), form

    def write(self, batch: int, rows: Iterable[Mapping[str, Any]]) -> Path | None:
        """Write the alerts of a micro-batch, which are on disk when this returns.

        A micro-batch without alerts has no file. A file that an earlier run of the micro-batch wrote becomes empty.
        """
        if not 0 <= batch < 10**12:
            message = f"alert log: `batch` must have at most 12 digits; got {batch}"
            raise ValueError(message)
        alerts = [alert_of(row) for row in rows]
        path = self.folder / f"{batch:012}.{FORMATS[self.form]}"
        # After a change of rules a repeated micro-batch can have no alerts, although it had alerts before.
        if not alerts and not path.exists():
            return None
        data = lines_of(alerts) if self.form == "json" else parquet_of(alerts)
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
        return path


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file of JSON; of one that is far too long its beginning, which is no alert."""
    with open_file(path) as file:
        while raw := file.readline(_MOST_LINE):
            rest = raw
            while len(rest) == _MOST_LINE and not rest.endswith(b"\n"):
                rest = file.readline(_MOST_LINE)
            yield raw


class AlertLog:
    """Reads an alert log; `corrupt` counts what could not be read, `fault` says the last of it."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.corrupt = 0
        self.fault = ""
        self._places: set[Position] = set()

    def batches(self, since: int = 0) -> list[tuple[int, Path]]:
        """List the files from a batch on, in order."""
        found: dict[int, Path] = {}
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._report(Position(since, -1), self.folder, error)
            return []
        # JSON comes last here, and so wins where a batch is there in both forms.
        for name in sorted(names, reverse=True):
            batch = parse_batch(name)
            if batch is not None and batch >= since:
                found[batch] = self.folder / name
        return sorted(found.items())

    def read(self, after: Position | None = None) -> Iterator[tuple[Position, Alert]]:
        """Give what is there behind a position, and end."""
        files = self.batches(after.batch if after else 0)
        for batch, path in files:
            skip = after.line + 1 if after and after.batch == batch else 0
            try:
                for line, alert in self._file(batch, path, skip):
                    if alert is not None:
                        yield Position(batch, line), alert
                    elif path == files[-1][1]:
                        return
            except OSError as error:
                # The disk, not the file, has failed: what is there may be read at another time.
                self._report(Position(batch, -1), path, error)
                return

    def follow(
        self, after: Position | None = None, *, stop: threading.Event, clock: Clock = CLOCK, poll_s: float = 1.0
    ) -> Iterator[tuple[Position, Alert]]:
        """Give what is there behind a position and what comes, until told to stop."""
        while not stop.is_set():
            for position, alert in self.read(after):
                after = position
                yield position, alert
                if stop.is_set():
                    return
            clock.wait(stop, poll_s)

    def count(self, path: Path) -> int:
        """Count the lines of a file; none if it cannot be read."""
        try:
            if path.suffix == ".parquet":
                return count_parquet(path)
            with path.open("rb") as file:
                return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        except OSError:
            return 0

    def _file(self, batch: int, path: Path, skip: int) -> Iterator[tuple[int, Alert | None]]:
        """Give lines and their alerts; no alert where one cannot be read."""
        line = skip - 1
        try:
            for line, alert in self._lines(batch, path, skip):
                yield line, alert
        except (FileNotFoundError, IsADirectoryError, ValueError) as error:
            self._report(Position(batch, line + 1), path, error)
            yield line + 1, None

    def _lines(self, batch: int, path: Path, skip: int) -> Iterator[tuple[int, Alert | None]]:
        if path.suffix == ".parquet":
            yield from ((line, alert) for line, alert in enumerate(read_parquet(path)) if line >= skip)
            return
        for line, raw in enumerate(raw_lines(path)):
            if line >= skip:
                yield line, self._decoded(Position(batch, line), path, raw)

    def _decoded(self, position: Position, path: Path, raw: bytes) -> Alert | None:
        try:
            return decode(raw)
        except (ValueError, RecursionError) as error:
            self._report(position, path, error)
            return None

    def _report(self, position: Position, path: Path, error: Exception) -> None:
        """Count a place once, however often it is met."""
        if position in self._places:
            return
        if len(self._places) < _MOST_PLACES:
            self._places.add(position)
        self.corrupt += 1
        what = error.strerror if isinstance(error, OSError) else str(error)
        self.fault = f"{path.name}:{position.line + 1}: an alert must be readable; {what}"
        _log.warning("alert log: %s", self.fault)
