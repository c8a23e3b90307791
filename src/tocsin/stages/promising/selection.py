"""Hundreds of standing range predicates over one stream, served within a budget, with aggregates of what they select.

Idea: tuples are summarised by a histogram and kept by bin and zone. A query whose turn it is looks at counts, not at
tuples: bins outside its range cost nothing, bins inside need no comparison, and only bins that its range cuts are
scanned. Cells are worked on by promise as far as the units go. Aggregates add up what was found, and take what was not
worked on from what was seen of its bin, or from the histogram.
Guarantee: every tuple given out satisfies its query, and is given out once; with unlimited units and a window no
shorter than a zone, all of them are. Work is counted in units: the same input does the same work. The error estimate of
an aggregate supposes values spread evenly over the part of a bin that a range covers.
Cost: per tuple one update; per query and zone one entry of the queue for each bin that holds tuples and meets its
range. Memory as declared by the layout, 40 bytes per query and bin, 64 per cell that waits; and 24 bytes per result in
the window, which stay beyond it until `expired` is called (where the window is the whole stream, none are kept).
Source: Ali, Aref, ElTabakh, sections 4.2 and 4.3, Figure 8. There turns go over the queries for ever; here a turn comes
with the end of a zone, so that it does not depend on a clock. Bins as cells, and counts that stand for what was not
worked on, are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import numpy as np

from tocsin.logic import Float, Int
from tocsin.pages import pack, unpack
from tocsin.stages.promising.anytime_join import COSTS, UNLIMITED
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import FOREVER, Layout
from tocsin.stages.promising.preference import Preference, guide
from tocsin.stages.promising.probe import (
    ARRIVED,
    AT,
    CREDIT,
    DONE,
    FOUND,
    LONG_QUEUE,
    NEWEST,
    NO_ROOM,
    SPENT,
    Costs,
    Pace,
    end_rest,
    new_books,
)
from tocsin.stages.promising.queue import NUMBER, RANK, SIDE, arrays_of_queue, new_queue, queue_of, with_more_room
from tocsin.stages.promising.representation import Representation, arrays_of, check_order, stored_of, whole_numbers
from tocsin.stages.promising.selecting import (
    Standing,
    Work,
    offer,
    select_rows,
    work_on_cells,
)
from tocsin.stages.promising.stored import Rows

# What each aggregate prefers: SUM is ruled by large products of count and value, the others by a faithful sample.
PROMISES = {
    "tuples": Preference("desc", "count(s.value)"),
    "sum": Preference("desc", "count(s.value) * abs(s.value)"),
    "avg": Preference("weighted", "count(s.value)"),
    "median": Preference("weighted", "count(s.value)"),
}
_BLOCK = 4096
_ROOM = 1024
# The fields of `Standing` that change.
_FOUND = ("seen", "bins", "sums", "lost", "served")


class Query(NamedTuple):
    """A closed range of values, and the times between which it stands (the end exclusive)."""

    low: float
    high: float
    since_us: int = -FOREVER
    until_us: int = FOREVER


class Estimate(NamedTuple):
    """An aggregate of what a query selects, and its standard error."""

    value: float
    error: float


class StandingSelection:
    """Standing queries over one stream."""

    def __init__(
        self,
        layout: Layout,
        queries: Sequence[Query],
        preference: Preference = PROMISES["tuples"],
        pace: Pace = UNLIMITED,
        *,
        costs: Costs = COSTS,
        seed: int = 1,
    ) -> None:
        if not isinstance(layout.scheme, Histogram) or layout.variant not in ("T3", "T4") or layout.zones < 2:
            message = (
                "a selection by ranges needs a histogram, variant T3 or T4 and at least 2 zones; "
                f"got {type(layout.scheme).__name__}, {layout.variant} and {layout.zones}"
            )
            raise ValueError(message)
        if layout.window_us is not None and layout.zone_us > layout.window_us:
            message = f"a zone must not be longer than the window; got {layout.zone_us} and {layout.window_us}"
            raise ValueError(message)
        self.scheme, self.queries = layout.scheme, list(queries)
        self.layout = layout_by_bins(layout, self.scheme)
        self.stream = Representation(self.layout, 2)
        self.queue, self.books = new_queue(_ROOM), new_books()
        self.standing = stand(self.queries, self.scheme)
        self.reported = np.empty((0, 3), np.int64)
        led = guide(preference, {"s": ["value"]}, 1.0, 1, seed)
        middle = self.scheme.middles()
        self._work = Work(led, costs, self.stream.limits, pace, middle, self.scheme.cells)

    def take(self, times: Int, values: Float, asked: Float | None = None) -> Int:
        """Take tuples in order of time; gives results (query, row, time). `asked` is aggregated in place of values.

        Rows are numbered in the order of arrival.
        """
        times = whole_numbers(times, len(values))
        check_order(times, int(self.books.counts[NEWEST]) if self.books.counts[ARRIVED] else None)
        if not np.all(np.isfinite(values)):
            message = "`values` must be finite; quarantine the others before"
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
            out = self._fresh()
            why = work_on_cells(self.queue, self.stream.stored, self.standing, self._work, self.books, out)
            found.append(out[: self.books.counts[FOUND]])
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

    def _take(self, times: Int, columns: Float) -> list[Int]:
        places = self.scheme.places(columns[:, 0], learn=True)
        numbers = np.arange(len(times)) + self.books.counts[ARRIVED]
        self.stream.make_room(len(times))
        rows = Rows(places[:, 0], times, numbers, places[:, 0], places, columns)
        found: list[Int] = []
        self.books.counts[AT], why = 0, NO_ROOM
        while why != DONE:
            out = self._fresh()
            why = select_rows(self.queue, self.stream.stored, self.standing, self._work, self.books, rows, out)
            found.append(out[: self.books.counts[FOUND]])
            if why == LONG_QUEUE:
                self.queue = with_more_room(self.queue)
        return found

    def _fresh(self) -> Int:
        self.books.counts[FOUND] = 0
        return np.empty((4 * _BLOCK, 3), np.int64)

    @property
    def spent(self) -> float:
        """Units of work done so far."""
        return float(self.books.account[SPENT])

    @property
    def unprocessed(self) -> int:
        """How many tuples, counted once per query that they were offered to, went before they were worked on."""
        return int(self.standing.lost.sum())

    def results(self, query: int) -> int:
        """How many tuples were given out to a query."""
        return int(self.standing.bins[query].sum())

    def count(self, query: int) -> Estimate:
        """How many tuples a query selects, of those that were offered to it."""
        left, part, doubt = self._left(query)
        return Estimate(self.results(query) + float(left @ part), _root(left @ (part * (1 - part)) + left**2 @ doubt))

    def total(self, query: int) -> Estimate:
        """The sum of the values that a query selects."""
        left, part, _ = self._left(query)
        mean, _ = self._means(query)
        return Estimate(
            float(self.standing.sums[query].sum() + left @ (part * mean)), _root(self._variance(query, 0.0))
        )

    def average(self, query: int) -> Estimate:
        """The mean of the values that a query selects; NaN if there are none."""
        count, total = self.count(query).value, self.total(query).value
        if count <= 0:
            return Estimate(np.nan, np.nan)
        # Of a ratio, to the first order: what counts is how far values lie from the mean.
        return Estimate(total / count, _root(self._variance(query, total / count)) / count)

    def _variance(self, query: int, origin: float) -> float:
        """The variance of the sum of what is left, by the distance of values from an origin.

        Of each tuple by itself, of the part that is selected, and of the mean of a bin, which is one for all of it.
        """
        left, part, doubt = self._left(query)
        mean, spread = self._means(query)
        away, within = mean - origin, spread**2 / 12
        single = part * (within + away**2) - (part * away) ** 2
        common = doubt * away**2 + part**2 * within / (self.standing.bins[query] + 1)
        return float(left @ single + left**2 @ common)

    def median(self, query: int) -> Estimate:
        """The median of the values that a query selects, and half of the width that it may lie in; NaN if none."""
        left, part, _ = self._left(query)
        counts = self.standing.bins[query] + left * part
        if counts.sum() <= 0:
            return Estimate(np.nan, np.nan)
        middle, spread = self.scheme.covered(self.queries[query].low, self.queries[query].high)
        below = np.cumsum(counts)
        place = int(np.searchsorted(below, below[-1] / 2))
        inside = (below[-1] / 2 - (below[place] - counts[place])) / counts[place]
        return Estimate(float(middle[place] + (inside - 0.5) * spread[place]), float(spread[place] / 2))

    def _left(self, query: int) -> tuple[Float, Float, Float]:
        """Of each bin: tuples offered and not worked on, which part of them is selected, the variance of that part.

        The part is what was seen of the bin, with the histogram's guess as one tuple more.
        """
        entries = self.queue.entry[: self.queue.size[0]]
        mine = entries[entries[:, RANK] == query]
        waiting = np.bincount(mine[:, SIDE], mine[:, NUMBER].astype(np.float64), self.scheme.width)
        seen, guess = self.standing.seen[query], self.standing.part[query]
        part = (self.standing.bins[query] + guess) / (seen + 1)
        return waiting + self.standing.lost[query], part, part * (1 - part) / (seen + 1)

    def _means(self, query: int) -> tuple[Float, Float]:
        """Of each bin: the mean of the values selected, with the middle as one value more; the width."""
        middle, spread = self.scheme.covered(self.queries[query].low, self.queries[query].high)
        return (self.standing.sums[query] + middle) / (self.standing.bins[query] + 1), spread

    def page(self) -> bytes:
        """Write the whole state."""
        arrays = arrays_of(self.stream.stored) | {
            **arrays_of_queue(self.queue),
            "account": self.books.account,
            "counts": self.books.counts,
            "reported": self.reported,
            **{name: getattr(self.standing, name) for name in _FOUND},
        }
        return pack(arrays)

    def read(self, page: bytes) -> None:
        """Go on from a state that was written by a selection with the same queries."""
        arrays, _ = unpack(page)
        self.stream.stored = stored_of({name: arrays[name] for name in self.stream.stored._fields})
        self.queue, self.reported = queue_of(arrays, _ROOM), arrays["reported"]
        self.books = self.books._replace(account=arrays["account"], counts=arrays["counts"])
        self.standing = self.standing._replace(**{name: arrays[name] for name in _FOUND})


def layout_by_bins(layout: Layout, scheme: Histogram) -> Layout:
    """Let the buckets be the bins of the histogram."""
    return replace(layout, buckets=scheme.width)


def stand(queries: Sequence[Query], scheme: Histogram) -> Standing:
    """Queries in arrays; nothing was found yet."""
    for number, query in enumerate(queries):
        if not (query.low <= query.high and query.since_us < query.until_us):
            message = f"query {number} must have `low` <= `high` and `since_us` < `until_us`; got {query}"
            raise ValueError(message)
    part = np.array([scheme.meets(query.low, query.high) for query in queries]).reshape(len(queries), scheme.width)
    return Standing(
        np.array([query.low for query in queries], np.float64),
        np.array([query.high for query in queries], np.float64),
        np.array([query.since_us for query in queries], np.int64),
        np.array([query.until_us for query in queries], np.int64),
        part,
        np.zeros((len(queries), scheme.width), np.int64),
        np.zeros((len(queries), scheme.width), np.int64),
        np.zeros((len(queries), scheme.width)),
        np.zeros((len(queries), scheme.width), np.int64),
        np.zeros(1 + scheme.width, np.int64),
    )


def _root(variance: Any) -> float:
    return float(np.sqrt(max(0.0, float(variance))))
