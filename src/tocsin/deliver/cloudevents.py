"""CloudEvents 1.0 in structured JSON, one event per change of state, of every state.

`id` is a hash of the alert's id, its start and its state: a repeat has the same `source` and `id`, which
identify an event in the standard. `time` is the event time of the change: the end of an alert that ended, else its
firing time, else its start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from tocsin.deliver.channel import Answer, Entry
from tocsin.deliver.clock import CAP_S, Clock
from tocsin.deliver.encode import Alert, changed_at, fingerprint, full_labels
from tocsin.deliver.post import Post
from tocsin.deliver.sinks import CloudEventsSink, seconds

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
TYPE = "io.tocsin.alert."


class CloudEventsChannel:
    """A receiver of events."""

    limit = 16
    whole_batches = False
    cap_s = CAP_S

    def __init__(self, sink: CloudEventsSink, clock: Clock) -> None:
        self._post = Post(sink.url, "", sink.headers, seconds(sink.timeout), clock)
        self._source = sink.source

    def wants(self, alert: Alert) -> bool:
        """Every state is an event."""
        return True

    def parcels(self, step: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """One event per request."""
        return ([entry] for entry in step)

    def send(self, parcel: Sequence[Entry]) -> Answer:
        """POST one event."""
        (entry,) = parcel
        event = event_of(entry.alert, self._source)
        return self._post.send(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"), CONTENT_TYPE)

    def close(self) -> None:
        """Close the connection."""
        self._post.close()


def event_of(alert: Alert, source: str) -> dict[str, Any]:
    """An alert as an event."""
    return {
        "specversion": "1.0",
        "id": event_id(alert),
        "source": source,
        "type": TYPE + alert["state"],
        "subject": fingerprint(full_labels(alert)),
        "time": changed_at(alert),
        "datacontenttype": "application/json",
        "data": alert,
    }


def event_id(alert: Alert) -> str:
    """Hash the identity of a change of state."""
    identity = json.dumps([alert["id"], alert["startsAt"], alert["state"]])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]
