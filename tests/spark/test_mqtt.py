"""MQTT as a source of Spark: offsets replay, and nothing is lost at QoS 1 through kills of either side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from servers import Mosquitto, need_mosquitto
from spark.child import batches, kill, tail, wait_until
from spark.test_kafka_source import finish, rows, start_job
from spark.test_mqtt_client import publish
from tocsin.errors import PlanError
from tocsin.rules.rulefile import Source, Stream, Value
from tocsin.rules.secret import Secret
from tocsin.spark.sources.mqtt_spool import Message, SpoolReader, SpoolWriter

pytestmark = pytest.mark.spark


def payloads(first: int, stop: int) -> list[bytes]:
    made = (
        {"machine": f"m{number % 5}", "ts": 1_767_225_600_000_000 + number, "value": number}
        for number in range(first, stop)
    )
    return [b"nonsense" if number % 10 == 0 else json.dumps(row).encode() for number, row in enumerate(made)]


def stream(**options: Any) -> Stream:
    keys = options.pop("keys", ("machine",))
    given = {"host": "127.0.0.1", "topic": "plant/#", **options}
    return Stream("air", Source("mqtt", given), keys, values={"value": Value("value")})


@pytest.mark.slow
def test_nothing_is_lost_when_job_and_broker_are_killed_and_restarted(mosquitto: Mosquitto, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    job = {"kind": "mqtt", "options": {"host": "127.0.0.1", "port": mosquitto.port, "topic": "plant/#"}}
    process = start_job(folder, **job)
    try:
        assert wait_until((folder / "spool/air/lock").exists, process), tail(folder / "log")
        # The first message is taken by the session once it is subscribed.
        while SpoolReader(folder / "spool/air").span()[1] == 0:
            publish(mosquitto, b'{"machine":"first"}')
        for first in range(0, 1_000, 100):
            publish(mosquitto, *payloads(first, first + 100))
        assert wait_until(lambda: batches(folder, "commits") >= 1, process), tail(folder / "log")
        publish(mosquitto, *payloads(1_000, 1_500))
    finally:
        kill(process)
    publish(mosquitto, *payloads(1_500, 2_000))
    mosquitto.stop()
    mosquitto.start()
    finish(folder, **job)
    found = rows(folder)
    good = [int(row["value"]) for row in found if row["_tocsin_reason"] is None]
    # Messages that come again are rows that are there twice, and change nothing.
    assert set(good) == {number for number in range(2_000) if number % 10}
    assert sum(row["_tocsin_reason"] is not None for row in found) >= 200
    assert all(row["_tocsin_arrival"] is not None for row in found)


def test_two_readers_of_one_stream_share_a_spool(spark: Any, mosquitto: Mosquitto, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    from tocsin.spark.sources.registry import read

    writer = SpoolWriter(tmp_path / "spool/air")
    writer.append([Message(number, b"plant/a", payload, 1) for number, payload in enumerate(payloads(0, 50))])
    writer.close()
    frame = read(spark, stream(port=mosquitto.port), streaming=True, run_dir=tmp_path)
    both = frame.withColumn("reader", F.lit(1)).union(frame.withColumn("reader", F.lit(2)))
    query = both.writeStream.format("memory").queryName("both").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination(120)
    found = spark.table("both").groupBy("reader").count().collect()
    assert sorted((row.reader, row["count"]) for row in found) == [(1, 50), (2, 50)]


def test_a_bounded_read_gives_what_the_spool_holds(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.sources.registry import read

    pytest.importorskip("paho.mqtt", reason="needs paho-mqtt: install tocsin[mqtt]")
    writer = SpoolWriter(tmp_path / "s")
    long = b'{"ts":2,"value":2}'
    given = [
        (b"plant/m1", b'{"ts":1,"value":1}', 18),
        (b"plant/m2", long, 2 << 20),
        (b"plant/m3", b'{"topic":"t","ts":3,"value":3}', 30),
        (b"plant/m4", b'{"ts":4,"value":DAMAGED}', 24),
        (b"plant/m5", b'{"ts":5,"value":5}', 18),
    ]
    writer.append([Message(7 + number, *message) for number, message in enumerate(given)])
    writer.close()
    segment = tmp_path / "s/spool.db"
    segment.write_bytes(segment.read_bytes().replace(b"DAMAGED", b"damaged"))
    found = read(spark, stream(spool=str(tmp_path / "s"), keys=("topic",)), streaming=False).collect()
    assert [(row.topic, row["_tocsin_arrival"], row["_tocsin_reason"]) for row in found] == [
        ("plant/m1", 7, None),
        ("plant/m2", 8, "the payload has more than 1,048,576 bytes"),
        ("t", 9, None),
        ("", None, "the message was damaged in the spool"),
        ("plant/m5", 11, None),
    ]


def test_a_stream_needs_a_folder_for_its_spool(spark: Any) -> None:
    from tocsin.spark.sources.registry import read

    with pytest.raises(
        PlanError, match="stream `air`: source mqtt needs a run directory, or `spool`, a directory for messages"
    ):
        read(spark, stream(), streaming=True)


@pytest.mark.slow
def test_a_wrong_password_ends_the_query_and_is_not_shown(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    from tocsin.spark.sources.registry import read

    need_mosquitto()
    server = Mosquitto(tmp_path / "mosquitto", login=("bell", "right"))
    server.start()
    try:
        login = {"username": Secret("bell"), "password": Secret("hunter2")}
        frame = read(spark, stream(port=server.port, **login), streaming=True, run_dir=tmp_path)
        assert "hunter2" not in frame._jdf.queryExecution().toString()
        query = (
            frame.writeStream.format("memory").queryName("refused").option("checkpointLocation", str(tmp_path / "c"))
        )
        with pytest.raises(StreamingQueryException, match="the broker rejected the login: Not authorized") as told:
            query.start().awaitTermination(60)
        assert "hunter2" not in str(told.value)
    finally:
        server.kill()


@pytest.mark.slow
def test_a_spool_that_was_lost_is_told(spark: Any, mosquitto: Mosquitto, tmp_path: Path) -> None:
    import shutil

    from pyspark.errors import StreamingQueryException

    from tocsin.spark.sources.registry import read

    writer = SpoolWriter(tmp_path / "spool/air")
    writer.append([Message(number, b"plant/a", payload, 1) for number, payload in enumerate(payloads(0, 5))])
    writer.close()

    def once() -> None:
        frame = read(spark, stream(port=mosquitto.port), streaming=True, run_dir=tmp_path)
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination(120)

    once()
    shutil.rmtree(tmp_path / "spool")
    with pytest.raises(StreamingQueryException, match="message 5, where the checkpoint continues, is missing"):
        once()
