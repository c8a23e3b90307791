"""Lifecycle: the alert states of one rule, their best witnesses, and buffered evaluations.

Algorithm: two state machines per key, one for timely and one for late evaluations. A late evaluation applies on
arrival. A timely evaluation waits until the watermark of its key reaches its time. Then it applies in event-time
order.

Guarantees: the split of rows into calls changes neither alerts nor witnesses nor stored state.

Complexity: O(1) per evaluation, a sort of the due evaluations, and one witness lookup per changed alert.

References: docs/explanation/semantics.md (D46 to D53).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tocsin.hashing import stable_hash
from tocsin.operators.join.operator import AlertActivity, Join, JoinResults
from tocsin.operators.join.threshold_join import Evaluations
from tocsin.operators.lifecycle import alert_state_machine as alert
from tocsin.operators.lifecycle.alert_changes import AlertChanges, lifecycle_alerts
from tocsin.operators.lifecycle.emission_times import EmissionTimes
from tocsin.operators.lifecycle.witness import Witnesses, WitnessLookup
from tocsin.plan.identity import Identity
from tocsin.runtime.alert_batch import FIRING, INACTIVE, NO_TIME, RESOLVED
from tocsin.runtime.context import Context
from tocsin.runtime.contract import Bools, Int
from tocsin.runtime.metrics import quality_text
from tocsin.runtime.state_registry import (
    Column,
    OperatorState,
    RetireContext,
    SectionSpec,
    Shard,
    StateSchema,
    StoredSection,
    Table,
)

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
    """Return the schema of a rule with alerts: two machines, their best witnesses, and buffered evaluations."""
    new, per_key = alert.new_alert_states(1)._asdict(), list[Column]()
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
    if context.is_adopted or not arrays:  # A rule with `emit: all` has no alerts.
        return
    for machine in range(_MACHINES):
        states = alert.AlertStates(*(arrays[f"life{machine}.{name}"] for name in alert.AlertStates._fields))
        best = Witnesses(*(arrays[f"best{machine}.{column.name}"] for column in fields(Witnesses)))
        at = (states.phase != alert.NONE).nonzero()[0]
        if not len(at):
            continue
        is_pending = states.phase[at] == alert.PENDING
        state = np.where(is_pending, INACTIVE, RESOLVED).astype(np.int8)
        fires = np.where(is_pending, NO_TIME, states.fires[at])
        end = np.where(states.phase[at] == alert.KEEPING, states.since[at], states.last[at])
        changes = AlertChanges(
            at, state, states.start[at], fires, end, states.sequence[at], machine == 1, best.take(at)
        )
        qualities = [quality_text(is_late=machine == 1, end="rule-changed")] * len(at)
        context.out.alerts.append(lifecycle_alerts(rule, context.on, context.names, changes, qualities))


class LifecycleState(OperatorState):
    """Alert states of one rule in one shard, with their witnesses and buffered evaluations."""

    @property
    def machines(self) -> list[alert.AlertStates]:
        """Alert states by machine: timely evaluations, then late evaluations."""
        arrays, names = self.section.arrays, alert.AlertStates._fields
        return [alert.AlertStates(*(arrays[f"life{i}.{name}"] for name in names)) for i in range(_MACHINES)]

    @property
    def bests(self) -> list[Witnesses]:
        """Best witness of each key, by machine."""
        return [self._witnesses(f"best{i}") for i in range(_MACHINES)]

    @property
    def waiting(self) -> Witnesses:
        """Timely evaluations after the watermark of their key."""
        return self._witnesses("waiting")

    @waiting.setter
    def waiting(self, rows: Witnesses) -> None:
        names = (f"waiting.{column.name}" for column in fields(rows))
        self.section.arrays |= dict(zip(names, rows.columns(), strict=True))

    def _witnesses(self, prefix: str) -> Witnesses:
        return Witnesses(*(self.section.arrays[f"{prefix}.{column.name}"] for column in fields(Witnesses)))

    def is_open(self) -> Bools:
        """Mark the keys that have an alert."""
        is_open: Bools = np.logical_or(*(states.phase != alert.NONE for states in self.machines))
        return is_open

    def is_active(self) -> Bools:
        """Mark the keys with a state that a false evaluation can change.

        These keys have a timely alert that is pending or firing, or a buffered true evaluation.
        """
        phase, waiting = self.machines[0].phase, self.waiting
        is_active: Bools = (phase == alert.PENDING) | (phase == alert.FIRING)
        is_active[waiting.key[waiting.truth == alert.TRUE]] = True
        return is_active


class Lifecycle:
    """Operator that turns the evaluations of one rule into alerts.

    Attributes
    ----------
        join: Join of the rule.
    """

    has_states = True

    def __init__(self, join: Join) -> None:
        rule, identity = join.rule, join.identity
        self.join, self.rule = join, rule
        schema = lifecycle_schema(len(join.stores), int(join.value_offsets[-1]))
        self.spec = SectionSpec(stable_hash(KIND, identity.to_json()), schema, identity.to_json(), identity.id)
        self.sections = (self.spec,)
        timing = alert.Timing(rule.for_us, rule.keep_us, rule.stale_us)
        # By machine. Only late alerts start in any order.
        self.timings = [timing, timing._replace(behind_us=alert.FOREVER)]

    def state(self, shard: Shard) -> LifecycleState:
        """Return the alert states in a shard."""
        return LifecycleState(shard.sections[self.spec.id])

    def activity(self, shard: Shard) -> AlertActivity:
        """Return the keys whose false evaluations the join must find."""
        state = self.state(shard)
        return AlertActivity(state.is_open(), state.is_active())

    def process(
        self, shard: Shard, results: JoinResults, context: Context, emissions: EmissionTimes | None = None
    ) -> None:
        """Apply late evaluations now, and timely evaluations up to the watermark. Add the alerts to the output."""
        state, (evaluations, lookup) = self.state(shard), (results.evaluations, results.lookup)
        time, key, late = lookup.tuples.time[results.probes.row], results.probes.key, results.late
        found = evaluations.found == 1
        holding = found & (evaluations.truth == alert.FALSE) & self.rule.holds(evaluations.value)
        evaluations.truth[holding] = alert.HOLDING
        late_rows = np.flatnonzero(found & late)
        truth, margin = evaluations.truth[late_rows], evaluations.margin[late_rows]
        machines, events = state.machines, alert.new_events(len(late_rows), 0)
        alert.apply_evaluations(
            machines[1], key[late_rows], time[late_rows], truth, margin, late_rows, self.timings[1], events
        )
        changes = self._changes(state, 1, events, (evaluations, lookup), (time, key), state.waiting)
        timely = alert.relevant_evaluations(
            evaluations.found, late, key, time, evaluations.truth, machines[0], results.watermark, state.waiting.key
        )
        changes += self._apply_until_watermark(state, results, (time, key), timely)
        self._report(shard, changes, context, emissions)

    def _apply_until_watermark(
        self, state: LifecycleState, results: JoinResults, time_and_key: tuple[Int, Int], timely: Int
    ) -> list[AlertChanges]:
        """Apply evaluations up to the watermark in event-time order, and buffer the others."""
        (time, key), old, watermark = time_and_key, state.waiting, results.watermark
        evaluations, lookup = results.evaluations, results.lookup
        count = len(time)
        number = np.concatenate([count + np.arange(len(old.key)), timely])
        keys, times = np.concatenate([old.key, key[timely]]), np.concatenate([old.time, time[timely]])
        truth = np.concatenate([old.truth, evaluations.truth[timely]])
        margin = np.concatenate([old.margin, evaluations.margin[timely]])
        is_due = times <= watermark[keys]
        due = np.flatnonzero(is_due)[alert.order_by_key_and_time(len(watermark), keys[is_due], times[is_due])]
        states, timing, events = state.machines[0], self.timings[0], alert.new_events(len(due), len(watermark))
        alert.apply_evaluations(states, keys[due], times[due], truth[due], margin[due], number[due], timing, events)
        alert.expire_stale_alerts(states, watermark, timing, events)
        changes = self._changes(state, 0, events, (evaluations, lookup), time_and_key, old)
        rest = number[~is_due]
        new = lookup.evaluations(evaluations, rest[rest < count], time, key)
        state.waiting = old.take(rest[rest >= count] - count).joined(new)
        return changes

    def advance(self, shard: Shard, watermark: Int, idle_until: Int, context: Context) -> None:
        """Apply evaluations up to `watermark`, then end alerts that are stale at `max(watermark, idle_until)`."""
        state = self.state(shard)
        old = state.waiting
        if not len(old.key) and not state.is_open().any():
            return
        is_due = old.time <= watermark[old.key]
        due = np.flatnonzero(is_due)[alert.order_by_key_and_time(len(watermark), old.key[is_due], old.time[is_due])]
        now, expiry = old.take(due), np.maximum(watermark, idle_until)
        machines, events = state.machines, alert.new_events(len(due), len(watermark))
        alert.apply_evaluations(machines[0], now.key, now.time, now.truth, now.margin, due, self.timings[0], events)
        alert.expire_stale_alerts(machines[0], expiry, self.timings[0], events)
        changes = self._changes(state, 0, events, None, (_NOTHING, _NOTHING), old)
        state.waiting = old.take(~is_due)
        events = alert.new_events(0, len(watermark))
        alert.expire_stale_alerts(machines[1], expiry, self.timings[1], events)
        changes += self._changes(state, 1, events, None, (_NOTHING, _NOTHING), old)
        self._report(shard, changes, context)

    def waiting_keys(self, shard: Shard) -> Bools:
        """Mark the keys with buffered evaluations."""
        has_rows = np.zeros(len(shard.keys), np.bool_)
        has_rows[self.state(shard).waiting.key] = True
        return has_rows

    def open_keys(self, shard: Shard) -> Bools:
        """Mark the keys that have an alert."""
        return self.state(shard).is_open()

    def _report(
        self,
        shard: Shard,
        changes: Sequence[AlertChanges],
        context: Context,
        emissions: EmissionTimes | None = None,
    ) -> None:
        """Add changes of state to the output, with their quality and emission time."""
        for mine in changes:
            # A missing row may have started this alert, or an earlier alert that would not have ended yet.
            since = np.minimum(mine.start, mine.shown.times.min(axis=1))
            losses = context.losses(since - self.rule.keep_us - self.rule.stale_us)
            qualities = [
                quality_text(loss, is_late=bool(mine.late), is_out_of_domain=odd)
                for loss, odd in zip(losses, self.join.outside(mine.shown).tolist(), strict=True)
            ]
            batch = lifecycle_alerts(self.join.identity, context.on, shard.keys.names, mine, qualities)
            if emissions is not None:
                emitted, firing = np.full(len(batch), NO_TIME), np.flatnonzero((mine.state == FIRING) & (not mine.late))
                emitted[firing] = emissions.find(mine.key[firing], mine.fires[firing])
                batch = replace(batch, emitted=emitted)
            context.out.alerts.append(batch)

    def _changes(
        self,
        state: LifecycleState,
        machine: int,
        events: Int,
        new_rows: tuple[Evaluations, WitnessLookup] | None,
        time_and_key: tuple[Int, Int],
        old: Witnesses,
    ) -> list[AlertChanges]:
        """Return changes of state with their witnesses, and store the best witnesses of open alerts."""
        rows = events[1 : 1 + int(events[0, 0])]
        states, best = state.machines[machine], state.bests[machine]
        improved = np.flatnonzero((states.phase != alert.NONE) & (states.best != alert.STORED))
        if not len(rows) and not len(improved):
            return []
        numbers = np.unique(np.concatenate([rows[:, -1], states.best[improved]]))
        numbers = numbers[numbers != alert.STORED]
        count = len(time_and_key[0])
        table = old.take(numbers[numbers >= count] - count)
        if new_rows is not None:
            evaluations, lookup = new_rows
            table = lookup.evaluations(evaluations, numbers[numbers < count], *time_and_key).joined(table)
        changes = []
        if len(rows):
            place = np.searchsorted(numbers, rows[:, -1])
            changes.append(_with_witnesses(state, machine, rows, table, place))
        if len(improved):
            at = np.searchsorted(numbers, states.best[improved])
            for column, newer in zip(best.columns(), table.columns(), strict=True):
                column[improved] = newer[at]
            states.best[improved] = alert.STORED
        # Only some batch boundaries store the payload of an ended alert. Without it, the state is equal for all.
        best.payload[states.phase == alert.NONE] = None
        return changes


def _with_witnesses(state: LifecycleState, machine: int, rows: Int, table: Witnesses, place: Int) -> AlertChanges:
    """Return changes of state with their witnesses: rows of `table` at `place`, or stored witnesses."""
    key, event, start, sequence, fires, end, number = rows.T
    stored = number == alert.STORED
    if stored.any():
        place = np.where(stored, len(table.key) + np.cumsum(stored) - 1, place)
        table = table.joined(state.bests[machine].take(key[stored]))
    return AlertChanges(key, event.astype(np.int8), start, fires, end, sequence, machine == 1, table.take(place))
