"""Standing queries in columns, and the few new ones that are held against every element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.stages.ranges.requests import Elements


class Queries(NamedTuple):
    """Queries, one per row: `order` grows with registration, `total` is the weight counted up to some moment."""

    id: Int
    order: Int
    low: Float
    high: Float
    threshold: Int
    total: Int
    rounds: NDArray[np.int32]

    def at(self, rows: Int | Bools) -> Queries:
        """Pick rows."""
        return Queries._make(column[rows] for column in self)


def no_queries(dims: int) -> Queries:
    """Make a table without rows."""
    none, nowhere = np.zeros(0, np.int64), np.zeros((0, dims))
    return Queries(none, none, nowhere, nowhere, none, none, np.zeros(0, np.int32))


def together(parts: Iterable[Queries]) -> Queries:
    """Put tables below each other."""
    return Queries._make(np.concatenate(columns) for columns in zip(*parts, strict=True))


class Life(NamedTuple):
    """From before which element of a batch a query is alive and before which it ends; where it matured, or -1."""

    start: Int
    stop: Int
    matured: Int


@kernel
def scan(queries: Queries, life: Life, elements: Elements) -> None:
    """Hold each element against each query while it is alive."""
    values, weights = elements
    low, high = queries.low, queries.high
    for q in range(queries.id.size):
        total, threshold = queries.total[q], queries.threshold[q]
        for i in range(life.start[q], min(life.stop[q], weights.size)):
            inside = True
            for dim in range(values.shape[1]):
                inside = inside and low[q, dim] <= values[i, dim] <= high[q, dim]
            if inside:
                total += weights[i]
                if total >= threshold:
                    life.matured[q] = i
                    break
        queries.total[q] = total
