"""The log itself: one who appends, any who read, and who lets go what was read."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, count, pairwise
from pathlib import Path

from tocsin.errors import RunError
from tocsin.files import sync_path
from tocsin.spool.records import NEW, Message
from tocsin.spool.segment import Segment

SEGMENT_BYTES = 8 << 20
_MARK = struct.Struct("<q")
_NAME = re.compile(r"(\d{20})\.spool")
_MOST_INDEXED = 8

_log = logging.getLogger(__name__)


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
        size = sum(NEW.least + len(message.topic) + len(message.payload) for message in messages)
        if self._size + size > self._segment_bytes and self._size > len(NEW.magic):
            self._open(self.next)
        data = b"".join(NEW.encode(message, self.next - self._first + i) for i, message in enumerate(messages))
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
        segment = Segment(self.folder, names[-1])
        segment.extend(None)
        path, size = segment.path, segment.ends[-1] if segment.ends else 0
        torn = path.stat().st_size - size
        if torn:
            aside = _free(path.with_suffix(".torn"))
            aside.write_bytes(path.read_bytes()[size:])
            _log.warning("spool %s: %d incomplete bytes at its end were moved to %s", self.folder, torn, aside.name)
        if not size:
            # Not even the mark had come to the disk.
            path.unlink()
            self._open(segment.first)
            return segment.first
        self._file = os.open(path, os.O_RDWR)
        os.ftruncate(self._file, size)
        os.lseek(self._file, size, os.SEEK_SET)
        os.fsync(self._file)
        self._size, self._first = size, segment.first
        if segment.layout is not NEW:
            self._open(segment.stop)
        return segment.stop

    def _open(self, first: int) -> None:
        """Begin a segment."""
        path = self.folder / f"{first:020}.spool"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(file, NEW.magic)
            os.fsync(file)
            sync_path(self.folder)
        except OSError:
            os.close(file)
            with suppress(OSError):
                path.unlink()
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size, self._first = file, len(NEW.magic), first


class SpoolReader:
    """Reads a spool, also while another process writes it."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._known: dict[int, Segment] = {}

    def span(self) -> tuple[int, int]:
        """The number of the first message that is there, and the one after the last; all of it is on the disk."""
        names = _segments(self.folder)
        if not names:
            return 0, 0
        marked = _marked(self.folder)
        if marked is not None:
            return names[0], marked
        last = self._segment(names[-1])
        last.extend(None)
        return names[0], last.stop

    def reach(self, start: int, stop: int, most: int, most_bytes: int) -> int:
        """Give how far to read from `start` on: at most so many messages and bytes, but one message at least."""
        at, left = start, most_bytes
        while at < stop and at - start < most:
            segment, _ = self._holding(at)
            ends, place = segment.ends, at - segment.first
            begin = ends[place]
            while place + 1 < len(ends) and at < stop and at - start < most:
                if ends[place + 1] - begin > left and at > start:
                    return at
                place, at = place + 1, at + 1
            left -= ends[place] - begin
        return at

    def read(self, start: int, stop: int) -> Iterator[Message]:
        """Give the messages from `start` to before `stop`, damaged ones as lost; raise RunError if one is gone."""
        while start < stop:
            segment, upto = self._holding(start)
            end = min(stop, segment.stop)
            yield from segment.read(start, end, upto)
            start = end

    def _holding(self, number: int) -> tuple[Segment, int | None]:
        """The segment that has a message, and up to where it must have them, if that is known."""
        names = _segments(self.folder)
        after = bisect_right(names, number)
        if not after:
            message = f"spool {self.folder}: message {number} is missing or was removed"
            raise RunError(message)
        segment = self._segment(names[after - 1])
        upto = names[after] if after < len(names) else _marked(self.folder)
        if number >= segment.stop:
            segment.extend(upto)
        if number >= segment.stop:
            message = f"spool {self.folder}: message {number} is incomplete; {segment.path.name} ends before its end"
            raise RunError(message)
        return segment, upto

    def _segment(self, first: int) -> Segment:
        if first not in self._known:
            while len(self._known) >= _MOST_INDEXED:
                del self._known[min(self._known)]
            self._known[first] = Segment(self.folder, first)
        return self._known[first]


def discard(folder: Path | str, before: int) -> int:
    """Delete the segments that have only messages before a number, but never the last; give how many."""
    names = _segments(Path(folder))
    old = [first for first, after in pairwise(names) if after <= before]
    for first in old:
        with suppress(FileNotFoundError):
            (Path(folder) / f"{first:020}.spool").unlink()
    return len(old)


def _segments(folder: Path) -> list[int]:
    """The numbers by which segments are named, in order."""
    try:
        names: Iterable[str] = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found)


def _free(path: Path) -> Path:
    """The name, or the first with a number behind it that is not taken."""
    names = chain([path], (path.with_name(f"{path.name}.{number}") for number in count(1)))
    return next(name for name in names if not name.exists())


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
        message = f"spool {folder} is in use by another process"
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
