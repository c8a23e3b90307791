"""Alertmanager: `POST /api/v2/alerts`, over and over, by the rules for alert generators.

A firing alert is sent at once and every `resend`, with `endsAt` = now + 4 times the longer of `resend` and `interval`,
so that it ends by itself if we fall silent. A resolved one is sent with its own `endsAt`, and again for 15 minutes.
`pending` and `inactive` are not sent; a match is a life that ended at once.
Guarantee: once Alertmanager answers, its set of active alerts becomes the set of label sets that fire in the log; every
line of the log is told, or superseded by a newer one of the same labels. While it is down the log is read on, and only
the newest state per label set waits: its interface knows states, not events.
Times: the `startsAt` of Alertmanager is the firing time, in event time, as for Prometheus. A time ahead of our clock is
sent as now, because an end in the future would mean that the alert still fires.
Cost: memory as in `book.py`; each `resend` costs a request per 64 firing alerts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from tocsin.deliver.alertlog import AlertLog, Position
from tocsin.deliver.book import FIRING, TOLD, Book, Telling
from tocsin.deliver.channel import Answer, Verdict
from tocsin.deliver.clock import Backoff, Clock
from tocsin.deliver.courier import Backlog
from tocsin.deliver.encode import seconds_of, time_text
from tocsin.deliver.ledger import Ledger
from tocsin.deliver.post import Post
from tocsin.deliver.sinks import AlertmanagerSink, seconds
from tocsin.deliver.webhook import page_of

MOST_ALERTS, _MOST_OWED = 64, 1_000
SAVE_S = 1.0
PATH = "/api/v2/alerts"


class Poster(Protocol):
    """What sends a body."""

    def send(self, body: bytes, content_type: str) -> Answer:
        """Send it and give the answer."""

    def close(self) -> None:
        """Close the connection."""


class AlertmanagerCourier:
    """Serves one Alertmanager."""

    def __init__(
        self,
        sink: AlertmanagerSink,
        log: AlertLog,
        ledger: Ledger,
        clock: Clock,
        backoff: Backoff,
        post: Poster | None = None,
    ) -> None:
        self.log, self.ledger, self.clock, self.backoff = log, ledger, clock, backoff
        self.book = Book(seconds(sink.resend), seconds(sink.show_past))
        self.backlog = Backlog(log, ledger)
        self._post = post or Post(sink.url, PATH, sink.headers, seconds(sink.timeout), clock)
        self._trust_s = 4 * max(seconds(sink.resend), seconds(sink.interval))
        self._dashboard = sink.dashboard.rstrip("/")
        self._not_before = self._saved_at = float("-inf")
        self._unread = self._skipped = 0
        self._is_stale = False
        # Moves ahead of the ledger's, which is only ever saved together with the book.
        self._position = ledger.position
        ledger.takes = list(TOLD)
        if ledger.state is not None:
            self.book.load(ledger.state)

    def round(self, stop: threading.Event) -> bool:
        """Read the log to its end, then tell what is due; say whether anything happened."""
        learned = self._learn(stop)
        told = False
        if self.clock.now() >= self._not_before:
            told = self._tell(stop)
        self._is_stale |= learned or told
        if not self._is_stale:
            self.ledger.save_news()
        elif self.clock.now() - self._saved_at >= SAVE_S:
            self._save()
        return learned or told

    def nap_s(self, poll_s: float) -> float:
        """How long to wait when there was nothing to do."""
        return min(poll_s, self.book.resend_s)

    def is_done(self) -> bool:
        """Whether Alertmanager knows all that was read."""
        return self.book.is_settled()

    def close(self) -> None:
        """Note the last of it and close the connection."""
        self._save(sync=True)
        self._post.close()

    def _learn(self, stop: threading.Event) -> bool:
        """Read on; nothing is told before the end is reached, so that old states are not told as new."""
        before = self._position
        for position, alert in self.log.read(before):
            self._skipped += not self.book.learn(alert, position, self.clock.now())
            self._position = position
            if stop.is_set():
                break
        else:
            self.backlog.ended(self._position)
            self._unread = self.ledger.counts["pending"]
        self.ledger.counts["pending"] = self._unread + self.book.owed()
        return self._position != before

    def _tell(self, stop: threading.Event) -> bool:
        due = self.book.due(self.clock.now())
        for i in range(0, len(due), MOST_ALERTS):
            if stop.is_set() or not self._send(due[i : i + MOST_ALERTS], stop):
                break
        return bool(due)

    def _send(self, tellings: Sequence[Telling], stop: threading.Event) -> bool:
        """Send some; say whether Alertmanager is there."""
        now = self.clock.now()
        body = json.dumps([self._body(telling, now) for telling in tellings], ensure_ascii=False)
        answer = self._post.send(body.encode("utf-8", "replace"), "application/json")
        if answer.verdict is Verdict.RETRY:
            self.ledger.failed(answer.text)
            self.ledger.add(retries=1)
            self._not_before = now + self.backoff.next_s(answer.asked_s)
            return False
        self.backoff.reset()
        if answer.verdict is Verdict.REJECTED:
            return self._refuse(tellings, answer, stop)
        self.ledger.succeeded()
        self.ledger.add(delivered=sum(self.book.tell(telling, now) for telling in tellings))
        return True

    def _refuse(self, tellings: Sequence[Telling], answer: Answer, stop: threading.Event) -> bool:
        """Find out which alert is at fault; the others are taken."""
        if answer.split and len(tellings) > 1:
            middle = len(tellings) // 2
            return self._send(tellings[:middle], stop) and self._send(tellings[middle:], stop)
        now = self.clock.now()
        for telling in tellings:
            self.ledger.reject(Position(*telling.life.place), self._body(telling, now), answer)
            self.ledger.add(rejected=self.book.tell(telling, now, refused=True))
        return True

    def _body(self, telling: Telling, now: float) -> dict[str, Any]:
        life = telling.life
        ends_at = time_text(now + self._trust_s) if telling.mode == FIRING else _not_ahead(life.ends_at, now)
        body = {
            "labels": life.labels,
            "annotations": life.annotations,
            "startsAt": _not_ahead(life.starts_at, now),
            "endsAt": ends_at,
        }
        page = page_of(self._dashboard, life.id)
        return {**body, "generatorURL": page} if page else body

    def _save(self, *, sync: bool = False) -> None:
        self.ledger.add(superseded=self.book.superseded, skipped=self._skipped)
        self.book.superseded = self._skipped = 0
        self.ledger.position = self._position
        self.ledger.counts["pending"] = self._unread + self.book.owed()
        self.ledger.state, self.ledger.owed = self.book.dump(), self.book.owing(_MOST_OWED)
        self.ledger.save(sync=sync)
        self._saved_at, self._is_stale = self.clock.now(), False


def _not_ahead(text: str | None, now: float) -> str:
    assert text is not None
    return time_text(now) if seconds_of(text) > now else text
