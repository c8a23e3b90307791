"""Follow one rule over the keys of a page: probes, evaluations that wait for progress, lives with their witnesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.expr.columns import evaluate_number
from tocsin.expr.nodes import Variable, variables
from tocsin.expr.program import compile_condition, hoist
from tocsin.jit import kernel
from tocsin.logic import Int
from tocsin.plan.remember import Segments
from tocsin.plan.steps import Store, Threshold
from tocsin.plan.witness import NEVER_SEEN, PayloadOf, Show, Witnesses
from tocsin.stages import alert
from tocsin.stages.join import Condition, Evaluations, Probes, Tuples, combine

# A change of state: key, state, start, end, witness, whether late.
Change = tuple[int, str, int, int | None, Witnesses, bool]


@dataclass(frozen=True)
class Arrivals:
    """New rows by key and arrival: stream, key, time, and which row of its stream each is."""

    stream: Int
    key: Int
    time: Int
    row: Int


@kernel
def track(stream: Int, key: Int, time: Int, newest: Int, progress: Int, idle: int) -> NDArray[np.bool_]:
    """Move progress with each row; tell which came after progress had passed them. `stream` < 0: not of this rule."""
    late = np.zeros(key.shape[0], np.bool_)
    streams = newest.shape[1]
    for i in range(key.shape[0]):
        if stream[i] < 0:
            continue
        k = key[i]
        late[i] = time[i] < progress[k]
        newest[k, stream[i]] = max(newest[k, stream[i]], time[i])
        front = NEVER_SEEN
        for s in range(streams):
            front = max(front, newest[k, s])
        least = front
        for s in range(streams):
            if newest[k, s] != NEVER_SEEN and newest[k, s] >= front - idle:
                least = min(least, newest[k, s])
        progress[k] = max(progress[k], least)
    return late


class Followed:
    """State and work of one rule on one page."""

    def __init__(self, rule: Threshold, stores: Sequence[Store], streams: Sequence[str], keys: int = 0) -> None:
        self.rule, self.stores = rule, [stores[i] for i in rule.stores]
        self.streams = np.array([self._stream(name) for name in streams], np.int64)
        self.timing = alert.Timing(rule.for_us, rule.keep_us, rule.stale_us)
        self.value_offsets = np.concatenate([[0], np.cumsum([len(store.columns) for store in self.stores])])
        self.condition, self.hoisted = _compile(rule, self.stores)
        self.newest = np.full((keys, len(self.stores)), NEVER_SEEN)
        self.progress = np.full(keys, NEVER_SEEN)
        self.lives = [alert.new_lives(keys), alert.new_lives(keys)]
        self.bests = [self._no_witnesses(keys), self._no_witnesses(keys)]
        self.waiting = self._no_witnesses(0)

    def _stream(self, name: str) -> int:
        names = [store.stream for store in self.stores]
        return names.index(name) if name in names else -1

    def _no_witnesses(self, rows: int) -> Witnesses:
        return Witnesses.none(rows, len(self.stores), int(self.value_offsets[-1]))

    def add_keys(self, count: int) -> None:
        """Make room for new keys."""
        self.newest = np.concatenate([self.newest, np.full((count, len(self.stores)), NEVER_SEEN)])
        self.progress = np.concatenate([self.progress, np.full(count, NEVER_SEEN)])
        self.lives = [_joined_lives(lives, alert.new_lives(count)) for lives in self.lives]
        self.bests = [best.joined(self._no_witnesses(count)) for best in self.bests]

    def evaluate(
        self, arrivals: Arrivals, segments: Sequence[Segments], payload_of: PayloadOf
    ) -> tuple[list[Change], Witnesses]:
        """Join the arrivals and drive the lives: changes of state, and all true combinations if the rule asks so."""
        mine = self.streams[arrivals.stream]
        late = track(mine, arrivals.key, arrivals.time, self.newest, self.progress, self.rule.idle_us)
        tuples = self._tuples(segments)
        bases = np.concatenate([[0], np.cumsum([len(segment.time) for segment in segments])])
        found = np.full(len(mine), -1)
        for i, segment in enumerate(segments):
            at = np.flatnonzero(mine == i)
            row = arrivals.row[at]
            # A rule of one stream evaluates every row, whatever the rules that share its store leave out.
            silent = segment.silent[row] & (len(segments) > 1)
            found[at] = np.where(silent, -1, bases[i] + segment.place[row])
        chosen = np.flatnonzero(found >= 0)
        probes = Probes(mine[chosen], arrivals.key[chosen], found[chosen])
        every = self.rule.emit == "all"
        evaluations, matches, scores = combine(tuples, probes, self.condition, len(self.progress), every)
        show = Show(self.value_offsets, tuples, segments, bases, payload_of)
        if every:
            return [], show.matches(matches, scores)
        return self._live(evaluations, arrivals.time[chosen], probes.key, late[chosen], show), self._no_witnesses(0)

    def _tuples(self, segments: Sequence[Segments]) -> Tuples:
        """Rows of all streams of the rule, one behind the other, with the slots that the program reads."""
        counts = [len(segment.time) for segment in segments]
        bases = np.concatenate([[0], np.cumsum(counts)])
        offsets = [segment.offsets[:-1] + base for segment, base in zip(segments, bases[:-1], strict=True)]
        slots = np.zeros((int(bases[-1]), max(1, int(np.diff(self.condition.slot_offsets).max()))))
        names = dict(self.rule.columns)
        for i, segment in enumerate(segments):
            have = dict(zip(self.stores[i].columns, segment.values, strict=True))
            columns = {key: have[name] for key, name in names.items() if key[0] == self.stores[i].stream}
            for slot, part in enumerate(self.hoisted[i]):
                plain = isinstance(part, Variable)
                slots[bases[i] : bases[i + 1], slot] = columns[part.key] if plain else evaluate_number(part, columns)
        return Tuples(
            np.concatenate([*offsets, bases[-1:]]),
            np.concatenate([segment.time for segment in segments]),
            np.concatenate([segment.rank for segment in segments]),
            np.concatenate([segment.gone for segment in segments]),
            slots,
        )

    def _live(self, evaluations: Evaluations, time: Int, key: Int, late: NDArray[np.bool_], show: Show) -> list[Change]:
        found = evaluations.found == 1
        behind = np.flatnonzero(found & late)
        truth, margin = evaluations.truth[behind], evaluations.margin[behind]
        events = alert.new_events(len(behind), 0)
        alert.drive(self.lives[1], key[behind], time[behind], truth, margin, behind, self.timing, events)
        changes = self._changes(1, events, evaluations, time, key, show, self.waiting)
        ahead = alert.of_interest(
            evaluations.found, late, key, time, evaluations.truth, self.lives[0], self.progress, self.waiting.key
        )
        return changes + self._drive(evaluations, time, key, ahead, show)

    def _drive(self, evaluations: Evaluations, time: Int, key: Int, ahead: Int, show: Show) -> list[Change]:
        """Apply what progress has reached, in event-time order; the rest waits."""
        old, count = self.waiting, len(time)
        number = np.concatenate([count + np.arange(len(old.key)), ahead])
        keys, times = np.concatenate([old.key, key[ahead]]), np.concatenate([old.time, time[ahead]])
        truth = np.concatenate([old.truth, evaluations.truth[ahead]])
        margin = np.concatenate([old.margin, evaluations.margin[ahead]])
        ripe = times <= self.progress[keys]
        due = np.flatnonzero(ripe)[alert.by_key_and_time(len(self.progress), keys[ripe], times[ripe])]
        events = alert.new_events(len(due), len(self.progress))
        alert.drive(self.lives[0], keys[due], times[due], truth[due], margin[due], number[due], self.timing, events)
        alert.settle_all(self.lives[0], self.progress, self.timing, events)
        changes = self._changes(0, events, evaluations, time, key, show, old)
        rest = number[~ripe]
        new = show.evaluations(evaluations, rest[rest < count], time, key)
        self.waiting = old.take(rest[rest >= count] - count).joined(new)
        return changes

    def _changes(
        self,
        machine: int,
        events: Int,
        evaluations: Evaluations | None,
        time: Int,
        key: Int,
        show: Show | None,
        old: Witnesses,
    ) -> list[Change]:
        """Give each change of state its witness, and store the witnesses of lives that go on."""
        rows = events[1 : 1 + int(events[0, 0])]
        lives, best = self.lives[machine], self.bests[machine]
        renewed = np.flatnonzero((lives.phase != alert.NONE) & (lives.best != alert.STORED))
        numbers = np.unique(np.concatenate([rows[:, 4], lives.best[renewed]]))
        numbers = numbers[numbers != alert.STORED]
        count = len(time)
        table = old.take(numbers[numbers >= count] - count)
        if evaluations is not None and show is not None:
            table = show.evaluations(evaluations, numbers[numbers < count], time, key).joined(table)
        changes = []
        places = np.searchsorted(numbers, rows[:, 4]).tolist()
        for (k, event, start, end, number), place in zip(rows.tolist(), places, strict=True):
            row = best.take([k]) if number == alert.STORED else table.take([place])
            changes.append((k, alert.EVENTS[event], start, None if end == -alert.FOREVER else end, row, machine == 1))
        if len(renewed):
            at = np.searchsorted(numbers, lives.best[renewed])
            for column, fresh in zip(best.columns(), table.columns(), strict=True):
                column[renewed] = fresh[at]
            lives.best[renewed] = alert.STORED
        return changes

    def advance(self, progress: Int, silence: Int, *, late_too: bool) -> list[Change]:
        """Learn that no stream is waited for up to `progress`, and that nothing was said until `silence`."""
        self.progress = np.maximum(self.progress, progress)
        old = self.waiting
        ripe = old.time <= self.progress[old.key]
        due = np.flatnonzero(ripe)[alert.by_key_and_time(len(self.progress), old.key[ripe], old.time[ripe])]
        now, quiet = old.take(due), np.maximum(self.progress, silence)
        events = alert.new_events(len(due), len(self.progress))
        alert.drive(self.lives[0], now.key, now.time, now.truth, now.margin, due, self.timing, events)
        alert.settle_all(self.lives[0], quiet, self.timing, events)
        empty = np.zeros(0, np.int64)
        changes = self._changes(0, events, None, empty, empty, None, old)
        self.waiting = old.take(~ripe)
        if late_too:
            events = alert.new_events(0, len(self.progress))
            alert.settle_all(self.lives[1], quiet, self.timing, events)
            changes += self._changes(1, events, None, empty, empty, None, old)
        return changes

    def busy(self) -> NDArray[np.bool_]:
        """Keys that have an open life or evaluations that wait."""
        busy: NDArray[np.bool_] = (self.lives[0].phase != alert.NONE) | (self.lives[1].phase != alert.NONE)
        busy[self.waiting.key] = True
        return busy

    def drop_keys(self, gone: NDArray[np.bool_]) -> None:
        """Forget keys that are not busy."""
        self.newest, self.progress = self.newest[~gone], self.progress[~gone]
        self.lives = [alert.Lives._make(column[~gone] for column in lives) for lives in self.lives]
        self.bests = [best.take(~gone) for best in self.bests]
        self.waiting.key = (np.cumsum(~gone) - 1)[self.waiting.key]

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """State to be written."""
        named: dict[str, NDArray[Any]] = {f"{prefix}newest": self.newest, f"{prefix}progress": self.progress}
        for machine, (lives, best) in enumerate(zip(self.lives, self.bests, strict=True)):
            named |= {f"{prefix}life{machine}.{i}": column for i, column in enumerate(lives)}
            named |= {f"{prefix}best{machine}.{i}": column for i, column in enumerate(best.columns())}
        return named | {f"{prefix}waiting.{i}": column for i, column in enumerate(self.waiting.columns())}

    def load(self, prefix: str, arrays: dict[str, NDArray[Any]]) -> None:
        """State that was written."""
        self.newest, self.progress = arrays[f"{prefix}newest"], arrays[f"{prefix}progress"]
        for machine in range(2):
            self.lives[machine] = alert.Lives(*(arrays[f"{prefix}life{machine}.{i}"] for i in range(6)))
            self.bests[machine] = Witnesses(*(arrays[f"{prefix}best{machine}.{i}"] for i in range(8)))
        self.waiting = Witnesses(*(arrays[f"{prefix}waiting.{i}"] for i in range(8)))


def _compile(rule: Threshold, stores: Sequence[Store]) -> tuple[Condition, list[list[Any]]]:
    """Compile the condition; what reads one stream only is computed once per row, in the slots of that stream."""
    residual, parts = hoist(rule.condition)
    slots, hoisted, offsets = [], [], [0]
    read = [variable.key for variable in variables(residual)]
    for store in stores:
        mine = [key for key in read if key[0] == store.stream]
        hoisted.append([parts.get(key, Variable(*key)) for key in mine])
        slots += mine
        offsets.append(len(slots))
    program = compile_condition(residual, slots)  # type: ignore[arg-type]
    topology = rule.topology
    condition = Condition(
        upper=np.array(topology.implied, np.int64),
        hop=topology.hop_us,
        window=topology.window_us,
        open_left=int(topology.closed in {"neither", "right"}),
        open_right=int(topology.closed in {"neither", "left"}),
        slot_offsets=np.array(offsets, np.int64),
        ops=program.ops,
        args=program.args,
        consts=program.consts,
        depth=program.stack,
    )
    return condition, hoisted


def _joined_lives(one: alert.Lives, other: alert.Lives) -> alert.Lives:
    return alert.Lives._make(np.concatenate(pair) for pair in zip(one, other, strict=True))
