"""One file of an alert log: its lines, the changes of state that they tell, and what says that it has changed."""

from __future__ import annotations

import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tocsin.dashboard.known import Labels, cut_text, labels_of
from tocsin.delivery.alert_json import Alert, decode_alert, parse_microseconds
from tocsin.delivery.alert_log import read_raw_lines
from tocsin.delivery.parquet import read_parquet

Mark = tuple[int, int, int]
# Lines, and bytes of them, that are read and parsed together.
_STEP, _STEP_BYTES = 250, 1 << 22


class Told(NamedTuple):
    """What is known of a change of state."""

    alert: str
    id: str
    state: str
    labels: Labels
    late: bool
    start_us: int
    fires_us: int | None
    end_us: int | None
    value: float | None
    margin: float | None
    quality: str


class Line(NamedTuple):
    """A line of a file: the code of the file up to its end, and the change of state, or why it cannot be read."""

    code: int
    change: Told | None
    fault: str


def lines_of(path: Path) -> Iterator[tuple[bytes, Alert | None]]:
    """Lines of a file; of Parquet the alerts themselves, each with a text that tells it from others."""
    if path.suffix == ".parquet":
        yield from ((repr(alert).encode("utf-8", "surrogatepass"), alert) for alert in read_parquet(path))
        return
    yield from ((raw, None) for raw in read_raw_lines(path))


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


def pieces_of(path: Path) -> Iterator[list[Line]]:
    """The lines of a file, parsed, some at a time; what was read comes before what the disk or the file lacks."""
    piece, size, code = list[Line](), 0, 0
    lines, failed = lines_of(path), None
    while True:
        try:
            raw, alert = next(lines)
        except StopIteration:
            break
        except (OSError, ValueError) as error:
            failed = error
            break
        code = zlib.crc32(raw, code)
        piece.append(_parsed(code, raw, alert))
        size += len(raw)
        if len(piece) == _STEP or size > _STEP_BYTES:
            yield piece
            piece, size = [], 0
    yield piece
    if failed is not None:
        raise failed


def _parsed(code: int, raw: bytes, alert: Alert | None) -> Line:
    try:
        return Line(code, _told(decode_alert(raw) if alert is None else alert), "")
    except (ValueError, RecursionError, OverflowError) as error:
        return Line(code, None, str(error))


def _told(change: Alert) -> Told:
    quality = sys.intern(cut_text(change["quality"]))
    return Told(
        cut_text(change["alert"]),
        cut_text(change["id"]),
        sys.intern(change["state"]),
        labels_of(change["labels"]),
        "late" in quality.split(),
        parse_microseconds(change["startsAt"]),
        _known_micros(change.get("firesAt")),
        _known_micros(change.get("endsAt")),
        change.get("value"),
        change.get("margin"),
        quality,
    )


def _known_micros(time: str | None) -> int | None:
    return None if time is None else parse_microseconds(time)
