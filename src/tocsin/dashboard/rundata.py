"""One run directory, read while it grows: what runs, how it goes, its alerts. Nothing in it can break a page.

Guarantee: what is half written, damaged or missing is told in `faults`, and everything else is shown. Nothing is
written into the directory, and no lock is taken.
Cost: `look` reads what is new; the record of micro-batches is read from at most `_MOST_BYTES` before its end.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.dashboard.alertindex import AlertIndex, mark_of
from tocsin.dashboard.series import MOST, MOST_OF_ALERT, Series
from tocsin.dashboard.tail import Tail
from tocsin.deliver.ledger import read_status
from tocsin.deliver.run import ALERTS, DELIVERY
from tocsin.errors import RunError
from tocsin.report import StoreSummary
from tocsin.rundir import Manifest, Progress, read_manifest
from tocsin.rundir.folder import LOCK, SUMMARY
from tocsin.rundir.manifest import MANIFEST
from tocsin.rundir.progress import PROGRESS, parse_progress

_MOST_BYTES = 1 << 26
_MOST_SUMMARY = 1 << 28
_MOST_US = 1 << 62
_OF_ALERT = ("wait ", "recall ", "predicted ", "reached ")
# A run with nothing to do says so once a minute.
_FRESH_S = 150.0
# Micro-batches between which others may look at what is known.
_STEP = 250

Mark = tuple[int, int, int] | None


class RunData:
    """What is known of one run directory; `version` grows when something new is known."""

    def __init__(self, name: str, folder: Path, alerts: Path | None = None, *, whose: str = "") -> None:
        self.name, self.folder, self.whose = name, folder, whose
        self.version = 0
        self.is_read = False
        self.manifest: Manifest | None = None
        self.summary: Mapping[str, Any] | None = None
        self.last: Progress | None = None
        self.history: dict[str, Series] = {}
        self.index = AlertIndex(alerts or folder / ALERTS)
        self.torn = 0
        self._faults: dict[str, str] = {}
        self._marks: dict[str, Mark] = {}
        self._progress = Tail(folder / PROGRESS, _MOST_BYTES)
        self._last_s: float | None = None

    @property
    def is_backtest(self) -> bool:
        """Tell whether it is of a backtest: history, which does not go on."""
        return self.summary is not None

    @property
    def faults(self) -> list[str]:
        """What could not be read, each in a sentence."""
        said = list(self._faults.values())
        if self.index.unreadable:
            number = f"{self.index.unreadable:,} lines of the alert log"
            number = "1 line of the alert log" if self.index.unreadable == 1 else number
            said.append(f"{number} cannot be read; the last of them: {self.index.fault}")
        if self.torn:
            said.append(f"{self.torn:,} lines of {PROGRESS} cannot be read and are passed over")
        return said

    @property
    def holder(self) -> str:
        """The process that runs it now, as text; nothing if it has ended.

        A process of another machine is not seen from here: there a micro-batch of the last minutes tells that it runs.
        """
        try:
            holder = (self.folder / LOCK).read_text("ascii", "replace").strip()[:20]
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
        steps = self.index.read()
        while not stop():
            with lock:
                step = next(steps, None)
                if step is None:
                    break
                self.version += 1
        with lock:
            if not self.is_read:
                self.is_read, self.version = True, self.version + 1

    def _look_at(self, name: str, read: Callable[[Path], Any], lock: AbstractContextManager[Any]) -> None:
        """Read a file again where it changed; what is wrong with it is kept until it is right."""
        path = self.folder / name
        mark = mark_of(path)
        if mark == self._marks.get(name, ()):
            return
        self._marks[name] = mark
        found, fault = None, ""
        if mark is None and path.exists():
            fault = f"{name} must be a file; it is none"
        else:
            try:
                found = read(path)
            except (RunError, OSError, ValueError, TypeError, RecursionError, AttributeError) as error:
                fault = str(error) or f"{name} cannot be read"
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
            found, torn = _parsed(news.lines, is_first=news.anew and self._progress.skipped > 0)
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

    def _take_progress(self, noted: _Noted) -> None:
        """Note a micro-batch; one that was run again repeats its line, and adds nothing."""
        one, seconds, rows, numbers = noted
        if self.last is None or one.batch > self.last.batch:
            passed = None if self._last_s is None else seconds - self._last_s
            if passed and passed > 0:
                numbers["rows/s"] = rows / passed
            for name, number in numbers.items():
                # There may be thousands of alerts, each with some numbers: a picture of one shows no more than this.
                most = MOST_OF_ALERT if name.startswith(_OF_ALERT) else MOST
                self.history.setdefault(name, Series(most)).add(seconds, number)
            self._last_s = seconds
        if self.last is None or one.batch >= self.last.batch:
            self.last = one


def _read_manifest(path: Path) -> Manifest | None:
    return read_manifest(path.parent)


def _read_summary(path: Path) -> Mapping[str, Any] | None:
    if not path.exists():
        return None
    if path.stat().st_size > _MOST_SUMMARY:
        message = f"{SUMMARY} must have at most {_MOST_SUMMARY:,} bytes; it has {path.stat().st_size:,}"
        raise RunError(message)
    read = json.loads(path.read_bytes())
    if not isinstance(read, dict):
        message = f"{SUMMARY} must be an object; got {type(read).__name__}"
        raise RunError(message)
    return read


class _Noted(NamedTuple):
    """A micro-batch, when it was done, how many rows it had, and what is drawn of it."""

    progress: Progress
    seconds: float
    rows: float
    numbers: dict[str, float]


def _parsed(lines: Iterable[bytes], *, is_first: bool) -> tuple[list[_Noted], int]:
    """The micro-batches of some lines, and how many lines are none; the first may be a piece, and is not counted."""
    noted, torn = list[_Noted](), 0
    for line in lines:
        found = list(parse_progress([line])) if line.strip() else []
        torn += bool(line.strip()) and not found and not is_first
        is_first = False
        for one in found:
            try:
                _check(one)
                noted.append(_Noted(one, one.seconds, float(sum(one.gained.rows.values())), numbers_of(one)))
            except (TypeError, ValueError, AttributeError, KeyError, OverflowError):
                torn += 1
    return noted, torn


def _check(one: Progress) -> None:
    """Refuse a line with something else where numbers must stand: pages reckon with them."""
    for tally in (one.gained, one.total):
        flat = [tally.rows, tally.dead, *tally.counts.values(), *tally.alerts.values()]
        numbers = [number for part in flat for number in part.values()] + [tally.state_bytes, tally.batches]
        if not all(isinstance(number, int) for number in numbers):
            message = "counts must be whole numbers"
            raise TypeError(message)
    times = [*one.newest_us.values(), *one.milliseconds.values(), *(wait_us for wait_us, _ in one.waits.values())]
    times += [number for part in one.delays.values() for number in part.values()]
    recalls = [recall for _, recall in one.waits.values() if recall is not None]
    recalls += [recall for pair in one.memory.values() for recall in pair if recall is not None]
    if not all(isinstance(time, int) and abs(time) <= _MOST_US for time in times):
        message = "times must be whole numbers"
        raise TypeError(message)
    if not all(isinstance(recall, int | float) for recall in recalls):
        message = "recalls must be numbers"
        raise TypeError(message)


def numbers_of(one: Progress) -> dict[str, float]:
    """What is drawn over time of a micro-batch, by name."""
    stores = stores_of(one.total.counts)
    found: dict[str, float] = {
        "state bytes": one.total.state_bytes,
        "kept": sum(store.now for store in stores),
        "omitted": sum(store.counts.get("omitted", 0) for store in stores),
        "received": sum(store.received for store in stores),
        "firing": sum(one.total.firing().values()),
        "seconds": sum(one.milliseconds.values()) / 1000,
    }
    found |= {f"lag {name}": lag for name, lag in one.lag_s.items()}
    found |= {f"rows {name}": number for name, number in one.gained.rows.items()}
    # By alert; `_OF_ALERT` has the first words of these.
    found |= {f"wait {alert}": wait_us / 1e6 for alert, (wait_us, _) in one.waits.items()}
    found |= {f"recall {alert}": recall for alert, (_, recall) in one.waits.items() if recall is not None}
    for alert, pair in one.memory.items():
        for name, recall in zip(("predicted", "reached"), pair, strict=True):
            found |= {f"{name} {alert}": recall} if recall is not None else {}
    return found


class StoreNow(StoreSummary):
    """What became of the rows of a store in a run that may go on: `now` is what it remembers at this moment."""

    @property
    def now(self) -> int:
        """Rows that are remembered, or wait."""
        return self.counts.get("retained", 0) + self.counts.get("held", 0)

    @property
    def differs_by(self) -> int:
        """By how much what became of the rows differs from what was received: nought, or something is wrong."""
        return self.received - sum(self.parts.values())


def stores_of(counts: Mapping[str, Mapping[str, int]]) -> list[StoreNow]:
    """The stores of a run by their counts, those without a name left out."""
    return [StoreNow(name, parts) for name, parts in counts.items() if name]
