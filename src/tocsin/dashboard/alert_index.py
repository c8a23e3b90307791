"""Alert index: the alerts of one log in a SQLite database, so that a restart does not read the log again.

Algorithm: files of the log are read once, in order, in groups of lines. Each event opens, changes or ends an alert.
One transaction stores a group together with the number of lines read from its file. Open alerts and the counts of each
rule are also in memory. Pages query the database over connections of their own, while the reader thread writes.

Guarantees:
    - A file that was replaced by an equal file changes nothing. If a file was replaced by a different one or removed,
      the index is rebuilt. After a start, the signatures of all files are checked; later, only the newest files.
    - Each line is stored once, also if the process is killed or the disk fails inside a file.
    - An unreadable line is counted and hides no other line.
    - A damaged index, or one of another version, is rebuilt. The log is never changed.

Complexity: about 50 microseconds and 500 bytes on disk per event; memory per open alert.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import sqlite3
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.dashboard.alert_records import (
    AlertEvent,
    AlertRecord,
    Labels,
    LogLine,
    Rank,
    Signature,
    StateChange,
    content_checksum,
    file_signature,
    id_in_address,
    pieces_of,
)
from tocsin.delivery import AlertLog, Position

# If an alert has more state changes, the first and the newest are stored.
MOST_CHANGES = 100
# A different version of the tables is rebuilt.
_VERSION = 1
_CHECKED_AGAIN = 16
# An index that was not used for this time is deleted.
_UNUSED_S = 30 * 86_400

_TABLES = """
CREATE TABLE value (name TEXT PRIMARY KEY, value ANY) WITHOUT ROWID;
CREATE TABLE file (batch INTEGER PRIMARY KEY, lines INTEGER, code INTEGER, is_complete INTEGER, has_failed INTEGER,
    modified_ns INTEGER, size INTEGER, inode INTEGER);
CREATE TABLE rule (name TEXT PRIMARY KEY, fired INTEGER, matched INTEGER, firing INTEGER, pending INTEGER)
    WITHOUT ROWID;
CREATE TABLE alert (place INTEGER PRIMARY KEY, alert TEXT, labels TEXT, id TEXT, state TEXT, quality TEXT, summary TEXT,
    start_us INTEGER, fires_us INTEGER, end_us INTEGER, value REAL, margin REAL, is_late INTEGER, has_fired INTEGER,
    changed INTEGER, token TEXT, search TEXT, is_shown INTEGER, severity INTEGER);
CREATE INDEX alert_by_rank ON alert (is_shown, start_us, place);
CREATE INDEX alert_by_rule ON alert (alert, is_shown, start_us, place);
CREATE INDEX alert_by_token ON alert (token);
CREATE INDEX alert_open ON alert (start_us, place) WHERE end_us IS NULL;
CREATE TABLE change (place INTEGER, number INTEGER, batch INTEGER, line INTEGER, state TEXT,
    PRIMARY KEY (place, number)) WITHOUT ROWID;
