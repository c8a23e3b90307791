"""Progress: one line per micro-batch, with what it gained and what there is in all.

Guarantee: a micro-batch that is run again repeats its line, with the same totals, since they are added to those of the
micro-batch before it; a reader takes the last line per micro-batch and passes over a torn one.
Cost: one line forced to disk per micro-batch. Starting reads the end of the file, not all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin.deliver.encode import seconds_of
from tocsin.files import append_line
from tocsin.logic import Found, Shares

PROGRESS = "progress.jsonl"
# Enough for several lines as a rule; where it is not, more is read.
_TAIL = 1 << 22
# Seconds. If the first rows of a stream are older than this, the stream holds history and has no lag.
HISTORY_S = 30 * 86_400.0

Counts = Mapping[str, int]
Waits = Mapping[str, tuple[int, float | None]]


@dataclass(frozen=True)
class Tally:
    """Numbers that add up.

    Parameters
    ----------
    rows
        Rows received per stream.
    counts
        What became of them, per store: a stream that is remembered in several ways has several, as `air(temp)`.
    alerts
        Changes of state per alert and state.
    dead
        Rows per stream that could not be used, as `RUN/dead` has them.
    state_bytes
        Bytes of state.
    batches
        Micro-batches in which something happened.
    """

    rows: Counts = field(default_factory=dict)
    counts: Mapping[str, Counts] = field(default_factory=dict)
    alerts: Mapping[str, Counts] = field(default_factory=dict)
    dead: Counts = field(default_factory=dict)
    state_bytes: int = 0
    batches: int = 0

    def plus(self, other: Tally) -> Tally:
        """Add up."""
        return Tally(
            _sum(self.rows, other.rows),
            sums(self.counts, other.counts),
            sums(self.alerts, other.alerts),
            _sum(self.dead, other.dead),
            self.state_bytes + other.state_bytes,
            self.batches + other.batches,
        )

    def firing(self) -> dict[str, int]:
        """How many lives of each alert have begun to fire and not ended."""
        return {name: states.get("firing", 0) - states.get("resolved", 0) for name, states in self.alerts.items()}

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happened: no rows, no alerts, no change of state."""
        return not (self.alerts or self.state_bytes or any(self.rows.values()) or any(self.dead.values()))


