"""The guarantee of distributed tracking, on streams that an adversary makes: few rounds, few signals, little memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from tocsin.stages.ranges.rounds import BASE, COUNT, NO_KEY, SIZE, TOP, Rounds, Tracked
from tocsin.stages.ranges.tracking import Tracking
from tocsin.stages.ranges.tree import Tree

COUNT_OF_QUERIES = 40
# The paper: at a lack of 6h or less, nodes signal every change, and each is at least 1.
IN_THE_LAST_ROUND = 6


def planted(low: ArrayLike, high: ArrayLike, threshold: ArrayLike, dims: int = 1) -> tuple[Tracking, Tree]:
    """One tree with queries 0, 1, 2, ..."""
    index = Tracking(dims, listed=0)
    index.register(np.arange(len(np.asarray(low))), low, high, threshold)
    index.push(np.zeros((0, dims)))
    (tree,) = (tree for tree in index._trees if tree is not None)
    return index, tree


def sizes(tracked: Tracked) -> np.ndarray:
    """How many canonical nodes each query has."""
    return np.diff(tracked.pieces.first)


def bound(threshold: int) -> float:
    return math.log(threshold, 1.5) + 1


def keys_of(tree: Tree, q: int) -> tuple[np.ndarray, np.ndarray]:
    """The counts of a query's nodes, and those at which they owe it their next signals."""
    own = slice(tree.tracked.pieces.first[q], tree.tracked.pieces.first[q + 1])
    heaps = tree.tracked.heaps
    return heaps.nodes[tree.tracked.pieces.node[own], COUNT], heaps.key[heaps.place[own]]


# An adversary sees everything and chooses the node of query 0 that is hit next, and the weight.
Adversary = Callable[[np.ndarray, np.ndarray, Rounds], tuple[int, int]]


def one_signal_at_each_element(counts: np.ndarray, keys: np.ndarray, _: Rounds) -> tuple[int, int]:
    node = int(np.argmin(keys - counts))
    return node, int(keys[node] - counts[node])


def all_at_one_node(counts: np.ndarray, keys: np.ndarray, _: Rounds) -> tuple[int, int]:
    return 0, int(keys[0] - counts[0])


def as_much_as_possible_without_a_signal(counts: np.ndarray, keys: np.ndarray, _: Rounds) -> tuple[int, int]:
    node = int(np.argmax(keys - counts))
    return node, int(max(keys[node] - counts[node] - 1, 1))


def two_slacks_at_once(counts: np.ndarray, keys: np.ndarray, rounds: Rounds) -> tuple[int, int]:
    node = int(np.argmax(counts))
    return node, int(keys[node] - counts[node] + max(rounds.slack[0], 1))


@pytest.mark.parametrize("threshold", [1, 7, 300, 10**6, 1 << 40])
@pytest.mark.parametrize(
    "adversary", [one_signal_at_each_element, all_at_one_node, as_much_as_possible_without_a_signal, two_slacks_at_once]
)
def test_no_adversary_makes_many_rounds_or_signals(adversary: Adversary, threshold: int) -> None:
    low = [0.0, *(float(i) for i in range(1, COUNT_OF_QUERIES))]
    index, tree = planted(low, [float(COUNT_OF_QUERIES)] * len(low), [threshold, *[1 << 60] * (len(low) - 1)])
    rounds, h = tree.tracked.rounds, int(sizes(tree.tracked)[0])
    assert tree.queries.id[0] == 0
    assert h > 1
    inside = points_of_nodes(tree, 0)
    total = signals = ended = 0
    while rounds.alive[0]:
        slack, lack, before = int(rounds.slack[0]), int(rounds.lack[0]), int(rounds.rounds[0])
        counts, keys = keys_of(tree, 0)
        node, weight = adversary(counts, keys, rounds)
        matured = index.push([inside[node]], [weight])
        total += weight
        assert (total >= threshold) == (matured.id.tolist() == [0])
        owed = 1 + (int(counts[node]) + weight - int(keys[node])) // slack if slack else 1
        signals = 0 if rounds.rounds[0] > before else signals + max(owed, 0)
        assert signals < (h if slack else IN_THE_LAST_ROUND * h)
        if rounds.rounds[0] > before and slack and rounds.alive[0]:
            ended += 1
            assert 3 * int(rounds.lack[0]) <= 2 * lack
    assert ended + 1 >= rounds.rounds[0]
    assert rounds.rounds[0] <= bound(threshold)


def points_of_nodes(tree: Tree, q: int) -> list[float]:
    """A point below each canonical node of a query: found by trying all elementary intervals."""
    index, points = tree.tracked, {}
    own = index.pieces.node[index.pieces.first[q] : index.pieces.first[q + 1]].tolist()
    for point in index.layers.ends[:-1].tolist():
        leaf = int(np.searchsorted(index.layers.ends, point, side="right")) - 1 + len(index.layers.ends) - 1
        while leaf:
            if int(index.layers.below[leaf]) in own:
                points[int(index.layers.below[leaf])] = point
            leaf >>= 1
    return [points[node] for node in own]


def test_a_hot_point_just_outside_every_range_costs_nothing() -> None:
    low = [float(i) for i in range(100)]
    index, _ = planted(low, [at + 0.5 for at in low], [1000] * len(low))
    before = index.counts()
    hot = np.array([np.nextafter(50.5, np.inf), np.nextafter(50.0, 0.0), -1.0, 99.75] * 500)
    assert len(index.push(hot, np.full(len(hot), 1 << 40)).id) == 0
    assert index.counts() == before


