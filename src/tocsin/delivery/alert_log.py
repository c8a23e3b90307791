"""Alert log: a directory with one file of alert events per micro-batch.

The name of a file is the number of the micro-batch in 12 digits. A micro-batch without alert events has no file.
Other names in the directory are ignored. The engine writes the log; each sink reads it from its own position.

Algorithm: the writer creates a temporary file, forces it to disk and renames it, so a reader sees a complete file or no
file. A repeated micro-batch replaces its file by an equal file.

Guarantees:
    - A repeated micro-batch does not duplicate alert events.
    - Readers return alert events in the order of their positions (batch, line).
    - Unreadable lines and files are logged and counted. A reader skips them only after a newer file exists. In the
      newest file it stops before them, because a repeated micro-batch may still replace that file.

Complexity: writing forces one file and the directory to disk. Reading holds one alert event in memory (1,000 of a
Parquet file). Each search for new files lists the directory.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.delivery.alert_json import Alert, alert_from_row, decode_alert, encode_alerts
from tocsin.delivery.backoff import CLOCK, Clock
from tocsin.delivery.parquet import count_parquet, encode_parquet, read_parquet
from tocsin.files import open_file, replace_file

FORMATS = {"json": "jsonl", "parquet": "parquet"}
_NAME = re.compile(r"(\d{12})\.(jsonl|parquet)")
_MAX_REPORTED = 10_000
# A longer line is not a valid alert event. Only its beginning is returned.
_MAX_LINE_BYTES = 1 << 26
_log = logging.getLogger("tocsin.delivery")


def parse_batch(name: str) -> int | None:
    """Return the number of the micro-batch in the name of an alert file; None for other names.

    >>> parse_batch("000000000007.jsonl"), parse_batch("checksums.jsonl")
    (7, None)
    """
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


class Position(NamedTuple):
    """Position of a line in the alert log; positions are ordered."""

    batch: int
    line: int


class AlertWriter:
    """Writer of an alert log. Only one process may write at a time."""

    def __init__(self, folder: Path | str, form: str = "json") -> None:
        if form not in FORMATS:
            message = f"alert log: `format` must be one of {', '.join(FORMATS)}; got {form!r}"
            raise ValueError(message)
        self.folder, self.form = Path(folder), form

    def write(self, batch: int, rows: Iterable[Mapping[str, Any]]) -> Path | None:
        """Write alert events as the file of a micro-batch, like `write_encoded`."""
        alerts = [alert_from_row(row) for row in rows]
        if self.form == "json" or not alerts:
            return self.write_encoded(batch, encode_alerts(alerts))
        return self.write_encoded(batch, encode_parquet(alerts))

    def write_encoded(self, batch: int, data: bytes) -> Path | None:
        """Write the encoded alerts of a micro-batch and force them to disk; return the path of the file.

        Without alerts, write no file and return None. If an earlier attempt of the micro-batch wrote a file, replace it
        by a file without alerts instead.
        """
        if not 0 <= batch < 10**12:
            message = f"alert log: `batch` must have at most 12 digits; got {batch}"
            raise ValueError(message)
        path = self.folder / f"{batch:012}.{FORMATS[self.form]}"
        # After a change of rules, a repeated micro-batch may have no alert events although its first attempt had some.
        if not data and not path.exists():
            return None
        if not data and self.form == "parquet":
            data = encode_parquet([])
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
        return path


def read_raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a JSON file; of an overlong line yield only the beginning, which is not valid JSON."""
    with open_file(path) as file:
        while raw := file.readline(_MAX_LINE_BYTES):
            rest = raw
            while len(rest) == _MAX_LINE_BYTES and not rest.endswith(b"\n"):
                rest = file.readline(_MAX_LINE_BYTES)
            yield raw


class AlertLog:
    """Reader of an alert log.

    Attributes
    ----------
    folder
        Directory of the log.
    corrupt
        Number of lines and files that could not be read.
    fault
        Message about the latest of them.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.corrupt = 0
        self.fault = ""
        self._reported: set[Position] = set()

    def batches(self, since: int = 0) -> list[tuple[int, Path]]:
        """Return the files of all batches that are not older than `since`, ordered by batch."""
        files: dict[int, Path] = {}
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._report(Position(since, -1), self.folder, error)
            return []
        # `.jsonl` comes last in this order, so it replaces the `.parquet` file of the same batch.
        for name in sorted(names, reverse=True):
            batch = parse_batch(name)
            if batch is not None and batch >= since:
                files[batch] = self.folder / name
        return sorted(files.items())

    def read(self, after: Position | None = None) -> Iterator[tuple[Position, Alert]]:
        """Yield the existing alert events after a position, or all if it is None."""
        files = self.batches(after.batch if after else 0)
        for batch, path in files:
            skip = after.line + 1 if after and after.batch == batch else 0
            try:
                for line, alert in self._read_file(batch, path, skip):
                    if alert is not None:
                        yield Position(batch, line), alert
                    elif path == files[-1][1]:
                        return
            except OSError as error:
                # The disk failed, not the content of the file. A later call may read the file.
                self._report(Position(batch, -1), path, error)
                return

    def follow(
        self, after: Position | None = None, *, stop: threading.Event, clock: Clock = CLOCK, poll_s: float = 1.0
    ) -> Iterator[tuple[Position, Alert]]:
        """Yield the alert events after a position, and wait for new ones until `stop` is set."""
        while not stop.is_set():
            for position, alert in self.read(after):
                after = position
                yield position, alert
                if stop.is_set():
                    return
            clock.wait(stop, poll_s)

    def count(self, path: Path) -> int:
        """Return the number of lines of a file; 0 if it cannot be read."""
        try:
            if path.suffix == ".parquet":
                return count_parquet(path)
            with path.open("rb") as file:
                return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
        except OSError:
            return 0

    def _read_file(self, batch: int, path: Path, skip: int) -> Iterator[tuple[int, Alert | None]]:
        """Yield line numbers and alert events; None instead of an alert event that cannot be read."""
        line = skip - 1
        try:
            for line, alert in self._read_lines(batch, path, skip):
                yield line, alert
        except (FileNotFoundError, IsADirectoryError, ValueError) as error:
            self._report(Position(batch, line + 1), path, error)
            yield line + 1, None

    def _read_lines(self, batch: int, path: Path, skip: int) -> Iterator[tuple[int, Alert | None]]:
        if path.suffix == ".parquet":
            yield from ((line, alert) for line, alert in enumerate(read_parquet(path)) if line >= skip)
            return
        for line, raw in enumerate(read_raw_lines(path)):
            if line >= skip:
                yield line, self._decode(Position(batch, line), path, raw)

    def _decode(self, position: Position, path: Path, raw: bytes) -> Alert | None:
        try:
            return decode_alert(raw)
        except (ValueError, RecursionError) as error:
            self._report(position, path, error)
            return None

    def _report(self, position: Position, path: Path, error: Exception) -> None:
        """Log and count an unreadable line or file, once per position."""
        if position in self._reported:
            return
        if len(self._reported) < _MAX_REPORTED:
            self._reported.add(position)
        self.corrupt += 1
        reason = error.strerror if isinstance(error, OSError) else str(error)
        line = f":{position.line + 1}" if position.line >= 0 else ""
        self.fault = f"{path.name}{line}: cannot read alerts: {reason}"
        _log.warning("alert log: %s", self.fault)
