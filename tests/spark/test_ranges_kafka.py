"""Requests and rows through topics of Kafka: what is asked for between two runs holds from then on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from servers import Kafka, connector_jars
from spark.test_ranges import Row, expected
from spark.test_ranges_run import AGAIN, ASKED, SOLD, STREAMS, alerts, usable, wanted
from spark.test_run import command
from tocsin.run_directory import read_progress

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def produce(servers: str, rows: Sequence[tuple[str, Row]]) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for stream, row in rows:
        cells = {name: cell for name, cell in row.items() if cell is not None}
        producer.produce(f"desk-{stream}", json.dumps(cells).encode())
    assert producer.flush(30) == 0


def test_requests_come_by_topic_and_hold_over_runs(kafka: Kafka, tmp_path: Path) -> None:
    topic = rf"kafka: {{servers: '{kafka.servers}', topic: desk-\1, starting_offsets: earliest}}"
    text = re.sub(r"json: \{path: in/(\w+), max_files_per_batch: 1\}", topic, STREAMS + SOLD + AGAIN)
    (tmp_path / "rules.yaml").write_text(text)
    rows = usable()
    for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        produce(kafka.servers, part)
        jars = ("--conf", f"spark.jars={connector_jars()}")
        once = subprocess.run(command(tmp_path, *jars, "--once"), capture_output=True, text=True, check=False)
        assert once.returncode == 0, once.stderr
    for rule in ("Sold", "Again"):
        assert alerts(tmp_path, rule) == wanted(rows, rule)
    counts = read_progress(tmp_path / "run")[-1].total.counts["orders"]
    assert counts["retained"] == sum(expected(rows, *ASKED[rule]).alive for rule in ("Sold", "Again"))
