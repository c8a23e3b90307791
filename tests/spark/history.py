"""A folder with a rule file and recordings of two streams, for tests that look at history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RULES = """\
streams:
  air:
    source: {{json: {{path: data/air}}}}
    keys: [site, machine]
    arrival: arrived
    time_unit: s
    values: {{temp: }}
  surface:
    source: {{json: {{path: {surface}}}}}
    keys: [site, machine]
    arrival: arrived
    time_unit: s
groups:
  - name: halls
    rules:
      - alert: Warm
        expr: air - surface > {threshold}
        within: 5m
        on: [machine]
        keep_firing_for: 2m
        shapes: {{air: increasing, surface: decreasing}}
        labels: {{team: hvac}}
        annotations: {{summary: "{{{{ $labels.machine }}}}: {{{{ $value }}}}"}}
      - alert: Hot
        expr: air > 30
        on: [machine]
        stale: 10m
"""
HOSTILE = "<b onload='x'>m2</b>"
MACHINES = ("m1", HOSTILE)
BROKEN = ['{"site":"s","machine":"m1","ts":"soon","temp":1}', "nonsense"]


def write(folder: Path, *, name: str = "rules.yaml", threshold: float = 5, surface: str = "data/surface") -> Path:
    """Write a rule file; the recordings too, if they are not there."""
    path = folder / name
    path.write_text(RULES.format(threshold=threshold, surface=surface))
    if not (folder / "data").exists():
        (folder / "data").mkdir()
        _write(folder / "data" / "air", "temp", BROKEN)
        _write(folder / "data" / "surface", "value", [])
    return path


def _write(folder: Path, column: str, broken: list[str]) -> None:
    folder.mkdir()
    lines = [json.dumps({**row, column: row["v"]} | {"v": None}) for row in rows(column)]
    (folder / "rows.json").write_text("\n".join([*lines, *broken]) + "\n")


def rows(column: str) -> list[dict[str, Any]]:
    """Two hours of readings a minute: air is warm for a while; m1 is silent for a time; one reading is a day late."""
    found = []
    for machine in MACHINES:
        for minute in range(120):
            if machine == "m1" and column == "value" and 80 <= minute < 100:
                continue
            value = 10.0 + (minute % 7) / 10 if column == "value" else 12.0 - (minute % 5) / 10
            value += 6.0 * (column == "temp" and 30 <= minute < 50)
            found.append(_row(machine, minute, value))
    if column == "temp":
        found.append(_row("m1", -1440, 20.0) | {"arrived": 7200})
    return found


def _row(machine: str, minute: int, value: float) -> dict[str, Any]:
    return {"site": "s", "machine": machine, "ts": 60 * minute, "arrived": 60 * minute, "v": value}
