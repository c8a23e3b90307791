"""Line splitter: divides the bytes of the input into lines, independently of the boundaries of the reads.

A line that is longer than `max_line` bytes is passed on in chunks, without a wait for its end.

Guarantee: the output bytes are the input bytes in the same order. A line feed is added only after a last line without
one.
Cost: memory for one line of at most `max_line` bytes and for one read.
"""

from __future__ import annotations

from typing import NamedTuple


class LineChunk(NamedTuple):
    """Result of one read.

    Attributes
    ----------
    tail
        Next bytes of an oversized line that began in an earlier read.
    lines
        Complete lines, each with its line feed.
    head
        First bytes of an oversized line whose end has not been read.
    """

    tail: bytes
    lines: list[bytes]
    head: bytes


class LineSplitter:
    """Unfinished line between two reads.

    Attributes
    ----------
    rest
        Bytes of the unfinished line that have not been passed on.
    is_in_long_line
        Whether the unfinished line is oversized, and its first bytes were passed on.
    """

    def __init__(self, max_line: int) -> None:
        self.max_line = max_line
        self.rest = b""
        self.is_in_long_line = False

    def split(self, data: bytes) -> LineChunk:
        """Append the bytes of a read, and return the completed lines."""
        tail, head = b"", b""
        if self.is_in_long_line:
            stop = data.find(b"\n") + 1
            if stop == 0:
                return LineChunk(data, [], b"")
            tail, data, self.is_in_long_line = data[:stop], data[stop:], False
        if b"\n" not in data:
            lines: list[bytes] = []
            self.rest += data
        else:
            lines = _split(self.rest + data)
            self.rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
        if len(self.rest) > self.max_line:
            head, self.rest, self.is_in_long_line = self.rest, b"", True
        return LineChunk(tail, lines, head)

    def end(self) -> LineChunk:
        """Return the last line, with a line feed, at the end of the input."""
        tail = b"\n" if self.is_in_long_line else b""
        lines = [self.rest + b"\n"] if self.rest else []
        self.rest, self.is_in_long_line = b"", False
        return LineChunk(tail, lines, b"")


def _split(data: bytes) -> list[bytes]:
    # `splitlines` also splits at carriage returns.
    if b"\r" not in data:
        return data.splitlines(keepends=True)
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines
