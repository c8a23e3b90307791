"""Lines: bytes as they are read, cut where lines end; what is too long passes through in pieces.

*Guarantee*: the bytes given are the bytes taken, in their order; a line feed is added only where the input ends
without one.
*Cost*: memory for one line of at most `max_line` bytes and one read.
"""

from __future__ import annotations

from typing import NamedTuple


class Cut(NamedTuple):
    """What a read has completed: the rest of a line that is too long, then lines, then the beginning of such a line."""

    tail: bytes
    lines: list[bytes]
    head: bytes


class Lines:
    """The unfinished line between two reads; `inside` while it is one that is too long and has begun to pass."""

    def __init__(self, max_line: int) -> None:
        self.max_line = max_line
        self.rest = b""
        self.inside = False

    def take(self, data: bytes) -> Cut:
        """Take what was read."""
        tail, head = b"", b""
        if self.inside:
            stop = data.find(b"\n") + 1
            if stop == 0:
                return Cut(data, [], b"")
            tail, data, self.inside = data[:stop], data[stop:], False
        if b"\n" not in data:
            lines: list[bytes] = []
            self.rest += data
        else:
            lines = _split(self.rest + data)
            self.rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
        if len(self.rest) > self.max_line:
            head, self.rest, self.inside = self.rest, b"", True
        return Cut(tail, lines, head)

    def end(self) -> Cut:
        """Take the end of the input: the last line may lack its line feed."""
        tail = b"\n" if self.inside else b""
        lines = [self.rest + b"\n"] if self.rest else []
        self.rest, self.inside = b"", False
        return Cut(tail, lines, b"")


def _split(data: bytes) -> list[bytes]:
    if b"\r" not in data:
        return data.splitlines(keepends=True)
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines
