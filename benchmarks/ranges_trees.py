"""Stabbing structures for the baselines of range thresholding: which ranges hold this point? Built once, all compiled.

Each kernel `*_stab` takes the weight of an element off what every range that holds it still lacks, and appends those
that lack nothing any more to `due`. Ranges that ended stay in a structure until it is built anew: what they lack is
`FAR`, so they cost a visit and never mature. Positions are places in the arrays that the structure was built on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel

Int = NDArray[np.int64]
Float = NDArray[np.float64]

FAR = 1 << 62
FANOUT = 32


@kernel
def scan(low: Float, high: Float, lacking: Int, begin: int, end: int, point: Float, weight: int, due: Int) -> int:
    """Probe every range of `[begin, end)`; give how many are due. Two passes: the first has no branch."""
    least, lack = FAR, lacking[begin:end]
    low_x, high_x, x = low[0, begin:end], high[0, begin:end], point[0]
    if low.shape[0] == 1:
        for j in range(lack.size):
            inside = (low_x[j] <= x) & (x <= high_x[j])
            lack[j] -= weight if inside else 0
            least = min(least, lack[j])
    elif low.shape[0] == 2:
        low_y, high_y, y = low[1, begin:end], high[1, begin:end], point[1]
        for j in range(lack.size):
            inside = (low_x[j] <= x) & (x <= high_x[j]) & (low_y[j] <= y) & (y <= high_y[j])
            lack[j] -= weight if inside else 0
            least = min(least, lack[j])
    else:
        for j in range(lack.size):
            inside = True
            for k in range(low.shape[0]):
                inside = inside & (low[k, begin + j] <= point[k]) & (point[k] <= high[k, begin + j])
            lack[j] -= weight if inside else 0
            least = min(least, lack[j])
    found = 0
    if least <= 0:
        for j in range(lack.size):
            if lack[j] <= 0:
                due[found] = begin + j
                found += 1
    return found


class IntervalTree(NamedTuple):
    """A centered interval tree: the node of centre `ends[i]` has the intervals `by_low[first[i]:first[i + 1]]`."""

    ends: Float
    first: Int
    by_low: Int
    by_high: Int
    low: Float
    high: Float


@kernel
def interval_build(low: Float, high: Float) -> IntervalTree:
    """Put every interval to the topmost centre that it holds; a node lists its own by low end and by high end."""
    ends = np.unique(np.concatenate((low, high)))
    node = np.empty(low.size, dtype=np.int64)
    first = np.zeros(ends.size + 1, dtype=np.int64)
    for j in range(low.size):
        left, right = 0, ends.size
        middle = (left + right) // 2
        while not (low[j] <= ends[middle] <= high[j]):
            if high[j] < ends[middle]:
                right = middle
            else:
                left = middle + 1
            middle = (left + right) // 2
        node[j] = middle
        first[middle + 1] += 1
    for i in range(ends.size):
        first[i + 1] += first[i]
    by_low, by_high = np.empty(low.size, dtype=np.int64), np.empty(low.size, dtype=np.int64)
    next_low, next_high = first.copy(), first.copy()
    for j in np.argsort(low):
        by_low[next_low[node[j]]] = j
        next_low[node[j]] += 1
    for j in np.argsort(-high):
        by_high[next_high[node[j]]] = j
        next_high[node[j]] += 1
    return IntervalTree(ends, first, by_low, by_high, low[by_low], high[by_high])


@kernel
def interval_stab(tree: IntervalTree, lacking: Int, x: float, weight: int, due: Int, found: int) -> int:
    """Walk down to a point."""
    ends, first, by_low, by_high, low, high = tree
    left, right = 0, ends.size
    while left < right:
        middle = (left + right) // 2
        below = x < ends[middle]
        for i in range(first[middle], first[middle + 1]):
            if below:
                if low[i] > x:
                    break
                j = by_low[i]
            else:
                if high[i] < x:
                    break
                j = by_high[i]
            lacking[j] -= weight
            if lacking[j] <= 0:
                due[found] = j
                found += 1
        if x == ends[middle]:
            break
        if below:
            right = middle
        else:
            left = middle + 1
    return found


class SegmentTree(NamedTuple):
    """A segment tree on x, whose nodes have interval trees on y; node `i` has `by_low[begin[i]:begin[i + 1]]`."""

    ends: Float
    begin: Int
    tree_begin: Int  # Where the node's centres are, and with one more for each node before it, its `first`.
    centres: Float
    first: Int
    by_low: Int
    by_high: Int
    low: Float
    high: Float


@kernel
def canonical(leaves: int, left: int, right: int, nodes: Int) -> int:
    """The nodes of a perfect tree over `leaves` (a power of two) that cover leaves `[left, right)`; root is 1."""
    found = 0
    left += leaves
    right += leaves
    while left < right:
        if left & 1:
            nodes[found] = left
            found += 1
            left += 1
        if right & 1:
            right -= 1
            nodes[found] = right
            found += 1
        left //= 2
        right //= 2
    return found


@kernel
def segment_build(low: Float, high: Float) -> SegmentTree:
    """Leaf 2i is the point `ends[i]`, leaf 2i + 1 the gap after it, so that ranges are closed."""
    ends = np.unique(np.concatenate((low[0], high[0])))
    leaves = 1
    while leaves < 2 * ends.size:
        leaves *= 2
    nodes = np.empty(128, dtype=np.int64)
    from_leaf, to_leaf = 2 * np.searchsorted(ends, low[0]), 2 * np.searchsorted(ends, high[0]) + 1
    begin = np.zeros(2 * leaves + 1, dtype=np.int64)
    for j in range(low.shape[1]):
        for k in range(canonical(leaves, from_leaf[j], to_leaf[j], nodes)):
            begin[nodes[k] + 1] += 1
    begin = np.cumsum(begin)
    place = np.empty(begin[-1], dtype=np.int64)
    following = begin.copy()
    for j in range(low.shape[1]):
        for k in range(canonical(leaves, from_leaf[j], to_leaf[j], nodes)):
            place[following[nodes[k]]] = j
            following[nodes[k]] += 1
    total = place.size
    tree_begin = np.zeros(2 * leaves + 1, dtype=np.int64)
    centres, first = np.empty(2 * total), np.empty(2 * total + 2 * leaves, dtype=np.int64)
    by_low, by_high = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    sorted_low, sorted_high = np.empty(total), np.empty(total)
    for node in range(2 * leaves):
        a, b, c = begin[node], begin[node + 1], tree_begin[node]
        tree_begin[node + 1] = c
        if a == b:
            continue
        part = interval_build(low[1][place[a:b]], high[1][place[a:b]])
        tree_begin[node + 1] = c + part.ends.size
        centres[c : c + part.ends.size] = part.ends
        first[c + node : c + node + part.first.size] = part.first
        by_low[a:b], by_high[a:b] = place[a:b][part.by_low], place[a:b][part.by_high]
        sorted_low[a:b], sorted_high[a:b] = part.low, part.high
    size = tree_begin[-1]
    return SegmentTree(
        ends, begin, tree_begin, centres[:size].copy(), first[: size + 2 * leaves].copy(), by_low, by_high,
        sorted_low, sorted_high,
    )  # fmt: skip


@kernel
def segment_stab(tree: SegmentTree, lacking: Int, x: float, y: float, weight: int, due: Int) -> int:
    """Stab the interval trees of all nodes from the leaf of x up to the root."""
    rank = np.searchsorted(tree.ends, x)
    if rank < tree.ends.size and tree.ends[rank] == x:
        leaf = 2 * rank
    elif rank == 0:
        return 0
    else:
        leaf = 2 * rank - 1
    found = 0
    node = leaf + (tree.begin.size - 1) // 2
    while node >= 1:
        a, b = tree.begin[node], tree.begin[node + 1]
        if a < b:
            c, d = tree.tree_begin[node], tree.tree_begin[node + 1]
            part = IntervalTree(
                tree.centres[c:d], tree.first[c + node : d + node + 1], tree.by_low[a:b], tree.by_high[a:b],
                tree.low[a:b], tree.high[a:b],
            )  # fmt: skip
            found = interval_stab(part, lacking, y, weight, due, found)
        node //= 2
    return found


class RTree(NamedTuple):
    """Boxes of all levels, the leaves' own first; level `k` begins at `level[k]`, the last one has at most 32 boxes."""

    box: Float  # (4, boxes): low x, high x, low y, high y
    level: Int
    count: int


