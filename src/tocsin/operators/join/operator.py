"""Join: evaluations of one rule over the keys of a shard.

Algorithm: each arriving row first advances the watermark of its key, and then is a probe. Four cases exist.

- Usually each arrival is evaluated (`threshold_join`).
- In a large batch with known shapes, only cells that can change an alert are evaluated (`infeasible_cells`).
- A reduced rule of one stream evaluates each retained row once, when it is final (`final_rows`).
- A rule with `emit: all` lists all true combinations.

The evaluations pass to the lifecycle of the rule.

Guarantees: batch boundaries do not change evaluations, alerts or stored state.

Complexity: one step per row for the watermark, and the complexity of `threshold_join` per probe.

References: docs/explanation/semantics.md (D40 to D45).
"""

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
from tocsin.operators.join.threshold_join import Evaluations, Probes, Tuples, evaluate_probes
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

# Fewest arrivals for the selection of cells. For fewer arrivals, it costs more than it saves.
MIN_ROWS_FOR_CELLS = 512

KIND = "join"


def join_schema(streams: int, limits_of: Callable[[Sequence[tuple[str, ...]]], Float]) -> StateSchema:
    """Return the schema of a rule: newest time by stream, watermark and last processing time of each key."""
    newest = Column("newest", default=NEVER_SEEN, width=streams)
    per_key = (newest, Column("progress", default=NEVER_SEEN), Column("seen"))
    return StateSchema(KIND, per_key, derived=(Derived("limits", limits_of),))


@kernel
def advance_watermark(key: int, newest: Int, watermark: Int, idle_timeout: int) -> None:
    """Advance the watermark of a key to the oldest newest time of its active streams.

    A stream is idle if its newest row is more than `idle_timeout` older than the newest row of the key.
    """
    newest_time = NEVER_SEEN
    for s in range(newest.shape[1]):
        newest_time = max(newest_time, newest[key, s])
    least = newest_time
    for s in range(newest.shape[1]):
        if newest[key, s] != NEVER_SEEN and newest[key, s] >= newest_time - idle_timeout:
            least = min(least, newest[key, s])
    watermark[key] = max(watermark[key], least)


