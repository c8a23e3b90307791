"""Replay the series of a test through the plan of some rules: the alerts known at each time that is asked for.

The logic is driven as a run drives it, by a clock that reads the time of the test: it takes the rows that have arrived,
each key being seen last when its last row arrived, and is told the time. Rows are taken once: at each time asked for
the state is written and read back, and the copy is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tocsin.logic import NEVER_SEEN, Batch
from tocsin.plan import Plan, Watch
from tocsin.rules.model import Rule
from tocsin.rules.no_data import AnyRule
from tocsin.rules.template import parse_template
from tocsin.testing.model import Scenario

Labels = tuple[tuple[str, str], ...]
# The rule of an alert, by its name and labels.
Find = Callable[[str, Mapping[str, str]], AnyRule]


@dataclass(frozen=True)
class Alert:
    """An alert as it was last told; times count from time 0. `witness` has its values by stream and column."""

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
        """Name and labels."""
        return self.name, tuple(sorted(self.labels.items()))


@dataclass(frozen=True)
class Moment:
    """What is known at a time: alerts that are pending or firing (and all matches so far), and those that ended."""

    alerts: tuple[Alert, ...] = ()
    ended: tuple[Alert, ...] = ()


@dataclass
class Lives:
    """The lives that rows tell of."""

    open: dict[str, Alert] = field(default_factory=dict)
    matches: list[Alert] = field(default_factory=list)
    ended: list[Alert] = field(default_factory=list)

    def take(self, alerts: Iterable[Alert]) -> None:
        """Learn of changes of state."""
        for alert in alerts:
            if alert.state == "match":
                self.matches.append(alert)
            elif alert.state in {"pending", "firing"}:
                self.open[alert.id] = alert
            else:
                self.open.pop(alert.id, None)
                self.ended.append(alert)

    def copy(self) -> Lives:
        """Lives that go on apart from these."""
        return Lives(dict(self.open), list(self.matches), list(self.ended))

    def moment(self) -> Moment:
        """What is open; of two lives with the same labels the one that fires is shown, else the one in order."""
        shown: dict[tuple[str, Labels], Alert] = {}
        for alert in sorted(self.open.values(), key=lambda one: (one.state != "firing", one.is_late)):
            shown.setdefault(alert.label_set, alert)
        return Moment((*shown.values(), *self.matches), tuple(self.ended))


class Replay:
    """Rows on their way through a watch; `find` gives the rule of an alert."""

    def __init__(self, scenario: Scenario, watch: Watch, find: Find, batches: Sequence[Batch]) -> None:
        self.scenario, self.find, self.batches = scenario, find, batches
        self.lives = Lives()
        self.story: list[tuple[int, Alert]] = []
        self._plan = Plan((watch,))
        self._logic = self._plan.build({})
        self._pages: dict[str, bytes] = {}
        self._until: int | None = None

    def arrivals(self) -> list[int]:
        """The times at which rows arrive, from time 0 and in order."""
        times = np.unique(np.concatenate([batch.arrival for batch in self.batches]))
        return [int(time) - self.scenario.start_us for time in times]

    def go_to(self, time_us: int) -> None:
        """Take the rows that arrive up to a time."""
        until = self.scenario.start_us + time_us
        for cut in _last_arrivals([_between(batch, self._until, until) for batch in self.batches]):
            piece = [_between(batch, self._until, cut) for batch in self.batches]
            self._until = cut
            alerts = [self._alert(row) for row in self._logic.on_data(piece, cut).alerts]
            self.lives.take(alerts)
            self.story += [(cut - self.scenario.start_us, alert) for alert in alerts]
        self._until = until

    def moment(self, time_us: int) -> Moment:
        """Say what is known at a time up to which the rows were taken; taking rows may go on afterwards."""
        self._pages |= {name: page for name, page in self._logic.changed_pages().items() if page is not None}
        copy, lives = self._plan.build(self._pages), self.lives.copy()
        lives.take(self._alert(row) for row in copy.on_time(self.scenario.start_us + time_us).alerts)
        return lives.moment()

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
    """The times at which some key is seen last, in order: a logic learns of one time per call."""
    last: dict[tuple[str, ...], int] = {}
    for batch in batches:
        newest = np.full(len(batch.keys), NEVER_SEEN)
        np.maximum.at(newest, batch.key, batch.arrival)
        for key, time in zip(batch.keys, newest.tolist(), strict=True):
            last[key] = max(time, last.get(key, time))
    return sorted(set(last.values()) - {NEVER_SEEN})


def _between(batch: Batch, after: int | None, until: int) -> Batch:
    """The rows of a batch that arrive after a time and up to another."""
    mine = batch.arrival <= until
    if after is not None:
        mine &= batch.arrival > after
    values = {name: column[mine] for name, column in batch.values.items()}
    return replace(batch, key=batch.key[mine], time=batch.time[mine], arrival=batch.arrival[mine], values=values)
