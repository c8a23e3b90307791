"""Endpoint tree: cut every range into few pieces that ranges share, so that a count per piece serves all of them.

Idea. A closed range [x, y] is the half-open [x, y'), where y' is the next double. The endpoints of all ranges cut the
line into elementary intervals, the leaves of a binary tree; a node stands for the leaves below it. A range is the
disjoint union of its *canonical nodes*, at most two per level; a value lies below one node per level. In d dimensions
trees are layered: a node of the first dimension bears a tree over the second dimension of the ranges it is canonical
for, and so on; the canonical nodes of a range are those of the last layer.

    leaf i of a tree with n leaves is node n + i; the parent of node k is k >> 1; the root is 1

*Guarantee*: every finite point of a range lies below exactly one of its canonical nodes, and no other point does.
*Cost*: O(m log^d m) to build and to keep; a point visits O(log^d m) nodes; a range has at most (2 log2 4m)^d of them.
All ranges together have fewer than 2^31.
*Source*: Qiao, Gan, Tao, Range Thresholding on Streams, SIGMOD 2016, sections 4 and 6. We differ: a tree is implicit,
in an array of any length; nodes that are canonical for no range bear nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int
from tocsin.stages.ranges.cuts import next_number

Short = NDArray[np.int32]

# Columns of `Layers.trees`: where the endpoints of a tree begin, how many leaves it has, where its nodes begin.
ENDS, LEAVES, NODES = 0, 1, 2
BLOCK = 4


class Layers(NamedTuple):
    """All trees of all layers, one after another; the first is the only one of the first layer.

    `below` has what a node bears: the number of a tree of the next layer, or in the last layer of a canonical node,
    counted from 0; -1 where the node is canonical for no range.
    """

    ends: Float
    trees: Int
    below: Short


class Pieces(NamedTuple):
    """Which canonical nodes of the last layer each range has: those from first[q] up to first[q + 1] of `node`.

    `block` has the owner of every 16th piece: an owner per piece would be a sixth of all memory.
    """

    first: Int
    node: Short
    block: Short


class Members(NamedTuple):
    """Ranges by tree of a layer: tree t has those from first[t] up to first[t + 1], `owner` says which they are.

    Each reaches from leaf `left` to before leaf `right`.
    """

    first: Int
    owner: Short
    left: Short
    right: Short


def plant(low: Float, high: Float) -> tuple[Layers, Pieces, int]:
    """Build the trees over ranges (one per row), and give the canonical nodes of each range and how many there are."""
    beyond = next_number(high, np.inf)
    count, dims = low.shape
    first, owner = np.array([0, count], np.int64), np.arange(count, dtype=np.int32)
    layers: list[Layers] = []
    trees = nodes = ends = 0
    for dim in range(dims):
        layer, members = _cut(np.ascontiguousarray(low[:, dim]), np.ascontiguousarray(beyond[:, dim]), first, owner)
        first, owner = _distribute(layer, members)
        layer.trees[:, ENDS] += ends
        layer.trees[:, NODES] += nodes
        trees, nodes, ends = trees + len(layer.trees), nodes + len(layer.below), ends + len(layer.ends)
        if dim < dims - 1:
            layer.below[layer.below >= 0] += trees
        layers.append(layer)
    pieces = _pieces(count, first, owner)
    if dims == 1:
        return layers[0], pieces, len(first) - 1
    return Layers._make(np.concatenate(columns) for columns in zip(*layers, strict=True)), pieces, len(first) - 1


def _cut(low: Float, beyond: Float, first: Int, owner: Short) -> tuple[Layers, Members]:
    """Make the trees of a layer, whose numbers count from 0 as yet, and find the leaves of each member."""
    trees = np.zeros((len(first) - 1, 3), np.int64)
    left, right = np.empty(len(owner), np.int32), np.empty(len(owner), np.int32)
    ends = _endpoints((low, beyond), Members(first, owner, left, right), trees)
    below = np.full(2 * int(trees[:, LEAVES].sum()), -1, np.int32)
    return Layers(ends, trees, below), Members(first, owner, left, right)


@kernel
def _endpoints(bounds: tuple[Float, Float], members: Members, trees: Int) -> Float:
    """Fill `trees` and the leaves of all members; give the distinct endpoints of each tree, in order."""
    low, beyond = bounds
    ends = np.empty(2 * members.owner.size, np.float64)
    at, nodes = 0, 0
    for t in range(trees.shape[0]):
        start, stop, begin = members.first[t], members.first[t + 1], at
        both = np.empty(2 * (stop - start), np.float64)
        for i in range(start, stop):
            both[2 * (i - start)] = low[members.owner[i]]
            both[2 * (i - start) + 1] = beyond[members.owner[i]]
        both.sort()
        for value in both:
            if at == begin or value != ends[at - 1]:
                ends[at] = value
                at += 1
        own = ends[begin:at]
        for i in range(start, stop):
            members.left[i] = np.searchsorted(own, low[members.owner[i]])
            members.right[i] = np.searchsorted(own, beyond[members.owner[i]])
        leaves = at - begin - 1
        trees[t, ENDS], trees[t, LEAVES], trees[t, NODES] = begin, leaves, nodes
        nodes += 2 * leaves
    return ends[:at].copy()


def _distribute(layer: Layers, members: Members) -> tuple[Int, Short]:
    """Number in `layer.below` the nodes that are canonical for some member, and give the owners of each of them."""
    counts = np.zeros(len(layer.below), np.int64)
    _canonical(members, layer.trees, counts, np.empty(0, np.int32))
    used = np.flatnonzero(counts)
    layer.below[used] = np.arange(len(used), dtype=np.int32)
    first = np.zeros(len(used) + 1, np.int64)
    np.cumsum(counts[used], out=first[1:])
    counts[used] = first[:-1]
    owner = np.empty(int(first[-1]), np.int32)
    _canonical(members, layer.trees, counts, owner)
    return first, owner


@kernel
def _canonical(members: Members, trees: Int, cursor: Int, owner_out: Short) -> None:
    """Count at each node the members it is canonical for, and place their owners, if there is room, where it points."""
    place = owner_out.size > 0
    for t in range(trees.shape[0]):
        leaves, nodes = trees[t, LEAVES], trees[t, NODES]
        for i in range(members.first[t], members.first[t + 1]):
            left, right = leaves + members.left[i], leaves + members.right[i]
            while left < right:
                if left & 1:
                    if place:
                        owner_out[cursor[nodes + left]] = members.owner[i]
                    cursor[nodes + left] += 1
                    left += 1
                if right & 1:
                    right -= 1
                    if place:
                        owner_out[cursor[nodes + right]] = members.owner[i]
                    cursor[nodes + right] += 1
                left >>= 1
                right >>= 1


def _pieces(count: int, first: Int, owner: Short) -> Pieces:
    """Turn the owners of each canonical node into the canonical nodes of each owner."""
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=count), out=starts[1:])
    begins = np.arange(0, len(owner) + 2 * (1 << BLOCK), 1 << BLOCK)
    block = np.minimum(np.searchsorted(starts, begins, side="right") - 1, count - 1).astype(np.int32)
    pieces = Pieces(starts, np.empty(len(owner), np.int32), block)
    _turn((first, owner), starts[:-1].copy(), pieces)
    return pieces


@kernel
def _turn(owners: tuple[Int, Short], cursor: Int, pieces: Pieces) -> None:
    """Fill `pieces`; `cursor` points at the first place of each owner."""
    first, owner = owners
    for node in range(first.size - 1):
        for i in range(first[node], first[node + 1]):
            q = owner[i]
            pieces.node[cursor[q]] = node
            cursor[q] += 1


@kernel
def owner_of(pieces: Pieces, piece: Any) -> Any:
    """Find the range that a piece belongs to."""
    lo, hi = pieces.block[piece >> BLOCK], pieces.block[(piece >> BLOCK) + 1]
    while lo < hi:
        middle = (lo + hi) >> 1
        if pieces.first[middle + 1] <= piece:
            lo = middle + 1
        else:
            hi = middle
    return lo


@kernel
def leaf_of(layers: Layers, tree: Any, value: float) -> Any:
    """Find the leaf of a tree that a value lies in; -1 if no range of the tree reaches there."""
    begin, leaves = layers.trees[tree, ENDS], layers.trees[tree, LEAVES]
    lo, hi = begin, begin + leaves + 1
    while lo < hi:
        middle = (lo + hi) >> 1
        if layers.ends[middle] <= value:
            lo = middle + 1
        else:
            hi = middle
    leaf = lo - begin - 1
    return leaf if leaf < leaves else -1
