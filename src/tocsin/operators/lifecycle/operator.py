"""Lives of one rule over the keys of a page: evaluations that wait for progress, two life machines, their witnesses."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.hashing import stable_hash
from tocsin.operators.join.threshold_join import Evaluations
from tocsin.operators.lifecycle import alert_state_machine as alert
from tocsin.operators.lifecycle.alert_changes import AlertChanges, lifecycle_alerts
from tocsin.operators.lifecycle.witness import Witnesses, WitnessLookup
from tocsin.plan.identity import Identity
from tocsin.plan.steps import Threshold
from tocsin.runtime.alert_batch import INACTIVE, NO_TIME, RESOLVED
from tocsin.runtime.contract import Int
from tocsin.runtime.state_registry import Column, RetireContext, Section, StateSchema, StoredSection, Table

_NOTHING = np.zeros(0, np.int64)


KIND = "lifecycle"
_MACHINES = 2
_WITNESS_KINDS: dict[str, tuple[type, Any]] = {
    "margin": (np.float64, 0.0),
    "value": (np.float64, 0.0),
    "values": (np.float64, 0.0),
    "payload": (object, None),
}


def witness_columns(prefix: str, streams: int, values: int) -> list[Column]:
    """Return the columns of witnesses with these numbers of streams and values."""
    widths = {"times": streams, "values": values, "payload": streams}
    names = [column.name for column in fields(Witnesses)]
    return [Column(f"{prefix}.{name}", *_WITNESS_KINDS.get(name, (np.int64, 0)), widths.get(name)) for name in names]


def lifecycle_schema(streams: int, values: int) -> StateSchema:
    """Return the schema of a rule with alert instances: two machines, their best witnesses, waiting evaluations."""
    new, per_key = alert.new_lives(1)._asdict(), list[Column]()
    for machine in range(_MACHINES):
        per_key += [
            Column(f"life{machine}.{name}", column.dtype.type, column[0].item()) for name, column in new.items()
        ]
        per_key += witness_columns(f"best{machine}", streams, values)
    key, *waiting = witness_columns("waiting", streams, values)
    return StateSchema(KIND, tuple(per_key), tables=(Table(key.name, tuple(waiting)),))


def retire_alerts(section: StoredSection, context: RetireContext) -> None:
    """End the open alerts of a removed rule at their last evaluation, or at their event time."""
    rule, arrays = Identity.from_json(section.facts), section.arrays
    if context.is_adopted or not arrays:  # A rule that emits all has no alert instances.
        return
    for machine in range(_MACHINES):
        lives = alert.AlertStates(*(arrays[f"life{machine}.{name}"] for name in alert.AlertStates._fields))
        best = Witnesses(*(arrays[f"best{machine}.{column.name}"] for column in fields(Witnesses)))
        at = (lives.phase != alert.NONE).nonzero()[0]
        if not len(at):
            continue
        is_pending = lives.phase[at] == alert.PENDING
        state = np.where(is_pending, INACTIVE, RESOLVED).astype(np.int8)
        fires = np.where(is_pending, NO_TIME, lives.fires[at])
        end = np.where(lives.phase[at] == alert.KEEPING, lives.since[at], lives.last[at])
        changes = AlertChanges(at, state, lives.start[at], fires, end, lives.sequence[at], machine == 1, best.take(at))
        qualities = [f"exact{' late' * machine} rule-changed"] * len(at)
        context.out.alerts.append(lifecycle_alerts(rule, context.on, context.names, changes, qualities))


class Lifecycle:
    """The lives of evaluations in order and of late ones, what each shows, and evaluations that wait.

    A rule that emits all has no lives: only its keys are counted.
    """

    def __init__(self, rule: Threshold, identity: Identity, streams: int, values: int) -> None:
        self.rule, self.width = rule, (streams, values)
        schema = lifecycle_schema(streams, values) if self.lives else StateSchema(KIND)
        self.section = Section(stable_hash(KIND, identity.to_json()), schema, identity.to_json(), identity.id)
        timing = alert.Timing(rule.for_us, rule.keep_us, rule.stale_us)
        # By machine. Only late alerts start in any order.
        self.timings = [timing, timing._replace(behind_us=alert.FOREVER)]

    @property
    def machines(self) -> list[alert.AlertStates]:
        """The machines of evaluations in order and of late evaluations."""
        arrays, names = self.section.arrays, alert.AlertStates._fields
        return [alert.AlertStates(*(arrays[f"life{i}.{name}"] for name in names)) for i in range(_MACHINES)]

    @property
    def bests(self) -> list[Witnesses]:
        """The best witness of each key, by machine."""
        return [self._witnesses(f"best{i}") for i in range(_MACHINES)]

    @property
    def waiting(self) -> Witnesses:
        """The evaluations that wait."""
        return self._witnesses("waiting") if self.lives else self.no_witnesses(0)

    @waiting.setter
    def waiting(self, rows: Witnesses) -> None:
        names = (f"waiting.{column.name}" for column in fields(rows))
        self.section.arrays |= dict(zip(names, rows.columns(), strict=True))

    def _witnesses(self, prefix: str) -> Witnesses:
        return Witnesses(*(self.section.arrays[f"{prefix}.{column.name}"] for column in fields(Witnesses)))

    @property
    def lives(self) -> bool:
        """Tell whether alerts of this rule live."""
        return self.rule.emit != "all"

    def no_witnesses(self, rows: int) -> Witnesses:
        """Empty rows for what is shown of this rule."""
        return Witnesses.none(rows, *self.width)

    def is_open(self) -> NDArray[np.bool_]:
        """Keys that have a life."""
        if not self.lives:
            return np.zeros(self.section.keys, np.bool_)
        is_open: NDArray[np.bool_] = np.logical_or(*(lives.phase != alert.NONE for lives in self.machines))
        return is_open

    def is_unmet(self) -> NDArray[np.bool_]:
        """Keys with a life in order that no false evaluation has met yet, or with a true one that waits."""
        if not self.lives:
            return np.zeros(self.section.keys, np.bool_)
        phase, waiting = self.machines[0].phase, self.waiting
        unmet: NDArray[np.bool_] = (phase == alert.PENDING) | (phase == alert.FIRING)
        unmet[waiting.key[waiting.truth == alert.TRUE]] = True
        return unmet

    def take(
        self,
        evaluations: Evaluations,
        when: tuple[Int, Int],
        late: NDArray[np.bool_],
        show: WitnessLookup,
        progress: Int,
    ) -> list[AlertChanges]:
        """Let evaluations at some (time, key) drive the lives: late ones at once, others as progress reaches them."""
        time, key = when
        found = evaluations.found == 1
        holding = found & (evaluations.truth == alert.FALSE) & self.rule.holds(evaluations.value)
        evaluations.truth[holding] = alert.HOLDING
        behind = np.flatnonzero(found & late)
        truth, margin = evaluations.truth[behind], evaluations.margin[behind]
        events = alert.new_events(len(behind), 0)
        alert.drive(self.machines[1], key[behind], time[behind], truth, margin, behind, self.timings[1], events)
        changes = self._changes(1, events, (evaluations, show), when, self.waiting)
        ahead = alert.of_interest(
            evaluations.found, late, key, time, evaluations.truth, self.machines[0], progress, self.waiting.key
        )
        return changes + self._drive(evaluations, when, ahead, show, progress)

    def _drive(
        self, evaluations: Evaluations, when: tuple[Int, Int], ahead: Int, show: WitnessLookup, progress: Int
    ) -> list[AlertChanges]:
        """Apply what progress has reached, in event-time order; the rest waits."""
        (time, key), old = when, self.waiting
        count = len(time)
        number = np.concatenate([count + np.arange(len(old.key)), ahead])
        keys, times = np.concatenate([old.key, key[ahead]]), np.concatenate([old.time, time[ahead]])
        truth = np.concatenate([old.truth, evaluations.truth[ahead]])
        margin = np.concatenate([old.margin, evaluations.margin[ahead]])
        ripe = times <= progress[keys]
        due = np.flatnonzero(ripe)[alert.by_key_and_time(len(progress), keys[ripe], times[ripe])]
        lives, timing, events = self.machines[0], self.timings[0], alert.new_events(len(due), len(progress))
        alert.drive(lives, keys[due], times[due], truth[due], margin[due], number[due], timing, events)
        alert.settle_all(lives, progress, timing, events)
        changes = self._changes(0, events, (evaluations, show), when, old)
        rest = number[~ripe]
        new = show.evaluations(evaluations, rest[rest < count], time, key)
        self.waiting = old.take(rest[rest >= count] - count).joined(new)
        return changes

    def advance(self, progress: Int, silence: Int, *, late_too: bool) -> list[AlertChanges]:
        """Apply what waits up to `progress`, and end what nothing was said of until `silence`."""
        old = self.waiting
        if not len(old.key) and not self.is_open().any():
            return []
        ripe = old.time <= progress[old.key]
        due = np.flatnonzero(ripe)[alert.by_key_and_time(len(progress), old.key[ripe], old.time[ripe])]
        now, quiet = old.take(due), np.maximum(progress, silence)
        events = alert.new_events(len(due), len(progress))
        alert.drive(self.machines[0], now.key, now.time, now.truth, now.margin, due, self.timings[0], events)
        alert.settle_all(self.machines[0], quiet, self.timings[0], events)
        changes = self._changes(0, events, None, (_NOTHING, _NOTHING), old)
        self.waiting = old.take(~ripe)
        if late_too:
            events = alert.new_events(0, len(progress))
            alert.settle_all(self.machines[1], quiet, self.timings[1], events)
            changes += self._changes(1, events, None, (_NOTHING, _NOTHING), old)
        return changes

    def _changes(
        self,
        machine: int,
        events: Int,
        fresh: tuple[Evaluations, WitnessLookup] | None,
        when: tuple[Int, Int],
        old: Witnesses,
    ) -> list[AlertChanges]:
        """Give each change of state its witness, and store the witnesses of lives that go on."""
        rows = events[1 : 1 + int(events[0, 0])]
        lives, best = self.machines[machine], self.bests[machine]
        renewed = np.flatnonzero((lives.phase != alert.NONE) & (lives.best != alert.STORED))
        if not len(rows) and not len(renewed):
            return []
        numbers = np.unique(np.concatenate([rows[:, -1], lives.best[renewed]]))
        numbers = numbers[numbers != alert.STORED]
        count = len(when[0])
        table = old.take(numbers[numbers >= count] - count)
        if fresh is not None:
            evaluations, show = fresh
            table = show.evaluations(evaluations, numbers[numbers < count], *when).joined(table)
        changes = []
        if len(rows):
            changes.append(self._with_witnesses(machine, rows, table, np.searchsorted(numbers, rows[:, -1])))
        if len(renewed):
            at = np.searchsorted(numbers, lives.best[renewed])
            for column, newer in zip(best.columns(), table.columns(), strict=True):
                column[renewed] = newer[at]
            lives.best[renewed] = alert.STORED
        # What a life that is over has shown is of no use; whether it was stored at all depends on the cut into calls.
        best.payload[lives.phase == alert.NONE] = None
        return changes

    def _with_witnesses(self, machine: int, rows: Int, table: Witnesses, place: Int) -> AlertChanges:
        """Return changes of state with their witnesses: rows of `table` at `place`, or stored witnesses."""
        key, event, start, sequence, fires, end, number = rows.T
        stored = number == alert.STORED
        if stored.any():
            place = np.where(stored, len(table.key) + np.cumsum(stored) - 1, place)
            table = table.joined(self.bests[machine].take(key[stored]))
        return AlertChanges(key, event.astype(np.int8), start, fires, end, sequence, machine == 1, table.take(place))
