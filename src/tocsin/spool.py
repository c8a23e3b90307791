"""Spool: an append-only log of messages on disk, for a source that cannot be asked twice.

Idea: messages are numbered from 0 on and written to segment files, each named by the number of its first message. One
process at a time writes (a lock file says who); any may read. `append` returns when the messages are on the disk, so
what is acknowledged after it can be read again after any crash.

Guarantee: a number that `span` or `append` has given stands for the same message for ever, until `discard` lets it go.
A message that was being written at a crash is not there, or there whole: a torn end is cut off when the next writer
comes, and put aside. A full disk leaves the spool as it was before the failed `append`.
Cost: one write and one fsync per call of `append`; 22 bytes per message besides its topic and payload.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tocsin.errors import RunError
from tocsin.files import sync_path

SEGMENT_BYTES = 8 << 20
_MAGIC = b"tocsin-spool-1\n"
# Length of what follows, its CRC-32; then time of arrival, size of the payload as it came, length of the topic.
_FRAME, _HEAD = struct.Struct("<II"), struct.Struct("<qIH")
_MARK = struct.Struct("<q")
_NAME = re.compile(r"(\d{20})\.spool")
_MOST_INDEXED = 8

_log = logging.getLogger(__name__)


class Message(NamedTuple):
    """A message: when it arrived, where from, what it says, and how many bytes that had before it was cut."""

    arrived_us: int
    topic: bytes
    payload: bytes
    size: int


class SpoolWriter:
    """Appends to a spool; raises RunError if another process does already."""

    def __init__(self, folder: Path | str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder, self._segment_bytes = Path(folder), segment_bytes
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.folder)
        self._file = -1
        try:
            self.next = self._recover()
            self._mark()
        except BaseException:
            self.close()
            raise

    def append(self, messages: Sequence[Message]) -> None:
        """Write messages and wait until the disk has them; on an error the spool is as before."""
        data = b"".join(map(_encode, messages))
        if self._size + len(data) > self._segment_bytes and self._size > len(_MAGIC):
            self._open(self.next)
        try:
            _write(self._file, data)
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
            raise
        self._size += len(data)
        self.next += len(messages)
        self._mark()

    def close(self) -> None:
        """Give the spool to whoever wants to write."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def _mark(self) -> None:
        """Tell readers how far the disk has all; what lies behind may still be taken back."""
        os.pwrite(self._lock, _MARK.pack(self.next), 0)

    def _recover(self) -> int:
        """Find the end, cut off what is torn, and open the last segment."""
        names = _segments(self.folder)
        if not names:
            self._open(0)
            return 0
        segment = _Segment(self.folder, names[-1])
        segment.extend()
        path, size = segment.path, segment.ends[-1] if segment.ends else 0
        torn = path.stat().st_size - size
        if torn:
            aside = path.with_suffix(".torn")
            aside.write_bytes(path.read_bytes()[size:])
            _log.warning("spool %s: %d torn bytes at its end are put aside as %s", self.folder, torn, aside.name)
        if not size:
            # Not even the mark had come to the disk.
            path.unlink()
            self._open(segment.first)
            return segment.first
        self._file = os.open(path, os.O_RDWR)
        os.ftruncate(self._file, size)
        os.lseek(self._file, size, os.SEEK_SET)
        os.fsync(self._file)
        self._size = size
        return segment.first + len(segment.ends) - 1

    def _open(self, first: int) -> None:
        """Begin a segment."""
        path = self.folder / f"{first:020}.spool"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(file, _MAGIC)
            os.fsync(file)
            sync_path(self.folder)
        except OSError:
            os.close(file)
            with suppress(OSError):
                path.unlink()
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size = file, len(_MAGIC)


