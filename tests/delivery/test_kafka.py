"""Kafka sink against a scripted producer and against a real broker."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delivery.alerts import ManualClock, changes, quick_backoff, row, write_log
from servers import Kafka
from tocsin.delivery import AlertLog, KafkaSink
from tocsin.delivery.alert_json import encode_alert
from tocsin.delivery.backoff import CLOCK
from tocsin.delivery.delivery import Delivery, run_worker
from tocsin.delivery.kafka import KafkaChannel, producer_settings
from tocsin.delivery.sink_cursor import SinkCursor
from tocsin.delivery.sink_worker import SinkWorker

confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: install tocsin[kafka]")
SINK = KafkaSink("127.0.0.1:9", "alerts")


class Producer:
    """Scripted producer. `outcome` returns the result of a message: None acknowledges it, "wait" delays it once.

    "full" and "raise" raise an error in `produce`, "fatal" reports a fatal error, any other text is a Kafka error name.
    """

    def __init__(self, outcome: Callable[[bytes, int], str | None]) -> None:
        self.outcome, self.produced, self.acked = outcome, list[bytes](), list[bytes]()
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
        outcome = self.outcome(key, number)
        if outcome == "full":
            raise BufferError
        if outcome == "raise":
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(10))
        self.produced.append(value)
        self.waiting.append((value, (outcome, on_delivery)))

    def poll(self, _seconds: float) -> int:
        ready, self.waiting = self.waiting, []
        for value, (outcome, report) in ready:
            if outcome == "wait":
                self.waiting.append((value, (None, report)))
            elif outcome == "fatal":
                self.on_error(confluent_kafka.KafkaError(-150, "dead", True))
            elif outcome is None:
                self.acked.append(value)
                report(None, None)
            else:
                report(confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, outcome)), None)
        return len(ready)

    def purge(self) -> None:
        self.waiting = []

    def flush(self, _seconds: float) -> int:
        return 0


def run(folder: Path, producer: Producer, *, ack_s: float = 5.0) -> tuple[SinkCursor, list[tuple[str, str]]]:
    clock, log = ManualClock(), AlertLog(folder / "alerts")
    cursor = SinkCursor(folder / "delivery", "kafka", "kafka", clock)
    worker = SinkWorker(log, KafkaChannel(SINK, producer, ack_s), cursor, clock, quick_backoff())
    run_worker(worker, threading.Event(), clock, drain=True)
    worker.close()
    cursor.close()
    acked = [json.loads(value) for value in producer.acked]
    return cursor, [(alert["id"], alert["state"]) for alert in acked]


BATCH = [row(key=key, start=start) for start in range(2) for key in "abc"]


def test_messages_are_delivered_in_log_order(tmp_path: Path) -> None:
    log = write_log(tmp_path, [BATCH])
    cursor, acked = run(tmp_path, Producer(lambda _key, _number: None))
    assert acked == changes(log)
    assert cursor.counts["delivered"] == 6


def test_message_is_not_produced_twice_when_the_acknowledgement_is_late(tmp_path: Path) -> None:
    log = write_log(tmp_path, [BATCH])
    producer = Producer(lambda _key, _number: "wait")
    cursor, acked = run(tmp_path, producer, ack_s=0.0)
    assert acked == changes(log)
    assert len(producer.produced) == 6
    assert cursor.counts["retries"] > 0
    assert "no acknowledgement" in (cursor.last_error or "")


@pytest.mark.parametrize("outcome", ["full", "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART", "fatal"])
def test_only_failed_messages_are_produced_again(tmp_path: Path, outcome: str) -> None:
    log = write_log(tmp_path, [BATCH])
    producer = Producer(lambda key, number: outcome if key.endswith(b"-b-0") and number < 3 else None)
    _, acked = run(tmp_path, producer)
    assert sorted(acked) == sorted(changes(log))
    assert producer.made == (3 if outcome == "fatal" else 1)


@pytest.mark.parametrize("outcome", ["raise", "MSG_SIZE_TOO_LARGE", "INVALID_MSG"])
def test_message_is_recorded_as_rejected_when_the_broker_rejects_it(tmp_path: Path, outcome: str) -> None:
    log = write_log(tmp_path, [BATCH])
    producer = Producer(lambda key, _number: outcome if key.endswith(b"-b-0") else None)
    cursor, acked = run(tmp_path, producer)
    assert acked == [change for change in changes(log) if change[0] != "Condensation-b-0"]
    assert (cursor.counts["rejected"], cursor.counts["delivered"]) == (1, 5)
    (line,) = cursor.rejected_path.read_text().splitlines()
    assert json.loads(line)["alert"]["id"] == "Condensation-b-0"


def test_login_uses_an_encrypted_connection_unless_security_is_set() -> None:
    plain, login = producer_settings(SINK, print), producer_settings(KafkaSink("h:1", "t", "bell", "hunter2"), print)
    assert plain["security.protocol"] == "PLAINTEXT"
    assert (login["security.protocol"], login["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (login["sasl.username"], login["sasl.password"]) == ("bell", "hunter2")
    other = KafkaSink("h:1", "t", "bell", "hunter2", security="SASL_PLAINTEXT", mechanism="SCRAM-SHA-512")
    assert producer_settings(other, print)["security.protocol"] == "SASL_PLAINTEXT"
    assert (plain["enable.idempotence"], plain["acks"]) == (True, "all")


# Tests with a real broker.


def consumed(server: Kafka, topic: str, expected: int, timeout_s: float = 60.0) -> list[Any]:
    """Return the messages of a topic after `expected` different events have arrived and no message follows."""
    settings = {"bootstrap.servers": server.servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": False})
    consumer.subscribe([topic])
    found, deadline = [], time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                if len({_change(each) for each in found}) >= expected:
                    break
            elif message.error() is None:
                found.append(message)
    finally:
        consumer.close()
    return found


def _change(message: Any) -> tuple[str, str]:
    alert = json.loads(message.value())
    return alert["id"], alert["state"]


def has_log_order_per_alert(messages: list[Any], logged: list[tuple[str, str]]) -> bool:
    """Return whether the first messages of the events of each alert have the order of the log."""
    arrived = list(dict.fromkeys(_change(message) for message in messages))
    for key in {change[0] for change in logged}:
        if [change for change in arrived if change[0] == key] != [change for change in logged if change[0] == key]:
            return False
    return True


def test_topic_contains_the_lines_of_the_log(tmp_path: Path, kafka: Kafka) -> None:
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
        assert message.value() == encode_alert(alert)
        assert message.key() == alert["id"].encode()
    assert delivery.status()["kafka"]["delivered"] == 7


@pytest.mark.slow
def test_topic_is_complete_after_kills_of_the_broker_and_of_delivery(tmp_path: Path, kafka: Kafka) -> None:
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
    # Stop while the broker is down and messages are in flight.
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
    assert has_log_order_per_alert(messages, logged)
    status = two.status()["kafka"]
    assert (status["pending"], status["rejected"]) == (0, 0)


@pytest.mark.slow
def test_message_is_recorded_as_rejected_when_it_exceeds_the_broker_limit(tmp_path: Path, kafka: Kafka) -> None:
    rows = [row(key="a"), row(key="b", annotations={"essay": "x" * 2_000_000}), row(key="c")]
    write_log(tmp_path, [rows])
    cursor = SinkCursor(tmp_path / "delivery", "kafka", "kafka", CLOCK)
    channel = KafkaChannel(KafkaSink(kafka.servers, "large"))
    worker = SinkWorker(AlertLog(tmp_path / "alerts"), channel, cursor, CLOCK, quick_backoff())
    run_worker(worker, threading.Event(), CLOCK, drain=True, poll_s=0.05)
    worker.close()
    cursor.close()
    assert (cursor.counts["delivered"], cursor.counts["rejected"]) == (2, 1)
    assert {_change(message)[0][-3:] for message in consumed(kafka, "large", 2)} == {"a-0", "c-0"}


def _wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)
