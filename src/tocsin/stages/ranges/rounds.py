"""Distributed tracking: learn when the counts of h nodes together reach a threshold, without looking at each change.

Idea. A query lacks L and has h canonical nodes. It gives each a *slack* of floor(L / 2h); a node signals whenever its
count has grown by that much. After h signals the round ends: the query reads its nodes, which are at least L / 3
further, and begins a new round with what it lacks then. At L <= 6h nodes signal every change. A node has a min-heap of
the counts at which it owes its queries their next signals, so one comparison shows that it owes none.

    lack 1000, h 4: slack 125, round ends at 4 signals with 500 <= total < 1000; lack <= 500: slack 62; ... lack <= 24

An element raises at most one of a query's nodes, by any weight: several signals may be due at once; they are given
together, but no more than the round still takes.
*Guarantee*: a query matures with the very element that brings it to its threshold. It has at most log_1.5 threshold + 1
rounds, with at most h signals in each and at most 6h in the last.
*Cost*: a signal costs O(log) in one heap, the end of a round in h heaps. An element costs one comparison at each node
that it visits and that is canonical for some query.
*Source*: Qiao, Gan, Tao, Range Thresholding on Streams, SIGMOD 2016, sections 3.2, 4 and 7. We differ: the entries of a
query that ended leave a heap when they come to its top, or with the next rebuilding; several signals of one node at one
element are one change of its heap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Bools, Int
from tocsin.stages.ranges.endpoint_tree import LEAVES, NODES, Layers, Pieces, Short, leaf_of, owner_of, plant
from tocsin.stages.ranges.queries import Queries
from tocsin.stages.ranges.requests import Elements

# What is counted: signals in rounds with a slack, signals of single changes in last rounds, rounds that ended, changes
# of heaps (an entry moved, put or taken), and the rounds of the query that had most.
SIGNALS, CHANGES, ROUNDS, HEAP_OPERATIONS, MOST_ROUNDS = 0, 1, 2, 3, 4
COUNTED = ("signals", "changes", "rounds", "heap_operations", "most_rounds")

# Columns of `Heaps.nodes`: weight that reached the node, the smallest key of its heap, where the heap begins, its size.
COUNT, TOP, BASE, SIZE = 0, 1, 2, 3
NO_KEY = np.iinfo(np.int64).max
LAST_ROUND = 6
# A tree has fewer than 2^31 leaves, so a point has at most this many nodes above it.
LEVELS = 32


class Heaps(NamedTuple):
    """The canonical nodes with their heaps; `key` and `piece` by place in a heap, `place` by piece."""

    nodes: Int
    key: Int
    piece: Short
    place: Short


class Rounds(NamedTuple):
    """Where each query stands; `threshold` and `total` are those of `Queries`.

    `lack` is what it lacked when its round began, in its last round what it lacks now; `slack` that of the round, 0 in
    the last one; `signals` those of the round; `rounds` how many ended, in earlier trees too.
    """

    threshold: Int
    total: Int
    lack: Int
    slack: Int
    signals: Short
    rounds: Short
    alive: Bools


class Tracked(NamedTuple):
    """Queries under tracking, with the trees over their ranges; counts begin at 0 when it is made."""

    layers: Layers
    pieces: Pieces
    heaps: Heaps
    rounds: Rounds


class Found(NamedTuple):
    """Room for what matures: the query, the element, and by how much its total is above the threshold."""

    query: Int
    element: Int
    over: Int


def track(queries: Queries, counters: Int) -> Tracked:
    """Begin to track queries, each of which lacks something."""
    layers, pieces, nodes = plant(queries.low, queries.high)
    entries, count = len(pieces.node), len(queries.id)
    piece, place = np.empty(entries, np.int32), np.empty(entries, np.int32)
    heaps = Heaps(np.zeros((nodes, 4), np.int64), np.empty(entries, np.int64), piece, place)
    lack, slack = queries.threshold - queries.total, np.empty(count, np.int64)
    signals, alive = np.zeros(count, np.int32), np.ones(count, np.bool_)
    state = Rounds(queries.threshold, queries.total, lack, slack, signals, queries.rounds, alive)
    _fill(pieces, heaps, state, counters)
    return Tracked(layers, pieces, heaps, state)


@kernel
def _fill(pieces: Pieces, heaps: Heaps, rounds: Rounds, counters: Int) -> None:
    """Begin the first rounds and put all keys into the heaps of their nodes."""
    nodes = heaps.nodes
    for piece in range(pieces.node.size):
        nodes[pieces.node[piece], SIZE] += 1
    base = 0
    for node in range(nodes.shape[0]):
        nodes[node, BASE], base = base, base + nodes[node, SIZE]
        nodes[node, SIZE] = 0
    for q in range(rounds.lack.size):
        _choose_slack(q, pieces.first[q + 1] - pieces.first[q], rounds)
        for piece in range(pieces.first[q], pieces.first[q + 1]):
            node = pieces.node[piece]
            at = nodes[node, BASE] + nodes[node, SIZE]
            nodes[node, SIZE] += 1
            heaps.key[at] = max(rounds.slack[q], 1)
            heaps.piece[at] = piece
            heaps.place[piece] = at
    for node in range(nodes.shape[0]):
        for at in range(nodes[node, SIZE] // 2, -1, -1):
            _sink(heaps.key, heaps.piece, heaps.place, nodes[node, BASE], nodes[node, SIZE], at)
        nodes[node, TOP] = heaps.key[nodes[node, BASE]]
    counters[HEAP_OPERATIONS] += pieces.node.size


@kernel
def _choose_slack(q: Any, h: Any, rounds: Rounds) -> None:
    """Set the slack of a round that begins; 0 if it is the last one."""
    rounds.slack[q] = rounds.lack[q] // (2 * h) if h > 0 and rounds.lack[q] > LAST_ROUND * h else 0
    rounds.signals[q] = 0


@kernel
def feed(tracked: Tracked, elements: Elements, ends: tuple[Int, Int], found: Found, counters: Int) -> int:
    """Take elements (values, one per row, and weights) in turn, and give how many queries matured.

    `ends` are queries that are terminated and the elements just before which they are, in order.
    """
    (values, weights), (ended, ended_at) = elements, ends
    layers, heaps, alive = tracked.layers, tracked.heaps, tracked.rounds.alive
    dims, matured, terminated = values.shape[1], 0, 0
    waiting = np.empty((1 + dims * LEVELS, 2), np.int64)
    for i in range(values.shape[0]):
        while terminated < ended.size and ended_at[terminated] <= i:
            alive[ended[terminated]] = False
            terminated += 1
        waiting[0, 0], waiting[0, 1], top = 0, 0, 1
        while top > 0:
            top -= 1
            tree, dim = waiting[top, 0], waiting[top, 1]
            leaf = leaf_of(layers, tree, values[i, dim])
            node = leaf + layers.trees[tree, LEAVES] if leaf >= 0 else 0
            while node > 0:
                borne = layers.below[layers.trees[tree, NODES] + node]
                node >>= 1
                if borne < 0:
                    continue
                if dim < dims - 1:
                    waiting[top, 0], waiting[top, 1] = borne, dim + 1
                    top += 1
                    continue
                heaps.nodes[borne, COUNT] += weights[i]
                if heaps.nodes[borne, TOP] <= heaps.nodes[borne, COUNT]:
                    matured = _signal(borne, i, tracked, found, matured, counters)
    while terminated < ended.size:
        alive[ended[terminated]] = False
        terminated += 1
    return matured


@kernel
def _signal(node: Any, i: Any, tracked: Tracked, found: Found, matured: int, counters: Int) -> int:
    """Give all signals that a node owes at element i; give how many queries have matured so far."""
    nodes, key, piece, place = tracked.heaps
    rounds, first = tracked.rounds, tracked.pieces.first
    base, count = nodes[node, BASE], nodes[node, COUNT]
    while nodes[node, SIZE] > 0 and key[base] <= count:
        q = owner_of(tracked.pieces, piece[base])
        counters[HEAP_OPERATIONS] += 1
        if not rounds.alive[q]:
            _drop_top(nodes, key, piece, place, node)
            continue
        if rounds.slack[q] > 0:
            due = min((count - key[base]) // rounds.slack[q] + 1, first[q + 1] - first[q] - rounds.signals[q])
            rounds.signals[q] += due
            counters[SIGNALS] += due
            ended = rounds.signals[q] == first[q + 1] - first[q]
            next_key = key[base] + due * rounds.slack[q]
        else:
            rounds.lack[q] -= count - key[base] + 1
            counters[CHANGES] += 1
            ended = rounds.lack[q] <= 0
            next_key = count + 1
        if not ended:
            key[base] = next_key
            _sink(key, piece, place, base, nodes[node, SIZE], 0)
            continue
        _end_round(q, tracked, counters)
        if rounds.lack[q] <= 0:
            rounds.alive[q] = False
            found.query[matured], found.element[matured], found.over[matured] = q, i, -rounds.lack[q]
            matured += 1
    nodes[node, TOP] = key[base] if nodes[node, SIZE] > 0 else NO_KEY
    return matured


@kernel
def _end_round(q: Any, tracked: Tracked, counters: Int) -> None:
    """Read the nodes of a query; begin its next round if it still lacks something."""
    nodes, key, piece, place = tracked.heaps
    rounds, pieces = tracked.rounds, tracked.pieces
    start, stop = pieces.first[q], pieces.first[q + 1]
    rounds.rounds[q] += 1
    counters[ROUNDS] += 1
    counters[MOST_ROUNDS] = max(counters[MOST_ROUNDS], rounds.rounds[q])
    rounds.lack[q] = rounds.threshold[q] - rounds.total[q] - _sum(q, tracked)
    if rounds.lack[q] <= 0:
        return
    _choose_slack(q, stop - start, rounds)
    counters[HEAP_OPERATIONS] += stop - start
    for k in range(start, stop):
        node, at = pieces.node[k], place[k]
        base = nodes[node, BASE]
        old, new = key[at], nodes[node, COUNT] + max(rounds.slack[q], 1)
        key[at] = new
        if new > old:
            _sink(key, piece, place, base, nodes[node, SIZE], at - base)
        else:
            _rise(key, piece, place, base, at - base)
        nodes[node, TOP] = key[base]


@kernel
def _sum(q: Any, tracked: Tracked) -> int:
    """The weight that has reached a query's nodes."""
    total = 0
    for k in range(tracked.pieces.first[q], tracked.pieces.first[q + 1]):
        total += tracked.heaps.nodes[tracked.pieces.node[k], COUNT]
    return total


