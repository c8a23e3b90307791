"""The alerts of a log as lives, in memory: who fires now, how often each rule fired, and any alert by its id.

Idea: files of the log are read once, in order; each change of state opens, moves or ends a life. What is large (the
witness, annotations) stays on disk, and is read again for the one alert that is looked at.
Guarantee: a file that was replaced by an equal one changes nothing; by another one, everything is read anew. A line
that cannot be read is counted, and stops nothing; each is taken once, even if the disk fails inside a file. Of more
than `MOST` alerts the oldest that have ended are forgotten. Nothing is parsed while pages wait.
Cost: some 30 microseconds per change of state, and 700 bytes per alert.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tocsin.dashboard.alertfile import Line, Mark, Told, code_of, mark_of, pieces_of
from tocsin.dashboard.known import Change, Known, Labels, RuleAlerts, id_in_address
from tocsin.delivery import AlertLog, Position

MOST = 400_000
_LOOKED_AT_AGAIN = 16

Lock = AbstractContextManager[Any]


class AlertIndex:
    """The lives of one alert log; `read` goes on where it was, and gives way now and then."""

    def __init__(self, folder: Path) -> None:
        self.log = AlertLog(folder)
        self.problem = ""
        self.read_anew = 0
        self._folder_seen: tuple[int, int] | None = None
        self._forget()

    def _forget(self) -> None:
        self.read_anew += 1
        self.rules: dict[str, RuleAlerts] = {}
        self.by_id: dict[str, list[Known]] = {}
        self.all: list[Known] = []
        self.changes = self.unreadable = self.forgotten = 0
        self.fault = ""
        self._open: dict[tuple[str, Labels, bool], Known] = {}
        self._labels: dict[Labels, Labels] = {}
        self._words: dict[Labels, str] = {}
        self._files: dict[int, tuple[Mark, int]] = {}
        # Files that a disk failed to give to their end: lines that were taken, and the code of those.
        self._begun: dict[int, tuple[int, int]] = {}
        self._next, self._full = 0, MOST + MOST // 4
        self._ranked: dict[str | None, list[Known]] = {}
        self._ranked_of = 0

    @property
    def open(self) -> list[Known]:
        """The alerts that go on, the newest first."""
        return sorted(self._open.values(), key=lambda one: (one.start_us, one.place), reverse=True)

    def ranked(self, alert: str | None = None) -> list[Known]:
        """All alerts, or those of a rule, by rank; sorted once for what is known."""
        if self._ranked_of != self.changes:
            self._ranked, self._ranked_of = {}, self.changes
        if alert not in self._ranked:
            mine = self.all if alert is None else self.rules[alert].all if alert in self.rules else []
            self._ranked[alert] = sorted(mine, key=lambda one: one.rank)
        return self._ranked[alert]

    def words(self, labels: Labels) -> str:
        """Labels as one text to search in, made once."""
        found = self._words.get(labels)
        if found is None:
            found = self._words[labels] = " ".join(f"{name}={value}" for name, value in labels).casefold()
        return found

    def read(self, lock: Lock | None = None) -> Iterator[bool]:
        """Take what is new in the log, a little at a time while the lock is held; each step is news."""
        lock = nullcontext() if lock is None else lock
        try:
            status = os.stat(self.log.folder)
        except FileNotFoundError:
            status = None
        except OSError as error:
            self.problem = f"cannot read the folder `{self.log.folder.name}`: {(error.strerror or '').lower()}"
            return
        self.problem = ""
        if status is not None and not stat.S_ISDIR(status.st_mode):
            self.problem = f"`{self.log.folder.name}` is not a folder"
            return
        seen = None if status is None else (status.st_mtime_ns, status.st_ino)
        if seen is not None and seen == self._folder_seen:
            return
        files = dict(self.log.batches())
        if self._replaced(files):
            with lock:
                self._forget()
            yield True
        for batch, path in files.items():
            if batch not in self._files and (yield from self._read_file(batch, path, lock)):
                return  # What comes behind must not stand before what is read anew.
        # A file that came while others were read may not show in a time of the folder that is coarse.
        is_old = status is not None and status.st_mtime < datetime.now(UTC).timestamp() - 2
        self._folder_seen = seen if is_old and files.keys() <= self._files.keys() else None

    def _replaced(self, files: Mapping[int, Path]) -> bool:
        """Tell whether a file that was read has gone, or has other content now."""
        if not self._files.keys() | self._begun.keys() <= files.keys():
            return True
        # A micro-batch that is run again is one of the last.
        for batch in sorted(self._files)[-_LOOKED_AT_AGAIN:]:
            known, path = self._files[batch], files[batch]
            mark = mark_of(path)
            if mark is None or known[0] == mark:
                continue
            code = code_of(path)
            if code != known[1]:
                return True
            self._files[batch] = (mark, code)
        return False

    def _read_file(self, batch: int, path: Path, lock: Lock) -> Generator[bool, None, bool]:
        """Take a file; where the disk fails inside it, the next time goes on behind the lines that were taken.

        Says whether it was another file than the one that was begun, so that everything was forgotten.
        """
        mark = mark_of(path)
        if mark is None:
            return False
        number, code, fault, (taken, taken_code) = 0, 0, "", self._begun.get(batch, (0, 0))
        is_other = False
        try:
            for piece in pieces_of(path):
                is_other = number < taken <= number + len(piece) and piece[taken - number - 1].code != taken_code
                if is_other:
                    break
                with lock:
                    self._take(batch, path, piece[max(0, taken - number) :], max(number, taken))
                number, code = number + len(piece), piece[-1].code if piece else code
                yield True
        except OSError as error:
            with lock:
                self._disk_failed(batch, f"{path.name}: {error}", (number, code))
            return False
        except ValueError as error:
            fault = f"{path.name}: {error}"
        is_other = is_other or number < taken
        with lock:
            if is_other:
                self._forget()
            else:
                self._read_whole(batch, mark, code)
                if fault:
                    self._cannot_read(fault)
        yield True
        return is_other

    def _disk_failed(self, batch: int, what: str, so_far: tuple[int, int]) -> None:
        """Note how far a file was taken; it is one fault, however often it is tried."""
        self.unreadable += batch not in self._begun
        self.fault = what
        self._begun[batch] = max(so_far, self._begun.get(batch, (0, 0)))

    def _read_whole(self, batch: int, mark: Mark, code: int) -> None:
        self._files[batch] = (mark, code)
        self.unreadable -= self._begun.pop(batch, None) is not None

    def _take(self, batch: int, path: Path, lines: Sequence[Line], first: int) -> None:
        """Take lines of a file, the first of which has a number."""
        for number, line in enumerate(lines, first):
            if line.change is not None:
                self._change(Position(batch, number), line.change)
            else:
                self._cannot_read(f"{path.name}:{number + 1}: {line.fault}")

    def _cannot_read(self, what: str) -> None:
        self.unreadable += 1
        self.fault = what

    def _change(self, position: Position, change: Told) -> None:
        """Open, move or end a life."""
        labels = self._labels.setdefault(change.labels, change.labels)
        whose = (change.alert, labels, change.late)
        one = self._open.pop(whose, None)
        if one is None or one.id != change.id or one.start_us != change.start_us:
            if one is not None:
                self._close(one, change.start_us)
            one = self._begin(change, labels)
        mine = self.rules[one.alert]
        one.add(Change(position, change.state))
        one.state, one.fires_us, one.end_us = change.state, change.fires_us, change.end_us
        one.value, one.margin, one.quality = change.value, change.margin, change.quality
        if change.state in {"firing", "resolved", "match"} and not one.has_fired:
            one.has_fired = True
            mine.matched += change.state == "match"
            mine.fired += change.state != "match"
        self.changes += 1
        if change.end_us is None:
            self._open[whose] = mine.open[one.place] = one
        else:
            mine.open.pop(one.place, None)

    def _close(self, one: Known, end_us: int) -> None:
        """End a life whose end the log does not have, since another of the same labels has begun."""
        one.state, one.end_us = "resolved" if one.has_fired else "inactive", max(one.start_us, end_us)
        self.rules[one.alert].open.pop(one.place, None)

    def _begin(self, change: Told, labels: Labels) -> Known:
        mine = self.rules.setdefault(change.alert, RuleAlerts())
        known = mine.all[0].alert if mine.all else change.alert
        one = Known(known, labels, self._next)
        self._next += 1
        one.id, one.start_us, one.is_late = change.id, change.start_us, change.late
        mine.all.append(one)
        self.all.append(one)
        self.by_id.setdefault(id_in_address(one.id), []).append(one)
        if len(self.all) > self._full:
            self._drop_oldest()
            # Those that go on stay: where they are most, to look again at each new one would take quadratic time.
            self._full = max(MOST, len(self.all)) + MOST // 4
        return one

    def _drop_oldest(self) -> None:
        """Forget the oldest that have ended."""
        spare = len(self.all) - MOST
        gone = {one.place for one in [one for one in self.all[:-1] if not one.is_open][:spare]}
        self.forgotten += len(gone)
        self.all = [one for one in self.all if one.place not in gone]
        for mine in self.rules.values():
            mine.all = [one for one in mine.all if one.place not in gone]
        by_id: dict[str, list[Known]] = {}
        for one in self.all:
            by_id.setdefault(id_in_address(one.id), []).append(one)
        self.by_id = by_id
        self._labels = {one.labels: one.labels for one in self.all}
        self._words = {labels: text for labels, text in self._words.items() if labels in self._labels}
