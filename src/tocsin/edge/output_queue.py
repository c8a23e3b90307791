"""Output queue: due lines in front of an output that can block or be closed.

Algorithm: a write starts only if `select` reports that the output is writable. A write to a pipe or a socket has at
most 4 KiB, in whole lines if they fit. So no write blocks, and the number of written bytes is known. Queued lines stay
in the line buffer, where the reducer can still omit them.

Guarantee: lines are written whole and in the order of the queue. If the output is closed, the line of an unfinished
write counts as not sent, and a file is truncated to the end of the previous line. If the output is a Linux pipe, lines
that its reader has not read count as not sent too: the kernel reports their size. So no line is lost, and at most one
line is sent partly and then again.
Cost: two system calls per 4 KiB, or per 1 MiB for files. For a pipe, the last lines up to the capacity of the pipe
(64 KiB by default) are retained.
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

from tocsin.edge.line_buffer import DueLine, LineBuffer

_FILE_WRITE = 1 << 20


class OutputGoneError(Exception):
    """The output accepts no more bytes. The text is the reason."""


class OutputQueue:
    """Queue of due lines for a file descriptor.

    Attributes
    ----------
    fd, buffer
        The output, and the buffer that has the lines.
    queue
        Numbers of the due lines. Omitted lines are no longer in the buffer and are skipped.
    moved_at
        Time on the monotonic clock when the output last accepted bytes, or when the queue was last empty.
    """

    def __init__(self, fd: int, buffer: LineBuffer) -> None:
        self.fd, self.buffer = fd, buffer
        self.queue: deque[int] = deque()
        self.moved_at = time.monotonic()
        # Written bytes of the lines in progress.
        self._offset = 0
        # Lines that the reader of a pipe may not have read.
        self._recent: deque[tuple[int, bytes]] = deque()
        self._recent_bytes = 0
        mode = os.fstat(fd).st_mode
        self._is_file, self._is_pipe = stat.S_ISREG(mode), stat.S_ISFIFO(mode)
        self._send = _build_sender(fd, mode)
        self._max_write = _FILE_WRITE if self._is_file else select.PIPE_BUF
        self._pipe_capacity = _pipe_capacity(fd) if self._is_pipe else 0

    @property
    def has_lines(self) -> bool:
        """Whether lines wait for the output."""
        return bool(self.queue or self.buffer.in_progress)

    @property
    def is_inside_line(self) -> bool:
        """Whether a line is partly written."""
        return self._offset > 0

    def put(self, lines: Iterable[DueLine]) -> None:
        """Append lines to the queue."""
        if not self.has_lines:
            self.moved_at = time.monotonic()
        for _, number, line in lines:
            self.buffer.lines[number] = line
            self.queue.append(number)

    def write(self) -> None:
        """Write as much as the output accepts now. Raise OutputGoneError if the output is closed or fails."""
        while self.has_lines and (self._is_file or select.select([], [self.fd], [], 0)[1]):
            data = self._next_chunk()
            if not data:
                return
            try:
                self._count_written(self._send(data))
                self.moved_at = time.monotonic()
            except BlockingIOError:
                return
            except OSError as error:
                raise OutputGoneError(error.strerror) from error

    def restore_unread(self) -> None:
        """Return the lines that no reader has read to the front of the queue, after the output was closed."""
        in_progress = list(self.buffer.in_progress)
        if self._is_file and self.is_inside_line:
            _truncate(self.fd, self._offset)
        unread = _unread_bytes(self.fd) - self._offset if self._is_pipe else 0
        while unread > 0 and self._recent:
            number, line = self._recent.pop()
            self.buffer.sent -= number >= 0
            self.buffer.bytes_out -= len(line)
            in_progress.insert(0, (number, line))
            unread -= len(line)
        self.buffer.in_progress.clear()
        self._offset = 0
        for number, line in reversed(in_progress):
            self.buffer.lines[number] = line
            self.queue.appendleft(number)

    def _next_chunk(self) -> bytes:
        """Move as many whole lines as fit one write from the queue to the lines in progress; return their bytes."""
        in_progress, lines = self.buffer.in_progress, self.buffer.lines
        size = sum(len(line) for _, line in in_progress) - self._offset
        while self.queue:
            line = lines.get(self.queue[0])
            if line is not None:
                if in_progress and size + len(line) > self._max_write:
                    break
                in_progress.append((self.queue[0], line))
                size += len(line)
                del lines[self.queue[0]]
            self.queue.popleft()
        return b"".join([line for _, line in in_progress])[self._offset :][: self._max_write]

    def _count_written(self, written: int) -> None:
        """Count the lines that are completely written."""
        buffer, self._offset = self.buffer, self._offset + written
        while buffer.in_progress and self._offset >= len(buffer.in_progress[0][1]):
            number, line = buffer.in_progress.popleft()
            self._offset -= len(line)
            buffer.sent += number >= 0
            buffer.bytes_out += len(line)
            if self._is_pipe:
                self._retain_recent(number, line)

    def _retain_recent(self, number: int, line: bytes) -> None:
        """Retain a line while the pipe can contain it."""
        self._recent.append((number, line))
        self._recent_bytes += len(line)
        while self._recent_bytes - len(self._recent[0][1]) > self._pipe_capacity:
            self._recent_bytes -= len(self._recent.popleft()[1])


def _build_sender(fd: int, mode: int) -> Callable[[bytes], int]:
    """Return a function that writes bytes and returns their number."""
    if not stat.S_ISSOCK(mode):
        return lambda data: os.write(fd, data)
    import socket

    # A socket that `select` reports as writable may still block.
    end = socket.socket(fileno=os.dup(fd))
    return lambda data: end.send(data, socket.MSG_DONTWAIT)


def _truncate(fd: int, size: int) -> None:
    """Remove the last `size` bytes of a file, unless another process has appended to it."""
    with suppress(OSError):
        end = os.lseek(fd, 0, os.SEEK_CUR)
        if end == os.fstat(fd).st_size:
            os.ftruncate(fd, end - size)


def _pipe_capacity(fd: int) -> int:
    """Return the capacity of a pipe in bytes, or 0 if the system does not report it."""
    command = getattr(fcntl, "F_GETPIPE_SZ", None)
    return fcntl.fcntl(fd, command) if command is not None else 0


def _unread_bytes(fd: int) -> int:
    """Return the number of bytes in a pipe, or 0 if the system does not report it."""
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
    except OSError:
        return 0
    return int(count)