def rtree_order(low: Float, high: Float) -> Int:
    """Sort-tile-recursive order (Leutenegger et al., ICDE 1997): slices by the middle in x, sorted by that in y."""
    count = low.shape[1]
    slices = max(1, int(np.ceil(np.sqrt(count / FANOUT))))
    middle = np.clip(low, -1e300, 1e300) + np.clip(high, -1e300, 1e300)
    by_x = np.argsort(middle[0], kind="stable")
    slice_of = np.empty(count, dtype=np.int64)
    slice_of[by_x] = np.arange(count) * slices // max(count, 1)
    return np.lexsort((middle[1], slice_of)).astype(np.int64)


def rtree_build(low: Float, high: Float) -> RTree:
    """Boxes around every 32 ranges, which are in `rtree_order`, then around every 32 boxes."""
    level, boxes = [0], []
    box = np.stack((low[0], high[0], low[1], high[1]))
    while box.shape[1] > FANOUT or not boxes:
        starts = np.arange(0, box.shape[1], FANOUT)
        box = np.stack([
            (np.maximum if i % 2 else np.minimum).reduceat(box[i], starts) if starts.size else box[i] for i in range(4)
        ])  # fmt: skip
        boxes.append(box)
        level.append(level[-1] + box.shape[1])
    return RTree(np.concatenate(boxes, axis=1), np.array(level, dtype=np.int64), low.shape[1])


@kernel
def rtree_stab(tree: RTree, low: Float, high: Float, lacking: Int, point: Float, weight: int, due: Int) -> int:
    """Visit every box that holds the point, down to the ranges in it."""
    box, level, count = tree
    x, y = point[0], point[1]
    top = level.size - 2
    stack, depth = np.empty((FANOUT * level.size + FANOUT, 2), dtype=np.int64), 0
    for i in range(level[top], level[top + 1]):
        stack[depth, 0], stack[depth, 1] = i - level[top], top
        depth += 1
    found = 0
    while depth > 0:
        depth -= 1
        node, k = stack[depth]
        at = level[k] + node
        if not (box[0, at] <= x <= box[1, at] and box[2, at] <= y <= box[3, at]):
            continue
        if k > 0:
            for child in range(node * FANOUT, min((node + 1) * FANOUT, level[k] - level[k - 1])):
                stack[depth, 0], stack[depth, 1] = child, k - 1
                depth += 1
            continue
        for j in range(node * FANOUT, min((node + 1) * FANOUT, count)):
            if (low[0, j] <= x) & (x <= high[0, j]) & (low[1, j] <= y) & (y <= high[1, j]):
                lacking[j] -= weight
                if lacking[j] <= 0:
                    due[found] = j
                    found += 1
    return found
