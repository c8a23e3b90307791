"""Progress log: one line per micro-batch, with its counts and the totals of the run.

Guarantee: a repeated micro-batch appends a line with the same totals, because totals are the totals of the previous
micro-batch plus its own counts. Readers use the last line of each micro-batch and skip incomplete lines.
Cost: one line, forced to disk, per micro-batch. A start reads only the end of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin.delivery.alert_json import parse_seconds
from tocsin.files import append_line
from tocsin.runtime.contract import Found, Shares

PROGRESS = "progress.jsonl"
# Results of a backtest.
SUMMARY = "summary.json"
# Bytes to read from the end of the file. More are read if they have fewer than two lines.
_TAIL = 1 << 22
# Seconds. If the first rows of a stream are older than this, the stream holds history and has no lag.
HISTORY_S = 30 * 86_400.0

Counts = Mapping[str, int]
Waits = Mapping[str, tuple[int, float | None]]
# Memory share of a join (None in a backtest), and its recall under the memory budget.
MemoryResult = tuple[int | None, Found]


@dataclass(frozen=True)
class Tally:
    """Counts of one micro-batch, or their sum over many.

    Attributes
    ----------
    rows
        Received rows by stream.
    counts
        Row outcomes by name. A stream that several rules read with different columns has several names, such as
        `air(temp)`.
    alerts
        Alert events by alert and state.
    dead
        Invalid rows by stream, as in `RUN/dead`.
    state_bytes
        Change of the state size in bytes; in a total, the state size.
    batches
        Micro-batches with rows, alert events or a change of the state size.
    """

    rows: Counts = field(default_factory=dict)
    counts: Mapping[str, Counts] = field(default_factory=dict)
    alerts: Mapping[str, Counts] = field(default_factory=dict)
    dead: Counts = field(default_factory=dict)
    state_bytes: int = 0
    batches: int = 0

    def plus(self, other: Tally) -> Tally:
        """Return the sum of two tallies."""
        return Tally(
            _add_counts(self.rows, other.rows),
            add_counts_by_name(self.counts, other.counts),
            add_counts_by_name(self.alerts, other.alerts),
            _add_counts(self.dead, other.dead),
            self.state_bytes + other.state_bytes,
            self.batches + other.batches,
        )

    def firing(self) -> dict[str, int]:
        """Return the number of firing alert instances by alert."""
        return {name: states.get("firing", 0) - states.get("resolved", 0) for name, states in self.alerts.items()}

    @property
    def is_quiet(self) -> bool:
        """Whether there are no rows, no alert events and no change of the state size."""
        return not (self.alerts or self.state_bytes or any(self.rows.values()) or any(self.dead.values()))


@dataclass(frozen=True)
class Progress:
    """Result of a micro-batch.

    Attributes
    ----------
    batch
        Number of the micro-batch in the run directory.
    time
        When the micro-batch was complete, as text in the format of the alert log.
    gained, total
        Counts of the micro-batch, and of all micro-batches so far.
    newest_us
        Newest event time so far by stream.
    milliseconds
        Duration of each phase: `detect` is the query, `archive` and `write` are the writing of files.
    waits
        For each alert with a reorder wait: the longest wait of all buckets in microseconds, and the lowest estimated
        in-order recall, or None.
    memory
        For each alert with a memory budget: its recall, the worst of all buckets.
    delays
        For each stream with an arrival time: the number of rows so far by class of delay (see `delay_histogram`).
    shares
        For each alert with a memory budget: the memory share of all buckets, in bytes or in rows.
    cpu
        For each alert with a CPU budget: the lowest recent share of processed rows of all buckets, and the lowest
        recent CPU recall, or None.
    historic
        Streams that contain history (see `historic_streams`).
    unreadable
        Number of skipped source files so far by stream.
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
        """Completion time in seconds since 1970."""
        return parse_seconds(self.time)

    @property
    def lag_s(self) -> dict[str, float]:
        """Age of the newest row of each stream in seconds; negative if its event time is in the future.

        Historic streams have no lag.
        """
        live = {name: time_us for name, time_us in self.newest_us.items() if name not in self.historic}
        return {name: round(self.seconds - time_us / 1e6, 3) for name, time_us in live.items()}

    def line(self) -> bytes:
        """Return the result as a line of JSON without its line feed."""
        parts = {
            "batch": self.batch,
            "time": self.time,
            "gained": _without_zeros(self.gained),
            "total": _without_zeros(self.total),
            "newest_us": self.newest_us,
            "lag_seconds": self.lag_s,
            "milliseconds": self.milliseconds,
            "waits": self.waits,
            "memory": self.memory,
        }
        # Not in the tallies, because a reader skips lines whose tallies have a field that it does not know.
        parts |= {"delays": self.delays} if self.delays else {}
        parts |= {"shares": self.shares} if self.shares else {}
        parts |= {"cpu": self.cpu} if self.cpu else {}
        parts |= {"historic": self.historic} if self.historic else {}
        parts |= {"unreadable": self.unreadable} if self.unreadable else {}
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class ProgressLog:
    """Progress log of a run, for its writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._recent = _read_tail(path)

    def before(self, batch: int) -> Progress | None:
        """Return the newest result before a micro-batch, or None."""
        earlier = [number for number in self._recent if number < batch]
        return self._recent[max(earlier)] if earlier else None

    def add(self, progress: Progress) -> None:
        """Append a line, which is on disk when this returns."""
        append_line(self.path, progress.line())
        self.record(progress)

    def record(self, progress: Progress) -> None:
        """Record a quiet micro-batch in memory, without a line."""
        before = self.before(progress.batch)
        self._recent = {one.batch: one for one in (before, progress) if one is not None}


def read_progress(run_dir: Path | str) -> list[Progress]:
    """Return the last line of each micro-batch of a run, in order."""
    try:
        with (Path(run_dir) / PROGRESS).open("rb") as file:
            found = {one.batch: one for one in parse_progress(file)}
    except FileNotFoundError:
        return []
    return [found[batch] for batch in sorted(found)]


def last_progress(run_dir: Path | str) -> Progress | None:
    """Return the newest micro-batch of a run. Only the end of the file is read."""
    found = _read_tail(Path(run_dir) / PROGRESS)
    return found[max(found)] if found else None


def read_memory_results(run_dir: Path | str) -> dict[str, MemoryResult] | None:
    """Return the memory results by alert, of the last micro-batch or of a backtest; None without both."""
    last = last_progress(run_dir)
    if last is not None:
        return {alert: (last.shares.get(alert), found) for alert, found in last.memory.items()}
    try:
        stored = json.loads((Path(run_dir) / SUMMARY).read_text(encoding="utf-8"))
        return {one["alert"]: (None, Found(*(one[name] for name in Found._fields))) for one in stored["memory"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_cpu_results(run_dir: Path | str) -> dict[str, Shares]:
    """Return the CPU results by alert, of the last micro-batch. A backtest does not record them."""
    last = last_progress(run_dir)
    return {} if last is None else dict(last.cpu)


def _read_tail(path: Path) -> dict[int, Progress]:
    """Return the micro-batches at the end of a file: at least two, unless the file has fewer."""
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
    """Yield the readable lines in order. A repeated micro-batch has several lines; the last one counts."""
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
    """Return the streams of `bad` without a valid row.

    `counted` has pairs of a name in `counts` and the name of its stream. `bad` has the streams with invalid rows or
    unreadable files.
    """
    used = set()
    for name, stream in counted:
        parts = counts.get(name, {})
        if parts.get("received", 0) > parts.get("quarantined", 0):
            used.add(stream)
    return tuple(stream for stream in dict.fromkeys(bad) if stream not in used)


def _without_zeros(tally: Tally) -> dict[str, Any]:
    """Return the fields of a tally that are not 0 or empty."""
    return {name: value for name, value in vars(tally).items() if value}


def add_counts_by_name(one: Mapping[str, Counts], other: Mapping[str, Counts]) -> dict[str, dict[str, int]]:
    """Return the sums of two mappings from a name to counts."""
    return {name: _add_counts(one.get(name, {}), other.get(name, {})) for name in {**one, **other}}


def _add_counts(one: Counts, other: Counts) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
