"""Keyed pipeline: execution of all rules with the same key columns.

Algorithm: the keys are divided into shards of at most `KEYS_PER_PAGE` keys. Each shard has an operator chain. A call
converts the batches to a row batch, assigns a key index to each key, sorts the rows by key and arrival, and passes the
rows of each shard to its chain. With an adaptive reorder wait, the controller can choose a new wait between two slices
of the call.

Guarantees: batch boundaries do not change the result.

Complexity: O(n log n + k) for the n rows of a call and the largest key index k, and the cost of the operators.

The caller is the session. `interim/memory/budgeted_pipeline.py` extends this class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

import numpy as np

from tocsin.interim.memory.memory_rebalancing import Share
from tocsin.interim.reorder.wait_agreement import Control
from tocsin.interim.reorder.wait_controller import Pace, together
from tocsin.operators.no_data import ObservedRows
from tocsin.plan.operator_chain import KEYS_PER_PAGE, OperatorChain
from tocsin.plan.received_rows import StreamRows, count_received, inputs_of, read_streams, read_views
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Batch, Int, Listener, Out
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.row_batch import RowBatch, group_by_key, sort_by_key
from tocsin.runtime.state_codec import pack, unpack
from tocsin.runtime.state_registry import Shard, ShardGroup, readable

# Sections of a shard group without keys: state of the reorder wait and of the memory budget.
PACE, MEMORY = PARTS = ("pace", "memory")


class KeyedPipeline:
    """Pipeline of all rules with the same key columns.

    Attributes
    ----------
        number, watch: Number of the key set, and the planned rules.
        group: Stored state of all shards.
        chains: Operator chain of each shard.
        wait_controller: Controller of the adaptive reorder wait, or None.
        key_indexes: Key index of each key.
        open_chain: Number of the first chain that may have space for a new key.
    """

    def __init__(self, number: int, watch: Watch, group: ShardGroup, listener: Listener | None = None) -> None:
        """Restore the pipeline from the shards of a group."""
        self.number, self.watch, self.group, self.listener = number, watch, group, listener
        self.inputs = inputs_of(number, watch)
        self.chains = []
        for shard_number, shard in enumerate(group.shards):
            with readable(f"{group.name}/{shard_number}"):
                self.chains.append(OperatorChain(watch, shard))
        self.wait_controller = None if watch.order is None else Pace(watch.order)
        stored = group.parts.pop(PACE, None) if self.wait_controller is not None else None
        if self.wait_controller is not None and stored is not None:
            with readable(f"{group.name}/{PACE}"):
                self.wait_controller.load(unpack(stored)[0])
            self.wait_controller.dirty = group.is_copy and self.wait_controller.order.adapts
        self._index_keys()

    def _index_keys(self) -> None:
        """Assign each key its index: the number of its chain, then its position in the chain."""
        self.open_chain, self.key_indexes = 0, dict[tuple[str, ...], int]()
        for p, chain in enumerate(self.chains):
            self.key_indexes |= {key: p * KEYS_PER_PAGE + k for k, key in enumerate(chain.keys)}

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Process the rows of one call."""
        if not batches:
            return
        streams = read_streams(self.watch, batches, self._find_key_indexes)
        rows, arrival_order = read_views(self.watch, streams, with_unused=self.wait_controller is None)
        count_received(self.watch, streams, rows, batches, out)
        if self.watch.silences:
            self._observe_rows(streams, batches, now_us, out)
        if self.watch.lanes:
            self._process_arrivals(rows, arrival_order, now_us, out)

    def _process_arrivals(self, rows: RowBatch, arrival_order: Int, now_us: int | None, out: Out) -> None:
        """Process the rows of a call. With an adaptive wait, process slices and choose the wait between them."""
        if self.wait_controller is None:
            self._process(rows, arrival_order, now_us, out)
            return
        arrived = rows.take(arrival_order)
        begin, decisions = 0, self.wait_controller.cuts(arrived.time)
        for decision in decisions:
            self._process_slice(arrived.take(slice(begin, decision.rows)), now_us, out)
            self.wait_controller.adapt(decision)
            begin = decision.rows
            if self.wait_controller.order.shared and decision == decisions[-1]:
                out.reports.append({"watch": self.watch.name, **self.wait_controller.tell(decision.time_us)})
        self._process_slice(arrived.take(slice(begin, len(arrived))), now_us, out)
        for rule in self.watch.rules:
            out.metrics.record("wait_us", self.wait_controller.wait.wait_us, rule.alert)
            out.metrics.record("wait_recall", self.wait_controller.recall, rule.alert)

    def _process_slice(self, rows: RowBatch, now_us: int | None, out: Out) -> None:
        """Process rows in order of arrival, and pass the delay statistics to the wait controller."""
        self._process(rows, np.arange(len(rows)), now_us, out)
        self._observe_delays(out)

    def _observe_delays(self, out: Out) -> None:
        """Pass the delay statistics of all chains to the wait controller, and record the results by period."""
        statistics = [each for chain in self.chains for each in chain.delay_statistics]
        for chain in self.chains:
            chain.delay_statistics = []
        if self.wait_controller is not None and statistics:
            merged = together(statistics)
            self.wait_controller.learn(merged)
            periods = self.wait_controller.found(merged)
            for rule in self.watch.rules:
                for start_us, in_order, results in periods:
                    out.metrics.record("results_in_order", in_order, rule.alert, str(start_us))
                    out.metrics.record("results", results, rule.alert, str(start_us))

    def _process(self, rows: RowBatch, arrival_order: Int, now_us: int | None, out: Out) -> None:
        """Sort rows by key and arrival, and pass them to the chains of their keys."""
        if not len(rows):
            return
        ordered = sort_by_key(rows, arrival_order)
        for p in np.unique(ordered.key // KEYS_PER_PAGE).tolist():
            first = p * KEYS_PER_PAGE
            begin, end = np.searchsorted(ordered.key, [first, first + KEYS_PER_PAGE]).tolist()
            part = ordered if end - begin == len(ordered) else ordered.take(slice(begin, end))
            self.chains[p].on_rows(part.with_keys(part.key - first), now_us, out, self.wait_controller)

    def _find_key_indexes(self, batch: Batch) -> Int:
        """Return the key index of each key of a batch. A new key gets an index in the first chain with space."""
        keys = batch.keys
        indexes = np.fromiter(map(self.key_indexes.get, keys, repeat(-1)), np.int64, len(keys))
        unknown = np.flatnonzero(indexes < 0)
        if len(unknown):
            new = list(dict.fromkeys(keys[i] for i in unknown.tolist()))
            self.key_indexes.update(zip(new, self._add_keys(new), strict=True))
            indexes[unknown] = [self.key_indexes[keys[i]] for i in unknown.tolist()]
        return indexes

    def _add_keys(self, keys: Sequence[tuple[str, ...]]) -> list[int]:
        """Add new keys to chains with space or to new chains, and return their key indexes."""
        indexes: list[int] = []
        while len(indexes) < len(keys):
            while self.open_chain < len(self.chains) and len(self.chains[self.open_chain].keys) >= KEYS_PER_PAGE:
                self.open_chain += 1
            if self.open_chain == len(self.chains):
                self.group.shards.append(Shard(self.group.width))
                self.chains.append(OperatorChain(self.watch, self.group.shards[-1]))
                if self.listener is not None:
                    self.chains[-1].trace(self.listener)
            chain, begin = self.chains[self.open_chain], len(self.chains[self.open_chain].keys)
            chain.shard.add_keys(keys[len(indexes) : len(indexes) + KEYS_PER_PAGE - begin])
            first = self.open_chain * KEYS_PER_PAGE
            indexes += range(first + begin, first + len(chain.keys))
        return indexes

    def _observe_rows(
        self, streams: Mapping[str, StreamRows], batches: Sequence[Batch], now_us: int | None, out: Out
    ) -> None:
        """Pass all rows to the no-data rules of their chains. Count the rows of streams that no other rule reads."""
        for name in filter(self.watch.is_only_heard, streams):
            bad, time = sum(batch.quarantined for batch in batches if batch.stream == name), streams[name].time
            out.metrics.count_rows(name, {RowOutcome.QUARANTINED: bad, RowOutcome.EXPIRED: len(time)})
            if len(time):
                out.metrics.record("newest_us", int(time.max()), name)
        key, time, arrival = (
            np.concatenate([getattr(rows, field) for rows in streams.values()]) for field in ("key", "time", "arrival")
        )
        order, _ = group_by_key(key, np.argsort(arrival, kind="stable"))
        stream = np.repeat(np.arange(len(streams)), [len(rows) for rows in streams.values()])[order]
        key, time = key[order], time[order]
        for p in np.unique(key // KEYS_PER_PAGE).tolist():
            span = slice(*np.searchsorted(key, [p * KEYS_PER_PAGE, (p + 1) * KEYS_PER_PAGE]))
            self.chains[p].observe_rows(
                ObservedRows(stream[span], key[span] - p * KEYS_PER_PAGE, time[span]), now_us, out
            )

    def on_control(self, message: Control | Share, out: Out) -> None:
        """Apply a reorder wait that all buckets of this pipeline share."""
        if isinstance(message, Control) and message.watch == self.watch.name:
            if self.wait_controller is not None and self.wait_controller.order.shared:
                self.wait_controller.agree(message.wait_us, message.from_us)

    def on_end(self, out: Out) -> None:
        """Process all buffered rows and waiting evaluations, because the input has ended."""
        for chain in self.chains:
            chain.on_end(out)
        self._observe_delays(out)

    def on_time(self, now_us: int, out: Out) -> None:
        """Advance idle keys. The eviction of keys changes the indexes of other keys."""
        for chain in self.chains:
            chain.on_time(now_us, out)
        self._observe_delays(out)
        if sum(len(chain.keys) for chain in self.chains) != len(self.key_indexes):
            self._index_keys()

    def next_timer(self) -> int | None:
        """Return the earliest timer of the chains, or None."""
        timers = (chain.next_timer() for chain in self.chains)
        return min((timer for timer in timers if timer is not None), default=None)

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the state pages that changed since the last call."""
        changed = self.group.changed_pages()
        if self.wait_controller is not None and self.wait_controller.dirty:
            changed[f"{self.group.name}/{PACE}"] = pack(self.wait_controller.arrays())
            self.wait_controller.dirty = False
        return changed
