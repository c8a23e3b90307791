"""A run whose memory is limited: its state never exceeds it, buckets get it by demand, a restart changes nothing.

The rows of one bucket have hundreds of keys, those of the other one: an even division would starve the first.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.spark.test_run_shared_wait import run_until
from tocsin.rundir import read_progress
from tocsin.spark.buckets import buckets_of

pytestmark = pytest.mark.spark

SECOND, START = 1_000_000, 1_700_000_000_000_000
SECONDS, FILES, PER_SECOND = 40, 10, 300
MEMORY = 200_000
RULES = f"""\
memory: {MEMORY}
streams:
  a: {{source: {{json: {{path: in/a, max_files_per_batch: 1}}}}, keys: [item]}}
  b: {{source: {{json: {{path: in/b, max_files_per_batch: 1}}}}, keys: [item]}}
groups:
  - name: shop
    rules:
      - {{alert: Pair, expr: a + b > 2.5, within: 10s, on: [item], emit: all, outage: 0s}}
"""


def write(folder: Path) -> None:
    """Write streams in order of time: 9 of 10 rows are of many keys of bucket 1, the rest of one key of bucket 0."""
    names = [f"item-{key}" for key in range(900)]
    bucket = np.array(buckets_of(("item",), names, 2))
    many, one = np.flatnonzero(bucket == 1), int(np.flatnonzero(bucket == 0)[0])
    draw = np.random.default_rng(1)
    for name in "ab":
        rows = PER_SECOND * SECONDS
        at = np.sort(draw.integers(0, SECONDS * SECOND, rows))
        key = np.where(draw.random(rows) < 0.1, one, draw.choice(many, rows))
        value = draw.normal(0, 1, rows).round(2)
        (folder / "in" / name).mkdir(parents=True)
        for number in range(FILES):
            path = folder / "in" / name / f"{number:03}.jsonl"
            mine = np.flatnonzero(at * FILES // (SECONDS * SECOND) == number).tolist()
            lines = [json.dumps({"item": names[key[i]], "ts": START + int(at[i]), "value": value[i]}) for i in mine]
            path.write_text("\n".join(lines) + "\n")
            os.utime(path, (START // SECOND + number,) * 2)  # Spark takes files in order of this time.


def pages(session: Any, folder: Path) -> dict[int, dict[str, bytes]]:
    """The state of each bucket."""
    reader = session.read.format("statestore").option("stateVarName", "pages")
    found: dict[int, dict[str, bytes]] = {}
    for row in reader.load(str(folder / "run" / "checkpoint")).collect():
        found.setdefault(row["key"][0], {})[row["user_map_key"][0]] = bytes(row["user_map_value"][0])
    return found


def sizes(session: Any, folder: Path) -> list[int]:
    return sorted(
        sum(len(page) for name, page in mine.items() if name != "head") for mine in pages(session, folder).values()
    )


def test_memory_is_kept_to_and_follows_demand_through_a_restart(spark: Any, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "rules.yaml").write_text(RULES)
    run_until(spark, tmp_path, 4)
    assert sum(sizes(spark, tmp_path)) <= MEMORY
    run_until(spark, tmp_path, FILES - 1)
    progress = read_progress(tmp_path / "run")
    assert max(one.total.state_bytes for one in progress) <= MEMORY
    small, large = sizes(spark, tmp_path)
    assert small + large <= MEMORY
    assert large > 1.2 * MEMORY / 2, "the bucket with many keys has more than an even share"
    last = progress[-1]
    shed = sum(counts.get("shed", 0) for counts in last.total.counts.values())
    received = sum(last.total.rows.values())
    assert received == 2 * PER_SECOND * SECONDS
    assert 0 < shed < received
    assert "Pair" in last.memory
    files = sorted((tmp_path / "run" / "alerts").rglob("*.jsonl"))
    log = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert {row["quality"].split()[0] for row in log} == {"exact", "subset"}
    assert len({(row["id"], json.dumps(row["witness"])) for row in log}) == len(log)
