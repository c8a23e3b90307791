"""Delivery: sends the alert log of a run to its sinks, with one thread and one cursor per sink.

Detection only writes the alert log. Each sink reads the log from its own position, which is stored in
`RUN/delivery/<name>.json`. So a sink that is down delays neither detection nor the other sinks. Delivery needs no Spark
and no JVM. It runs in the process of the query or in a process of its own.

Guarantees: no alert event is lost as long as the log exists. The module of each sink states its other guarantees.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tocsin.delivery.alert_log import AlertLog
from tocsin.delivery.alertmanager import AlertmanagerWorker
from tocsin.delivery.backoff import CLOCK, Backoff, Clock
from tocsin.delivery.cloudevents import CloudEventsChannel
from tocsin.delivery.console import ConsoleChannel
from tocsin.delivery.kafka import KafkaChannel
from tocsin.delivery.log_copy import LogCopyChannel
from tocsin.delivery.sink_channel import SinkChannel
from tocsin.delivery.sink_cursor import SinkCursor
from tocsin.delivery.sink_worker import SinkWorker
from tocsin.delivery.sinks import (
    AlertmanagerSink,
    CloudEventsSink,
    ConsoleSink,
    KafkaSink,
    LogSink,
    Sink,
    name_sinks,
)
from tocsin.delivery.webhook import WebhookChannel

ALERTS, DELIVERY = "alerts", "delivery"
POLL_S = 1.0


class Worker(Protocol):
    """Interface of the object that delivers the log to one sink."""

    def process_next(self, stop: threading.Event) -> bool:
        """Process the next part of the log; return False if there was no work."""

    def idle_delay_s(self, poll_s: float) -> float:
        """Return how many seconds to wait after a call that found no work."""

    def is_done(self) -> bool:
        """Return whether everything that was read has been delivered."""

    def close(self) -> None:
        """Save the cursor and close connections."""


class Delivery:
    """Delivery of the alert log of one run to its sinks. `name_sinks` names sinks without names.

    Attributes
    ----------
    run_dir
        Run directory.
    clock
        Clock for times and waits.
    poll_s
        Seconds between two searches for new files of the log.
    draining
        If set, the thread of a sink ends when the log is delivered.
    sinks
        Sinks by name.
    stopping
        If set, all threads end.
    """

    def __init__(
        self,
        run_dir: Path | str,
        sinks: Mapping[str, Sink] | Iterable[Sink],
        *,
        drain: bool = False,
        clock: Clock = CLOCK,
        poll_s: float = POLL_S,
    ) -> None:
        self.run_dir, self.clock, self.poll_s = Path(run_dir), clock, poll_s
        self.draining = threading.Event()
        if drain:
            self.draining.set()
        self.sinks = dict(sinks) if isinstance(sinks, Mapping) else name_sinks(sinks)
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._cursors: dict[str, SinkCursor] = {}

    def start(self) -> None:
        """Start one thread per sink; raise an error if the configuration of a sink cannot work."""
        try:
            for name, sink in self.sinks.items():
                folder = self.run_dir / DELIVERY
                self._cursors[name] = SinkCursor(folder, name, sink.kind, self.clock)
                # Opened once for its checks, so that a wrong path or a missing package raises an error here.
                self._open_worker(name).close()
        except BaseException:
            self._close_cursors()
            raise
        for name in self.sinks:
            thread = threading.Thread(target=self._run_sink, args=(name,), name=f"tocsin-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def status(self) -> dict[str, dict[str, Any]]:
        """Return position, counts and latest error of each sink."""
        return {name: cursor.status() for name, cursor in self._cursors.items()}

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the threads, each for at most `timeout_s`; return whether all have ended."""
        for thread in self._threads:
            thread.join(timeout_s)
        has_ended = not any(thread.is_alive() for thread in self._threads)
        if has_ended:
            self._close_cursors()
        return has_ended

    def stop(self) -> None:
        """Stop all threads. Open requests end first, at the latest after their timeout."""
        self.stopping.set()
        self.join()

    def finish(self, timeout_s: float) -> bool:
        """Deliver the rest of the log for at most `timeout_s`, then stop; return whether all was delivered."""
        self.draining.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        is_delivered = not any(thread.is_alive() for thread in self._threads)
        self.stop()
        return is_delivered

    def _close_cursors(self) -> None:
        for cursor in self._cursors.values():
            cursor.close()

    def _run_sink(self, name: str) -> None:
        """Deliver to a sink until its worker ends. After an unexpected error, restart from the saved cursor."""
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                worker = self._open_worker(name)
                try:
                    run_worker(worker, self.stopping, self.clock, poll_s=self.poll_s, drain=self.draining)
                finally:
                    worker.close()
                return
            except Exception as error:
                self._cursors[name].record_failure(_describe_error(error))
                self.clock.wait(self.stopping, backoff.next_delay_s())

    def _open_worker(self, name: str) -> Worker:
        sink, cursor = self.sinks[name], self._cursors[name]
        log = AlertLog(self.run_dir / ALERTS)
        if isinstance(sink, AlertmanagerSink):
            return AlertmanagerWorker(sink, log, cursor, self.clock, Backoff())
        return SinkWorker(log, open_channel(sink, log, self.clock), cursor, self.clock, Backoff())


def deliver(
    run_dir: Path | str,
    sinks: Mapping[str, Sink] | Iterable[Sink],
    stop: threading.Event | None = None,
    *,
    drain: bool = False,
) -> dict[str, dict[str, Any]]:
    """Deliver to sinks until `stop` is set, or with `drain` until the log is delivered; return the status by sink."""
    delivery = Delivery(run_dir, sinks, drain=drain)
    delivery.stopping = stop or delivery.stopping
    delivery.start()
    delivery.join()
    return delivery.status()


def run_worker(
    worker: Worker,
    stop: threading.Event,
    clock: Clock,
    *,
    poll_s: float = POLL_S,
    drain: threading.Event | bool = False,
) -> None:
    """Run a worker until `stop` is set, or with `drain` until the log is delivered."""
    while not stop.is_set():
        # Read before the log, so that everything written before the drain was requested is delivered.
        is_draining = drain if isinstance(drain, bool) else drain.is_set()
        if worker.process_next(stop):
            continue
        if is_draining and worker.is_done():
            return
        clock.wait(stop, worker.idle_delay_s(poll_s))


def open_channel(sink: Sink, log: AlertLog, clock: Clock) -> SinkChannel:
    """Return the channel of a sink. Alertmanager has no channel."""
    if isinstance(sink, ConsoleSink):
        return ConsoleChannel(sink)
    if isinstance(sink, LogSink):
        return LogCopyChannel(sink, log)
    if isinstance(sink, CloudEventsSink):
        return CloudEventsChannel(sink, clock)
    if isinstance(sink, KafkaSink):
        return KafkaChannel(sink)
    assert not isinstance(sink, AlertmanagerSink)
    return WebhookChannel(sink, clock)


def _describe_error(error: Exception) -> str:
    """Return type and code location of an unexpected error, without its text, which may quote a secret."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"internal error: {type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}"
