"""Checksums: the size, CRC-32 and number of alerts of every file of the alert log, in `RUN/checksums.jsonl`.

The recorder appends a line after it has written an alert file, and before Spark commits the micro-batch. So only the
file of a micro-batch without commit can lack its line. The newest line of a file counts; torn lines are ignored.
The list is outside the alert log, so that a deleted log is detected, and readers of the log need no change.
Cost: one line of about 90 bytes, forced to disk, per micro-batch with alerts.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import NamedTuple

from tocsin.files import append_line, open_file

CHECKSUMS = "checksums.jsonl"
# Represents alert files with unknown names.
UNKNOWN = "unknown"
_CHUNK = 1 << 20


class Checksum(NamedTuple):
    """Content of an alert file; `size` and `crc32` are None if the file is known to be missing."""

    file: str
    alerts: int
    size: int | None = None
    crc32: str | None = None


def measure_file(path: Path, alerts: int) -> Checksum:
    """Return the checksum of a file with a number of alerts."""
    size = code = 0
    with open_file(path) as file:
        while chunk := file.read(_CHUNK):
            size, code = size + len(chunk), zlib.crc32(chunk, code)
    return Checksum(path.name, alerts, size, f"{code:08x}")


class ChecksumList:
    """The checksums of one alert log; one process at a time may append."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, checksum: Checksum) -> None:
        """Append a checksum, which is on disk when this returns."""
        append_line(self.path, json.dumps(checksum._asdict()).encode())

    def read(self) -> dict[str, Checksum]:
        """Return the newest checksum of each file."""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return {}
        return {found.file: found for found in map(_parse_line, lines) if found is not None}


def _parse_line(line: bytes) -> Checksum | None:
    try:
        stored = json.loads(line)
        file = Checksum(str(stored["file"]), int(stored["alerts"]))
        if stored["size"] is None and stored["crc32"] is None:
            return file
        return file._replace(size=int(stored["size"]), crc32=str(stored["crc32"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
