"""Follow one rule over the keys of a page: progress, probes, what is evaluated when; its lives are in `lives.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.expr.syntax_tree import Key
from tocsin.hashing import stable_hash
from tocsin.jit import kernel
from tocsin.operators.join.batch_slice import BatchSlice
from tocsin.operators.join.compiled_rule import CompiledRule, limit_key
from tocsin.operators.join.corner_bounds import CornerBounds
from tocsin.operators.join.infeasible_cells import InfeasibleCells
from tocsin.operators.join.threshold_join import Evaluations, Probes, Tuples, combine
from tocsin.operators.lifecycle.alert_changes import AlertChanges
from tocsin.operators.lifecycle.alert_state_machine import TRUE
from tocsin.operators.lifecycle.operator import Lifecycle
from tocsin.operators.lifecycle.witness import Witnesses, WitnessLookup
from tocsin.operators.retention.final_rows import find_final_rows
from tocsin.plan.identity import Lane
from tocsin.plan.steps import Store, Threshold
from tocsin.runtime.contract import NEVER_SEEN, Float, Int
from tocsin.runtime.state_registry import Column, Derived, Section, StateArray, StateSchema
from tocsin.runtime.versioned_rows import VersionedRows

# To sift fewer arrivals than this would cost more than to try them all.
FEWEST_SIFTED = 512


@kernel
def bring_on(key: int, newest: Int, progress: Int, idle_timeout: int) -> None:
    """Move the progress of a key to the oldest of its streams that are at most `idle_timeout` behind the newest."""
    front = NEVER_SEEN
    for s in range(newest.shape[1]):
        front = max(front, newest[key, s])
    least = front
    for s in range(newest.shape[1]):
        if newest[key, s] != NEVER_SEEN and newest[key, s] >= front - idle_timeout:
            least = min(least, newest[key, s])
    progress[key] = max(progress[key], least)


@kernel
def track(stream: Int, key: Int, time: Int, newest: Int, progress: Int, idle_timeout: int) -> NDArray[np.bool_]:
    """Move progress with each row; tell which came after progress had passed them. `stream` < 0: not of this rule."""
    late = np.zeros(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        if stream[i] < 0:
            continue
        k = key[i]
        late[i] = time[i] < progress[k]
        newest[k, stream[i]] = max(newest[k, stream[i]], time[i])
        bring_on(k, newest, progress, idle_timeout)
    return late


@kernel
def track_in_order(
    came: tuple[Int, NDArray[np.bool_], Int, Int], newest: Int, progress: Int, idle_timeout: int
) -> NDArray[np.bool_]:
    """Tell which keys came in order, and move these: no row of theirs is late, and the last one brings progress.

    `came` is the lane of each stream of the rule; then by key, as in `Arrived`, whether rows came in order of time, the
    first time, and the newest of each lane.
    """
    lanes, is_sorted, first, latest = came
    in_order = np.zeros(newest.shape[0], np.bool_)
    for k in range(newest.shape[0]):
        front, any_came = NEVER_SEEN, False
        for i in range(lanes.shape[0]):
            front = max(front, newest[k, i])
            any_came |= latest[k, lanes[i]] != NEVER_SEEN
        in_order[k] = is_sorted[k] and first[k] >= front
        if in_order[k] and any_came:
            for i in range(lanes.shape[0]):
                newest[k, i] = max(newest[k, i], latest[k, lanes[i]])
            bring_on(k, newest, progress, idle_timeout)
    return in_order


class Joined(NamedTuple):
    """What the join found: the best of each probe, all true combinations with their scores if asked for."""

    evaluations: Evaluations
    matches: Int
    scores: Float
    show: WitnessLookup


KIND = "join"


class Join(CompiledRule):
    """State and work of one rule on one page."""

    newest, progress, seen_us = StateArray("newest"), StateArray("progress"), StateArray("seen")

    def __init__(self, rule: Threshold, stores: Sequence[Store], lanes: Sequence[Lane]) -> None:
        super().__init__(rule, stores)
        mine = [store.lane for store in self.stores]
        # Stream of the rule by view, or -1. The last entry is for rows that no view can use.
        self.stream_of = np.array([mine.index(lane) if lane in mine else -1 for lane in lanes] + [-1], np.int64)
        self.corners = CornerBounds(rule)
        newest = Column("newest", default=NEVER_SEEN, width=len(self.stores))
        per_key = (newest, Column("progress", default=NEVER_SEEN), Column("seen"))
        schema = StateSchema(KIND, per_key, derived=(Derived("limits", self._limits_of),))
        self.section = Section(stable_hash(KIND, self.identity.to_json()), schema, owner=self.identity.id)
        self.lived = Lifecycle(rule, self.identity, len(self.stores), int(self.value_offsets[-1]))
        # The ranks of the rows of the last call that gave results, once for each.
        self.gave = np.zeros(0, np.int64)
        self.chances: Float | None = None
        # Receiver of all evaluations while a trace is recorded.
        self.observer: Callable[[Probes, Evaluations, NDArray[np.bool_], WitnessLookup], None] | None = None

    @property
    def limits(self) -> Float:
        """Limits by table and key."""
        limits: Float = self.section.arrays["limits"].T
        return limits

    def _limits_of(self, keys: Sequence[tuple[str, ...]]) -> Float:
        """Return the limits by key and table."""
        limits = np.array([limit.of(keys) for limit in self.rule.limits], np.float64)
        return np.ascontiguousarray(limits.reshape(len(self.rule.limits), len(keys)).T)

    def evaluate(self, arrived: BatchSlice) -> tuple[list[AlertChanges], Witnesses]:
        """Join the arrivals and drive the lives: changes of state, and all true combinations if the rule asks so."""
        segments = [arrived.segments[i] for i in self.rule.stores]
        if self.rule.lag_us:
            at = arrived.positions(self.rule.stores[0])
            arrivals = arrived.arrivals
            changes = self._settle(arrivals.key[at], segments[0])
            # The rows that will be evaluated are not known yet, so each new row counts as a result.
            self.gave = segments[0].begin[segments[0].probes]
            return changes, self.lived.no_witnesses(0)
        in_order, late = self._track(arrived)
        if self.corners.known and len(late) >= FEWEST_SIFTED:
            return self._sift(arrived, in_order, late)
        # A rule of one stream evaluates every row, whatever the rules that share its store leave out.
        alone = len(segments) == 1
        arrival = np.concatenate([arrived.arrival_of(i, skipped_too=alone) for i in self.rule.stores])
        probes, at = self._arrived_among(arrived, arrival, np.zeros(len(arrival), np.bool_))
        return self._judge(probes, late[at], segments)

    def count_left_out(self, arrived: BatchSlice) -> None:
        """Count among what rows gave what those would have that came behind and were left out at once.

        Nobody is told, for what excuses them was; but a recall counts results, and late rows must not seem to have few.
        """
        stores = self.rule.stores
        left = np.concatenate([self._left_out(arrived, i) for i in stores])
        if len(stores) == 1 or not len(left):  # A rule of one stream evaluates every row.
            return
        keys = np.zeros(arrived.keys, np.bool_)
        keys[arrived.arrivals.key[left]] = True
        segments, arrivals = [], []
        for i in stores:
            of = np.repeat(np.arange(arrived.keys), np.diff(arrived.segments[i].offsets))
            rows = np.flatnonzero(keys[of])
            segments.append(arrived.segments[i].take(rows, of[rows]))
            arrivals.append(arrived.arrival_of(i, skipped_too=True)[rows])
        arrival = np.concatenate(arrivals)
        probes, _ = self._arrived_among(arrived, arrival, ~np.isin(arrival, left))
        tuples = self._tuples(segments)
        truth = combine(tuples, probes, self.condition, arrived.keys, every=False)[0].truth
        self.gave = np.concatenate([self.gave, tuples.rank[probes.row[truth == TRUE]]])

    def _left_out(self, arrived: BatchSlice, store: int) -> Int:
        return arrived.positions(store)[arrived.segments[store].is_covered]

    def _arrived_among(self, arrived: BatchSlice, arrival: Int, silent: NDArray[np.bool_]) -> tuple[Probes, Int]:
        """The rows that are arrivals, in order of arrival, and which of these each is."""
        row = np.flatnonzero(arrival >= 0)
        row = row[np.argsort(arrival[row], kind="stable")]
        at = arrival[row]
        return Probes(self.stream_of[arrived.arrivals.view[at]], arrived.arrivals.key[at], row, silent[row]), at

    def _track(self, arrived: BatchSlice) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Move progress; tell which keys came in order for this rule, and which arrivals came after progress."""
        arrivals, lanes = arrived.arrivals, [arrived.views[i] for i in self.rule.stores]
        came = (np.array(lanes), arrived.in_order, arrived.first, arrived.newest)
        in_order = track_in_order(came, self.newest, self.progress, self.rule.idle_timeout_us)
        late = np.zeros(len(arrivals.key), np.bool_)
        if not in_order.all():
            at = np.flatnonzero(~in_order[arrivals.key])
            mine = self.stream_of[arrivals.view[at]]
            late[at] = track(
                mine, arrivals.key[at], arrivals.time[at], self.newest, self.progress, self.rule.idle_timeout_us
            )
        return in_order, late

    def _sift(
        self, arrived: BatchSlice, in_order: NDArray[np.bool_], late: NDArray[np.bool_]
    ) -> tuple[list[AlertChanges], Witnesses]:
        """Join what may change something, and no more of the other rows than partners of those."""
        limits = {limit.variable: numbers for limit, numbers in zip(self.rule.limits, self.limits, strict=True)}
        sift = InfeasibleCells(arrived, self.rule, self.corners, limits)
        in_order = in_order & (self.rule.recovery is None)
        is_open = np.where(in_order, self.lived.is_unmet(), self.lived.is_open() | self.lived.is_unmet())
        while True:
            cut = sift.cut(in_order, is_open, self.progress)
            probes, at = self._arrived_among(arrived, cut.arrival, cut.silent)
            joined = self._join(probes, cut.segments)
            again = cut.unsettled(probes, joined.evaluations, is_open)
            if not again.any():
                return self._conclude(probes, late[at], joined)
            in_order, is_open = in_order & ~again, is_open | again

    def _settle(self, key: Int, segment: VersionedRows) -> list[AlertChanges]:
        """Process the arrivals of a reduced rule of one stream, and evaluate the rows that become final."""
        rows = (segment.offsets, segment.time, segment.begin, segment.end)
        arrived = (key, segment.probes)
        settled, late = find_final_rows(arrived, rows, self.newest[:, 0], self.progress, self.rule.lag_us)
        return self._judge_settled(settled, late, segment)

    def settle_rest(self, progress: Int, segment: VersionedRows) -> list[AlertChanges]:
        """Learn that no row will come up to `progress`, and judge the remembered rows that it settles."""
        key = np.repeat(np.arange(len(self.progress)), np.diff(segment.offsets))
        settled = np.flatnonzero((segment.time > self.progress[key]) & (segment.time <= progress[key]))
        self.progress = np.maximum(self.progress, progress)
        return self._judge_settled(settled, np.zeros(len(settled), np.bool_), segment)

    def _judge_settled(self, settled: Int, late: NDArray[np.bool_], segment: VersionedRows) -> list[AlertChanges]:
        """Call the condition on settled rows, and on no others; they are ordered by key."""
        key = np.searchsorted(segment.offsets, settled, side="right") - 1
        probes = Probes(np.zeros(len(key), np.int64), key, np.arange(len(key)), np.zeros(len(key), np.bool_))
        return self._judge(probes, late, [segment.as_new(settled, key)])[0]

    def _judge(
        self, probes: Probes, late: NDArray[np.bool_], segments: Sequence[VersionedRows]
    ) -> tuple[list[AlertChanges], Witnesses]:
        """Evaluate the best combination of each probe, or all true ones, and let them drive the lives."""
        return self._conclude(probes, late, self._join(probes, segments))

    def _join(self, probes: Probes, segments: Sequence[VersionedRows]) -> Joined:
        tuples, every = self._tuples(segments), self.rule.emit == "all"
        evaluations, matches, scores = combine(tuples, probes, self.condition, len(self.progress), every=every)
        return Joined(
            evaluations, matches, scores, WitnessLookup(self.value_offsets, tuples, segments, bases_of(segments))
        )

    def _conclude(
        self, probes: Probes, late: NDArray[np.bool_], joined: Joined
    ) -> tuple[list[AlertChanges], Witnesses]:
        show, rank = joined.show, joined.show.tuples.rank
        if self.observer is not None:
            self.observer(probes, joined.evaluations, late, show)
        true = probes.row[joined.evaluations.truth == TRUE]
        self.gave = rank[joined.matches].max(axis=1) if self.rule.emit == "all" else rank[true]
        if self.rule.emit == "all":
            self.chances = self._chances(joined)
            return [], show.matches(joined.matches, joined.scores)
        time = show.tuples.time[probes.row]
        return self._live(joined.evaluations, time, probes.key, late, show), self.lived.no_witnesses(0)

    def _chances(self, joined: Joined) -> Float | None:
        """Where results are sampled, with which chance each is there: that of its row which came first."""
        parts = [segment.probability for segment in joined.show.segments]
        if any(part is None for part in parts) or not len(joined.matches):
            return None
        chance = np.concatenate([part for part in parts if part is not None])
        first = joined.show.tuples.rank[joined.matches].argmin(axis=1)
        return np.asarray(chance[joined.matches[np.arange(len(first)), first]], np.float64)

    def _tuples(self, segments: Sequence[VersionedRows]) -> Tuples:
        """Rows of all streams of the rule, one behind the other, with the slots that the program reads."""
        bases = bases_of(segments)
        offsets = [segment.offsets[:-1] + base for segment, base in zip(segments, bases[:-1], strict=True)]
        slots = np.zeros((int(bases[-1]), max(1, int(np.diff(self.condition.slot_offsets).max()))))
        for i, segment in enumerate(segments):
            limits = self._limits(np.diff(segment.offsets)) if i == 0 else {}
            self.fill(slots[bases[i] : bases[i + 1]], i, segment.values, limits)
        return Tuples(
            np.concatenate([*offsets, bases[-1:]]),
            np.concatenate([segment.time for segment in segments]),
            np.concatenate([segment.begin for segment in segments]),
            np.concatenate([segment.end for segment in segments]),
            slots,
            np.concatenate([_number(need, segment) for need, segment in zip(self.rule.needs, segments, strict=True)]),
        )

    def _limits(self, counts: Int) -> dict[Key, Float]:
        """The limits of each row of the first stream, which has so many of each key."""
        stream = self.stores[0].stream
        return {limit_key(stream, i): np.repeat(numbers, counts) for i, numbers in enumerate(self.limits)}

    def _live(
        self, evaluations: Evaluations, time: Int, key: Int, late: NDArray[np.bool_], show: WitnessLookup
    ) -> list[AlertChanges]:
        return self.lived.take(evaluations, (time, key), late, show, self.progress)

    def advance(self, progress: Int, silence: Int, *, late_too: bool) -> list[AlertChanges]:
        """Learn that no stream is waited for up to `progress`, and that nothing was said until `silence`."""
        self.progress = np.maximum(self.progress, progress)
        return self.lived.advance(self.progress, silence, late_too=late_too)

    def waits(self) -> NDArray[np.bool_]:
        """Keys for which progress is waited for: by evaluations, or by rows that are not settled."""
        waits: NDArray[np.bool_] = (self.newest[:, 0] > self.progress) & (self.rule.lag_us > 0)
        waits[self.lived.waiting.key] = True
        return waits

    def busy(self) -> NDArray[np.bool_]:
        """Keys that have an open life, or something that waits."""
        return self.waits() | self.lived.is_open()


def _number(need: Store, segment: VersionedRows) -> Float:
    """What rows are compared by; NaN for those of which nothing is known: no proof speaks of them."""
    numbers, apart = need.numbers(segment.values)
    return np.where(apart, np.nan, 0.0 if need.whole or len(numbers) > 1 else numbers[0])


def bases_of(segments: Sequence[VersionedRows]) -> Int:
    """Where the rows of each stream begin when they stand one behind the other, and where the last ones end."""
    return np.concatenate([[0], np.cumsum([len(segment.time) for segment in segments])])
