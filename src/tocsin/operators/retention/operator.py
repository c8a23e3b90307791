"""Retention: the retained rows of one input, the only row store of the exact path.

Algorithm: `lay_out` orders the new rows of a batch and the retained rows by key. `find_ends` computes the serial number
at which each row leaves the state: when other rows cover it (bracketing, dominance) or when it is shed. All other rows
have the serial number `NEVER`. The join evaluates each probe against the rows that were retained at its serial number.
`retain` then stores the rows that never leave and that have not expired.

Guarantees: batch boundaries change no version of a row. The retained rows satisfy the theorem of
docs/explanation/reduction.md for the comparison of the input.

Complexity: O(n log n) for n retained and new rows of the keys of the batch, O(n) for rows in order.

References: Cai et al., PVLDB 14(6), section 4.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tocsin.hashing import row_fingerprints
from tocsin.jit import kernel
from tocsin.operators.retention.bracketing import CLOSED, HOPPING, SegmentRows, compute_departure_ranks, hopping_windows
from tocsin.operators.retention.dominance import compute_dominance_ranks
from tocsin.operators.retention.duplicate_rows import EqualTimes, find_repeats, mark_equal_times, mark_omitted_at_newest
from tocsin.operators.retention.shedding import BRACKETING, DOMINANCE, OMITTED, SHED, WHOLE
from tocsin.plan.steps import Store
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER, NEVER_SEEN, Bools, Float, Int
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.payload import with_payload_digests
from tocsin.runtime.row_batch import RowBatch, Texts, mark_out_of_order
from tocsin.runtime.state_registry import (
    Column,
    OperatorState,
    OptionalStateArray,
    Ragged,
    RetireContext,
    Section,
    SectionSpec,
    Shard,
    StateArray,
    StateSchema,
    StoredSection,
    Table,
)
from tocsin.runtime.versioned_rows import BEFORE, SampleThresholds, VersionedRows

# Bytes of a missing text on a state page.
NO_TEXT = len("null, ")
KIND = "retention"
_NO_PROBABILITIES = np.zeros(0)


@kernel
def lay_out(offsets: Int, key: Int) -> tuple[Int, Int, Int]:
    """Order the rows by key: the retained rows and then the new rows of each key.

    Return the offsets of the keys, the number of the row at each position (retained rows first), and the number of
    retained rows of each key.
    """
    keys = offsets.shape[0] - 1
    ends = np.zeros(keys + 1, np.int64)
    for k in key:
        ends[k + 1] += 1
    retained = np.empty(keys, np.int64)
    for k in range(keys):
        retained[k] = offsets[k + 1] - offsets[k]
        ends[k + 1] += ends[k] + retained[k]
    source = np.empty(ends[keys], np.int64)
    fill = ends[:-1].copy()
    for k in range(keys):
        for i in range(offsets[k], offsets[k + 1]):
            source[fill[k]] = i
            fill[k] += 1
    for i in range(key.shape[0]):
        source[fill[key[i]]] = offsets[keys] + i
        fill[key[i]] += 1
    return ends, source, retained


@kernel
def find_retained(offsets: Int, time: Int, end: Int, oldest: Int) -> tuple[Int, Int, Int]:
    """Find the rows that never leave the state and are not older than the oldest time of their key.

    Return their positions, the new offsets of the keys, and the number of expired rows.
    """
    keys = offsets.shape[0] - 1
    ends, retained = np.zeros(keys + 1, np.int64), np.empty(time.shape[0], np.int64)
    expired = np.zeros(1, np.int64)
    count = 0
    for k in range(keys):
        for i in range(offsets[k], offsets[k + 1]):
            if end[i] != NEVER:
                continue
            if time[i] < oldest[k]:
                expired[0] += 1
                continue
            retained[count] = i
            count += 1
        ends[k + 1] = count
    return retained[:count].copy(), ends, expired


def retention_schema(columns: int) -> StateSchema:
    """Return the schema of an input state with this number of value columns.

    The omitted rows have the key and fingerprint of each omitted row at the newest time of its key. An equal row is a
    duplicate. The position of a row in its stream is known while a trace is recorded.
    """
    values = tuple(Column(f"v{i}", np.float64, 0.0) for i in range(columns))
    optional = (
        Column("payload", object, None, is_optional=True),
        Column("chance", np.float64, 1.0, is_optional=True),
        Column("position", is_optional=True, is_transient=True),
    )
    return StateSchema(
        KIND,
        per_key=(Column("newest", default=NEVER_SEEN),),
        ragged=(Ragged("offsets", (Column("time"), *values, *optional)),),
        tables=(Table("omitted.key", (Column("omitted.mark"),)),),
    )


def retire_rows(section: StoredSection, context: RetireContext) -> None:
    """Count the rows of a removed input state as expired, under the name in its facts."""
    rows = len(section.arrays["time"])
    if rows:
        context.out.metrics.count_rows(section.facts, {RowOutcome.RETAINED: -rows, RowOutcome.EXPIRED: rows})


def text_bytes(texts: Texts) -> Int:
    """Return the bytes of each text on a page, with its delimiter."""
    return np.fromiter((len(json.dumps(text)) + 2 for text in texts.tolist()), np.int64, len(texts))


class RetentionState(OperatorState):
    """Retained rows of one input in a shard.

    Attributes
    ----------
        store: Planned input: stream, columns, windows and comparison.
        offsets: Position of the first row of each key. The last entry is the number of rows.
        newest: Newest event time of each key.
        time, values, payload: Columns of the retained rows.
        stored_probability: Sampling probability of each row, or empty if results are not sampled.
        position: Position of each row in its stream while a trace is recorded, or None.
        omitted_key, omitted_mark: Key index and fingerprint of each omitted row at the newest time of its key.
    """

    offsets, newest, time = StateArray("offsets"), StateArray("newest"), StateArray("time")
    payload, position = OptionalStateArray("payload"), OptionalStateArray("position")
    omitted_key, omitted_mark = StateArray("omitted.key"), StateArray("omitted.mark")

    def __init__(self, section: Section, store: Store) -> None:
        super().__init__(section)
        self.store = store

    @property
    def values(self) -> tuple[Float, ...]:
        """Value columns of the retained rows."""
        return tuple(self.section.arrays[f"v{i}"] for i in range(len(self.store.columns)))

    @values.setter
    def values(self, columns: Iterable[Float]) -> None:
        self.section.arrays |= {f"v{i}": column for i, column in enumerate(columns)}

    @property
    def stored_probability(self) -> Float:
        """Sampling probability of each row, or an empty array if results are not sampled."""
        return self.section.arrays.get("chance", _NO_PROBABILITIES)

    @stored_probability.setter
    def stored_probability(self, probability: Float) -> None:
        if len(probability):
            self.section.arrays["chance"] = probability
        else:
            self.section.arrays.pop("chance", None)

    def drop_fingerprints(self) -> int:
        """Remove the fingerprints of omitted rows, and return their size in bytes."""
        size = self.omitted_key.nbytes + self.omitted_mark.nbytes
        self.omitted_key, self.omitted_mark = np.zeros(0, np.int64), np.zeros(0, np.int64)
        return size

    @property
    def probabilities(self) -> Float:
        """Sampling probability of each row: 1 if results are not sampled."""
        return self.stored_probability if len(self.stored_probability) else np.ones(len(self.time))

    @property
    def key(self) -> Int:
        """Key index of each row."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def row_bytes(self) -> Int:
        """Return the size of each row in bytes: its columns, and its text with delimiters."""
        return self._text_bytes() + 8 * (1 + len(self.values) + bool(len(self.stored_probability)))

    @property
    def longest_text_bytes(self) -> int:
        """Size in bytes of the longest text with delimiters. Without texts, the size of a missing text."""
        return int(self._text_bytes().max(initial=NO_TEXT))

    def _text_bytes(self) -> Int:
        if self.payload is None:
            return np.full(len(self.time), NO_TEXT)
        return text_bytes(self.payload)


