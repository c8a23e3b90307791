"""What a trace says: rows as they were given, their fate in each store, evaluations, lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.plan import RangeWatch, Silence, Store, Threshold, Watch
from tocsin.rules.ranges import QUERY
from tocsin.runtime.contract import Float, Int
from tocsin.trace.brackets import Excuse, find_excuse

# What may become of a row in a store. `passed`: a rule of one stream looked at it, and nothing is remembered.
FATES = ("quarantined", "late", "duplicates", "omitted", "expired", "kept", "passed")
QUARANTINED, LATE, DUPLICATES, OMITTED, EXPIRED, KEPT, PASSED = range(len(FATES))


@dataclass(frozen=True)
class Dead:
    """A row that could not be used, with the reason; `time_us` is None where that is what it lacks."""

    stream: str
    reason: str
    raw: str = ""
    time_us: int | None = None


@dataclass(frozen=True)
class KeyRows:
    """Rows of one key and stream in columns, in the order of the input; times are microseconds.

    `payload` has the text that travels along with each row; None where no row has one.
    """

    time: Int
    arrival: Int
    values: Mapping[str, Float]
    payload: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True)
class Evaluation:
    """What one row decided: its best combination; `partners` are the rows of it in the rule's order of streams."""

    time_us: int
    arrival_us: int
    margin: float
    is_true: bool
    value: float
    is_late: bool
    # Not true, but not past the recovery threshold either.
    is_holding: bool
    stream: str
    row: int
    partners: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Life:
    """An alert as its last change of state reports it.

    `fires_us` is the end of `for`, and None before the alert fires; `end_us` is None before the alert ends.
    """

    alert: str
    id: str
    state: str
    labels: Mapping[str, str]
    start_us: int
    fires_us: int | None
    end_us: int | None
    value: float
    margin: float
    witness: tuple[Mapping[str, Any], ...]
    is_late: bool
    has_fired: bool
    # Newest event time of the key when the alert began to fire; None if it is not known.
    emitted_us: int | None = None

    def covers(self, time_us: int) -> bool:
        """Tell whether a time lies in it."""
        return self.start_us <= time_us and (self.end_us is None or time_us <= self.end_us)


@dataclass(frozen=True)
class StoreTrace:
    """What became of the rows of one stream in one store: per row its fate, and when it came and went.

    `rank` is the place of a row in the order of arrival (-1: it never came in), `gone` the place at which it was left
    out. `silent` rows brought nothing: they came again, or came behind and were left out at once.
    """

    store: Store
    rows: KeyRows
    fate: NDArray[np.int8]
    rank: Int
    gone: Int
    silent: NDArray[np.bool_]
    # By how much a late row came behind the newest of its key.
    behind_us: Int

    @property
    def usable(self) -> NDArray[np.bool_]:
        """The rows that could be partners when they arrived."""
        return self.fate >= OMITTED

    def excuse(self, row: int) -> Excuse:
        """Find the rows that stand for one that was left out: those that were there when it went."""
        when = self.gone[row]
        there = (self.rank >= 0) & (self.rank <= when) & (self.gone > when)
        there[row] = False
        columns = [self.rows.values[column] for column in self.store.columns]
        return find_excuse(self.store, self.rows.time, columns, np.flatnonzero(there), row)

    def count(self) -> dict[str, int]:
        """Count the rows by their fate."""
        found = {name: int((self.fate == code).sum()) for code, name in enumerate(FATES)}
        return {name: number for name, number in found.items() if number}


@dataclass(frozen=True)
class Traced:
    """All that became of the rows of one key under the rules of a watch."""

    watch: Watch
    key: tuple[str, ...]
    rows: Mapping[str, KeyRows]
    stores: tuple[StoreTrace, ...]
    # Per rule of the watch, in its order.
    evaluations: tuple[tuple[Evaluation, ...], ...]
    alerts: tuple[Mapping[str, Any], ...]
    dead: tuple[Dead, ...] = ()
    state_bytes: int = 0
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # What is taken for granted, in a sentence; empty: nothing.
    supposed: str = ""

    def stores_of(self, rule: Threshold) -> list[StoreTrace]:
        """What a rule reads, in its order of streams."""
        return [self.stores[i] for i in rule.stores]

    def evaluations_of(self, rule: Threshold) -> tuple[Evaluation, ...]:
        """The evaluations of a rule, in the order in which they were made."""
        return self.evaluations[self.watch.rules.index(rule)]

    def lives(self, rule: Threshold | Silence) -> list[Life]:
        """The alerts of a rule by their start; matches of `emit: all` are lives too."""
        mine = (change for change in self.alerts if is_of(self.watch, rule, change["alert"], change["labels"]))
        return lives_of(mine)


def is_of(
    watch: Watch | RangeWatch, rule: Threshold | Silence | RangeWatch, alert: str, labels: Mapping[str, str]
) -> bool:
    """Tell whether an alert is one of a rule of a watch: it has its name, its labels and the keys, and no others."""
    given = dict(rule.labels)
    own = {name: value for name, value in labels.items() if name in given}
    names = {*given, *watch.on, *([QUERY] if isinstance(rule, RangeWatch) else [])}
    return rule.alert == alert and own == given and labels.keys() == names


def lives_of(changes: Iterable[Mapping[str, Any]]) -> list[Life]:
    """Put changes of state, in the order in which they came, together to lives."""
    open_lives: dict[str, Life] = {}
    lives = []
    for change in changes:
        life = life_of(change, open_lives.pop(change["id"], None))
        if life.end_us is None:
            open_lives[life.id] = life
        else:
            lives.append(life)
    return sorted([*lives, *open_lives.values()], key=lambda life: (life.start_us, life.is_late))


def life_of(change: Mapping[str, Any], before: Life | None = None, emitted_us: int | None = None) -> Life:
    """Return an alert after a change of state. `before` is the alert before this change."""
    if emitted_us is None and before is not None:
        emitted_us = before.emitted_us
    fired = change["state"] in {"firing", "resolved", "match"}
    return Life(
        change["alert"],
        change["id"],
        change["state"],
        change["labels"],
        change["startsAt"],
        change["firesAt"],
        change["endsAt"],
        change["value"],
        change["margin"],
        tuple(change["witness"]),
        "late" in change["quality"].split(),
        fired or (before is not None and before.has_fired),
        emitted_us,
    )
