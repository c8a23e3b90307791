"""MQTT client: it writes the messages of a broker to a spool and acknowledges them when they are on the disk.

Algorithm: a persistent session (`clean_session` off) of MQTT 3.1.1 with manual acknowledgement. One thread serves the
connection. Another thread appends all waiting messages to the spool with one fsync, and acknowledges them.

Guarantees: at QoS 1 the spool receives each message of the session at least once. The broker sends a message again
if a broken connection, a crash or a full disk prevented its acknowledgement; repeated rows change nothing. An
acknowledgement never crosses a reconnection, because the broker may use its packet number for another message. The
client cannot recover messages that the broker drops: QoS 0 without a connected client, full queues, expired sessions.

Complexity: one fsync per group of messages in flight (20 with the defaults of Mosquitto).
"""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin.errors import PlanError, RunError
from tocsin.rules.secret import Secret
from tocsin.spark.sources.mqtt_spool import Message, SpoolWriter

# A longer payload is no reading; its beginning is kept, so that the row can be shown and counted.
MOST_PAYLOAD, KEPT_PAYLOAD = 1 << 20, 1 << 16
# Messages of QoS 0 that wait for the disk, and bytes of all that do: with QoS 1 the broker itself waits.
MOST_WAITING, MOST_WAITING_BYTES = 100_000, 64 << 20
RETRY_S, LONGEST_RETRY_S, KEEPALIVE_S = 1, 60, 30
_AT_ONCE = 10_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subscription:
    """What to listen to, and as whom."""

    host: str
    topic: str
    port: int = 1883
    qos: int = 1
    client_id: str = ""
    username: Secret | str | None = field(default=None, repr=False)
    password: Secret | str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check what the broker would only answer with silence."""
        check_filter(self.topic)

    @property
    def place(self) -> str:
        """Broker and topic, for messages."""
        return f"mqtt://{self.host}:{self.port} topic {self.topic!r}"


def client_id(stream: str, host: str, port: int, topic: str) -> str:
    """A name for the session: the same after a restart, another for another topic."""
    mark = hashlib.sha256(f"{stream}\0{host}\0{port}\0{topic}".encode()).hexdigest()[:8]
    return f"tocsin-{stream}-{mark}"


def check_filter(topic: str) -> None:
    """Refuse what is no filter of topics: `+` and `#` stand alone in their level, `#` only in the last."""
    levels = topic.split("/")
    right = topic and len(topic.encode()) <= 65_535 and "\0" not in topic
    right = right and all(level in {"+", "#"} or not {"+", "#"} & set(level) for level in levels)
    if not right or "#" in levels[:-1]:
        message = f"`topic` must be an MQTT topic or topic filter; got {topic[:200]!r}"
        raise PlanError(message)


class Collector:
    """A client that fills a spool, in threads of its own, until it is closed.

    `refusal` says what only a person can mend: a login or a subscription that the broker refuses.
    """

    def __init__(self, subscription: Subscription, folder: Path | str) -> None:
        self.subscription = subscription
        self.refusal = ""
        self.connected = threading.Event()
        self.dropped = 0
        self._came: queue.Queue[tuple[int, int, Message]] = queue.Queue()
        self._connection = 0
        self._known = False
        self._newest = 0
        self._stop = threading.Event()
        self._busy = False
        # Counted up by one thread and down by another.
        self._waiting_bytes, self._room = 0, threading.Condition()
        self._spool = SpoolWriter(folder)
        try:
            self._client = self._make_client()
            self._threads = [threading.Thread(target=work, daemon=True) for work in (self._talk, self._write)]
            for thread in self._threads:
                thread.start()
        except BaseException:
            # A thread that runs already finds that all is over.
            self._stop.set()
            self._spool.close()
            raise

    def settle(self, quiet_s: float = 1.0, longest_s: float = 15.0) -> bool:
        """Wait until the broker has sent what it kept, as far as silence tells; False if it was not reached."""
        until = time.monotonic() + longest_s
        while not self.connected.wait(0.02):
            if self.refusal or time.monotonic() > until:
                return False
        seen, since = self._newest, time.monotonic()
        while time.monotonic() < min(until, since + quiet_s) and not self.refusal:
            if self._newest != seen or not self._came.empty() or self._busy:
                seen, since = self._newest, time.monotonic()
            time.sleep(0.02)
        return not self.refusal

    def close(self) -> None:
        """Leave the broker, which keeps the session, and give up the spool."""
        self._stop.set()
        with self._room:
            self._room.notify_all()
        until = time.monotonic() + 5
        while self._threads[0].is_alive() and time.monotonic() < until:
            # Again and again: a connection that is just being made forgets that it was to end.
            self._client.disconnect()
            self._threads[0].join(0.1)
        self._threads[1].join(5)
        self._spool.close()

    def _make_client(self) -> Any:
        from paho.mqtt.client import Client, MQTTv311
        from paho.mqtt.enums import CallbackAPIVersion

        told = self.subscription
        client = Client(
            CallbackAPIVersion.VERSION2, told.client_id, clean_session=False, protocol=MQTTv311, manual_ack=True
        )
        if told.username:
            client.username_pw_set(_plain(told.username), _plain(told.password) or None)
        client.reconnect_delay_set(RETRY_S, LONGEST_RETRY_S)
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_connect_fail, client.on_subscribe = self._on_connect_fail, self._on_subscribe
        client.on_message = self._on_message
        client.connect_async(told.host, told.port, KEEPALIVE_S)
        return client

    def _talk(self) -> None:
        """Keep the connection; whatever a broker sends must not end this thread."""
        while not self._stop.is_set():
            try:
                self._client.loop_forever(retry_first_connection=True)
            except Exception as error:
                _log.warning("%s: the connection failed; %s", self.subscription.place, error)
            self._stop.wait(RETRY_S)

    def _on_connect(self, client: Any, _data: Any, _flags: Any, code: Any, _more: Any = None) -> None:
        self._connection += 1
        if code.is_failure:
            told = f"{self.subscription.place}: the broker rejected the login: {code}"
            _log.error("%s", told)
            # A broker that knew us once, or is only starting, may know us again.
            if not self._known and str(code) != "Server unavailable":
                self.refusal = told
            return
        self.refusal = ""
        client.subscribe(self.subscription.topic, self.subscription.qos)

    def _on_subscribe(self, _client: Any, _data: Any, _mid: int, codes: Any, _more: Any = None) -> None:
        refused = [code for code in codes if code.is_failure]
        if refused and not self._known:
            self.refusal = f"{self.subscription.place}: the broker rejected the subscription: {refused[0]}"
            _log.error("%s", self.refusal)
        elif not refused:
            self._known = True
            self.connected.set()

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, code: Any, _more: Any = None) -> None:
        self._connection += 1
        self.connected.clear()
        if not self._stop.is_set():
            _log.warning("%s: the connection was lost and is opened again; %s", self.subscription.place, code)

    def _on_connect_fail(self, _client: Any, _data: Any) -> None:
        _log.warning("%s: the broker is not reachable; trying again", self.subscription.place)

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        if not self._has_room(message.qos):
            return
        # Order by time of arrival is order in the spool, whatever the clock does.
        self._newest = max(self._newest + 1, time.time_ns() // 1_000)
        payload = bytes(message.payload)
        kept = payload if len(payload) <= MOST_PAYLOAD else payload[:KEPT_PAYLOAD]
        made = Message(self._newest, _topic(message), kept, len(payload))
        with self._room:
            self._waiting_bytes += _size(made)
        self._came.put((self._connection, message.mid if message.qos else -1, made))

    def _has_room(self, qos: int) -> bool:
        """Whether a message is to be taken. While the disk is behind, none of QoS 1 is read: the broker waits."""
        with self._room:
            if qos:
                return (
                    self._room.wait_for(lambda: self._waiting_bytes < MOST_WAITING_BYTES or self._stop.is_set())
                    and not self._stop.is_set()
                )
            if self._came.qsize() < MOST_WAITING and self._waiting_bytes < MOST_WAITING_BYTES:
                return True
        self.dropped += 1
        if self.dropped & (self.dropped - 1) == 0:
            _log.error("%s: the disk is too slow; %d messages of QoS 0 are lost", self.subscription.place, self.dropped)
        return False

    def _write(self) -> None:
        while not self._stop.is_set():
            batch = self._take()
            if batch:
                self._keep([message for _, _, message in batch])
                with self._room:
                    self._waiting_bytes -= sum(_size(message) for _, _, message in batch)
                    self._room.notify_all()
                for connection, mid, _ in batch:
                    if mid >= 0 and connection == self._connection and not self._stop.is_set():
                        self._client.ack(mid, 1)
            self._busy = False

    def _take(self) -> list[tuple[int, int, Message]]:
        try:
            batch = [self._came.get(timeout=0.1)]
        except queue.Empty:
            return []
        self._busy = True
        while len(batch) < _AT_ONCE and not self._came.empty():
            batch.append(self._came.get())
        return batch

    def _keep(self, messages: list[Message]) -> None:
        """Append messages; retry while the disk or the spool is full. A damaged spool also ends the query."""
        pause = float(RETRY_S)
        while not self._stop.is_set():
            try:
                self._spool.append(messages)
                return
            except (OSError, RunError) as error:
                _log.error("%s: the spool cannot store messages; trying again; %s", self.subscription.place, error)
                if isinstance(error, RunError):
                    self.refusal = str(error)
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_RETRY_S)


def need_paho() -> None:
    """Raise RunError where the client is not installed."""
    from importlib.util import find_spec

    if find_spec("paho") is None:
        message = "source `mqtt` needs the package paho-mqtt; install tocsin[mqtt]"
        raise RunError(message)


def _size(message: Message) -> int:
    return len(message.topic) + len(message.payload)


def _topic(message: Any) -> bytes:
    try:
        return str(message.topic).encode()
    except UnicodeDecodeError:
        # Forbidden by MQTT, and taken by some brokers.
        return b""


def _plain(text: Secret | str | None) -> str:
    return text.reveal() if isinstance(text, Secret) else text or ""
