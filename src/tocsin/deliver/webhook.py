"""Webhook: Alertmanager's body, version 4, plus `id`, `firesAt` and `values` per alert.

Told are `firing`, `resolved` and `match`; version 4 has no word for the others. A match is told as firing with its end.
A body holds up to 64 alerts of one name, each label set once. `id` and `status` identify a change of state: alerts with
one `fingerprint` (computed as in Alertmanager) may have one `startsAt`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tocsin.deliver.channel import Answer, Entry, waves
from tocsin.deliver.clock import CAP_S, Clock
from tocsin.deliver.encode import Alert, fingerprint, full_labels
from tocsin.deliver.post import Post
from tocsin.deliver.sinks import WebhookSink, seconds

MOST_ALERTS = 64
OPEN_END = "0001-01-01T00:00:00Z"
RECEIVER = "tocsin"


class WebhookChannel:
    """A receiver of Alertmanager's notifications."""

    limit = 4 * MOST_ALERTS
    whole_batches = False
    cap_s = CAP_S

    def __init__(self, sink: WebhookSink, clock: Clock) -> None:
        self._post = Post(sink.url, "", sink.headers, seconds(sink.timeout), clock)
        self._dashboard = sink.dashboard.rstrip("/")

    def wants(self, alert: Alert) -> bool:
        """Version 4 knows firing and resolved."""
        return alert["state"] in {"firing", "resolved", "match"}

    def parcels(self, step: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """One body per name of alert, with each label set once."""
        for wave in waves(step, _label_set):
            groups: dict[str, list[Entry]] = {}
            for entry in wave:
                groups.setdefault(entry.alert["alert"], []).append(entry)
            for group in groups.values():
                yield from (group[i : i + MOST_ALERTS] for i in range(0, len(group), MOST_ALERTS))

    def send(self, parcel: Sequence[Entry]) -> Answer:
        """POST one body."""
        body = webhook_body([entry.alert for entry in parcel], self._dashboard)
        return self._post.send(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"), "application/json")

    def close(self) -> None:
        """Close the connection."""
        self._post.close()


def webhook_body(alerts: Sequence[Alert], dashboard: str = "") -> dict[str, Any]:
    """Alerts of one name as Alertmanager would notify of them."""
    shown = [_shown(alert, dashboard) for alert in alerts]
    name = alerts[0]["alert"]
    return {
        "version": "4",
        "groupKey": "{}:{alertname=" + json.dumps(name) + "}",
        "truncatedAlerts": 0,
        "status": "firing" if any(alert["status"] == "firing" for alert in shown) else "resolved",
        "receiver": RECEIVER,
        "groupLabels": {"alertname": name},
        "commonLabels": _common([alert["labels"] for alert in shown]),
        "commonAnnotations": _common([alert["annotations"] for alert in shown]),
        "externalURL": dashboard,
        "alerts": shown,
    }


def page_of(dashboard: str, alert_id: str) -> str:
    """The address of an alert's page."""
    return f"{dashboard}/alerts/{alert_id}" if dashboard else ""


def values_of(alert: Alert) -> dict[str, float | None]:
    """The values of the witness by `stream`, or by `stream.column` where the column is not `value`."""
    values: dict[str, float | None] = {}
    for part in alert["witness"]:
        for column, value in part["values"].items():
            values.setdefault(part["stream"] if column == "value" else f"{part['stream']}.{column}", value)
    return values


def _label_set(alert: Alert) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(full_labels(alert).items()))


def _shown(alert: Alert, dashboard: str) -> dict[str, Any]:
    labels = full_labels(alert)
    return {
        "status": "resolved" if alert["state"] == "resolved" else "firing",
        "labels": labels,
        "annotations": alert["annotations"],
        "startsAt": alert["startsAt"],
        "firesAt": alert["firesAt"],
        "endsAt": alert["endsAt"] or OPEN_END,
        "generatorURL": page_of(dashboard, alert["id"]),
        "fingerprint": fingerprint(labels),
        "id": alert["id"],
        "values": values_of(alert),
    }


def _common(maps: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *rest = maps
    return {name: text for name, text in first.items() if all(other.get(name) == text for other in rest)}
