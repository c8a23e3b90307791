"""Run directories of any size, as a run writes them: rules, alerts with witnesses, lines of progress; from a seed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tocsin.delivery import AlertWriter
from tocsin.delivery.alert_json import format_time
from tocsin.rules.durations import event_text
from tocsin.run_directory import Manifest, Progress, Tally
from tocsin.run_directory.progress import PROGRESS

START_US = 1_767_225_600_000_000  # 2026-01-01
HOUR_US = 3_600_000_000


def make_run(folder: Path, *, alerts: int, rules: int, batches: int = 200, keys: int = 500, seed: int = 1) -> Path:
    """Write a run directory with so many alerts, of which the last hundredth still fire."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"Rule{number:04}" for number in range(rules)]
    _manifest(folder, names)
    changes = _changes(draw, names, alerts, keys)
    writer = AlertWriter(folder / "alerts")
    per_batch = -(-len(changes) // batches)
    total, lines = Tally(), []
    for batch in range(batches):
        mine = changes[batch * per_batch : (batch + 1) * per_batch]
        writer.write(batch, mine)
        gained = _gained(draw, mine)
        total = total.plus(gained)
        done = (START_US + (batch + 1) * 24 * HOUR_US // batches) / 1e6
        newest = {"air": round(done * 1e6) - draw.randrange(900_000), "surface": round(done * 1e6) - 2_000_000}
        total = total.plus(Tally(newest_us=newest, waits={names[0]: {"wait_us": 1_500_000, "recall": 0.97}}))
        lines.append(Progress(batch, format_time(done), gained, total, {"detect": 620, "write": 20}).line())
    (folder / PROGRESS).write_bytes(b"".join(line + b"\n" for line in lines))
    return folder


def _manifest(folder: Path, names: list[str]) -> None:
    proof = {
        "verdict": "increasing",
        "proof": "composition of -; exact in floating point",
        "rounding": 0.0,
        "help": None,
    }
    rules = [
        {
            "alert": name,
            "labels": {"team": f"team-{number % 7}"},
            "condition": f"air - surface > {number % 40}",
            "description": f'Rule "{name}" if air - surface > {number % 40} within 10s (stale 10s)',
            "proofs": {"air": proof, "surface": {**proof, "verdict": "decreasing"}},
            "kind": "threshold",
            "on": ["machine"],
            "streams": ["air", "surface"],
            "retention": {
                "air": "keep the maximum in every 10s window",
                "surface": "keep the minimum in every 10s window",
            },
        }
        for number, name in enumerate(names)
    ]
    stream = {"source": "parquet", "from": "data", "keys": ["machine"], "time": "ts", "values": ["value"]}
    plan = "\n".join(
        ["Pipeline keyed by machine; allowed lateness 6h", *(f"  {rule['description']}" for rule in rules)]
    )
    streams = {"air": stream, "surface": stream}
    started = (format_time(START_US / 1e6),)
    Manifest("rules.yaml", "0" * 64, plan, streams, (), None, 2, 2, {}, started, rules=tuple(rules)).write(folder)


def _changes(draw: random.Random, names: list[str], alerts: int, keys: int) -> list[dict[str, Any]]:
    """Two changes of state for each alert that ended, one for those that fire, by the time at which they came."""
    found: list[tuple[int, dict[str, Any]]] = []
    for number in range(alerts):
        start = START_US + 24 * HOUR_US * number // alerts
        end = start + draw.randrange(1_000_000, HOUR_US // 2)
        row = _row(draw, names, number, start, keys)
        found.append((start, row))
        if number < alerts - alerts // 100:
            found.append((end, {**row, "state": "resolved", "endsAt": event_text(end), "margin": row["margin"] * 1.5}))
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def _row(draw: random.Random, names: list[str], number: int, start: int, keys: int) -> dict[str, Any]:
    air = round(draw.uniform(20, 60), 1)
    machine = f"press-{number % keys:03}-{number // keys}"
    witness = [
        {"stream": "air", "time": event_text(start), "values": {"value": air}, "payload": {"site": "north"}},
        {"stream": "surface", "time": event_text(start - 1_000_000), "values": {"value": 14.0}, "payload": None},
    ]
    return {
        "alert": names[draw.randrange(len(names))],
        "id": f"{number:016x}",
        "state": "firing",
        "labels": {"machine": machine, "team": f"team-{number % 7}"},
        "startsAt": event_text(start),
        "firesAt": event_text(start),
        "endsAt": None,
        "value": air - 14.0,
        "margin": round(air - 20.0, 3),
        "witness": witness,
        "quality": "",
        "annotations": {"summary": f"{machine} is too warm"},
    }


def _gained(draw: random.Random, changes: list[dict[str, Any]]) -> Tally:
    states: dict[str, dict[str, int]] = {}
    for change in changes:
        mine = states.setdefault(change["alert"], {})
        mine[change["state"]] = mine.get(change["state"], 0) + 1
    rows = {name: draw.randrange(90_000, 110_000) for name in ("air", "surface")}
    counts = {
        name: {"received": number, "omitted": number - 1_000, "expired": 900, "retained": 100}
        for name, number in rows.items()
    }
    return Tally(rows=rows, counts=counts, alerts=states, state_bytes=draw.randrange(-2_000, 12_000), batches=1)
