"""Hundreds of standing range predicates over one stream, served within a budget, with aggregates of what they select.

Idea: tuples are summarised by a histogram and kept by bin and zone. A query whose turn it is looks at counts, not at
tuples: bins outside its range cost nothing, bins inside need no comparison, and only bins that its range cuts are
scanned. Cells are worked on by promise as far as the units go. Aggregates add up what was found, and take what was not
worked on from what was seen of its bin, or from the histogram. With `other`, what is aggregated is another column than
the summarised one, of which only what was seen is known.
Guarantee: every tuple given out satisfies its query, and is given out once; with unlimited units and a window no
shorter than a zone, all of them are. Work is counted in units: the same input does the same work. Aggregates have a
standard error (`estimates.py`).
Cost: per tuple one update; per query and zone one entry of the queue for each bin that holds tuples and meets its
range. Memory as declared by the layout, 48 bytes per query and bin, 64 per cell that waits; and 24 bytes per result in
the window, which stay beyond it until `expired` is called (where the window is the whole stream, none are kept).
Source: Ali, Aref, ElTabakh, sections 4.2 and 4.3, Figure 8. There turns go over the queries for ever; here a turn comes
with the end of a zone, so that it does not depend on a clock. Bins as cells, and counts that stand for what was not
worked on, are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import Float, Int
from tocsin.runtime.state_codec import pack, unpack
from tocsin.stages.promising.anytime_join import UNLIMITED
from tocsin.stages.promising.books import (
    ARRIVED,
    AT,
    CREDIT,
    DONE,
    FOUND,
    LONG_QUEUE,
    NEWEST,
    NO_ROOM,
    SPENT,
    UNPROCESSED,
    Costs,
    Pace,
    end_rest,
    new_books,
)
from tocsin.stages.promising.by_column import ByColumn
from tocsin.stages.promising.estimates import ByBin, Estimate
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import FOREVER, Layout
from tocsin.stages.promising.preference import Preference, guide
from tocsin.stages.promising.queue import (
    NUMBER,
    RANK,
    SIDE,
    arrange,
    arrays_of_queue,
    entries,
    new_queue,
    queue_of,
    with_more_room,
)
from tocsin.stages.promising.representation import Representation, arrays_of, check_order, stored_of, whole_numbers
from tocsin.stages.promising.selecting import (
    PLAIN,
    Standing,
    Terms,
    Work,
    offer,
    select_rows,
    work_on_cells,
)
from tocsin.stages.promising.standing import BY_QUERY, WRITTEN, layout_by_bins, parts_of, stand
from tocsin.stages.promising.stored import PENDING, Rows

# In tuples scanned here, each of which takes some three times as long as in a join.
SELECTION_COSTS = Costs(insert=5.0, summarize=1.6, table=0.06, estimate=1.1, queue=5.5, scan=1.0, emit=1.0)
# What each aggregate prefers: SUM is ruled by large products of count and value, the others by a faithful sample.
PROMISES = {
    "tuples": Preference("desc", "count(s.value)"),
    "sum": Preference("desc", "count(s.value) * abs(s.value)"),
    "avg": Preference("weighted", "count(s.value)"),
    "median": Preference("weighted", "count(s.value)"),
}
_BLOCK = 4096
_ROOM = 1024


class Query(NamedTuple):
    """A closed range of values, and the times between which it stands (the end exclusive)."""

    low: float
    high: float
    since_us: int = -FOREVER
    until_us: int = FOREVER


class StandingSelection:
    """Standing queries over one stream."""

    def __init__(
        self,
        layout: Layout,
        queries: Sequence[Query],
        preference: Preference = PROMISES["tuples"],
        pace: Pace = UNLIMITED,
        *,
        costs: Costs = SELECTION_COSTS,
        seed: int = 1,
        other: bool = False,
        terms: Terms = PLAIN,
    ) -> None:
        by_ranges = isinstance(layout.scheme, Histogram | ByColumn)
        if not by_ranges or layout.variant not in ("T3", "T4") or layout.zones < 2:
            message = (
                "a selection by ranges needs a histogram, variant T3 or T4 and at least 2 zones; "
                f"got {type(layout.scheme).__name__}, {layout.variant} and {layout.zones}"
            )
            raise ValueError(message)
        if layout.window_us is not None and layout.zone_us > layout.window_us:
            message = f"a zone must not be longer than the window; got {layout.zone_us} and {layout.window_us}"
            raise ValueError(message)
        if preference.most != inf:
            message = f"`most` of a preference needs a join; got {preference.most!r}"
            raise ValueError(message)
        assert isinstance(layout.scheme, Histogram | ByColumn)
        self.scheme, self.queries, self.other = layout.scheme, list(queries), other
        # Numbers of queries that have left, and the tuples that they leave unprocessed.
        self._free, self._lost = list[int](), 0
        self.layout = layout_by_bins(layout, self.scheme)
        self.stream = Representation(self.layout, 2)
        self.queue, self.books = new_queue(_ROOM), new_books()
        self.standing = stand(self.queries, self.scheme)
        self.reported = np.empty((0, 3), np.int64)
        self._found = np.empty((_BLOCK, 3), np.int64)
        led = guide(preference, {"s": ["value"]}, 1.0, 1, seed)
        middle = self.scheme.middles()
        self._work = Work(led, costs, self.stream.limits, pace, middle, self.scheme.cells, terms)

    def join(self, query: Query) -> int:
        """Let a query stand from now on; gives its number. It is offered what no turn has offered yet."""
        new = stand([query], self.scheme)
        if self._free:
            number = self._free.pop()
            self.queries[number] = query
            for name in BY_QUERY:
                getattr(self.standing, name)[number] = getattr(new, name)[0]
            return number
        self.queries.append(query)
        both = {n: np.concatenate([getattr(self.standing, n), getattr(new, n)]) for n in BY_QUERY}
        self.standing = self.standing._replace(**both)
        return len(self.queries) - 1

    def leave(self, query: int) -> None:
        """Let a query go, with what waits for it; its number may be given to another."""
        if not 0 <= query < len(self.queries) or query in self._free:
            message = f"`query` must be the number of an active query; got {query!r}"
            raise ValueError(message)
        promise, entry = arrays_of_queue(self.queue).values()
        waits = entry[:, RANK] == query
        self._lost += int(entry[waits, NUMBER].sum() + self.standing.lost[query].sum())
        self.queue = queue_of({"promise": promise[~waits], "entry": entry[~waits]}, _ROOM)
        arrange(self.queue)
        self.standing.lost[query] = 0
        # One that stands for no time is offered nothing.
        self.standing.until[query] = -FOREVER
        self._free.append(query)

    def take(self, times: Int, values: Float, asked: Float | None = None) -> Int:
        """Take tuples in order of time; gives results (query, row, time). `asked` is aggregated in place of values.

        Rows are numbered in the order of arrival.
        """
        times = whole_numbers(times, len(values))
        check_order(times, int(self.books.counts[NEWEST]) if self.books.counts[ARRIVED] else None)
        if not np.all(np.isfinite(values)):
            message = "`values` must be finite; remove other rows first"
            raise ValueError(message)
        columns = np.stack([values, values if asked is None else asked], axis=1).astype(np.float64)
        found = [np.empty((0, 3), np.int64)]
        for begin in range(0, len(times), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            found += self._take(times[part], columns[part])
        return self._report(found)

    def rest(self, units: float = inf) -> Int:
        """Offer what came since the last turn, and work on without arrivals."""
        self.books.account[CREDIT] += units
        while not offer(self.queue, self.stream.stored, self.standing, self._work, self.books):
            self.queue = with_more_room(self.queue)
        found, why = [np.empty((0, 3), np.int64)], NO_ROOM
        while why != DONE:
            why = work_on_cells(self.queue, self.stream.stored, self.standing, self._work, self.books, self._found)
            found.append(self._written())
        end_rest(self.books.account)
        return self._report(found)

    def expired(self) -> Int:
        """Give the results (query, row, time) that have left the window, once; without a window there are none.

        To be called now and then, as results are kept until they were given out here.
        """
        limit = int(self.books.counts[NEWEST]) - self.stream.limits.window_us
        gone = self.reported[:, 2] < limit
        out, self.reported = self.reported[gone], self.reported[~gone]
        return out

    def _report(self, found: list[Int]) -> Int:
        results = np.concatenate(found)
        if self.layout.window_us is not None:
            self.reported = np.concatenate([self.reported, results])
        return results

    def _take(self, times: Int, columns: Float, places: Int | None = None) -> list[Int]:
        places = self.scheme.places(columns[:, 0], learn=True) if places is None else places[:, None]
        numbers = np.arange(len(times)) + self.books.counts[ARRIVED]
        self.stream.make_room(len(times))
        rows = Rows(places[:, 0], times, numbers, places[:, 0], places, columns)
        found: list[Int] = []
        self.books.counts[AT], why = 0, NO_ROOM
        while why != DONE:
            why = select_rows(self.queue, self.stream.stored, self.standing, self._work, self.books, rows, self._found)
            found.append(self._written())
            if why == LONG_QUEUE:
                self.queue = with_more_room(self.queue)
        return found

    def _written(self) -> Int:
        """Give what was found, and make room for more."""
        counts = self.books.counts
        out, counts[FOUND] = self._found[: counts[FOUND]].copy(), 0
        return out

    @property
    def spent(self) -> float:
        """Units of work done so far."""
        return float(self.books.account[SPENT])

    @property
    def unprocessed(self) -> int:
        """How many tuples, counted once per query that they were offered to, went before they were worked on."""
        return self._lost + int(self.standing.lost.sum())

    @property
    def rows_unprocessed(self) -> int:
        """How many tuples went before they were worked on for all queries that they were offered to."""
        return int(self.books.counts[UNPROCESSED])

    @property
    def rows_waiting(self) -> int:
        """How many tuples are kept that some query was offered and has not worked on."""
        return int(np.count_nonzero(arrays_of(self.stream.stored)["tuples"][:, PENDING]))

    def results(self, query: int) -> int:
        """How many tuples were given out to a query."""
        return int(self.standing.bins[query].sum())

    def count(self, query: int) -> Estimate:
        """How many tuples a query selects, of those that were offered to it."""
        return self.found(query).count()

    def total(self, query: int) -> Estimate:
        """The sum of the values that a query selects."""
        return self.found(query).total()

    def average(self, query: int) -> Estimate:
        """The mean of the values that a query selects; NaN if there are none."""
        return self.found(query).average()

    def median(self, query: int) -> Estimate:
        """The median of the values that a query selects, and half of the width that it may lie in; NaN if none."""
        return self.found(query).median()

    def found(self, query: int) -> ByBin:
        """What is known of a query, for its aggregates."""
        waits = entries(self.queue)
        mine = waits[waits[:, RANK] == query]
        waiting = np.bincount(mine[:, SIDE], mine[:, NUMBER].astype(np.float64), self.scheme.width)
        standing, asked = self.standing, self.queries[query]
        unknown = np.full(self.scheme.width, np.nan)
        return ByBin(
            waiting + standing.lost[query],
            standing.part[query],
            standing.seen[query],
            standing.bins[query],
            standing.sums[query],
            standing.squares[query],
            *((unknown, unknown) if self.other else self.scheme.covered(asked.low, asked.high)),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The whole state, to be written."""
        return arrays_of(self.stream.stored) | {
            **arrays_of_queue(self.queue),
            "account": self.books.account,
            "counts": self.books.counts,
            "reported": self.reported,
            **{name: getattr(self.standing, name) for name in WRITTEN},
            "free": np.array(self._free, np.int64),
            "lost_before": np.array([self._lost]),
        }

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a state that was written, with the queries that stood then."""
        self.stream.stored = stored_of({name: arrays[name] for name in self.stream.stored._fields})
        self.queue, self.reported = queue_of(arrays, _ROOM), arrays["reported"]
        self.books = self.books._replace(account=arrays["account"], counts=arrays["counts"])
        if self.books.account[CREDIT] == inf:
            # Units that were unlimited are given again with the next tuple, if they still are.
            self.books.account[CREDIT] = 0.0
        ends = zip(*(arrays[name].tolist() for name in WRITTEN[:4]), strict=True)
        self.queries, self._free = [Query(*end) for end in ends], arrays["free"].tolist()
        self._lost = int(arrays["lost_before"][0])
        part = parts_of(self.queries, self.scheme)
        hit, turns = np.ones(part.shape), np.zeros(self.scheme.width, np.int64)
        self.standing = Standing(**{name: arrays[name] for name in WRITTEN}, part=part, hit=hit, turns=turns)

    def page(self) -> bytes:
        """Write the whole state."""
        return pack(self.arrays())

    def read(self, page: bytes) -> None:
        """Go on from a page."""
        self.load(unpack(page)[0])
