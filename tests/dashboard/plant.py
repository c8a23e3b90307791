"""A run directory as `tocsin run` leaves it, without Spark: the plan's own logic on a factory, minute by minute.

Alerts, counts and waits are the engine's; what `spark/record.py` does with them is done here in a few lines.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rule_files import load_file
from tocsin.dashboard.alert_index import AlertIndex
from tocsin.dashboard.alert_records import AlertRecord
from tocsin.delivery.alert_json import format_time
from tocsin.factory import START_US, Factory
from tocsin.plan import describe_plan, plan_file
from tocsin.rules.durations import event_text
from tocsin.run_directory import Progress, RunDir, Tally
from tocsin.run_directory.annotations import encode_annotated
from tocsin.run_directory.manifest import build_manifest
from tocsin.runtime.contract import Batch, Out
from tocsin.runtime.session import Session

MINUTE = 60_000_000
MACHINES, RATE = 6, 6.0
SENSORS = {"air": ("air", 0, 0), "humidity": ("humidity", 0, 1), "surface": ("surface", 0, 0), "spare": ("air", 1, 0)}
RULES = """\
streams:
  air:
    source: {parquet: {path: kept/air}}
    keys: [machine]
    arrival: arrived
    values: {value: {domain: [-40, 60], unit: celsius}}
  humidity:
    source: {parquet: {path: kept/humidity}}
    keys: [machine]
    arrival: arrived
    values: {value: {domain: "(0, 100]", unit: percent}}
    no_data: {for: 45s, labels: {severity: warning}}
  surface:
    source: {parquet: {path: kept/surface}}
    keys: [machine]
    arrival: arrived
    values: {value: {domain: [-40, 60], unit: celsius}}
  spare:
    source: {parquet: {path: kept/spare}}
    keys: [machine]
    arrival: arrived
    values: {value: {domain: [-40, 60], unit: celsius}}
groups:
  - name: factory
    labels: {team: plant}
    rules:
      - alert: Condensation
        expr: ln(humidity/100) + 18.678*air/(257.14+air) - 18.678*surface/(257.14+surface) > 0
        within: 5s
        on: [machine]
        for: 3s
        keep_firing_for: 10s
        allowed_lateness: 10m
        labels: {severity: critical}
        annotations:
          summary: '{{ $labels.machine }}: {{ $values.humidity }} % at {{ $values.air }} °C'
          runbook: open the vents, then look at the drain
      - alert: Disagreement
        expr: abs(air - spare) > 3
        within: 5s
        on: [machine]
        keep_firing_for: 30s
        allowed_lateness: 10m
        labels: {severity: warning}
        annotations: {summary: "{{ $labels.machine }}: air {{ $values.air }} °C, spare {{ $values.spare }} °C"}
      - alert: TooDamp
        expr: humidity > 75
        on: [machine]
        for: 20s
        stale: 30s
        quality: {recall: 0.95, period: 1m}
        labels: {severity: warning}
archive: {path: kept}
sinks:
  - webhook: {url: "http://127.0.0.1:9/alerts"}
