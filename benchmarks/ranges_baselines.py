"""What range thresholding is measured against, behind its interface: scans and stabbing structures, compiled.

Scan per element probes every alive query; the stabbing structures of Section 3.1 of Qiao, Gan, Tao, SIGMOD 2016 find
only those that hold the element, yet change the count of each. Scan per batch holds each query against a whole batch.

Queries that came after a structure was built are probed one by one beside it. It is built anew after a batch when they
are more than a thirty-second part of all, or when half of all have ended. R-trees of libraries give lists of ids, and a
count must change for each: packing one here is faster than calling them (`RESULTS.md`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.ranges_kernels import (
    INTERVAL,
    RTREE,
    SCAN,
    SEGMENT,
    Batch,
    Int,
    Store,
    Trees,
    by_batch,
    by_element,
)
from benchmarks.ranges_trees import RTree, interval_build, rtree_build, rtree_order, segment_build
from tocsin.runtime.state_codec import pack, unpack
from tocsin.stages.ranges.requests import Elements, Matured, Queue, Requests, as_ids

_NONE = np.zeros((2, 0))
_NO_BOX, _NO_LEVEL = np.zeros((4, 0)), np.zeros(2, dtype=np.int64)


def _store(room: int, dims: int) -> Store:
    columns = (np.zeros(room, dtype=np.int64) for _ in range(4))
    return Store(np.empty((dims, room)), np.empty((dims, room)), *columns)


class Baseline:
    """Positions of queries by id, and the array in which they stand."""

    kind = SCAN
    most_beside = 1024

    def __init__(self, dims: int = 1) -> None:
        self.dims = dims
        self.queue = Queue(dims)
        self.store = _store(16, dims)
        self.size = self.built = self.registered = 0
        self.position: dict[int, int] = {}
        self.trees = self._trees()

    def register(
        self, ids: ArrayLike, low: ArrayLike, high: ArrayLike, threshold: ArrayLike, at: ArrayLike | None = None
    ) -> None:
        self.queue.register(ids, low, high, threshold, at, self._alive)

    def terminate(self, ids: ArrayLike, at: ArrayLike | None = None) -> None:
        self.queue.terminate(ids, at)

    def push(self, values: ArrayLike, weights: ArrayLike | None = None) -> Matured:
        elements = self.queue.elements(values, weights)
        batch = self._batch(self.queue.take(), elements)
        position, index, total = self._run(batch)
        order = np.lexsort((self.store.order[position], index))
        position = position[order]
        ids = self.store.id[position]
        for j, key in zip(position.tolist(), ids.tolist(), strict=True):
            if self.position.get(key) == j:
                del self.position[key]
        beside = 0 if self.kind == SCAN else self.size - self.built
        if len(self) < self.size // 2 or beside > max(self.most_beside, self.size // 32):
            self._rebuild()
        return Matured(ids, index[order], total[order])

    def progress(self, ids: ArrayLike) -> Int:
        asked = as_ids("progress", ids)
        found = np.where(self.queue.awaits(asked), 0, -1)
        place = np.array([self.position.get(key, -1) for key in asked.tolist()], dtype=np.int64)
        has = place >= 0
        found[has] = (self.store.threshold - self.store.lacking)[place[has]]
        return found

    def __len__(self) -> int:
        return len(self.position)

    def snapshot(self) -> bytes:
        place = np.sort(np.fromiter(self.position.values(), np.int64, len(self.position)))
        place = place[np.argsort(self.store.order[place])]
        columns = {name: column[..., place] for name, column in self.store._asdict().items()}
        return pack(columns | self.queue.pack(), dims=self.dims)

    @classmethod
    def restore(cls, data: bytes) -> Baseline:
        arrays, facts = unpack(data)
        made = cls(facts["dims"])
        made.queue = Queue.unpack(made.dims, arrays)
        made.store = Store(*(arrays[name] for name in Store._fields))
        made.size = made.store.id.size
        made.registered = int(made.store.order.max(initial=-1)) + 1
        made.position = dict(zip(made.store.id.tolist(), range(made.size), strict=True))
        return made

    def _alive(self, ids: Int) -> Any:
        return np.array([key in self.position for key in ids.tolist()], dtype=np.bool_)

    def _batch(self, requests: Requests, elements: Elements) -> Batch:
        """Give every registration a position, and every termination that of the query it means."""
        new = requests.is_registration
        first, ending = self.size, []
        self._append(Requests(*(column[new] for column in requests)))
        following = first
        for key, is_new in zip(requests.id.tolist(), new.tolist(), strict=True):
            if is_new:
                self.position[key] = following
                following += 1
            else:
                ending.append(self.position.pop(key, -1))
        end = np.array(ending, dtype=np.int64)
        end, end_at = end[end >= 0], requests.at[~new][end >= 0]
        return Batch(elements.values, elements.weights, first, requests.at[new], end, end_at)

    def _append(self, new: Requests) -> None:
        begin, end = self.size, self.size + new.id.size
        if end > self.store.id.size:
            larger = _store(2 * end, self.dims)
            for old, column in zip(self.store, larger, strict=True):
                column[..., :begin] = old[..., :begin]
            self.store = larger
        order = self.registered + np.arange(new.id.size)
        given = (new.low.T, new.high.T, new.threshold, new.threshold, new.id, order)
        for column, part in zip(self.store, given, strict=True):
            column[..., begin:end] = part
        self.size, self.registered = end, self.registered + new.id.size

    def _rebuild(self) -> None:
        """Drop what has ended; put the rest into the structure, in an order in which it is visited fast."""
        stays = np.flatnonzero(self.store.threshold[: self.size] > 0)
        self.store = Store(*(np.ascontiguousarray(column[..., stays]) for column in self.store))
        self.size = stays.size
        if self.kind != SCAN:
            self.built = self.size
            self.trees = self._trees()
        self.position = dict(zip(self.store.id.tolist(), range(self.size), strict=True))

    def _run(self, batch: Batch) -> tuple[Int, Int, Int]:
        return by_element(self.kind, self.built, self.store, self.trees, batch)

    def _trees(self) -> Trees:
        """The structure of this kind, empty ones of the others."""
        return Trees(interval_build(_NONE[0], _NONE[0]), segment_build(_NONE, _NONE), RTree(_NO_BOX, _NO_LEVEL, 0))

    def _reorder(self, order: Int) -> None:
        self.store = Store(*(np.ascontiguousarray(column[..., order]) for column in self.store))


class ScanPerElement(Baseline):
    """Every element is held against every alive query."""


class ScanPerBatch(Baseline):
    """Every alive query is held against a whole batch, by prefix sums in one dimension."""

    def _run(self, batch: Batch) -> tuple[Int, Int, Int]:
        n = batch.weights.size
        begin, end = np.zeros(self.size, dtype=np.int64), np.full(self.size, n + 1)
        begin[batch.first :] = batch.begin_at
        end[batch.end_position] = batch.end_at
        return by_batch(self.store, begin, end, batch.values, batch.weights)


class IntervalTreeStab(Baseline):
    """A centered interval tree; one dimension."""

    kind = INTERVAL

    def _trees(self) -> Trees:
        if not self.built:
            return super()._trees()
        tree = interval_build(self.store.low[0, : self.built], self.store.high[0, : self.built])
        self._reorder(tree.by_low)
        place = np.empty(self.built, dtype=np.int64)
        place[tree.by_low] = np.arange(self.built)
        return (
            super()._trees()._replace(interval=tree._replace(by_low=np.arange(self.built), by_high=place[tree.by_high]))
        )


class SegmentIntervalTree(Baseline):
    """A segment tree on x over interval trees on y; two dimensions."""

    kind = SEGMENT

    def _trees(self) -> Trees:
        return (
            super()
            ._trees()
            ._replace(segment=segment_build(self.store.low[:, : self.built], self.store.high[:, : self.built]))
        )


class PackedRTree(Baseline):
    """An R-tree packed by sort-tile-recursive; two dimensions."""

    kind = RTREE

    def _trees(self) -> Trees:
        if not self.built:
            return super()._trees()
        self._reorder(rtree_order(self.store.low, self.store.high))
        return super()._trees()._replace(rtree=rtree_build(self.store.low, self.store.high))
