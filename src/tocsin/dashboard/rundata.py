"""One run directory, read while it grows: what runs, how it goes, its alerts. Nothing in it can break a page.

Guarantee: what is half written, damaged or missing is told in `faults`, and everything else is shown. Nothing is
written into the directory, and no lock is taken.
Cost: `look` reads what is new; the record of micro-batches is read from at most `_MOST_BYTES` before its end.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tocsin.dashboard.alert_index import AlertIndex
from tocsin.dashboard.alert_records import Signature, cut_text, file_signature
from tocsin.dashboard.microbatch import OF_ALERT, Noted, noted_of
from tocsin.dashboard.series import MOST, MOST_OF_ALERT, Series
from tocsin.dashboard.tail import Tail
from tocsin.delivery.delivery import ALERTS, DELIVERY
from tocsin.delivery.sink_cursor import read_status
from tocsin.errors import RunError
from tocsin.files import open_file, read_file
from tocsin.formatting import format_count
from tocsin.run_directory import Manifest, Progress, read_manifest
from tocsin.run_directory.layout import LOCK
from tocsin.run_directory.manifest import MANIFEST
from tocsin.run_directory.progress import PROGRESS, SUMMARY

_MOST_BYTES = 1 << 26
_MOST_SUMMARY = 1 << 28
# What the parts of a rule and of a stream must be, where pages look into them.
_NAMES = {"on", "streams", "keys", "values"}
_TYPES: dict[str, type] = {"labels": dict, "proofs": dict, "retention": dict, **dict.fromkeys(_NAMES, list)}
# A run with nothing to do says so once a minute.
_FRESH_S = 150.0
# Micro-batches between which others may look at what is known.
_STEP = 250


class RunData:
    """What is known of one run directory; `version` grows when something new is known."""

    def __init__(
        self, name: str, folder: Path, alerts: Path | None = None, *, whose: str = "", index_dir: Path | None = None
    ) -> None:
        self.name, self.folder, self.whose = name, folder, whose
        self.version = 0
        self.is_read = False
        self.manifest: Manifest | None = None
        self.summary: Mapping[str, Any] | None = None
        self.last: Progress | None = None
        self.history: dict[str, Series] = {}
        self.index = AlertIndex(alerts or folder / ALERTS, index_dir)
        self.torn = 0
        self._faults: dict[str, str] = {}
        self._marks: dict[str, Signature | None] = {}
        self._progress = Tail(folder / PROGRESS, _MOST_BYTES)
        self._last_s: float | None = None
        self._is_held = False

    @property
    def is_backtest(self) -> bool:
        """Tell whether it is of a backtest: history, which does not go on."""
        return self.summary is not None

    @property
    def problem(self) -> str:
        """Why the folder is not that of a run, in a sentence; nothing if it is, or may become one."""
        if self.whose or self.manifest is not None:
            return ""
        try:
            is_empty = not any(self.folder.iterdir())
        except OSError:
            return f"run directory {self.folder} not found"
        return "" if is_empty or self.is_run else f"{self.folder} is not a run directory: it has no `{MANIFEST}`"

    @property
    def is_run(self) -> bool:
        """True if the folder has a manifest, or a run that starts holds its lock."""
        return os.path.exists(self.folder / MANIFEST) or bool(self.holder)

    @property
    def is_known(self) -> bool:
        """Tell whether anything is known of alerts: before the first micro-batch nothing is."""
        return bool(self.index.count or self.summary or self.whose) or self.last is not None

    @property
    def faults(self) -> list[str]:
        """What could not be read, each in a sentence."""
        said = [fault for fault in (*self._faults.values(), self._progress.fault, self.index.problem) if fault]
        if self.index.unreadable:
            number = format_count(self.index.unreadable, "line")
            said.append(f"cannot read {number} of the alert log; the last error: {self.index.fault}")
        if self.torn:
            said.append(f"cannot read {format_count(self.torn, 'line')} of `{PROGRESS}`; skipped")
        return said

    @property
    def holder(self) -> str:
        """The process that runs it now, as text; nothing if it has ended.

        A process of another machine is not seen from here: there a micro-batch of the last minutes tells that it runs.
        """
        try:
            with open_file(self.folder / LOCK) as file:
                holder = file.read(20).decode("ascii", "replace").strip()
        except OSError:
            return ""
        is_fresh = self._last_s is not None and time.time() - self._last_s < _FRESH_S
        return holder if holder.isdigit() and (os.path.exists(f"/proc/{holder}") or is_fresh) else ""

    def sinks(self) -> dict[str, dict[str, Any]]:
        """How far each sink is, as it says itself."""
        return read_status(self.folder / DELIVERY)

    def look(self, lock: AbstractContextManager[Any], stop: Callable[[], bool]) -> None:
        """Take what is new: it is read and parsed first, and taken, a little at a time, while the lock is held."""
        self._look_at(MANIFEST, _read_manifest, lock)
        self._look_at(SUMMARY, _read_summary, lock)
        self._follow_progress(lock, stop)
        for _ in self.index.read(lock):
            self.version += 1
            if stop():
                return
        is_held = bool(self.holder)
        with lock:
            if not self.is_read or is_held != self._is_held:
                self.is_read, self._is_held, self.version = True, is_held, self.version + 1

    def _look_at(self, name: str, read: Callable[[Path], Any], lock: AbstractContextManager[Any]) -> None:
        """Read a file again where it changed; what is wrong with it is kept until it is right."""
        path = self.folder / name
        mark = file_signature(path)
        if mark == self._marks.get(name, ()):
            return
        self._marks[name] = mark
        found, fault = None, ""
        if mark is None and os.path.lexists(path):
            fault = f"`{name}` is not a file"
        else:
            try:
                found = read(path)
            except (RunError, OSError, ValueError, TypeError, RecursionError, AttributeError) as error:
                fault = str(error) or f"`{name}` cannot be read"
        with lock:
            self._take_file(name, found, fault)

    def _take_file(self, name: str, found: Any, fault: str) -> None:
        self._faults.pop(name, None)
        if fault:
            self._faults[name] = fault
        elif name == SUMMARY:
            self.summary = found
        elif found is not None:
            self.manifest = found
        self.version += 1

    def _follow_progress(self, lock: AbstractContextManager[Any], stop: Callable[[], bool]) -> None:
        more = True
        while more and not stop():
            news = self._progress.news()
            more = news.more
            if not (news.lines or news.anew):
                return
            found, torn = noted_of(news.lines, is_first=news.anew and self._progress.skipped > 0)
            with lock:
                if news.anew:
                    self.last, self.history, self.torn, self._last_s = None, {}, 0, None
                self.torn += torn
                self.version += 1
            for begin in range(0, len(found), _STEP):
                with lock:
                    for one in found[begin : begin + _STEP]:
                        self._take_progress(one)
                    self.version += 1

    def _take_progress(self, noted: Noted) -> None:
        """Note a micro-batch; one that was run again repeats its line, and adds nothing."""
        one, seconds, rows, numbers = noted
        if self.last is None or one.batch > self.last.batch:
            passed = None if self._last_s is None else seconds - self._last_s
            if passed and passed > 0:
                numbers["rows/s"] = rows / passed
            for name, number in numbers.items():
                # There may be thousands of alerts, each with some numbers: a picture of one shows no more than this.
                most = MOST_OF_ALERT if name.startswith(OF_ALERT) else MOST
                self.history.setdefault(name, Series(most)).add(seconds, number)
            self._last_s = seconds
        if self.last is None or one.batch >= self.last.batch:
            self.last = one


def _read_manifest(path: Path) -> Manifest | None:
    """The manifest, and of each rule and stream what is as pages need it: the rest is as if it were not there."""
    found = read_manifest(path.parent)
    if found is None:
        return None
    named = (rule for rule in found.rules if isinstance(rule, dict) and isinstance(rule.get("alert"), str))
    rules = tuple({**_typed(rule), "alert": cut_text(rule["alert"])} for rule in named)
    return replace(found, rules=rules, streams={name: _typed(stream) for name, stream in found.streams.items()})


def _typed(told: Mapping[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {name: one for name, one in told.items() if isinstance(one, _TYPES.get(name, object))}
    for name in _NAMES & known.keys():
        known[name] = [str(one) for one in known[name]]
    if "proofs" in known:
        known["proofs"] = {name: proof for name, proof in known["proofs"].items() if isinstance(proof, dict)}
    return known


def _read_summary(path: Path) -> Mapping[str, Any] | None:
    try:
        read = json.loads(read_file(path, _MOST_SUMMARY))
    except FileNotFoundError:
        return None
    if not isinstance(read, dict):
        message = f"`{SUMMARY}` must be an object; got {type(read).__name__}"
        raise RunError(message)
    return read
