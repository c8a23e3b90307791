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
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame

from tocsin.delivery.alert_json import format_time
from tocsin.plan import Agreement, Allotment, Plan, Said
from tocsin.rules import RangeRule, Rule
from tocsin.run_directory import Progress, RunDir, Tally
from tocsin.run_directory.annotations import encode_annotated
from tocsin.run_directory.checksums import measure_file
from tocsin.run_directory.dead_letters import StagedRows, format_late_row
from tocsin.run_directory.progress import add_counts_by_name, historic_streams
from tocsin.runtime.alert_arrow import unpack_alerts
from tocsin.runtime.alert_batch import AlertBatch
from tocsin.runtime.contract import Out
from tocsin.spark.archive import Archive
from tocsin.spark.results import delays, hear_buckets, total
from tocsin.spark.stateful import Delays
from tocsin.spark.unreadable import UnreadableFiles

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
        self.agreement, self.allotment, self.said = Agreement(plan.watches), Allotment(plan.watches), Said()
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
        self._control(number, found["stats"])
        marks = {"detect": begun, "archive": detected, "write": archived, "": time.monotonic()}
        out, state_bytes = total(found["counts"])
        hear_buckets(self.said, found["counts"])
        gained = self._gained(out, alerts, dead, state_bytes)
        self._note(number, gained, out, delays(found["counts"]), _spans(marks), Counter(file.stream for file in files))

    def _control(self, batch: int, stats: Iterable[str]) -> None:
        """Let buckets agree on their waits, and divide memory, by what they told; the next micro-batch takes it there.

        Until this one is done that has not begun, so should it be run again, its file may be another.
        """
        for told in map(json.loads, stats):
            hears = self.allotment if "share" in told else self.agreement
            hears.hear(told["bucket"], told)
        rows = self.agreement.rows() + self.allotment.rows()
        if rows:
            self.run.write_control_rows(f"agreed-{batch:012}", rows)

    def _gained(self, out: Out, alerts: Iterable[AlertBatch], dead: Mapping[str, int], state_bytes: int) -> Tally:
        rows = dict.fromkeys(self.shares, 0)
        for name, parts in out.counts.items():
            if name in self.streams:  # Others are of rules that are gone, and say what was forgotten.
                rows[self.streams[name]] += parts.get("received", 0)
        states: dict[str, dict[str, int]] = {}
        for batch in alerts:
            mine = states.setdefault(batch.source.alert, {})
            for state, count in batch.count_states().items():
                mine[state] = mine.get(state, 0) + count
        shared = {stream: number // self.shares[stream] for stream, number in rows.items()}
        kept = {name: {part: number for part, number in parts.items() if number} for name, parts in out.counts.items()}
        gained = Tally(shared, kept, states, dead, state_bytes)
        return gained if gained.is_quiet else replace(gained, batches=1)

    def _note(
        self,
        batch: int,
        gained: Tally,
        out: Out,
        late: Delays,
        milliseconds: Mapping[str, int],
        files: Mapping[str, int],
    ) -> None:
        before = self.log.before(batch) or Progress(-1, "", Tally(), Tally())
        newest = dict(before.newest_us)
        for stream, time_us in out.newest.items():
            newest[stream] = max(time_us, newest.get(stream, time_us))
        whole = before.total.plus(gained)
        said = self.said.whole()
        said.waits = {**before.waits, **out.waits}
        said.memory, said.cpu = {**before.memory, **said.memory}, {**before.cpu, **said.cpu}
        said.drop_recalls(whole.alerts)
        shares = {**before.shares, **self.allotment.shares}
        now = time.time()
        more = (said.waits, said.memory, add_counts_by_name(before.delays, late), shares, said.cpu)
        historic = historic_streams(before, newest, now)
        unreadable = dict(Counter(before.unreadable) + Counter(files))
        progress = Progress(batch, format_time(now), gained, whole, newest, milliseconds, *more, historic, unreadable)
        if gained.is_quiet and not files and time.monotonic() - self._line_at < _QUIET_S:
            self.log.record(progress)
        else:
            self.log.add(progress)
            self._line_at = time.monotonic()
        for hear in self.hearers:
            hear(progress)


def _texts_by_kind(table: pa.Table) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"counts": [], "late": [], "stats": [], "dead": [], "aside": []}
    for kind, text in zip(table.column("kind").to_pylist(), table.column("json").to_pylist(), strict=True):
        if text is not None:
            found[kind].append(text)
    return found


def _spans(marks: Mapping[str, float]) -> dict[str, int]:
    """Whole milliseconds from each mark to the next."""
    names, moments = list(marks), list(marks.values())
    return {name: round(1000 * (moments[i + 1] - moments[i])) for i, name in enumerate(names[:-1])}