@dataclass(frozen=True)
class Progress:
    """What a micro-batch did.

    `time` is when it was done, `newest_us` the newest event time per stream so far, `milliseconds` how long each phase
    took: `detect` is the query itself, `archive` and `write` are files. `waits` has, per alert whose rows wait, the
    longest wait of any bucket in microseconds and the least recall that is estimated, or None. `memory` has, per alert
    whose memory is limited, what it finds, of all buckets the worst; `shares` how many bytes or rows all of them may
    keep. `cpu` has, per alert whose processor time is limited, the least share of any bucket, of late: of the rows that
    were worked on, and of the results that were found, or None. `delays` has, per stream whose rows say when they
    arrived, how many rows so far came how late, by classes (`delays.py`). `historic` lists the streams that hold
    history (`historic_streams`). `unreadable` counts per stream the source files that were skipped so far.
    """

    batch: int
    time: str
    gained: Tally
    total: Tally
    newest_us: Counts = field(default_factory=dict)
    milliseconds: Counts = field(default_factory=dict)
    waits: Waits = field(default_factory=dict)
    memory: Mapping[str, Found] = field(default_factory=dict)
    delays: Mapping[str, Counts] = field(default_factory=dict)
    shares: Counts = field(default_factory=dict)
    cpu: Mapping[str, Shares] = field(default_factory=dict)
    historic: tuple[str, ...] = ()
    unreadable: Counts = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """When it was done, in seconds since 1970."""
        return seconds_of(self.time)

    @property
    def lag_s(self) -> dict[str, float]:
        """Distance of the newest row of each stream from the clock; below 0 if a clock is ahead.

        A historic stream has no lag.
        """
        live = {name: time_us for name, time_us in self.newest_us.items() if name not in self.historic}
        return {name: round(self.seconds - time_us / 1e6, 3) for name, time_us in live.items()}

    def line(self) -> bytes:
        """Write it as a line, without its end."""
        parts = {
            "batch": self.batch,
            "time": self.time,
            "gained": _short(self.gained),
            "total": _short(self.total),
            "newest_us": self.newest_us,
            "lag_seconds": self.lag_s,
            "milliseconds": self.milliseconds,
            "waits": self.waits,
            "memory": self.memory,
        }
        # Outside the tallies, whose every name an earlier reader must know.
        parts |= {"delays": self.delays} if self.delays else {}
        parts |= {"shares": self.shares} if self.shares else {}
        parts |= {"cpu": self.cpu} if self.cpu else {}
        parts |= {"historic": self.historic} if self.historic else {}
        parts |= {"unreadable": self.unreadable} if self.unreadable else {}
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class ProgressLog:
    """The record that a run writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = _tail(path)

    def before(self, batch: int) -> Progress | None:
        """What was known when a micro-batch began: the last line of those before it."""
        known = [number for number in self._known if number < batch]
        return self._known[max(known)] if known else None

    def add(self, progress: Progress) -> None:
        """Put a line on disk."""
        append_line(self.path, progress.line())
        self.note(progress)

    def note(self, progress: Progress) -> None:
        """Remember a micro-batch that is not worth a line."""
        before = self.before(progress.batch)
        self._known = {one.batch: one for one in (before, progress) if one is not None}


def read_progress(run_dir: Path | str) -> list[Progress]:
    """Read all micro-batches of a run, in order, each as it was last."""
    try:
        with (Path(run_dir) / PROGRESS).open("rb") as file:
            found = {one.batch: one for one in parse_progress(file)}
    except FileNotFoundError:
        return []
    return [found[batch] for batch in sorted(found)]


def last_progress(run_dir: Path | str) -> Progress | None:
    """Read the newest micro-batch of a run, without reading the whole file."""
    found = _tail(Path(run_dir) / PROGRESS)
    return found[max(found)] if found else None


def _tail(path: Path) -> dict[int, Progress]:
    """The micro-batches at the end of a file: of at least two lines, however long they are, if it has so many."""
    try:
        with path.open("rb") as file:
            size, length = file.seek(0, 2), _TAIL
            while True:
                file.seek(max(0, size - length))
                found = {one.batch: one for one in parse_progress(file.read(length).split(b"\n"))}
                if len(found) > 1 or length >= size:
                    return found
                length *= 4
    except FileNotFoundError:
        return {}


def parse_progress(lines: Iterable[bytes]) -> Iterator[Progress]:
    """Give the lines that can be read; a repeated micro-batch comes last as it was last."""
    for line in lines:
        try:
            stored = json.loads(line)
            if not isinstance(stored["batch"], int) or not isinstance(stored["time"], str):
                continue
            gained, total = Tally(**stored["gained"]), Tally(**stored["total"])
            waits = {alert: (wait_us, recall) for alert, (wait_us, recall) in stored.get("waits", {}).items()}
            memory = {alert: Found(*found) for alert, found in stored.get("memory", {}).items()}
            cpu = {alert: (rows, results) for alert, (rows, results) in stored.get("cpu", {}).items()}
            delays, shares = stored.get("delays", {}), stored.get("shares", {})
            historic, files = tuple(map(str, stored.get("historic", ()))), stored.get("unreadable", {})
            head = stored["batch"], stored["time"], gained, total, stored["newest_us"], stored["milliseconds"]
            yield Progress(*head, waits, memory, delays, shares, cpu, historic, files)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue


def historic_streams(before: Progress, newest_us: Counts, now_s: float) -> tuple[str, ...]:
    """Return the streams whose rows were older than 30 days in every micro-batch so far."""
    live = before.newest_us.keys() - set(before.historic)
    return tuple(name for name, us in newest_us.items() if name not in live and now_s - us / 1e6 > HISTORY_S)


def unusable_streams(
    counted: Iterable[tuple[str, str]], counts: Mapping[str, Counts], bad: Iterable[str]
) -> tuple[str, ...]:
    """Return the streams of `bad` without a usable row.

    `counted` has pairs of the name under which rows are counted and the name of their stream. `bad` has the streams
    with dead rows or unreadable files.
    """
    used = set()
    for name, stream in counted:
        parts = counts.get(name, {})
        if parts.get("received", 0) > parts.get("quarantined", 0):
            used.add(stream)
    return tuple(stream for stream in dict.fromkeys(bad) if stream not in used)


def _short(tally: Tally) -> dict[str, Any]:
    """A tally without what is nought."""
    return {name: value for name, value in vars(tally).items() if value}


def sums(one: Mapping[str, Counts], other: Mapping[str, Counts]) -> dict[str, dict[str, int]]:
    """Add up counts by name."""
    return {name: _sum(one.get(name, {}), other.get(name, {})) for name in {**one, **other}}


def _sum(one: Counts, other: Counts) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