class SpoolReader:
    """Reads a spool, also while another process writes it."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._known: dict[int, _Segment] = {}

    def span(self) -> tuple[int, int]:
        """The number of the first message that is there, and the one after the last; all of it is on the disk."""
        names = _segments(self.folder)
        if not names:
            return 0, 0
        marked = _marked(self.folder)
        if marked is not None:
            return names[0], marked
        last = self._segment(names[-1])
        last.extend()
        return names[0], last.first + max(0, len(last.ends) - 1)

    def reach(self, start: int, stop: int, most: int, most_bytes: int) -> int:
        """Give how far to read from `start` on: at most so many messages and bytes, but one message at least."""
        at, left = start, most_bytes
        while at < stop and at - start < most:
            segment = self._holding(at)
            ends, place = segment.ends, at - segment.first
            begin = ends[place]
            while place + 1 < len(ends) and at < stop and at - start < most:
                if ends[place + 1] - begin > left and at > start:
                    return at
                place, at = place + 1, at + 1
            left -= ends[place] - begin
        return at

    def read(self, start: int, stop: int) -> Iterator[Message]:
        """Give the messages from `start` to before `stop`; raise RunError if one is gone or damaged."""
        while start < stop:
            segment = self._holding(start)
            upto = min(stop, segment.first + len(segment.ends) - 1)
            yield from segment.read(start, upto)
            start = upto

    def _holding(self, number: int) -> _Segment:
        firsts = [first for first in _segments(self.folder) if first <= number]
        if not firsts:
            message = f"spool {self.folder}: message {number} must be there; it is not, or no more"
            raise RunError(message)
        segment = self._segment(firsts[-1])
        if number >= segment.first + len(segment.ends) - 1:
            segment.extend()
        if number >= segment.first + len(segment.ends) - 1:
            message = (
                f"spool {self.folder}: message {number} must be there and whole; {segment.path.name} ends before it"
            )
            raise RunError(message)
        return segment

    def _segment(self, first: int) -> _Segment:
        if first not in self._known:
            while len(self._known) >= _MOST_INDEXED:
                del self._known[min(self._known)]
            self._known[first] = _Segment(self.folder, first)
        return self._known[first]


def discard(folder: Path | str, before: int) -> int:
    """Delete the segments that have only messages before a number, but never the last; give how many."""
    names = _segments(Path(folder))
    old = [first for first, after in pairwise(names) if after <= before]
    for first in old:
        with suppress(FileNotFoundError):
            (Path(folder) / f"{first:020}.spool").unlink()
    return len(old)


class _Segment:
    """One file; `ends` has where each message ends, after where the first begins."""

    def __init__(self, folder: Path, first: int) -> None:
        self.path, self.first = folder / f"{first:020}.spool", first
        self.ends: array[int] = array("Q")

    def extend(self) -> None:
        """Take in what was written since; stop before anything that is not whole."""
        begin = self.ends[-1] if self.ends else 0
        with self.path.open("rb") as file:
            file.seek(begin)
            data = file.read()
        if not self.ends:
            if not data.startswith(_MAGIC):
                return
            self.ends.append(len(_MAGIC))
        place = self.ends[-1] - begin
        while (after := _whole(data, place)) is not None:
            place = after
            self.ends.append(begin + place)

    def read(self, start: int, stop: int) -> Iterator[Message]:
        begin, end = self.ends[start - self.first], self.ends[stop - self.first]
        with self.path.open("rb") as file:
            file.seek(begin)
            data = file.read(end - begin)
        for number in range(start, stop):
            place = self.ends[number - self.first] - begin
            if _whole(data, place) is None:
                message = f"spool {self.path}: message {number} must be whole; it is damaged"
                raise RunError(message)
            yield _decode(data, place)


def _encode(message: Message) -> bytes:
    body = _HEAD.pack(message.arrived_us, message.size, len(message.topic)) + message.topic + message.payload
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _whole(data: bytes, place: int) -> int | None:
    """Where the message that begins here ends; None if it is not there whole."""
    if len(data) < place + _FRAME.size:
        return None
    length, crc = _FRAME.unpack_from(data, place)
    begin = place + _FRAME.size
    if length < _HEAD.size or len(data) < begin + length or zlib.crc32(data[begin : begin + length]) != crc:
        return None
    return int(begin + length)


def _decode(data: bytes, place: int) -> Message:
    length, _ = _FRAME.unpack_from(data, place)
    begin = place + _FRAME.size
    arrived, size, topic = _HEAD.unpack_from(data, begin)
    body = data[begin + _HEAD.size : begin + length]
    return Message(arrived, body[:topic], body[topic:], size)


def _segments(folder: Path) -> list[int]:
    """The numbers by which segments are named, in order."""
    try:
        names: Iterable[str] = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _lock(folder: Path) -> int:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        message = f"spool {folder}: one process at a time may write; another does"
        raise RunError(message) from error
    return lock


def _marked(folder: Path) -> int | None:
    """The number that a living writer gave; None if there is no writer."""
    try:
        lock = os.open(folder / "lock", os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        mark = os.pread(lock, _MARK.size, 0)
        return int(_MARK.unpack(mark)[0]) if len(mark) == _MARK.size else 0
    finally:
        os.close(lock)
    return None
