"""Replay the series of a test through the plan of some rules, and return the known alerts at requested times.

A session is driven as in a run, by a clock that shows the time of the test: it processes the rows that have arrived,
and the last row of a key sets the last-seen time of the key. Rows are processed once. For each requested time, a second
session continues from the state pages and advances to that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tocsin.plan import Plan, Watch
from tocsin.rules.model import Rule
from tocsin.rules.no_data import AnyRule
from tocsin.rules.template import parse_template
from tocsin.runtime.contract import NEVER_SEEN, Batch
from tocsin.runtime.session import Session, store_pages
from tocsin.testing.model import Scenario

Labels = tuple[tuple[str, str], ...]
# The rule of an alert, by its name and labels.
FindRule = Callable[[str, Mapping[str, str]], AnyRule]


@dataclass(frozen=True)
class Alert:
    """The last event of an alert. Times count from time 0; `witness` has values by stream and column."""

    name: str
    id: str
    state: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at_us: int
    ends_at_us: int | None
    value: float
    margin: float
    witness: Mapping[str, Mapping[str, float]]
    is_late: bool

    @property
    def label_set(self) -> tuple[str, Labels]:
        """Name and labels of the alert."""
        return self.name, tuple(sorted(self.labels.items()))


@dataclass(frozen=True)
class KnownAlerts:
    """Alerts that are known at a time: pending and firing alerts and all matches so far; and ended alerts."""

    alerts: tuple[Alert, ...] = ()
    ended: tuple[Alert, ...] = ()


@dataclass
class AlertHistory:
    """Open alerts, matches and ended alerts after some alert events."""

    open: dict[str, Alert] = field(default_factory=dict)
    matches: list[Alert] = field(default_factory=list)
    ended: list[Alert] = field(default_factory=list)

    def apply(self, alerts: Iterable[Alert]) -> None:
        """Apply alert events."""
        for alert in alerts:
            if alert.state == "match":
                self.matches.append(alert)
            elif alert.state in {"pending", "firing"}:
                self.open[alert.id] = alert
            else:
                self.open.pop(alert.id, None)
                self.ended.append(alert)

    def copy(self) -> AlertHistory:
        """Return an independent copy."""
        return AlertHistory(dict(self.open), list(self.matches), list(self.ended))

    def known_alerts(self) -> KnownAlerts:
        """Return the known alerts. Of open alerts with equal labels, prefer firing ones, then the ones in order."""
        shown: dict[tuple[str, Labels], Alert] = {}
        for alert in sorted(self.open.values(), key=lambda one: (one.state != "firing", one.is_late)):
            shown.setdefault(alert.label_set, alert)
        return KnownAlerts((*shown.values(), *self.matches), tuple(self.ended))


class Replay:
    """Replay of the rows of a test through a keyed pipeline; `find` returns the rule of an alert."""

    def __init__(self, scenario: Scenario, watch: Watch, find: FindRule, batches: Sequence[Batch]) -> None:
        self.scenario, self.find, self.batches = scenario, find, batches
        self.history = AlertHistory()
        self.story: list[tuple[int, Alert]] = []
        self._plan = Plan((watch,))
        self._session = Session(self._plan)
        self._pages: dict[str, bytes] = {}
        self._until: int | None = None

    def arrivals(self) -> list[int]:
        """Return the arrival times of rows in order, counted from time 0."""
        times = np.unique(np.concatenate([batch.arrival for batch in self.batches]))
        return [int(time) - self.scenario.start_us for time in times]

    def advance_to(self, time_us: int) -> None:
        """Process the rows that arrive up to a time."""
        until = self.scenario.start_us + time_us
        for boundary in _last_arrivals([_between(batch, self._until, until) for batch in self.batches]):
            piece = [_between(batch, self._until, boundary) for batch in self.batches]
            self._until = boundary
            alerts = [self._alert(row) for row in self._session.push(piece, boundary).alert_rows()]
            self.history.apply(alerts)
            self.story += [(boundary - self.scenario.start_us, alert) for alert in alerts]
        self._until = until

    def known_alerts(self, time_us: int) -> KnownAlerts:
        """Return the alerts that are known at a time. Call `advance_to` with this time first."""
        store_pages(self._pages, self._session.changed_pages())
        copy, history = Session(self._plan, self._pages), self.history.copy()
        history.apply(self._alert(row) for row in copy.advance(self.scenario.start_us + time_us).alert_rows())
        return history.known_alerts()

    def _alert(self, row: Mapping[str, Any]) -> Alert:
        start, rule = self.scenario.start_us, self.find(row["alert"], row["labels"])
        texts = rule.annotations if isinstance(rule, Rule) else {}
        return Alert(
            row["alert"],
            row["id"],
            row["state"],
            row["labels"],
            {name: parse_template(text).render(row) for name, text in texts.items()},
            row["startsAt"] - start,
            None if row["endsAt"] is None else row["endsAt"] - start,
            row["value"],
            row["margin"],
            {part["stream"]: part["values"] for part in row["witness"]},
            "late" in row["quality"].split(),
        )


def _last_arrivals(batches: Sequence[Batch]) -> list[int]:
    """Return the last arrival time of each key, in order, because a session has one processing time per call."""
    last: dict[tuple[str, ...], int] = {}
    for batch in batches:
        newest = np.full(len(batch.keys), NEVER_SEEN)
        np.maximum.at(newest, batch.key, batch.arrival)
        for key, time in zip(batch.keys, newest.tolist(), strict=True):
            last[key] = max(time, last.get(key, time))
    return sorted(set(last.values()) - {NEVER_SEEN})


def _between(batch: Batch, after: int | None, until: int) -> Batch:
    """Return the rows of a batch that arrive after `after` and not after `until`."""
    mine = batch.arrival <= until
    if after is not None:
        mine &= batch.arrival > after
    values = {name: column[mine] for name, column in batch.values.items()}
    return replace(batch, key=batch.key[mine], time=batch.time[mine], arrival=batch.arrival[mine], values=values)
