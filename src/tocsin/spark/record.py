"""Record: what a micro-batch gave goes to disk: alerts, rows not usable, the archive, and a line of progress.

Guarantee: all of it is on disk before Spark notes the micro-batch as done. A kill before that runs it again, on the
same rows and at the same batch time, and every file is replaced by an equal one: nothing is doubled, nothing lost.
Cost: the result of a micro-batch is collected once, in one job: alerts, counts and a few dead rows are in memory
together. Many dead rows are written by the tasks that met them, and only their files are named here.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame

from tocsin.delivery.alert_json import format_time
from tocsin.plan import Allotment, Plan, WaitAgreement
from tocsin.rules import RangeRule, Rule
from tocsin.run_directory import Progress, RunDir, Tally
from tocsin.run_directory.annotations import encode_annotated
from tocsin.run_directory.checksums import measure_file
from tocsin.run_directory.dead_letters import StagedRows, format_late_row
from tocsin.run_directory.progress import historic_streams
from tocsin.runtime.alert_arrow import unpack_alerts
from tocsin.runtime.alert_batch import AlertBatch
from tocsin.runtime.metrics import LatestMetrics, Merge
from tocsin.spark.archive import Archive
from tocsin.spark.results import read_metrics
from tocsin.spark.unreadable import UnreadableFile, UnreadableFiles

log = logging.getLogger("tocsin.run")
# How often a run with nothing to do says so in its progress.
_QUIET_S = 60.0


class StopBeforeBatchError(Exception):
    """A micro-batch was not begun because the run is to stop; it is the first of the next run."""


class Recorder:
    """What `foreachBatch` calls; `hearers` learn of each micro-batch that is on disk."""

    def __init__(
        self,
        run: RunDir,
        plan: Plan,
        rules: Iterable[Rule | RangeRule],
        archive: Archive | None,
        hearers: Iterable[Callable[[Progress], None]],
        unreadable: UnreadableFiles,
        first_batch: int = 0,
    ) -> None:
        # The number of Spark's micro-batch 0 in the run directory.
        self.first_batch = first_batch
        self.run, self.plan, self.archive, self.hearers = run, plan, archive, tuple(hearers)
        self.log, self.unreadable = run.progress(), unreadable
        self.rules = list(rules)
        self.agreement, self.allotment = WaitAgreement(plan.watches), Allotment(plan.watches)
        self.latest = LatestMetrics()
        counted = [pair for watch in plan.key_sets for pair in watch.counted]
        self.streams = dict(counted)
        # A row is counted once under each name of its stream.
        self.shares = Counter(stream for _, stream in counted)
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self._line_at = 0.0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Run and record one micro-batch."""
        if self.stopping.is_set():
            raise StopBeforeBatchError
        try:
            self._record(frame, batch)
        except BaseException as error:
            self.error = error
            raise

    def _record(self, frame: DataFrame, batch: int) -> None:
        begun, number = time.monotonic(), batch + self.first_batch
        if self.archive is not None:
            self.archive.clear(batch)
        self.run.dead.clear()
        table = frame.toArrow()
        found = _texts_by_kind(table)
        packed = [data for data in table.column("alerts").to_pylist() if data is not None]
        detected = time.monotonic()
        if self.archive is not None:
            self.archive.commit(batch)
        archived = time.monotonic()
        alerts = [batch for data in packed for batch in unpack_alerts(data)]
        path = self.run.alerts.write_encoded(number, encode_annotated(alerts, self.rules))
        if path is not None:
            self.run.checksums.add(measure_file(path, sum(map(len, alerts))))
        files = self.unreadable.take()
        for file in files:
            log.warning("%s", file)
        aside = [StagedRows(**json.loads(text)) for text in found["aside"]]
        dead = self.run.dead.write(number, found["dead"], aside, [file.dead_line for file in files])
        self.run.late.write(number, map(format_late_row, found["late"]))
        self._control(number, found["report"])
        marks = {"detect": begun, "archive": detected, "write": archived, "": time.monotonic()}
        gained = self._gained(found["metrics"], alerts, dead, files)
        self._note(number, gained, _spans(marks))

    def _control(self, batch: int, stats: Iterable[str]) -> None:
        """Let buckets agree on their waits, and divide memory, by what they told; the next micro-batch takes it there.

        Until this one is done that has not begun, so should it be run again, its file may be another.
        """
        for told in map(json.loads, stats):
            if "share" in told:
                self.allotment.hear(told["bucket"], told)
            else:
                self.agreement.receive(told["bucket"], told)
        rows = self.agreement.decide() + self.allotment.rows()
        if rows:
            self.run.write_control_rows(f"agreed-{batch:012}", rows)

    def _gained(
        self,
        metrics: Iterable[str],
        alerts: Iterable[AlertBatch],
        dead: Mapping[str, int],
        files: Iterable[UnreadableFile],
    ) -> Tally:
        """Return the metrics of a micro-batch. The latest values of each bucket are stored for the totals."""
        gained = Tally()
        for text in metrics:
            bucket, found = read_metrics(text)
            gained.merge(found)
            self.latest.receive(bucket, found)
        gained = gained.select([Merge.SUM, Merge.MAX]).without_zero_counts()
        rows = dict.fromkeys(self.shares, 0)
        for (name,), number in gained.items("received"):
            if name in self.streams:  # Other views are of removed rules, whose rows have expired.
                rows[self.streams[name]] += int(number)
        for stream, number in rows.items():
            gained.record("rows", number // self.shares[stream], stream)
        for batch in alerts:
            for state, number in batch.count_states().items():
                gained.record("alerts", number, batch.source.alert, state)
        for stream, number in dead.items():
            gained.record("dead", number, stream)
        for file in files:
            gained.record("unreadable", 1, file.stream)
        if not gained.is_quiet:
            gained.record("batches", 1)
        return gained

    def _note(self, batch: int, gained: Tally, milliseconds: Mapping[str, int]) -> None:
        before = self.log.before(batch) or Progress(-1, "", Tally(), Tally())
        latest = self.latest.merged()
        for alert, share in self.allotment.shares.items():
            latest.record("memory_share", share, alert)
        whole = before.total.plus(gained).plus(latest)
        whole.drop_recalls(whole.alerts)
        sums, now = gained.select([Merge.SUM]), time.time()
        historic = historic_streams(before, whole.section("newest_us"), now)
        progress = Progress(batch, format_time(now), sums, whole, milliseconds, historic)
        is_quiet = gained.is_quiet and not gained.section("unreadable")
        if is_quiet and time.monotonic() - self._line_at < _QUIET_S:
            self.log.record(progress)
        else:
            self.log.add(progress)
            self._line_at = time.monotonic()
        for hear in self.hearers:
            hear(progress)


def _texts_by_kind(table: pa.Table) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"metrics": [], "late": [], "report": [], "dead": [], "aside": []}
    for kind, text in zip(table.column("kind").to_pylist(), table.column("json").to_pylist(), strict=True):
        if text is not None:
            found[kind].append(text)
    return found


def _spans(marks: Mapping[str, float]) -> dict[str, int]:
    """Whole milliseconds from each mark to the next."""
    names, moments = list(marks), list(marks.values())
    return {name: round(1000 * (moments[i + 1] - moments[i])) for i, name in enumerate(names[:-1])}
