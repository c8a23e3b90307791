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

from rule_files import load_file
from servers import Kafka, connector_jars
from spark import plant
from spark.child import PATIENCE_S, kill, start, tail, wait_until
from spark.test_run import alerts, command
from tocsin.run_directory import read_progress

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("TOCSIN_KILLS", "2"))
# Rows of ten seconds: both streams go on alike.
ROWS_PER_BATCH = 10 * plant.MACHINES


def write_rules(folder: Path, servers: str, prefix: str = "plant") -> None:
    """The rules of the plant, with topics in the place of files, and every row arriving at its own time."""

    def topic(match: re.Match[str]) -> str:
        options = f"options: {{maxOffsetsPerTrigger: '{ROWS_PER_BATCH}'}}"
        return f"kafka: {{servers: '{servers}', topic: {prefix}-{match[1]}, starting_offsets: earliest, {options}}}"

    text = re.sub(r"json: \{path: in/(\w+), max_files_per_batch: 1\}", topic, plant.RULES)
    (folder / "rules.yaml").write_text(text.replace("time_unit: s", "time_unit: s\n    arrival: at"))


def produce(servers: str, prefix: str = "plant") -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for name, rows in plant.readings().items():
        for row in rows:
            producer.produce(f"{prefix}-{name}", json.dumps({**row, "at": row["ts"]}).encode())
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


def test_run_waits_and_starts_its_query_again_when_the_broker_is_down(kafka: Kafka, tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_rules(tmp_path, kafka.servers, "away")
    rules = (tmp_path / "rules.yaml").read_text()
    # Spark fails a query after three tries of this time, a minute each by default.
    short = "options: {kafka.default.api.timeout.ms: '3000', kafka.request.timeout.ms: '2000', "
    (tmp_path / "rules.yaml").write_text(rules.replace("options: {", short))
    rows = {name: len(found) for name, found in plant.readings().items()}

    def said(text: str) -> bool:
        return text in log.read_text()

    def total() -> dict[str, int]:
        found = read_progress(tmp_path / "run")
        return dict(found[-1].total.rows) if found else {}

    produce(kafka.servers, "away")
    kafka.kill()
    process = start(command(tmp_path, "--conf", f"spark.jars={connector_jars()}", "--interval", "100ms"), log)
    try:
        assert wait_until(lambda: said(f"the kafka broker {kafka.servers} is not reachable; "), process)
        assert not said("streams are open")
        kafka.start()
        assert wait_until(lambda: len(read_progress(tmp_path / "run")) >= 2, process), tail(log)
        assert total() != rows
        kafka.kill()
        assert wait_until(lambda: said("the query failed while a Kafka broker is down: "), process), tail(log)
        kafka.start()
        assert wait_until(lambda: said("the query is started again"), process), tail(log)
        assert wait_until(lambda: total() == rows, process), tail(log)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, tail(log)
    finally:
        kill(process)
    once = subprocess.run(
        command(tmp_path, "--conf", f"spark.jars={connector_jars()}", "--once"), capture_output=True, check=False
    )
    assert once.returncode == 0
    assert [plant.plain(alert) for alert in alerts(tmp_path, "Warm")] == plant.expected(
        load_file(tmp_path / "rules.yaml")
    )
