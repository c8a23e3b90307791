"""Live output: the progress line of a command on standard error, and coloured lines and tables on terminals.

Each command that can take longer than two seconds enters a `ProgressLine` and names its phases. On a terminal the line
is replaced in place, and other output is written above it. Elsewhere plain lines are printed at growing intervals.

Guarantees
----------
A command that ends within two seconds prints nothing here. Standard output never gets progress. The line is erased
before the command prints its results, and when an exception or Ctrl-C ends the command.
"""

from __future__ import annotations

import io
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO
from unicodedata import combining, east_asian_width

from tocsin.formatting import format_duration, format_share

if TYPE_CHECKING:
    from tocsin.run_directory import Progress

# The value `off` of this environment variable turns progress off.
SWITCH = "TOCSIN_PROGRESS"
# Seconds before the first line, and the shortest and longest interval between plain lines.
FIRST_S, SHORTEST_S, LONGEST_S = 2.0, 3.0, 30.0
# Seconds between two checks whether a line is due.
_LOOK_S = 0.25
# Seconds that the end of a command waits for a measure that hangs.
_JOIN_S = 1.0
# Move to the begin of the line and erase it.
ERASE = "\r\x1b[K"


@dataclass(frozen=True)
class Status:
    """Phase of a command, and how much of its work is done.

    Attributes
    ----------
    phase
        What the command does now, such as "starting Spark".
    done, total
        Amount of work, if it is known.
    unit
        What the amounts count.
    """

    phase: str
    done: int | None = None
    total: int | None = None
    unit: str = "rows"

    def text(self, seconds: float) -> str:
        """Return the status as one line; `seconds` is the time since the phase began.

        >>> Status("reading 3 streams", 1_200_000).text(4)
        'reading 3 streams: 1,200,000 rows, 300,000 rows/s, 4 s'
        >>> Status("running tests", 3, 12, "tests").text(125)
        'running tests: 3 of 12 tests, 2 min 5 s'
        >>> Status("starting Spark").text(4)
        'starting Spark, 4 s'
        """
        elapsed = format_duration(round(seconds) * 1_000_000)
        if self.done is None:
            return f"{self.phase}, {elapsed}"
        amount = f"{self.done:,}" if self.total is None else f"{self.done:,} of {self.total:,}"
        rate = f", {self.done / seconds:,.0f} rows/s" if self.unit == "rows" and seconds > 0 else ""
        return f"{self.phase}: {amount} {self.unit}{rate}, {elapsed}"


# Returns None if there is nothing to show.
Measure = Callable[[], Status | None]


