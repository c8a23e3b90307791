"""A run of many rules of one stream whose processor time is limited: killed and taken up again, it finds the same.

The yardstick is the same plan in this process, bucket by bucket, with the calibration that the run has kept.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rule_files import load_file
from spark.child import kill, start, tail, wait_until
from spark.test_run import command
from spark.test_run_cpu import found
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

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECOND, START = 1_000_000, 1_700_000_000_000_000
SECONDS, FILES, PER_SECOND, KEYS = 24, 6, 200, 20
BANDS = "".join(
    f"      - {{alert: Band{i}, expr: 'a > {i / 4 - 2} and a < {i / 4 - 1.5}', on: [item], emit: all}}\n"
    for i in range(16)
)
RULES = f"""\
quality: {{cpu: 0.3%, deadline: 4s}}
streams:
  a: {{source: {{json: {{path: in, max_files_per_batch: 1}}}}, keys: [item]}}
groups:
  - name: many
    rules:
{BANDS}\
      - {{alert: Wide, expr: a * a > 4, on: [item], emit: all}}
"""


def write(folder: Path) -> dict[str, Any]:
    """Write the rules and some files in order of time; gives all rows."""
    (folder / "rules.yaml").write_text(RULES)
    (folder / "in").mkdir()
    draw, rows = np.random.default_rng(1), PER_SECOND * SECONDS
    at = np.sort(draw.integers(0, SECONDS * SECOND, rows))
    items = np.array([f"item-{key}" for key in draw.integers(0, KEYS, rows).tolist()], dtype=object)
    whole = {"item": items, "ts": START + at, "value": draw.normal(0, 1, rows).round(2)}
    for number in range(FILES):
        mine = np.flatnonzero(at * FILES // (SECONDS * SECOND) == number)
        lines = zip(*(column[mine].tolist() for column in whole.values()), strict=True)
        path = folder / "in" / f"{number:03}.jsonl"
        path.write_text("".join(json.dumps(dict(zip(whole, line, strict=True))) + "\n" for line in lines))
        os.utime(path, (START // SECOND + number,) * 2)  # Spark takes files in order of this time.
    return whole


def expected(folder: Path, whole: dict[str, Any]) -> Out:
    """What two buckets give that take all rows at once: no cut into micro-batches shows."""
    manifest, out = read_manifest(folder / "run"), Out()
    assert manifest is not None
    assert manifest.unit_ns is not None
    plan = plan_file(load_file(folder / "rules.yaml")).over(2).calibrated(manifest.unit_ns)
    (watch,) = plan.watches
    bucket = assign_buckets(("item",), whole["item"].tolist(), 2)
    for number in range(2):
        mine = {{"ts": TIME}.get(name, name): column[bucket == number] for name, column in whole.items()}
        mine[ARRIVAL] = mine[TIME]
        out.add(Session(plan).push(local._batches(0, watch, {"a": mine}, TIME, ARRIVAL)))
    return out


def test_a_run_that_was_killed_finds_what_its_units_buy_each_result_once(tmp_path: Path) -> None:
    whole, log = write(tmp_path), tmp_path / "log"
    once = [*command(tmp_path, "--once", "--json"), "--buckets", "2"]
    first = start(once, log)
    try:
        assert wait_until(lambda: len(read_progress(tmp_path / "run")) >= 2, first), tail(log)
    finally:
        kill(first)
    assert read_progress(tmp_path / "run")[-1].batch < FILES - 1
    second = subprocess.run(once, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    wanted = expected(tmp_path, whole)
    assert found(alert for _, alert in AlertLog(tmp_path / "run" / "alerts").read()) == found(wanted.alert_rows())
    assert len({row["alert"] for row in wanted.alert_rows()}) > 10
    assert "subset" in {row["quality"].split()[0] for row in wanted.alert_rows()}
    last = read_progress(tmp_path / "run")[-1]
    counts = last.total.counts["a"]
    assert counts["unprocessed"] == wanted.counts["a"]["unprocessed"] > 0
    assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES) == PER_SECOND * SECONDS
    assert set(last.cpu) == {"Wide", *(f"Band{i}" for i in range(16))}
    assert all(share is not None and 0 <= share < 1 for share in last.cpu["Wide"].values())
    assert "`Wide` processed " in second.stderr
