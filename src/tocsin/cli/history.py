"""Bring Spark and what is engine-free together: run plans over history, gather, trace single keys, write it down."""

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

from tocsin.cli.given import GivenUpError, in_a_sentence, needs_spark
from tocsin.cli.remarks import unusable_lines
from tocsin.plan import Plan, Watch
from tocsin.rules.rulefile import RuleFile, Stream
from tocsin.rundir import RunDir
from tocsin.rundir.annotate import annotated

if TYPE_CHECKING:
    from tocsin.report import Pick, Result
    from tocsin.rules import Ranges, Rule
    from tocsin.spark.quiet import Told
    from tocsin.spark.unreadable import UnreadableFile
    from tocsin.trace import Traced

Ends = tuple[int | None, int | None]
# A session of Spark, which is imported by tocsin.spark alone.
Session = Any

# Changes of state in one file of the alert log, and dead rows that are written down.
_PER_FILE, _MOST_DEAD = 10_000, 10_000


@contextmanager
def scratch(run_dir: str | None) -> Iterator[RunDir]:
    """Hold a run directory, the one that was asked for or one that is gone afterwards."""
    if run_dir is not None:
        _refuse_run(Path(run_dir))
        with RunDir(run_dir).held() as run:
            _clear(run.folder)
            yield run
        return
    with TemporaryDirectory(prefix="tocsin-", ignore_cleanup_errors=True) as folder, RunDir(folder).held() as run:
        yield run


def _refuse_run(folder: Path) -> None:
    if (folder / "checkpoint").exists():
        message = f"run directory {folder} must be new or that of a backtest; it is that of `tocsin run`"
        raise GivenUpError(message)


def _clear(folder: Path) -> None:
    """Take away what an earlier backtest left."""
    if RunDir(folder).summary.exists():
        for part in ("alerts", "dead"):
            for path in (folder / part).glob("*.jsonl"):
                path.unlink()
        shutil.rmtree(folder / "against", ignore_errors=True)


@contextmanager
def session(
    run: RunDir, files: Sequence[RuleFile], streams: Iterable[Stream], master: str, conf: Mapping[str, str]
) -> Iterator[Session]:
    """Start Spark as the files need it, once the streams are there; what goes wrong inside is said in a sentence."""
    needs_spark()
    from tocsin.spark.quiet import bounded_session
    from tocsin.spark.source_probe import check_brokers
    from tocsin.spark.sources import check_paths

    streams = list(streams)
    kafka = any(stream.source.kind == "kafka" for file in files for stream in file.streams.values())
    with in_a_sentence(files, conf):
        check_paths(streams, master, conf)
        check_brokers(streams)
        with bounded_session(run, master=master, conf=conf, kafka=kafka) as started:
            yield started


def trace_key(
    file: RuleFile, watch: Watch, key: tuple[str, ...], ends: Ends, master: str, conf: Mapping[str, str]
) -> Traced:
    """Read the rows of one key, and trace them."""
    streams = {name: file.streams[name] for name in watch.streams}
    with scratch(None) as run, session(run, [file], streams.values(), master, conf) as started:
        from tocsin.spark.history import Span, Wanted, open_streams, rows_of_keys
        from tocsin.trace import trace

        frames = open_streams(started, streams, Span(*ends))
        ((rows, dead),) = rows_of_keys(frames, watch, [Wanted(key, Span())])
        return trace(watch, key, rows, dead)


@dataclass(frozen=True)
class Version:
    """A rule file and its plan."""

    file: RuleFile
    plan: Plan

    @property
    def streams(self) -> dict[str, Stream]:
        """The streams that are read."""
        from tocsin.spark.sources import streams_of

        return streams_of(self.file, self.plan)


def run_versions(
    started: Session, versions: Sequence[Version], ends: Ends, run: RunDir, told: Told | None
) -> tuple[list[Result], float, list[str]]:
    """Run versions over the same history, in one pass if they read the same streams.

    Gives results, seconds, and a warning for each stream of which no row has the column of arrival that it names.
    """
    begun = time.monotonic()
    if len(versions) == 1 or _reads_alike(*versions):
        parts = [_run(started, versions, ends, run, told, 0)]
    else:
        parts = [_run(started, [version], ends, run, told, number) for number, version in enumerate(versions)]
    results = [result for found, _ in parts for result in found]
    warnings = dict.fromkeys(text for _, texts in parts for text in texts)
    return results, time.monotonic() - begun, list(warnings)


def _reads_alike(first: Version, second: Version) -> bool:
    """Tell whether streams that both files have are read in the same way."""

    def way(file: RuleFile, name: str) -> tuple[object, ...]:
        stream = file.streams[name]
        return stream.source, stream.keys, stream.time, stream.time_unit, stream.arrival, set(stream.values)

    shared = first.file.streams.keys() & second.file.streams.keys()
    return all(way(first.file, name) == way(second.file, name) for name in shared)


