"""Model of Alertmanager, and an Alertmanager worker that tests can kill and restart."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from delivery.alerts import ManualClock, quick_backoff, write_log
from tocsin.delivery import AlertLog, AlertmanagerSink
from tocsin.delivery.alert_json import fingerprint, parse_seconds
from tocsin.delivery.alertmanager import AlertmanagerWorker
from tocsin.delivery.delivery import run_worker
from tocsin.delivery.sink_channel import DELIVERED, DeliveryStatus, SinkResponse
from tocsin.delivery.sink_cursor import SinkCursor


class Killed(BaseException):
    """Simulated end of the process."""


class AlertmanagerModel:
    """Model of Alertmanager: one alert per label set, firing until its `endsAt`.

    `before` and `after` run before and after a request is applied. They can fail, or return another response.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.alerts: dict[str, dict[str, Any]] = {}
        self.posts: list[tuple[float, list[dict[str, Any]]]] = []
        self.before: Callable[[], SinkResponse | None] = lambda: None
        self.after: Callable[[], SinkResponse | None] = lambda: None
        self.seen_firing: set[tuple[str, str]] = set()

    def send(self, body: bytes, content_type: str) -> SinkResponse:
        failure = self.before()
        if failure is not None:
            return failure
        alerts = json.loads(body)
        assert 0 < len(alerts) <= 64
        self.posts.append((self.clock.now(), alerts))
        bad = [alert for alert in alerts if not all(name.isidentifier() for name in alert["labels"])]
        for alert in alerts:
            assert parse_seconds(alert["startsAt"]) <= parse_seconds(alert["endsAt"])
            if alert not in bad:
                self._put(alert)
        if bad:
            return SinkResponse(DeliveryStatus.REJECTED, "invalid label", 400, split=True)
        return self.after() or DELIVERED

    def close(self) -> None:
        pass

    def active(self) -> set[str]:
        now = self.clock.now()
        return {name for name, alert in self.alerts.items() if parse_seconds(alert["endsAt"]) > now}

    def _put(self, alert: dict[str, Any]) -> None:
        self.alerts[fingerprint(alert["labels"])] = alert
        if parse_seconds(alert["endsAt"]) > self.clock.now():
            self.seen_firing.add((fingerprint(alert["labels"]), alert["startsAt"]))


def label_fingerprint(alert: dict[str, Any]) -> str:
    return fingerprint({**alert["labels"], "alertname": alert["alert"]})


def firing_label_sets(log: AlertLog) -> set[str]:
    """Return the fingerprints of the labels that fire at the end of a log."""
    firing: dict[str, str] = {}
    for _, alert in log.read():
        if alert["state"] == "firing":
            firing[alert["id"]] = label_fingerprint(alert)
        elif alert["state"] == "resolved":
            firing.pop(alert["id"], None)
    return set(firing.values())


class WorkerProcess:
    """Alertmanager worker that can be killed and restarted."""

    def __init__(self, run: Path, clock: ManualClock, post: Any = None, **options: Any) -> None:
        self.run, self.clock, self.post = run, clock, post
        self.sink = AlertmanagerSink(**{"url": "http://127.0.0.1:1", **options})
        self.open()

    def open(self) -> None:
        self.cursor = SinkCursor(self.run / "delivery", "am", "alertmanager", self.clock)
        self.reopen()

    def reopen(self) -> None:
        """Create a new worker for the open cursor."""
        log = AlertLog(self.run / "alerts")
        self.worker = AlertmanagerWorker(self.sink, log, self.cursor, self.clock, quick_backoff(), self.post)

    def drain(self) -> None:
        run_worker(self.worker, threading.Event(), self.clock, drain=True)

    def run_for(self, seconds: float, poll_s: float = 1.0) -> None:
        stop, until = threading.Event(), self.clock.now() + seconds
        while self.clock.now() < until:
            if not self.worker.process_next(stop):
                self.clock.wait(stop, self.worker.idle_delay_s(poll_s))

    def kill(self) -> None:
        """End without saving, and restart."""
        self.cursor.close()
        self.open()

    def close(self) -> None:
        self.worker.close()
        self.cursor.close()

    def accounted_events(self) -> int:
        counts = self.cursor.counts
        return (
            sum(counts[name] for name in ("delivered", "superseded", "skipped", "rejected"))
            + self.worker.state.count_unsent()
        )


def start_worker(
    run: Path, batches: list[list[dict[str, Any]]], **options: Any
) -> tuple[WorkerProcess, AlertmanagerModel]:
    write_log(run, batches)
    clock = ManualClock()
    model = AlertmanagerModel(clock)
    return WorkerProcess(run, clock, model, **options), model