@dataclass(frozen=True, slots=True)
class SliceLayout:
    """Rows of one input in one shard during a slice: by key, the retained rows by time and then the new rows.

    Attributes
    ----------
        rows: New rows by key and arrival.
        offsets, known: First row of each key, and number of its retained rows.
        source: Number of each row: the retained rows first, then the new rows.
        time, begin, values: Columns of the rows. Begin is the serial number of a new row.
        texts: Function from row numbers to texts, or None if no row has a payload.
        tag: Fingerprint of each row of an unreduced input.
    """

    rows: RowBatch
    offsets: Int
    source: Int
    known: Int
    time: Int
    begin: Int
    values: tuple[Float, ...]
    texts: Callable[[Int], Texts] | None
    tag: Int

    @property
    def key(self) -> Int:
        """Key index of each row."""
        return np.repeat(np.arange(len(self.known)), np.diff(self.offsets))


@dataclass(frozen=True, slots=True)
class ShedOutcomes:
    """Rows of a layout that left the state because memory was short.

    Attributes
    ----------
        state: State of each row after the slice, as `shedding` defines it.
        is_refused: New rows that must not be evaluated.
        is_repeat: New rows that equal a row that a sample rejected, or None if rows are not sampled.
        thresholds: Thresholds of the sample with the size of each row, or None if rows are not sampled.
    """

    state: Int
    is_refused: Bools
    is_repeat: Bools | None = None
    thresholds: SampleThresholds | None = None


