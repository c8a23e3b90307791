"""Rows that could not be used, by stream and reason, with samples; of very many, the newest are looked at."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.files import open_file
from tocsin.rules.ranges import ID
from tocsin.run_directory.dead_letters import DEAD

MOST_ROWS, MOST_BYTES, SAMPLES = 20_000, 1 << 25, 3
_MOST_LINE = 1 << 21


class Reason(NamedTuple):
    """Why rows of a stream could not be used, how many of those looked at, and some of them."""

    stream: str
    reason: str
    rows: int
    samples: tuple[str, ...]


class DeadRows(NamedTuple):
    """The reasons, the most frequent first; `looked_at` rows were read, `is_all` tells whether there are no more."""

    reasons: list[Reason]
    looked_at: int
    is_all: bool


def dead_rows(run_dir: Path, stream: str | None = None) -> DeadRows:
    """Read the newest rows that could not be used; what cannot be read is passed over."""
    counts: dict[tuple[str, str], int] = {}
    samples: dict[tuple[str, str], list[str]] = {}
    looked_at, read, is_all = 0, 0, True
    for line in _newest(run_dir / DEAD):
        read += len(line)
        if looked_at >= MOST_ROWS or read > MOST_BYTES:
            is_all = False
            break
        try:
            row = json.loads(line)
            whose = (str(row["stream"]), str(row["reason"]))
            raw = str(row["raw"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        looked_at += 1
        if stream is not None and whose[0] != stream:
            continue
        counts[whose] = counts.get(whose, 0) + 1
        if len(samples.setdefault(whose, [])) < SAMPLES:
            samples[whose].append(raw)
    found = [Reason(*whose, number, tuple(samples[whose])) for whose, number in counts.items()]
    return DeadRows(sorted(found, key=lambda one: -one.rows), looked_at, is_all)


def refusals_of(run_dir: Path, stream: str, name: str) -> list[str]:
    """Why requests of an id were refused, the newest first; of very many rows the newest are looked at."""
    found: dict[str, None] = {}
    read = 0
    for line in _newest(run_dir / DEAD):
        read += len(line)
        if read > MOST_BYTES or len(found) >= SAMPLES:
            break
        try:
            row = json.loads(line)
            if row["stream"] == stream and request_id(row["raw"]) == name:
                found[str(row["reason"])] = None
        except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
            continue
    return list(found)


def request_id(text: Any) -> str | None:
    """The id of a request by its payload, or by a row that has one, in JSON; None if it tells none that may be one.

    >>> request_id('{"id": 7}'), request_id('{"ts": 5, "payload": {"id": "anna"}}'), request_id('{"id": true}')
    ('7', 'anna', None)
    """
    try:
        row = json.loads(text)
        given = row[ID] if ID in row else row["payload"][ID]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(given) if isinstance(given, str | int) and not isinstance(given, bool) else None


def _newest(folder: Path) -> Iterator[bytes]:
    """The lines of the files, the newest file first; of a line that is far too long its pieces, which are no rows."""
    try:
        names = sorted((name for name in os.listdir(folder) if name.endswith(".jsonl")), reverse=True)
    except OSError:
        return
    for name in names:
        try:
            with open_file(folder / name) as file:
                while line := file.readline(_MOST_LINE):
                    yield line
        except OSError:
            continue
