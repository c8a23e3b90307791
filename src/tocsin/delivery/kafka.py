"""Kafka sink: produces every line of the alert log to a topic.

The key of a message is the alert id, so all events of an alert are in one partition. The header `tocsin-position`
contains the position in the log.

Algorithm: one idempotent producer with `acks=all` and without message timeout. While this producer exists, Kafka
neither duplicates nor reorders messages. A chunk of the log is delivered when the broker has acknowledged all messages.

Guarantees:
    - At least once. A kill repeats at most the chunk in flight. Consumers can drop repeats by id and state.
    - While the broker is down, messages wait in the producer and are not produced twice.
    - The events of one alert keep their order.

Complexity: a chunk has up to 1,000 lines. It needs as many round trips as one alert has events in it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from tocsin.delivery.alert_json import Alert, encode_alert, with_link
from tocsin.delivery.alert_log import Position
from tocsin.delivery.sink_channel import DELIVERED, DeliveryStatus, LogEntry, SinkResponse, split_repeated
from tocsin.delivery.sinks import KafkaSink, reveal_secret
from tocsin.errors import RunError

ACK_S, POLL_S = 5.0, 0.1
# Longest wait for the acknowledgement of all messages of `produce_messages`.
FLUSH_S = 60.0
_REJECTED_ERRORS = ("MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD")
_log = logging.getLogger("tocsin.delivery.kafka")

MakeProducer = Callable[[dict[str, Any]], Any]


class KafkaChannel:
    """Channel to one topic."""

    limit = 1_000
    takes_whole_batches = False
    # Retries are cheap, because the producer itself retries with its own backoff.
    max_delay_s = 2.0

    def __init__(self, sink: KafkaSink, make: MakeProducer | None = None, ack_s: float = ACK_S) -> None:
        self._sink, self._make, self._ack_s = sink, make or _make_producer, ack_s
        self._producer: Any = None
        self._sent: set[Position] = set()
        self._acked: set[Position] = set()
        self._errors: dict[Position, Any] = {}
        self._fatal: Any = None
        self._last_error = ""
        if make is None and find_spec("confluent_kafka") is None:
            message = "sink `kafka` needs the package confluent-kafka; install tocsin[kafka]"
            raise RunError(message)

    def wants(self, alert: Alert) -> bool:
        """Return True: every state is sent."""
        return True

    def split_requests(self, chunk: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
        """Yield requests with each alert at most once: an event waits until the previous event is acknowledged."""
        self._sent, self._acked, self._errors = set(), set(), {}
        return iter(split_repeated(chunk, lambda alert: str(alert["id"])))

    def send(self, request: Sequence[LogEntry]) -> SinkResponse:
        """Produce the messages that are not yet produced, and wait for the acknowledgement of all."""
        if self._producer is None:
            self._producer = self._make(producer_settings(self._sink, self._on_error))
        for entry in request:
            if entry.position not in self._sent:
                self._produce(entry)
        deadline = time.monotonic() + self._ack_s
        self._producer.poll(0)
        while self._is_waiting(request) and time.monotonic() < deadline:
            self._producer.poll(POLL_S)
        return self._collect_response(request)

    def close(self) -> None:
        """Close the producer and drop its queue; the next producer sends these messages again."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(1.0)
            self._producer = None

    def _produce(self, entry: LogEntry) -> None:
        import confluent_kafka

        position = entry.position
        header = [("tocsin-position", f"{position.batch}:{position.line}".encode())]
        key = entry.alert["id"].encode("utf-8", "replace")
        value = encode_alert(with_link(entry.alert, self._sink.dashboard))
        try:
            report = partial(self._on_delivery, position)
            self._producer.produce(self._sink.topic, value, key, headers=header, on_delivery=report)
            self._sent.add(position)
        except BufferError:
            # The queue is full. The next attempt produces this message.
            self._producer.poll(POLL_S)
        except confluent_kafka.KafkaException as error:
            self._errors[position] = error.args[0]

    def _on_delivery(self, position: Position, error: Any, _message: Any) -> None:
        if error is None:
            self._acked.add(position)
        else:
            self._errors[position] = error

    def _on_error(self, error: Any) -> None:
        self._last_error = error.name()
        if error.fatal():
            self._fatal = error

    def _is_waiting(self, request: Sequence[LogEntry]) -> bool:
        if self._fatal is not None:
            return False
        return any(entry.position in self._sent and not self._is_settled(entry.position) for entry in request)

    def _is_settled(self, position: Position) -> bool:
        return position in self._acked or position in self._errors

    def _collect_response(self, request: Sequence[LogEntry]) -> SinkResponse:
        if self._fatal is not None:
            return self._replace_producer()
        failed = [self._errors[entry.position] for entry in request if entry.position in self._errors]
        rejected = [error for error in failed if error.name() in _REJECTED_ERRORS]
        if rejected and (len(request) == 1 or len(rejected) == len(failed)):
            return SinkResponse(
                DeliveryStatus.REJECTED, self._error_text(rejected[0].name()), rejected[0].code(), split=True
            )
        if failed:
            self._discard_failures(request)
            return SinkResponse(DeliveryStatus.RETRY, self._error_text(failed[0].name()))
        if all(entry.position in self._acked for entry in request):
            return DELIVERED
        reason = f" ({self._last_error})" if self._last_error else ""
        return SinkResponse(
            DeliveryStatus.RETRY, self._error_text(f"no acknowledgement within {self._ack_s:g} s{reason}")
        )

    def _discard_failures(self, request: Sequence[LogEntry]) -> None:
        """Discard the failed messages of a request, so that the next attempt produces them again."""
        for entry in request:
            if self._errors.pop(entry.position, None) is not None:
                self._sent.discard(entry.position)

    def _replace_producer(self) -> SinkResponse:
        """Close the producer after a fatal error; the next attempt produces the unacknowledged messages again."""
        error, self._fatal = self._fatal, None
        self.close()
        self._sent, self._errors = set(self._acked), {}
        return SinkResponse(DeliveryStatus.RETRY, self._error_text(f"{error.name()}; creating a new producer"))

    def _error_text(self, reason: str) -> str:
        return f"{self._sink.servers}/{self._sink.topic}: {reason}"


