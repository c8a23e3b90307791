"""Webhook sink: posts the webhook body of Alertmanager, version 4, plus `id`, `firesAt` and `values` per alert.

The sink sends `firing`, `resolved` and `match`, because version 4 cannot express the other states. It sends a match as
firing, with an end. A body contains up to 64 alerts of one name, and each label set at most once. `id` and `status`
identify a state change. `fingerprint` (computed as in Alertmanager) and `startsAt` do not, because two alerts of a key
can start at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tocsin.delivery.alert_json import Alert, alert_page_url, fingerprint, labels_with_alertname
from tocsin.delivery.backoff import MAX_DELAY_S, Clock
from tocsin.delivery.http_client import HttpClient
from tocsin.delivery.sink_channel import LogEntry, SinkResponse, split_repeated
from tocsin.delivery.sinks import WebhookSink, duration_seconds

MAX_ALERTS = 64
OPEN_END = "0001-01-01T00:00:00Z"
RECEIVER = "tocsin"


class WebhookChannel:
    """Channel to a receiver of Alertmanager webhooks."""

    limit = 4 * MAX_ALERTS
    takes_whole_batches = False
    max_delay_s = MAX_DELAY_S

    def __init__(self, sink: WebhookSink, clock: Clock) -> None:
        self._client = HttpClient(sink.url, "", sink.headers, duration_seconds(sink.timeout), clock)
        self._dashboard = sink.dashboard.rstrip("/")

    def wants(self, alert: Alert) -> bool:
        """Return whether version 4 can express the state of an alert event."""
        return alert["state"] in {"firing", "resolved", "match"}

    def split_requests(self, chunk: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
        """Yield requests with alerts of one name, each label set at most once per request."""
        for distinct in split_repeated(chunk, _label_key):
            groups: dict[str, list[LogEntry]] = {}
            for entry in distinct:
                groups.setdefault(entry.alert["alert"], []).append(entry)
            for group in groups.values():
                yield from (group[i : i + MAX_ALERTS] for i in range(0, len(group), MAX_ALERTS))

    def send(self, request: Sequence[LogEntry]) -> SinkResponse:
        """POST one body."""
        body = build_webhook_body([entry.alert for entry in request], self._dashboard)
        return self._client.send(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"), "application/json")

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def build_webhook_body(alerts: Sequence[Alert], dashboard: str = "") -> dict[str, Any]:
    """Return the webhook body for alert events of one alert name."""
    bodies = [_build_alert(alert, dashboard) for alert in alerts]
    name = alerts[0]["alert"]
    return {
        "version": "4",
        "groupKey": "{}:{alertname=" + json.dumps(name) + "}",
        "truncatedAlerts": 0,
        "status": "firing" if any(alert["status"] == "firing" for alert in bodies) else "resolved",
        "receiver": RECEIVER,
        "groupLabels": {"alertname": name},
        "commonLabels": _common_items([alert["labels"] for alert in bodies]),
        "commonAnnotations": _common_items([alert["annotations"] for alert in bodies]),
        "externalURL": dashboard,
        "alerts": bodies,
    }


def witness_values(alert: Alert) -> dict[str, float | None]:
    """Return the values of the witness by `stream`, or by `stream.column` if the column is not `value`."""
    values: dict[str, float | None] = {}
    for part in alert["witness"]:
        for column, value in part["values"].items():
            values.setdefault(part["stream"] if column == "value" else f"{part['stream']}.{column}", value)
    return values


def _label_key(alert: Alert) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels_with_alertname(alert).items()))


def _build_alert(alert: Alert, dashboard: str) -> dict[str, Any]:
    labels = labels_with_alertname(alert)
    return {
        "status": "resolved" if alert["state"] == "resolved" else "firing",
        "labels": labels,
        "annotations": alert["annotations"],
        "startsAt": alert["startsAt"],
        "firesAt": alert["firesAt"],
        "endsAt": alert["endsAt"] or OPEN_END,
        "generatorURL": alert_page_url(dashboard, alert["id"]),
        "fingerprint": fingerprint(labels),
        "id": alert["id"],
        "values": witness_values(alert),
    }


def _common_items(maps: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *rest = maps
    return {name: text for name, text in first.items() if all(other.get(name) == text for other in rest)}