def _run(
    started: Session, versions: Sequence[Version], ends: Ends, run: RunDir, told: Told | None, first: int
) -> tuple[list[Result], list[str]]:
    from tocsin.report import Gatherer
    from tocsin.spark.blobs import ARRIVAL
    from tocsin.spark.history import Span, arriving, open_streams, rows_of_plans, without_arrival
    from tocsin.spark.quiet import telling

    streams = {name: one for version in versions for name, one in version.streams.items()}
    frames = open_streams(started, streams, Span(*ends))
    blind = without_arrival(frames, streams)
    frames |= {name: frames[name].drop(ARRIVAL) for name in blind}
    gatherers = [Gatherer(version.file.path, version.plan, arriving(frames)) for version in versions]
    writers = [_Writer(run, version.file, first + number) for number, version in enumerate(versions)]
    with telling(started, told), rows_of_plans(frames, [version.plan for version in versions]) as rows:
        for kind, said in rows.told():
            if kind == "alert":
                number = said.pop("version")
                gatherers[number].take(said)
                said.pop("emitted_us", None)  # The alert log has no emission times.
                writers[number].take(said)
            else:
                _count(gatherers, said)
        dead = [rows.dead(number) for number in range(len(versions))]
        if first == 0:
            run.dead.write(0, rows.dead_lines(_MOST_DEAD))
    for writer in writers:
        writer.close()
    with telling(started, told):
        _tell_truth(frames, gatherers)
    results = [gatherer.result(mine) for gatherer, mine in zip(gatherers, dead, strict=True)]
    return results, [_no_arrival(streams[name]) for name in blind]


def _no_arrival(stream: Stream) -> str:
    return f"no row of stream `{stream.name}` has its arrival column `{stream.arrival}`; event time was taken for it"


def warnings_of(versions: Sequence[Version], results: Sequence[Result]) -> list[str]:
    """Tell of streams whose times were perhaps read in the wrong unit, each once."""
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
    ends: Ends,
    unreadable: Sequence[UnreadableFile],
) -> list[str]:
    """Return a line for each stream without a usable row. Rows outside `ends` count as usable."""
    from tocsin.spark.history import has_usable_row

    found = {
        name: None
        for version, result in zip(versions, results, strict=True)
        for name in result.unusable(file.stream for file in unreadable)
        if ends == (None, None) or not has_usable_row(started, version.streams[name])
    }
    reasons = [(row.stream, row.reason) for result in results for row in result.dead]
    return list(unusable_lines(found, [*reasons, *((file.stream, file.described_reason) for file in unreadable)]))


def reach_of(started: Session, version: Version) -> tuple[int, int] | None:
    """From when to when the sources have rows, if they have any: one pass over them, where a span holds none."""
    from tocsin.spark.history import Span, open_streams, reach

    return reach(open_streams(started, version.streams, Span()))


def _count(gatherers: Sequence[Any], said: Mapping[str, Any]) -> None:
    """Give each version its counts."""
    for number, gatherer in enumerate(gatherers):
        counts, *more = (_of_version(number, said[part]) for part in ("counts", "waits", "results", "memory"))
        gatherer.count(counts, said["newest"], *more)


def _of_version(number: int, said: Mapping[str, Any]) -> dict[str, Any]:
    mine = f"{number}:"
    return {name.removeprefix(mine): value for name, value in said.items() if name.startswith(mine)}


def _tell_truth(frames: Mapping[str, Any], gatherers: Sequence[Any]) -> None:
    """Tell what rows in order of their time give to rules whose rows wait: the sources are read once more for it."""
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
        for kind, said in rows.told():
            if kind == "counts":
                for number, gatherer in enumerate(gatherers):
                    gatherer.take_truth(_of_version(number, said["results"]))


class _Writer:
    """Writes the alerts of one version as an alert log, in files of some thousand lines."""

    def __init__(self, run: RunDir, file: RuleFile, number: int) -> None:
        from tocsin.deliver import AlertWriter

        self.log = run.alerts if number == 0 else AlertWriter(run.folder / "against" / "alerts")
        self.rules: list[Rule | Ranges] = [*file.rules, *file.ranges]
        self.batch, self.held = 0, list[dict[str, Any]]()

    def take(self, change: Mapping[str, Any]) -> None:
        """Take a change of state, with its annotations filled in."""
        self.held.append(annotated(change, self.rules))
        if len(self.held) >= _PER_FILE:
            self.close()

    def close(self) -> None:
        """Write what is held."""
        self.log.write(self.batch, self.held)
        self.batch, self.held = self.batch + 1, []


def trace_picks(
    started: Session, version: Version, picks: Sequence[Pick], ends: Ends
) -> list[tuple[Pick, Traced | str]]:
    """Read the rows around some alerts and trace them; where they are too many, say so instead."""
    from tocsin.spark.history import Span, open_streams

    frames = open_streams(started, version.streams, Span(*ends))
    found: dict[int, Traced | str] = {}
    for watch in version.plan.watches:
        mine = [place for place, pick in enumerate(picks) if pick.watch is watch]
        found |= zip(mine, _traced(frames, watch, [picks[place] for place in mine]), strict=True)
    return [(pick, found[place]) for place, pick in enumerate(picks)]


def _traced(frames: Mapping[str, Any], watch: Watch, picks: Sequence[Pick]) -> list[Traced | str]:
    """All in one pass over the streams of a watch; where that is too much at once, in two parts."""
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
    """Say in the run directory what ran, and beside the alerts of the other version what that is."""
    from tocsin.deliver.encode import time_text
    from tocsin.rundir.manifest import describe
    from tocsin.spark.history import buckets_for

    buckets = buckets_for(version.plan for version in versions)
    for version, folder in zip(versions, (run.folder, run.folder / "against"), strict=False):
        folder.mkdir(exist_ok=True)
        manifest = describe(version.file, version.plan, (), buckets)
        manifest.after(None, time_text(time.time())).write(folder)


def write_summary(run: RunDir, summary: Mapping[str, Any]) -> None:
    """Put the summary into the run directory."""
    from tocsin.files import replace_file

    replace_file(run.summary, json.dumps(summary, indent=2).encode() + b"\n")
