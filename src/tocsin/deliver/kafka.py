"""Kafka: every line of the log to a topic; the key is the alert's id, a header has the position.

Idea: an idempotent producer with `acks=all` that never gives up on a message by itself, so it neither doubles nor
reorders while it lives. A step is delivered when the broker has acknowledged all of it.
Guarantee: at least once. While the broker is down messages wait in the producer and are not produced twice; a kill
repeats at most the step that was in flight, and consumers drop repeats by id and state. All changes of one alert go to
one partition, in order.
Cost: per step of up to 1,000 lines, as many round trips as one alert has changes in it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from tocsin.deliver.alertlog import Position
from tocsin.deliver.channel import DELIVERED, Answer, Entry, Verdict, waves
from tocsin.deliver.encode import Alert, encode
from tocsin.deliver.sinks import KafkaSink, reveal
from tocsin.errors import RunError

ACK_S, POLL_S = 5.0, 0.1
# How long it may take to write all of a file to a topic, once it was handed over.
ALL_S = 60.0
_REFUSED = ("MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD")
_log = logging.getLogger("tocsin.deliver.kafka")

MakeProducer = Callable[[dict[str, Any]], Any]


class KafkaChannel:
    """A topic."""

    limit = 1_000
    whole_batches = False
    # Waiting is free: the producer itself goes on trying, with pauses of its own.
    cap_s = 2.0

    def __init__(self, sink: KafkaSink, make: MakeProducer | None = None, ack_s: float = ACK_S) -> None:
        self._sink, self._make, self._ack_s = sink, make or _producer, ack_s
        self._producer: Any = None
        self._sent: set[Position] = set()
        self._acked: set[Position] = set()
        self._errors: dict[Position, Any] = {}
        self._fatal: Any = None
        self._trouble = ""
        if make is None and find_spec("confluent_kafka") is None:
            message = "sink `kafka` needs the package confluent-kafka; install tocsin[kafka]"
            raise RunError(message)

    def wants(self, alert: Alert) -> bool:
        """Every state is a message."""
        return True

    def parcels(self, step: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """All of a step, each alert once: the next change of an alert waits until this one is acknowledged."""
        self._sent, self._acked, self._errors = set(), set(), {}
        return iter(waves(step, lambda alert: str(alert["id"])))

    def send(self, parcel: Sequence[Entry]) -> Answer:
        """Produce what was not produced before, and wait until the broker has all."""
        if self._producer is None:
            self._producer = self._make(_settings(self._sink, self._on_error))
        for entry in parcel:
            if entry.position not in self._sent:
                self._produce(entry)
        until = time.monotonic() + self._ack_s
        self._producer.poll(0)
        while self._is_waiting(parcel) and time.monotonic() < until:
            self._producer.poll(POLL_S)
        return self._answer(parcel)

    def close(self) -> None:
        """Drop the producer with what it still holds; the next one sends it again."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(1.0)
            self._producer = None

    def _produce(self, entry: Entry) -> None:
        import confluent_kafka

        position = entry.position
        header = [("tocsin-position", f"{position.batch}:{position.line}".encode())]
        key, value = entry.alert["id"].encode("utf-8", "replace"), encode(entry.alert)
        try:
            report = partial(self._on_delivery, position)
            self._producer.produce(self._sink.topic, value, key, headers=header, on_delivery=report)
            self._sent.add(position)
        except BufferError:
            # The queue is full: what is not sent now is sent by the next try.
            self._producer.poll(POLL_S)
        except confluent_kafka.KafkaException as error:
            self._errors[position] = error.args[0]

    def _on_delivery(self, position: Position, error: Any, _message: Any) -> None:
        if error is None:
            self._acked.add(position)
        else:
            self._errors[position] = error

    def _on_error(self, error: Any) -> None:
        self._trouble = error.name()
        if error.fatal():
            self._fatal = error

    def _is_waiting(self, parcel: Sequence[Entry]) -> bool:
        if self._fatal is not None:
            return False
        return any(entry.position in self._sent and not self._is_settled(entry.position) for entry in parcel)

    def _is_settled(self, position: Position) -> bool:
        return position in self._acked or position in self._errors

    def _answer(self, parcel: Sequence[Entry]) -> Answer:
        if self._fatal is not None:
            return self._begin_anew()
        failed = [self._errors[entry.position] for entry in parcel if entry.position in self._errors]
        refused = [error for error in failed if error.name() in _REFUSED]
        if refused and (len(parcel) == 1 or len(refused) == len(failed)):
            return Answer(Verdict.REJECTED, self._text(refused[0].name()), refused[0].code(), split=True)
        if failed:
            self._again(parcel)
            return Answer(Verdict.RETRY, self._text(failed[0].name()))
        if all(entry.position in self._acked for entry in parcel):
            return DELIVERED
        return Answer(
            Verdict.RETRY, self._text(f"no acknowledgement within {self._ack_s:g} s {self._trouble}".rstrip())
        )

    def _again(self, parcel: Sequence[Entry]) -> None:
        """Forget failures, so that the next try produces those messages anew."""
        for entry in parcel:
            if self._errors.pop(entry.position, None) is not None:
                self._sent.discard(entry.position)

    def _begin_anew(self) -> Answer:
        """Replace a producer that can do no more, and produce what it did not get acknowledged."""
        error, self._fatal = self._fatal, None
        self.close()
        self._sent, self._errors = set(self._acked), {}
        return Answer(Verdict.RETRY, self._text(f"{error.name()}, a new producer takes over"))

    def _text(self, reason: str) -> str:
        return f"{self._sink.servers}/{self._sink.topic}: {reason}"


def produce_all(sink: KafkaSink, messages: Sequence[tuple[str, str]], make: MakeProducer | None = None) -> None:
    """Produce (key, value) to a topic, and return when the broker has all; else say what is wrong."""
    if make is None and find_spec("confluent_kafka") is None:
        message = "a topic can be written to with the package confluent-kafka; install tocsin[kafka]"
        raise RunError(message)
    troubles: list[Any] = []
    producer = (make or _producer)(_settings(sink, troubles.append))

    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None:
            troubles.append(error)

    for key, value in messages:
        while True:
            try:
                producer.produce(sink.topic, value.encode(), key.encode(), on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(POLL_S)
    missing = producer.flush(ALL_S)
    if missing or any(error.name() in _REFUSED for error in troubles):
        producer.purge()
        found = troubles[0].name() if troubles else "no answer"
        message = f"{sink.target} must take {len(messages):,} messages; {missing:,} were not acknowledged: {found}"
        raise RunError(message)


def _settings(sink: KafkaSink, on_error: Callable[[Any], None]) -> dict[str, Any]:
    """Settings of the producer; those of the login are never shown."""
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
    user = reveal(sink.username)
    security = sink.security or ("SASL_SSL" if user else "PLAINTEXT")
    settings["security.protocol"] = security
    if user:
        settings |= {"sasl.mechanism": sink.mechanism, "sasl.username": user, "sasl.password": reveal(sink.password)}
    return settings


def _producer(settings: dict[str, Any]) -> Any:
    import confluent_kafka

    return confluent_kafka.Producer(settings)
