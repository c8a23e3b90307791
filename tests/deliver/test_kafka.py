"""Kafka: first a producer of ours that does as it is told, then a real broker."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deliver.alerts import ManualClock, changes, quick_backoff, row, write_log
from servers import Kafka
from tocsin.deliver import AlertLog, KafkaSink
from tocsin.deliver.clock import CLOCK
from tocsin.deliver.courier import Courier
from tocsin.deliver.encode import encode
from tocsin.deliver.kafka import KafkaChannel, _settings
from tocsin.deliver.ledger import Ledger
from tocsin.deliver.run import Delivery, pump

confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: install tocsin[kafka]")
SINK = KafkaSink("127.0.0.1:9", "alerts")


class Producer:
    """Takes messages and reports as `fate` says: None is an acknowledgement, a name an error, "wait" nothing yet."""

    def __init__(self, fate: Callable[[bytes, int], str | None]) -> None:
        self.fate, self.produced, self.acked = fate, list[bytes](), list[bytes]()
        self.waiting: list[tuple[bytes, Any]] = []
        self.tries: dict[bytes, int] = {}
        self.made = 0
        self.on_error: Any = None

    def __call__(self, settings: dict[str, Any]) -> Producer:
        self.made += 1
        self.on_error = settings["error_cb"]
        return self

    def produce(self, topic: str, value: bytes, key: bytes, *, headers: Any, on_delivery: Any) -> None:
        number = self.tries[key] = self.tries.get(key, 0) + 1
        fate = self.fate(key, number)
        if fate == "full":
            raise BufferError
        if fate == "refuse":
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(10))
        self.produced.append(value)
        self.waiting.append((value, (fate, on_delivery)))

    def poll(self, _seconds: float) -> int:
        ready, self.waiting = self.waiting, []
        for value, (fate, report) in ready:
            if fate == "wait":
                self.waiting.append((value, (None, report)))
            elif fate == "fatal":
                self.on_error(confluent_kafka.KafkaError(-150, "dead", True))
            elif fate is None:
                self.acked.append(value)
                report(None, None)
            else:
                report(confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, fate)), None)
        return len(ready)

    def purge(self) -> None:
        self.waiting = []

    def flush(self, _seconds: float) -> int:
        return 0


def run(folder: Path, producer: Producer, *, ack_s: float = 5.0) -> tuple[Ledger, list[tuple[str, str]]]:
    clock, log = ManualClock(), AlertLog(folder / "alerts")
    ledger = Ledger(folder / "delivery", "kafka", "kafka", clock)
    courier = Courier(log, KafkaChannel(SINK, producer, ack_s), ledger, clock, quick_backoff())
    pump(courier, threading.Event(), clock, drain=True)
    courier.close()
    ledger.close()
    acked = [json.loads(value) for value in producer.acked]
    return ledger, [(alert["id"], alert["state"]) for alert in acked]


BATCH = [row(key=key, start=start) for start in range(2) for key in "abc"]


def test_messages_that_are_acknowledged_are_delivered_in_order(tmp_path: Path) -> None:
    log = write_log(tmp_path, [BATCH])
    ledger, acked = run(tmp_path, Producer(lambda _key, _number: None))
    assert acked == changes(log)
    assert ledger.counts["delivered"] == 6


def test_what_waits_for_the_broker_is_not_produced_twice(tmp_path: Path) -> None:
    log = write_log(tmp_path, [BATCH])
    producer = Producer(lambda _key, _number: "wait")
    ledger, acked = run(tmp_path, producer, ack_s=0.0)
    assert acked == changes(log)
    assert len(producer.produced) == 6
    assert ledger.counts["retries"] > 0
    assert "no acknowledgement" in (ledger.last_error or "")


@pytest.mark.parametrize("fate", ["full", "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART", "fatal"])
def test_what_failed_is_produced_again_and_what_was_acknowledged_is_not(tmp_path: Path, fate: str) -> None:
    log = write_log(tmp_path, [BATCH])
    producer = Producer(lambda key, number: fate if key.endswith(b"-b-0") and number < 3 else None)
    _, acked = run(tmp_path, producer)
    assert sorted(acked) == sorted(changes(log))
    assert producer.made == (3 if fate == "fatal" else 1)


@pytest.mark.parametrize("fate", ["refuse", "MSG_SIZE_TOO_LARGE", "INVALID_MSG"])
def test_a_message_that_no_broker_takes_is_put_aside(tmp_path: Path, fate: str) -> None:
    log = write_log(tmp_path, [BATCH])
    producer = Producer(lambda key, _number: fate if key.endswith(b"-b-0") else None)
    ledger, acked = run(tmp_path, producer)
    assert acked == [change for change in changes(log) if change[0] != "Condensation-b-0"]
    assert (ledger.counts["rejected"], ledger.counts["delivered"]) == (1, 5)
    (line,) = ledger.rejected_path.read_text().splitlines()
    assert json.loads(line)["alert"]["id"] == "Condensation-b-0"


def test_a_login_goes_over_an_encrypted_connection_unless_told_otherwise() -> None:
    plain, login = _settings(SINK, print), _settings(KafkaSink("h:1", "t", "bell", "hunter2"), print)
    assert plain["security.protocol"] == "PLAINTEXT"
    assert (login["security.protocol"], login["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (login["sasl.username"], login["sasl.password"]) == ("bell", "hunter2")
    other = KafkaSink("h:1", "t", "bell", "hunter2", security="SASL_PLAINTEXT", mechanism="SCRAM-SHA-512")
    assert _settings(other, print)["security.protocol"] == "SASL_PLAINTEXT"
    assert (plain["enable.idempotence"], plain["acks"]) == (True, "all")


# The real one.


def consumed(server: Kafka, topic: str, wanted: int, patience_s: float = 60.0) -> list[Any]:
    """All messages of a topic, until as many different changes came as wanted and no more follow."""
    settings = {"bootstrap.servers": server.servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": False})
    consumer.subscribe([topic])
    found, until = [], time.monotonic() + patience_s
    try:
        while time.monotonic() < until:
            message = consumer.poll(1.0)
            if message is None:
                if len({_change(each) for each in found}) >= wanted:
                    break
            elif message.error() is None:
                found.append(message)
    finally:
        consumer.close()
    return found


def _change(message: Any) -> tuple[str, str]:
    alert = json.loads(message.value())
    return alert["id"], alert["state"]


def per_partition_order_holds(messages: list[Any], logged: list[tuple[str, str]]) -> bool:
    """Whether the first message of each change comes in the order of the log, per alert."""
    arrived = list(dict.fromkeys(_change(message) for message in messages))
    for key in {change[0] for change in logged}:
        if [change for change in arrived if change[0] == key] != [change for change in logged if change[0] == key]:
            return False
    return True


@pytest.mark.slow
def test_a_topic_holds_the_lines_of_the_log(tmp_path: Path, kafka: Kafka) -> None:
    log = write_log(tmp_path, [BATCH, [row("resolved", key="a", start=0, end=3)]])
    sink = KafkaSink(kafka.servers, "lines")
    delivery = Delivery(tmp_path, {"kafka": sink}, drain=True)
    delivery.start()
    assert delivery.join(60)
    messages = consumed(kafka, "lines", 7)
    lines = {f"{position.batch}:{position.line}": alert for position, alert in log.read()}
    assert len(messages) == 7
    for message in messages:
        alert = lines[dict(message.headers())["tocsin-position"].decode()]
        assert message.value() == encode(alert)
        assert message.key() == alert["id"].encode()
    assert delivery.status()["kafka"]["delivered"] == 7


@pytest.mark.slow
def test_through_kills_of_the_broker_and_of_us_the_topic_gets_everything(tmp_path: Path, kafka: Kafka) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.create_topics([NewTopic("kills", num_partitions=3, replication_factor=1)])["kills"].result(30)
    sink = KafkaSink(kafka.servers, "kills")

    def step(first: int, batches: int) -> None:
        lines = [
            [
                change
                for i in range(50)
                for change in (
                    row(key=f"k{i}", start=batch),
                    row("resolved", key=f"k{i}", start=batch, end=batch + 1),
                )
            ]
            for batch in range(first, first + batches)
        ]
        write_log(tmp_path, lines, first=first)

    step(0, 4)
    one = Delivery(tmp_path, {"kafka": sink}, poll_s=0.05)
    one.start()
    time.sleep(1.0)
    kafka.kill()
    step(4, 4)
    time.sleep(1.0)
    # Ended while the broker is down and messages are under way.
    one.stop()
    two = Delivery(tmp_path, {"kafka": sink}, poll_s=0.05)
    two.start()
    step(8, 4)
    time.sleep(1.0)
    kafka.start()
    _wait_until(lambda: two.status()["kafka"]["delivered"] == 1200)
    two.stop()
    logged = changes(AlertLog(tmp_path / "alerts"))
    messages = consumed(kafka, "kills", len(logged))
    assert {_change(message) for message in messages} == set(logged)
    assert len(messages) <= len(logged) + KafkaChannel.limit
    assert per_partition_order_holds(messages, logged)
    status = two.status()["kafka"]
    assert (status["pending"], status["rejected"]) == (0, 0)


@pytest.mark.slow
def test_a_message_too_large_for_the_broker_is_put_aside(tmp_path: Path, kafka: Kafka) -> None:
    rows = [row(key="a"), row(key="b", annotations={"essay": "x" * 2_000_000}), row(key="c")]
    write_log(tmp_path, [rows])
    ledger = Ledger(tmp_path / "delivery", "kafka", "kafka", CLOCK)
    channel = KafkaChannel(KafkaSink(kafka.servers, "large"))
    courier = Courier(AlertLog(tmp_path / "alerts"), channel, ledger, CLOCK, quick_backoff())
    pump(courier, threading.Event(), CLOCK, drain=True, poll_s=0.05)
    courier.close()
    ledger.close()
    assert (ledger.counts["delivered"], ledger.counts["rejected"]) == (2, 1)
    assert {_change(message)[0][-3:] for message in consumed(kafka, "large", 2)} == {"a-0", "c-0"}


def _wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)
