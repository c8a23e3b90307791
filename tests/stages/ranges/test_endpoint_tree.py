"""Canonical nodes of ranges: they cut a range into disjoint pieces, and there are few of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.stages.ranges.endpoint_tree import LEAVES, NODES, Layers, leaf_of, owner_of, plant

coordinates = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([-math.inf, math.inf, 0.5, 5e-324, -1e308]))
sides = st.tuples(coordinates, coordinates).map(sorted)


def reached(layers: Layers, point: tuple[float, ...]) -> list[int]:
    """The canonical nodes of the last layer that a point lies below."""
    trees = [0]
    for value in point:
        below: list[int] = []
        for tree in trees:
            leaf = int(leaf_of(layers, tree, value))
            node = leaf + int(layers.trees[tree, LEAVES]) if leaf >= 0 else 0
            while node:
                below.append(int(layers.below[layers.trees[tree, NODES] + node]))
                node >>= 1
        trees = [borne for borne in below if borne >= 0]
    return trees


@pytest.mark.parametrize("dims", [1, 2, 3])
@given(data=st.data())
def test_a_point_lies_below_one_canonical_node_of_each_range_that_holds_it_and_of_no_other(
    dims: int, data: st.DataObject
) -> None:
    boxes = data.draw(st.lists(st.tuples(*[sides] * dims), min_size=1, max_size=12))
    points = data.draw(st.lists(st.tuples(*[coordinates.filter(math.isfinite)] * dims), max_size=12))
    low, high = (np.array([[side[end] for side in box] for box in boxes]) for end in (0, 1))
    layers, pieces, _ = plant(low, high)
    for point in points:
        nodes = reached(layers, point)
        for q, box in enumerate(boxes):
            own = pieces.node[pieces.first[q] : pieces.first[q + 1]].tolist()
            inside = all(side[0] <= value <= side[1] for side, value in zip(box, point, strict=True))
            assert sum(node in own for node in nodes) == int(inside)
    owners = [int(owner_of(pieces, piece)) for piece in range(len(pieces.node))]
    assert owners == np.repeat(np.arange(len(boxes)), np.diff(pieces.first)).tolist()


@pytest.mark.parametrize("dims", [1, 2])
def test_a_range_has_at_most_two_canonical_nodes_per_level(dims: int) -> None:
    count = 200
    ends = np.sort(np.random.default_rng(1).random((2, count, dims)), axis=0)
    _, pieces, _ = plant(ends[0], ends[1])
    levels = math.floor(math.log2(2 * count)) + 1
    assert np.diff(pieces.first).max() <= (2 * levels) ** dims


def test_a_range_without_finite_points_has_no_canonical_nodes() -> None:
    low, high = np.array([[math.inf], [-math.inf], [0.0]]), np.array([[math.inf], [-math.inf], [0.0]])
    layers, pieces, _ = plant(low, high)
    assert not np.diff(pieces.first)[:1].any()
    assert reached(layers, (0.0,)) == pieces.node[pieces.first[2] : pieces.first[3]].tolist()
