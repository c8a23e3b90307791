"""A small plant for runs: machines with two sensors and a pulse, as files of JSON lines, and what its alerts must be.

Silence never ends `Warm` while a test runs: the input ends with false rows one hour later, and no stream is idle
before two hours. So Spark and the engine in one process raise equal alerts for all batch boundaries, kills and
restarts, also if one stream is a micro-batch ahead of another. `Pulse` ends true: only silence resolves it. `AnyAir` is
never true; it makes a second key set, so that each row of `air` is read twice.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from tocsin import run_local
from tocsin.delivery.alert_json import alert_from_row
from tocsin.rules.rulefile import RuleFile

SECOND = 1_000_000
START = 1_700_000_000
MACHINES, SECONDS, FILES = 3, 60, 4
DEAD = {
    "air": [
        "nonsense",
        '{"machine": "m1", "ts": "soon", "value": 1}',
        '{"machine": null, "ts": 1, "value": 1}',
        "\ufffd",
    ],
    "surface": ['{"machine": "m0", "ts": 1, "value": 1e999}'],
}
RULES = """\
streams:
  air:
    source: {json: {path: in/air, max_files_per_batch: 1}}
    keys: [machine]
    time_unit: s
    idle_timeout: 2h
  surface:
    source: {json: {path: in/surface, max_files_per_batch: 1}}
    keys: [machine]
    time_unit: s
    idle_timeout: 2h
    values: {heat: {domain: [-50, 200]}}
  pulse:
    source: {json: {path: in/pulse, max_files_per_batch: 1}}
    keys: [site, machine]
    time_unit: s
groups:
  - name: plant
    labels: {team: hvac}
    rules:
      - alert: Warm
        expr: air - surface > 5
        within: 2s
        on: [machine]
        keep_firing_for: 3s
        stale: 10m
        allowed_lateness: 2h
        shapes: {air: increasing, surface: decreasing}
        annotations: {summary: "{{ $labels.machine }}: {{ $values.air }} over {{ $values.surface.heat }}"}
      - alert: Pulse
        expr: pulse > 10
        on: [site]
        stale: 2s
      - alert: AnyAir
        expr: air > 100
"""


def readings() -> dict[str, list[dict[str, Any]]]:
    """All rows by stream, in order of time."""
    streams: dict[str, list[dict[str, Any]]] = {"air": [], "surface": [], "pulse": []}
    for second in [*range(SECONDS), 3600 + SECONDS]:
        closing = second >= SECONDS
        for machine in range(MACHINES):
            warm = not closing and (second + 11 * machine) % 20 < 7
            name, time = f"m{machine}", START + second
            air, heat = (0.0, 8.0) if closing else (8.0 + 6.0 * warm + (second % 5) / 4, 5.0 + (second % 7) / 8)
            streams["air"].append({"machine": name, "ts": time, "value": air, "sensor": f"s{second % 2}"})
            streams["surface"].append({"machine": name, "ts": time, "heat": heat})
        if not closing:
            value = 11.0 if second == SECONDS - 1 else 1.0
            streams["pulse"].append({"site": "north", "machine": "m0", "ts": time, "value": value})
    return streams


def write(folder: Path) -> None:
    """Write the rows into as many files per stream as there are to be micro-batches, cut at the same times."""
    for name, rows in readings().items():
        (folder / "in" / name).mkdir(parents=True)
        for number in range(FILES):
            last = number == FILES - 1
            begin, end = START + number * SECONDS // FILES, START + (number + 1) * SECONDS // FILES
            lines = [json.dumps(row) for row in rows if begin <= row["ts"] and (last or row["ts"] < end)]
            if number == 1:
                lines += DEAD.get(name, [])
            path = folder / "in" / name / f"{number:03}.jsonl"
            path.write_text("\n".join(lines) + "\n", "utf-8")
            os.utime(path, (START + number, START + number))  # Spark takes files in order of this time.


def read_batches(checkpoint: Path) -> dict[str, list[int]]:
    """Return the micro-batch that read each file of a stream, from the offsets in Spark's checkpoint."""
    batches: dict[str, list[int]] = {}
    for path in sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        for name, offset in re.findall(r'^(\w+):\{"logOffset":(\d+)\}$', path.read_text(), re.MULTILINE):
            known = batches.setdefault(name, [])
            known += [int(path.name)] * (int(offset) + 1 - len(known))
    return batches


def expected(file: RuleFile, checkpoint: Path | None = None) -> list[dict[str, Any]]:
    """Return the alert log of the engine in one process for `Warm`, without annotations.

    With a checkpoint, rows arrive in its micro-batches. After a kill one stream can be a micro-batch ahead of another;
    an alert then starts at another row of its first combination.
    """
    columns: dict[str, dict[str, Any]] = {}
    batches = None if checkpoint is None else read_batches(checkpoint)
    for name, rows in readings().items():
        columns[name] = {column: np.array([row[column] for row in rows]) for column in rows[0]}
        files = np.minimum((columns[name]["ts"] - START) * FILES // SECONDS, FILES - 1)
        columns[name]["ts"] = columns[name]["ts"] * SECOND
        batch = files if batches is None else np.array(batches[name])[files]
        columns[name]["arrived"] = batch * 10**16 + columns[name]["ts"]
    rules = [rule for rule in file.rules if rule.alert == "Warm"]
    found = run_local(columns, rules, arrival="arrived")
    return [plain(alert_from_row(row)) for row in found]


def plain(alert: dict[str, Any]) -> dict[str, Any]:
    """An alert without what the engine in one process does not give."""
    return {name: value for name, value in alert.items() if name != "annotations"}
