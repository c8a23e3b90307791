"""Join: evaluations of one rule.

Algorithm: each arriving row first advances the watermark of its key, and then is a probe. Four cases exist.

- Usually each arrival is evaluated (`threshold_join`).
- In a large batch with known shapes, only cells that can change an alert are evaluated (`infeasible_cells`).
- A reduced rule of one stream evaluates each retained row once, when it is final (`final_rows`).
- A rule with `emit: all` lists all true combinations.

The results pass to the lifecycle of the rule, or to its matches.

Guarantees: batch boundaries do not change evaluations, alerts or stored state.

Complexity: one step per row for the watermark, and the complexity of `threshold_join` per probe.

References: docs/explanation/semantics.md (D40 to D45).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tocsin.expr.syntax_tree import Key
from tocsin.hashing import stable_hash
from tocsin.jit import kernel
from tocsin.operators.join.batch_slice import BatchSlice
from tocsin.operators.join.compiled_rule import CompiledRule, limit_key
from tocsin.operators.join.corner_bounds import CornerBounds
from tocsin.operators.join.infeasible_cells import InfeasibleCells
from tocsin.operators.join.threshold_join import Evaluations, Probes, Tuples, evaluate_probes
from tocsin.operators.lifecycle.alert_state_machine import TRUE
from tocsin.operators.lifecycle.witness import WitnessLookup
from tocsin.operators.retention.final_rows import find_final_rows
from tocsin.plan.identity import Lane
from tocsin.plan.steps import Store, Threshold
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER_SEEN, Bools, EvaluatedRows, Float, Int
from tocsin.runtime.row_batch import RowBatch
from tocsin.runtime.state_registry import Column, Derived, OperatorState, SectionSpec, Shard, StateArray, StateSchema
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
def advance_watermarks(stream: Int, key: Int, time: Int, newest: Int, watermark: Int, idle_timeout: int) -> Bools:
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
    times: tuple[Int, Bools, Int, Int], newest: Int, watermark: Int, idle_timeout: int
) -> Bools:
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


class AlertActivity(NamedTuple):
    """Keys of a shard whose false evaluations the join must find.

    Attributes
    ----------
        is_open: Keys that have an alert.
        is_active: Keys with a state that a false evaluation can change.
    """

    is_open: Bools
    is_active: Bools


class JoinResults(NamedTuple):
    """Results of the probes of one rule in processing order.

    Attributes
    ----------
        probes: Evaluated rows.
        late: Probes that are out of order.
        evaluations: Best combination of each probe.
        matches, scores: All true combinations with margin and value, for `emit: all`.
        lookup: Lookup of the witnesses.
        watermark: Watermark of each key after the probes.
        result_serials: Serial number of the row that completed each result.
    """

    probes: Probes
    late: Bools
    evaluations: Evaluations
    matches: Int
    scores: Float
    lookup: WitnessLookup
    watermark: Int
    result_serials: Int


class JoinState(OperatorState):
    """Newest time by stream, watermark, and last processing time of each key; the limits by key and table."""

    newest, watermark, seen_us = StateArray("newest"), StateArray("progress"), StateArray("seen")

    @property
    def limits(self) -> Float:
        """Limits by table and key."""
        limits: Float = self.section.arrays["limits"].T
        return limits


class Join(CompiledRule):
    """Operator that evaluates one rule.

    Attributes
    ----------
        number: Number of the rule in the pipeline.
        stream_of: Stream of the rule by view, or -1. The last entry is for rows without a view.
        is_traced: Whether a listener receives all evaluations, also those that change nothing.
    """

    def __init__(
        self, number: int, rule: Threshold, stores: Sequence[Store], views: Sequence[Lane], *, is_traced: bool = False
    ) -> None:
        super().__init__(rule, stores)
        self.number, self.is_traced = number, is_traced
        own_views = [store.lane for store in self.stores]
        self.stream_of = np.array(
            [own_views.index(view) if view in own_views else -1 for view in views] + [-1], np.int64
        )
        self.corners = CornerBounds(rule)
        schema = join_schema(len(self.stores), self._limits_of)
        self.spec = SectionSpec(stable_hash(KIND, self.identity.to_json()), schema, owner=self.identity.id)
        self.sections = (self.spec,)

    def state(self, shard: Shard) -> JoinState:
        """Return the state in a shard."""
        return JoinState(shard.sections[self.spec.id])

    def _limits_of(self, keys: Sequence[tuple[str, ...]]) -> Float:
        """Return the limits by key and table."""
        limits = np.array([limit.of(keys) for limit in self.rule.limits], np.float64)
        return np.ascontiguousarray(limits.reshape(len(self.rule.limits), len(keys)).T)

    def mark_seen(self, shard: Shard, rows: RowBatch, now_us: int) -> None:
        """Store the processing time of the rows of this rule."""
        self.state(shard).seen_us[rows.key[self.stream_of[rows.view] >= 0]] = now_us

    def process(self, shard: Shard, arrived: BatchSlice, activity: AlertActivity, context: Context) -> JoinResults:
        """Join the arrivals. `activity` decides which evaluations can be skipped."""
        state = self.state(shard)
        segments = [arrived.segments[i] for i in self.rule.stores]
        if self.rule.lag_us:
            segment = segments[0]
            key = arrived.arrivals.key[arrived.positions(self.rule.stores[0])]
            rows = (segment.offsets, segment.time, segment.begin, segment.end)
            final, late = find_final_rows(
                (key, segment.probes), rows, state.newest[:, 0], state.watermark, self.rule.lag_us
            )
            results = self._evaluate_final_rows(state, final, late, segment)
            # The rows that will be evaluated are not known yet, so each new row counts as a result.
            results = results._replace(result_serials=segment.begin[segment.probes])
        else:
            in_order, late = self._advance_watermarks(state, arrived)
            if self.corners.known and len(late) >= MIN_ROWS_FOR_CELLS and not self.is_traced:
                results = self._evaluate_feasible_cells(state, arrived, (in_order, late), activity)
            else:
                # A rule of one stream evaluates every row. Other rules that share its input may omit rows.
                is_single = len(segments) == 1
                arrival = np.concatenate([arrived.arrival_of(i, with_skipped=is_single) for i in self.rule.stores])
                probes, at = self._probes_among(arrived, arrival, np.zeros(len(arrival), np.bool_))
                results = self._evaluate(state, probes, late[at], segments)
        self._trace(results, context)
        return results

    def finalize(self, shard: Shard, watermark: Int, segment: VersionedRows, context: Context) -> JoinResults:
        """Advance the watermark without rows, and evaluate the retained rows that become final."""
        state = self.state(shard)
        key = np.repeat(np.arange(len(state.watermark)), np.diff(segment.offsets))
        final = np.flatnonzero((segment.time > state.watermark[key]) & (segment.time <= watermark[key]))
        state.watermark = np.maximum(state.watermark, watermark)
        results = self._evaluate_final_rows(state, final, np.zeros(len(final), np.bool_), segment)
        self._trace(results, context)
        return results

    def advance(self, shard: Shard, watermark: Int) -> Int:
        """Advance the watermark of each key, and return it."""
        state = self.state(shard)
        state.watermark = np.maximum(state.watermark, watermark)
        return state.watermark

    def has_unfinal_rows(self, shard: Shard) -> Bools:
        """Mark the keys with rows that are not final."""
        state = self.state(shard)
        has_rows: Bools = (state.newest[:, 0] > state.watermark) & (self.rule.lag_us > 0)
        return has_rows

    def omitted_results(self, shard: Shard, arrived: BatchSlice) -> Int:
        """Return the serial numbers of the results of out-of-order rows that were omitted on arrival.

        They emit no alert. The recall estimate needs them. Without them, late rows would seem to have few results.
        """
        stores = self.rule.stores
        omitted = np.concatenate([self._omitted_arrivals(arrived, i) for i in stores])
        if len(stores) == 1 or not len(omitted):  # A rule of one stream evaluates every row.
            return np.zeros(0, np.int64)
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
        tuples = self._tuples(self.state(shard), segments)
        truth = evaluate_probes(tuples, probes, self.condition, arrived.keys, every=False)[0].truth
        serials: Int = tuples.serial[probes.row[truth == TRUE]]
        return serials

    def _omitted_arrivals(self, arrived: BatchSlice, store: int) -> Int:
        return arrived.positions(store)[arrived.segments[store].is_covered]

    def _probes_among(self, arrived: BatchSlice, arrival: Int, partner_only: Bools) -> tuple[Probes, Int]:
        """Return the rows that are arrivals as probes, in arrival order, and the arrival of each probe."""
        row = np.flatnonzero(arrival >= 0)
        row = row[np.argsort(arrival[row], kind="stable")]
        at = arrival[row]
        return Probes(self.stream_of[arrived.arrivals.view[at]], arrived.arrivals.key[at], row, partner_only[row]), at

    def _advance_watermarks(self, state: JoinState, arrived: BatchSlice) -> tuple[Bools, Bools]:
        """Advance watermarks. Mark the keys in time order and the late arrivals."""
        arrivals, views = arrived.arrivals, [arrived.views[i] for i in self.rule.stores]
        times = (np.array(views), arrived.in_order, arrived.first, arrived.newest)
        in_order = advance_watermarks_in_order(times, state.newest, state.watermark, self.rule.idle_timeout_us)
        late = np.zeros(len(arrivals.key), np.bool_)
        if not in_order.all():
            at = np.flatnonzero(~in_order[arrivals.key])
            mine = self.stream_of[arrivals.view[at]]
            late[at] = advance_watermarks(
                mine, arrivals.key[at], arrivals.time[at], state.newest, state.watermark, self.rule.idle_timeout_us
            )
        return in_order, late

    def _evaluate_feasible_cells(
        self, state: JoinState, arrived: BatchSlice, marks: tuple[Bools, Bools], activity: AlertActivity
    ) -> JoinResults:
        """Evaluate the rows that can change an alert. Retry with more rows if a skipped row can matter.

        `marks` are the keys in time order and the late arrivals.
        """
        in_order, late = marks
        limits = {limit.variable: numbers for limit, numbers in zip(self.rule.limits, state.limits, strict=True)}
        cells = InfeasibleCells(arrived, self.rule, self.corners, limits)
        in_order = in_order & (self.rule.recovery is None)
        is_active = np.where(in_order, activity.is_active, activity.is_open | activity.is_active)
        while True:
            candidates = cells.select_rows(in_order, is_active, state.watermark)
            probes, at = self._probes_among(arrived, candidates.arrival, candidates.partner_only)
            results = self._evaluate(state, probes, late[at], candidates.segments)
            retry = candidates.keys_to_retry(probes, results.evaluations, is_active)
            if not retry.any():
                return results
            in_order, is_active = in_order & ~retry, is_active | retry

    def _evaluate_final_rows(self, state: JoinState, final: Int, late: Bools, segment: VersionedRows) -> JoinResults:
        """Evaluate final rows, which are ordered by key."""
        key = np.searchsorted(segment.offsets, final, side="right") - 1
        probes = Probes(np.zeros(len(key), np.int64), key, np.arange(len(key)), np.zeros(len(key), np.bool_))
        return self._evaluate(state, probes, late, [segment.as_new(final, key)])

    def _evaluate(
        self, state: JoinState, probes: Probes, late: Bools, segments: Sequence[VersionedRows]
    ) -> JoinResults:
        """Evaluate probes against the rows of all streams."""
        tuples, is_all = self._tuples(state, segments), self.rule.emit == "all"
        evaluations, matches, scores = evaluate_probes(
            tuples, probes, self.condition, len(state.watermark), every=is_all
        )
        lookup = WitnessLookup(self.value_offsets, tuples, segments, bases_of(segments))
        serial = tuples.serial
        serials = serial[matches].max(axis=1) if is_all else serial[probes.row[evaluations.truth == TRUE]]
        return JoinResults(probes, late, evaluations, matches, scores, lookup, state.watermark, serials)

    def _trace(self, results: JoinResults, context: Context) -> None:
        """Report the evaluations of probes that completed a combination to the listener."""
        segments = results.lookup.segments
        positions = [segment.position for segment in segments if segment.position is not None]
        if context.listener is None or len(positions) < len(segments):
            return
        position, evaluations = np.concatenate(positions), results.evaluations
        at = np.flatnonzero(evaluations.found == 1)
        value, is_true = evaluations.value[at], evaluations.truth[at] == TRUE
        rows = EvaluatedRows(
            results.probes.stream[at],
            position[results.probes.row[at]],
            position[evaluations.witness[at]],
            evaluations.margin[at],
            value,
            is_true,
            ~is_true & self.rule.holds(value),
            results.late[at],
        )
        context.listener.on_evaluated(self.number, rows)

    def _tuples(self, state: JoinState, segments: Sequence[VersionedRows]) -> Tuples:
        """Return the rows of all streams of the rule in one sequence, with their slots."""
        bases = bases_of(segments)
        offsets = [segment.offsets[:-1] + base for segment, base in zip(segments, bases[:-1], strict=True)]
        slots = np.zeros((int(bases[-1]), max(1, int(np.diff(self.condition.slot_offsets).max()))))
        for i, segment in enumerate(segments):
            limits = self._limits(state, np.diff(segment.offsets)) if i == 0 else {}
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

    def _limits(self, state: JoinState, counts: Int) -> dict[Key, Float]:
        """Return the limits of each row of the first stream. `counts` is the number of its rows by key."""
        stream = self.stores[0].stream
        return {limit_key(stream, i): np.repeat(numbers, counts) for i, numbers in enumerate(state.limits)}


def _comparison_values(need: Store, segment: VersionedRows) -> Float:
    """Return the comparison value of each row, or NaN if no proof covers the row."""
    numbers, apart = need.numbers(segment.values)
    return np.where(apart, np.nan, 0.0 if need.whole or len(numbers) > 1 else numbers[0])


def bases_of(segments: Sequence[VersionedRows]) -> Int:
    """Return the position of the first row of each stream in one sequence of all rows, and the number of rows."""
    return np.concatenate([[0], np.cumsum([len(segment.time) for segment in segments])])
