"""Row counters: small files in which tasks count processed rows, so the driver can show progress inside a long task.

Spark counts the rows of Python tasks only when a task ends. A bounded run often has one task per core. The driver
names a folder in a local property of its jobs. Tasks without the property, or on a machine without the folder, count
nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from pyspark import TaskContext

PROPERTY = "tocsin.rowCounters"
# Kinds of counters: rows that the fold has read, and rows that the operator has evaluated.
FOLDED, EVALUATED = "folded", "evaluated"
_DIGITS = 20


class RowCounter:
    """The counter of one task, a file that holds a decimal number; a repeated task starts it again at 0."""

    def __init__(self, kind: str) -> None:
        self._rows, self._file = 0, -1
        context = TaskContext.get()
        folder = None if context is None else context.getLocalProperty(PROPERTY)
        if context is None or not folder:
            return
        path = Path(folder) / f"{kind}-{context.stageId()}-{context.partitionId()}"
        # Progress is not worth a failed task.
        with suppress(OSError):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            self.add(0)

    def __enter__(self) -> RowCounter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def add(self, rows: int) -> None:
        """Count some more rows."""
        self._rows += rows
        if self._file >= 0:
            with suppress(OSError):
                os.pwrite(self._file, b"%*d" % (_DIGITS, self._rows), 0)


def sum_counters(folder: Path, kind: str) -> int:
    """Return the sum of all counters of a kind."""
    total = 0
    for path in folder.glob(f"{kind}-*"):
        # A file can be empty for a moment.
        with suppress(OSError, ValueError):
            total += int(path.read_bytes())
    return total
