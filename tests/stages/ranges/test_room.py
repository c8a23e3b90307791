"""Memory follows the queries that are alive, however many came and went."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tocsin.stages.ranges.index import RangeIndex


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