class Retention:
    """Operator that retains the rows of one input.

    Attributes
    ----------
        number, store, name: Number of the input in the pipeline, planned input, and counter name.
        spec: Section of the input. Its facts are the counter name.
    """

    def __init__(self, number: int, store: Store, name: str = "") -> None:
        self.number, self.store, self.name = number, store, name
        self.spec = SectionSpec(store.id, retention_schema(len(store.columns)), name)
        self.sections = (self.spec,)

    def state(self, shard: Shard) -> RetentionState:
        """Return the retained rows in a shard."""
        return RetentionState(shard.sections[self.spec.id], self.store)

    def process(self, shard: Shard, rows: RowBatch, context: Context) -> VersionedRows:
        """Merge the new rows of the view with the retained rows, and compute when each row leaves the state."""
        layout = self.lay_out(shard, rows)
        order, end = self.find_ends(layout)
        return self.merge(shard, layout, (order, end), context)

    def lay_out(self, shard: Shard, rows: RowBatch) -> SliceLayout:
        """Order the retained and the new rows by key."""
        state = self.state(shard)
        offsets, source, known = lay_out(state.offsets, rows.key)
        time = np.concatenate([state.time, rows.time])[source]
        begin = np.concatenate([np.full(len(state.time), BEFORE), rows.serial])[source]
        values = tuple(np.concatenate([old, rows.values_of(column)])[source] for column, old in enumerate(state.values))
        texts = partial(_texts, state, rows) if rows.has_payload or state.payload is not None else None
        tag = np.zeros(len(source), np.int64)
        if self.store.whole and self.store.remember:
            tag = self._row_tags((np.concatenate([state.key, rows.key])[source], time), values, source, texts)
        return SliceLayout(rows, offsets, source, known, time, begin, values, texts, tag)

    def merge(
        self,
        shard: Shard,
        layout: SliceLayout,
        ends: tuple[Int, Int],
        context: Context,
        shed: ShedOutcomes | None = None,
    ) -> VersionedRows:
        """Return the rows of a layout as versions.

        `ends` are the order of the rows by key and time, and the serial number at which each row leaves the state.
        `shed` marks the rows that left because memory was short.
        """
        state = self.state(shard)
        merged = self._merge(state, layout, ends, shed)
        rows, outside = layout.rows, 0
        if self.store.domains:
            outside = int(self.store.outside([rows.values_of(i) for i in range(len(self.store.columns))]).sum())
        context.set_metric("out_of_domain", outside, self.name)
        if context.listener is not None:
            new = rows.cells.position[rows.cell]
            before = np.zeros(0, np.int64) if state.position is None else state.position
            merged = replace(merged, position=np.concatenate([before, new])[merged.source])
            context.listener.on_entered(self.number, new, rows.serial, merged.is_skipped, merged.is_repeat)
        return merged

    def evict(self, shard: Shard, keys: Bools, context: Context) -> None:
        """Count the rows of keys that will be removed from the shard as expired."""
        rows = int(np.diff(self.state(shard).offsets)[keys].sum())
        context.count(self.name, {RowOutcome.EXPIRED: rows, RowOutcome.RETAINED: -rows})
        context.set_metric("freed_keys", int(keys.sum()), self.name)

    def _merge(
        self, state: RetentionState, layout: SliceLayout, ends: tuple[Int, Int], shed: ShedOutcomes | None
    ) -> VersionedRows:
        (order, end), source, rows = ends, layout.source, layout.rows
        position = np.empty(len(source), np.int64)
        position[source[order]] = np.arange(len(source))
        probes = position[len(state.time) :]
        time, begin, end = layout.time[order], layout.begin[order], end[order]
        values = tuple(value[order] for value in layout.values)
        newest = state.newest.copy()
        is_behind = mark_out_of_order(rows.key, rows.time, state.newest)
        is_omitted = end[probes] == begin[probes]
        nothing = np.zeros(len(probes), np.bool_)
        merged = VersionedRows(
            layout.offsets, time, begin, end, values, source[order], layout.texts, probes, nothing, nothing
        )
        if len(state.stored_probability) or (shed is not None and shed.thresholds is not None):
            probability = np.concatenate([state.probabilities, np.ones(len(rows))])[source[order]]
            merged = replace(merged, probability=probability)
        is_refused = nothing
        if shed is not None:
            is_refused, is_omitted = shed.is_refused, is_omitted & (shed.state[order][probes] == OMITTED)
            merged = _with_shed_rows(state, merged, shed, order)
        is_repeat = is_omitted
        if not self.store.whole:
            is_repeat = self._find_repeats(state, merged, (rows.key, is_omitted, is_behind), newest)
        if shed is not None and shed.is_repeat is not None:
            is_repeat = is_repeat | shed.is_repeat
        is_covered = is_omitted & is_behind & ~is_repeat
        merged = replace(merged, is_repeat=is_repeat, is_covered=is_covered | is_refused)
        is_current = state.newest[state.omitted_key] == newest[state.omitted_key]
        state.omitted_key, state.omitted_mark = state.omitted_key[is_current], state.omitted_mark[is_current]
        return merged

    def _find_repeats(
        self, state: RetentionState, merged: VersionedRows, new_rows: tuple[Int, Bools, Bools], newest: Int
    ) -> Bools:
        """Mark the new rows of a reduced input that equal an earlier row.

        `new_rows` has the key of each new row, and marks the omitted and the out-of-order rows. `newest` has the newest
        time of each key before this call.
        """
        key, is_omitted, is_behind = new_rows
        if not is_omitted.any():
            return is_omitted
        probes, behind = merged.probes, np.zeros(len(merged), np.bool_)
        behind[probes] = is_behind
        at = np.flatnonzero(mark_equal_times(merged.offsets, merged.time, key[is_omitted], probes[is_omitted]))
        rows = EqualTimes(
            np.searchsorted(merged.offsets, at, side="right") - 1,
            merged.time[at],
            self._fingerprints(merged, at),
            merged.begin[at],
            merged.end[at],
            behind[at],
        )
        found = np.zeros(len(merged), np.bool_)
        found[at] = find_repeats(rows, state.omitted_key, newest[state.omitted_key], state.omitted_mark)
        return found[probes]

    def find_ends(self, layout: SliceLayout) -> tuple[Int, Int]:
        """Order the rows of each key by time, and compute the serial number at which each row leaves the state."""
        if not self.store.remember:
            return np.arange(len(layout.time)), np.full(len(layout.time), NEVER)
        bounds, (rows, values, reduction) = (layout.offsets, layout.known), self.segment_rows(layout)
        order, end = np.empty(len(layout.time), np.int64), np.empty(len(layout.time), np.int64)
        lengths, kind = self.window_lengths
        if reduction == DOMINANCE:
            compute_dominance_ranks(bounds, rows, values, (int(lengths.max()), kind), order, end)
            return order, end
        by_segment = np.repeat(lengths[:, None], len(layout.known), axis=1)
        compute_departure_ranks(bounds, rows, (by_segment, kind), order, end)
        return order, end

    @property
    def window_lengths(self) -> tuple[Int, int]:
        """Window length of the sides above and below, negative for a side that is not needed, and the kind."""
        lengths = np.array([self.store.above_us, self.store.below_us])
        if not self.store.hop_us:
            return lengths, CLOSED
        return (lengths if self.has_several_values else np.minimum(lengths, 0)), HOPPING

    @property
    def has_several_values(self) -> bool:
        """Whether the comparison is by several values."""
        return not self.store.whole and len(self.store.by) > 1

    def segment_rows(self, layout: SliceLayout) -> tuple[SegmentRows, Float, int]:
        """Return the columns that the reduction reads, all comparison values, and the kind of the reduction."""
        store, time = self.store, layout.time
        reach = max(store.above_us, store.below_us)
        enter, leave = hopping_windows(time, reach, store.hop_us, store.closed) if store.hop_us else (time, time)
        numbers, is_fixed = store.compared(layout.values)
        rows = SegmentRows(time, numbers[0], enter, leave, is_fixed, layout.tag, layout.begin)
        several = len(numbers) > 1 and not store.whole
        reduction = WHOLE if store.whole else DOMINANCE if several else BRACKETING
        return rows, np.array(numbers), reduction

    def _row_tags(
        self, place: tuple[Int, Int], values: tuple[Float, ...], source: Int, texts: Callable[[Int], Texts] | None
    ) -> Int:
        """Return one number per row of an unreduced input: equal for equal rows of one key and time (`place`).

        The payload is read only if key, time and values are equal.
        """
        tag = row_fingerprints(values, len(source))
        if texts is None:
            return tag
        order = np.lexsort((tag, *place))
        is_same = np.logical_and.reduce([np.diff(column[order]) == 0 for column in (tag, *place)])
        is_equal = np.zeros(len(tag), np.bool_)
        is_equal[order[1:][is_same]] = is_equal[order[:-1][is_same]] = True
        tag[is_equal] = with_payload_digests(tag[is_equal], texts(source[is_equal]), self.store.columns)
        return tag

    def _fingerprints(self, merged: VersionedRows, at: Int) -> Int:
        """Return one number per row: equal for rows of equal values and payload, in any process."""
        texts = None if merged.payload is None else merged.texts(at)
        fingerprints = row_fingerprints([value[at] for value in merged.values], len(at))
        return with_payload_digests(fingerprints, texts, self.store.columns)

    def retain(self, shard: Shard, merged: VersionedRows, oldest: Int, context: Context) -> None:
        """Store the rows that remain, and count the changes of row outcomes.

        `oldest` is the oldest useful time of each key.
        """
        state = self.state(shard)
        new, before = len(merged.probes), len(state.time)
        if not self.store.remember:
            context.count(self.name, {RowOutcome.EXPIRED: new})
            return
        at, offsets, expired = find_retained(merged.offsets, merged.time, merged.end, oldest)
        if not self.store.whole:
            self._store_fingerprints(state, merged, oldest)
        if merged.payload is not None:
            state.payload = merged.texts(at)
        state.offsets, state.time = offsets, merged.time[at]
        state.values = tuple(value[at] for value in merged.values)
        if merged.probability is not None:
            probability = merged.probability[at]
            if merged.thresholds is not None:
                probability = np.minimum(probability, merged.thresholds.after * merged.thresholds.size[at])
            state.stored_probability = probability if (probability < 1).any() else np.zeros(0)
        if context.listener is not None and merged.position is not None:
            state.position = merged.position[at]
            context.listener.on_reduced(self.number, merged.position, merged.end, state.position)
        gained, repeats = len(at) - before, int(merged.is_repeat.sum())
        omitted = new - gained - int(expired[0]) - merged.shed - repeats
        outcomes = {
            RowOutcome.RETAINED: gained,
            RowOutcome.EXPIRED: int(expired[0]),
            RowOutcome.OMITTED: omitted,
            RowOutcome.SHED: merged.shed,
            RowOutcome.DUPLICATE: repeats,
        }
        context.count(self.name, outcomes)

    def _store_fingerprints(self, state: RetentionState, merged: VersionedRows, oldest: Int) -> None:
        """Store the fingerprints of the omitted rows at a newest time that new rows can still have."""
        is_omitted = mark_omitted_at_newest(merged.offsets, merged.time, merged.end, state.newest)
        is_omitted[merged.probes[merged.is_repeat]] = False
        at = np.flatnonzero(is_omitted)
        key = np.searchsorted(merged.offsets, at, side="right") - 1
        key = np.concatenate([state.omitted_key, key])
        mark = np.concatenate([state.omitted_mark, self._fingerprints(merged, at)])
        stay = state.newest[key] >= oldest[key]
        state.omitted_key, state.omitted_mark = key[stay], mark[stay]


def _with_shed_rows(state: RetentionState, merged: VersionedRows, shed: ShedOutcomes, order: Int) -> VersionedRows:
    """Count the shed rows, and set the inclusion probabilities of a sample."""
    is_shed = shed.state[order] == SHED
    if shed.is_repeat is not None:
        is_shed[merged.probes[shed.is_repeat]] = False
    merged = replace(merged, shed=int(is_shed.sum()))
    if shed.thresholds is None:
        return merged
    return replace(merged, thresholds=replace(shed.thresholds, size=shed.thresholds.size[order]))


def _texts(state: RetentionState, rows: RowBatch, source: Int) -> Texts:
    """Return the payload of rows by number: the retained rows first, then the new rows."""
    texts = np.full(len(source), None, dtype=object)
    is_retained = source < len(state.time)
    if state.payload is not None:
        texts[is_retained] = state.payload[source[is_retained]]
    texts[~is_retained] = rows.texts(source[~is_retained] - len(state.time))
    return texts
