"""How far long work has come: a bar on a terminal, a line now and then elsewhere; all to standard error."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

# Between lines where nobody watches.
_EVERY_S = 30.0


class Bar:
    """Shows tasks done of tasks in all, while it is entered; `quiet` shows nothing where there is no terminal."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self.what, self.quiet = what, quiet
        self._progress: Any = None
        self._task: Any = None
        self._said = time.monotonic()

    def __enter__(self) -> Bar:
        if sys.stderr.isatty():
            # Only a terminal pays for the import.
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task(self.what, total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def told(self, done: int, total: int) -> None:
        """Show how many tasks of the running stages are done."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total)
        elif not self.quiet and time.monotonic() - self._said >= _EVERY_S:
            self._said = time.monotonic()
            print(f"tocsin {self.what}: {done} of {total} tasks of this stage are done", file=sys.stderr)
