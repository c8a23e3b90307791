"""A small run directory, for pages whose examples read the directory of a run."""

from __future__ import annotations

import json
from pathlib import Path

from tocsin.run_directory import Manifest, Progress, RunDir, Tally

MANIFEST = Manifest(
    rule_file="/x/rules.yaml",
    rule_hash="00",
    plan="Pipeline keyed by machine; allowed lateness 1h\n  Retention air(value): unreduced",
    streams={"air": {"source": "parquet", "from": "air", "keys": ["machine"], "time": "ts", "values": ["value"]}},
    sinks=("console",),
    archive=None,
    buckets=2,
    partitions=2,
)


def write_run(folder: Path) -> None:
    """Write the directory `run` of a run with two micro-batches, one alert and one invalid row."""
    with RunDir(folder / "run").lock() as run:
        MANIFEST.write(run.folder)
        run.dead.write(1, [json.dumps({"stream": "air", "reason": "time `ts` is missing", "raw": "{}"})])
        run.alerts.write(
            0, [{"alert": "Hot", "id": "1f", "state": "firing", "labels": {"machine": "m1"}, "startsAt": 0}]
        )
        first = Tally(
            rows={"air": 3}, counts={"air": {"received": 3, "retained": 3}}, alerts={"Hot": {"firing": 1}}, batches=1
        )
        second = Tally(
            rows={"air": 2},
            counts={"air": {"received": 2, "retained": 1, "quarantined": 1}},
            dead={"air": 1},
            batches=1,
        )
        log = run.progress()
        log.add(Progress(0, "2026-01-01T00:00:00.000000Z", first, first))
        log.add(Progress(1, "2026-01-01T00:00:01.000000Z", second, first.plus(second)))
