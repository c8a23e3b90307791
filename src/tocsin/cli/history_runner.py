"""History runner: run plans over historical rows on Spark, collect the results, and trace single keys."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tocsin.cli.arguments import CommandError, require_spark, spark_errors_as_message
from tocsin.cli.live import ProgressLine, Status
from tocsin.cli.tables import unusable_lines
from tocsin.plan import Plan, Watch
from tocsin.rules.rulefile import RuleFile, Stream
from tocsin.run_directory import RunDir
from tocsin.run_directory.annotations import encode_annotated
from tocsin.runtime.alert_batch import AlertBatch
from tocsin.runtime.metrics import Metrics

if TYPE_CHECKING:
    from tocsin.report import Pick, Result
    from tocsin.rules import RangeRule, Rule
    from tocsin.spark.unreadable import UnreadableFile
    from tocsin.trace import Traced

# First and last event time to read, in microseconds; None is unbounded.
TimeRange = tuple[int | None, int | None]
# A Spark session. Only tocsin.spark imports PySpark.
Session = Any

# Alert events per file of the alert log, and invalid rows that are stored.
_EVENTS_PER_FILE, _MAX_DEAD_ROWS = 10_000, 10_000


@contextmanager
def temporary_run_dir(run_dir: str | None) -> Iterator[RunDir]:
    """Lock `run_dir`, or a temporary run directory if it is None."""
    if run_dir is not None:
        _reject_run(Path(run_dir))
        with RunDir(run_dir).lock() as run:
            _clear(run.folder)
            yield run
        return
    with TemporaryDirectory(prefix="tocsin-", ignore_cleanup_errors=True) as folder, RunDir(folder).lock() as run:
        yield run


def _reject_run(folder: Path) -> None:
    """Raise an error if `tocsin run` wrote the directory."""
    if (folder / "checkpoint").exists():
        message = f"run directory {folder} must be new or from a backtest; `tocsin run` wrote it"
        raise CommandError(message)


def _clear(folder: Path) -> None:
    """Remove the results of an earlier backtest."""
    if RunDir(folder).summary.exists():
        for part in ("alerts", "dead"):
            for path in (folder / part).glob("*.jsonl"):
                path.unlink()
        shutil.rmtree(folder / "against", ignore_errors=True)


@contextmanager
def session(
    run: RunDir,
    files: Sequence[RuleFile],
    streams: Iterable[Stream],
    master: str,
    conf: Mapping[str, str],
    progress: ProgressLine,
) -> Iterator[Session]:
    """Check the sources and start Spark. Errors inside become one-line messages."""
    require_spark()
    from tocsin.spark.quiet import bounded_session
    from tocsin.spark.source_probe import check_brokers
    from tocsin.spark.sources.registry import check_paths

    streams = list(streams)
    kafka = any(stream.source.kind == "kafka" for file in files for stream in file.streams.values())
    with spark_errors_as_message(files, conf):
        check_paths(streams, master, conf)
        check_brokers(streams)
        progress.start_phase("starting Spark")
        with bounded_session(run, master=master, conf=conf, kafka=kafka) as started:
            progress.start_phase("opening streams")
            yield started


@contextmanager
def shown_rows(started: Session, progress: ProgressLine, what: str) -> Iterator[None]:
    """Show the rows that Spark reads and then evaluates; `what` names the evaluated thing."""
    from tocsin.spark.quiet import measure_rows

    with measure_rows(started) as measured:

        def measure() -> Status:
            rows = measured()
            if rows.evaluated:
                return Status(f"evaluating {what}", rows.evaluated, max(rows.folded, rows.evaluated))
            return Status("reading streams", rows.read) if rows.read else Status("starting to read streams")

        progress.start_phase(measure)
        yield


def trace_key(
    file: RuleFile,
    watch: Watch,
    key: tuple[str, ...],
    time_range: TimeRange,
    master: str,
    conf: Mapping[str, str],
    progress: ProgressLine,
) -> Traced:
    """Read the rows of one key, and trace them."""
    streams = {name: file.streams[name] for name in watch.streams}
    with temporary_run_dir(None) as run, session(run, [file], streams.values(), master, conf, progress) as started:
        from tocsin.spark.history import Span, Wanted, open_streams, rows_of_keys
        from tocsin.trace import trace

        frames = open_streams(started, streams, Span(*time_range))
        with shown_rows(started, progress, "rules"):
            ((rows, dead),) = rows_of_keys(frames, watch, [Wanted(key, Span())])
        progress.start_phase("tracing rows")
        return trace(watch, key, rows, dead)


@dataclass(frozen=True)
class Version:
    """A rule file and its plan."""

    file: RuleFile
    plan: Plan

    @property
    def streams(self) -> dict[str, Stream]:
        """Streams that the plan reads."""
        from tocsin.spark.sources.registry import streams_of

        return streams_of(self.file, self.plan)


def run_versions(
    started: Session, versions: Sequence[Version], time_range: TimeRange, run: RunDir, progress: ProgressLine
) -> tuple[list[Result], float, list[str]]:
    """Run versions over the same rows, in one pass if they declare their common streams equally.

    Returns the results, the seconds, and a warning for each stream whose rows lack the declared arrival column.
    """
    begun = time.monotonic()
    if len(versions) == 1 or _reads_equally(*versions):
        parts = [_run(started, versions, time_range, run, progress, 0)]
    else:
        parts = [_run(started, [version], time_range, run, progress, number) for number, version in enumerate(versions)]
    results = [result for found, _ in parts for result in found]
    warnings = dict.fromkeys(text for _, texts in parts for text in texts)
    return results, time.monotonic() - begun, list(warnings)


def _reads_equally(first: Version, second: Version) -> bool:
    """Return whether streams of both files have the same declaration."""

    def declaration(file: RuleFile, name: str) -> tuple[object, ...]:
        stream = file.streams[name]
        return stream.source, stream.keys, stream.time, stream.time_unit, stream.arrival, set(stream.values)

    shared = first.file.streams.keys() & second.file.streams.keys()
    return all(declaration(first.file, name) == declaration(second.file, name) for name in shared)


def _run(
    started: Session,
    versions: Sequence[Version],
    time_range: TimeRange,
    run: RunDir,
    progress: ProgressLine,
    first: int,
) -> tuple[list[Result], list[str]]:
    from tocsin.report import Gatherer
    from tocsin.spark.blobs import ARRIVAL
    from tocsin.spark.history import Span, arriving, open_streams, rows_of_plans, without_arrival

    streams = {name: one for version in versions for name, one in version.streams.items()}
    frames = open_streams(started, streams, Span(*time_range))
    without = without_arrival(frames, streams)
    frames |= {name: frames[name].drop(ARRIVAL) for name in without}
    gatherers = [Gatherer(version.file.path, version.plan, arriving(frames)) for version in versions]
    writers = [_AlertLogWriter(run, version.file, first + number) for number, version in enumerate(versions)]
    plans = [version.plan for version in versions]
    with shown_rows(started, progress, "rules"), rows_of_plans(frames, plans) as rows:
        progress.start_phase("collecting alerts")
        count = 0
        for result in rows.told():
            progress.update(count, unit="results")
            count += len(result) if isinstance(result, AlertBatch) else 1
            if isinstance(result, AlertBatch):
                number = result.version or 0
                gatherers[number].take_batch(result)
                writers[number].append(result)
            else:
                mine = _metrics_of_versions(result, len(gatherers))
                for gatherer, metrics in zip(gatherers, mine, strict=True):
                    gatherer.count(metrics, result["bucket"])
        progress.start_phase("collecting invalid rows")
        dead = [rows.dead(number) for number in range(len(versions))]
        if first == 0:
            run.dead.write(0, rows.dead_lines(_MAX_DEAD_ROWS))
    for writer in writers:
        writer.close()
    with shown_rows(started, progress, "rules in event-time order"):
        _compute_in_order_results(frames, gatherers)
    progress.start_phase("summarizing results")
    results = [gatherer.result(mine) for gatherer, mine in zip(gatherers, dead, strict=True)]
    return results, [_no_arrival(streams[name]) for name in without]


def _no_arrival(stream: Stream) -> str:
    return f"no row of stream `{stream.name}` has its arrival column `{stream.arrival}`; event time is used instead"


def warnings_of(versions: Sequence[Version], results: Sequence[Result]) -> list[str]:
    """Return a warning for each stream with times that may be in another unit."""
    from tocsin.spark.far_off import far_off

    now_us = round(time.time() * 1e6)
    found = [
        far_off(stream, result.newest[name], now_us)
        for version, result in zip(versions, results, strict=True)
        for name, stream in version.streams.items()
        if name in result.newest
    ]
    return [text for text in dict.fromkeys(found) if text]


def unusable_streams(
    started: Session,
    versions: Sequence[Version],
    results: Sequence[Result],
    time_range: TimeRange,
    unreadable: Sequence[UnreadableFile],
) -> list[str]:
    """Return a line for each stream without a usable row. Rows outside `time_range` count as usable."""
    from tocsin.spark.history import has_usable_row

    found = {
        name: None
        for version, result in zip(versions, results, strict=True)
        for name in result.unusable(file.stream for file in unreadable)
        if time_range == (None, None) or not has_usable_row(started, version.streams[name])
    }
    reasons = [(row.stream, row.reason) for result in results for row in result.dead]
    return list(unusable_lines(found, [*reasons, *((file.stream, file.described_reason) for file in unreadable)]))


def source_time_range(started: Session, version: Version) -> tuple[int, int] | None:
    """Return the oldest and newest event time of the sources, or None without rows. This reads all rows once."""
    from tocsin.spark.history import Span, open_streams, reach

    return reach(open_streams(started, version.streams, Span()))


def _metrics_of_versions(result: Mapping[str, Any], versions: int) -> list[Metrics]:
    """Return the metrics of each version."""
    metrics = Metrics(**result["metrics"])
    return [metrics.without_prefix(f"{number}:") for number in range(versions)]


def _compute_in_order_results(frames: Mapping[str, Any], gatherers: Sequence[Any]) -> None:
    """Count the results of rules with a reorder wait over rows in event-time order. This reads the sources again."""
    from tocsin.spark.history import arriving, in_order, rows_of_plans

    known = arriving(frames)
    plans = [
        Plan(tuple(w for w in one.plan.watches if w.order is not None and not known.isdisjoint(w.streams)))
        for one in gatherers
    ]
    watches = [watch for plan in plans for watch in plan.watches]
    if not watches:
        return
    with rows_of_plans(in_order(frames, watches), plans) as rows:
        for result in rows.told():
            if not isinstance(result, AlertBatch):
                mine = _metrics_of_versions(result, len(gatherers))
                for gatherer, metrics in zip(gatherers, mine, strict=True):
                    gatherer.take_truth(metrics)


class _AlertLogWriter:
    """Writes the alert events of one version as an alert log."""

    def __init__(self, run: RunDir, file: RuleFile, number: int) -> None:
        from tocsin.delivery import AlertWriter

        self.log = run.alerts if number == 0 else AlertWriter(run.folder / "against" / "alerts")
        self.rules: list[Rule | RangeRule] = [*file.rules, *file.ranges]
        self.number, self.rows, self.pending = 0, 0, list[AlertBatch]()

    def append(self, batch: AlertBatch) -> None:
        """Append alert rows. Each file has the same number of rows, except the last file."""
        while self.rows + len(batch) >= _EVENTS_PER_FILE:
            room = _EVENTS_PER_FILE - self.rows
            self.pending.append(batch.take(slice(room)))
            batch = batch.take(slice(room, None))
            self.close()
        self.pending.append(batch)
        self.rows += len(batch)

    def close(self) -> None:
        """Write the pending rows to a file, with annotations."""
        self.log.write_encoded(self.number, encode_annotated(self.pending, self.rules))
        self.number, self.rows, self.pending = self.number + 1, 0, []


def trace_picks(
    started: Session, version: Version, picks: Sequence[Pick], time_range: TimeRange
) -> list[tuple[Pick, Traced | str]]:
    """Trace some alerts from the rows around them. An alert with too many rows gets a message instead of a trace."""
    from tocsin.spark.history import Span, open_streams

    frames = open_streams(started, version.streams, Span(*time_range))
    found: dict[int, Traced | str] = {}
    for watch in version.plan.watches:
        mine = [number for number, pick in enumerate(picks) if pick.watch is watch]
        found |= zip(mine, _traced(frames, watch, [picks[number] for number in mine]), strict=True)
    return [(pick, found[number]) for number, pick in enumerate(picks)]


def _traced(frames: Mapping[str, Any], watch: Watch, picks: Sequence[Pick]) -> list[Traced | str]:
    """Trace alerts of a keyed pipeline in one pass over its streams, or in halves if the rows are too many."""
    from tocsin.spark.history import Span, TooManyRowsError, Wanted, rows_of_keys
    from tocsin.trace import trace

    if not picks:
        return []
    try:
        found = rows_of_keys(frames, watch, [Wanted(p.key, Span(p.read_from_us, p.to_us)) for p in picks])
    except TooManyRowsError as error:
        if len(picks) == 1:
            return [str(error)]
        half = len(picks) // 2
        return [*_traced(frames, watch, picks[:half]), *_traced(frames, watch, picks[half:])]
    return [trace(watch, pick.key, rows, dead) for pick, (rows, dead) in zip(picks, found, strict=True)]


def write_manifests(run: RunDir, versions: Sequence[Version]) -> None:
    """Write the manifest of each version into the run directory."""
    from tocsin.delivery.alert_json import format_time
    from tocsin.run_directory.manifest import build_manifest
    from tocsin.spark.history import buckets_for

    buckets = buckets_for(version.plan for version in versions)
    for version, folder in zip(versions, (run.folder, run.folder / "against"), strict=False):
        folder.mkdir(exist_ok=True)
        manifest = build_manifest(version.file, version.plan, (), buckets)
        manifest.after(None, format_time(time.time())).write(folder)


def write_summary(run: RunDir, summary: Mapping[str, Any]) -> None:
    """Write the summary into the run directory."""
    from tocsin.files import replace_file

    replace_file(run.summary, json.dumps(summary, indent=2).encode() + b"\n")
