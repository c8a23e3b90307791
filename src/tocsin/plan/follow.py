"""Follow one rule over the keys of a page: probes, evaluations that wait for progress, lives with their witnesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.expr.columns import evaluate_number
from tocsin.expr.nodes import Key, Variable
from tocsin.jit import kernel
from tocsin.logic import Float, Int
from tocsin.plan.condition import compile_rule, limit_key
from tocsin.plan.corners import Corners
from tocsin.plan.identity import Lane
from tocsin.plan.remember import NEVER_SEEN, Segments
from tocsin.plan.steps import Store, Threshold
from tocsin.plan.witness import Show, Witnesses
from tocsin.stages import alert
from tocsin.stages.join import Evaluations, Probes, Tuples, combine
from tocsin.stages.reduce.settled import settle

# A change of state: key, state, start, end, witness, whether late.
Change = tuple[int, str, int, int | None, Witnesses, bool]


@dataclass(frozen=True)
class Arrivals:
    """New rows by key and arrival: lane, key, time, and which row of its lane each is."""

    lane: Int
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

    def __init__(self, rule: Threshold, stores: Sequence[Store], lanes: Sequence[Lane], keys: int = 0) -> None:
        self.rule, self.stores, self.identity = rule, [stores[i] for i in rule.stores], rule.identity(stores)
        mine = [store.lane for store in self.stores]
        self.stream_of = np.array([mine.index(lane) if lane in mine else -1 for lane in lanes], np.int64)
        self.timing = alert.Timing(rule.for_us, rule.keep_us, rule.stale_us)
        self.value_offsets = np.concatenate([[0], np.cumsum([len(store.columns) for store in self.stores])])
        self.condition, self.hoisted = compile_rule(rule, self.stores)
        self.corners = Corners(rule, self.stores)
        self.newest = np.full((keys, len(self.stores)), NEVER_SEEN)
        self.progress = np.full(keys, NEVER_SEEN)
        self.lives = [alert.new_lives(keys), alert.new_lives(keys)]
        self.bests = [self._no_witnesses(keys), self._no_witnesses(keys)]
        self.waiting = self._no_witnesses(0)
        self.limits = np.zeros((len(rule.limits), 0))

    def outside(self, shown: Witnesses) -> bool:
        """Tell whether a witness has a value outside the domain that this rule declares for it."""
        names = [store.stream for store in self.stores]
        for stream, column, low, high in self.rule.domains:
            i = names.index(stream)
            value = shown.values[0, int(self.value_offsets[i]) + self.stores[i].columns.index(column)]
            if not low <= value <= high:
                return True
        return False

    def _no_witnesses(self, rows: int) -> Witnesses:
        return Witnesses.none(rows, len(self.stores), int(self.value_offsets[-1]))

    def add_keys(self, keys: Sequence[tuple[str, ...]]) -> None:
        """Make room for new keys."""
        count = len(keys)
        self._add_limits(keys)
        self.newest = np.concatenate([self.newest, np.full((count, len(self.stores)), NEVER_SEEN)])
        self.progress = np.concatenate([self.progress, np.full(count, NEVER_SEEN)])
        self.lives = [_joined_lives(lives, alert.new_lives(count)) for lives in self.lives]
        self.bests = [best.joined(self._no_witnesses(count)) for best in self.bests]

    def _add_limits(self, keys: Sequence[tuple[str, ...]]) -> None:
        fresh = np.array([limit.of(keys) for limit in self.rule.limits]).reshape(len(self.rule.limits), len(keys))
        self.limits = np.concatenate([self.limits, fresh], axis=1)

    def evaluate(self, arrivals: Arrivals, segments: Sequence[Segments]) -> tuple[list[Change], Witnesses]:
        """Join the arrivals and drive the lives: changes of state, and all true combinations if the rule asks so."""
        mine = self.stream_of[arrivals.lane]
        if self.rule.lag_us:
            return self._settle(arrivals.key[mine == 0], arrivals.row[mine == 0], segments[0]), self._no_witnesses(0)
        late = track(mine, arrivals.key, arrivals.time, self.newest, self.progress, self.rule.idle_us)
        bases, found = _bases(segments), np.full(len(mine), -1)
        for i, segment in enumerate(segments):
            at = np.flatnonzero(mine == i)
            row = arrivals.row[at]
            # A rule of one stream evaluates every row, whatever the rules that share its store leave out.
            silent = segment.silent[row] & (len(segments) > 1)
            found[at] = np.where(silent, -1, bases[i] + segment.place[row])
        idle = self._idle(arrivals, segments) if self.corners.known else np.zeros(len(mine), np.bool_)
        # Rows that are not idle lie ahead of progress: no combination reaches further back from there than the span.
        found[idle & (arrivals.time < self.progress[arrivals.key] - self.rule.topology.span_us)] = -1
        chosen = np.flatnonzero(found >= 0)
        probes = Probes(mine[chosen], arrivals.key[chosen], found[chosen], idle[chosen])
        return self._judge(probes, late[chosen], segments)

    def _idle(self, arrivals: Arrivals, segments: Sequence[Segments]) -> NDArray[np.bool_]:
        """Tell which rows change nothing: their key cannot be true, has no open life, and nothing waits for order."""
        limits = {limit.variable: numbers for limit, numbers in zip(self.rule.limits, self.limits, strict=True)}
        quiet = self.corners.hopeless(segments, limits)
        for lives in self.lives:
            quiet &= lives.phase == alert.NONE
        quiet[self.waiting.key[self.waiting.truth == alert.TRUE]] = False  # False ones that wait begin nothing either.
        # What progress has not reached may still end a life that an earlier true evaluation begins.
        idle: NDArray[np.bool_] = quiet[arrivals.key] & (arrivals.time <= self.progress[arrivals.key])
        return idle

    def _settle(self, key: Int, row: Int, segment: Segments) -> list[Change]:
        """Take arrivals of a reduced rule of one stream, and judge the rows whose place they settle."""
        rows = (segment.offsets, segment.time, segment.rank, segment.gone)
        arrived = (key, segment.place[row])
        settled, late = settle(arrived, rows, self.newest[:, 0], self.progress, self.rule.lag_us)
        return self._judge_settled(settled, late, segment)

    def settle_rest(self, progress: Int, segment: Segments) -> list[Change]:
        """Learn that no row will come up to `progress`, and judge the remembered rows that it settles."""
        key = np.repeat(np.arange(len(self.progress)), np.diff(segment.offsets))
        settled = np.flatnonzero((segment.time > self.progress[key]) & (segment.time <= progress[key]))
        self.progress = np.maximum(self.progress, progress)
        return self._judge_settled(settled, np.zeros(len(settled), np.bool_), segment)

    def _judge_settled(self, settled: Int, late: NDArray[np.bool_], segment: Segments) -> list[Change]:
        """Call the condition on settled rows, and on no others; they are ordered by key."""
        key = np.searchsorted(segment.offsets, settled, side="right") - 1
        probes = Probes(np.zeros(len(key), np.int64), key, np.arange(len(key)), np.zeros(len(key), np.bool_))
        return self._judge(probes, late, [segment.pick(settled, key)])[0]

    def _judge(
        self, probes: Probes, late: NDArray[np.bool_], segments: Sequence[Segments]
    ) -> tuple[list[Change], Witnesses]:
        """Evaluate the best combination of each probe, or all true ones, and let them drive the lives."""
        tuples, every = self._tuples(segments), self.rule.emit == "all"
        evaluations, matches, scores = combine(tuples, probes, self.condition, len(self.progress), every)
        show = Show(self.value_offsets, tuples, segments, _bases(segments))
        if every:
            return [], show.matches(matches, scores)
        return self._live(evaluations, tuples.time[probes.row], probes.key, late, show), self._no_witnesses(0)

    def _tuples(self, segments: Sequence[Segments]) -> Tuples:
        """Rows of all streams of the rule, one behind the other, with the slots that the program reads."""
        bases = _bases(segments)
        offsets = [segment.offsets[:-1] + base for segment, base in zip(segments, bases[:-1], strict=True)]
        slots = np.zeros((int(bases[-1]), max(1, int(np.diff(self.condition.slot_offsets).max()))))
        names = dict(self.rule.columns)
        for i, segment in enumerate(segments):
            have = dict(zip(self.stores[i].columns, segment.values, strict=True))
            columns = {key: have[name] for key, name in names.items() if key[0] == self.stores[i].stream}
            columns |= self._limits(segment) if i == 0 else {}
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

    def _limits(self, segment: Segments) -> dict[Key, Float]:
        """The limits of each row of the first stream: those of its key."""
        stream, counts = self.stores[0].stream, np.diff(segment.offsets)
        return {limit_key(stream, i): np.repeat(numbers, counts) for i, numbers in enumerate(self.limits)}

    def _live(self, evaluations: Evaluations, time: Int, key: Int, late: NDArray[np.bool_], show: Show) -> list[Change]:
        found = evaluations.found == 1
        holding = found & (evaluations.truth == alert.FALSE) & self.rule.holds(evaluations.value)
        evaluations.truth[holding] = alert.HOLDING
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

    def waits(self) -> NDArray[np.bool_]:
        """Keys for which progress is waited for: by evaluations, or by rows that are not settled."""
        waits: NDArray[np.bool_] = (self.newest[:, 0] > self.progress) & (self.rule.lag_us > 0)
        waits[self.waiting.key] = True
        return waits

    def busy(self) -> NDArray[np.bool_]:
        """Keys that have an open life, or something that waits."""
        busy = self.waits()
        for lives in self.lives:
            busy |= lives.phase != alert.NONE
        return busy

    def drop_keys(self, gone: NDArray[np.bool_]) -> None:
        """Forget keys that are not busy."""
        self.newest, self.progress, self.limits = self.newest[~gone], self.progress[~gone], self.limits[:, ~gone]
        self.lives = [alert.Lives._make(column[~gone] for column in lives) for lives in self.lives]
        self.bests = [best.take(~gone) for best in self.bests]
        self.waiting.key = (np.cumsum(~gone) - 1)[self.waiting.key]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        prefix = f"r{self.identity.id}."
        named: dict[str, NDArray[Any]] = {f"{prefix}newest": self.newest, f"{prefix}progress": self.progress}
        for machine, (lives, best) in enumerate(zip(self.lives, self.bests, strict=True)):
            named |= {f"{prefix}life{machine}.{i}": column for i, column in enumerate(lives)}
            named |= {f"{prefix}best{machine}.{i}": column for i, column in enumerate(best.columns())}
        return named | {f"{prefix}waiting.{i}": column for i, column in enumerate(self.waiting.columns())}

    def load(self, arrays: dict[str, NDArray[Any]], keys: Sequence[tuple[str, ...]]) -> None:
        """State that was written; limits are looked up anew."""
        prefix = f"r{self.identity.id}."
        self._add_limits(keys)
        self.newest, self.progress = arrays[f"{prefix}newest"], arrays[f"{prefix}progress"]
        for machine in range(2):
            self.lives[machine] = alert.Lives(*(arrays[f"{prefix}life{machine}.{i}"] for i in range(6)))
            self.bests[machine] = Witnesses(*(arrays[f"{prefix}best{machine}.{i}"] for i in range(8)))
        self.waiting = Witnesses(*(arrays[f"{prefix}waiting.{i}"] for i in range(8)))


def _bases(segments: Sequence[Segments]) -> Int:
    """Where the rows of each stream begin when they stand one behind the other, and where the last ones end."""
    return np.concatenate([[0], np.cumsum([len(segment.time) for segment in segments])])


def _joined_lives(one: alert.Lives, other: alert.Lives) -> alert.Lives:
    return alert.Lives._make(np.concatenate(pair) for pair in zip(one, other, strict=True))