@kernel
def totals(tracked: Tracked, queries: Int, out: Int) -> None:
    """Fill the weight that each of some queries has counted here."""
    for i in range(queries.size):
        out[i] = _sum(queries[i], tracked)


@kernel
def _drop_top(nodes: Int, key: Int, piece: Short, place: Short, node: Any) -> None:
    """Take the top off the heap of a node."""
    base, last = nodes[node, BASE], nodes[node, SIZE] - 1
    nodes[node, SIZE] = last
    key[base], piece[base] = key[base + last], piece[base + last]
    place[piece[base]] = base
    _sink(key, piece, place, base, last, 0)


@kernel
def _sink(key: Int, piece: Short, place: Short, base: Any, size: Any, at: Any) -> None:
    """Move an entry down to where it belongs."""
    moved, owner, child = key[base + at], piece[base + at], 2 * at + 1
    while child < size:
        if child + 1 < size and key[base + child + 1] < key[base + child]:
            child += 1
        if key[base + child] >= moved:
            break
        key[base + at], piece[base + at] = key[base + child], piece[base + child]
        place[piece[base + at]] = base + at
        at, child = child, 2 * child + 1
    key[base + at], piece[base + at] = moved, owner
    place[owner] = base + at


@kernel
def _rise(key: Int, piece: Short, place: Short, base: Any, at: Any) -> None:
    """Move an entry up to where it belongs."""
    moved, owner = key[base + at], piece[base + at]
    while at > 0 and key[base + ((at - 1) >> 1)] > moved:
        above = (at - 1) >> 1
        key[base + at], piece[base + at] = key[base + above], piece[base + above]
        place[piece[base + at]] = base + at
        at = above
    key[base + at], piece[base + at] = moved, owner
    place[owner] = base + at
