"""A run lets its buckets agree on a wait: both have the same in the end, though the run was stopped in between."""

from __future__ import annotations

import json
import os
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rule_files import load_file
from tocsin.hashing import assign_buckets
from tocsin.run_directory import Progress
from tocsin.runtime.state_codec import unpack

pytestmark = pytest.mark.spark

SECOND, START = 1_000_000, 1_700_000_000_000_000
KEYS, SECONDS, FILES = 8, 60, 8
RULES = """\
streams:
  a: {source: {json: {path: in/a, max_files_per_batch: 1}}, keys: [machine], arrival: at}
  b: {source: {json: {path: in/b, max_files_per_batch: 1}}, keys: [machine], arrival: at}
groups:
  - name: plant
    rules:
      - alert: Far
        expr: a - b > 2
        within: 1s
        on: [machine]
        quality: {recall: 0.9, period: 10s, in_order: true}
"""


def write(folder: Path) -> None:
    """Write streams in order of arrival; keys of bucket 1 are late by more than those of bucket 0."""
    names = [f"m{key}" for key in range(KEYS)]
    slow = assign_buckets(("machine",), names, 2)
    assert set(slow) == {0, 1}
    random = np.random.default_rng(1)
    for name in "ab":
        rows = 10 * KEYS * SECONDS
        at, key = np.sort(random.integers(0, SECONDS * SECOND, rows)), random.integers(0, KEYS, rows)
        delay = (random.random(rows) < 0.2) * random.integers(0, SECOND, rows) * (1 + 4 * slow[key])
        value = random.normal(0, 1, rows).round(2)
        (folder / "in" / name).mkdir(parents=True)
        for number in range(FILES):
            path = folder / "in" / name / f"{number:03}.jsonl"
            mine = np.flatnonzero(at * FILES // (SECONDS * SECOND) == number).tolist()
            told = [(names[key[i]], START + int(at[i] - delay[i]), START + int(at[i]), value[i]) for i in mine]
            lines = [json.dumps(dict(zip(("machine", "ts", "at", "value"), row, strict=True))) for row in told]
            path.write_text("\n".join(lines) + "\n")
            os.utime(path, (START // SECOND + number,) * 2)  # Spark takes files in order of this time.


def run_until(session: Any, folder: Path, batch: int) -> Any:
    """Run as a service does, until a micro-batch is done."""
    from tocsin.spark.run import Options, run

    stop = threading.Event()

    def report(progress: Progress) -> None:
        if progress.batch >= batch:
            stop.set()

    options = Options(folder / "run", interval_s=0.05, master="local[2]", buckets=2)
    return run(load_file(folder / "rules.yaml"), options, stop, report, sessions=lambda: nullcontext(session))


def paces(session: Any, folder: Path) -> list[dict[str, Any]]:
    """What the state of each bucket says of its wait."""
    reader = session.read.format("statestore").option("stateVarName", "pages")
    rows = reader.load(str(folder / "run" / "checkpoint")).collect()
    pages = {(row["key"][0], row["user_map_key"][0]): bytes(row["user_map_value"][0]) for row in rows}
    return [unpack(page)[0] for (_, name), page in sorted(pages.items()) if name.endswith("/pace")]


def test_buckets_of_a_run_come_to_one_wait_and_keep_it_over_a_restart(spark: Any, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "rules.yaml").write_text(RULES)
    assert run_until(spark, tmp_path, FILES // 2).stopped
    middle = paces(spark, tmp_path)
    assert [len(pace["agreed"]) for pace in middle] == [1, 1]
    # The statistics of the first start are gone, and those of this one do not reach over P: what was agreed on stays.
    run_until(spark, tmp_path, FILES // 2 + 1)
    assert len({int(pace["agreed"][0]) for pace in paces(spark, tmp_path)}) == 1
    ended = run_until(spark, tmp_path, FILES - 1)
    last = paces(spark, tmp_path)
    waits, agreed = ({int(pace[name][0]) for pace in last} for name in ("wait.wait", "agreed"))
    assert len(waits) == 1
    assert waits == agreed
    assert ended.progress.waits["Far"]["wait_us"] in waits
    read = {path.name for path in (tmp_path / "run" / "control").iterdir()}
    assert len(read) <= 2, "files that were read go away"
