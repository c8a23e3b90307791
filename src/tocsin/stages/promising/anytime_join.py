"""A window join that spends a budget where it promises most: stopped at any moment, resumed when idle.

Idea: each arriving tuple is summarised and probes the other stream by its summary; what it has to look at goes into a
queue by promise. Between arrivals units of work accrue, and the most promising regions are worked on, in ever more
detail, as far as the units go. What is left waits until there are more, or until the tuple's window ends.
Guarantee: every result is one of the exact join, and comes once, whatever was cut off. With unlimited units and a
window, all results come. Work is counted in units, never by a clock: the same input does the same work, and neither the
cut into batches nor a page shows. Regions that are not worked on are counted as unprocessed when their tuple goes.
Cost: see `Costs`. Memory: two representations as declared; a queue entry (64 bytes) per region that waits.
Source: Ali, Aref, ElTabakh, section 4.1, Figure 7, on the symmetric hash join of Wilschut and Apers (PDIS 1991). There
all zones of a tuple are put into the queue at once; here only those whose granularity had its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from tocsin.logic import Float, Int
from tocsin.pages import pack, unpack
from tocsin.stages.promising.layout import PLAIN, Layout
from tocsin.stages.promising.preference import Preference, guide
from tocsin.stages.promising.probe import (
    ARRIVED,
    AT,
    CREDIT,
    DONE,
    EXPECTED,
    FOUND,
    IDLE,
    LONG_QUEUE,
    NEWEST,
    NO_ROOM,
    SPENT,
    SUMMARISING,
    UNPROCESSED,
    Costs,
    Pace,
    Terms,
    end_rest,
    join_rows,
    new_books,
    work_off,
)
from tocsin.stages.promising.queue import arrays_of_queue, new_queue, queue_of, with_more_room
from tocsin.stages.promising.representation import (
    Representation,
    arrays_of,
    bucket_all,
    check_order,
    places_of,
    stored_of,
    whole_numbers,
)
from tocsin.stages.promising.stored import PENDING, Rows

# Measured (`python -m benchmarks promising --only costs`), in tuples scanned.
COSTS = Costs(insert=5.0, summarize=1.6, table=0.06, estimate=1.1, queue=5.5, scan=1.0, emit=1.0)
UNLIMITED = Pace(inf, 0.0)
_BLOCK = 4096
_ROOM = 256


class AnytimeJoin:
    """The equi-join of two streams by a key, within a window of each other's times."""

    def __init__(
        self,
        layout: Layout,
        preference: Preference | None = None,
        pace: Pace = UNLIMITED,
        *,
        streams: tuple[tuple[str, Sequence[str]], tuple[str, Sequence[str]]] = (("s1", ["item"]), ("s2", ["item"])),
        costs: Costs = COSTS,
        seed: int = 1,
    ) -> None:
        (one, first), (two, second) = streams
        if len(first) != len(second):
            message = f"both streams must have as many columns; got {len(first)} and {len(second)}"
            raise ValueError(message)
        # Without summaries there is no order but that of arrival, and no queue to pay for.
        self.costs = costs._replace(queue=0.0) if layout.variant in PLAIN else costs
        # What a scheme learns is of this join alone, and of both its streams.
        layout = replace(layout, scheme=layout.scheme.fresh())
        self.layout, self.pace = layout, pace
        self.preference = preference or Preference(expr=f"count({one}.{first[0]}) * count({two}.{second[0]})")
        scheme = layout.scheme
        self.guide = guide(self.preference, {one: first, two: second}, scheme.share, scheme.rows, seed)
        self.sides = [Representation(layout, len(first)) for _ in range(2)]
        self.queue, self.books = new_queue(_ROOM), new_books()

    def take(self, stream: Int, times: Int, keys: Int, values: Float | None = None) -> Int:
        """Take tuples of both streams (0 and 1) in order of time; gives results as pairs of row numbers.

        Rows are numbered in the order of all arrivals. `values` has the further columns of either stream.
        """
        stream, times, keys = (whole_numbers(column, len(keys)) for column in (stream, times, keys))
        if np.any((stream != 0) & (stream != 1)):
            message = f"`stream` must be 0 or 1; got {sorted(set(stream.tolist()))[:5]}"
            raise ValueError(message)
        check_order(times, int(self.books.counts[NEWEST]) if self.books.counts[ARRIVED] else None)
        columns = self.guide.sums.shape[1]
        padded = np.zeros((len(keys), columns))
        if values is not None:
            padded[:, 1:] = values
        found = [np.empty((0, 2), np.int64)]
        for begin in range(0, len(keys), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            found += self._take(stream[part], times[part], keys[part], padded[part])
        return np.concatenate(found)

    def rest(self, units: float = inf) -> Int:
        """Work on without arrivals."""
        self.books.account[CREDIT] += units
        found = [np.empty((0, 2), np.int64)]
        why = NO_ROOM
        while why != DONE:
            pairs = self._fresh(found)
            first, second = (side.stored for side in self.sides)
            why = work_off(self.queue, first, second, self._terms(), self.books, pairs)
            self._after(why, pairs, found)
        end_rest(self.books.account)
        return np.concatenate(found)

    def _take(self, stream: Int, times: Int, keys: Int, values: Float) -> list[Int]:
        numbers = np.arange(len(keys)) + self.books.counts[ARRIVED]
        places, buckets = places_of(self.layout, keys), bucket_all(keys, self.layout.parts)
        for number, side in enumerate(self.sides):
            side.make_room(int(np.sum(stream == number)))
        rows, why = Rows(keys, times, numbers, buckets, places, values), NO_ROOM
        found: list[Int] = []
        self.books.counts[AT] = 0
        while why != DONE:
            pairs = self._fresh(found)
            first, second = (side.stored for side in self.sides)
            why = join_rows(self.queue, first, second, self._terms(), self.books, rows, stream, pairs)
            self._after(why, pairs, found)
        return found

    def _terms(self) -> Terms:
        return Terms(self.guide, self.costs, self.sides[0].limits, self.pace, self.layout.scheme.cells)

    def _fresh(self, found: list[Int]) -> Int:
        self.books.counts[FOUND] = 0
        return np.empty((max(_BLOCK, 2 * len(found[-1]) if found else 0), 2), np.int64)

    def _after(self, why: int, pairs: Int, found: list[Int]) -> None:
        found.append(pairs[: self.books.counts[FOUND]].copy())
        if why == LONG_QUEUE:
            self.queue = with_more_room(self.queue)

    @property
    def spent(self) -> float:
        """Units of work done so far."""
        return float(self.books.account[SPENT])

    def report(self) -> dict[str, float]:
        """Say what the budget bought: units, tuples, and results that were to be expected by the summaries."""
        return {
            "rows": int(self.books.counts[ARRIVED]),
            "unprocessed": int(self.books.counts[UNPROCESSED : UNPROCESSED + 2].sum()),
            "waiting": int(sum(arrays_of(side.stored)["tuples"][:, PENDING].astype(bool).sum() for side in self.sides)),
            "units": self.spent,
            "units_summarising": float(self.books.account[SUMMARISING]),
            "units_idle": float(self.books.account[IDLE]),
            "results_expected": float(self.books.account[EXPECTED]),
        }

    def page(self) -> bytes:
        """Write the whole state."""
        arrays = {f"{name}{i}": a for i, side in enumerate(self.sides) for name, a in arrays_of(side.stored).items()}
        arrays |= arrays_of_queue(self.queue) | {"account": self.books.account, "counts": self.books.counts}
        return pack(arrays | {"sums": self.guide.sums} | self.layout.scheme.learnt())

    def read(self, page: bytes) -> None:
        """Go on from a state that was written."""
        arrays, _ = unpack(page)
        for i, side in enumerate(self.sides):
            side.stored = stored_of({name: arrays[f"{name}{i}"] for name in side.stored._fields})
        self.queue = queue_of(arrays, _ROOM)
        self.books = self.books._replace(account=arrays["account"], counts=arrays["counts"])
        self.guide = self.guide._replace(sums=arrays["sums"])
        self.layout.scheme.relearn(arrays)
