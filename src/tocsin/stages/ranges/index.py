"""Range thresholding: standing queries that each tell when enough weight has fallen into their range.

Idea: requests wait in a queue until the next batch is pushed, so that they take effect between its elements. What holds
the queries depends on the number of dimensions: `looks` for one, `looks2` for more.
Guarantee: exact. A query counts the elements that come after its registration and lie in its closed range. It matures
at the first element where its total reaches its threshold, is given once, and is gone. No cut into batches shows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tocsin.errors import RunError
from tocsin.logic import Int
from tocsin.pages import pack, unpack
from tocsin.stages.ranges.looks import Looks
from tocsin.stages.ranges.looks2 import Looks2
from tocsin.stages.ranges.requests import Matured, Queue, as_ids

_COLUMNS = ("id", "low", "high", "threshold", "total")


class RangeIndex:
    """Standing queries over points of `dims` dimensions.

    >>> index = RangeIndex()
    >>> index.register(ids=[7, 8], low=[100, 0], high=[105, 99], threshold=[1000, 1])
    >>> index.push(values=[101, 104.5, 106], weights=[400, 700, 9])
    Matured(id=array([7]), index=array([1]), total=array([1100]))
    >>> index.progress([7, 8])
    array([-1,  0])
    """

    def __init__(self, dims: int = 1) -> None:
        self.dims = dims
        self._queue = Queue(dims)
        self._held: Looks | Looks2 = Looks() if dims == 1 else Looks2(dims)

    def register(
        self, ids: ArrayLike, low: ArrayLike, high: ArrayLike, threshold: ArrayLike, at: ArrayLike | None = None
    ) -> None:
        """Let queries begin before element `at` of the next batch; ranges are closed, and may be infinite."""
        self._queue.register(ids, low, high, threshold, at, lambda asked: self._held.totals(asked) >= 0)

    def terminate(self, ids: ArrayLike, at: ArrayLike | None = None) -> None:
        """Let queries end before element `at` of the next batch; one that is not alive then stays what it is."""
        self._queue.terminate(ids, at)

    def push(self, values: ArrayLike, weights: ArrayLike | None = None) -> Matured:
        """Take a batch of elements, with the requests that wait for it; give the queries that matured."""
        elements = self._queue.elements(values, weights)
        requests = self._queue.take()
        run = requests.run_of_registrations()
        if run >= 4096 + len(self) // 4:
            first, requests = requests.split(run)
            self._held.add(first.id, first.low, first.high, first.threshold, np.zeros(run, dtype=np.int64))
        return self._held.take(elements, requests)

    def progress(self, ids: ArrayLike) -> Int:
        """Give the total weight of each query so far: 0 if it waits, -1 if it is not there."""
        asked = as_ids("progress", ids)
        totals = self._held.totals(asked)
        if self._queue:
            totals[(totals < 0) & self._queue.awaits(asked)] = 0
        return totals

    def __len__(self) -> int:
        """Count alive queries; those that wait for the next batch are not alive yet."""
        return len(self._held)

    def snapshot(self) -> bytes:
        """Write the alive queries and the waiting requests as one page."""
        alive = dict(zip(_COLUMNS, self._held.alive(), strict=True))
        return pack({**alive, **self._queue.pack()}, kind="ranges", dims=self.dims)

    @classmethod
    def restore(cls, data: bytes) -> RangeIndex:
        """Read what `snapshot` wrote."""
        arrays, facts = unpack(data)
        if facts.get("kind") != "ranges":
            message = f"state page must be of a range index; its kind is {facts.get('kind')}"
            raise RunError(message)
        index = cls(facts["dims"])
        index._queue = Queue.unpack(index.dims, arrays)
        index._held.add(*(arrays[name] for name in _COLUMNS))
        return index
