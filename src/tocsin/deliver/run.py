"""Delivery: one thread per sink, each with its own place in the alert log.

Sinks read the log as queries of their own. They are plain readers in Python, not streaming queries of Spark: a line of
the log needs no cluster, and so delivery needs no JVM. The isolation is the same: each sink has a cursor of its own in
`RUN/delivery/<name>.json`, so one that is down stops neither detection, which only writes files, nor the other sinks.
Delivery may run beside the query or in a process of its own.
Guarantee: what each sink has is stated in its module; for all, nothing is lost while the log is there.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tocsin.deliver.alertlog import AlertLog
from tocsin.deliver.alertmanager import AlertmanagerCourier
from tocsin.deliver.channel import Channel
from tocsin.deliver.clock import CLOCK, Backoff, Clock
from tocsin.deliver.cloudevents import CloudEventsChannel
from tocsin.deliver.console import ConsoleChannel
from tocsin.deliver.copy import CopyChannel
from tocsin.deliver.courier import Courier
from tocsin.deliver.kafka import KafkaChannel
from tocsin.deliver.ledger import Ledger
from tocsin.deliver.sinks import (
    AlertmanagerSink,
    CloudEventsSink,
    ConsoleSink,
    KafkaSink,
    LogSink,
    Sink,
    name_sinks,
)
from tocsin.deliver.webhook import WebhookChannel

ALERTS, DELIVERY = "alerts", "delivery"
POLL_S = 1.0


class Worker(Protocol):
    """What serves one sink."""

    def round(self, stop: threading.Event) -> bool:
        """Do a piece of work; say whether there was any."""

    def nap_s(self, poll_s: float) -> float:
        """How long to wait when there was nothing to do."""

    def is_done(self) -> bool:
        """Whether nothing of what was read is left to do."""

    def close(self) -> None:
        """Note the last of it and close connections."""


class Delivery:
    """Serves the sinks of a run; sinks without names are named by `name_sinks`.

    With `drain` a sink is left when all that is in the log was delivered, else when told to stop.
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
        self._ledgers: dict[str, Ledger] = {}

    def start(self) -> None:
        """Start the threads; a sink that cannot be served at all raises here."""
        try:
            for name, sink in self.sinks.items():
                folder = self.run_dir / DELIVERY
                self._ledgers[name] = Ledger(folder, name, sink.kind, self.clock)
                # Opened once for its checks: a wrong path or a missing package is told to the caller.
                self._open(name).close()
        except BaseException:
            self._close()
            raise
        for name in self.sinks:
            thread = threading.Thread(target=self._serve, args=(name,), name=f"tocsin-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def status(self) -> dict[str, dict[str, Any]]:
        """What each sink has delivered, and what troubles it."""
        return {name: ledger.status() for name, ledger in self._ledgers.items()}

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the threads; say whether all have ended."""
        for thread in self._threads:
            thread.join(timeout_s)
        ended = not any(thread.is_alive() for thread in self._threads)
        if ended:
            self._close()
        return ended

    def stop(self) -> None:
        """Stop, and wait for requests that are under way: at most their timeout."""
        self.stopping.set()
        self.join()

    def finish(self, timeout_s: float) -> bool:
        """Deliver what is in the log, but wait no longer than this, and stop; say whether all was delivered."""
        self.draining.set()
        until = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        delivered = not any(thread.is_alive() for thread in self._threads)
        self.stop()
        return delivered

    def _close(self) -> None:
        for ledger in self._ledgers.values():
            ledger.close()

    def _serve(self, name: str) -> None:
        """Serve a sink whatever happens: after an error of ours the work is taken up again from the ledger."""
        backoff = Backoff()
        while not self.stopping.is_set():
            try:
                worker = self._open(name)
                try:
                    pump(worker, self.stopping, self.clock, poll_s=self.poll_s, drain=self.draining)
                finally:
                    worker.close()
                return
            except Exception as error:
                self._ledgers[name].failed(_trouble(error))
                self.clock.wait(self.stopping, backoff.next_s())

    def _open(self, name: str) -> Worker:
        sink, ledger = self.sinks[name], self._ledgers[name]
        log = AlertLog(self.run_dir / ALERTS)
        if isinstance(sink, AlertmanagerSink):
            return AlertmanagerCourier(sink, log, ledger, self.clock, Backoff())
        return Courier(log, open_channel(sink, log, self.clock), ledger, self.clock, Backoff())


def deliver(
    run_dir: Path | str,
    sinks: Mapping[str, Sink] | Iterable[Sink],
    stop: threading.Event | None = None,
    *,
    drain: bool = False,
) -> dict[str, dict[str, Any]]:
    """Serve sinks until `stop`, or with `drain` until the log is delivered; give the status of each."""
    delivery = Delivery(run_dir, sinks, drain=drain)
    delivery.stopping = stop or delivery.stopping
    delivery.start()
    delivery.join()
    return delivery.status()


def pump(
    worker: Worker,
    stop: threading.Event,
    clock: Clock,
    *,
    poll_s: float = POLL_S,
    drain: threading.Event | bool = False,
) -> None:
    """Let a worker work until the stop, or with `drain` until it is done."""
    while not stop.is_set():
        # Looked at before the log is read: what was written before the drain was asked for is delivered.
        draining = drain if isinstance(drain, bool) else drain.is_set()
        if worker.round(stop):
            continue
        if draining and worker.is_done():
            return
        clock.wait(stop, worker.nap_s(poll_s))


def open_channel(sink: Sink, log: AlertLog, clock: Clock) -> Channel:
    """The way to a receiver that is told every change."""
    if isinstance(sink, ConsoleSink):
        return ConsoleChannel(sink)
    if isinstance(sink, LogSink):
        return CopyChannel(sink, log)
    if isinstance(sink, CloudEventsSink):
        return CloudEventsChannel(sink, clock)
    if isinstance(sink, KafkaSink):
        return KafkaChannel(sink)
    assert not isinstance(sink, AlertmanagerSink)
    return WebhookChannel(sink, clock)


def _trouble(error: Exception) -> str:
    """Name an unforeseen error by its kind and place; its text may quote a secret."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno}"
