"""Memory follows the queries that are alive, however many came and went."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tocsin.stages.ranges.index import RangeIndex
from tocsin.stages.ranges.shelves import ALIVE, SLOTS
from tocsin.stages.ranges.shelving import squeeze


def size_of(thing: Any) -> int:
    """The bytes of all arrays that something holds."""
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, tuple | list):
        return sum(map(size_of, thing))
    return sum(map(size_of, vars(thing).values())) if hasattr(thing, "__dict__") else 0


@pytest.mark.parametrize("dims", [1, 2])
def test_queries_that_come_again_and_again_take_no_more_room(dims: int) -> None:
    drawn = np.random.default_rng(1)
    count = 2_000
    low = np.floor(drawn.uniform(0, 900, (count, dims)))
    index, sizes, matured = RangeIndex(dims), [], 0
    index.register(np.arange(count), low, low + 100, drawn.integers(1, 50, count))
    for _ in range(60):
        ids = index.push(np.floor(drawn.uniform(0, 1000, (500, dims)))).id
        matured += len(ids)
        if len(ids):
            index.register(ids, low[ids], low[ids] + 100, drawn.integers(1, 50, len(ids)))
        sizes.append(size_of(index))
    assert matured > 5 * count
    assert max(sizes[30:]) <= 1.5 * max(sizes[:10])


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_when_most_queries_end_their_room_is_given_back_before_many_elements_come(dims: int) -> None:
    drawn = np.random.default_rng(2)
    count, left = 40_000, 40
    low = drawn.uniform(0, 900, (count, dims))
    index, few = RangeIndex(dims), RangeIndex(dims)
    index.register(np.arange(count), low, low + 100, 1 << 50)
    index.push(np.zeros((0, dims)))
    full = size_of(index)
    index.terminate(np.arange(left, count))
    few.register(np.arange(left), low[:left], low[:left] + 100, 1 << 50)
    for one in (index, few):
        for _ in range(3):
            one.push(np.zeros((1, dims)))
    assert len(index) == left
    # What an index has by itself, however few queries it holds.
    by_itself = size_of(few)
    assert size_of(index) <= by_itself + 1000 * left + 500_000
    assert size_of(index) < full / 3


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("later", [0, 50])
def test_queries_that_move_together_keep_what_they_have(dims: int, later: int) -> None:
    drawn = np.random.default_rng(3)
    low, high = (drawn.integers(0, 50, (400, dims)) * scale for scale in (1.0, 2.0))
    high, threshold = np.maximum(low, high), drawn.integers(1, 3000, 400)
    index = RangeIndex(dims)
    index.register(np.arange(400 - later), low[later:], high[later:], threshold[later:])
    index.push(drawn.integers(0, 100, (100, dims)).astype(float))
    # All that are there stand region by region.
    index = RangeIndex.restore(index.snapshot())
    if later:
        # Their shelves stand behind those of other regions, so that slots are not in the order of regions.
        ids = np.arange(400 - later, 400)
        index.register(ids, low[:later], high[:later], threshold[:later], at=np.arange(later))
        index.push(drawn.integers(0, 100, (later, dims)).astype(float))
    for _ in range(4 if not later else 1):
        index.terminate(drawn.integers(0, 400, 60))
        index.push(drawn.integers(0, 100, (20, dims)).astype(float), drawn.integers(1, 20, 20))
        before, held = index.alive(), index._held
        queries = held.rack.queries
        held.rack = squeeze(held.rack)
        assert (held.rack.queries is queries) == (not later)
        assert held.rack.counts[SLOTS] == held.rack.counts[ALIVE] == len(before.id)
        for column, was in zip(index.alive(), before, strict=True):
            assert column.tolist() == was.tolist()
        assert index.progress(before.id).tolist() == before.total.tolist()
