"""CloudEvents sink: posts each alert event of every state as an event of CloudEvents 1.0 in structured JSON.

`id` is a hash of the alert id, its start and its state. A repeated event has the same `source` and `id`, which identify
an event in the standard. `time` is the event time of the state change: the end of the alert, else its firing time, else
its start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from tocsin.delivery.alert_json import Alert, fingerprint, labels_with_alertname, state_change_time, with_link
from tocsin.delivery.backoff import MAX_DELAY_S, Clock
from tocsin.delivery.http_client import HttpClient
from tocsin.delivery.sink_channel import LogEntry, SinkResponse
from tocsin.delivery.sinks import CloudEventsSink, duration_seconds

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
TYPE = "io.tocsin.alert."


class CloudEventsChannel:
    """Channel to a receiver of CloudEvents."""

    limit = 16
    takes_whole_batches = False
    max_delay_s = MAX_DELAY_S

    def __init__(self, sink: CloudEventsSink, clock: Clock) -> None:
        self._client = HttpClient(sink.url, "", sink.headers, duration_seconds(sink.timeout), clock)
        self._source, self._dashboard = sink.source, sink.dashboard.rstrip("/")

    def wants(self, alert: Alert) -> bool:
        """Return True: every state is sent."""
        return True

    def split_requests(self, chunk: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
        """Yield one request per alert event."""
        return ([entry] for entry in chunk)

    def send(self, request: Sequence[LogEntry]) -> SinkResponse:
        """POST one event."""
        (entry,) = request
        event = build_event(entry.alert, self._source, self._dashboard)
        return self._client.send(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"), CONTENT_TYPE)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def build_event(alert: Alert, source: str, dashboard: str = "") -> dict[str, Any]:
    """Return the CloudEvent of an alert event. With a dashboard, its data has a `generatorURL`."""
    return {
        "specversion": "1.0",
        "id": event_id(alert),
        "source": source,
        "type": TYPE + alert["state"],
        "subject": fingerprint(labels_with_alertname(alert)),
        "time": state_change_time(alert),
        "datacontenttype": "application/json",
        "data": with_link(alert, dashboard),
    }


def event_id(alert: Alert) -> str:
    """Return a hash that identifies a state change of an alert."""
    identity = json.dumps([alert["id"], alert["startsAt"], alert["state"]])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]
