"""Event loop: reads, filters and writes until the input ends, the output is closed, or a signal requests a stop.

It has one thread and one `select`. Only this `select` and the sync of the state file block.

Guarantee: while lines wait for the output, the loop does not read. So if the reader of the output keeps up, the output
depends only on the input. If the output accepts nothing for 0.2 s, it counts as blocked. Then the loop reads again, and
waiting lines can still be omitted. When `max_backlog` lines are buffered, all delayed rows become due, and the loop
does not read until lines are written. An uncovered row is never dropped.
"""

from __future__ import annotations

import os
import select
import stat
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tocsin.edge import state_file
from tocsin.edge.edge_filter import EdgeFilter
from tocsin.edge.line_buffer import DueLine
from tocsin.edge.output_queue import OutputGoneError, OutputQueue
from tocsin.edge.settings import Settings
from tocsin.edge.signals import SignalMonitor
from tocsin.edge.status_report import StatusReport
from tocsin.errors import RuleError
from tocsin.files import replace_file

DONE, FAILED, OUTPUT_GONE, ROWS_LOST = 0, 1, 3, 4
_READ = 1 << 18
_BLOCKED_AFTER_S = 0.2
# If the first lines are all malformed, an option is probably wrong.
_WARN_AFTER_LINES = 10
# Maximum time that a stop waits for the output.
_STOP_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class LoopOptions:
    """Options of the loop. Apart from `malformed`, they decide when rows are sent, not which rows cover others.

    Attributes
    ----------
    flush_after_s
        Processing time without rows after which the delayed rows of a key are sent.
    max_backlog
        Maximum number of buffered lines.
    malformed
        `pass`, `drop`, or the path of a file for malformed lines.
    state, save_every_s
        State file, and the interval between two saves.
    json
        Whether counts and messages are JSON.
    """

    flush_after_s: float
    max_backlog: int = 100_000
    malformed: str = "pass"
    state: Path | None = None
    save_every_s: float = 60.0
    json: bool = False

    def __post_init__(self) -> None:
        """Check the options."""
        if self.max_backlog <= 0:
            message = f"`--max-backlog` must be above 0; got {self.max_backlog}"
            raise RuleError(message)


