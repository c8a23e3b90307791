"""Lives of one rule over the keys of a page: evaluations that wait for progress, two life machines, their witnesses."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.operators.join.threshold_join import Evaluations
from tocsin.operators.lifecycle import alert_state_machine as alert
from tocsin.operators.lifecycle.witness import Witnesses, WitnessLookup
from tocsin.plan.steps import Threshold
from tocsin.runtime.contract import Int


class AlertChanges(NamedTuple):
    """Changes of state of alerts, in the order in which they occurred.

    Attributes
    ----------
    key
        Number of the key on its page.
    state
        New state: a position in `alert_batch.STATES`.
    start, fires, end
        Start, firing time and end. NO_TIME replaces a time that is not known yet.
    sequence
        Number that distinguishes alerts of its key with the same start.
    late
        Whether late evaluations drive the alerts.
    shown
        Witness of the best evaluation.
    """

    key: Int
    state: NDArray[np.int8]
    start: Int
    fires: Int
    end: Int
    sequence: Int
    late: bool
    shown: Witnesses


_NOTHING = np.zeros(0, np.int64)


class Lifecycle:
    """The lives of evaluations in order and of late ones, what each shows, and evaluations that wait.

    A rule that emits all has no lives: only its keys are counted.
    """

    def __init__(self, rule: Threshold, keys: int, streams: int, values: int) -> None:
        self.rule, self.width, self.keys = rule, (streams, values), keys
        timing = alert.Timing(rule.for_us, rule.keep_us, rule.stale_us)
        # By machine. Only late alerts start in any order.
        self.timings = [timing, timing._replace(behind_us=alert.FOREVER)]
        living = keys if self.lives else 0
        self.machines = [alert.new_lives(living), alert.new_lives(living)]
        self.bests = [self.no_witnesses(living), self.no_witnesses(living)]
        self.waiting = self.no_witnesses(0)

    @property
    def lives(self) -> bool:
        """Tell whether alerts of this rule live."""
        return self.rule.emit != "all"

    def no_witnesses(self, rows: int) -> Witnesses:
        """Empty rows for what is shown of this rule."""
        return Witnesses.none(rows, *self.width)

    def add_keys(self, count: int) -> None:
        """Make room for new keys."""
        self.keys += count
        if not self.lives:
            return
        self.machines = [_joined(lives, alert.new_lives(count)) for lives in self.machines]
        self.bests = [best.joined(self.no_witnesses(count)) for best in self.bests]

    def is_open(self) -> NDArray[np.bool_]:
        """Keys that have a life."""
        if not self.lives:
            return np.zeros(self.keys, np.bool_)
        is_open: NDArray[np.bool_] = np.logical_or(*(lives.phase != alert.NONE for lives in self.machines))
        return is_open

    def is_unmet(self) -> NDArray[np.bool_]:
        """Keys with a life in order that no false evaluation has met yet, or with a true one that waits."""
        if not self.lives:
            return np.zeros(self.keys, np.bool_)
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

    def drop_keys(self, gone: NDArray[np.bool_]) -> None:
        """Forget keys for which nothing is open and nothing waits."""
        self.keys -= int(gone.sum())
        if not self.lives:
            return
        self.machines = [alert.AlertStates._make(column[~gone] for column in lives) for lives in self.machines]
        self.bests = [best.take(~gone) for best in self.bests]
        self.waiting.key = (np.cumsum(~gone) - 1)[self.waiting.key]

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """State to be written; a rule that emits all has no lives."""
        named: dict[str, NDArray[Any]] = {}
        if not self.lives:
            return named
        for machine, (lives, best) in enumerate(zip(self.machines, self.bests, strict=True)):
            named |= {f"{prefix}life{machine}.{i}": column for i, column in enumerate(lives)}
            named |= {f"{prefix}best{machine}.{i}": column for i, column in enumerate(best.columns())}
        return named | {f"{prefix}waiting.{i}": column for i, column in enumerate(self.waiting.columns())}

    def load(self, arrays: dict[str, NDArray[Any]], prefix: str, keys: int) -> None:
        """State that was written."""
        self.keys = keys
        if not self.lives:
            return
        for machine in range(2):
            self.machines[machine] = alert.stored_lives(arrays, f"{prefix}life{machine}")
            self.bests[machine] = Witnesses(*(arrays[f"{prefix}best{machine}.{i}"] for i in range(8)))
        self.waiting = Witnesses(*(arrays[f"{prefix}waiting.{i}"] for i in range(8)))


def _joined(one: alert.AlertStates, other: alert.AlertStates) -> alert.AlertStates:
    return alert.AlertStates._make(np.concatenate(pair) for pair in zip(one, other, strict=True))