"""


class Plant:
    """A run directory that goes on: `step` adds micro-batches of one minute each."""

    def __init__(self, folder: Path, *, minutes: int = 12, rules: str = RULES) -> None:
        self.folder, self.minutes = folder, minutes
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rules.yaml").write_text(rules)
        for name in SENSORS:
            (folder / "kept" / name).mkdir(parents=True, exist_ok=True)
        self.file = load_file(folder / "rules.yaml")
        self.plan = plan_file(self.file)
        self.run = RunDir(folder / "run")
        self.run.folder.mkdir(exist_ok=True)
        manifest = build_manifest(self.file, self.plan, ("webhook",), 2)
        # Pictures show it, and must not show where they were made.
        streams = {name: {**told, "from": f"kept/{name}"} for name, told in manifest.streams.items()}
        manifest = replace(manifest, streams=streams)
        self.manifest = replace(manifest, state=describe_plan(self.plan)).after(None, format_time(START_US / 1e6))
        self.manifest.write(self.run.folder)
        self.session = Session(self.plan)
        self.rows = {name: self._rows(name) for name in SENSORS}
        self.batch, self.sizes = 0, dict[str, int]()

    def _rows(self, stream: str) -> dict[str, Any]:
        sensor, seed, outages = SENSORS[stream]
        factory = Factory(MACHINES, seed, RATE, disorder_us=2_500_000, outages=outages)
        return factory.read(sensor, 0, int(self.minutes * 60 * RATE))

    def step(self, number: int = 1) -> None:
        for _ in range(number):
            self._batch()

    def _batch(self) -> None:
        begin = START_US + self.batch * MINUTE
        mine = {}
        for name, columns in self.rows.items():
            here = (columns["arrived"] >= begin) & (columns["arrived"] < begin + MINUTE)
            mine[name] = {column: values[here] for column, values in columns.items()}
            self._archive(name, mine[name])
        batches = [
            _as_batch(number, name, watch.columns(name), mine[name])
            for number, watch in enumerate(self.plan.key_sets)
            for name in watch.streams
        ]
        out = self.session.push(batches, begin + MINUTE)
        out.add(self.session.advance(begin + MINUTE))
        if self.batch + 1 == self.minutes:
            out.add(self.session.end())
        self._record(out, mine, begin + MINUTE + 850_000)
        self.batch += 1

    def _archive(self, name: str, columns: Mapping[str, Any]) -> None:
        moment = pa.timestamp("us", tz="UTC")
        table = pa.table(
            {
                "machine": pa.array(columns["machine"], pa.string()),
                "ts": pa.array(columns["ts"]).cast(moment),
                "arrived": pa.array(columns["arrived"]).cast(moment),
                "value": pa.array(columns["value"]),
                "tocsin_reason": pa.nulls(len(columns["ts"]), pa.string()),
            }
        )
        path = self.folder / "kept" / name / f"{self.manifest.run}-{self.batch:012}-00000.parquet"
        pq.write_table(table, path)

    def _record(self, out: Out, rows: Mapping[str, Mapping[str, Any]], done_us: int) -> None:
        rules = [*self.file.rules, *self.file.ranges]
        alerts = out.alert_rows()
        self.run.alerts.write_encoded(self.batch, encode_annotated(out.alerts, rules))
        dead = self._dead()
        for name, page in self.session.changed_pages().items():
            self.sizes[name] = len(page or b"")
        log = self.run.progress()
        before = log.before(self.batch) or Progress(-1, "", Tally(), Tally())
        states: dict[str, dict[str, int]] = {}
        for alert in alerts:
            one = states.setdefault(alert["alert"], {})
            one[alert["state"]] = one.get(alert["state"], 0) + 1
        gained = Tally(
            rows={name: len(columns["ts"]) for name, columns in rows.items()},
            counts=out.counts,
            alerts=states,
            dead=dead,
            delays={name: _delays(columns) for name, columns in rows.items()},
            state_bytes=sum(self.sizes.values()) - before.total.state_bytes,
            batches=1,
        )
        sections = out.metrics.to_json()
        latest = {name: sections[name] for name in ("newest_us", "waits", "memory") if name in sections}
        milliseconds = {"detect": 620 + 35 * (self.batch % 5), "archive": 14, "write": 21}
        line = Progress(
            self.batch,
            format_time(done_us / 1e6),
            gained,
            before.total.plus(gained).plus(Tally(**latest)),
            milliseconds,
        )
        log.add(line)

    def _dead(self) -> dict[str, int]:
        """A row now and then that could not be used, as a source would tell of it."""
        if self.batch % 4 != 1:
            return {}
        raws = [f'{{"machine":"m{self.batch:04}","value":null}}', "machine;value\nm1;<script>alert(1)</script>"]
        reasons = ["value `value` is missing", "the line is no JSON object"]
        rows = [{"stream": "air", "reason": reason, "raw": raw} for reason, raw in zip(reasons, raws, strict=True)]
        self.run.dead.write(self.batch, [json.dumps(row) for row in rows])
        return {"air": len(rows)}

    def deliver(self, position: tuple[int, int] | None, *, failing: bool = False) -> None:
        """Write what a sink would say of itself."""
        folder = self.run.folder / "delivery"
        folder.mkdir(exist_ok=True)
        told = {"version": 2, "sink": "webhook", "kind": "webhook", "position": position, "delivered": 3, "pending": 1}
        told |= {"retries": 2, "rejected": 0, "skipped": 0, "superseded": 0, "corrupt": 0, "failing": failing}
        told |= {"lastError": "connection refused" if failing else None, "lastErrorAt": None, "lastSuccess": None}
        told["acceptedStates"] = ["firing", "resolved", "match"]
        (folder / "webhook.json").write_text(json.dumps({**told, "state": None}))


def _as_batch(number: int, stream: str, columns: Iterable[str], rows: Mapping[str, Any]) -> Batch:
    names, key = np.unique(rows["machine"].astype(str), return_inverse=True)
    values = {column: rows["value"].astype(np.float64) for column in columns}
    return Batch(number, stream, [(str(n),) for n in names], key.astype(np.int64), rows["ts"], rows["arrived"], values)


def _delays(columns: Mapping[str, Any]) -> dict[str, int]:
    from tocsin.run_directory.delay_histogram import count_delays

    return count_delays(columns["arrived"] - columns["ts"])


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def change(alert: str, state: str, start_us: int, **more: Any) -> dict[str, Any]:
    """A change of state as a row of a run."""
    ends = more.pop("ends_us", None)
    row = {
        "alert": alert,
        "id": more.pop("id", f"{abs(hash((alert, start_us))):016x}"[:16]),
        "state": state,
        "labels": more.pop("labels", {"machine": "m1"}),
        "startsAt": event_text(start_us),
        "firesAt": None if state in {"pending", "inactive"} else event_text(start_us),
        "endsAt": None if ends is None else event_text(ends),
        "value": 2.0,
        "margin": 1.0,
        "witness": [],
        "quality": "",
        "annotations": {},
    }
    return row | more


def ranges_run(folder: Path, rules: Path) -> Path:
    """A run of a rule with ranges: 40 requests, of which some were reached."""
    file = load_file(rules)
    plan = plan_file(file)
    run = RunDir(folder)
    folder.mkdir(parents=True)
    build_manifest(file, plan, (), 2).after(None, format_time(START_US / 1e6)).write(folder)
    reached = [
        change(
            "EnoughReadings",
            "match",
            START_US + 7_000_000 * n,
            ends_us=START_US + 7_000_000 * n,
            id=f"{n:016x}",
            labels={"machine": f"m{n % 5:04}", "query": f"anna-{n}"},
            value=50.0,
            margin=0.0,
        )
        for n in range(12)
    ]
    run.alerts.write(0, reached)
    counts = {
        "requests": {"received": 41, "retained": 28, "expired": 12, "quarantined": 1},
        "air": {"received": 3600, "expired": 3600},
    }
    total = Tally(
        rows={"requests": 41, "air": 3600},
        counts=counts,
        alerts={"EnoughReadings": {"match": 12}},
        dead={"requests": 1},
        newest_us={"air": START_US + 720_000_000, "requests": START_US + 600_000_000},
        state_bytes=9000,
        batches=1,
    )
    run.progress().add(Progress(0, format_time(START_US / 1e6 + 721), total, total, {"detect": 700}))
    return folder


def backtest(folder: Path, one: Path, other: Path) -> Path:
    """The directory of a backtest against another version, out of the logs of two runs."""
    shutil.copytree(one, folder)
    shutil.copytree(other / "alerts", folder / "against" / "alerts")
    shutil.copy(other / "manifest.json", folder / "against")
    for name in ("progress.jsonl", "delivery"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    last = RunDir(one).progress().before(10**9)
    assert last is not None
    streams = {name: dict(parts) for name, parts in last.total.counts.items()}
    rows = sum(last.total.rows.values())
    ends = {"oldest_us": START_US, "newest_us": START_US + 420_000_000}
    summary = {
        "ok": True,
        "file": "rules.yaml",
        "rows": rows,
        "seconds": 14.2,
        "streams": streams,
        "recall": [],
        "against": {"file": "before.yaml"},
        **ends,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def all_alerts(index: AlertIndex) -> list[AlertRecord]:
    """Return all alerts of an index, in the order of the log."""
    return index.after(-1, 1_000_000)
