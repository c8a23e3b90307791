"""A run whose memory is limited: its state never exceeds it, buckets get it by demand, a restart changes nothing.

The rows of one bucket have hundreds of keys, those of the other one: an even division would starve the first.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.spark.child import kill, start, tail, wait_until
from tests.spark.test_backtest import told
from tests.spark.test_run import command
from tests.spark.test_run_kafka import begun
from tests.spark.test_run_shared_wait import run_until
from tocsin import Rule, local
from tocsin.cli.main import main
from tocsin.columns import EPOCH
from tocsin.delivery import AlertLog
from tocsin.hashing import assign_buckets
from tocsin.plan import found_text
from tocsin.run_directory import read_progress
from tocsin.run_directory.progress import read_memory_results

pytestmark = pytest.mark.spark

SECOND, START = 1_000_000, 1_700_000_000_000_000
SECONDS, FILES, PER_SECOND = 40, 7, 300
MEMORY = 200_000
RULES = f"""\
quality: {{memory: {MEMORY}}}
streams:
  a: {{source: {{json: {{path: in/a, max_files_per_batch: 1}}}}, keys: [item]}}
  b: {{source: {{json: {{path: in/b, max_files_per_batch: 1}}}}, keys: [item]}}
groups:
  - name: shop
    rules:
      - {{alert: Pair, expr: a + b > 2.5, within: 10s, on: [item], emit: all, allowed_lateness: 0s}}
"""


def write(folder: Path, per_second: int = PER_SECOND) -> None:
    """Write streams in order of time: 9 of 10 rows are of many keys of bucket 1, the rest of one key of bucket 0."""
    names = [f"item-{key}" for key in range(900)]
    bucket = assign_buckets(("item",), names, 2)
    many, one = np.flatnonzero(bucket == 1), int(np.flatnonzero(bucket == 0)[0])
    draw = np.random.default_rng(1)
    for name in "ab":
        rows = per_second * SECONDS
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


def test_memory_is_kept_to_and_follows_demand_through_a_restart(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    (tmp_path / "rules.yaml").write_text(RULES)
    run_until(spark, tmp_path, FILES // 2)
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
    share = last.total.section("shares")["Pair"]
    assert share <= MEMORY
    assert main(["explain", str(tmp_path / "rules.yaml"), "Pair", "--run-dir", str(tmp_path / "run")]) == 0
    found = found_text(last.memory["Pair"])
    assert f"  Pair: share {share:,} bytes; {found}\n" in capsys.readouterr().out
    files = sorted((tmp_path / "run" / "alerts").rglob("*.jsonl"))
    log = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert {row["quality"].split()[0] for row in log} == {"exact", "subset"}
    assert len({(row["id"], json.dumps(row["witness"])) for row in log}) == len(log)


def test_a_backtest_says_what_its_memory_finds(spark: Any, tmp_path: Path) -> None:
    # The number of pairs grows with the square of the rows.
    write(tmp_path, PER_SECOND // 2)
    sampled = (
        "\n      - {alert: Some, expr: a + b > 2.5, within: 10s, on: [item], emit: all, quality: {prefer: sample}}\n"
    )
    limited, free = tmp_path / "limited.yaml", tmp_path / "free.yaml"
    limited.write_text(RULES.replace("200000", "300000").rstrip() + sampled)
    free.write_text(RULES.partition("\n")[2])
    found = told(limited, "--against", free, "--run-dir", tmp_path / "run", "--report", tmp_path / "report.html")
    pair, some = found["memory"]
    assert (pair["alert"], pair["memory"]) == ("Pair", "150KB")
    (mine, _), (whole,) = (side["rules"] for side in (found, found["against"]))
    # What was measured on a few rows is the share of the alerts that were found, of those that there are.
    assert pair["reached"] == pytest.approx(mine["alerts"] / whole["alerts"], abs=0.1)
    assert pair["error_reached"] is None
    assert 0 < some["error_reached"] < 1
    assert found["against"]["memory"] == []
    assert sum(part.get("shed", 0) for part in found["streams"].values()) > 0
    text = (tmp_path / "report.html").read_text()
    assert "Recall under memory budgets" in text
    assert f"<td>{pair['reached']:.3g}</td>" in text
    assert read_memory_results(tmp_path / "run")["Pair"][1]["reached"] == pair["reached"]


def exact(folder: Path) -> Counter[str]:
    """The alerts of the same rule with unlimited memory, as `witness` has them."""
    columns: dict[str, dict[str, Any]] = {}
    for name in "ab":
        files = sorted((folder / "in" / name).glob("*.jsonl"))
        rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        columns[name] = {field: np.array([row[field] for row in rows]) for field in ("ts", "value")}
        columns[name]["item"] = np.array([row["item"] for row in rows], dtype=object)
    rule = Rule("Pair", "a + b > 2.5", within="10s", on="item", emit="all", allowed_lateness="0s")
    return Counter(named(row) for row in local.run_local_detailed(columns, rule).alerts)


def named(row: Mapping[str, Any]) -> str:
    """A pair by its item, and its rows by stream, time in microseconds and value; in the log times are texts."""
    parts = []
    for part in row["witness"]:
        time = datetime.fromisoformat(part["time"]) if isinstance(part["time"], str) else part["time"]
        parts.append((part["stream"], (time - EPOCH) // timedelta(microseconds=1), *part["values"].values()))
    return str((row["labels"]["item"], sorted(parts)))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_is_kept_to_and_nothing_is_found_twice_through_kills_and_other_numbers_of_cores(
    spark: Any, tmp_path: Path
) -> None:
    write(tmp_path)
    (tmp_path / "rules.yaml").write_text(RULES)
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # pytest shows it when the test fails
    draw, log = random.Random(seed), tmp_path / "log"
    assert not spark.streams.active  # Only a session that was asked for its streams can read the state of one.
    for cores in (1, 3):
        goal = begun(tmp_path) + draw.randint(1, 2)
        process = start(command(tmp_path, "--interval", "100ms", "--buckets", "2", "--master", f"local[{cores}]"), log)
        try:
            assert wait_until(lambda goal=goal: begun(tmp_path) >= goal, process, 250), tail(log)
            time.sleep(draw.uniform(0.0, 1.0))
        finally:
            kill(process)
        done = read_progress(tmp_path / "run")
        assert not done or done[-1].batch < FILES - 1, "the kill came after the end of the input"
        assert not done or sum(sizes(spark, tmp_path)) <= MEMORY
    once = subprocess.run(command(tmp_path, "--once", "--buckets", "2"), capture_output=True, text=True, check=False)
    assert once.returncode == 0, once.stderr
    assert sum(sizes(spark, tmp_path)) <= MEMORY
    progress = read_progress(tmp_path / "run")
    assert max(one.total.state_bytes for one in progress) <= MEMORY
    assert sum(progress[-1].total.rows.values()) == 2 * PER_SECOND * SECONDS
    assert sum(counts.get("shed", 0) for counts in progress[-1].total.counts.values()) > 0
    found = Counter(named(row) for _, row in AlertLog(tmp_path / "run" / "alerts").read())
    whole = exact(tmp_path)
    assert not found - whole
    assert 0.1 < found.total() / whole.total() < 1
