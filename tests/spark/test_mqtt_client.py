"""A broker's messages reach the spool, through crashes of either side."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servers import Mosquitto, mosquitto, need_mosquitto  # noqa: F401 - a fixture
from tocsin.errors import PlanError, RunError
from tocsin.rules.secret import Secret
from tocsin.spark.sources import mqtt_client
from tocsin.spark.sources.mqtt_client import (
    KEPT_PAYLOAD,
    MOST_PAYLOAD,
    Collector,
    Subscription,
    check_filter,
    client_id,
)
from tocsin.spark.sources.mqtt_spool import Message, SpoolReader, SpoolWriter

pytestmark = pytest.mark.timeout(120)


def subscription(server: Mosquitto, **more: Any) -> Subscription:
    return Subscription("127.0.0.1", **{"topic": "plant/#", "client_id": "test", "port": server.port} | more)


@contextmanager
def publisher(server: Mosquitto) -> Iterator[Any]:
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    client = Client(CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(1_000)
    client.connect("127.0.0.1", server.port)
    client.loop_start()
    yield client
    client.disconnect()
    client.loop_stop()


def publish(server: Mosquitto, *payloads: bytes, topic: str = "plant/a", qos: int = 1) -> None:
    """Return when the broker has them."""
    with publisher(server) as client:
        for told in [client.publish(topic, payload, qos) for payload in payloads]:
            told.wait_for_publish(30)


def held(folder: Path) -> list[Message]:
    spool = SpoolReader(folder)
    return list(spool.read(*spool.span()))


def wait_until(true: Callable[[], object], seconds: float = 30.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return True
        time.sleep(0.02)
    return False


def test_messages_are_kept_with_topic_and_order_of_arrival(mosquitto: Mosquitto, tmp_path: Path) -> None:  # noqa: F811
    collector = Collector(subscription(mosquitto), tmp_path / "spool")
    assert collector.settle(0.1)
    names = ["plant/a", "plant", "plant/ü b/$x", "plant/" + "d" * 5_000, "plant//", "other"]
    payloads = [b"", b"\xff\x00", b"x" * MOST_PAYLOAD, b"y" * (MOST_PAYLOAD + 1), b'{"v":1}']
    for name in names:
        publish(mosquitto, *payloads, topic=name)
    assert wait_until(lambda: SpoolReader(tmp_path / "spool").span()[1] == 25)
    collector.close()
    found = held(tmp_path / "spool")
    assert [message.topic.decode() for message in found] == [name for name in names[:-1] for _ in payloads]
    assert [message.size for message in found[:5]] == [len(payload) for payload in payloads]
    kept = [*payloads[:3], b"y" * KEPT_PAYLOAD, payloads[4]]
    assert [message.payload for message in found] == kept * 5
    times = [message.arrived_us for message in found]
    assert times == sorted(set(times))


@pytest.mark.slow
def test_the_broker_keeps_what_comes_while_nobody_listens(mosquitto: Mosquitto, tmp_path: Path) -> None:  # noqa: F811
    collector = Collector(subscription(mosquitto), tmp_path / "spool")
    assert collector.settle(0.1)
    collector.close()
    publish(mosquitto, *(b"%d" % number for number in range(3_000)))
    mosquitto.stop()
    mosquitto.start()
    collector = Collector(subscription(mosquitto), tmp_path / "spool")
    # On a busy machine a pause between messages is no sign of the last message.
    assert wait_until(lambda: SpoolReader(tmp_path / "spool").span()[1] >= 3_000)
    collector.close()
    assert [int(message.payload) for message in held(tmp_path / "spool")] == list(range(3_000))


@pytest.mark.slow
def test_a_broker_that_is_killed_loses_nothing_that_was_acknowledged_to_it(
    mosquitto: Mosquitto,  # noqa: F811
    tmp_path: Path,
) -> None:
    collector = Collector(subscription(mosquitto), tmp_path / "spool")
    assert collector.settle(0.1)
    for first in (0, 100):
        publish(mosquitto, *(b"%d" % number for number in range(first, first + 100)))
        assert wait_until(lambda first=first: SpoolReader(tmp_path / "spool").span()[1] >= first + 100)
        mosquitto.kill()
        assert wait_until(lambda: not collector.connected.is_set())
        mosquitto.start()
        assert wait_until(collector.connected.is_set)
    publish(mosquitto, b"200")
    assert wait_until(lambda: SpoolReader(tmp_path / "spool").span()[1] > 200)
    collector.close()
    # What comes again is harmless: rows that are there twice change nothing.
    assert {int(message.payload) for message in held(tmp_path / "spool")} == set(range(201))


@pytest.mark.slow
def test_a_full_disk_acknowledges_nothing_and_loses_nothing(
    mosquitto: Mosquitto,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append, full = SpoolWriter.append, threading.Event()
    full.set()

    def may_fail(self: SpoolWriter, messages: Any) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, messages)

    monkeypatch.setattr(SpoolWriter, "append", may_fail)
    collector = Collector(subscription(mosquitto), tmp_path / "spool")
    assert wait_until(collector.connected.is_set)
    publish(mosquitto, *(b"%d" % number for number in range(50)))
    collector.close()
    assert held(tmp_path / "spool") == []
    full.clear()
    collector = Collector(subscription(mosquitto), tmp_path / "spool")
    assert collector.settle()
    collector.close()
    assert [int(message.payload) for message in held(tmp_path / "spool")] == list(range(50))


@contextmanager
def behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Collector, threading.Event]]:
    """A client whose disk waits for an event, and of which 1,000 bytes may wait meanwhile; no broker is there."""
    append, free = SpoolWriter.append, threading.Event()

    def slow(self: SpoolWriter, messages: Any) -> None:
        assert free.wait(30)
        append(self, messages)

    monkeypatch.setattr(SpoolWriter, "append", slow)
    monkeypatch.setattr(mqtt_client, "MOST_WAITING_BYTES", 1_000)
    collector = Collector(Subscription("127.0.0.1", "plant/#", port=1, client_id="test"), folder)
    yield collector, free
    free.set()
    collector.close()


def come(collector: Collector, number: int, qos: int) -> None:
    """Let a message of 100 bytes with its topic come."""
    payload = b"%097d" % number
    collector._on_message(None, None, SimpleNamespace(qos=qos, mid=number + 1, topic="t/a", payload=payload))


def test_bytes_that_wait_are_bounded_at_qos_0_by_dropping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with behind(tmp_path, monkeypatch) as (collector, free):
        for number in range(25):
            come(collector, number, 0)
        assert collector.dropped == 15
        free.set()
        assert wait_until(lambda: len(held(tmp_path)) == 10)
        come(collector, 25, 0)
        assert wait_until(lambda: [int(m.payload) for m in held(tmp_path)] == [*range(10), 25])


def test_bytes_that_wait_are_bounded_at_qos_1_by_reading_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = list[int]()
    with behind(tmp_path, monkeypatch) as (collector, free):
        comes = threading.Thread(
            target=lambda: [(come(collector, number, 1), came.append(number)) for number in range(25)]
        )
        comes.start()
        assert wait_until(lambda: len(came) == 10)
        comes.join(0.3)
        assert (len(came), collector.dropped) == (10, 0)
        free.set()
        comes.join(30)
        assert wait_until(lambda: [int(m.payload) for m in held(tmp_path)] == list(range(25)))


def test_a_client_that_waits_for_the_disk_can_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_client, "MOST_WAITING_BYTES", 0)
    collector = Collector(Subscription("127.0.0.1", "plant/#", port=1, client_id="test"), tmp_path)
    comes = threading.Thread(target=come, args=(collector, 0, 1))
    comes.start()
    comes.join(0.1)
    assert comes.is_alive()
    collector.close()
    comes.join(30)
    assert not comes.is_alive()


def test_a_client_that_cannot_be_made_gives_up_the_spool(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"(?i)invalid port"):
        Collector(Subscription("127.0.0.1", "plant/#", port=-1, client_id="test"), tmp_path)
    SpoolWriter(tmp_path).close()


@pytest.mark.slow
def test_a_wrong_password_is_told_without_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    need_mosquitto()
    server = Mosquitto(tmp_path / "mosquitto", login=("bell", "right"))
    server.start()
    try:
        right = {"username": Secret("bell"), "password": Secret("right")}
        collector = Collector(subscription(server, **right), tmp_path / "spool")
        assert collector.settle(0.1)
        collector.close()
        wrong = subscription(server, username=Secret("bell"), password=Secret("hunter2"))
        collector = Collector(wrong, tmp_path / "spool")
        assert wait_until(lambda: collector.refusal)
        collector.close()
        assert "the broker rejected the login: Not authorized" in collector.refusal
        assert "hunter2" not in caplog.text + collector.refusal + repr(wrong)
    finally:
        server.kill()


@pytest.mark.slow
def test_a_broker_that_comes_later_is_found(tmp_path: Path) -> None:
    need_mosquitto()
    server = Mosquitto(tmp_path / "mosquitto")
    collector = Collector(subscription(server), tmp_path / "spool")
    assert not collector.settle(0.1, 0.3)
    server.start()
    try:
        assert wait_until(collector.connected.is_set)
    finally:
        collector.close()
        server.kill()


@pytest.mark.slow
def test_one_client_fills_a_spool(mosquitto: Mosquitto, tmp_path: Path) -> None:  # noqa: F811
    collector = Collector(subscription(mosquitto), tmp_path / "spool")
    with pytest.raises(RunError, match="is in use by another process"):
        Collector(subscription(mosquitto), tmp_path / "spool")
    collector.close()


@pytest.mark.parametrize("topic", ["", "a/#/b", "a#", "a/b+", "+a", "a\0b", "x" * 65_536, "#/a"])
def test_what_is_no_filter_is_refused(topic: str) -> None:
    with pytest.raises(PlanError, match="`topic` must be an MQTT topic or topic filter; got"):
        check_filter(topic)


@pytest.mark.parametrize("topic", ["a", "#", "+", "a/+/b/#", "/", "$share/g/a/#", "a b/ü", "x" * 65_535])
def test_filters_may_be_odd(topic: str) -> None:
    check_filter(topic)


def test_the_name_of_a_session_stays_and_differs_by_topic() -> None:
    assert client_id("air", "h", 1, "t") == client_id("air", "h", 1, "t") != client_id("air", "h", 1, "u")
