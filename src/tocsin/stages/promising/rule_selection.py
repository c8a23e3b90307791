"""A standing selection whose queries are the ranges of rules: what it finds is looked at once more by who asks.

Idea: a range holds all that can make a rule true, and more. So a tuple that is given out is a candidate, and how many
results candidates of each cell give is told (`price`); it weighs in what promises most and in what a candidate costs.
Cells that promise nearly the same come in an order that is drawn, else those of one rule would always come first, and
the others never. Tuples go when all queries have worked on them, at moments that are told.
Guarantee: that of `StandingSelection`. What the cells of tuples are is not written: bins are known where they are.
Cost: that of `StandingSelection`; a state that is written has summaries of two zones, cells that wait, and the tuples
that these are of.
Source: Ali, Aref, ElTabakh, section 4.2; candidates, their price, and the drawn order are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import Float, Int
from tocsin.stages.promising.books import CREDIT, EXPECTED, IDLE, Costs, Pace, charge
from tocsin.stages.promising.by_column import ByColumn
from tocsin.stages.promising.join_state import changing_of, linked, queue_arrays, queue_from
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.selecting import Terms, keep_reachable
from tocsin.stages.promising.selection import PROMISES, Query, StandingSelection
from tocsin.stages.promising.stored import COUNT, OLDEST, PENDING, Rows, let_go

_ROOM = 1024


class Candidates(NamedTuple):
    """Tuples given out: which query each is for, and its number of arrival."""

    query: Int
    row: Int


class RuleSelection(StandingSelection):
    """Standing ranges of rules over one stream, each of one of its columns."""

    def __init__(
        self,
        layout: Layout,
        queries: Sequence[Query],
        columns: Sequence[int],
        pace: Pace,
        *,
        costs: Costs,
        terms: Terms,
    ) -> None:
        super().__init__(layout, queries, PROMISES["tuples"], pace, costs=costs, terms=terms)
        scheme = layout.scheme
        assert isinstance(scheme, ByColumn)
        ranges = zip(self.queries, columns, strict=True)
        self.standing.part[:] = [scheme.meets(query.low, query.high, column) for query, column in ranges]

    def take_rows(self, times: Int, values: Float, bins: Int) -> Candidates:
        """Take tuples in order of time, which lie in these bins; not more than some thousand at once."""
        found = self._take(times, np.stack([values, np.zeros(len(values))], axis=1), bins)
        return _candidates(found)

    def work(self, units: float) -> Candidates:
        """Offer what came since the last turn, and work on without arrivals."""
        candidates = self.rest(units)
        self.reported = self.reported[:0]
        return _candidates([candidates])

    def price(self, queries: Int, hit: Float) -> None:
        """Say how many results a candidate of some queries, a line each, and of each bin is to give; else it is one."""
        self.standing.hit[queries] = hit

    def owe(self, units: float) -> None:
        """Pay for work that was done outside."""
        charge(self.books.account, units)

    @property
    def pace(self) -> Pace:
        """How units accrue."""
        return self._work.pace

    @property
    def idle(self) -> float:
        """Units that found nothing to do."""
        return float(self.books.account[IDLE])

    @property
    def expected(self) -> float:
        """How many results there are to be, of what was offered."""
        return float(self.books.account[EXPECTED])

    @property
    def waits(self) -> bool:
        """Whether something is left to be worked on, or to be offered."""
        return bool(self.queue.size[0]) or bool(self.standing.served[0] < self.stream.stored.facts[COUNT])

    @property
    def oldest(self) -> int:
        """The number of the oldest tuple that is kept."""
        return int(self.stream.stored.facts[OLDEST])

    @property
    def came(self) -> int:
        """The number of the tuple to come."""
        return int(self.stream.stored.facts[COUNT])

    def left(self, begin: int, end: int) -> NDArray[np.bool_]:
        """Which of some tuples have queries left that were to work on them; they may have gone in the last call."""
        tuples = self.stream.stored.tuples
        return np.asarray(tuples[np.arange(begin, end) % len(tuples), PENDING] > 0)

    def done(self) -> int:
        """How many of the oldest tuples have nothing left."""
        end = min(int(self.standing.served[0]), self.came)
        left = np.flatnonzero(self.left(self.oldest, max(end, self.oldest)))
        return int(left[0]) if len(left) else max(0, end - self.oldest)

    def let_go(self, tuples: int) -> None:
        """Let some of the oldest tuples go."""
        let_go(self.stream.stored, tuples)

    def forget_gone(self) -> None:
        """Forget the cells that wait and whose tuples are all gone: nobody would work on them."""
        keep_reachable(self.queue, self.standing.lost, self.oldest)

    def changing(self) -> dict[str, NDArray[Any]]:
        """What may change of the state, to be written: all but what tuples are, which is known since they came."""
        self.forget_gone()
        arrays = changing_of(self.stream.stored) | queue_arrays(self.queue)
        arrays |= {"account": self.books.account, "counts": self.books.counts, "served": self.standing.served}
        return arrays

    def restore(self, changing: Mapping[str, NDArray[Any]], times: Int, values: Float, bins: Int) -> None:
        """Go on from what was written; of tuples there may be older ones."""
        arrays = dict(changing)
        begin, end = (int(arrays["facts"][place]) for place in (OLDEST, COUNT))
        mine = slice(len(times) - (end - begin), None)
        number, bins = np.arange(begin, end), bins[mine]
        columns = np.stack([values[mine], np.zeros(end - begin)], axis=1)
        self.stream.stored = linked(arrays, Rows(bins, times[mine], number, bins, bins[:, None], columns))
        self.queue = queue_from(arrays, _ROOM)
        self.books = self.books._replace(account=arrays["account"], counts=arrays["counts"])
        self.standing = self.standing._replace(served=arrays["served"])
        if self.books.account[CREDIT] == np.inf:
            # Units that were unlimited are given again with the next tuple, if they still are.
            self.books.account[CREDIT] = 0.0


def _candidates(found: list[Int]) -> Candidates:
    results = np.concatenate([np.empty((0, 3), np.int64), *found])
    return Candidates(results[:, 0], results[:, 1])
