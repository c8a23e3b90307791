"""Take a batch through a baseline of range thresholding: element by element, or all elements at once for each query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.ranges_trees import (
    FAR,
    IntervalTree,
    RTree,
    SegmentTree,
    interval_stab,
    rtree_stab,
    scan,
    segment_stab,
)
from tocsin.jit import kernel

Int = NDArray[np.int64]
Float = NDArray[np.float64]

SCAN, INTERVAL, SEGMENT, RTREE = range(4)


class Store(NamedTuple):
    """Queries by position; those below a structure's `built` are in it, the others are probed one by one."""

    low: Float  # (dims, room)
    high: Float
    lacking: Int  # FAR once it has ended
    threshold: Int  # 0 once it has ended
    id: Int
    order: Int  # of registration


class Trees(NamedTuple):
    """The one that the kind names is used, the others are empty."""

    interval: IntervalTree
    segment: SegmentTree
    rtree: RTree


class Batch(NamedTuple):
    """Elements, and the requests that come among them: positions from `first` up begin at `begin_at`."""

    values: Float
    weights: Int
    first: int
    begin_at: Int
    end_position: Int
    end_at: Int


@kernel
def by_element(kind: int, built: int, store: Store, trees: Trees, batch: Batch) -> tuple[Int, Int, Int]:
    """Hold every element against the structure and the queries beside it; give position, element, total."""
    low, high, lacking, threshold = store.low, store.high, store.lacking, store.threshold
    values, weights = batch.values, batch.weights
    room = batch.first + batch.begin_at.size
    due = np.empty(room, dtype=np.int64)
    position, index, total = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    matured, begun, ended = 0, 0, 0
    for i in range(values.shape[0] + 1):
        while begun < batch.begin_at.size and batch.begin_at[begun] <= i:
            begun += 1
        while ended < batch.end_at.size and batch.end_at[ended] <= i:
            lacking[batch.end_position[ended]] = FAR
            threshold[batch.end_position[ended]] = 0
            ended += 1
        if i == values.shape[0]:
            break
        found = 0
        if kind == INTERVAL:
            found = interval_stab(trees.interval, lacking, values[i, 0], weights[i], due, 0)
        elif kind == SEGMENT:
            found = segment_stab(trees.segment, lacking, values[i, 0], values[i, 1], weights[i], due)
        elif kind == RTREE:
            found = rtree_stab(trees.rtree, low, high, lacking, values[i], weights[i], due)
        found += scan(low, high, lacking, built, batch.first + begun, values[i], weights[i], due[found:])
        for j in due[:found]:
            # What ended long ago may have come down from FAR.
            if threshold[j] > 0:
                position[matured], index[matured], total[matured] = j, i, threshold[j] - lacking[j]
                matured += 1
            lacking[j], threshold[j] = FAR, 0
    return position[:matured], index[:matured], total[:matured]


@kernel
def by_batch(store: Store, begin: Int, end: Int, values: Float, weights: Int) -> tuple[Int, Int, Int]:
    """Hold every query against the whole batch, sorted by its first coordinate; position, element, total.

    In one dimension the sum of a range is a difference of two prefix sums; else its elements in x are gone through.
    A query that begins, ends or matures inside the batch is held against its elements one by one.
    """
    n, dims = values.shape
    order = np.argsort(values[:, 0], kind="mergesort")
    x = values[:, 0][order]
    prefix = np.zeros(n + 1, dtype=np.int64)
    for k in range(n):
        prefix[k + 1] = prefix[k] + weights[order[k]]
    room = begin.size
    position, index, total = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    matured = 0
    for j in range(room):
        if store.threshold[j] == 0:
            continue
        if begin[j] == 0 and end[j] > n:
            left = np.searchsorted(x, store.low[0, j])
            right = np.searchsorted(x, store.high[0, j], side="right")
            weight = prefix[right] - prefix[left] if dims == 1 else 0
            if dims > 1:
                for k in range(left, right):
                    weight += weights[order[k]] if _inside(store, j, values[order[k]], 1) else 0
            if weight < store.lacking[j]:
                store.lacking[j] -= weight
                continue
        for i in range(begin[j], min(end[j], n)):
            if _inside(store, j, values[i], 0):
                store.lacking[j] -= weights[i]
                if store.lacking[j] <= 0:
                    position[matured], index[matured], total[matured] = j, i, store.threshold[j] - store.lacking[j]
                    matured += 1
                    store.lacking[j], store.threshold[j] = FAR, 0
                    break
        if end[j] <= n:
            store.lacking[j], store.threshold[j] = FAR, 0
    return position[:matured], index[:matured], total[:matured]


@kernel
def _inside(store: Store, j: int, point: Float, since: int) -> bool:
    for k in range(since, point.size):
        if not (store.low[k, j] <= point[k] <= store.high[k, j]):
            return False
    return True