class EventLoop:
    """One run of the filter between two file descriptors.

    Attributes
    ----------
    edge, output, report
        The filter, the queue in front of the output, and the counts and messages on standard error.
    malformed_file
        File for malformed lines; None without `--malformed FILE`.
    is_file
        Whether the input is a file. Then processing time makes no row due, and a run can resume inside the file.
    has_ended
        Whether the end of the input was read.
    saved_at, saved_activity
        Time and activity at the last save.
    """

    def __init__(self, settings: Settings, options: LoopOptions, stdin: int = 0, stdout: int = 1) -> None:
        self.options, self.stdin = options, stdin
        self.report = StatusReport(json=options.json)
        self.malformed_file = None if options.malformed in ("pass", "drop") else Path(options.malformed).open("ab")
        self.edge = EdgeFilter(settings, self._divert_malformed if options.malformed != "pass" else None)
        self.output = OutputQueue(stdout, self.edge.buffer)
        self.input = os.fstat(stdin)
        self.is_file = stat.S_ISREG(self.input.st_mode)
        self.has_ended, self.has_warned = False, False
        self.saved_at, self.saved_activity = time.monotonic(), (0, 0, 0)

    def run(self) -> int:
        """Continue from the state file if it exists, filter all rows, and return the exit code."""
        self._restore()
        with SignalMonitor() as signals, self.malformed_file or nullcontext():
            try:
                while not (self.has_ended and not self.output.has_lines):
                    self._run_once(signals)
                    if signals.is_stopping:
                        return self._stop(signals)
            except OutputGoneError as error:
                self.output.restore_unread()
                return self._exit(OUTPUT_GONE, f"the output must be writable; {error}")
            except OSError as error:
                return self._exit(FAILED, f"the input must be readable, and `--malformed` writable; {error.strerror}")
        self._save()
        self.report.write_counts(self._counts())
        return DONE

    def _run_once(self, signals: SignalMonitor) -> None:
        """Wait for the next event and process it."""
        readers = [signals.fd, self.stdin] if self._can_read() else [signals.fd]
        writers = [self.output.fd] if self.output.has_lines else []
        readable, writable, _ = select.select(readers, writers, [], self._select_timeout())
        if signals.fd in readable and signals.take_report_request():
            self.edge.reducer.omit_covered()
            self.report.write_counts(self._counts())
        if writable:
            self.edge.reducer.omit_covered()
            self.output.write()
        if self.stdin in readable:
            self._read()
        self._run_timers()

    def _counts(self) -> dict[str, Any]:
        """Return all counts. `waiting` is the number of lines that are due and not written."""
        lines, in_progress = self.edge.buffer.lines, self.edge.buffer.in_progress
        waiting = len(in_progress) + sum(number in lines for number in self.output.queue)
        return self.edge.buffer.counts() | {"waiting": waiting, "keys": len(self.edge.reducer.key_reducers)}

    def _can_read(self) -> bool:
        if self.has_ended or not self.output.has_lines:
            return not self.has_ended
        is_blocked = time.monotonic() >= self.output.moved_at + _BLOCKED_AFTER_S
        return (
            is_blocked and not self.edge.splitter.is_in_long_line and len(self.edge.buffer) < self.options.max_backlog
        )

    def _read(self) -> None:
        try:
            data, now = os.read(self.stdin, _READ), time.monotonic()
        except BlockingIOError:
            return
        if data:
            self._enqueue(self.edge.process(data, now, blocked=self.output.has_lines))
        else:
            self.has_ended = True
            self._enqueue(self.edge.end(now))
        self._warn_if_all_malformed()
        if len(self.edge.buffer) >= self.options.max_backlog and not self.edge.splitter.is_in_long_line:
            self.edge.reducer.omit_covered()
            if len(self.edge.buffer) >= self.options.max_backlog:
                self._enqueue(self.edge.reducer.release())

    def _warn_if_all_malformed(self) -> None:
        """Warn once if no line was a row. Malformed lines are sent, so the error would be noticed late otherwise."""
        buffer = self.edge.buffer
        if self.has_warned or buffer.malformed < max(buffer.received, 1 if self.has_ended else _WARN_AFTER_LINES):
            return
        self.has_warned = True
        reasons = ", ".join(f"{reason} ({count})" for reason, count in sorted(buffer.reasons.items()))
        self.report.write_message(
            f"warning: all {buffer.received} lines so far are malformed: {reasons}; "
            "check `--format`, `--time`, `--value` and `--key`"
        )

    def _enqueue(self, due: list[DueLine]) -> None:
        """Append due lines to the output queue, and write at once if no line waited before."""
        had_lines = self.output.has_lines
        self.output.put(due)
        if not had_lines:
            self.output.write()

    def _select_timeout(self) -> float | None:
        """Return the seconds until the next timer, or None without timers."""
        timers, now, idle_since = [], time.monotonic(), self.edge.reducer.idle_since()
        if self.output.has_lines and now < self.output.moved_at + _BLOCKED_AFTER_S:
            timers.append(self.output.moved_at + _BLOCKED_AFTER_S)
        if idle_since is not None and not self.is_file and not self.edge.splitter.is_in_long_line:
            timers.append(idle_since + self.options.flush_after_s)
        if self.options.state is not None:
            timers.append(self.saved_at + self.options.save_every_s)
        return max(0.0, min(timers) - now) if timers else None

    def _run_timers(self) -> None:
        now = time.monotonic()
        if not self.is_file and not self.edge.splitter.is_in_long_line:
            self._enqueue(self.edge.reducer.release(now - self.options.flush_after_s))
        if self.options.state is not None and now >= self.saved_at + self.options.save_every_s:
            self.saved_at = now
            if self.saved_activity != self._activity():
                self._save()

    def _divert_malformed(self, line: bytes) -> None:
        if self.malformed_file is not None:
            self.malformed_file.write(line)
            self.malformed_file.flush()

    def _restore(self) -> None:
        """Restore the state file if it exists. Then write it, so that a run with an unwritable file does not start."""
        path = self.options.state
        if path is None:
            return
        data = state_file.read_state(path)
        if data is not None:
            queue, position = state_file.restore_state(data, self.edge, time.monotonic())
            self.output.queue.extend(queue)
            self._resume_input(position)
        replace_file(path, self._encode_state())

    def _input_position(self) -> dict[str, Any]:
        """Return the input file and the offset of its first unprocessed line; empty if the input is not a file."""
        if not self.is_file:
            return {}
        at = os.lseek(self.stdin, 0, os.SEEK_CUR) - len(self.edge.splitter.rest)
        return {"device": self.input.st_dev, "inode": self.input.st_ino, "at": at}

    def _resume_input(self, position: dict[str, Any]) -> None:
        """Seek to the saved offset if the input is the same file. Any other input continues the saved one."""
        if not position:
            return
        # These bytes are read again from the file.
        self.edge.splitter.rest = b""
        same_file = {"device": self.input.st_dev, "inode": self.input.st_ino, "at": position["at"]}
        if self.is_file and position == same_file and self.input.st_size >= position["at"]:
            os.lseek(self.stdin, position["at"], os.SEEK_SET)

    def _encode_state(self) -> bytes:
        return state_file.encode_state(self.edge, self.output.queue, self._input_position())

    def _activity(self) -> tuple[int, int, int]:
        """Return numbers that change with every event."""
        return self.edge.buffer.bytes_in, self.edge.buffer.bytes_out, len(self.edge.buffer)

    def _save(self) -> bool:
        """Save the state if a state file is configured, and return whether it was saved."""
        if self.options.state is None:
            return False
        self.saved_activity = self._activity()
        try:
            replace_file(self.options.state, self._encode_state())
        except OSError as error:
            self.report.write_message(f"`--state` {self.options.state} must be writable; {error.strerror}")
            return False
        return True

    def _stop(self, signals: SignalMonitor) -> int:
        """Stop after a signal. With a state file, only finish a partly written line; without it, send all lines."""
        has_state, until = self.options.state is not None, time.monotonic() + _STOP_TIMEOUT_S
        if not has_state:
            self.output.put(self.edge.reducer.release())
        # A second signal stops at once.
        while (self.output.is_inside_line if has_state else self.output.has_lines) and signals.count == 1:
            signals.take_report_request()
            left_s = until - time.monotonic()
            if left_s <= 0 or not select.select([signals.fd], [self.output.fd], [], left_s)[1]:
                break
            self.output.write()
        return self._exit(DONE, f"stopped by {signals.name}")

    def _exit(self, code: int, reason: str) -> int:
        """Save the unsent lines, or report their loss, and return the exit code."""
        self.edge.reducer.omit_covered()
        left, is_saved = len(self.edge.buffer), self._save()
        self.report.write_counts(self._counts())
        if is_saved:
            self.report.write_message(f"{reason}; {left} unsent lines are saved in {self.options.state}")
            return code
        if left == 0:
            self.report.write_message(f"{reason}; all lines were sent")
            return code
        self.report.write_message(f"{reason}; {left} unsent lines are lost: use `--state FILE` to save them")
        return ROWS_LOST
