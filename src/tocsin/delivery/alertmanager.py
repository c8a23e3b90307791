"""Alertmanager sink: posts alerts to `/api/v2/alerts` repeatedly, as Alertmanager expects of its clients.

Algorithm: the worker sends a firing alert at once and then every `resend`. Its `endsAt` is the current time plus four
times the longer of `resend` and `interval`, so Alertmanager resolves the alert if Tocsin stops. The worker sends a
resolved alert with its own `endsAt`, and repeats it for 15 minutes. It does not send `pending` and `inactive`. It sends
a `match` first as firing and later as resolved. `startsAt` is the firing time in event time, as in Prometheus. A time
later than the current time is sent as the current time, because Alertmanager treats an alert as firing until its
`endsAt`.

Guarantees:
    - While Alertmanager responds, its active alerts converge to the label sets that fire in the alert log.
    - Every `firing`, `resolved` and `match` event of the log is sent, rejected, or superseded by an event with the same
      labels.
    - While Alertmanager is down, the worker continues to read the log. It retains only one state per label set, because
      the API of Alertmanager transfers states and not events.

Complexity: memory as in `alertmanager_state`. Each `resend` interval needs one request per 64 firing alerts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from tocsin.delivery.alert_json import alert_page_url, format_time, parse_seconds
from tocsin.delivery.alert_log import AlertLog, Position
from tocsin.delivery.alertmanager_state import FIRING, SENT_STATES, AlertmanagerState, Notification
from tocsin.delivery.backoff import Backoff, Clock
from tocsin.delivery.http_client import HttpClient
from tocsin.delivery.sink_channel import DeliveryStatus, SinkResponse
from tocsin.delivery.sink_cursor import SinkCursor
from tocsin.delivery.sink_worker import Backlog
from tocsin.delivery.sinks import AlertmanagerSink, duration_seconds

MAX_ALERTS, _MAX_UNSENT_ALERTS = 64, 1_000
SAVE_S = 1.0
PATH = "/api/v2/alerts"


class AlertPoster(Protocol):
    """HTTP client of the worker; tests replace it."""

    def send(self, body: bytes, content_type: str) -> SinkResponse:
        """POST a body and return the response."""

    def close(self) -> None:
        """Close the connection."""


class AlertmanagerWorker:
    """Worker that sends the alerts of a log to one Alertmanager."""

    def __init__(
        self,
        sink: AlertmanagerSink,
        log: AlertLog,
        cursor: SinkCursor,
        clock: Clock,
        backoff: Backoff,
        client: AlertPoster | None = None,
    ) -> None:
        self.log, self.cursor, self.clock, self.backoff = log, cursor, clock, backoff
        self.state = AlertmanagerState(duration_seconds(sink.resend), duration_seconds(sink.max_age))
        self.backlog = Backlog(log, cursor)
        self._client = client or HttpClient(sink.url, PATH, sink.headers, duration_seconds(sink.timeout), clock)
        self._firing_ttl_s = 4 * max(duration_seconds(sink.resend), duration_seconds(sink.interval))
        self._dashboard = sink.dashboard.rstrip("/")
        self._not_before = self._saved_at = float("-inf")
        self._unread = self._skipped = 0
        self._is_stale = False
        # Position of the reader. `_save_state` copies it to the cursor, so that position and state in the cursor file
        # are consistent.
        self._position = cursor.position
        cursor.accepted_states = list(SENT_STATES)
        if cursor.state is not None:
            self.state.load(cursor.state)

    def process_next(self, stop: threading.Event) -> bool:
        """Read the log to its end and send the notifications that are due; return whether anything was read or due."""
        has_read = self._read_log(stop)
        sent = False
        if self.clock.now() >= self._not_before:
            sent = self._send_due(stop)
        self._is_stale |= has_read or sent
        if not self._is_stale:
            self.cursor.save_if_changed()
        elif self.clock.now() - self._saved_at >= SAVE_S:
            self._save_state()
        return has_read or sent

    def idle_delay_s(self, poll_s: float) -> float:
        """Return how many seconds to wait after a call that found no work."""
        return min(poll_s, self.state.resend_s)

    def is_done(self) -> bool:
        """Return whether all alert events that were read have been sent or superseded."""
        return self.state.is_settled()

    def close(self) -> None:
        """Save the state and close the connection."""
        self._save_state(sync=True)
        self._client.close()

    def _read_log(self, stop: threading.Event) -> bool:
        """Read the new lines of the log; return whether there were any.

        The whole log is read before anything is sent, so that outdated states are not sent as current.
        """
        before = self._position
        for position, alert in self.log.read(before):
            self._skipped += not self.state.add_event(alert, position, self.clock.now())
            self._position = position
            if stop.is_set():
                break
        else:
            self.backlog.reset_at_end(self._position)
            self._unread = self.cursor.counts["pending"]
        self.cursor.counts["pending"] = self._unread + self.state.count_unsent()
        return self._position != before

    def _send_due(self, stop: threading.Event) -> bool:
        due = self.state.due_notifications(self.clock.now())
        for i in range(0, len(due), MAX_ALERTS):
            if stop.is_set() or not self._send_request(due[i : i + MAX_ALERTS], stop):
                break
        return bool(due)

    def _send_request(self, notifications: Sequence[Notification], stop: threading.Event) -> bool:
        """Send notifications in one request; return False if it must be retried later."""
        now = self.clock.now()
        body = json.dumps([self._build_alert(notification, now) for notification in notifications], ensure_ascii=False)
        response = self._client.send(body.encode("utf-8", "replace"), "application/json")
        if response.status is DeliveryStatus.RETRY:
            self.cursor.record_failure(response.text)
            self.cursor.add(retries=1)
            self._not_before = now + self.backoff.next_delay_s(response.retry_after_s)
            return False
        self.backoff.reset()
        if response.status is DeliveryStatus.REJECTED:
            return self._split_or_record(notifications, response, stop)
        self.cursor.record_success()
        self.cursor.add(delivered=sum(self.state.mark_sent(notification, now) for notification in notifications))
        return True

    def _split_or_record(
        self, notifications: Sequence[Notification], response: SinkResponse, stop: threading.Event
    ) -> bool:
        """Halve a rejected request until the invalid alerts are found and recorded; send the other alerts.

        Return False if a request must be retried later.
        """
        if response.split and len(notifications) > 1:
            middle = len(notifications) // 2
            return self._send_request(notifications[:middle], stop) and self._send_request(notifications[middle:], stop)
        now = self.clock.now()
        for notification in notifications:
            position = Position(*notification.instance.position)
            self.cursor.record_rejection(position, self._build_alert(notification, now), response)
            self.cursor.add(rejected=self.state.mark_sent(notification, now, is_rejected=True))
        return True

    def _build_alert(self, notification: Notification, now: float) -> dict[str, Any]:
        instance = notification.instance
        ends_at = (
            format_time(now + self._firing_ttl_s)
            if notification.mode == FIRING
            else _clamp_to_now(instance.ends_at, now)
        )
        body = {
            "labels": instance.labels,
            "annotations": instance.annotations,
            "startsAt": _clamp_to_now(instance.starts_at, now),
            "endsAt": ends_at,
        }
        page = alert_page_url(self._dashboard, instance.id)
        return {**body, "generatorURL": page} if page else body

    def _save_state(self, *, sync: bool = False) -> None:
        self.cursor.add(superseded=self.state.superseded, skipped=self._skipped)
        self.state.superseded = self._skipped = 0
        self.cursor.position = self._position
        self.cursor.counts["pending"] = self._unread + self.state.count_unsent()
        self.cursor.state, self.cursor.unsent = self.state.dump(), self.state.unsent_states(_MAX_UNSENT_ALERTS)
        self.cursor.save(sync=sync)
        self._saved_at, self._is_stale = self.clock.now(), False


def _clamp_to_now(text: str | None, now: float) -> str:
    assert text is not None
    return format_time(now) if parse_seconds(text) > now else text
