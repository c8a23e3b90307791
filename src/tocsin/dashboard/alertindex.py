"""The alerts of a log as lives, in memory: who fires now, how often each rule fired, and any alert by its id.

Idea: files of the log are read once, in order; each change of state opens, moves or ends a life. What is large (the
witness, annotations) stays on disk, and is read again for the one alert that is looked at.
Guarantee: a file that was replaced by an equal one changes nothing; by another one, everything is read anew. A line
that cannot be read is counted, and stops nothing; each is taken once, even if the disk fails inside a file. Of more
than `MOST` alerts the oldest that have ended are forgotten.
Cost: some 40 microseconds per change of state, and 700 bytes per alert.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.deliver import AlertLog, Position
from tocsin.deliver.encode import Alert, decode, micros_of
from tocsin.deliver.parquet import read_parquet
from tocsin.trace.model import Life

MOST = 400_000
# Lines between which others may look at what is known.
_STEP = 250
_LOOKED_AT_AGAIN = 16
# A longer line is no alert, and its pieces are none.
_MOST_LINE = 1 << 26
_PLAIN = re.compile(r"[0-9A-Za-z_-]{1,64}")

Labels = tuple[tuple[str, str], ...]


class Change(NamedTuple):
    """A change of state: where the log has it, and what it became."""

    position: Position
    state: str


class Known:
    """An alert from its start to its end, as the log last told it, and where its changes stand in the log."""

    __slots__ = (
        "alert",
        "changes",
        "end_us",
        "has_fired",
        "id",
        "is_late",
        "labels",
        "margin",
        "place",
        "start_us",
        "state",
        "value",
    )

    def __init__(self, alert: str, labels: Labels, place: int) -> None:
        self.alert, self.labels, self.place = alert, labels, place
        self.id, self.state = "", ""
        self.start_us, self.end_us = 0, None  # type: int, int | None
        self.value, self.margin = None, None  # type: float | None, float | None
        self.is_late, self.has_fired = False, False
        self.changes: tuple[Change, ...] = ()

    @property
    def is_open(self) -> bool:
        """Tell whether it goes on."""
        return self.end_us is None

    def as_life(self) -> Life:
        """The same for what compares and draws lives, without its witness."""
        numbers = (0.0 if self.value is None else self.value, 0.0 if self.margin is None else self.margin)
        ends = (self.start_us, self.end_us)
        late = {"is_late": self.is_late, "has_fired": self.has_fired}
        return Life(self.alert, self.id, self.state, dict(self.labels), *ends, *numbers, (), **late)


class RuleAlerts:
    """The alerts of one name: all of them in the order of the log, and how many fired."""

    def __init__(self) -> None:
        self.all: list[Known] = []
        self.fired = 0
        self.open: dict[int, Known] = {}

    def now(self, state: str) -> int:
        """How many are in a state now."""
        return sum(one.state == state for one in self.open.values())


class AlertIndex:
    """The lives of one alert log; `read` goes on where it was, and gives way now and then."""

    def __init__(self, folder: Path) -> None:
        self.log = AlertLog(folder)
        self._folder_seen: tuple[int, int] | None = None
        self._forget()

    def _forget(self) -> None:
        self.rules: dict[str, RuleAlerts] = {}
        self.by_id: dict[str, list[Known]] = {}
        self.all: list[Known] = []
        self.changes = self.unreadable = self.forgotten = 0
        self.fault = ""
        self._open: dict[tuple[str, Labels, bool], Known] = {}
        self._labels: dict[Labels, Labels] = {}
        self._words: dict[Labels, str] = {}
        self._files: dict[int, tuple[tuple[int, int, int], int]] = {}
        # Files that a disk failed to give to their end: lines that were taken, and the code of those.
        self._begun: dict[int, tuple[int, int]] = {}
        self._next = 0

    @property
    def open(self) -> list[Known]:
        """The alerts that go on, the newest first."""
        return sorted(self._open.values(), key=lambda one: -one.place)

    def words(self, labels: Labels) -> str:
        """Labels as one text to search in, made once."""
        found = self._words.get(labels)
        if found is None:
            found = self._words[labels] = " ".join(f"{name}={value}" for name, value in labels).casefold()
        return found

    def read(self) -> Iterator[bool]:
        """Take what is new in the log; each step tells whether something was."""
        try:
            status = os.stat(self.log.folder)
        except FileNotFoundError:
            status = None
        except OSError:
            return
        seen = None if status is None else (status.st_mtime_ns, status.st_ino)
        if seen is not None and seen == self._folder_seen:
            return
        files = dict(self.log.batches())
        if self._replaced(files):
            self._forget()
            yield True
        for batch, path in files.items():
            if batch not in self._files:
                yield from self._read_file(batch, path)
        # A file that came while others were read may not show in a time of the folder that is coarse.
        is_old = status is not None and status.st_mtime < datetime.now(UTC).timestamp() - 2
        self._folder_seen = seen if is_old and files.keys() <= self._files.keys() else None

    def _replaced(self, files: Mapping[int, Path]) -> bool:
        """Tell whether a file that was read has gone, or has other content now."""
        if not self._files.keys() | self._begun.keys() <= files.keys():
            return True
        # A micro-batch that is run again is one of the last.
        for batch in sorted(self._files)[-_LOOKED_AT_AGAIN:]:
            known, path = self._files[batch], files[batch]
            mark = mark_of(path)
            if mark is None or known[0] == mark:
                continue
            code = _code(path)
            if code != known[1]:
                return True
            self._files[batch] = (mark, code)
        return False

    def _read_file(self, batch: int, path: Path) -> Iterator[bool]:
        """Take a file; where the disk fails inside it, the next time goes on behind the lines that were taken."""
        mark = mark_of(path)
        if mark is None:
            return
        code, line, (taken, taken_code) = 0, 0, self._begun.get(batch, (0, 0))
        try:
            for raw, alert in _lines(path):
                code = zlib.crc32(raw, code)
                line += 1
                if line > taken:
                    self._take(Position(batch, line - 1), path, raw, alert)
                elif line == taken and code != taken_code:
                    break
                if line % _STEP == 0:
                    yield True
        except OSError as error:
            self._disk_failed(batch, f"{path.name}: {error}", (line, code))
            return
        except ValueError as error:
            self._cannot_read(f"{path.name}: {error}")
        if line < taken or (line == taken and code != taken_code):
            self._forget()  # Not the file that was begun: the next look reads everything anew.
        else:
            self._read_whole(batch, mark, code)
        yield True

    def _disk_failed(self, batch: int, what: str, so_far: tuple[int, int]) -> None:
        """Note how far a file was taken; it is one fault, however often it is tried."""
        self.unreadable += batch not in self._begun
        self.fault = what
        self._begun[batch] = max(so_far, self._begun.get(batch, (0, 0)))

    def _read_whole(self, batch: int, mark: tuple[int, int, int], code: int) -> None:
        self._files[batch] = (mark, code)
        self.unreadable -= self._begun.pop(batch, None) is not None

    def _take(self, position: Position, path: Path, raw: bytes, alert: Alert | None) -> None:
        try:
            change = decode(raw) if alert is None else alert
            self._change(position, change)
        except (ValueError, RecursionError, OverflowError) as error:
            self._cannot_read(f"{path.name}:{position.line + 1}: {error}")

    def _cannot_read(self, what: str) -> None:
        self.unreadable += 1
        self.fault = what

    def _change(self, position: Position, change: Mapping[str, Any]) -> None:
        """Open, move or end a life."""
        labels = tuple(sorted(change["labels"].items()))
        labels = self._labels.setdefault(labels, labels)
        late = "late" in change["quality"].split()
        start_us = micros_of(change["startsAt"])
        ends = change.get("endsAt")
        end_us = None if ends is None else micros_of(ends)
        whose = (change["alert"], labels, late)
        one = self._open.pop(whose, None)
        if one is None or one.id != change["id"] or one.start_us != start_us:
            if one is not None:
                self._close(one, start_us)
            one = self._begin(change["alert"], labels, change["id"], start_us, late=late)
        mine = self.rules[one.alert]
        one.changes = (*one.changes, Change(position, change["state"]))
        one.state, one.end_us = change["state"], end_us
        one.value, one.margin = change.get("value"), change.get("margin")
        if change["state"] in {"firing", "resolved", "match"} and not one.has_fired:
            one.has_fired = True
            mine.fired += 1
        self.changes += 1
        if end_us is None:
            self._open[whose] = mine.open[one.place] = one
        else:
            mine.open.pop(one.place, None)

    def _close(self, one: Known, end_us: int) -> None:
        """End a life whose end the log does not have, since another of the same labels has begun."""
        one.state, one.end_us = "resolved" if one.has_fired else "inactive", max(one.start_us, end_us)
        self.rules[one.alert].open.pop(one.place, None)

    def _begin(self, alert: str, labels: Labels, name: str, start_us: int, *, late: bool) -> Known:
        mine = self.rules.setdefault(alert, RuleAlerts())
        known = mine.all[0].alert if mine.all else alert
        one = Known(known, labels, self._next)
        self._next += 1
        one.id, one.start_us, one.is_late = name, start_us, late
        mine.all.append(one)
        self.all.append(one)
        self.by_id.setdefault(id_in_address(name), []).append(one)
        if len(self.all) > MOST + MOST // 4:
            self._drop_oldest()
        return one

    def _drop_oldest(self) -> None:
        """Forget the oldest that have ended."""
        spare = len(self.all) - MOST
        gone = {one.place for one in [one for one in self.all[:-1] if not one.is_open][:spare]}
        self.forgotten += len(gone)
        self.all = [one for one in self.all if one.place not in gone]
        for mine in self.rules.values():
            mine.all = [one for one in mine.all if one.place not in gone]
        by_id: dict[str, list[Known]] = {}
        for one in self.all:
            by_id.setdefault(id_in_address(one.id), []).append(one)
        self.by_id = by_id
        self._labels = {one.labels: one.labels for one in self.all}
        self._words = {labels: text for labels, text in self._words.items() if labels in self._labels}


def token_of(name: str) -> str:
    """A name as a part of an address: short, the same for ever, whatever is in the name."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def id_in_address(name: str) -> str:
    """The id of an alert as a part of an address: as it is, if it is one of ours, so that others can link to it.

    >>> id_in_address("0a45a578afe27080"), id_in_address("../x") == "~" + token_of("../x")
    ('0a45a578afe27080', True)
    """
    return name if _PLAIN.fullmatch(name) else f"~{token_of(name)}"


def _lines(path: Path) -> Iterator[tuple[bytes, Alert | None]]:
    """Lines of a file; of Parquet the alerts themselves, each with a text that tells it from others."""
    if path.suffix == ".parquet":
        yield from ((repr(alert).encode(), alert) for alert in read_parquet(path))
        return
    with path.open("rb") as file:
        while raw := file.readline(_MOST_LINE):
            yield raw, None


def mark_of(path: Path) -> tuple[int, int, int] | None:
    """What tells that a file has changed; None where there is none, or what is there is no file that can be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _code(path: Path) -> int:
    """What tells the content of a file from another."""
    code = 0
    try:
        for raw, _ in _lines(path):
            code = zlib.crc32(raw, code)
    except (OSError, ValueError):
        return -1
    return code
