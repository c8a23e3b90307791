"""Source probe: tests whether the brokers of streams accept connections, before a run and while it runs.

A probe opens a TCP connection to the servers that the rule file names, and closes it. One server that accepts is
enough. Spark's Kafka connector reports a broker that is down only after minutes, and then ends the query. So a run
waits for its Kafka brokers before it starts the query. The MQTT client reconnects by itself, so a run starts without
its MQTT brokers. The callers are `run` and the commands that read history.
"""

from __future__ import annotations

import logging
import queue
import re
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tocsin.errors import RunError
from tocsin.rules.rulefile import Stream
from tocsin.spark.sources.kafka import kafka_options

log = logging.getLogger("tocsin.run")

TIMEOUT_S = 4.0
# Between probes: of brokers that are up, and while one is down.
_UP_S, _DOWN_S = 30.0, 2.0
# A broker that stays down is logged again after this time.
_REMINDER_S = 300.0
# How long a run that ends by itself waits for its brokers.
ONCE_WAIT_S = 8.0
# Between two looks at the state of the brokers, while a run waits.
_LOOK_S = 0.1
# Kafka's own pattern of an address.
_KAFKA_ADDRESS = re.compile(r"\s*(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)\s*")


@dataclass(frozen=True)
class Broker:
    """A broker of one or several streams.

    Attributes
    ----------
    kind
        The kind of source: kafka or mqtt.
    servers
        Host and port of each server.
    streams
        Names of the streams.
    """

    kind: str
    servers: tuple[tuple[str, int], ...]
    streams: tuple[str, ...]

    def describe(self, failure: str) -> str:
        """Return a line about a broker that is down."""
        names = ", ".join(f"`{name}`" for name in self.streams)
        many = "s" if len(self.streams) > 1 else ""
        servers = ", ".join(f"{host}:{port}" for host, port in self.servers)
        return f"stream{many} {names}: the {self.kind} broker {servers} is not reachable; {failure}"


def brokers_of(streams: Iterable[Stream]) -> list[Broker]:
    """Return the brokers of streams. Files have no broker."""
    found: dict[tuple[str, tuple[tuple[str, int], ...]], list[str]] = {}
    for stream in streams:
        servers = _servers_of(stream)
        if servers:
            found.setdefault((stream.source.kind, servers), []).append(stream.name)
    return [Broker(kind, servers, tuple(names)) for (kind, servers), names in found.items()]


def _servers_of(stream: Stream) -> tuple[tuple[str, int], ...]:
    options = stream.source.options
    if stream.source.kind == "mqtt":
        return ((str(options["host"]), int(options.get("port") or 1883)),)
    if stream.source.kind == "kafka":
        texts = kafka_options(options, streaming=True)["kafka.bootstrap.servers"].split(",")
        found = [match for text in texts if (match := _KAFKA_ADDRESS.fullmatch(text))]
        return tuple((match[1], int(match[2])) for match in found)
    return ()


def check_brokers(streams: Iterable[Stream]) -> None:
    """Raise a RunError if a Kafka broker accepts no connection."""
    for broker, failure in _probe([one for one in brokers_of(streams) if one.kind == "kafka"]).items():
        raise RunError(broker.describe(failure))


def _probe(brokers: Iterable[Broker]) -> dict[Broker, str]:
    """Return the brokers that are down, with the reason; all are probed at once."""
    brokers = list(brokers)
    with ThreadPoolExecutor(max(1, len(brokers))) as pool:
        failures = pool.map(lambda broker: connection_failure(broker.servers), brokers)
        return {broker: failure for broker, failure in zip(brokers, failures, strict=True) if failure}


def connection_failure(servers: Iterable[tuple[str, int]]) -> str:
    """Return why no server accepts a connection within `TIMEOUT_S`, or an empty text if one does."""
    servers = list(servers)
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    for host, port in servers:
        # The lookup of a name has no timeout, so nothing waits for the end of these threads.
        threading.Thread(target=_connect, args=(host, port, answers), daemon=True).start()
    failure, until = "", time.monotonic() + TIMEOUT_S
    for _ in servers:
        try:
            failure = answers.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return f"no answer within {TIMEOUT_S:g} s"
        if not failure:
            return ""
    return failure


def _connect(host: str, port: int, answers: queue.SimpleQueue[str]) -> None:
    try:
        socket.create_connection((host, port), timeout=TIMEOUT_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        answers.put((getattr(error, "strerror", None) or str(error) or type(error).__name__).lower())
    else:
        answers.put("")


class SourceProbe:
    """The state of the brokers of a run; a thread updates it while the probe is entered."""

    def __init__(self, streams: Iterable[Stream]) -> None:
        self.brokers = brokers_of(streams)
        self.failures: dict[Broker, str] = {}
        self._logged_at: dict[Broker, float] = {}
        self._lock, self._done = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> SourceProbe:
        if self.brokers:
            self.check()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self.brokers:
            self._thread.join()

    def _repeat(self) -> None:
        while not self._done.wait(_DOWN_S if self.failures else _UP_S):
            self.check()

    def status(self) -> Mapping[str, bool]:
        """Return for each stream with a broker whether the broker accepts connections."""
        return {name: broker not in self.failures for broker in self.brokers for name in broker.streams}

    def check(self) -> None:
        """Probe all brokers, and log each change. Log a broker that is down again after `_REMINDER_S`."""
        with self._lock:
            before, self.failures = self.failures, _probe(self.brokers)
            now = time.monotonic()
            for broker, failure in self.failures.items():
                if broker not in before or now - self._logged_at[broker] >= _REMINDER_S:
                    self._logged_at[broker] = now
                    log.warning("%s; the next attempts follow every %g s", broker.describe(failure), _DOWN_S)
            for broker in before.keys() - self.failures.keys():
                log.info("the %s broker of stream %s accepts connections", broker.kind, ", ".join(broker.streams))

    @property
    def is_blocked(self) -> bool:
        """Whether a broker is down without which Spark cannot read its streams."""
        return any(broker.kind == "kafka" for broker in self.failures)

    def wait(self, stop: threading.Event, most_s: float | None = None) -> bool:
        """Wait until no Kafka broker is down; return False if `stop` is set before.

        Raise a RunError if that takes longer than `most_s`.
        """
        until = None if most_s is None else time.monotonic() + most_s
        while self.is_blocked and not stop.wait(_LOOK_S):
            if until is not None and time.monotonic() > until:
                for broker, failure in self.failures.items():
                    if broker.kind == "kafka":
                        raise RunError(broker.describe(failure))
        return not stop.is_set()
