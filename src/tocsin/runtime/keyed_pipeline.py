"""Keyed pipeline: the executor of the rules with the same key columns, reorder wait and budget.

Algorithm: the keys are divided into shards of at most `KEYS_PER_SHARD` keys. A call converts the batches to a row
batch, assigns a key index to each key, sorts the rows by key and arrival, and passes each shard its rows.
One loop divides the rows of a call into slices: each adaptive part states how many rows may pass before its next
decision, the slice is processed, its results are fed back, and the decision is made.

Guarantees: batch boundaries do not change the result, because the positions of decisions depend on the rows alone.

Complexity: O(n log n + k) for the n rows of a call and the largest key index k, and the cost of the operators.

The caller is the session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol

import numpy as np

from tocsin.runtime.context import Context
from tocsin.runtime.contract import Adaptive, Batch, Int, Listener, Out
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.received_rows import PipelineInputs, StreamRows, count_received, read_streams, read_views
from tocsin.runtime.row_batch import ObservedRows, RowBatch, group_by_key, no_rows, sort_by_key
from tocsin.runtime.state_registry import Shard, ShardGroup, readable

KEYS_PER_SHARD = 32_768


class Operators(Protocol):
    """Operators of a keyed pipeline, and the flow of rows between them."""

    def attach(self, shard: Shard) -> None:
        """Add the sections of all operators to a shard, which adopt its stored sections."""

    def process(self, parts: Sequence[tuple[Shard, RowBatch]], context: Context) -> Sequence[Any]:
        """Process the rows of a slice by shard, sorted by key and arrival. Return results for the adaptive parts."""

    @property
    def needs_all_shards(self) -> bool:
        """Whether `process` needs the shards without rows, too."""

    def observe(self, shard: Shard, rows: ObservedRows, context: Context) -> None:
        """Process all rows with a time and a key, for operators that read no values."""

    def advance(self, shard: Shard, now_us: int, context: Context) -> Any:
        """Process the passage of processing time. Return results for the adaptive parts, or None."""

    def end(self, shard: Shard, context: Context) -> Any:
        """Process all buffered rows and waiting evaluations. Return results for the adaptive parts, or None."""

    def next_timer(self, shard: Shard) -> int | None:
        """Return the processing time of the next necessary call of `advance`, or None."""

    def count_copied_rows(self, shard: Shard, context: Context) -> None:
        """Count the rows of a shard that another pipeline continues to use, as if they had arrived here."""

    def check(self, shard: Shard) -> None:
        """Assert the invariants. Only tests call this method."""

    @property
    def observes_rows(self) -> bool:
        """Whether `observe` needs the rows."""


class KeyedPipeline:
    """Executor of the rules of one key set.

    Attributes
    ----------
        name, reads: Name of the pipeline, and its input views.
        operators, adaptive: Operators, and the parts that change their parameters between rows.
        group: Stored state of all shards.
        key_indexes: Key index of each key.
        open_shard: Number of the first shard that may have space for a new key.
    """

    def __init__(
        self,
        name: str,
        reads: PipelineInputs,
        operators: Operators,
        adaptive: Sequence[Adaptive],
        group: ShardGroup,
        listener: Listener | None = None,
    ) -> None:
        """Restore the pipeline from the shards of a group."""
        self.name, self.reads, self.operators = name, reads, operators
        self.adaptive, self.group, self.listener = adaptive, group, listener
        self.inputs: Mapping[tuple[int, str], Sequence[str]] = reads.columns_read
        for number, shard in enumerate(group.shards):
            with readable(f"{group.name}/{number}"):
                operators.attach(shard)
        self._index_keys()

    @property
    def shards(self) -> list[Shard]:
        """State of the keys."""
        return self.group.shards

    def _index_keys(self) -> None:
        """Assign each key its index: the number of its shard, then its position in the shard."""
        self.open_shard, self.key_indexes = 0, dict[tuple[str, ...], int]()
        for p, shard in enumerate(self.shards):
            self.key_indexes |= {key: p * KEYS_PER_SHARD + k for k, key in enumerate(shard.keys.names)}

    def context(self, out: Out, now_us: int | None = None) -> Context:
        """Return the context of a call."""
        return Context(self.name, self.reads.on, self.reads.views, out, now_us, listener=self.listener)

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Process the rows of one call."""
        context = self.context(out, now_us)
        self._decide_due(context)
        if not batches:
            self._report(context)
            self._index_changed_keys()
            return
        streams = read_streams(self.reads, batches, self._find_key_indexes)
        rows, arrival_order = read_views(self.reads, streams, with_unused=not self.adaptive)
        count_received(self.reads, streams, rows, batches, context)
        if self.operators.observes_rows:
            self._observe_rows(streams, batches, context)
        if self.reads.views:
            self._process_arrivals(rows, arrival_order, context)
        self._index_changed_keys()

    def _process_arrivals(self, rows: RowBatch, arrival_order: Int, context: Context) -> None:
        """Process the rows of a call in slices between the decisions of the adaptive parts."""
        if not self.adaptive:
            self._process(rows, arrival_order, context)
            return
        arrived, begin = rows.take(arrival_order), 0
        while True:
            counts = ((part.rows_before_decision(arrived, begin), part) for part in self.adaptive)
            due = [(count, part) for count, part in counts if count is not None]
            count, part = min(due, key=lambda pair: pair[0], default=(len(arrived) - begin, None))
            if part is not None and count == 0:
                part.decide(context)
                continue
            if begin == len(arrived):
                break
            self._process(arrived.take(slice(begin, begin + count)), np.arange(count), context)
            begin += count
        self._report(context)

    def _report(self, context: Context) -> None:
        """Report the metrics of a call."""
        for part in self.adaptive:
            part.report(context)

    def _decide_due(self, context: Context) -> bool:
        """Make the decisions that are due before the next row, and return whether there was one."""
        none, is_decided = no_rows(0), False
        for part in self.adaptive:
            while part.rows_before_decision(none, 0) == 0:
                part.decide(context)
                is_decided = True
        return is_decided

    def _index_changed_keys(self) -> None:
        """Assign the indexes again if keys were removed."""
        if sum(len(shard.keys) for shard in self.shards) != len(self.key_indexes):
            self._index_keys()

    def _process(self, rows: RowBatch, arrival_order: Int, context: Context) -> None:
        """Sort rows by key and arrival, pass them to the operators by shard, and feed the results back."""
        if not len(rows):
            return
        ordered, parts = sort_by_key(rows, arrival_order), []
        with_rows = np.unique(ordered.key // KEYS_PER_SHARD).tolist()
        for p in range(len(self.shards)) if self.operators.needs_all_shards else with_rows:
            first = p * KEYS_PER_SHARD
            begin, end = np.searchsorted(ordered.key, [first, first + KEYS_PER_SHARD]).tolist()
            part = ordered if end - begin == len(ordered) else ordered.take(slice(begin, end))
            parts.append((self.shards[p], part.with_keys(part.key - first)))
        self._feed_back(self.operators.process(parts, context), context)

    def _feed_back(self, results: Sequence[Any], context: Context) -> None:
        """Pass the results of all shards to the adaptive parts."""
        found = [result for result in results if result is not None]
        for part in self.adaptive if found else ():
            part.observe(found, context)

    def _find_key_indexes(self, batch: Batch) -> Int:
        """Return the key index of each key of a batch. A new key gets an index in the first shard with space."""
        keys = batch.keys
        indexes = np.fromiter(map(self.key_indexes.get, keys, repeat(-1)), np.int64, len(keys))
        unknown = np.flatnonzero(indexes < 0)
        if len(unknown):
            new = list(dict.fromkeys(keys[i] for i in unknown.tolist()))
            self.key_indexes.update(zip(new, self.add_keys(new), strict=True))
            indexes[unknown] = [self.key_indexes[keys[i]] for i in unknown.tolist()]
        return indexes

    def add_keys(self, keys: Sequence[tuple[str, ...]]) -> list[int]:
        """Add new keys to shards with space or to new shards, and return their key indexes."""
        indexes: list[int] = []
        while len(indexes) < len(keys):
            while self.open_shard < len(self.shards) and len(self.shards[self.open_shard].keys) >= KEYS_PER_SHARD:
                self.open_shard += 1
            if self.open_shard == len(self.shards):
                self.shards.append(Shard(self.group.width))
                self.operators.attach(self.shards[-1])
            shard, begin = self.shards[self.open_shard], len(self.shards[self.open_shard].keys)
            shard.add_keys(keys[len(indexes) : len(indexes) + KEYS_PER_SHARD - begin])
            first = self.open_shard * KEYS_PER_SHARD
            indexes += range(first + begin, first + len(shard.keys))
        return indexes

    def _observe_rows(self, streams: Mapping[str, StreamRows], batches: Sequence[Batch], context: Context) -> None:
        """Pass all rows to the operators that read no values. Count the rows of streams that no view reads."""
        for name in streams:
            if not self.reads.has_view(name):
                bad, time = sum(batch.quarantined for batch in batches if batch.stream == name), streams[name].time
                context.count(name, {RowOutcome.QUARANTINED: bad, RowOutcome.EXPIRED: len(time)})
                if len(time):
                    context.set_metric("newest_us", int(time.max()), name)
        key, time, arrival = (
            np.concatenate([getattr(rows, field) for rows in streams.values()]) for field in ("key", "time", "arrival")
        )
        order, _ = group_by_key(key, np.argsort(arrival, kind="stable"))
        stream = np.repeat(np.arange(len(streams)), [len(rows) for rows in streams.values()])[order]
        key, time = key[order], time[order]
        for p in np.unique(key // KEYS_PER_SHARD).tolist():
            span = slice(*np.searchsorted(key, [p * KEYS_PER_SHARD, (p + 1) * KEYS_PER_SHARD]))
            rows = ObservedRows(stream[span], key[span] - p * KEYS_PER_SHARD, time[span])
            self.operators.observe(self.shards[p], rows, context)

    def on_control(self, message: Any, out: Out) -> None:
        """Apply a decision of the coordinator."""
        for part in self.adaptive:
            part.apply_control(message, self.context(out))
        self._index_changed_keys()

    def on_end(self, out: Out) -> None:
        """Process all buffered rows and waiting evaluations, because the input has ended."""
        context = self.context(out)
        self._feed_back([self.operators.end(shard, context) for shard in self.shards], context)

    def on_time(self, now_us: int, out: Out) -> None:
        """Advance idle keys. The eviction of keys changes the indexes of other keys."""
        context = self.context(out, now_us)
        is_decided = self._decide_due(context)
        self._feed_back([self.operators.advance(shard, now_us, context) for shard in self.shards], context)
        if is_decided:
            self._report(context)
        self._index_changed_keys()

    def next_timer(self) -> int | None:
        """Return the earliest timer of the operators, or None."""
        timers = (self.operators.next_timer(shard) for shard in self.shards)
        return min((timer for timer in timers if timer is not None), default=None)

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the state pages that changed since the last call."""
        changed = self.group.changed_pages()
        for part in self.adaptive:
            name, page = part.state_page()
            if page is not None:
                changed[f"{self.group.name}/{name}"] = page
        return changed

    def count_copied_rows(self, out: Out) -> None:
        """Count the rows of a state that another pipeline continues to use, as if they had arrived here."""
        for shard in self.shards if self.group.is_copy else ():
            self.operators.count_copied_rows(shard, self.context(out))

    def check(self) -> None:
        """Assert the invariants. Only tests call this method."""
        for shard in self.shards:
            self.operators.check(shard)
