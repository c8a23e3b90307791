"""Files: atomic replacement, durable appends, bounded reads, and locks.

All durable writes of the package use this module. It imports only the standard library.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import IO


def replace_file(path: Path, data: bytes | Iterable[bytes], *, sync: bool = True) -> None:
    """Replace a file atomically: a reader sees the old or the new content. With `sync`, force it to disk."""
    temporary = beside(path)
    with temporary.open("wb") as file:
        file.writelines([data] if isinstance(data, bytes) else data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
    if sync:
        sync_path(path.parent)


def open_file(path: Path) -> IO[bytes]:
    """Open a regular file for reading. Raise OSError for folders, devices and pipes, without waiting for a pipe."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(number).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(number, "rb")
    os.close(number)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "Not a file", str(path))


def read_file(path: Path, most: int) -> bytes:
    """Read a file of at most `most` bytes. Raise OSError if it is larger."""
    with open_file(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"More than {most:,} bytes", str(path))
    return data


def beside(path: Path) -> Path:
    """Return the hidden path where `replace_file` writes the new content before it renames the file."""
    return path.with_name(f".{path.name}.tmp")


def append_line(path: Path, line: bytes) -> None:
    """Append a line, which is on disk when this returns. It begins on a new line if the last line is incomplete."""
    with path.open("a+b") as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Force a file, or the entries of a folder, to disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def lock_file(path: Path) -> IO[bytes] | None:
    """Lock a file until it is closed or the process ends. Return None if another process has the lock."""
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock
