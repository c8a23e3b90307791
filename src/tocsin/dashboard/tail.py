"""A growing file of lines: what was added since the last look, each line once and whole.

Guarantee: a torn last line is left until its end is there; a file that shrank or was replaced is read anew, and says
so; it is known by its inode and by its first bytes, since an inode may be used again.
Cost: a look reads what is new, at most `_CHUNK` bytes; the first begins at most `most` bytes before the end.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tocsin.files import open_file

_CHUNK = 1 << 23
_FIRST = 256


class News(NamedTuple):
    """Lines that came; `anew` where all that was read before is to be forgotten, `more` where a look is not enough."""

    lines: list[bytes]
    anew: bool
    more: bool


class Tail:
    """Follows one file; `skipped` bytes at its beginning were passed over, `fault` says why it cannot be read."""

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most = path, most
        self.skipped, self.fault = 0, ""
        self._file, self._first = -1, b""
        self._place = 0

    def news(self) -> News:
        """Read what was added; nothing where the file is not there, or cannot be read."""
        try:
            with open_file(self.path) as file:
                status = os.fstat(file.fileno())
                first = file.read(_FIRST)
                is_same = status.st_ino == self._file and first.startswith(self._first)
                anew = not is_same or status.st_size < self._place
                self._first = first
                if anew:
                    self._file, self._place = status.st_ino, max(0, status.st_size - self.most)
                    self.skipped = self._place
                file.seek(self._place)
                data = file.read(_CHUNK)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            reason = (error.strerror or str(error)).lower()
            self.fault = "" if missing else f"cannot read `{self.path.name}`: {reason}"
            return News([], anew=False, more=False)
        self.fault = ""
        end = data.rfind(b"\n") + 1
        if not end and len(data) == _CHUNK:
            end = len(data)  # One line is longer than all that may be read at once: its pieces are no lines.
        self._place += end
        lines = data[:end].split(b"\n")[:-1] if end else []
        return News(lines, anew, status.st_size - self._place > len(data) - end)
