"""The logic of a watch: rows are led to the page of their key, page by page through reduce, join, evaluate, alert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

import numpy as np

from tocsin.interim.memory.memory_rebalancing import Share
from tocsin.interim.reorder.wait_agreement import Control
from tocsin.interim.reorder.wait_controller import Pace, together
from tocsin.operators.no_data import ObservedRows
from tocsin.plan.operator_chain import KEYS_PER_PAGE, Page
from tocsin.plan.received_rows import StreamRows, count_received, inputs_of, read_streams, read_views
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Batch, Int, Listener, Out
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.row_batch import RowBatch, group_by_key, sort_by_key
from tocsin.runtime.state_codec import pack, unpack
from tocsin.runtime.state_registry import Shard, ShardGroup, readable

# The pages of a shard group that have no keys: how long its rows wait, and what they are worth.
PACE, MEMORY = PARTS = ("pace", "memory")


class KeyedPipeline:
    """All pages of one key set."""

    def __init__(self, number: int, watch: Watch, group: ShardGroup, listener: Listener | None = None) -> None:
        """Continue with the shards of a group."""
        self.number, self.watch, self.group, self.listener = number, watch, group, listener
        self.inputs = inputs_of(number, watch)
        self.pages = []
        for shard_number, shard in enumerate(group.shards):
            with readable(f"{group.name}/{shard_number}"):
                self.pages.append(Page(watch, shard))
        self.pace = None if watch.order is None else Pace(watch.order)
        stored = group.parts.pop(PACE, None) if self.pace is not None else None
        if self.pace is not None and stored is not None:
            with readable(f"{group.name}/{PACE}"):
                self.pace.load(unpack(stored)[0])
            self.pace.dirty = group.is_copy and self.pace.order.adapts
        self._find_places()

    def _find_places(self) -> None:
        """Number the keys by the pages they are on; new ones fill the first page that has room."""
        self.open, self.place = 0, dict[tuple[str, ...], int]()
        for p, page in enumerate(self.pages):
            self.place |= {key: p * KEYS_PER_PAGE + k for k, key in enumerate(page.keys)}

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Process the rows of one call."""
        if not batches:
            return
        streams = read_streams(self.watch, batches, self._find_key_indexes)
        rows, arrival_order = read_views(self.watch, streams, with_unused=self.pace is None)
        count_received(self.watch, streams, rows, batches, out)
        if self.watch.silences:
            self._observe(streams, batches, now_us, out)
        if self.watch.lanes:
            self._process_arrivals(rows, arrival_order, now_us, out)

    def _process_arrivals(self, rows: RowBatch, arrival_order: Int, now_us: int | None, out: Out) -> None:
        """Process the rows of a call. With an adaptive wait, process slices and choose the wait between them."""
        if self.pace is None:
            self._process(rows, arrival_order, now_us, out)
            return
        arrived = rows.take(arrival_order)
        begin, cuts = 0, self.pace.cuts(arrived.time)
        for cut in cuts:
            self._process_slice(arrived.take(slice(begin, cut.rows)), now_us, out)
            self.pace.adapt(cut)
            begin = cut.rows
            if self.pace.order.shared and cut == cuts[-1]:
                out.reports.append({"watch": self.watch.name, **self.pace.tell(cut.time_us)})
        self._process_slice(arrived.take(slice(begin, len(arrived))), now_us, out)
        for rule in self.watch.rules:
            out.metrics.record("wait_us", self.pace.wait.wait_us, rule.alert)
            out.metrics.record("wait_recall", self.pace.recall, rule.alert)

    def _process_slice(self, rows: RowBatch, now_us: int | None, out: Out) -> None:
        """Process rows in order of arrival, and feed the results back to the wait."""
        self._process(rows, np.arange(len(rows)), now_us, out)
        self._learn(out)

    def _learn(self, out: Out) -> None:
        """Tell the wait what came, in order of arrival, and what was taken; count what that gave."""
        learnt = [one for page in self.pages for one in page.learnt]
        for page in self.pages:
            page.learnt = []
        if self.pace is not None and learnt:
            whole = together(learnt)
            self.pace.learn(whole)
            periods = self.pace.found(whole)
            for rule in self.watch.rules:
                for start_us, in_order, results in periods:
                    out.metrics.record("results_in_order", in_order, rule.alert, str(start_us))
                    out.metrics.record("results", results, rule.alert, str(start_us))

    def _process(self, rows: RowBatch, arrival_order: Int, now_us: int | None, out: Out) -> None:
        """Order rows by key and arrival, and pass them to the pages of their keys."""
        if not len(rows):
            return
        ordered = sort_by_key(rows, arrival_order, len(self.pages) * KEYS_PER_PAGE)
        for p in np.unique(ordered.key // KEYS_PER_PAGE).tolist():
            first = p * KEYS_PER_PAGE
            begin, end = np.searchsorted(ordered.key, [first, first + KEYS_PER_PAGE]).tolist()
            part = ordered if end - begin == len(ordered) else ordered.take(slice(begin, end))
            self.pages[p].on_rows(part.with_keys(part.key - first), now_us, out, self.pace)

    def _find_key_indexes(self, batch: Batch) -> Int:
        """Return the key index of each key of a batch. A new key gets an index on the first page that has room."""
        keys = batch.keys
        indexes = np.fromiter(map(self.place.get, keys, repeat(-1)), np.int64, len(keys))
        unknown = np.flatnonzero(indexes < 0)
        if len(unknown):
            new = list(dict.fromkeys(keys[i] for i in unknown.tolist()))
            self.place.update(zip(new, self._add(new), strict=True))
            indexes[unknown] = [self.place[keys[i]] for i in unknown.tolist()]
        return indexes

    def _add(self, keys: Sequence[tuple[str, ...]]) -> list[int]:
        """Give new keys a place."""
        places: list[int] = []
        while len(places) < len(keys):
            while self.open < len(self.pages) and len(self.pages[self.open].keys) >= KEYS_PER_PAGE:
                self.open += 1
            if self.open == len(self.pages):
                self.group.shards.append(Shard(self.group.width))
                self.pages.append(Page(self.watch, self.group.shards[-1]))
                if self.listener is not None:
                    self.pages[-1].trace(self.listener)
            page, begin = self.pages[self.open], len(self.pages[self.open].keys)
            page.shard.add_keys(keys[len(places) : len(places) + KEYS_PER_PAGE - begin])
            places += range(self.open * KEYS_PER_PAGE + begin, self.open * KEYS_PER_PAGE + len(page.keys))
        return places

    def _observe(
        self, streams: Mapping[str, StreamRows], batches: Sequence[Batch], now_us: int | None, out: Out
    ) -> None:
        """Pass all rows to the no-data rules, page by page, and count the rows of streams that no other rule reads."""
        for name in filter(self.watch.is_only_heard, streams):
            bad, time = sum(batch.quarantined for batch in batches if batch.stream == name), streams[name].time
            out.metrics.count_rows(name, {RowOutcome.QUARANTINED: bad, RowOutcome.EXPIRED: len(time)})
            if len(time):
                out.metrics.record("newest_us", int(time.max()), name)
        key, time, arrival = (
            np.concatenate([getattr(rows, field) for rows in streams.values()]) for field in ("key", "time", "arrival")
        )
        order, _ = group_by_key(key, np.argsort(arrival, kind="stable"), len(self.pages) * KEYS_PER_PAGE)
        stream = np.repeat(np.arange(len(streams)), [len(rows) for rows in streams.values()])[order]
        key, time = key[order], time[order]
        for p in np.unique(key // KEYS_PER_PAGE).tolist():
            cut = slice(*np.searchsorted(key, [p * KEYS_PER_PAGE, (p + 1) * KEYS_PER_PAGE]))
            self.pages[p].on_heard(ObservedRows(stream[cut], key[cut] - p * KEYS_PER_PAGE, time[cut]), now_us, out)

    def on_control(self, message: Control | Share, out: Out) -> None:
        """Apply a wait that all buckets of this watch agreed on."""
        if isinstance(message, Control) and message.watch == self.watch.name:
            if self.pace is not None and self.pace.order.shared:
                self.pace.agree(message.wait_us, message.from_us)

    def on_end(self, out: Out) -> None:
        """Wait for nothing any more."""
        for page in self.pages:
            page.on_end(out)
        self._learn(out)

    def on_time(self, now_us: int, out: Out) -> None:
        """Let quiet keys go on; where some were freed, those behind them have moved up."""
        for page in self.pages:
            page.on_time(now_us, out)
        self._learn(out)
        if sum(len(page.keys) for page in self.pages) != len(self.place):
            self._find_places()

    def next_timer(self) -> int | None:
        """Return the earliest timer of the pages, or None."""
        timers = (page.next_timer() for page in self.pages)
        return min((timer for timer in timers if timer is not None), default=None)

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call."""
        changed = self.group.changed_pages()
        if self.pace is not None and self.pace.dirty:
            changed[f"{self.group.name}/{PACE}"] = pack(self.pace.arrays())
            self.pace.dirty = False
        return changed