def test_a_hot_point_in_one_range_costs_its_neighbours_nothing() -> None:
    low = [float(i) for i in range(100)]
    index, tree = planted([*low, 0.0], [at + 0.5 for at in low] + [100.0], [1000] * len(low) + [10**9])
    (row,), _ = tree.find(np.array([100]))
    before, wide = index.counts(), int(sizes(tree.tracked)[row])
    assert index.push([50.75] * 2000, [500_000] * 2000).id.tolist() == [100]
    spent = {name: count - before[name] for name, count in index.counts().items()}
    assert spent["rounds"] <= bound(10**9)
    assert spent["signals"] <= wide * spent["rounds"]
    assert spent["heap_operations"] <= spent["signals"] + spent["changes"] + wide * (spent["rounds"] + 1)


def test_all_queries_may_mature_on_one_element() -> None:
    generator = np.random.default_rng(3)
    low, high = -generator.random(500), generator.random(500)
    threshold = generator.integers(1, 1 << 40, 500)
    index, tree = planted(low, high, threshold)
    before, pieces = index.counts(), int(sizes(tree.tracked).sum())
    matured = index.push([5.0, 0.0, 0.0], [1, 1 << 40, 1])
    assert matured.id.tolist() == list(range(500))
    assert set(matured.index.tolist()) == {1}
    assert set(matured.total.tolist()) == {1 << 40}
    spent = {name: count - before[name] for name, count in index.counts().items()}
    assert spent["rounds"] == 500
    assert spent["signals"] + spent["changes"] <= pieces
    # Each query is looked at once, and once more when its entry leaves the heap.
    assert spent["heap_operations"] == 1000
    assert len(index) == 0


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("heaviest", [1, 50, 1 << 20])
def test_signals_rounds_and_heap_operations_stay_below_what_the_paper_counts(heaviest: int, dims: int) -> None:
    generator = np.random.default_rng(heaviest)
    ends = np.sort(generator.integers(0, 50, (2, 120, dims)).astype(float), axis=0)
    ends[1] += 10
    index, tree = planted(*ends, generator.integers(1, 1000 * heaviest, 120), dims)
    h, rounds, threshold = sizes(tree.tracked), tree.tracked.rounds.rounds, tree.queries.threshold
    index._rebuild = lambda: None  # type: ignore[method-assign]  # one tree from the first to the last element
    while len(index):
        weights = generator.integers(1, heaviest + 1, 512)
        index.push(generator.integers(0, 60, (512, dims)).astype(float), weights)
        assert_sound(tree.tracked)
    spent = index.counts()
    assert (rounds <= np.log(threshold) / math.log(1.5) + 1).all()
    assert spent["rounds"] == rounds.sum()
    assert spent["signals"] <= (h * rounds).sum()
    assert spent["changes"] <= IN_THE_LAST_ROUND * h.sum()
    # An entry is put once, moved for each signal and at each end of a round, and taken once.
    assert spent["heap_operations"] <= spent["signals"] + spent["changes"] + (h * (rounds + 2)).sum()


def assert_sound(tracked: Tracked) -> None:
    """Heaps are heaps, pieces know their places, and no alive query is owed a signal."""
    nodes, key, piece, place = tracked.heaps
    alive = np.repeat(tracked.rounds.alive, sizes(tracked))
    assert (key[place[alive]] > nodes[tracked.pieces.node[alive], COUNT]).all()
    assert (piece[place[alive]] == np.flatnonzero(alive)).all()
    for count, top, base, size in nodes[:, [COUNT, TOP, BASE, SIZE]].tolist():
        own = key[base : base + size]
        assert (own[(np.arange(1, size) - 1) >> 1] <= own[1:]).all()
        assert top == (own[0] if size else NO_KEY)
        assert count >= 0


@given(
    steps=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 20)), max_size=12),
    dims=st.integers(1, 2),
)
def test_trees_keep_their_ranks_and_lose_less_than_a_third(steps: list[tuple[int, int, int]], dims: int) -> None:
    generator, index, known = np.random.default_rng(0), Tracking(dims, listed=0), 0
    for new, ended, elements in steps:
        ends = np.sort(generator.integers(0, 9, (2, new, dims)).astype(float), axis=0)
        index.register(np.arange(known, known + new), ends[0], ends[1], np.full(new, 8))
        known += new
        index.terminate(generator.integers(0, max(known, 1), ended))
        index.push(generator.integers(0, 9, (elements, dims)).astype(float))
        for rank, tree in enumerate(index._trees):
            if tree is not None:
                assert tree.alive == np.count_nonzero(tree.tracked.rounds.alive) <= 1 << rank
                assert 2 * len(tree.queries.id) < 3 * tree.alive
                assert_sound(tree.tracked)
        assert len(index._trees) <= math.log2(max(known, 1)) + 2


def test_rounds_stay_few_while_trees_are_built_anew_again_and_again() -> None:
    index, generator = Tracking(1, listed=0), np.random.default_rng(5)
    for number in range(200):
        low = float(generator.integers(0, 50))
        index.register([number], [low], [low + 50], [20_000])
        index.push(generator.integers(0, 100, 20).astype(float), generator.integers(1, 100, 20))
    assert len(index) < 200
    assert index.counts()["most_rounds"] <= bound(20_000)
