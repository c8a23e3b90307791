"""Kafka as a source, on a broker: several partitions, malformed messages, kills and restarts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from servers import Kafka, connector_jars
from spark.child import PATIENCE_S, batches, kill, start, tail, wait_until
from tocsin.rules.secret import Secret
from tocsin.spark.sources.kafka import kafka_options

pytestmark = pytest.mark.spark

BAD = (b"nonsense", b"\xff\xfe", None, b"", b"[1]", b'{"machine":"m"}')


def produce(servers: str, topic: str, first: int, stop: int) -> None:
    """Every seventh message is none that can be used."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(first, stop):
        row = {"machine": f"m{number % 5}", "ts": 1_767_225_600_000_000 + number, "value": number, "site": "x"}
        value = BAD[number // 7 % len(BAD)] if number % 7 == 0 else json.dumps(row).encode()
        producer.produce(topic, value, key=str(number))
    assert producer.flush(30) == 0


def make_topic(servers: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def start_job(folder: Path, **job: Any) -> subprocess.Popen[bytes]:
    (folder / "job.json").write_text(json.dumps(job))
    return start([sys.executable, "-W", "ignore", "-m", "spark.source_job", str(folder)], folder / "log")


def finish(folder: Path, **job: Any) -> None:
    process = start_job(folder, once=True, **job)
    try:
        assert process.wait(PATIENCE_S) == 0, tail(folder / "log")
    finally:
        kill(process)


def rows(folder: Path) -> list[dict[str, Any]]:
    """What was committed to the output, by its own log of files."""
    import pyarrow.parquet as pq

    logs = [path for path in (folder / "out" / "_spark_metadata").glob("*") if not path.name.startswith(".")]
    names = {json.loads(line)["path"] for log in logs for line in log.read_text().splitlines()[1:]}
    return [row for name in sorted(names) for row in pq.read_table(name.removeprefix("file://")).to_pylist()]


@pytest.mark.slow
def test_every_message_is_read_once_through_kills_and_restarts(kafka: Kafka, tmp_path: Path) -> None:
    jars = connector_jars()
    make_topic(kafka.servers, "air", 3)
    began = time.time()
    produce(kafka.servers, "air", 0, 3_000)
    options = {"servers": kafka.servers, "topic": "air", "starting_offsets": "earliest"}
    job = {"kind": "kafka", "jars": jars, "options": {**options, "options": {"maxOffsetsPerTrigger": "200"}}}
    process = start_job(tmp_path, **job)
    try:
        assert wait_until(lambda: batches(tmp_path, "commits") >= 2, process), tail(tmp_path / "log")
    finally:
        kill(process)
    assert batches(tmp_path, "commits") < 15, "the kill came after the end of the input"
    produce(kafka.servers, "air", 3_000, 3_500)
    finish(tmp_path, **job)
    found = rows(tmp_path)
    good = [row for row in found if row["_tocsin_reason"] is None]
    assert sorted(row["value"] for row in good) == [number for number in range(3_500) if number % 7]
    assert {row["_tocsin_payload"] for row in good} == {'{"site":"x"}'}
    assert len(found) == 3_500
    # A row arrived when the broker says.
    assert all(began - 60 < row["_tocsin_arrival"] / 1e6 < time.time() + 60 for row in found)


def test_a_login_becomes_settings_of_kafka() -> None:
    given = {"servers": "h:1", "topic": "t", "username": Secret('be"ll'), "password": Secret("a\\b")}
    told = kafka_options(given, streaming=True)
    assert told["startingOffsets"] == "latest"
    assert (told["kafka.security.protocol"], told["kafka.sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="be\\"ll" password="a\\\\b";'
    assert told["kafka.sasl.jaas.config"] == login
    given["options"] = {"kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.security.protocol": "SASL_PLAINTEXT"}
    told = kafka_options(given, streaming=False)
    assert "scram.ScramLoginModule" in told["kafka.sasl.jaas.config"]
    assert told["kafka.security.protocol"] == "SASL_PLAINTEXT"
    assert "startingOffsets" not in told


def test_spark_hides_what_speaks_of_a_password(spark: Any) -> None:
    """The words by which Spark finds what it must not show are in our options."""
    java = spark._jvm.java.util.HashMap()
    login = {"username": Secret("bell"), "password": Secret("hunter2")}
    for name, value in kafka_options({"servers": "h:1", "topic": "t", **login}, streaming=True).items():
        java.put(name, value)
    conf = spark._jsparkSession.sessionState().conf()
    shown = conf.redactOptions(spark._jvm.PythonUtils.toScalaMap(java)).toString()
    assert "hunter2" not in shown
    assert "redacted" in shown


@pytest.mark.slow
def test_every_fuzzed_message_is_accounted_for(kafka: Kafka, tmp_path: Path) -> None:
    make_topic(kafka.servers, "fuzz", 3)
    rows = ["--rows", "20000", "--seed", str(time.time_ns() % 2**32)]
    where = ["--kinds", "kafka", "--servers", kafka.servers, "--jars", connector_jars()]
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks", "fuzz-sources", *rows, *where]
    process = start([*command, "--json", str(tmp_path / "told")], tmp_path / "log")
    try:
        process.wait(PATIENCE_S)
    finally:
        kill(process)
    assert (tmp_path / "told").exists(), tail(tmp_path / "log")
    (told,) = json.loads((tmp_path / "told").read_text())
    assert told["differences"] == [], rows
    assert told["dead"] + told["usable"] == 20_000
