"""How a run shows itself: a line that moves on a terminal, lines of a log elsewhere; all on standard error."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tocsin.cli.remarks import part_text

if TYPE_CHECKING:
    from tocsin.rundir import Progress


class Live:
    """A line that says how a run goes, if somebody looks at a terminal; else nothing."""

    def __init__(self) -> None:
        self._spinner: Any = None
        self._line: Any = None
        self._at = time.monotonic()

    def __enter__(self) -> Live:
        if sys.stderr.isatty():
            # Only a terminal pays for the import.
            from rich.console import Console
            from rich.live import Live as MovingLine
            from rich.spinner import Spinner

            self._spinner = Spinner("dots", text="waiting for the first micro-batch", style="status.spinner")
            # What is printed meanwhile goes above the line: as it is, and only if it was meant for the terminal.
            self._line = MovingLine(
                self._spinner,
                console=Console(stderr=True, soft_wrap=True),
                refresh_per_second=12.5,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._line.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.stop()

    def show(self, progress: Progress) -> None:
        """Show a micro-batch."""
        now = time.monotonic()
        if self._spinner is not None:
            self._spinner.update(text=line_of(progress, now - self._at))
        self._at = now


def line_of(progress: Progress, seconds: float) -> str:
    """What a run does now, in one line."""
    whole = progress.total
    kept = sum(counts.get("retained", 0) for counts in whole.counts.values())
    lag = f", lag {max(progress.lag_s.values()):,.1f} s" if progress.lag_s else ""
    waits = f", waits {max(us for us, _ in progress.waits.values()) / 1e6:,.2f} s" if progress.waits else ""
    shares = [share for pair in progress.cpu.values() for share in pair[1:] if share is not None]
    waits += f", finds {part_text(min(shares))}" if shares else ""
    speed = sum(progress.gained.rows.values()) / max(seconds, 0.001)
    rows, firing = sum(whole.rows.values()), sum(whole.firing().values())
    return f"batch {progress.batch}: {speed:,.0f} rows/s, {rows:,} rows, {kept:,} kept, {firing:,} firing{lag}{waits}"


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Write what Tocsin logs to standard error: warnings, and, where no line moves, each micro-batch."""
    logger, handler = logging.getLogger("tocsin"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = logger.level
    logger.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
