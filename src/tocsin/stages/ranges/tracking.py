"""Range thresholding by distributed tracking: near-linear time for any stream and any queries.

Idea. Queries are tracked on endpoint trees (`endpoint_tree`, `rounds`) that cannot grow. So there are several, of rank
1, 2, 3, ..., and one of rank j has at most 2^(j-1) queries (the *logarithmic method*). New queries are put together
with those of all trees up to the smallest rank that has room for all of them, and this tree is built anew; each query
then lacks what it has not counted yet. A tree of which a third of the queries are gone is built anew too. The smallest
ranks are not trees: up to `listed` queries stand in a list and are held against every element.

Trees change only between stretches of at most 1,024 elements. A query that is registered inside of one stands in the
list until its end; one that is terminated inside is marked and leaves with the end.
*Guarantee*: exact, whatever the weights, and however the stream is cut into batches. Per query at most
log_1.5 threshold + 1 rounds; memory O(alive log^d alive) at all times.
*Cost*: amortised O(log^(d+1) m) per element and O(log^(d+1) m log threshold) per query.
*Source*: Qiao, Gan, Tao, Range Thresholding on Streams, SIGMOD 2016, sections 4 to 7. We differ: the list, the
stretches, registration of many queries at once, and trees built anew when a third of the queries are gone (the paper:
half), which costs a tenth more time and saves a quarter of the memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tocsin.runtime.contract import Bools, Int
from tocsin.runtime.state_codec import pack, unpack
from tocsin.stages.ranges.queries import Life, Queries, no_queries, scan, together
from tocsin.stages.ranges.requests import Elements, Matured, Queue, Requests, as_ids, in_order
from tocsin.stages.ranges.rounds import COUNTED
from tocsin.stages.ranges.tree import Tree

STRETCH = 1024
LISTED = 256
_FOREVER = np.iinfo(np.int64).max


class Tracking:
    """Standing range queries, tracked as in the paper."""

    def __init__(self, dims: int = 1, *, listed: int = LISTED) -> None:
        self.dims = dims
        self.listed = listed
        self.counters = np.zeros(len(COUNTED), np.int64)
        self._queue = Queue(dims)
        self._list = no_queries(dims)
        self._trees: list[Tree | None] = []
        self._registered = 0

    def register(
        self, ids: ArrayLike, low: ArrayLike, high: ArrayLike, threshold: ArrayLike, at: ArrayLike | None = None
    ) -> None:
        """Register queries just before element `at` of the next batch."""
        self._queue.register(ids, low, high, threshold, at, self.knows)

    def terminate(self, ids: ArrayLike, at: ArrayLike | None = None) -> None:
        """End queries just before element `at` of the next batch; ids that are not alive then are passed over."""
        self._queue.terminate(ids, at)

    def push(self, values: ArrayLike, weights: ArrayLike | None = None) -> Matured:
        """Take a batch of elements, and give the queries that mature in it."""
        elements = self._queue.elements(values, weights)
        return in_order(self.take(elements, self._queue.take()))

    def take(self, elements: Elements, requests: Requests) -> list[Int]:
        """Take a batch and the requests in it; give rows of what matured: id, index, total, number."""
        found: list[Int] = []
        count = len(elements.weights)
        for start in range(0, max(count, 1), STRETCH):
            stop = min(start + STRETCH, count)
            part = Elements(elements.values[start:stop], elements.weights[start:stop])
            # What takes effect behind the last element does so now, not before the next batch.
            until = _FOREVER if stop == count else stop
            self._stretch(part, requests.between(start, until), start, found)
        return found

    def add(self, queries: Queries) -> None:
        """Take queries over that were registered elsewhere and have counted something."""
        self._list = together([self._list, queries])
        self._registered = max(self._registered, int(queries.order.max(initial=-1)) + 1)
        if len(self._list.id) > self.listed:
            self._plant_list()

    def progress(self, ids: ArrayLike) -> Int:
        """Give the weight that queries have counted so far; 0 for one that waits, -1 for one that is unknown."""
        asked = as_ids("progress", ids)
        totals = self.totals(asked)
        totals[(totals < 0) & self._queue.awaits(asked)] = 0
        return totals

    def totals(self, asked: Int) -> Int:
        """Give the total of each id, -1 where it is not alive."""
        totals = np.full(len(asked), -1)
        for tree in self._present():
            row, there = tree.find(asked)
            totals[there] = tree.totals(row[there])
        position, there = _find(self._list.id, asked)
        totals[there] = self._list.total[position[there]]
        return totals

    def __len__(self) -> int:
        """Tell how many queries are alive."""
        return len(self._list.id) + sum(tree.alive for tree in self._present())

    def counts(self) -> dict[str, int]:
        """Give how many signals, rounds and changes of heaps there were."""
        return dict(zip(COUNTED, self.counters.tolist(), strict=True))

    def alive(self) -> Queries:
        """Give all alive queries."""
        return together([self._list, *(tree.survivors() for tree in self._present())])

    def snapshot(self) -> bytes:
        """Write the alive queries with what they counted, and the requests that wait."""
        alive = self.alive()
        arrays = {**alive._asdict(), "rounds": alive.rounds.astype(np.int64), "counters": self.counters}
        arrays |= self._queue.pack()
        return pack(arrays, dims=self.dims, listed=self.listed, registered=self._registered)

    @classmethod
    def restore(cls, data: bytes) -> Tracking:
        """Read what `snapshot` wrote; all trees become one."""
        arrays, facts = unpack(data)
        tracking = cls(facts["dims"], listed=facts["listed"])
        tracking.counters, tracking._registered = arrays["counters"], facts["registered"]
        tracking._queue = Queue.unpack(facts["dims"], arrays)
        queries = Queries._make(arrays[name] for name in Queries._fields)
        tracking._list = queries._replace(rounds=queries.rounds.astype(np.int32))
        if len(queries.id) > tracking.listed:
            tracking._plant_list()
        return tracking

    def knows(self, ids: Int) -> Bools:
        """Tell which ids are alive."""
        known = _find(self._list.id, ids)[1]
        for tree in self._present():
            known |= tree.find(ids)[1]
        return known

    def _present(self) -> list[Tree]:
        return [tree for tree in self._trees if tree is not None]

    def _stretch(self, elements: Elements, requests: Requests, start: int, found: list[Int]) -> None:
        """Take elements; many queries that come just before the first of them go into a tree before it."""
        if len(requests.at):
            requests = requests._replace(at=requests.at - start)
            first = requests.between(0, 1)
            if not len(elements.weights) or np.count_nonzero(first.is_registration) > self.listed:
                self._step(Elements(elements.values[:0], elements.weights[:0]), first, start, found)
                requests = requests.between(1, _FOREVER)
        if len(elements.weights):
            self._step(elements, requests, start, found)

    def _step(self, elements: Elements, requests: Requests, start: int, found: list[Int]) -> None:
        """Let requests take effect among elements, and the list and the trees take these."""
        ids, at = requests.id[:0], requests.at[:0]
        if len(requests.at) or len(self._list.id):
            life = self._enlist(requests)
            ids, at = self._strike(requests, life)
            self._registered += len(requests.at)
            self._scan_list(elements, life, start, found)
        for tree in self._present():
            row, there = tree.find(ids) if len(ids) else (ids, slice(0))
            row, when, total = tree.feed(elements, (row[there], at[there]), self.counters)
            if len(row):
                columns = (tree.queries.id[row], when + start, total, tree.queries.order[row])
                found.append(np.stack(columns, axis=1))
        self._rebuild()
        if len(self._list.id) > self.listed:
            self._plant_list()

    def _enlist(self, requests: Requests) -> Life:
        """Put new queries into the list; give from when and until when its queries live."""
        known = len(self._list.id)
        rows = requests.is_registration.nonzero()[0]
        if len(rows):
            none = np.zeros(len(rows), np.int64)
            low, high, threshold = requests.low[rows], requests.high[rows], requests.threshold[rows]
            order, rounds = self._registered + rows, np.zeros(len(rows), np.int32)
            added = Queries(requests.id[rows], order, low, high, threshold, none, rounds)
            self._list = together([self._list, added])
        start = np.concatenate([np.zeros(known, np.int64), requests.at[rows]])
        return Life(start, np.full(len(start), _FOREVER), np.full(len(start), -1))

    def _strike(self, requests: Requests, life: Life) -> tuple[Int, Int]:
        """Note in `life` what is terminated in the list; give the other ids, and the elements before which they end."""
        rows = (~requests.is_registration).nonzero()[0]
        ids, at, listed = requests.id[rows], requests.at[rows], len(life.start)
        if not len(rows) or not listed:
            return ids, at
        # An id may end and come again: what stands just before a request, by id and order, is the query it means.
        id_, order = np.concatenate([self._list.id, ids]), np.concatenate([self._list.order, self._registered + rows])
        by = np.lexsort((order, id_))
        before, this = by[:-1], by[1:]
        meant = (id_[before] == id_[this]) & (before < listed) & (this >= listed)
        life.stop[before[meant]] = at[this[meant] - listed]
        others = np.delete(np.arange(len(rows)), this[meant] - listed)
        return ids[others], at[others]

    def _scan_list(self, elements: Elements, life: Life, start: int, found: list[Int]) -> None:
        """Hold elements against the list, and take out what matured or ended."""
        scan(self._list, life, elements)
        ripe = np.flatnonzero(life.matured >= 0)
        if len(ripe):
            mature = self._list.at(ripe)
            columns = (mature.id, life.matured[ripe] + start, mature.total, mature.order)
            found.append(np.stack(columns, axis=1))
        stays = (life.matured < 0) & (life.stop == _FOREVER)
        if not stays.all():
            self._list = self._list.at(stays)

    def _plant_list(self) -> None:
        """Move the list into the tree of the smallest rank that has room for it and all smaller trees."""
        moved, count, rank = [self._list], len(self._list.id), 0
        while True:
            if rank == len(self._trees):
                self._trees.append(None)
            tree = self._trees[rank]
            if tree is not None:
                count += tree.alive
                moved.append(tree.survivors())
                self._trees[rank] = None
            if count <= 1 << rank:
                break
            rank += 1
        del tree
        self._list = no_queries(self.dims)
        self._trees[rank] = Tree.plant(together(moved), self.counters)

    def _rebuild(self) -> None:
        """Build anew the trees that are worn, in their ranks."""
        for rank, tree in enumerate(self._trees):
            if tree is not None and tree.worn:
                left = tree.survivors()
                self._trees[rank] = None
                del tree
                self._trees[rank] = Tree.plant(left, self.counters) if len(left.id) else None


def _find(known: Int, ids: Int) -> tuple[Int, Bools]:
    """The position of each id among few known ones, and whether it is there."""
    if not len(known):
        return np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_)
    order = known.argsort()
    position = order[np.minimum(known.searchsorted(ids, sorter=order), len(known) - 1)]
    return position, known[position] == ids