def produce_messages(sink: KafkaSink, messages: Sequence[tuple[str, str]], make: MakeProducer | None = None) -> None:
    """Produce (key, value) messages to a topic; raise a RunError unless the broker acknowledges all of them."""
    if make is None and find_spec("confluent_kafka") is None:
        message = "writing to a topic needs the package confluent-kafka; install tocsin[kafka]"
        raise RunError(message)
    errors: list[Any] = []
    producer = (make or _make_producer)(producer_settings(sink, errors.append))

    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None:
            errors.append(error)

    for key, value in messages:
        while True:
            try:
                producer.produce(sink.topic, value.encode(), key.encode(), on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(POLL_S)
    missing = producer.flush(FLUSH_S)
    if missing or any(error.name() in _REJECTED_ERRORS for error in errors):
        producer.purge()
        reason = errors[0].name() if errors else "no response"
        message = f"{sink.target}: {missing:,} of {len(messages):,} messages were not acknowledged ({reason})"
        raise RunError(message)


def producer_settings(sink: KafkaSink, on_error: Callable[[Any], None]) -> dict[str, Any]:
    """Return the settings of the producer. They contain the password, so they must not be logged."""
    settings: dict[str, Any] = {
        "bootstrap.servers": sink.servers,
        "client.id": "tocsin",
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": 0,
        "linger.ms": 5,
        "partitioner": "murmur2_random",
        "logger": _log,
        "error_cb": on_error,
    }
    user = reveal_secret(sink.username)
    security = sink.security or ("SASL_SSL" if user else "PLAINTEXT")
    settings["security.protocol"] = security
    if user:
        settings |= {
            "sasl.mechanism": sink.mechanism,
            "sasl.username": user,
            "sasl.password": reveal_secret(sink.password),
        }
    return settings


def _make_producer(settings: dict[str, Any]) -> Any:
    import confluent_kafka

    return confluent_kafka.Producer(settings)
