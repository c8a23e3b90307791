"""A model of Alertmanager, and a courier to it that can be killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deliver.alerts import ManualClock, quick_backoff, write_log
from tocsin.deliver import AlertLog, AlertmanagerSink
from tocsin.deliver.alertmanager import AlertmanagerCourier
from tocsin.deliver.channel import DELIVERED, Answer, Verdict
from tocsin.deliver.encode import fingerprint, seconds_of
from tocsin.deliver.ledger import Ledger
from tocsin.deliver.run import pump


class Killed(BaseException):
    """The process ends here."""


class Model:
    """Holds alerts as Alertmanager does: one per label set, firing until its `endsAt`."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.alerts: dict[str, dict[str, Any]] = {}
        self.posts: list[tuple[float, list[dict[str, Any]]]] = []
        self.before: Callable[[], Answer | None] = lambda: None
        self.after: Callable[[], Answer | None] = lambda: None
        self.seen_firing: set[tuple[str, str]] = set()

    def send(self, body: bytes, content_type: str) -> Answer:
        trouble = self.before()
        if trouble is not None:
            return trouble
        alerts = json.loads(body)
        assert 0 < len(alerts) <= 64
        self.posts.append((self.clock.now(), alerts))
        bad = [alert for alert in alerts if not all(name.isidentifier() for name in alert["labels"])]
        for alert in alerts:
            assert seconds_of(alert["startsAt"]) <= seconds_of(alert["endsAt"])
            if alert not in bad:
                self._put(alert)
        if bad:
            return Answer(Verdict.REJECTED, "invalid label", 400, split=True)
        return self.after() or DELIVERED

    def close(self) -> None:
        pass

    def active(self) -> set[str]:
        now = self.clock.now()
        return {name for name, alert in self.alerts.items() if seconds_of(alert["endsAt"]) > now}

    def _put(self, alert: dict[str, Any]) -> None:
        self.alerts[fingerprint(alert["labels"])] = alert
        if seconds_of(alert["endsAt"]) > self.clock.now():
            self.seen_firing.add((fingerprint(alert["labels"]), alert["startsAt"]))


def labels_of(alert: dict[str, Any]) -> str:
    return fingerprint({**alert["labels"], "alertname": alert["alert"]})


def firing_in(log: AlertLog) -> set[str]:
    """Label sets that fire at the end of a log."""
    firing: dict[str, str] = {}
    for _, alert in log.read():
        if alert["state"] == "firing":
            firing[alert["id"]] = labels_of(alert)
        elif alert["state"] == "resolved":
            firing.pop(alert["id"], None)
    return set(firing.values())


class Session:
    """A courier that can be killed and started again."""

    def __init__(self, run: Path, clock: ManualClock, post: Any = None, **options: Any) -> None:
        self.run, self.clock, self.post = run, clock, post
        self.sink = AlertmanagerSink(**{"url": "http://127.0.0.1:1", **options})
        self.open()

    def open(self) -> None:
        self.ledger = Ledger(self.run / "delivery", "am", "alertmanager", self.clock)
        self.reopen()

    def reopen(self) -> None:
        """Take up the work from the ledger at hand."""
        log = AlertLog(self.run / "alerts")
        self.courier = AlertmanagerCourier(self.sink, log, self.ledger, self.clock, quick_backoff(), self.post)

    def drain(self) -> None:
        pump(self.courier, threading.Event(), self.clock, drain=True)

    def run_for(self, seconds: float, poll_s: float = 1.0) -> None:
        stop, until = threading.Event(), self.clock.now() + seconds
        while self.clock.now() < until:
            if not self.courier.round(stop):
                self.clock.wait(stop, self.courier.nap_s(poll_s))

    def kill(self) -> None:
        """End without a word, and come back."""
        self.ledger.close()
        self.open()

    def close(self) -> None:
        self.courier.close()
        self.ledger.close()

    def accounts(self) -> int:
        counts = self.ledger.counts
        return (
            sum(counts[name] for name in ("delivered", "superseded", "skipped", "rejected")) + self.courier.book.owed()
        )


def session(run: Path, batches: list[list[dict[str, Any]]], **options: Any) -> tuple[Session, Model]:
    write_log(run, batches)
    clock = ManualClock()
    model = Model(clock)
    return Session(run, clock, model, **options), model
