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
from tocsin.runtime.metrics import LARGEST, Merge, Metrics

PROGRESS = "progress.jsonl"
# Results of a backtest.
SUMMARY = "summary.json"
# Bytes to read from the end of the file. More are read if they have fewer than two lines.
_TAIL = 1 << 22
# Seconds. If the first rows of a stream are older than this, the stream holds history and has no lag.
HISTORY_S = 30 * 86_400.0

# Names of the memory results of an alert, in the order of pages and summaries.
MEMORY_RESULTS = ("predicted", "reached", "error_predicted", "error_reached")
# Format of a line. Lines of another format are skipped.
FORMAT = 2

Counts = Mapping[str, int]
# Quality of the results of an alert by name; an unknown value is None.
Quality = Mapping[str, float | None]


class Tally(Metrics):
    """Metrics of one micro-batch, or totals of a run."""

    __slots__ = ()

    @property
    def rows(self) -> Counts:
        """Received rows by stream."""
        rows: Counts = self.section("rows")
        return rows

    @property
    def counts(self) -> Mapping[str, Counts]:
        """Row outcomes by input view. A stream that several rules read with different columns has several views."""
        counts: Mapping[str, Counts] = self.section("counts")
        return counts

    @property
    def alerts(self) -> Mapping[str, Counts]:
        """Alert events by alert and state."""
        alerts: Mapping[str, Counts] = self.section("alerts")
        return alerts

    @property
    def dead(self) -> Counts:
        """Invalid rows by stream, as in `RUN/dead`."""
        dead: Counts = self.section("dead")
        return dead

    @property
    def state_bytes(self) -> int:
        """Change of the state size in bytes; in a total, the state size."""
        return int(self.section("state_bytes"))

    @property
    def batches(self) -> int:
        """Micro-batches with rows, alert events or a change of the state size."""
        return int(self.section("batches"))

    def plus(self, later: Metrics) -> Tally:
        """Return the totals after later metrics."""
        whole = self.select(Merge)
        whole.advance(later)
        return whole

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
    gained
        Sums of the micro-batch.
    total
        All metrics of the run so far.
    milliseconds
        Duration of each phase: `detect` is the query, `archive` and `write` are the writing of files.
    historic
        Streams that contain history (see `historic_streams`).
    """

    batch: int
    time: str
    gained: Tally
    total: Tally
    milliseconds: Counts = field(default_factory=dict)
    historic: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Completion time in seconds since 1970."""
        return parse_seconds(self.time)

    @property
    def newest_us(self) -> Counts:
        """Newest event time so far by stream, in microseconds."""
        newest: Counts = self.total.section("newest_us")
        return newest

    @property
    def waits(self) -> Mapping[str, Quality]:
        """Longest reorder wait of all buckets (`wait_us`) and lowest estimated in-order recall (`recall`) by alert."""
        waits: Mapping[str, Quality] = self.total.section("waits")
        return waits

    @property
    def memory(self) -> Mapping[str, Quality]:
        """Results under the memory budget by alert; the worst of all buckets."""
        memory: Mapping[str, Quality] = self.total.section("memory")
        return memory

    @property
    def cpu(self) -> Mapping[str, Quality]:
        """Lowest recent share of processed rows (`rows`) and lowest CPU recall (`results`) of all buckets by alert."""
        cpu: Mapping[str, Quality] = self.total.section("cpu")
        return cpu

    @property
    def lag_s(self) -> dict[str, float]:
        """Age of the newest row of each stream in seconds; negative if its event time is in the future.

        Historic streams have no lag.
        """
        live = {name: time_us for name, time_us in self.newest_us.items() if name not in self.historic}
        return {name: round(self.seconds - time_us / 1e6, 3) for name, time_us in live.items()}

    def line(self) -> bytes:
        """Return the result as a line of JSON without its line feed."""
        parts: dict[str, Any] = {
            "format": FORMAT,
            "batch": self.batch,
            "time": self.time,
            "gained": self.gained.to_json(),
            "total": self.total.to_json(),
            "lag_seconds": self.lag_s,
            "milliseconds": self.milliseconds,
        }
        parts |= {"historic": self.historic} if self.historic else {}
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


def read_memory_results(run_dir: Path | str) -> dict[str, tuple[int | None, Quality]] | None:
    """Return the memory share and the memory results by alert, of the last micro-batch or of a backtest.

    Return None without both. A backtest has no memory shares.
    """
    last = last_progress(run_dir)
    if last is not None:
        shares = last.total.section("shares")
        return {alert: (shares.get(alert), found) for alert, found in last.memory.items()}
    try:
        stored = json.loads((Path(run_dir) / SUMMARY).read_text(encoding="utf-8"))
        return {one["alert"]: (None, {name: one[name] for name in MEMORY_RESULTS}) for one in stored["memory"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_cpu_results(run_dir: Path | str) -> Mapping[str, Quality]:
    """Return the CPU results by alert, of the last micro-batch. A backtest does not record them."""
    last = last_progress(run_dir)
    return {} if last is None else last.cpu


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
            if stored["format"] != FORMAT or not isinstance(stored["batch"], int):
                continue
            if not isinstance(stored["time"], str):
                continue
            gained, total = Tally(**stored["gained"]), Tally(**stored["total"])
            historic = tuple(map(str, stored.get("historic", ())))
            milliseconds = {str(name): _checked(number) for name, number in stored["milliseconds"].items()}
            yield Progress(stored["batch"], stored["time"], gained, total, milliseconds, historic)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue


def _checked(milliseconds: Any) -> int:
    """Return a stored duration, or raise TypeError."""
    if not isinstance(milliseconds, int) or not 0 <= milliseconds <= LARGEST:
        message = f"`milliseconds` must have integers from 0 to 2^62; got {milliseconds!r:.99}"
        raise TypeError(message)
    return milliseconds


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


def add_counts_by_name(one: Mapping[str, Counts], other: Mapping[str, Counts]) -> dict[str, dict[str, int]]:
    """Return the sums of two mappings from a name to counts."""
    return {name: _add_counts(one.get(name, {}), other.get(name, {})) for name in {**one, **other}}


def _add_counts(one: Counts, other: Counts) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
