"""Alertmanager state: for each label set, the alert that Alertmanager should show and the last notification to it.

Alertmanager holds one state per label set. Several alerts of Tocsin can have the same labels, for example an alert and
a late alert of the same key. This module selects one of them. It reads no clock and no file; `alertmanager` calls it.

Algorithm: a label set retains its open alerts and the ended alert with the latest firing time. It shows the open alert
with the latest firing time. If firing times are equal, the alert with the later log line wins. Without an open alert
it shows the ended alert. The unsent events of a dropped alert count as superseded.

Guarantees:
    - An alert that ended more than `max_age_s` before its end was read, and that was never sent, is historic. It is
      sent once, as resolved, so Alertmanager does not notify about it.
    - Any other alert is sent as firing for at least `min_firing_s` before it is sent as resolved, even if it began and
      ended while Alertmanager was down, unless it is superseded. Alertmanager would not notify about an alert that it
      receives only as resolved.

Complexity: memory for the label sets that fire, wait for a notification, or ended in the last 15 minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from tocsin.delivery.alert_json import Alert, fingerprint, labels_with_alertname, parse_seconds

RESOLVED_S = 15 * 60.0
FIRING, RESOLVED = "firing", "resolved"
# States of alert events that are sent to Alertmanager.
SENT_STATES = ("firing", "resolved", "match")


@dataclass
class AlertInstance:
    """One alert with its times as Alertmanager receives them.

    Attributes
    ----------
    starts_at
        Firing time.
    ends_at
        End of the alert; None while it fires.
    unsent
        States of its alert events that Alertmanager has not received.
    first_sent
        Unix time of its first notification; None before it.
    is_historic
        Whether it ended long before it was read.
    position
        Position of its newest event in the alert log.
    """

    id: str
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: str
    ends_at: str | None = None
    unsent: list[str] = field(default_factory=list)
    first_sent: float | None = None
    is_historic: bool = False
    position: list[int] = field(default_factory=list)


@dataclass
class LabelSetState:
    """Alerts with the same labels, and the last notification about them.

    Attributes
    ----------
    open
        Firing alerts by id.
    ended
        Ended alert with the latest firing time.
    sent
        Alert id and mode of the last notification.
    sent_at
        Unix time of the last notification.
    first_sent_at
        Unix time of the first notification with this id and mode.
    is_rejected
        Whether Alertmanager rejected the last notification.
    """

    open: dict[str, AlertInstance] = field(default_factory=dict)
    ended: AlertInstance | None = None
    sent: list[str] | None = None
    sent_at: float = 0.0
    first_sent_at: float = 0.0
    is_rejected: bool = False

    def instances(self) -> list[AlertInstance]:
        """Return all retained alerts."""
        return [*self.open.values(), *([self.ended] if self.ended is not None else [])]


@dataclass(frozen=True)
class Notification:
    """Alert of a label set and its mode: `FIRING` or `RESOLVED`."""

    label_set: str
    instance: AlertInstance
    mode: str


class AlertmanagerState:
    """Alerts by label set, and the notifications that are due.

    Attributes
    ----------
    resend_s
        Interval between repeated notifications.
    min_firing_s
        Shortest time between the first notification of an alert and its notification as resolved.
    max_age_s
        An alert is historic if it ended more than this many seconds before its end was read, and was never sent.
    label_sets
        States by fingerprint of the labels.
    superseded
        Number of superseded events since the caller last reset it.
    """

    def __init__(self, resend_s: float, max_age_s: float) -> None:
        self.resend_s, self.min_firing_s, self.max_age_s = resend_s, resend_s, max_age_s
        self.label_sets: dict[str, LabelSetState] = {}
        self.superseded = 0

    def add_event(self, alert: Alert, position: Iterable[int], now: float) -> bool:
        """Apply an alert event of the log; return False if its state is not sent to Alertmanager."""
        state = alert["state"]
        if state not in SENT_STATES:
            return False
        labels = labels_with_alertname(alert)
        label_set = self.label_sets.setdefault(fingerprint(labels), LabelSetState())
        instance = label_set.open.get(alert["id"]) or AlertInstance(
            alert["id"], labels, {}, alert["firesAt"] or alert["startsAt"]
        )
        instance.annotations, instance.position = alert["annotations"], list(position)
        instance.unsent.append(state)
        if state == "firing":
            label_set.open[instance.id] = instance
            self._count_superseded(label_set.ended)
            label_set.ended = None
        else:
            label_set.open.pop(instance.id, None)
            instance.ends_at = alert["endsAt"]
            instance.is_historic = instance.first_sent is None and now - parse_seconds(alert["endsAt"]) > self.max_age_s
            self._record_end(label_set, instance)
        return True

    def due_notifications(self, now: float) -> list[Notification]:
        """Return the notifications due now: new states first, then resends, oldest first.

        Remove label sets that need no further notification.
        """
        due = []
        for name, label_set in list(self.label_sets.items()):
            notification = self._current_notification(name, label_set, now)
            if label_set.sent != [notification.instance.id, notification.mode]:
                due.append(((0, 0.0), notification))
            elif self._is_complete(label_set, notification, now):
                del self.label_sets[name]
            elif not label_set.is_rejected and now - label_set.sent_at >= self.resend_s:
                due.append(((1, label_set.sent_at), notification))
        due.sort(key=lambda item: item[0])
        return [notification for _, notification in due]

    def mark_sent(self, notification: Notification, now: float, *, is_rejected: bool = False) -> int:
        """Record a notification that Alertmanager accepted or rejected; return how many events it settles."""
        label_set, instance = self.label_sets[notification.label_set], notification.instance
        if label_set.sent != [instance.id, notification.mode]:
            label_set.sent, label_set.first_sent_at = [instance.id, notification.mode], now
        label_set.sent_at, label_set.is_rejected = now, is_rejected
        if instance.first_sent is None:
            instance.first_sent = now
        settled = [state for state in instance.unsent if notification.mode == RESOLVED or state != "resolved"]
        instance.unsent = [state for state in instance.unsent if state not in settled]
        return len(settled)

    def count_unsent(self) -> int:
        """Return the number of alert events that have not been sent."""
        return sum(len(instance.unsent) for label_set in self.label_sets.values() for instance in label_set.instances())

    def unsent_states(self, max_alerts: int) -> dict[str, list[str]]:
        """Return the unsent states by alert id, for at most `max_alerts` alerts."""
        instances = (
            instance for label_set in self.label_sets.values() for instance in label_set.instances() if instance.unsent
        )
        return {instance.id: list(instance.unsent) for instance in islice(instances, max_alerts)}

    def is_settled(self) -> bool:
        """Return whether all events have been sent and only resends remain."""
        return self.count_unsent() == 0 and all(self._is_sent(label_set) for label_set in self.label_sets.values())

    def dump(self) -> dict[str, Any]:
        """Return the state as JSON values.

        `sent_at` is reset, so everything is due after a restart: Alertmanager may have lost its alerts meanwhile.
        """
        label_sets = {name: {**asdict(label_set), "sent_at": 0.0} for name, label_set in self.label_sets.items()}
        return {"label_sets": label_sets}

    def load(self, state: Any) -> None:
        """Restore the state that `dump` returned."""
        for name, stored in state["label_sets"].items():
            instances = {key: AlertInstance(**instance) for key, instance in stored["open"].items()}
            ended = None if stored["ended"] is None else AlertInstance(**stored["ended"])
            self.label_sets[name] = LabelSetState(**{**stored, "open": instances, "ended": ended})

    def _current_notification(self, name: str, label_set: LabelSetState, now: float) -> Notification:
        if label_set.open:
            return Notification(
                name, max(label_set.open.values(), key=lambda instance: (instance.starts_at, instance.position)), FIRING
            )
        instance = label_set.ended
        assert instance is not None
        is_unsent = instance.first_sent is None and not instance.is_historic
        is_recently_sent = (
            instance.first_sent is not None
            and not instance.is_historic
            and now < instance.first_sent + self.min_firing_s
        )
        return Notification(name, instance, FIRING if is_unsent or is_recently_sent else RESOLVED)

    def _record_end(self, label_set: LabelSetState, instance: AlertInstance) -> None:
        """Retain an ended alert unless another alert is open or an ended alert fired later."""
        other = label_set.ended
        if label_set.open:
            self._count_superseded(instance)
        elif other is not None and other.starts_at > instance.starts_at:
            self._count_superseded(instance)
        else:
            self._count_superseded(other)
            label_set.ended = instance

    def _count_superseded(self, instance: AlertInstance | None) -> None:
        self.superseded += len(instance.unsent) if instance is not None else 0

    def _is_complete(self, label_set: LabelSetState, notification: Notification, now: float) -> bool:
        if notification.mode == FIRING:
            return False
        return notification.instance.is_historic or label_set.is_rejected or now - label_set.first_sent_at >= RESOLVED_S

    def _is_sent(self, label_set: LabelSetState) -> bool:
        return bool(label_set.open) or label_set.sent is None or label_set.sent[1] == RESOLVED