class Schedule:
    """Schedule of plain lines, in seconds since the start of a command."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def take(self, elapsed_s: float) -> bool:
        """Return whether a line is due, and plan the next line."""
        if elapsed_s < self._next_s:
            return False
        self._next_s = elapsed_s + min(LONGEST_S, max(SHORTEST_S, elapsed_s / 2))
        return True


class ProgressLine:
    """The progress of one command, shown while it is entered.

    A thread shows it, so a phase that blocks the command, such as the start of a JVM, is shown too.
    """

    def __init__(self, command: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.command, self._clock = command, clock
        self._status: Status | Measure = Status("starting")
        self._shown_phase = ""
        self._begun = self._phase_begun = 0.0
        self._is_plain = True
        self._ended = threading.Event()
        self._view: _Screen | _PlainLines | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ProgressLine:
        self._begun = self._phase_begun = self._clock()
        if os.environ.get(SWITCH) == "off":
            return self
        is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._view = _Screen() if is_terminal else _PlainLines(self.command)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_phase(self, status: str | Status | Measure, *, is_plain: bool = True) -> None:
        """Begin a phase. A measure is called whenever the line is shown.

        Without `is_plain` the phase is shown on terminals only.
        """
        self._phase_begun = self._clock()
        self._is_plain = is_plain
        self._shown_phase = ""
        self._status = Status(status) if isinstance(status, str) else status

    def update(self, done: int, total: int | None = None, unit: str = "rows") -> None:
        """Set the amount of work of the phase."""
        if isinstance(self._status, Status):
            self._status = Status(self._status.phase, done, total, unit)

    def stop(self) -> None:
        """Erase the line and show no more progress."""
        self._ended.set()
        if self._view is not None:
            self._view.close()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def show(self) -> None:
        """Show the status if that is due."""
        now = self._clock()
        if self._view is None or not self._view.is_due(now - self._begun):
            return
        if isinstance(self._view, _PlainLines) and not self._is_plain:
            return
        status = self._status if isinstance(self._status, Status) else self._status()
        if status is None:
            self._view.clear()
            return
        if self._shown_phase not in ("", status.phase):
            # A measure moved on to another phase.
            self._phase_begun = now
        self._shown_phase = status.phase
        self._view.show(status.text(max(0.0, now - self._phase_begun)))

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.show()


class _PlainLines:
    """Progress as plain lines, for logs and pipes."""

    def __init__(self, command: str) -> None:
        self._command, self._schedule = command, Schedule()
        self._stream, self._is_open, self._lock = _own_stderr(), True, threading.Lock()

    def is_due(self, elapsed_s: float) -> bool:
        return self._schedule.take(elapsed_s)

    def show(self, text: str) -> None:
        with self._lock:
            if self._is_open:
                print(f"tocsin {self._command}: {text}", file=self._stream, flush=True)

    def clear(self) -> None:
        """Keep the lines that are printed."""

    def close(self) -> None:
        with self._lock:
            if self._is_open and self._stream is not sys.stderr:
                self._stream.close()
            self._is_open = False


class _Screen:
    """Progress as one line on a terminal. Text that Python writes to the terminal appears above the line."""

    def __init__(self) -> None:
        self._stream, self._lock = _own_stderr(), threading.RLock()
        self._is_drawn, self._is_open, self._is_line_begun = False, True, False
        self._before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        for name, stream in self._before.items():
            if stream.isatty():
                setattr(sys, name, _AboveLine(stream, self))

    def is_due(self, elapsed_s: float) -> bool:
        return elapsed_s >= FIRST_S

    def show(self, text: str) -> None:
        with self._lock:
            if self._is_open and not self._is_line_begun:
                self._stream.write(ERASE + fit_width(text, _columns(self._stream) - 1))
                self._stream.flush()
                self._is_drawn = True

    def write(self, stream: TextIO, text: str) -> int:
        """Write text of the command where the line is."""
        with self._lock:
            self._erase()
            if text:
                self._is_line_begun = not text.endswith("\n")
            return stream.write(text)

    def clear(self) -> None:
        """Erase the line."""
        with self._lock:
            self._erase()

    def close(self) -> None:
        with self._lock:
            if not self._is_open:
                return
            self._erase()
            self._is_open = False
            for name, stream in self._before.items():
                shown = getattr(sys, name)
                if isinstance(shown, _AboveLine) and shown.is_of(self):
                    setattr(sys, name, stream)

    def _erase(self) -> None:
        if self._is_drawn:
            self._stream.write(ERASE)
            self._stream.flush()
            self._is_drawn = False


class _AboveLine:
    """A text stream of the terminal that erases the progress line before each write."""

    def __init__(self, stream: TextIO, screen: _Screen) -> None:
        self._stream, self._screen = stream, screen

    def is_of(self, screen: _Screen) -> bool:
        return self._screen is screen

    def write(self, text: str) -> int:
        return self._screen.write(self._stream, text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _own_stderr() -> TextIO:
    """Return standard error under a descriptor of its own: while a JVM starts, descriptor 2 is the log of Spark."""
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")
    except (AttributeError, OSError, io.UnsupportedOperation):
        return sys.stderr


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (AttributeError, OSError, io.UnsupportedOperation):
        return shutil.get_terminal_size().columns


def fit_width(text: str, columns: int) -> str:
    """Return the begin of a text that fits into some columns of a terminal.

    >>> fit_width("reading", 4), fit_width("読む", 3)
    ('read', '読')
    """
    used = 0
    for at, letter in enumerate(text):
        used += 0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1
        if used > columns:
            return text[:at]
    return text


def write_line(text: str, stream: TextIO, colour: str) -> None:
    """Write one line. On a terminal, its first word (the place of an error) is bold and coloured."""
    if not stream.isatty():
        print(text, file=stream)
        return
    # The import is slow and only needed for a terminal.
    from rich.console import Console
    from rich.text import Text

    place, space, rest = text.partition(" ")
    Console(file=stream, soft_wrap=True).print(Text.assemble((place, f"bold {colour}"), space, rest))


def write_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO, column: int, colours: Sequence[str]
) -> None:
    """Write a table. On a terminal, long cells wrap, and `column` has one of `colours` per row."""
    if not stream.isatty():
        from tocsin.cli.tables import table

        for line in table(head, rows, words=len(head)):
            print(line, file=stream)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tocsin.errors import printable

    drawn = Table(*head, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row, colour in zip(rows, colours, strict=True):
        # A Text is not parsed as markup.
        drawn.add_row(*(Text(printable(cell), colour if i == column else "") for i, cell in enumerate(row)))
    Console(file=stream).print(drawn)


def batch_text(progress: Progress, seconds: float) -> str:
    """Return the state of a run after a micro-batch as one line; `seconds` is the time since the one before."""
    total = progress.total
    retained = sum(counts.get("retained", 0) for counts in total.counts.values())
    notes = [f"lag {format_duration(max(progress.lag_s.values()) * 1e6)}"] if progress.lag_s else []
    waits = [wait_us for _, wait_us in total.items("wait_us")]
    notes += [f"wait {format_duration(max(waits))}"] if waits else []
    shares = [share for _, share in total.items("cpu_results")]
    notes += [f"CPU recall {format_share(min(shares))}"] if shares else []
    speed = sum(progress.gained.rows.values()) / max(seconds, 0.001)
    rows, firing = sum(total.rows.values()), sum(total.firing().values())
    counts = [f"{speed:,.0f} rows/s", f"{rows:,} rows", f"{retained:,} retained", f"{firing:,} firing"]
    return f"batch {progress.batch}: {', '.join([*counts, *notes])}"


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Write the log of Tocsin to standard error: warnings, and each micro-batch where no progress line is shown."""
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
