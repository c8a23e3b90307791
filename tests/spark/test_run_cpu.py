"""Run with a CPU budget: after a stop and a restart it finds the results that its units cover, each of them once.

The yardstick is the same plan in this process, bucket by bucket, with the calibration that the run has kept.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rule_files import load_file
from spark.test_run_shared_wait import run_until
from tocsin import local
from tocsin.delivery import AlertLog
from tocsin.hashing import assign_buckets
from tocsin.plan.file import plan_file
from tocsin.run_directory import read_manifest, read_progress
from tocsin.runtime.contract import Out
from tocsin.runtime.metrics import OUTCOMES
from tocsin.runtime.session import Session

# Columns of the event time and the arrival, which no stream has.
TIME, ARRIVAL = " time", " arrival"

pytestmark = pytest.mark.spark

SECOND, START = 1_000_000, 1_700_000_000_000_000
SECONDS, FILES, PER_SECOND, KEYS = 40, 4, 150, 60
COLUMNS = ("item", "ts", "value")
RULES = """\
quality: {cpu: 1.5%}
streams:
  a: {source: {json: {path: in/a, max_files_per_batch: 1}}, keys: [item]}
  b: {source: {json: {path: in/b, max_files_per_batch: 1}}, keys: [item]}
groups:
  - name: shop
    rules:
      - {alert: Pair, expr: a + b > 1.5, within: 3s, on: [item], emit: all}
      - {alert: Apart, expr: a - b > 2, within: 2s, on: [item], emit: all}
"""

Columns = dict[str, dict[str, Any]]


def files() -> list[Columns]:
    """The rows of each file, in order of time; keys are Zipf."""
    draw, parts = np.random.default_rng(1), [Columns() for _ in range(FILES)]
    chance = 1 / np.arange(1, KEYS + 1)
    for name in "ab":
        rows = PER_SECOND * SECONDS
        at = np.sort(draw.integers(0, SECONDS * SECOND, rows))
        key = draw.choice(KEYS, rows, p=chance / chance.sum())
        value = draw.normal(0, 1, rows).round(2)
        for number, part in enumerate(parts):
            mine = np.flatnonzero(at * FILES // (SECONDS * SECOND) == number)
            items = np.array([f"item-{key}" for key in key[mine].tolist()], dtype=object)
            part[name] = {"item": items, "ts": START + at[mine], "value": value[mine]}
    return parts


def write(folder: Path) -> None:
    (folder / "rules.yaml").write_text(RULES)
    for number, part in enumerate(files()):
        for name, columns in part.items():
            path = folder / "in" / name / f"{number:03}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = zip(*(column.tolist() for column in columns.values()), strict=True)
            path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
            os.utime(path, (START // SECOND + number,) * 2)  # Spark takes files in order of this time.


def taken(folder: Path) -> list[Columns]:
    """The rows of each micro-batch: a kill may leave one stream a file ahead of the other."""
    whole = {name: {c: np.concatenate([part[name][c] for part in files()]) for c in COLUMNS} for name in "ab"}
    parts, begin = [], dict.fromkeys(whole, 0)
    for line in read_progress(folder / "run"):
        end = {name: begin[name] + line.gained.rows.get(name, 0) for name in whole}
        parts.append({n: {c: v[begin[n] : end[n]] for c, v in table.items()} for n, table in whole.items()})
        begin = end
    assert begin == dict.fromkeys(whole, PER_SECOND * SECONDS)
    return parts


def expected(folder: Path) -> Out:
    """What two buckets give that take the micro-batches one after the other."""
    manifest, whole = read_manifest(folder / "run"), Out()
    assert manifest is not None
    assert manifest.unit_ns is not None
    plan = plan_file(load_file(folder / "rules.yaml")).over(2).calibrated(manifest.unit_ns)
    (watch,) = plan.watches
    for bucket in range(2):
        session = Session(plan)
        for part in taken(folder):
            mine: Columns = {}
            for name, columns in part.items():
                here = assign_buckets(("item",), columns["item"].tolist(), 2) == bucket
                renamed = {"ts": TIME}
                mine[name] = {renamed.get(column, column): values[here] for column, values in columns.items()}
                mine[name][ARRIVAL] = mine[name][TIME]
            whole.add(session.push(local._batches(0, watch, mine, TIME, ARRIVAL)))
    return whole


def found(alerts: Any) -> Counter[Any]:
    return Counter((row["alert"], row["id"], row["quality"]) for row in alerts)


def test_run_finds_the_results_of_its_units_once_when_it_is_stopped_and_restarted(spark: Any, tmp_path: Path) -> None:
    write(tmp_path)
    stopped = run_until(spark, tmp_path, 1)
    assert stopped.progress.batch < FILES - 1
    run_until(spark, tmp_path, FILES - 1)
    wanted = expected(tmp_path)
    assert found(alert for _, alert in AlertLog(tmp_path / "run" / "alerts").read()) == found(wanted.alert_rows())
    assert {row["alert"] for row in wanted.alert_rows()} == {"Pair", "Apart"}
    assert "subset" in {row["quality"].split()[0] for row in wanted.alert_rows()}
    last = read_progress(tmp_path / "run")[-1]
    for name, counts in last.total.counts.items():
        assert counts["unprocessed"] == wanted.counts[name]["unprocessed"] > 0
        assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES) == PER_SECOND * SECONDS
    assert set(last.cpu) == {"Pair", "Apart"}
    assert all(share is not None and 0 < share < 1 for share in last.cpu["Pair"].values())
