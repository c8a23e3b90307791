"""Outbox: what is due and not yet written, to an output that may stand still or go away.

Idea. Never write unless the output says that it takes something, and then no more than a pipe takes at once, in whole
lines where they fit: so nothing blocks, and what was written is known. Lines that wait stay in the ledger, where the
reducer may still leave them out.

*Guarantee*: lines go out in the order in which they were put, each whole. When the output goes away, the line that was
being written counts as not sent; a file is cut back to the line before. Where the output is a pipe of Linux, what the
pipe had taken and nobody had read counts as not sent too: the kernel tells how much that is. What comes of it is that
no line is lost, and at most one is sent in part and again.
*Cost*: two system calls for every 4 KiB (a pipe) or 1 MiB (a file); the lines of the last 64 KiB are remembered.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import struct
import termios
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from tocsin.edge.ledger import Due, Ledger

_FILE_WRITE = 1 << 20


class OutputGoneError(Exception):
    """The output takes nothing any more; its text is the reason."""


class Outbox:
    """A queue of lines, by their numbers in the ledger, in front of a file descriptor."""

    def __init__(self, fd: int, ledger: Ledger) -> None:
        self.fd, self.ledger = fd, ledger
        self.queue: deque[int] = deque()
        # When something was last taken, or began to wait.
        self.moved_at = time.monotonic()
        self._offset = 0
        self._recent: deque[tuple[int, bytes]] = deque()
        self._recent_bytes = 0
        mode = os.fstat(fd).st_mode
        self._is_file, self._is_pipe = stat.S_ISREG(mode), stat.S_ISFIFO(mode)
        self._send = _sender(fd, mode)
        self._at_once = _FILE_WRITE if self._is_file else select.PIPE_BUF
        self._capacity = _capacity(fd) if self._is_pipe else 0

    @property
    def waiting(self) -> bool:
        """Whether there is something to write."""
        return bool(self.queue or self.ledger.begun)

    @property
    def cut(self) -> bool:
        """Whether a line is written in part."""
        return self._offset > 0

    def put(self, lines: Iterable[Due]) -> None:
        """Queue lines behind those that wait."""
        if not self.waiting:
            self.moved_at = time.monotonic()
        for _, number, line in lines:
            self.ledger.lines[number] = line
            self.queue.append(number)

    def write(self) -> None:
        """Write as much as the output takes now; raise OutputGoneError if it takes nothing any more."""
        while self.waiting and (self._is_file or select.select([], [self.fd], [], 0)[1]):
            data = self._gather()
            if not data:
                return
            try:
                self._account(self._send(data))
                self.moved_at = time.monotonic()
            except BlockingIOError:
                return
            except OSError as error:
                raise OutputGoneError(error.strerror) from error

    def take_back(self) -> None:
        """Put back, after the output has gone, what nobody has read."""
        begun = list(self.ledger.begun)
        if self._is_file and self.cut:
            _cut_back(self.fd, self._offset)
        unread = _unread(self.fd) - self._offset if self._is_pipe else 0
        while unread > 0 and self._recent:
            number, line = self._recent.pop()
            self.ledger.sent -= number >= 0
            self.ledger.bytes_out -= len(line)
            begun.insert(0, (number, line))
            unread -= len(line)
        self.ledger.begun.clear()
        self._offset = 0
        for number, line in reversed(begun):
            self.ledger.lines[number] = line
            self.queue.appendleft(number)

    def _gather(self) -> bytes:
        """Take lines from the queue, as many whole ones as can be written at once."""
        begun, lines = self.ledger.begun, self.ledger.lines
        size = sum(len(line) for _, line in begun) - self._offset
        while self.queue:
            line = lines.get(self.queue[0])
            if line is not None:
                if begun and size + len(line) > self._at_once:
                    break
                begun.append((self.queue[0], line))
                size += len(line)
                del lines[self.queue[0]]
            self.queue.popleft()
        return b"".join([line for _, line in begun])[self._offset :][: self._at_once]

    def _account(self, written: int) -> None:
        """Count the lines that have been written whole."""
        ledger, self._offset = self.ledger, self._offset + written
        while ledger.begun and self._offset >= len(ledger.begun[0][1]):
            number, line = ledger.begun.popleft()
            self._offset -= len(line)
            ledger.sent += number >= 0
            ledger.bytes_out += len(line)
            if self._is_pipe:
                self._remember(number, line)

    def _remember(self, number: int, line: bytes) -> None:
        """Keep what the pipe may still have."""
        self._recent.append((number, line))
        self._recent_bytes += len(line)
        while self._recent_bytes - len(self._recent[0][1]) > self._capacity:
            self._recent_bytes -= len(self._recent.popleft()[1])


def _sender(fd: int, mode: int) -> Callable[[bytes], int]:
    """Give the function that writes; a socket may say that it takes something and then not take all."""
    if not stat.S_ISSOCK(mode):
        return lambda data: os.write(fd, data)
    import socket

    end = socket.socket(fileno=os.dup(fd))
    return lambda data: end.send(data, socket.MSG_DONTWAIT)


def _cut_back(fd: int, size: int) -> None:
    """Take the last bytes off a file, if they are ours and it lets us."""
    with suppress(OSError):
        end = os.lseek(fd, 0, os.SEEK_CUR)
        if end == os.fstat(fd).st_size:
            os.ftruncate(fd, end - size)


def _capacity(fd: int) -> int:
    """Give how much a pipe holds, or nothing where that cannot be told."""
    asks = getattr(fcntl, "F_GETPIPE_SZ", None)
    return fcntl.fcntl(fd, asks) if asks is not None else 0


def _unread(fd: int) -> int:
    """Give how many bytes of a pipe nobody has read."""
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
    except OSError:
        return 0
    return int(count)
