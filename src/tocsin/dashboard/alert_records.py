"""Alert records: the alerts of a log as pages show them, and the parser of its files.

An alert record has the latest state of one alert and fits into one row of the index. Witness and annotations stay in
the log; a page reads them for one alert.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tocsin.delivery import Position
from tocsin.delivery.alert_json import Alert, decode_alert, parse_microseconds
from tocsin.delivery.alert_log import read_raw_lines
from tocsin.delivery.parquet import read_parquet
from tocsin.trace.model import Life

# A longer text is stored as its beginning, its length and a hash.
MOST_LABEL = 1_900
# Labels of one alert. The others are stored as their number and a hash.
MOST_LABELS = 100
# Characters of a summary in lists.
MOST_SUMMARY = 400
# Lines, and their bytes, that are parsed and stored together.
_STEP, _STEP_BYTES = 250, 1 << 22
_CUT = re.compile(r"… \(([0-9,]+) characters, [0-9a-f]{16}\)")
_PLAIN = re.compile(r"[0-9A-Za-z_-]{1,64}")

Labels = tuple[tuple[str, str], ...]
# Modification time in nanoseconds, size and inode of a file.
Signature = tuple[int, int, int]
# Whether the alert fired, matched or is open, its start, and its place in the log.
Rank = tuple[bool, int, int]


class StateChange(NamedTuple):
    """State change of an alert: its position in the log, and the new state."""

    position: Position
    state: str


class AlertEvent(NamedTuple):
    """One line of an alert log, with the values that the index stores."""

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
    summary: str


class LogLine(NamedTuple):
    """Line of an alert file: the checksum of the file up to its end, and its event or the error of the parser."""

    code: int
    event: AlertEvent | None
    fault: str


@dataclass(slots=True)
class AlertRecord:
    """Alert with its latest state, and with the value and margin of its latest event.

    `place` is the number of the alert in the order of the log, `changed` the number of its state changes.
    """

    place: int
    alert: str
    labels: Labels
    id: str = ""
    state: str = ""
    quality: str = ""
    summary: str = ""
    start_us: int = 0
    fires_us: int | None = None
    end_us: int | None = None
    value: float | None = None
    margin: float | None = None
    is_late: bool = False
    has_fired: bool = False
    changed: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the alert has no end yet."""
        return self.end_us is None

    @property
    def rank(self) -> Rank:
        """Position in lists, largest first: alerts that fired, matched or are open come before the others."""
        return self.has_fired or self.is_open, self.start_us, self.place

    @property
    def severity(self) -> str:
        """Value of the label `severity`, or an empty text."""
        return next((value for name, value in self.labels if name == "severity"), "")

    def as_life(self) -> Life:
        """Return the same alert without its witness, for comparisons and charts."""
        numbers = (0.0 if self.value is None else self.value, 0.0 if self.margin is None else self.margin)
        ends = (self.start_us, self.fires_us, self.end_us)
        late = {"is_late": self.is_late, "has_fired": self.has_fired}
        return Life(self.alert, self.id, self.state, dict(self.labels), *ends, *numbers, (), **late)


def file_signature(path: Path) -> Signature | None:
    """Return the modification time, size and inode of a file, or None if it is missing or not a regular file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def lines_of(path: Path) -> Iterator[tuple[bytes, Alert | None]]:
    """Yield the lines of a file. Parquet files yield alerts, each with a text that identifies its content."""
    if path.suffix == ".parquet":
        yield from ((repr(alert).encode("utf-8", "surrogatepass"), alert) for alert in read_parquet(path))
        return
    yield from ((raw, None) for raw in read_raw_lines(path))


def content_checksum(path: Path) -> int:
    """Return the checksum of the lines of a file, or -1 if the file cannot be read."""
    code = 0
    try:
        for raw, _ in lines_of(path):
            code = zlib.crc32(raw, code)
    except (OSError, ValueError):
        return -1
    return code


def pieces_of(path: Path) -> Iterator[list[LogLine]]:
    """Yield the parsed lines of a file in groups; raise an error of the disk or the file after the lines before it."""
    piece, size, code = list[LogLine](), 0, 0
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


def _parsed(code: int, raw: bytes, alert: Alert | None) -> LogLine:
    try:
        return LogLine(code, _event(decode_alert(raw) if alert is None else alert), "")
    except (ValueError, RecursionError, OverflowError) as error:
        return LogLine(code, None, str(error))


def _event(change: Alert) -> AlertEvent:
    quality = cut_text(change["quality"])
    summary = (change.get("annotations") or {}).get("summary") or ""
    return AlertEvent(
        cut_text(change["alert"]),
        cut_text(change["id"]),
        change["state"],
        labels_of(change["labels"]),
        "late" in quality.split(),
        parse_microseconds(change["startsAt"]),
        _time_or_none(change.get("firesAt")),
        _time_or_none(change.get("endsAt")),
        _float_or_none(change.get("value")),
        _float_or_none(change.get("margin")),
        quality,
        storable(summary[:MOST_SUMMARY] + "…" * (len(summary) > MOST_SUMMARY)),
    )


def _time_or_none(time: str | None) -> int | None:
    return None if time is None else parse_microseconds(time)


def _float_or_none(value: float | None) -> float | None:
    return None if value is None else float(value)


def token_of(name: str) -> str:
    """Return a short, stable identifier of any name for addresses."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def id_in_address(name: str) -> str:
    """Return the id of an alert for addresses: the id itself if it is one of Tocsin's, so that sinks can link to it.

    >>> id_in_address("0a45a578afe27080"), id_in_address("../x") == "~" + token_of("../x")
    ('0a45a578afe27080', True)
    """
    return name if _PLAIN.fullmatch(name) else f"~{token_of(name)}"


def labels_of(labels: Mapping[str, str]) -> Labels:
    """Return sorted labels, limited in number and length.

    >>> labels_of({f"n{number:03}": "" for number in range(103)})[99:] == (
    ...     ("n099", ""), ("…", f"3 more labels, {token_of(repr([(f'n{number}', '') for number in (100, 101, 102)]))}"))
    True
    """
    every = sorted(labels.items())
    rest = every[MOST_LABELS:]
    known = [(cut_text(name), cut_text(value)) for name, value in every[:MOST_LABELS]]
    known += [("…", f"{len(rest):,} more labels, {token_of(repr(rest))}")] if rest else []
    return tuple(known)


def storable(text: str) -> str:
    r"""Return a text that UTF-8 can encode: a lone surrogate becomes its escape.

    >>> storable("é\ud800")
    'é\\ud800'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def cut_text(text: str) -> str:
    """Return a text as the index stores it. A cut text differs from all others by its hash.

    >>> cut_text("x" * 3_000) == f"{'x' * MOST_LABEL}… (3,000 characters, {token_of('x' * 3_000)})"
    True
    """
    if len(text) <= MOST_LABEL:
        return storable(text)
    return f"{storable(text[:MOST_LABEL])}… ({len(text):,} characters, {token_of(text)})"


def length_of(text: str) -> str:
    """Return the number of characters of a text, before it was cut.

    >>> length_of("x" * 1_500), length_of(cut_text("x" * 3_000))
    ('1,500', '3,000')
    """
    found = _CUT.fullmatch(text, MOST_LABEL)
    return found[1] if found else f"{len(text):,}"
