"""Shed: give up remembered rows of a watch until it fits, those first that are worth least.

Idea: the rows of all pages are put together, lane by lane, and sorted by what they are worth (`row_utility.py`). What
goes with a row are its bytes, and its part of what its key costs: a key that has nothing left is forgotten too.
Guarantee: which rows go depends on the rows alone, not on where they lie.
Cost: O(M log M) for M rows remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.hashing import key_number, row_fingerprints, unit_numbers
from tocsin.interim.memory.row_sampling import Sampler
from tocsin.operators.retention.utility.row_utility import Rows, RowUtility
from tocsin.interim.memory.shard_view import ShardView
from tocsin.plan.operator_graph import OperatorGraph
from tocsin.plan.steps import Watch
from tocsin.rules.quality import BYTES
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER_SEEN, Bools, Float, Int
from tocsin.runtime.keyed_pipeline import KEYS_PER_SHARD
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.payload import with_payload_digests
from tocsin.runtime.state_registry import Shard


def _oldest(time: Int, count: int) -> Int:
    """At least so many rows, in the order given: all up to some time."""
    return np.flatnonzero(time <= np.partition(time, count)[count]) if count < len(time) else np.arange(len(time))


class Kept(NamedTuple):
    """Remembered rows of all pages: page, store and place there, lane, time, the number of the key, what they cost."""

    page: Int
    store: Int
    place: Int
    lane: Int
    time: Int
    key: Int
    cost: Float


class Shedder:
    """What the rows and keys of a watch cost, and who goes."""

    def __init__(self, watch: Watch, operators: OperatorGraph) -> None:
        assert watch.budget is not None
        self.watch, self.in_bytes = watch, watch.budget.memory.unit == BYTES
        self.lanes = [watch.lanes.index(store.lane) for store in watch.stores]
        self.span_us = max((rule.topology.span_us for rule in watch.rules), default=0)
        empty, one = Shard(len(watch.on)), Shard(len(watch.on))
        operators.attach(empty)
        operators.attach(one)
        one.add_keys([("",) * len(watch.on)])
        self.page_bytes = empty.size if self.in_bytes else 0
        # The name of a key comes on top. A key may need a new page: each pays its part of it.
        self.key_bytes = one.size - empty.size + -(-empty.size // KEYS_PER_SHARD) if self.in_bytes else 0

    def size(self, pages: Sequence[ShardView]) -> int:
        """How much is kept: bytes, or rows."""
        if self.in_bytes:
            return sum(page.shard.size for page in pages)
        return sum(len(memory.time) for page in pages for memory in page.retentions)

    def longest(self, pages: Sequence[ShardView]) -> int:
        """What the longest text of a remembered row takes on a page."""
        texts = [memory.longest_text_bytes for page in pages for memory in page.retentions] if self.in_bytes else []
        return max(texts, default=0)

    def average_cost(self, kept: Kept) -> list[float]:
        """What a row of each lane costs, on average."""
        costs = []
        for lane in range(len(self.watch.lanes)):
            mine = kept.cost[kept.lane == lane]
            costs.append(max(float(mine.mean()), 1.0) if len(mine) else 1.0)
        return costs

    def kept(self, pages: Sequence[ShardView]) -> Kept:
        """All rows that are remembered."""
        parts: list[tuple[Int, Int, Float]] = []
        for page in pages:
            rows_of = np.sum([np.diff(memory.offsets) for memory in page.retentions], axis=0)
            names = page.shard.keys.hashes(key_number)
            each = np.where(page.busy(), 0.0, self.key_bytes / np.maximum(rows_of, 1))
            for memory in page.retentions:
                key = memory.key
                cost = memory.row_bytes() + each[key] if self.in_bytes else np.ones(len(key))
                parts.append((memory.time, names[key], np.asarray(cost, np.float64)))
        time, number, costs = (np.concatenate(column) for column in zip(*parts, strict=True))
        rows, stores = [len(part[0]) for part in parts], np.arange(len(self.lanes))
        page_of, store, lane, begin = (
            np.repeat(of, rows)
            for of in (
                np.repeat(np.arange(len(pages)), len(stores)),
                np.tile(stores, len(pages)),
                np.tile(self.lanes, len(pages)),
                np.cumsum(rows) - rows,
            )
        )
        return Kept(page_of, store, np.arange(len(time)) - begin, lane, time, number, costs)

    def shed(
        self, pages: Sequence[ShardView], excess: float, worth: RowUtility | None, now_us: int, context: Context
    ) -> tuple[int, float]:
        """Give up rows that cost `excess` together; say up to which time results may now be missing, and the cost."""
        kept = self.kept(pages)
        order = self._order(kept, excess, worth, now_us)
        going = order[: int(np.searchsorted(np.cumsum(kept.cost[order]), excess)) + 1]
        until_us = int(kept.time[going].max(initial=NEVER_SEEN))
        if worth is not None:
            for lane in (0, 1):
                mine = going[kept.lane[going] == lane]
                worth.lose(lane, row_fingerprints((kept.key[mine], kept.time[mine]), len(mine)))
        for number in np.unique(kept.page[going]).tolist():
            page, here = pages[number], going[kept.page[going] == number]
            page.shard.is_dirty = True
            for store, name in enumerate(self.watch.store_names):
                gone = np.zeros(len(page.retentions[store].time), np.bool_)
                gone[kept.place[here[kept.store[here] == store]]] = True
                page.retentions[store].shed(gone)
                rows = int(gone.sum())
                context.count(name, {RowOutcome.RETAINED: -rows, RowOutcome.SHED: rows})
        return max(until_us + self.span_us, NEVER_SEEN), float(kept.cost[going].sum())

    def thin(
        self, pages: Sequence[ShardView], excess: float, sampler: Sampler, context: Context
    ) -> tuple[dict[int, Int], float]:
        """Let rows go that cost `excess`, so that the rest is a sample; return fingerprints by lane and cost."""
        kept = self.kept(pages)
        mark, room = self._fingerprints(pages, kept), float(kept.cost.sum()) - excess
        stays, most = sampler.thin(kept.lane, unit_numbers(mark), kept.key, kept.cost, room)
        gone = ~stays
        for number, page in enumerate(pages):
            page.shard.is_dirty = True
            for store, name in enumerate(self.watch.store_names):
                here = np.flatnonzero((kept.page == number) & (kept.store == store))
                memory, mine = page.retentions[store], here[gone[here]]
                texts = None if memory.payload is None else memory.payload[gone[here]]
                mark[mine] = with_payload_digests(mark[mine], texts, memory.store.columns)
                memory.stored_probability = np.minimum(memory.probabilities, most[here])
                memory.shed(gone[here])
                context.count(name, {RowOutcome.RETAINED: -len(mine), RowOutcome.SHED: len(mine)})
        lost = {}
        for lane in (0, 1):
            mine = np.flatnonzero(gone & (kept.lane == lane))
            sampler.traces.note(lane, np.unique(mark[mine]))
            lost[lane] = row_fingerprints((kept.key[mine], kept.time[mine]), len(mine))
        return lost, float(kept.cost[gone].sum())

    def _fingerprints(self, pages: Sequence[ShardView], kept: Kept) -> Int:
        """Return the fingerprint of each retained row, without its payload."""
        fingerprints = np.zeros(len(kept.time), np.int64)
        for number, page in enumerate(pages):
            for store, memory in enumerate(page.retentions):
                here = np.flatnonzero((kept.page == number) & (kept.store == store))
                columns = (kept.lane[here], kept.key[here], kept.time[here], *memory.values)
                fingerprints[here] = row_fingerprints(columns, len(here))
        return fingerprints

    def _order(self, kept: Kept, excess: float, worth: RowUtility | None, now_us: int) -> Int:
        """Rows that cost `excess` and more, the first to go first: lanes that have more than their share begin."""
        if worth is None or not worth.learns:
            some = _oldest(kept.time, int(excess / kept.cost.min()) + 1)
            return some[np.lexsort(tuple(column[some] for column in (kept.place, kept.store, kept.key, kept.time)))]
        orders, room = [], float(kept.cost.sum()) - excess
        for lane, share in enumerate((worth.split, 1 - worth.split)):
            mine = np.flatnonzero(kept.lane == lane)
            order = mine[worth.order(lane, Rows(kept.time[mine], kept.key[mine]), now_us)]
            # How much the lane still has above its share when a row is asked to go: who has most above it goes first.
            above = kept.cost[order].sum() - np.cumsum(kept.cost[order]) + kept.cost[order] - share * room
            orders.append((order, above))
        order, above = (np.concatenate(parts) for parts in zip(*orders, strict=True))
        return np.asarray(order[np.argsort(-above, kind="stable")], np.int64)

    def drop_fingerprints(self, pages: Sequence[ShardView]) -> int:
        """Remove the fingerprints of omitted rows; return their bytes, or 0 if the budget counts rows."""
        freed = 0
        for page in pages:
            size = sum(memory.drop_fingerprints() for memory in page.retentions)
            page.shard.is_dirty |= size > 0
            freed += size
        return freed * self.in_bytes

    def empty(self, pages: Sequence[ShardView]) -> list[Bools]:
        """By page, the keys that have no rows and nothing open; in rows none, as keys cost nothing there."""
        if not self.in_bytes:
            return []
        rows_of = [np.sum([np.diff(memory.offsets) for memory in page.retentions], axis=0) for page in pages]
        return [(rows == 0) & ~page.busy() for rows, page in zip(rows_of, pages, strict=True)]

    def forget(self, pages: Sequence[ShardView], gone: Sequence[Bools], context: Context) -> int:
        """Forget keys; give the newest time of any of them."""
        newest = NEVER_SEEN
        for page, mine in zip(pages, gone, strict=False):
            if mine.any():
                newest = max(newest, int(page.newest[mine].max()))
                page.evict_keys(mine, context)
        return newest