@kernel
def advance_watermarks(
    stream: Int, key: Int, time: Int, newest: Int, watermark: Int, idle_timeout: int
) -> NDArray[np.bool_]:
    """Advance watermarks row by row, and mark the late rows. `stream` is -1 for rows of other rules."""
    late = np.zeros(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        if stream[i] < 0:
            continue
        k = key[i]
        late[i] = time[i] < watermark[k]
        newest[k, stream[i]] = max(newest[k, stream[i]], time[i])
        advance_watermark(k, newest, watermark, idle_timeout)
    return late


@kernel
def advance_watermarks_in_order(
    times: tuple[Int, NDArray[np.bool_], Int, Int], newest: Int, watermark: Int, idle_timeout: int
) -> NDArray[np.bool_]:
    """Advance the watermarks of keys in time order, and mark these keys.

    No row of these keys is late, so the newest time of each stream determines the watermark. `times` has the view of
    each stream of the rule. It also has for each key, as in `BatchSlice`, the time order, the first time and the newest
    time of each view.
    """
    views, is_sorted, first, latest = times
    in_order = np.zeros(newest.shape[0], np.bool_)
    for k in range(newest.shape[0]):
        newest_time, has_rows = NEVER_SEEN, False
        for i in range(views.shape[0]):
            newest_time = max(newest_time, newest[k, i])
            has_rows |= latest[k, views[i]] != NEVER_SEEN
        in_order[k] = is_sorted[k] and first[k] >= newest_time
        if in_order[k] and has_rows:
            for i in range(views.shape[0]):
                newest[k, i] = max(newest[k, i], latest[k, views[i]])
            advance_watermark(k, newest, watermark, idle_timeout)
    return in_order


class Joined(NamedTuple):
    """Results of the join.

    Attributes
    ----------
    evaluations
        Best combination of each probe.
    matches, scores
        All true combinations with margin and value, for `emit: all`.
    lookup
        Lookup of the witnesses.
    """

    evaluations: Evaluations
    matches: Int
    scores: Float
    lookup: WitnessLookup


class Join(CompiledRule):
    """State and work of one rule in one shard.

    Attributes
    ----------
    result_serials
        Serial number of the row that completed each result of the last call.
    match_probabilities
        Inclusion probability of each match of the last call, or None if rows are not sampled.
    observer
        Function that receives all evaluations while a trace is recorded, or None.
    """

    newest, watermark, seen_us = StateArray("newest"), StateArray("progress"), StateArray("seen")

    def __init__(self, rule: Threshold, stores: Sequence[Store], views: Sequence[Lane]) -> None:
        super().__init__(rule, stores)
        own_views = [store.lane for store in self.stores]
        # Stream of the rule by view, or -1. The last entry is for rows without a view.
        self.stream_of = np.array(
            [own_views.index(view) if view in own_views else -1 for view in views] + [-1], np.int64
        )
        self.corners = CornerBounds(rule)
        schema = join_schema(len(self.stores), self._limits_of)
        self.section = Section(stable_hash(KIND, self.identity.to_json()), schema, owner=self.identity.id)
        self.lifecycle = Lifecycle(rule, self.identity, len(self.stores), int(self.value_offsets[-1]))
        self.result_serials = np.zeros(0, np.int64)
        self.match_probabilities: Float | None = None
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

    def process(self, arrived: BatchSlice) -> tuple[list[AlertChanges], Witnesses]:
        """Join the arrivals, and return the changes of alert states and, for `emit: all`, the matches."""
        segments = [arrived.segments[i] for i in self.rule.stores]
        if self.rule.lag_us:
            at = arrived.positions(self.rule.stores[0])
            arrivals = arrived.arrivals
            changes = self._process_final_rows(arrivals.key[at], segments[0])
            # The rows that will be evaluated are not known yet, so each new row counts as a result.
            self.result_serials = segments[0].begin[segments[0].probes]
            return changes, self.lifecycle.no_witnesses(0)
        in_order, late = self._advance_watermarks(arrived)
        if self.corners.known and len(late) >= MIN_ROWS_FOR_CELLS:
            return self._evaluate_feasible_cells(arrived, in_order, late)
        # A rule of one stream evaluates every row. Other rules that share its input may omit rows.
        is_single = len(segments) == 1
        arrival = np.concatenate([arrived.arrival_of(i, with_skipped=is_single) for i in self.rule.stores])
        probes, at = self._probes_among(arrived, arrival, np.zeros(len(arrival), np.bool_))
        return self._evaluate_probes(probes, late[at], segments)

    def count_omitted_results(self, arrived: BatchSlice) -> None:
        """Count the results of out-of-order rows that were omitted on arrival.

        They emit no alert. The recall estimate needs them. Without them, late rows would seem to have few results.
        """
        stores = self.rule.stores
        omitted = np.concatenate([self._omitted_arrivals(arrived, i) for i in stores])
        if len(stores) == 1 or not len(omitted):  # A rule of one stream evaluates every row.
            return
        keys = np.zeros(arrived.keys, np.bool_)
        keys[arrived.arrivals.key[omitted]] = True
        segments, arrivals = [], []
        for i in stores:
            key_of = np.repeat(np.arange(arrived.keys), np.diff(arrived.segments[i].offsets))
            rows = np.flatnonzero(keys[key_of])
            segments.append(arrived.segments[i].take(rows, key_of[rows]))
            arrivals.append(arrived.arrival_of(i, with_skipped=True)[rows])
        arrival = np.concatenate(arrivals)
        probes, _ = self._probes_among(arrived, arrival, ~np.isin(arrival, omitted))
        tuples = self._tuples(segments)
        truth = evaluate_probes(tuples, probes, self.condition, arrived.keys, every=False)[0].truth
        self.result_serials = np.concatenate([self.result_serials, tuples.serial[probes.row[truth == TRUE]]])

    def _omitted_arrivals(self, arrived: BatchSlice, store: int) -> Int:
        return arrived.positions(store)[arrived.segments[store].is_covered]

    def _probes_among(self, arrived: BatchSlice, arrival: Int, partner_only: NDArray[np.bool_]) -> tuple[Probes, Int]:
        """Return the rows that are arrivals as probes, in arrival order, and the arrival of each probe."""
        row = np.flatnonzero(arrival >= 0)
        row = row[np.argsort(arrival[row], kind="stable")]
        at = arrival[row]
        return Probes(self.stream_of[arrived.arrivals.view[at]], arrived.arrivals.key[at], row, partner_only[row]), at

    def _advance_watermarks(self, arrived: BatchSlice) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Advance watermarks. Mark the keys in time order and the late arrivals."""
        arrivals, views = arrived.arrivals, [arrived.views[i] for i in self.rule.stores]
        times = (np.array(views), arrived.in_order, arrived.first, arrived.newest)
        in_order = advance_watermarks_in_order(times, self.newest, self.watermark, self.rule.idle_timeout_us)
        late = np.zeros(len(arrivals.key), np.bool_)
        if not in_order.all():
            at = np.flatnonzero(~in_order[arrivals.key])
            mine = self.stream_of[arrivals.view[at]]
            late[at] = advance_watermarks(
                mine, arrivals.key[at], arrivals.time[at], self.newest, self.watermark, self.rule.idle_timeout_us
            )
        return in_order, late

    def _evaluate_feasible_cells(
        self, arrived: BatchSlice, in_order: NDArray[np.bool_], late: NDArray[np.bool_]
    ) -> tuple[list[AlertChanges], Witnesses]:
        """Evaluate the rows that can change an alert. Retry with more rows if a skipped row can matter."""
        limits = {limit.variable: numbers for limit, numbers in zip(self.rule.limits, self.limits, strict=True)}
        cells = InfeasibleCells(arrived, self.rule, self.corners, limits)
        in_order = in_order & (self.rule.recovery is None)
        is_active = np.where(
            in_order, self.lifecycle.is_active(), self.lifecycle.is_open() | self.lifecycle.is_active()
        )
        while True:
            candidates = cells.select_rows(in_order, is_active, self.watermark)
            probes, at = self._probes_among(arrived, candidates.arrival, candidates.partner_only)
            joined = self._join(probes, candidates.segments)
            retry = candidates.keys_to_retry(probes, joined.evaluations, is_active)
            if not retry.any():
                return self._apply_results(probes, late[at], joined)
            in_order, is_active = in_order & ~retry, is_active | retry

    def _process_final_rows(self, key: Int, segment: VersionedRows) -> list[AlertChanges]:
        """Process the arrivals of a reduced rule of one stream, and evaluate the rows that become final."""
        rows = (segment.offsets, segment.time, segment.begin, segment.end)
        arrived = (key, segment.probes)
        final, late = find_final_rows(arrived, rows, self.newest[:, 0], self.watermark, self.rule.lag_us)
        return self._evaluate_final_rows(final, late, segment)

    def finalize_rows(self, watermark: Int, segment: VersionedRows) -> list[AlertChanges]:
        """Advance the watermark without rows, and evaluate the retained rows that become final."""
        key = np.repeat(np.arange(len(self.watermark)), np.diff(segment.offsets))
        final = np.flatnonzero((segment.time > self.watermark[key]) & (segment.time <= watermark[key]))
        self.watermark = np.maximum(self.watermark, watermark)
        return self._evaluate_final_rows(final, np.zeros(len(final), np.bool_), segment)

    def _evaluate_final_rows(self, final: Int, late: NDArray[np.bool_], segment: VersionedRows) -> list[AlertChanges]:
        """Evaluate final rows, which are ordered by key."""
        key = np.searchsorted(segment.offsets, final, side="right") - 1
        probes = Probes(np.zeros(len(key), np.int64), key, np.arange(len(key)), np.zeros(len(key), np.bool_))
        return self._evaluate_probes(probes, late, [segment.as_new(final, key)])[0]

    def _evaluate_probes(
        self, probes: Probes, late: NDArray[np.bool_], segments: Sequence[VersionedRows]
    ) -> tuple[list[AlertChanges], Witnesses]:
        """Evaluate probes, and apply their evaluations to the alerts."""
        return self._apply_results(probes, late, self._join(probes, segments))

    def _join(self, probes: Probes, segments: Sequence[VersionedRows]) -> Joined:
        tuples, every = self._tuples(segments), self.rule.emit == "all"
        evaluations, matches, scores = evaluate_probes(tuples, probes, self.condition, len(self.watermark), every=every)
        return Joined(
            evaluations, matches, scores, WitnessLookup(self.value_offsets, tuples, segments, bases_of(segments))
        )

    def _apply_results(
        self, probes: Probes, late: NDArray[np.bool_], joined: Joined
    ) -> tuple[list[AlertChanges], Witnesses]:
        lookup, serial = joined.lookup, joined.lookup.tuples.serial
        if self.observer is not None:
            self.observer(probes, joined.evaluations, late, lookup)
        true = probes.row[joined.evaluations.truth == TRUE]
        self.result_serials = serial[joined.matches].max(axis=1) if self.rule.emit == "all" else serial[true]
        if self.rule.emit == "all":
            self.match_probabilities = self._match_probabilities(joined)
            return [], lookup.matches(joined.matches, joined.scores)
        time = lookup.tuples.time[probes.row]
        return self._update_alerts(joined.evaluations, time, probes.key, late, lookup), self.lifecycle.no_witnesses(0)

    def _match_probabilities(self, joined: Joined) -> Float | None:
        """Return the inclusion probability of each match if rows are sampled: the probability of its oldest arrival."""
        parts = [segment.probability for segment in joined.lookup.segments]
        if any(part is None for part in parts) or not len(joined.matches):
            return None
        probability = np.concatenate([part for part in parts if part is not None])
        first = joined.lookup.tuples.serial[joined.matches].argmin(axis=1)
        return np.asarray(probability[joined.matches[np.arange(len(first)), first]], np.float64)

    def _tuples(self, segments: Sequence[VersionedRows]) -> Tuples:
        """Return the rows of all streams of the rule in one sequence, with their slots."""
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
            np.concatenate(
                [_comparison_values(need, segment) for need, segment in zip(self.rule.needs, segments, strict=True)]
            ),
        )

    def _limits(self, counts: Int) -> dict[Key, Float]:
        """Return the limits of each row of the first stream. `counts` is the number of its rows by key."""
        stream = self.stores[0].stream
        return {limit_key(stream, i): np.repeat(numbers, counts) for i, numbers in enumerate(self.limits)}

    def _update_alerts(
        self, evaluations: Evaluations, time: Int, key: Int, late: NDArray[np.bool_], lookup: WitnessLookup
    ) -> list[AlertChanges]:
        return self.lifecycle.process(evaluations, (time, key), late, lookup, self.watermark)

    def advance(self, watermark: Int, idle_until: Int, *, with_late: bool) -> list[AlertChanges]:
        """Advance the watermark, apply buffered evaluations, and end alerts that are stale at `idle_until`."""
        self.watermark = np.maximum(self.watermark, watermark)
        return self.lifecycle.advance(self.watermark, idle_until, with_late=with_late)

    def is_waiting(self) -> NDArray[np.bool_]:
        """Mark the keys with buffered evaluations or with rows that are not final."""
        is_waiting: NDArray[np.bool_] = (self.newest[:, 0] > self.watermark) & (self.rule.lag_us > 0)
        is_waiting[self.lifecycle.waiting.key] = True
        return is_waiting

    def busy(self) -> NDArray[np.bool_]:
        """Mark the keys that are waiting or have an alert."""
        return self.is_waiting() | self.lifecycle.is_open()


def _comparison_values(need: Store, segment: VersionedRows) -> Float:
    """Return the comparison value of each row, or NaN if no proof covers the row."""
    numbers, apart = need.numbers(segment.values)
    return np.where(apart, np.nan, 0.0 if need.whole or len(numbers) > 1 else numbers[0])


def bases_of(segments: Sequence[VersionedRows]) -> Int:
    """Return the position of the first row of each stream in one sequence of all rows, and the number of rows."""
    return np.concatenate([[0], np.cumsum([len(segment.time) for segment in segments])])
