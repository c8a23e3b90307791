"""One file of an alert log: its lines, and what tells that it has changed."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from tocsin.deliver.alertlog import raw_lines
from tocsin.deliver.encode import Alert
from tocsin.deliver.parquet import read_parquet

Mark = tuple[int, int, int]


def lines_of(path: Path) -> Iterator[tuple[bytes, Alert | None]]:
    """Lines of a file; of Parquet the alerts themselves, each with a text that tells it from others."""
    if path.suffix == ".parquet":
        yield from ((repr(alert).encode("utf-8", "surrogatepass"), alert) for alert in read_parquet(path))
        return
    yield from ((raw, None) for raw in raw_lines(path))


def mark_of(path: Path) -> Mark | None:
    """What tells that a file has changed; None where there is none, or what is there is no file that can be read."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def code_of(path: Path) -> int:
    """What tells the content of a file from another."""
    code = 0
    try:
        for raw, _ in lines_of(path):
            code = zlib.crc32(raw, code)
    except (OSError, ValueError):
        return -1
    return code
