"""One endpoint tree with its queries. They stand in order of their lower ends, so that neighbours share memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tocsin.runtime.contract import Bools, Int
from tocsin.stages.ranges.queries import Queries
from tocsin.stages.ranges.requests import Elements
from tocsin.stages.ranges.rounds import Found, Tracked, feed, totals, track

# A count in a tree never exceeds the weight that the tree has seen; a key exceeds a count by at most 2^60.
_MOST_WEIGHT = 1 << 61


@dataclass
class Tree:
    """Queries that are tracked together; `total` of a query is what it had counted when the tree was built."""

    queries: Queries
    by_id: Int
    tracked: Tracked
    alive: int
    weight: int = 0

    @classmethod
    def plant(cls, queries: Queries, counters: Int) -> Tree:
        """Build a tree over queries."""
        queries = queries.at(np.argsort(queries.low[:, 0]))
        return cls(queries, np.argsort(queries.id), track(queries, counters), len(queries.id))

    def find(self, ids: Int) -> tuple[Int, Bools]:
        """Give the row of each id, and whether it is there and alive."""
        position = self.queries.id.searchsorted(ids, sorter=self.by_id)
        row = self.by_id[np.minimum(position, len(self.by_id) - 1)]
        return row, (self.queries.id[row] == ids) & self.tracked.rounds.alive[row]

    def totals(self, rows: Int) -> Int:
        """Give what queries have counted since their registration."""
        out = np.empty(len(rows), np.int64)
        totals(self.tracked, rows, out)
        return self.queries.total[rows] + out

    def feed(self, elements: Elements, ends: tuple[Int, Int], counters: Int) -> tuple[Int, Int, Int]:
        """Take elements; give the rows that mature, at which element and with which total."""
        found = Found(*(np.empty(self.alive, np.int64) for _ in range(3)))
        count = feed(self.tracked, elements, ends, found, counters)
        row, at, over = (column[:count] for column in found)
        if count or len(ends[0]):
            self.alive = int(np.count_nonzero(self.tracked.rounds.alive))
        self.weight += int(elements.weights.sum())
        return row, at, self.queries.threshold[row] + over

    @property
    def worn(self) -> bool:
        """Whether the tree should be built anew: a third of its queries are gone, or its counts grow too large."""
        return 3 * self.alive <= 2 * len(self.queries.id) or self.weight >= _MOST_WEIGHT

    def survivors(self) -> Queries:
        """Give the queries that are alive, with what they have counted by now."""
        rows = np.flatnonzero(self.tracked.rounds.alive)
        return self.queries.at(rows)._replace(total=self.totals(rows))
