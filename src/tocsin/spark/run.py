"""Run a rule file: sources → alerts → run directory, with its sinks beside it.

    rule file → sources → rows_of → Recorder (per micro-batch) → RUN/alerts, RUN/dead, RUN/progress.jsonl
                                                                  └→ Delivery: one thread per sink

Guarantee: what a micro-batch found is on disk before it counts as done, and a restart goes on from the checkpoint: each
alert is in the log once. Sinks read the log, so a dead one stops nothing here.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tocsin.delivery import Delivery, Sink, make_sink, name_sinks
from tocsin.delivery.alert_json import format_time
from tocsin.delivery.sinks import url_address
from tocsin.errors import RunError, TocsinError
from tocsin.plan import Plan, describe_plan, plan_changes, plan_file, unit_nanoseconds
from tocsin.rules import RangeRule, Rule
from tocsin.rules.rulefile import RuleFile
from tocsin.run_directory import (
    Manifest,
    Progress,
    RepairPlan,
    RunDir,
    Tally,
    apply_repair,
    find_incompatibilities,
    format_repair_needed,
    last_progress,
    plan_repair,
    read_facts,
    read_manifest,
)
from tocsin.run_directory.manifest import build_manifest
from tocsin.run_directory.progress import unusable_streams
from tocsin.spark.alerts import Beside, check_buckets, rows_of
from tocsin.spark.archive import Archive
from tocsin.spark.blobs import ARRIVAL, TIME
from tocsin.spark.failure import is_ours, secrets_of, sentence_of, text_of
from tocsin.spark.far_off import Warner
from tocsin.spark.listener import BatchListener
from tocsin.spark.metrics import Meter
from tocsin.spark.metrics_server import serve_metrics
from tocsin.spark.record import Recorder, StopBeforeBatchError
from tocsin.spark.session import MASTER, PARTITIONS, limit_log, partitions_of, run_session
from tocsin.spark.source_probe import ONCE_WAIT_S, SourceProbe
from tocsin.spark.sources.data_sources import stream_reader
from tocsin.spark.sources.factory import check_end
from tocsin.spark.sources.registry import check_paths, read, streams_of
from tocsin.spark.unreadable import UnreadableFiles, skip_settings

log = logging.getLogger("tocsin.run")
_LOOK_S = 0.1
# The source that wakes the query and brings control rows; no stream can have this name.
CONTROL = "_tocsin_control"


@dataclass(frozen=True)
class Options:
    """How a run goes; none of it changes which alerts there are.

    Parameters
    ----------
    run_dir
        The run directory.
    once
        Take what is there and end; without it, go on until told to stop.
    interval_s
        How often a micro-batch begins.
    master, conf
        Where Spark runs, and its settings.
    buckets
        Into how many parts keys are divided; default: as many as shuffle partitions.
    metrics_address, metrics_port, metrics_names
        Where Prometheus finds the metrics, and under which host names besides addresses; port 0: nowhere.
    drain_s
        How long the end waits for sinks that have not delivered everything.
    repair
        Whether the start repairs a run directory whose parts do not fit together.
    """

    run_dir: Path
    once: bool = False
    interval_s: float = 1.0
    master: str = MASTER
    conf: Mapping[str, str] = field(default_factory=dict)
    buckets: int | None = None
    metrics_address: str = "127.0.0.1"
    metrics_port: int = 0
    metrics_names: tuple[str, ...] = ()
    drain_s: float = 30.0
    repair: bool = False


@dataclass(frozen=True)
class Ended:
    """How a run ended: after its last micro-batch, with sinks that have all, or not.

    `unusable` has the streams of which this start read rows or files but could use no row.
    """

    stopped: bool
    progress: Progress | None
    delivered: bool
    sinks: Mapping[str, Mapping[str, Any]]
    unusable: Sequence[str] = ()


Report = Callable[[Progress], None]
Sessions = Callable[[], contextlib.AbstractContextManager[SparkSession]]


def run(
    file: RuleFile,
    options: Options,
    stop: threading.Event,
    report: Report,
    sessions: Sessions | None = None,
    show_phase: Callable[[str], None] = lambda phase: None,
) -> Ended:
    """Run a rule file until its input ends (`once`) or `stop` is set; what fails is a RunError of one sentence."""
    try:
        return _run(file, options, stop, report, sessions, show_phase)
    except TocsinError:
        raise
    except Exception as error:
        log.debug("the run failed", exc_info=error)
        sentence = sentence_of(error, secrets_of(file, conf=options.conf))
        if not is_ours(error):
            sentence += f" (details: {RunDir(options.run_dir).spark_log})"
        raise RunError(sentence) from error


def _run(
    file: RuleFile,
    options: Options,
    stop: threading.Event,
    report: Report,
    sessions: Sessions | None,
    show_phase: Callable[[str], None],
) -> Ended:
    show_phase("planning rules")
    plan = plan_file(file)
    streams = streams_of(file, plan)
    check_paths(streams.values(), options.master, options.conf)
    if options.once:
        check_end(streams.values())
    sinks = name_sinks(make_sink(sink.kind, sink.options) for sink in file.sinks)
    with RunDir(options.run_dir).lock() as place:
        manifest = _begin(place, file, plan, tuple(sinks), options)
        plan = (plan.sharing() if manifest.buckets > 1 else plan).over(manifest.buckets, told=True)
        plan = plan if manifest.unit_ns is None else plan.calibrated(manifest.unit_ns)
        archive = None if file.archive is None else Archive(file.archive, manifest.run, manifest.first_batch)
        open_session = sessions or (lambda: _session(place, file, manifest, options))
        with _delivering(place, sinks) as delivery, SourceProbe(streams.values()) as probe:
            before = last_progress(place.folder)
            meter = Meter(delivery.status, before, plan, probe.status)
            log.info(_first_words(place, before, options))
            listener = BatchListener(meter.seconds.observe, manifest.first_batch)
            hearers = (meter.note, listener.note, report, Warner(streams).note)
            unreadable = UnreadableFiles(place.skipped, streams.values())
            rules: list[Rule | RangeRule] = [*file.rules, *file.ranges]
            recorder = Recorder(place, plan, rules, archive, hearers, unreadable, manifest.first_batch)
            stopped = True
            with serve_metrics(meter.registry, options.metrics_address, options.metrics_port, options.metrics_names):
                if probe.wait(stop, ONCE_WAIT_S if options.once else None):
                    log.info("starting Spark at %s", options.master)
                    show_phase("starting Spark")
                    with open_session() as session:
                        show_phase("opening streams")
                        rows = _rows(session, file, recorder, manifest, options)
                        show_phase("waiting for the first micro-batch")
                        log.info(_opened(streams, manifest, place, probe))
                        with _listening(session, listener):
                            stopped = _query_until_end(
                                lambda: _start(rows, recorder, manifest, options, listener),
                                recorder,
                                probe,
                                stop,
                                once=options.once,
                                secrets=secrets_of(file, conf=options.conf),
                            )
            delivered = delivery.finish(options.drain_s)
        after = last_progress(place.folder)
        return Ended(stopped, after, delivered, delivery.status(), _unusable(recorder, before, after))


def _unusable(recorder: Recorder, before: Progress | None, after: Progress | None) -> tuple[str, ...]:
    """Return the streams of which a start read rows or files but could use no row."""
    old, new = (Progress(-1, "", Tally(), Tally()) if progress is None else progress for progress in (before, after))
    bad = [
        stream
        for name in ("dead", "unreadable")
        for stream, number in new.total.section(name).items()
        if number > old.total.section(name).get(stream, 0)
    ]
    before_counts = old.total.counts
    gained = {
        name: {part: number - before_counts.get(name, {}).get(part, 0) for part, number in parts.items()}
        for name, parts in new.total.counts.items()
    }
    return unusable_streams(recorder.streams.items(), gained, bad)


def _first_words(place: RunDir, progress: Progress | None, options: Options) -> str:
    """Return a line with the run directory and the address of the metrics."""
    where = f"http://{options.metrics_address}:{options.metrics_port}/metrics"
    return (
        f"run directory {place.folder} {f'continues after micro-batch {progress.batch}' if progress else 'is new'}; "
        f"metrics {f'at {where}' if options.metrics_port else 'are not served'}"
    )


def _opened(streams: Iterable[str], manifest: Manifest, place: RunDir, probe: SourceProbe) -> str:
    """Say what is read; the first micro-batch starts workers, which takes some seconds more."""
    told = [(name, manifest.streams[name]) for name in streams]
    is_up = probe.status()
    shown = ", ".join(
        f"{name} from {stream['source']} {stream['from']}".rstrip() + ("" if is_up.get(name, True) else " (down)")
        for name, stream in told
    )
    return f"streams are open: {shown}; the first micro-batch begins; log of Spark: {place.spark_log}"


def _begin(place: RunDir, file: RuleFile, plan: Plan, sinks: tuple[str, ...], options: Options) -> Manifest:
    """Write the manifest of this start; what does not fit the state of the run is refused."""
    before = read_manifest(place.folder)
    if place.summary.exists():
        # Its alerts are history: sinks would wake somebody with them.
        message = (
            f"run directory {place.folder} belongs to `tocsin backtest`; use a new directory or the directory of a run"
        )
        raise RunError(message)
    chosen = partitions_of(options.master, options.conf)
    partitions = before.partitions if before else chosen
    if PARTITIONS in options.conf and chosen != partitions:
        log.warning("`%s` has no effect: the run keeps its %d partitions; got %d", PARTITIONS, partitions, chosen)
    buckets = options.buckets or (before.buckets if before else partitions)
    check_buckets(buckets)
    now = replace(build_manifest(file, plan, sinks, buckets), state=describe_plan(plan), partitions=partitions)
    interval_s = None if options.once else options.interval_s
    addresses = tuple(url_address(sink.options["url"]) for sink in file.sinks if sink.kind == "alertmanager")
    now = replace(now, interval_s=interval_s, alertmanagers=addresses)
    now = now.after(before, format_time(time.time()))
    measured = before.unit_ns if before else None
    now = replace(now, unit_ns=unit_nanoseconds() if measured is None and plan.is_limited_in_work else measured)
    if before is None:
        now.write(place.folder)
        return now
    facts = read_facts(place, before, has_new_rules=not now.has_rules_of(before))
    repair = plan_repair(facts)
    if repair.faults and not options.repair:
        raise RunError(format_repair_needed(place, repair))
    now = apply_repair(place, repair, facts, admit(before, now))
    if options.repair:
        _log_repair(place, repair)
    return now


def _log_repair(place: RunDir, plan: RepairPlan) -> None:
    """Log the faults that were found and the steps that repaired them."""
    for text in plan.faults:
        log.warning("repair: fault: %s", text)
    for text in plan.steps:
        log.warning("repair: done: %s", text)
    if not plan.faults:
        log.warning("repair: run directory %s has no fault; nothing was changed", place.folder)


def admit(before: Manifest, now: Manifest) -> Manifest:
    """Let a run go on from the state of an earlier start and say what becomes of it, or refuse it with the reason."""
    found = find_incompatibilities(before, now)
    if found:
        message = (
            f"the run directory does not fit this run: {'; '.join(found)}; "
            "run with the earlier settings, or use a new run directory"
        )
        raise RunError(message)
    changes = plan_changes(before.state, now.state)
    for sentence in changes:
        log.warning("changed rules: %s", sentence)
    return replace(now, changes=tuple(changes))


def _session(
    place: RunDir, file: RuleFile, manifest: Manifest, options: Options
) -> contextlib.AbstractContextManager[SparkSession]:
    kafka = any(stream.source.kind == "kafka" for stream in file.streams.values())
    conf = {**skip_settings(options.master, options.conf), **options.conf}
    return run_session(
        place,
        master=options.master,
        conf=conf,
        partitions=manifest.partitions,
        kafka=kafka,
        is_bounded=options.once,
    )


@contextlib.contextmanager
def _delivering(place: RunDir, sinks: Mapping[str, Sink]) -> Iterator[Delivery]:
    """Serve the sinks; whatever happens, they are stopped in the end."""
    delivery = Delivery(place.folder, sinks)
    delivery.start()
    try:
        yield delivery
    finally:
        delivery.stop()


@contextlib.contextmanager
def _listening(session: SparkSession, listener: BatchListener) -> Iterator[None]:
    session.streams.addListener(listener)
    try:
        yield
    finally:
        # What Spark has to say of the last micro-batch is still on its way; a JVM that is gone says nothing.
        with contextlib.suppress(Py4JError, OSError):
            session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
            session.streams.removeListener(listener)


def _rows(session: SparkSession, file: RuleFile, recorder: Recorder, manifest: Manifest, options: Options) -> DataFrame:
    streams = streams_of(file, recorder.plan)
    frames = {name: read(session, one, streaming=True, run_dir=options.run_dir) for name, one in streams.items()}
    place, archive = recorder.run, recorder.archive
    # Spark runs no micro-batch without rows until there was one, and none calls a bucket without rows: what is due by
    # the clock, and what other rules have ended, would wait for the next row of each bucket.
    place.write_control_rows(manifest.started[-1].replace(":", ""))
    beside = Beside(
        None if archive is None else lambda name, frame: archive.passing(streams[name], frame),
        # What was read in a micro-batch that is done is deleted: waits that buckets agree on would fill the folder.
        stream_reader(session, CONTROL).option("cleanSource", "delete").text(str(place.control.absolute())),
        str(place.dead.staging.absolute()),
    )
    return rows_of(
        frames,
        recorder.plan,
        time=TIME,
        arrival=ARRIVAL,
        buckets=manifest.buckets,
        idle_timers=not options.once,
        beside=beside,
    )


def _start(
    rows: DataFrame, recorder: Recorder, manifest: Manifest, options: Options, listener: BatchListener
) -> StreamingQuery:
    writer = rows.writeStream.foreachBatch(recorder).outputMode("append").queryName("tocsin-run")
    writer = writer.option("checkpointLocation", str(recorder.run.checkpoint.absolute()))
    interval = f"{max(1, round(1000 * options.interval_s))} milliseconds"
    query = (writer.trigger(availableNow=True) if options.once else writer.trigger(processingTime=interval)).start()
    listener.run_id = str(query.runId)
    replace(manifest, query=str(query.id)).write(recorder.run.folder)
    return query


def _query_until_end(
    start: Callable[[], StreamingQuery],
    recorder: Recorder,
    probe: SourceProbe,
    stop: threading.Event,
    *,
    once: bool,
    secrets: Iterable[str],
) -> bool:
    """Run the query until its end, and return whether it was stopped.

    If it fails while a Kafka broker is down, start it again from its checkpoint when the broker is back. With `once`
    the failure is a RunError that names the broker.
    """
    while not stop.is_set():
        query = start()
        try:
            return _wait(query, recorder, stop)
        except Exception as error:
            probe.check()
            if not probe.is_blocked:
                raise
            log.warning("the query failed while a Kafka broker is down: %s", sentence_of(error, secrets))
            recorder.error = None
        if probe.wait(stop, 0.0 if once else None):
            log.info("the query is started again")
    return True


def _wait(query: StreamingQuery, recorder: Recorder, stop: threading.Event) -> bool:
    """Wait for the end of the query. When it is to stop, the micro-batch that runs is finished and no other begun."""
    try:
        while not query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
            limit_log(recorder.run.spark_log)
            if stop.is_set():
                recorder.stopping.set()
                if not query.status["isTriggerActive"]:
                    query.stop()
    except Exception as error:
        held_back = recorder.stopping.is_set() and StopBeforeBatchError.__name__ in text_of(error)
        # The signal may have reached the JVM too: what it was doing is done again by the next run.
        if held_back or (stop.is_set() and isinstance(error, Py4JNetworkError | OSError)):
            return True
        raise (recorder.error or error) from None
    return recorder.stopping.is_set()
