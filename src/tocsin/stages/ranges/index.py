"""Range thresholding: standing queries that each tell when enough weight has fallen into their range.

Idea: requests wait in a queue until the next batch is pushed, so that they take effect between its elements. Queries
are looked at when they may have matured (`looks`). One that was looked at in vain too often moves to the structure of
the paper (`tracking`), where no stream makes a query cost much.
Guarantee: exact. A query counts the elements that come after its registration and lie in its closed range. It matures
at the first element where its total reaches its threshold, is given once, and is gone. No cut into batches shows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from tocsin.errors import RunError
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.runtime.state_codec import pack, unpack
from tocsin.stages.ranges.held import Held
from tocsin.stages.ranges.journal import COLUMNS, Journal
from tocsin.stages.ranges.queries import Queries, together
from tocsin.stages.ranges.requests import Elements, Matured, Queue, Requests, as_ids, in_order
from tocsin.stages.ranges.tracking import Tracking

# Queries that got tired move between stretches of so many elements.
STRETCH = 8192
_FOREVER = np.iinfo(np.int64).max


class RangeIndex:
    """Index of range queries with thresholds over points of `dims` dimensions.

    Examples
    --------
    >>> index = RangeIndex()
    >>> index.register(ids=[7, 8], low=[100, 0], high=[105, 99], threshold=[1000, 1])
    >>> index.push(values=[101, 104.5, 106], weights=[400, 700, 9])
    Matured(id=array([7]), index=array([1]), total=array([1100]))
    >>> index.progress([7, 8])
    array([-1,  0])
    """

    def __init__(self, dims: int = 1) -> None:
        self._queue = Queue(dims)
        self.dims = self._queue.dims
        self._held = Held(self.dims)
        self._tracking: Tracking | None = None
        self._journal: Journal | None = None

    def register(
        self, ids: ArrayLike, low: ArrayLike, high: ArrayLike, threshold: ArrayLike, at: ArrayLike | None = None
    ) -> None:
        """Register queries before element `at` of the next batch. Ranges are closed and can be infinite."""
        self._queue.register(ids, low, high, threshold, at, self._knows)

    def terminate(self, ids: ArrayLike, at: ArrayLike | None = None) -> None:
        """Terminate queries before element `at` of the next batch. Queries that are not active are ignored."""
        self._queue.terminate(ids, at)

    def push(self, values: ArrayLike, weights: ArrayLike | None = None) -> Matured:
        """Process a batch of elements with the pending requests, and return the matured queries."""
        return in_order(self._push(self._queue.elements(values, weights), self._queue.take()))

    def progress(self, ids: ArrayLike) -> Int:
        """Return the total weight of each query: 0 if it is pending, -1 if it does not exist."""
        asked = as_ids("progress", ids)
        totals = self._totals(asked)
        if self._queue:
            totals[(totals < 0) & self._queue.awaits(asked)] = 0
        return totals

    def __len__(self) -> int:
        """Return the number of active queries. Pending queries are not active yet."""
        return len(self._held) + (len(self._tracking) if self._tracking else 0)

    def alive(self) -> Queries:
        """Return all active queries in order of registration."""
        queries = self._held.alive()
        if self._tracking:
            queries = together([queries, self._tracking.alive()])
            queries = queries.at(np.argsort(queries.order))
        return queries

    def snapshot(self) -> bytes:
        """Return the active queries and the pending requests as one page of state."""
        alive = self.alive()
        columns = {name: getattr(alive, name) for name in COLUMNS}
        return pack({**columns, **self._queue.pack()}, kind="ranges", dims=self.dims)

    @classmethod
    def restore(cls, data: bytes) -> RangeIndex:
        """Return the index of a page that `snapshot` returned."""
        arrays, facts = unpack(data)
        if facts.get("kind") != "ranges":
            message = f"state page must belong to a range index; its kind is {facts.get('kind')}"
            raise RunError(message)
        index = cls(facts["dims"])
        index._queue = Queue.unpack(index.dims, arrays)
        index._add(*(arrays[name] for name in COLUMNS))
        return index

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the pages of state that changed since the last call, and None for removed pages.

        The first call returns all pages and starts the journal of batches.
        """
        if self._journal is None:
            self._journal = Journal(self.dims)
        return self._journal.changed(self.alive, self._queue.pack())

    @classmethod
    def from_pages(cls, pages: Mapping[str, bytes]) -> RangeIndex:
        """Return the index of the pages that all calls of `changed_pages` returned, by name."""
        journal, waiting, parts = Journal.read(pages)
        index = cls(journal.dims)
        base = next(parts)
        if base is not None:
            index._add(*base)
        for elements, requests in parts:
            index._push(elements, requests)
        index._queue = Queue.unpack(index.dims, waiting)
        index._journal = journal
        return index

    def _add(self, ids: Int, low: Float, high: Float, threshold: Int, total: Int) -> None:
        """Register many queries at once, that may have some total already."""
        order, rounds = self._held.number + np.arange(len(ids)), np.zeros(len(ids), np.int32)
        self._held.add(Queries(ids, order, low, high, threshold, total, rounds))

    def _push(self, elements: Elements, requests: Requests) -> list[Int]:
        """Take a batch; give rows of what matured: id, index, total, number of registration."""
        if self._journal is not None:
            self._journal.note(elements, requests)
        requests = self._begin(requests)
        count = len(elements.weights)
        if count <= STRETCH:
            return self._take(elements, requests)
        found = []
        for start in range(0, count, STRETCH):
            stop = min(start + STRETCH, count)
            part = Elements(elements.values[start:stop], elements.weights[start:stop])
            # What takes effect behind the last element does so now, not before the next batch.
            asked = requests.between(start, stop if stop < count else _FOREVER)
            for rows in self._take(part, asked._replace(at=asked.at - start)):
                rows[:, 1] += start
                found.append(rows)
        return found

    def _begin(self, requests: Requests) -> Requests:
        """Register a long run of queries in front of the first element at once; give the other requests."""
        enough = 4096 + len(self) // 4
        run = requests.run_of_registrations() if len(requests.at) >= enough else 0
        if run < enough:
            return requests
        first, others = requests.split(run)
        self._add(first.id, first.low, first.high, first.threshold, np.zeros(run, dtype=np.int64))
        return others

    def _take(self, elements: Elements, requests: Requests) -> list[Int]:
        """Take a stretch of elements; give rows of what matured: id, index, total, number of registration."""
        found = self._held.take(elements, requests)
        if self._tracking:
            found += self._tracking.take(elements, requests.terminations())
        tired = self._held.give_up()
        if tired is not None:
            self._tracking = self._tracking or Tracking(self.dims)
            self._tracking.add(tired)
        return found

    def _totals(self, ids: Int) -> Int:
        totals = self._held.totals(ids)
        return np.maximum(totals, self._tracking.totals(ids)) if self._tracking else totals

    def _knows(self, ids: Int) -> Bools:
        known = self._held.knows(ids)
        return known | self._tracking.knows(ids) if self._tracking else known
