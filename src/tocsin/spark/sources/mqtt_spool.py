"""MQTT spool: messages of a broker in a SQLite database, because a broker does not send a message twice.

Messages have consecutive numbers from 0. One process appends (`lock` protects the directory), any process reads.

Guarantees: `append` returns after an fsync, so an acknowledged message is read again after any crash. An interrupted
or failed `append` leaves the spool as before: SQLite's write-ahead log recovers whole transactions only. A number
refers to the same message until `discard` removes it. The database has at most `max_bytes`. A checksum per message
covers its number and content. Therefore a damaged message is read as lost and never with other content, and damage to
the structure of the database raises RunError.

Complexity: one transaction and one fsync per `append`. The file keeps its largest size and uses free pages again.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tocsin.errors import RunError

# A database of this size holds the JSON of about 40 million sensor rows.
MAX_BYTES = 8 << 30
# Size of a message that is lost.
LOST = -1
# Number, time of arrival and size of a message, and length of its topic, in its checksum.
_HEAD = struct.Struct("<qqqI")
# Bytes that a message is charged besides its topic and payload.
_MESSAGE_BYTES = 30
_TABLE = (
    "CREATE TABLE IF NOT EXISTS message (number INTEGER PRIMARY KEY, arrived_us INTEGER NOT NULL, topic BLOB NOT NULL,"
    " payload BLOB NOT NULL, size INTEGER NOT NULL, checksum INTEGER NOT NULL)"
)

_log = logging.getLogger(__name__)


class Message(NamedTuple):
    """Message of a broker: its time of arrival, topic and payload, and the size of the payload before a cut."""

    arrived_us: int
    topic: bytes
    payload: bytes
    size: int


class SpoolWriter:
    """Only writer of a spool. `next` is the number of the next message."""

    def __init__(self, folder: Path | str, max_bytes: int = MAX_BYTES) -> None:
        """Open or create a spool; raise RunError if another process writes it."""
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.folder)
        try:
            with _damage_as_run_error(self.folder):
                self._database = _connect(self.folder, "rwc")
                self._database.execute("PRAGMA journal_mode=WAL")
                self._database.execute("PRAGMA synchronous=FULL")
                self._database.execute(_TABLE)
                (page_bytes,) = self._database.execute("PRAGMA page_size").fetchone()
                self._database.execute(f"PRAGMA max_page_count={max(2, max_bytes // page_bytes)}")
                # Without this check, a damaged page could hide the newest messages, and their numbers would be reused.
                (damage,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
                if damage != b"ok":
                    raise sqlite3.DatabaseError(damage.decode(errors="replace"))
                self.next = _span(self._database)[1]
        except BaseException:
            os.close(self._lock)
            raise

    def append(self, messages: Sequence[Message]) -> None:
        """Store messages durably; raise OSError, with the spool unchanged, if the disk or the spool is full."""
        rows = [(number, *message, _checksum(number, message)) for number, message in enumerate(messages, self.next)]
        with _damage_as_run_error(self.folder):
            try:
                with self._database:
                    self._database.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)", rows)
            except sqlite3.OperationalError as error:
                raise OSError(errno.ENOSPC, str(error)) from error
        self.next += len(rows)

    def close(self) -> None:
        """Release the spool for another writer."""
        self._database.close()
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


class SpoolReader:
    """Reader of a spool, also while another process writes it."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def span(self) -> tuple[int, int]:
        """Return the number of the first stored message and the number after the last one."""
        if not (self.folder / "spool.db").exists():
            return 0, 0
        with _reading(self.folder) as database:
            return _span(database)

    def end_within(self, start: int, stop: int, most: int, most_bytes: int) -> int:
        """Return the end of the longest range from `start` that has at most `most` messages and `most_bytes` bytes.

        A range has at least one message, unless `start` is `stop`.
        """
        if start == stop:
            return start
        end = min(stop, start + most)
        columns = f"number, length(topic) + length(payload) + {_MESSAGE_BYTES}"
        with _reading(self.folder) as database:
            sizes = database.execute(
                f"SELECT {columns} FROM message WHERE number >= ? AND number < ? ORDER BY number", (start, end)
            )
            used = 0
            for number, size in sizes:
                used += size
                if used > most_bytes and number > start:
                    return int(number)
        return end

    def read(self, start: int, stop: int) -> Iterator[Message]:
        """Return the messages from `start` to before `stop`, damaged ones as lost; raise RunError if one is absent."""
        if start == stop:
            return
        with _reading(self.folder) as database:
            first, end = _span(database)
            if not first <= start <= stop <= end:
                absent = start if not first <= start < end else end
                message = f"spool {self.folder}: message {absent} is missing or was removed"
                raise RunError(message)
            rows = database.execute(
                "SELECT * FROM message WHERE number >= ? AND number < ? ORDER BY number", (start, stop)
            )
            row = next(rows, None)
            for number in range(start, stop):
                stored = row if row is not None and row[0] == number else None
                if stored is not None:
                    row = next(rows, None)
                if stored is None or not _is_intact(stored):
                    _log.error("spool %s: message %d is damaged and lost", self.folder, number)
                    yield Message(0, b"", b"message %d of the spool" % number, LOST)
                else:
                    yield Message(*stored[1:5])


def discard(folder: Path | str, before: int) -> int:
    """Delete the messages before a number, except the newest message; return their count."""
    with _damage_as_run_error(Path(folder)), closing(_connect(Path(folder), "rw")) as database, database:
        newest = "(SELECT max(number) FROM message)"
        deleted = database.execute(f"DELETE FROM message WHERE number < min(?, {newest})", (before,))
        return deleted.rowcount


def _span(database: sqlite3.Connection) -> tuple[int, int]:
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'message'").fetchone():
        return 0, 0
    first, last = database.execute(
        "SELECT (SELECT min(number) FROM message), (SELECT max(number) FROM message)"
    ).fetchone()
    return (0, 0) if first is None else (first, last + 1)


def _checksum(number: int, message: Message) -> int:
    head = _HEAD.pack(number, message.arrived_us, message.size, len(message.topic))
    return zlib.crc32(message.payload, zlib.crc32(message.topic, zlib.crc32(head)))


def _is_intact(row: tuple[Any, ...]) -> bool:
    """Return whether a row has the types and the checksum of its message."""
    number, arrived_us, topic, payload, size, checksum = row
    if any(type(value) is not int for value in (arrived_us, size)):
        return False
    if any(type(value) is not bytes for value in (topic, payload)):
        return False
    return bool(checksum == _checksum(number, Message(arrived_us, topic, payload, size)))


def _connect(folder: Path, mode: str) -> sqlite3.Connection:
    place = f"file:{quote(str((folder / 'spool.db').absolute()))}?mode={mode}"
    database = sqlite3.connect(place, uri=True, timeout=30, check_same_thread=False)
    # A damaged value may have another type, and must not fail as text.
    database.text_factory = bytes
    return database


@contextmanager
def _reading(folder: Path) -> Iterator[sqlite3.Connection]:
    with _damage_as_run_error(folder), closing(_connect(folder, "ro")) as database:
        yield database


@contextmanager
def _damage_as_run_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        message = (
            f"spool {folder}: the database cannot be read ({error}); restore it, or start again with a new directory"
        )
        raise RunError(message) from error


def _lock(folder: Path) -> int:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        message = f"spool {folder} is in use by another process"
        raise RunError(message) from error
    return lock
