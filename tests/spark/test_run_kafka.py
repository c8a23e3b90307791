"""Kafka → `tocsin run` → alert log, killed at random moments: the alerts are those of an undisturbed run.

`TOCSIN_KILLS=20` kills more often than there is time for in every run of the tests.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import time
from pathlib import Path

import pytest

from loaded import load_file
from servers import Kafka, connector_jars
from spark import plant
from spark.child import kill, start, tail, wait_until
from spark.test_run import alerts, command
from tocsin.rundir import read_progress

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("TOCSIN_KILLS", "2"))
# Rows of ten seconds: both streams go on alike.
ROWS_PER_BATCH = 10 * plant.MACHINES


def write_rules(folder: Path, servers: str) -> None:
    """The rules of the plant, with topics in the place of files, and every row arriving at its own time."""

    def topic(match: re.Match[str]) -> str:
        options = f"options: {{maxOffsetsPerTrigger: '{ROWS_PER_BATCH}'}}"
        return f"kafka: {{servers: '{servers}', topic: plant-{match[1]}, starting: earliest, {options}}}"

    text = re.sub(r"json: \{path: in/(\w+), max_files_per_batch: 1\}", topic, plant.RULES)
    (folder / "rules.yaml").write_text(text.replace("time_unit: s", "time_unit: s\n    arrival: at"))


def produce(servers: str) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for name, rows in plant.readings().items():
        for row in rows:
            producer.produce(f"plant-{name}", json.dumps({**row, "at": row["ts"]}).encode())
    assert producer.flush(30) == 0


def begun(folder: Path) -> int:
    return len(list((folder / "run" / "checkpoint" / "offsets").glob("[0-9]*")))


def test_a_run_killed_at_random_moments_gives_the_alerts_of_an_undisturbed_one(kafka: Kafka, tmp_path: Path) -> None:
    jars = ("--conf", f"spark.jars={connector_jars()}")
    write_rules(tmp_path, kafka.servers)
    produce(kafka.servers)
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # pytest shows it when the test fails
    draw, log = random.Random(seed), tmp_path / "log"
    for _ in range(KILLS):
        goal = begun(tmp_path) + draw.randint(1, 2)
        process = start(command(tmp_path, *jars, "--interval", "100ms"), log)
        try:
            # The moment falls before, into or between the writes of offsets, state, alerts, progress and commit.
            assert wait_until(lambda goal=goal: begun(tmp_path) >= goal, process), tail(log)
            time.sleep(draw.uniform(0.0, 2.0))
        finally:
            kill(process)
    once = subprocess.run(command(tmp_path, *jars, "--once"), capture_output=True, text=True, check=False)
    assert once.returncode == 0, once.stderr
    found = [plant.plain(alert) for alert in alerts(tmp_path, "Warm")]
    assert found == plant.expected(load_file(tmp_path / "rules.yaml"))
    last = read_progress(tmp_path / "run")[-1]
    assert last.total.rows == {name: len(rows) for name, rows in plant.readings().items()}