"""
_RECORD = (
    "place, alert, labels, id, state, quality, summary, start_us, fires_us, end_us, value, margin, is_late, has_fired,"
    " changed"
)
# Severities from the most to the least urgent. Other values and alerts without a severity come last.
SEVERITIES = ("critical", "page", "error", "high", "warning", "warn", "medium", "low", "info", "none")
SORTS = {
    "": "is_shown DESC, start_us DESC, place DESC",
    "severity": "severity, is_shown DESC, start_us DESC, place DESC",
    "duration": "is_shown DESC, coalesce(end_us, 9223372036854775807) - start_us DESC, place DESC",
    "rule": "alert, is_shown DESC, start_us DESC, place DESC",
}

Lock = AbstractContextManager[Any]

_log = logging.getLogger("tocsin.dashboard")


class AlertFilter(NamedTuple):
    """Filter and order of a list of alerts.

    `state` is a state, `open` or `late`. `text` is part of a name or label, or an id. `label` is an exact label. Alerts
    overlap the time from `from_us` to before `to_us`. The list continues after `before`, or after `skip` alerts if it
    has another order than the newest first.
    """

    state: str = ""
    alert: str | None = None
    text: str = ""
    label: tuple[str, str] | None = None
    from_us: int | None = None
    to_us: int | None = None
    sort: str = ""
    before: Rank | None = None
    skip: int = 0


class RuleCounts:
    """Number of alerts of one rule: fired, matched, firing now, pending now."""

    __slots__ = ("fired", "firing", "matched", "pending")

    def __init__(self, fired: int = 0, matched: int = 0, firing: int = 0, pending: int = 0) -> None:
        self.fired, self.matched, self.firing, self.pending = fired, matched, firing, pending

    def add_open(self, state: str, step: int) -> None:
        """Count an open alert of a state, or no longer count it."""
        self.firing += step * (state == "firing")
        self.pending += step * (state == "pending")


class _FileState(NamedTuple):
    """Progress in a file: lines read and their checksum, whether it is complete or failed, and its signature."""

    lines: int
    code: int
    is_complete: bool
    has_failed: bool
    signature: Signature


class AlertIndex:
    """Index of the alert log in `folder`, stored in `directory`; without a directory, in a temporary file.

    If another process uses the stored index, this process builds a temporary one.
    """

    def __init__(self, folder: Path, directory: Path | None = None) -> None:
        self.log = AlertLog(folder)
        self.problem = ""
        self.path, release = _reserve(folder, directory)
        self._finalizer = weakref.finalize(self, release)
        self._database: sqlite3.Connection | None = None
        self._folder_seen: tuple[int, int] | None = None
        self._is_restored = False
        self._open_database()

    def close(self) -> None:
        """Close the database, and delete a temporary one."""
        if self._database is not None:
            self._database.close()
        self._finalizer()

    # Queries. Each uses a connection of its own, so that pages do not wait for the reader.

    def find(self, asked: AlertFilter, most: int) -> list[AlertRecord]:
        """Return at most `most` alerts of a filter, in its order."""
        where, values = _conditions(asked)
        order = SORTS.get(asked.sort, SORTS[""])
        sql = f"SELECT {_RECORD} FROM alert WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"
        return self._records(sql, (*values, most, asked.skip))

    def open_alerts(self, most: int) -> list[AlertRecord]:
        """Return open alerts: firing ones first, by severity, and the newest first."""
        order = "state = 'firing' DESC, severity, start_us DESC, place DESC"
        return self._records(f"SELECT {_RECORD} FROM alert WHERE end_us IS NULL ORDER BY {order} LIMIT ?", (most,))

    def by_id(self, token: str) -> list[AlertRecord]:
        """Return the alerts of an id, as an address has it; several only if a log repeats an id."""
        return self._records(f"SELECT {_RECORD} FROM alert WHERE token = ? ORDER BY place", (token,))

    def after(self, place: int, most: int) -> list[AlertRecord]:
        """Return alerts after a place, in the order of the log."""
        return self._records(f"SELECT {_RECORD} FROM alert WHERE place > ? ORDER BY place LIMIT ?", (place, most))

    def changes_of(self, one: AlertRecord) -> tuple[StateChange, ...]:
        """Return the stored state changes of an alert."""
        sql = "SELECT batch, line, state FROM change WHERE place = ? ORDER BY number"
        return tuple(StateChange(Position(batch, line), state) for batch, line, state in self._rows(sql, (one.place,)))

    def _records(self, sql: str, values: Sequence[Any]) -> list[AlertRecord]:
        return [_record(row) for row in self._rows(sql, values)]

    def _rows(self, sql: str, values: Sequence[Any]) -> list[Any]:
        with closing(sqlite3.connect(self.path, timeout=30)) as database:
            return database.execute(sql, values).fetchall()

    # Reading the log.

    @property
    def unreadable(self) -> int:
        """Number of lines and files that cannot be read."""
        return self._unreadable + sum(one.has_failed for one in self._files.values())

    def read(self, lock: Lock | None = None) -> Iterator[bool]:
        """Store the new lines of the log. Each step holds the lock for a moment, and has news for pages."""
        lock = nullcontext() if lock is None else lock
        try:
            yield from self._read(lock)
        except sqlite3.Error as error:
            # The state in memory can be newer than the last commit.
            self.problem = f"cannot write the alert index {self.path}: {error}"
            with lock:
                self._open_database(is_damaged=not isinstance(error, sqlite3.OperationalError))

    def _read(self, lock: Lock) -> Iterator[bool]:
        try:
            status = os.stat(self.log.folder)
        except FileNotFoundError:
            status = None
        except OSError as error:
            self.problem = f"cannot read the folder `{self.log.folder.name}`: {(error.strerror or '').lower()}"
            return
        self.problem = ""
        if status is not None and not stat.S_ISDIR(status.st_mode):
            self.problem = f"`{self.log.folder.name}` is not a folder"
            return
        seen = None if status is None else (status.st_mtime_ns, status.st_ino)
        if seen is not None and seen == self._folder_seen:
            return
        files = dict(self.log.batches())
        if self._is_replaced(files):
            with lock:
                self._clear()
            yield True
        for batch, path in files.items():
            known = self._files.get(batch)
            if (known is None or not known.is_complete) and (yield from self._read_file(batch, path, lock)):
                return  # The index was cleared. The next call reads the files in order.
        # The time of a folder can be too coarse to show a file that was created during this call.
        is_old = status is not None and status.st_mtime < datetime.now(UTC).timestamp() - 2
        is_complete = all(batch in self._files and self._files[batch].is_complete for batch in files)
        self._folder_seen = seen if is_old and is_complete else None

    def _is_replaced(self, files: Mapping[int, Path]) -> bool:
        """Return whether a file that was read is missing or has other content."""
        if not self._files.keys() <= files.keys():
            return True
        # A repeated micro-batch is one of the newest. Before a start, any file can have changed.
        batches = sorted(batch for batch, one in self._files.items() if one.is_complete)
        for batch in batches if self._is_restored else batches[-_CHECKED_AGAIN:]:
            known, path = self._files[batch], files[batch]
            signature = file_signature(path)
            if signature is None or known.signature == signature:
                continue
            if content_checksum(path) != known.code:
                return True
            self._store((), batch, known._replace(signature=signature))
        self._is_restored = False
        return False

    def _read_file(self, batch: int, path: Path, lock: Lock) -> Generator[bool, None, bool]:
        """Store the new lines of a file.

        Return True if the file has other content than at the previous attempt; the index is then cleared.
        """
        signature = file_signature(path)
        if signature is None:
            return False
        before = self._files.get(batch)
        taken, taken_code = (before.lines, before.code) if before else (0, 0)
        number, code, is_other = 0, 0, False
        try:
            for piece in pieces_of(path):
                is_other = number < taken <= number + len(piece) and piece[taken - number - 1].code != taken_code
                if is_other:
                    break
                new = piece[max(0, taken - number) :]
                number, code = number + len(piece), piece[-1].code if piece else code
                state = _FileState(number, code, False, False, signature)
                if new:
                    with lock:
                        self._store(new, batch, state, f"{path.name}:")
                yield True
        except OSError as error:
            with lock:
                so_far = max((number, code), (taken, taken_code))
                self.fault = f"{path.name}: {error}"
                self._store((), batch, _FileState(*so_far, False, True, signature))
            return False
        except ValueError as error:
            # The rest of the file is unreadable, which is one fault.
            self._unreadable += 1
            self.fault = f"{path.name}: {error}"
        is_other = is_other or number < taken
        with lock:
            if is_other:
                self._clear()
            else:
                self._store((), batch, _FileState(number, code, True, False, signature))
        yield True
        return is_other

    def _store(self, lines: Sequence[LogLine], batch: int, file: _FileState, place: str = "") -> None:
        """Store lines of a file and its new state in one transaction."""
        touched: dict[int, AlertRecord] = {}
        changes: list[tuple[int, int, int, int, str]] = []
        rules: set[str] = set()
        for number, line in enumerate(lines, file.lines - len(lines)):
            if line.event is None:
                self._unreadable += 1
                self.fault = f"{place}{number + 1}: {line.fault}"
                continue
            one = self._apply(line.event, touched)
            changes.append((one.place, one.changed, batch, number, line.event.state))
            rules.add(one.alert)
        self._files[batch] = file
        values = {"unreadable": self._unreadable, "fault": self.fault, "events": self.events, "next": self._next}
        assert self._database is not None
        with self._database as database:
            database.executemany(f"REPLACE INTO alert VALUES ({'?, ' * 18}?)", map(_row, touched.values()))
            database.executemany("REPLACE INTO change VALUES (?, ?, ?, ?, ?)", changes)
            old = [(one, number - MOST_CHANGES + 1) for one, number, *_ in changes if number > MOST_CHANGES]
            database.executemany("DELETE FROM change WHERE place = ? AND number = ?", old)
            counts = [(name, self.rules[name]) for name in rules]
            rows = [(name, one.fired, one.matched, one.firing, one.pending) for name, one in counts]
            database.executemany("REPLACE INTO rule VALUES (?, ?, ?, ?, ?)", rows)
            database.execute(
                "REPLACE INTO file VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (batch, file.lines, file.code, file.is_complete, file.has_failed, *file.signature),
            )
            database.executemany("REPLACE INTO value VALUES (?, ?)", values.items())

    def _apply(self, event: AlertEvent, touched: dict[int, AlertRecord]) -> AlertRecord:
        """Open, change or end an alert."""
        key = (event.alert, event.labels, event.late)
        counts = self.rules.setdefault(event.alert, RuleCounts())
        one = self._open.pop(key, None)
        if one is not None:
            counts.add_open(one.state, -1)
        if one is None or one.id != event.id or one.start_us != event.start_us:
            if one is not None:
                # The log lacks the end of this alert, because the next one with its labels has begun.
                one.state, one.end_us = "resolved" if one.has_fired else "inactive", max(one.start_us, event.start_us)
                touched[one.place] = one
            one = AlertRecord(self._next, event.alert, event.labels, event.id, start_us=event.start_us)
            one.is_late = event.late
            self._next += 1
        one.changed += 1
        one.state, one.fires_us, one.end_us = event.state, event.fires_us, event.end_us
        one.value, one.margin, one.quality = event.value, event.margin, event.quality
        one.summary = event.summary or one.summary
        if event.state in {"firing", "resolved", "match"} and not one.has_fired:
            one.has_fired = True
            counts.matched += event.state == "match"
            counts.fired += event.state != "match"
        self.events += 1
        if event.end_us is None:
            self._open[key] = one
            counts.add_open(one.state, 1)
        touched[one.place] = one
        return one

    @property
    def count(self) -> int:
        """Number of alerts."""
        return self._next

    # The database.

    def _open_database(self, *, is_damaged: bool = False) -> None:
        """Open the database and restore the state in memory. Rebuild a damaged database or one of another version."""
        if self._database is not None:
            self._database.close()
        if not is_damaged:
            try:
                self._database = _connect(self.path)
                self._restore()
                return
            except (sqlite3.Error, ValueError, TypeError):
                if self._database is not None:
                    self._database.close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._database = _connect(self.path)
        self._restore()

    def _restore(self) -> None:
        """Load rules, files and open alerts."""
        assert self._database is not None
        database = self._database
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (is_used,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not is_used:
            database.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif version != _VERSION:
            message = "the index has another version"
            raise ValueError(message)
        values = dict(database.execute("SELECT name, value FROM value").fetchall())
        self.fault = str(values.get("fault", ""))
        self.events, self._next = int(values.get("events", 0)), int(values.get("next", 0))
        self._unreadable = int(values.get("unreadable", 0))
        self.rebuilt = int(values.get("rebuilt", 0))
        self.rules = {name: RuleCounts(*counts) for name, *counts in database.execute("SELECT * FROM rule")}
        self._files: dict[int, _FileState] = {}
        for batch, lines, code, is_complete, has_failed, *signature in database.execute("SELECT * FROM file"):
            self._files[batch] = _FileState(lines, code, bool(is_complete), bool(has_failed), tuple(signature))
        self._open: dict[tuple[str, Labels, bool], AlertRecord] = {}
        for row in database.execute(f"SELECT {_RECORD} FROM alert WHERE end_us IS NULL"):
            one = _record(row)
            self._open[one.alert, one.labels, one.is_late] = one
        self._folder_seen = None
        self._is_restored = bool(self._files)

    def _clear(self) -> None:
        """Delete the content, because the log has changed."""
        assert self._database is not None
        with self._database as database:
            for name in ("value", "file", "rule", "alert", "change"):
                database.execute(f"DELETE FROM {name}")
            database.execute("INSERT INTO value VALUES ('rebuilt', ?)", (self.rebuilt + 1,))
        self._restore()


def _conditions(asked: AlertFilter) -> tuple[str, list[Any]]:
    """Return the condition of a filter in SQL, and its values."""
    parts, values = ["1"], list[Any]()

    def add(sql: str, *given: Any) -> None:
        parts.append(sql)
        values.extend(given)

    if asked.before is not None:
        add("(is_shown, start_us, place) < (?, ?, ?)", *asked.before)
    if asked.alert is not None:
        add("alert = ?", asked.alert)
    if asked.state == "open":
        add("end_us IS NULL")
    elif asked.state == "late":
        add("is_late")
    elif asked.state:
        add("state = ?", asked.state)
        if asked.state in {"firing", "pending"}:
            add("end_us IS NULL")
    text = asked.text.encode("utf-8", "replace").decode().casefold().strip()
    if text:
        add("(instr(search, ?) OR id = ?)", text, text)
    if asked.label is not None:
        add("instr(labels, ?)", json.dumps(asked.label, separators=(",", ":")))
    if asked.from_us is not None:
        add("(end_us IS NULL OR end_us >= ?)", asked.from_us)
    if asked.to_us is not None:
        add("start_us < ?", asked.to_us)
    return " AND ".join(parts), values


def _row(one: AlertRecord) -> tuple[Any, ...]:
    """Return an alert as a row of its table."""
    labels = json.dumps(one.labels, separators=(",", ":"))
    search = "\n".join([one.alert, *(f"{name}={value}" for name, value in one.labels)]).casefold()
    severity = one.severity.casefold()
    urgency = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
    ends = (one.start_us, one.fires_us, one.end_us, one.value, one.margin)
    counts = (one.is_late, one.has_fired, one.changed)
    texts = (one.alert, labels, one.id, one.state, one.quality, one.summary)
    return (one.place, *texts, *ends, *counts, id_in_address(one.id), search, one.rank[0], urgency)


def _record(row: Sequence[Any]) -> AlertRecord:
    one = AlertRecord(*row)
    one.labels = tuple((name, value) for name, value in json.loads(row[2]))
    one.is_late, one.has_fired = bool(one.is_late), bool(one.has_fired)
    return one


def _connect(path: Path) -> sqlite3.Connection:
    """Open the database for writing. A crash of the machine may cost the newest events, which are read again."""
    database = sqlite3.connect(path, timeout=30, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
    except sqlite3.Error:
        database.close()
        raise
    return database


def _reserve(folder: Path, directory: Path | None) -> tuple[Path, Callable[[], None]]:
    """Return the path of an index that no other process uses, and the function that releases it."""
    if directory is not None:
        name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _delete_unused(directory)
            lock = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.utime(lock)
            except OSError:
                os.close(lock)
                raise
            return directory / f"{name}.db", lambda: os.close(lock)
        except BlockingIOError:
            _log.info("%s: another process uses the index in %s; using a temporary index", folder, directory)
        except OSError as error:
            _log.warning("%s: cannot store the index in %s, using a temporary index: %s", folder, directory, error)
    made = tempfile.mkdtemp(prefix="tocsin-index-")
    return Path(made) / "index.db", lambda: shutil.rmtree(made, ignore_errors=True)


def _delete_unused(directory: Path) -> None:
    """Delete indexes that no process has opened recently, for example of run directories that were removed."""
    for path in directory.glob("*.lock"):
        with suppress(OSError), path.open("rb") as lock:
            if os.fstat(lock.fileno()).st_mtime < time.time() - _UNUSED_S:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.with_suffix(".db").unlink(missing_ok=True)
                path.unlink()
