"""Loop: read, reduce, write, until the input ends, the output goes away, or a signal asks to stop.

One thread and `select`. What blocks is only the wait for something to do, and the sync of the state file.

*Guarantee*: the output is blocked when it has taken nothing for 0.2 s. Before that reading waits, so with a reader that
keeps up the output depends on the input alone. After it reading goes on, and what waits is reduced on; when
`max_backlog` lines are here, what is held is handed out and reading waits for writing. Nothing unexcused is dropped to
make room.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tocsin.edge import state
from tocsin.edge.filter import Filter
from tocsin.edge.ledger import Due
from tocsin.edge.outbox import Outbox, OutputGoneError
from tocsin.edge.report import Report
from tocsin.edge.settings import Settings
from tocsin.edge.signals import Signals
from tocsin.errors import RuleError
from tocsin.files import replace_file

DONE, FAILED, OUTPUT_GONE, LOST = 0, 1, 3, 4
_READ = 1 << 18
_BLOCKED_S = 0.2
# After so many lines that are all malformed a field is misnamed, rather than a line broken.
_ENOUGH = 10
# How long a stop waits for the output: to take what is left, or, if that is saved, the rest of a line.
_GRACE_S = 2.0


@dataclass(frozen=True)
class Options:
    """How the loop runs; none of it changes which rows excuse which."""

    flush_after_s: float
    max_backlog: int = 100_000
    malformed: str = "pass"
    state: Path | None = None
    save_every_s: float = 60.0
    json: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.max_backlog <= 0:
            message = f"`--max-backlog` must be above 0; got {self.max_backlog}"
            raise RuleError(message)


class Loop:
    """One run of the edge, between two file descriptors."""

    def __init__(self, settings: Settings, options: Options, stdin: int = 0, stdout: int = 1) -> None:
        self.options, self.stdin = options, stdin
        self.report = Report(json=options.json)
        self.aside = None if options.malformed in ("pass", "drop") else Path(options.malformed).open("ab")
        self.edge = Filter(settings, self._set_aside if options.malformed != "pass" else None)
        self.outbox = Outbox(stdout, self.edge.ledger)
        self.input = os.fstat(stdin)
        self.is_file = stat.S_ISREG(self.input.st_mode)
        self.ended, self.warned = False, False
        self.saved_at, self.saved_as = time.monotonic(), (0, 0, 0)

    def run(self) -> int:
        """Go on from the state file if there is one, and give the exit code at the end."""
        self._restore()
        with Signals() as signals, self.aside or nullcontext():
            try:
                while not (self.ended and not self.outbox.waiting):
                    self._turn(signals)
                    if signals.stop:
                        return self._stop(signals)
            except OutputGoneError as error:
                self.outbox.take_back()
                return self._leave(OUTPUT_GONE, f"the output must be writable; {error}")
            except OSError as error:
                return self._leave(FAILED, f"the input must be readable, and `--malformed` writable; {error.strerror}")
        self._save()
        self.report.counts(self._counts())
        return DONE

    def _turn(self, signals: Signals) -> None:
        """Wait for something to do, and do it."""
        readers = [signals.fd, self.stdin] if self._may_read() else [signals.fd]
        writers = [self.outbox.fd] if self.outbox.waiting else []
        ready, writable, _ = select.select(readers, writers, [], self._patience())
        if signals.fd in ready and signals.take_report():
            self.edge.reducer.omit_gone()
            self.report.counts(self._counts())
        if writable:
            self.edge.reducer.omit_gone()
            self.outbox.write()
        if self.stdin in ready:
            self._read()
        self._act_on_time()

    def _counts(self) -> dict[str, Any]:
        """Give what became of the rows; `waiting` are those of the held that are due and not written."""
        lines, begun = self.edge.ledger.lines, self.edge.ledger.begun
        waiting = len(begun) + sum(number in lines for number in self.outbox.queue)
        return self.edge.ledger.counts() | {"waiting": waiting, "keys": len(self.edge.reducer.tracks)}

    def _may_read(self) -> bool:
        if self.ended or not self.outbox.waiting:
            return not self.ended
        blocked = time.monotonic() >= self.outbox.moved_at + _BLOCKED_S
        return blocked and not self.edge.lines.inside and len(self.edge.ledger) < self.options.max_backlog

    def _read(self) -> None:
        try:
            data, now = os.read(self.stdin, _READ), time.monotonic()
        except BlockingIOError:
            return
        if data:
            self._put(self.edge.take(data, now, blocked=self.outbox.waiting))
        else:
            self.ended = True
            self._put(self.edge.end(now))
        self._warn()
        if len(self.edge.ledger) >= self.options.max_backlog and not self.edge.lines.inside:
            self.edge.reducer.omit_gone()
            if len(self.edge.ledger) >= self.options.max_backlog:
                self._put(self.edge.reducer.release())

    def _warn(self) -> None:
        """Say once that no line so far was a row: the lines pass, so nobody would notice until the end."""
        ledger = self.edge.ledger
        if self.warned or ledger.malformed < max(ledger.received, 1 if self.ended else _ENOUGH):
            return
        self.warned = True
        why = ", ".join(f"{reason} ({count})" for reason, count in sorted(ledger.why.items()))
        options = "`--format`, `--time`, `--value` and `--key`"
        self.report.say(f"warning: {options} must fit the lines; all {ledger.received} so far are malformed: {why}")

    def _put(self, due: list[Due]) -> None:
        """Write what is due, at once if nothing waits before it."""
        waiting = self.outbox.waiting
        self.outbox.put(due)
        if not waiting:
            self.outbox.write()

    def _patience(self) -> float | None:
        """Give how long to wait at most."""
        ends, now, since = [], time.monotonic(), self.edge.reducer.quiet_since()
        if self.outbox.waiting and now < self.outbox.moved_at + _BLOCKED_S:
            ends.append(self.outbox.moved_at + _BLOCKED_S)
        if since is not None and not self.is_file and not self.edge.lines.inside:
            ends.append(since + self.options.flush_after_s)
        if self.options.state is not None:
            ends.append(self.saved_at + self.options.save_every_s)
        return max(0.0, min(ends) - now) if ends else None

    def _act_on_time(self) -> None:
        now = time.monotonic()
        if not self.is_file and not self.edge.lines.inside:
            self._put(self.edge.reducer.release(now - self.options.flush_after_s))
        if self.options.state is not None and now >= self.saved_at + self.options.save_every_s:
            self.saved_at = now
            if self.saved_as != self._mark():
                self._save()

    def _set_aside(self, line: bytes) -> None:
        if self.aside is not None:
            self.aside.write(line)
            self.aside.flush()

    def _restore(self) -> None:
        """Go on from the state file, and make sure that it can be written."""
        path = self.options.state
        if path is None:
            return
        data = state.read(path)
        if data is not None:
            queue, place = state.load(data, self.edge, time.monotonic())
            self.outbox.queue.extend(queue)
            self._seek(place)
        replace_file(path, self._dump())

    def _place(self) -> dict[str, Any]:
        """Say where in a file the first line begins that has not been taken."""
        if not self.is_file:
            return {}
        at = os.lseek(self.stdin, 0, os.SEEK_CUR) - len(self.edge.lines.rest)
        return {"device": self.input.st_dev, "inode": self.input.st_ino, "at": at}

    def _seek(self, place: dict[str, Any]) -> None:
        """Go on in the same file where the last run stopped; any other input is taken to go on by itself."""
        if not place:
            return
        self.edge.lines.rest = b""
        same = self.is_file and place == {"device": self.input.st_dev, "inode": self.input.st_ino, "at": place["at"]}
        if same and self.input.st_size >= place["at"]:
            os.lseek(self.stdin, place["at"], os.SEEK_SET)

    def _dump(self) -> bytes:
        return state.dump(self.edge, self.outbox.queue, self._place())

    def _mark(self) -> tuple[int, int, int]:
        """Give what differs whenever something has happened."""
        return self.edge.ledger.bytes_in, self.edge.ledger.bytes_out, len(self.edge.ledger)

    def _save(self) -> bool:
        """Save the state, if there is a file for it; say whether it was saved."""
        if self.options.state is None:
            return False
        self.saved_as = self._mark()
        try:
            replace_file(self.options.state, self._dump())
        except OSError as error:
            self.report.say(f"`--state` {self.options.state} must be writable; {error.strerror}")
            return False
        return True

    def _stop(self, signals: Signals) -> int:
        """End because a signal asks for it: finish a line that is cut and save, or send what is left."""
        saves, until = self.options.state is not None, time.monotonic() + _GRACE_S
        if not saves:
            self.outbox.put(self.edge.reducer.release())
        while (self.outbox.cut if saves else self.outbox.waiting) and signals.count == 1:
            signals.take_report()
            left = until - time.monotonic()
            if left <= 0 or not select.select([signals.fd], [self.outbox.fd], [], left)[1]:
                break
            self.outbox.write()
        return self._leave(DONE, f"stopped by {signals.name}")

    def _leave(self, code: int, why: str) -> int:
        """Save what is here, or say that it is lost."""
        self.edge.reducer.omit_gone()
        left, saved = len(self.edge.ledger), self._save()
        self.report.counts(self._counts())
        if saved:
            self.report.say(f"{why}; {left} lines that were not sent are in {self.options.state}")
            return code
        if left == 0:
            self.report.say(f"{why}; nothing was left to send")
            return code
        self.report.say(f"{why}; {left} lines that were not sent are lost: `--state FILE` would keep them")
        return LOST


def run(settings: Settings, options: Options) -> int:
    """Filter standard input to standard output; give the exit code."""
    sys.stdout.flush()
    return Loop(settings, options).run()
