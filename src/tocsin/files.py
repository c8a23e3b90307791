"""Files that are whole at any moment, and locks: one home for how bytes reach a disk. Imports nothing heavy."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import IO


def replace_file(path: Path, data: bytes | Iterable[bytes], *, sync: bool = True) -> None:
    """Put a file in place whole: a reader sees the old one or the new one; `sync` forces it to disk."""
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
    """Open a file to be read; what is none, as a folder, a device or a pipe that would be waited for, is an OSError."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(number).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(number, "rb")
    os.close(number)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "Not a file", str(path))


def read_file(path: Path, most: int) -> bytes:
    """Read a whole file; one of more than `most` bytes is an OSError."""
    with open_file(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"More than {most:,} bytes", str(path))
    return data


def beside(path: Path) -> Path:
    """The hidden name under which a file is written before it takes its place."""
    return path.with_name(f".{path.name}.tmp")


def append_line(path: Path, line: bytes) -> None:
    """Put a line behind the others, on disk when this returns; behind a torn one it begins anew."""
    with path.open("a+b") as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Force a file, or the names in a folder, to disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def lock_file(path: Path) -> IO[bytes] | None:
    """Lock a file until it is closed or the process ends; None if another one holds it."""
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock
