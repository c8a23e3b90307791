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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import Float, Int
from tocsin.runtime.state_codec import pack, unpack
from tocsin.stages.promising.books import (
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
    accrue,
    end_rest,
    new_books,
)
from tocsin.stages.promising.join_state import (
    Tuples,
    changing_of,
    queue_arrays,
    queue_from,
    rebuilt,
    tuples_of,
)
from tocsin.stages.promising.layout import PLAIN, Layout
from tocsin.stages.promising.preference import Preference, guide
from tocsin.stages.promising.probe import Terms, join_rows, work_off
from tocsin.stages.promising.queue import keep_alive, new_queue, with_more_room
from tocsin.stages.promising.renew import renew_tuples
from tocsin.stages.promising.representation import (
    Representation,
    arrays_of,
    bucket_all,
    check_order,
    places_of,
    whole_numbers,
)
from tocsin.stages.promising.stored import COUNT, OLDEST, PENDING, ROW, TIME, Rows

# Measured in joins (`python -m benchmarks promising --only costs`), in tuples scanned.
COSTS = Costs(insert=10.4, summarize=2.9, table=0.023, estimate=0.15, queue=15.0, scan=1.0, emit=1.5)
UNLIMITED = Pace(inf, 0.0)
_BLOCK = 4096
_ROOM = 256
# Before the names of the columns of tuples on a page.
_TUPLES = "tuples."


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
        # Without summaries there is no order but that of arrival, and no queue to pay for.
        self.costs = costs._replace(queue=0.0) if layout.variant in PLAIN else costs
        # What a scheme learns is of this join alone, and of both its streams.
        layout = replace(layout, scheme=layout.scheme.fresh())
        self.layout, self.pace = layout, pace
        self.preference = preference or Preference(expr=f"count({one}.{first[0]}) * count({two}.{second[0]})")
        scheme = layout.scheme
        self.guide = guide(self.preference, {one: first, two: second}, scheme.share, scheme.rows, seed)
        self.sides = [Representation(layout, self.guide.sums.shape[1]) for _ in range(2)]
        self.queue, self.books = new_queue(_ROOM), new_books()
        # Results are written here and copied out: it is no part of the state, and stays in the cache.
        self._pairs = np.empty((2 * _BLOCK, 2), np.int64)

    def take(self, stream: Int, times: Int, keys: Int, values: Float | None = None) -> Int:
        """Take tuples of both streams (0 and 1) in order of time; gives results as pairs of row numbers.

        Rows are numbered in the order of all arrivals. `values` has the further columns of either stream; of one that
        has fewer than the other, the last are not read.
        """
        stream, times, keys = (whole_numbers(column, len(keys)) for column in (stream, times, keys))
        if np.any((stream != 0) & (stream != 1)):
            message = f"`stream` must be 0 or 1; got {sorted(set(stream.tolist()))[:5]}"
            raise ValueError(message)
        check_order(times, int(self.books.counts[NEWEST]) if self.books.counts[ARRIVED] else None)
        return self.take_in(stream, times, keys, values)

    def take_in(self, stream: Int, times: Int, keys: Int, values: Float | None = None) -> Int:
        """Take tuples as `take` does, whose columns are known to be right."""
        padded = np.zeros((len(keys), self.guide.sums.shape[1]))
        if values is not None:
            padded[:, 1:] = values
        found: list[Int] = []
        for begin in range(0, len(keys), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            found += self._take(stream[part], times[part], keys[part], padded[part])
        return np.concatenate([np.empty((0, 2), np.int64), *found])

    def rest(self, units: float = inf) -> Int:
        """Work on without arrivals."""
        self.books.account[CREDIT] += units
        found = self._work()
        end_rest(self.books.account)
        return found

    def until(self, time_us: int) -> Int:
        """Work with the units of the next arrival, which comes at this time, before it is taken."""
        accrue(self.books, self.pace, time_us)
        return self._work()

    def _work(self) -> Int:
        found, why = [np.empty((0, 2), np.int64)], NO_ROOM
        while why != DONE:
            first, second = (side.stored for side in self.sides)
            why = work_off(self.queue, first, second, self._terms(), self.books, self._pairs)
            self._after(why, found)
        return np.concatenate(found)

    def owe(self, units: float) -> None:
        """Take back units that were given in advance, or for less than was done; give them, where they are negative."""
        self.books.account[CREDIT] -= units

    def renew(self, before: int, again: Int, now_us: int, reach_us: int) -> Int:
        """Let tuples go whose rows have numbers below `before`, but take some of them again, as partners alone.

        Those probe nothing any more; their rows have the next numbers, in their order. Gives the numbers of the rows
        that went, for good or not, before all their pairs were looked at: by them, or by later ones, within `reach_us`.
        """
        first, second = (side.stored for side in self.sides)
        now = int(self.books.counts[ARRIVED]), now_us, reach_us
        left = renew_tuples(self.queue, (first, second), self.sides[0].limits, before, again, now)
        self.books.counts[ARRIVED] += len(again)
        lines = self.layout.scheme.rows if self.layout.nodes else 0
        self.pay(len(again) * (self.costs.insert + self.costs.summarize * lines))
        return left

    def pay(self, units: float) -> None:
        """Charge for work to take tuples in that was done besides."""
        self.books.account[[SPENT, SUMMARISING]] += units
        self.books.account[CREDIT] -= units

    def _take(self, stream: Int, times: Int, keys: Int, values: Float) -> list[Int]:
        numbers = np.arange(len(keys)) + self.books.counts[ARRIVED]
        places, buckets = places_of(self.layout, keys), bucket_all(keys, self.layout.parts)
        for number, side in enumerate(self.sides):
            side.make_room(int(np.count_nonzero(stream == number)))
        rows, why = Rows(keys, times, numbers, buckets, places, values), NO_ROOM
        found: list[Int] = []
        self.books.counts[AT] = 0
        while why != DONE:
            first, second = (side.stored for side in self.sides)
            why = join_rows(self.queue, first, second, self._terms(), self.books, rows, stream, self._pairs)
            self._after(why, found)
        return found

    def _terms(self) -> Terms:
        return Terms(self.guide, self.costs, self.sides[0].limits, self.pace, self.layout.scheme.cells)

    def _after(self, why: int, found: list[Int]) -> None:
        counts = self.books.counts
        found.append(self._pairs[: counts[FOUND]].copy())
        counts[FOUND] = 0
        if why == LONG_QUEUE:
            self.queue = with_more_room(self.queue)

    @property
    def spent(self) -> float:
        """Units of work done so far."""
        return float(self.books.account[SPENT])

    @property
    def unprocessed(self) -> tuple[int, int]:
        """Of each stream, the tuples that went with regions left to probe."""
        first, second = self.books.counts[UNPROCESSED : UNPROCESSED + 2].tolist()
        return first, second

    def waiting(self) -> tuple[int, int]:
        """Of each stream, the tuples that are kept and have regions left to probe."""
        kept = (arrays_of(side.stored)["tuples"] for side in self.sides)
        first, second = (int(np.count_nonzero(one[:, PENDING])) for one in kept)
        return first, second

    @property
    def gone(self) -> Int:
        """Of each stream, the tuples that came and went."""
        return np.array([side.stored.facts[OLDEST] for side in self.sides])

    @property
    def kept(self) -> Int:
        """Of each stream, the tuples that are kept."""
        return np.array([side.stored.facts[COUNT] - side.stored.facts[OLDEST] for side in self.sides])

    @property
    def oldest_rows(self) -> Int:
        """Of each stream, the least number of a row that is kept; the number of the next, if there is none."""
        tuples = [side.stored.tuples for side in self.sides]
        oldest = zip(tuples, self.gone, self.kept, strict=True)
        rows = [one[at % len(one), ROW] if kept else self.books.counts[ARRIVED] for one, at, kept in oldest]
        return np.array(rows, np.int64)

    @property
    def idle(self) -> float:
        """Units that found nothing to do: where they grow, all that waited has been worked on."""
        return float(self.books.account[IDLE])

    @property
    def waits(self) -> bool:
        """Whether something is left to be worked on."""
        return bool(self.queue.size[0])

    def give_up(self, before_us: int, since_us: int) -> int:
        """Let go what tuples older than a time have still to probe; they stay, as partners of tuples to come.

        They count as unprocessed when they go. Gives how many of those since another time had something left.
        """
        oldest, left = [], 0
        for side in self.sides:
            tuples, begin = arrays_of(side.stored)["tuples"], int(side.stored.facts[OLDEST])
            before, since = np.searchsorted(tuples[:, TIME], [before_us, since_us]).tolist()
            oldest.append(begin + before)
            left += int(np.count_nonzero(tuples[since:before, PENDING]))
        keep_alive(self.queue, oldest[0], oldest[1])
        return left

    def report(self) -> dict[str, float]:
        """Say what the budget bought: units, tuples, and results that were to be expected by the summaries."""
        return {
            "rows": int(self.books.counts[ARRIVED]),
            "unprocessed": int(self.books.counts[UNPROCESSED : UNPROCESSED + 2].sum()),
            "waiting": sum(self.waiting()),
            "units": self.spent,
            "units_summarising": float(self.books.account[SUMMARISING]),
            "units_idle": float(self.books.account[IDLE]),
            "results_expected": float(self.books.account[EXPECTED]),
        }

    def changing(self) -> dict[str, NDArray[Any]]:
        """What may change of the state, to be written: all but what tuples are, which is known since they came."""
        arrays = {f"{name}{i}": a for i, side in enumerate(self.sides) for name, a in changing_of(side.stored).items()}
        arrays |= queue_arrays(self.queue) | {"account": self.books.account, "counts": self.books.counts}
        arrays |= {"sums": self.guide.sums} | self.layout.scheme.learnt()
        return arrays

    def attributes(self, begin: int, end: int) -> Float:
        """What is known since they came of the tuples of some rows, beside what was handed over; NaN of those gone."""
        found = np.full((end - begin, self.guide.sums.shape[1]), np.nan)
        for stored in (side.stored for side in self.sides):
            slots = np.arange(stored.facts[OLDEST], stored.facts[COUNT]) % len(stored.tuples)
            rows = stored.tuples[slots, ROW]
            mine = slice(*np.searchsorted(rows, [begin, end]).tolist())
            found[rows[mine] - begin] = stored.values[slots[mine]]
        return found

    def restore(self, changing: Mapping[str, NDArray[Any]], tuples: Tuples) -> None:
        """Go on from what was written; of tuples, with their attributes, there may be older ones."""
        arrays = dict(changing)
        self.layout.scheme.relearn(arrays)
        for i, side in enumerate(self.sides):
            names = [name for name in arrays if name.endswith(str(i))]
            mine = {name.removesuffix(str(i)): arrays[name] for name in names}
            side.stored = rebuilt(mine, tuples, i, self.layout)
        self.queue = queue_from(arrays, _ROOM)
        self.books = self.books._replace(account=arrays["account"], counts=arrays["counts"])
        self.guide = self.guide._replace(sums=arrays["sums"])

    def page(self) -> bytes:
        """Write the whole state."""
        tuples = tuples_of([side.stored for side in self.sides])._asdict()
        return pack(self.changing() | {f"{_TUPLES}{name}": array for name, array in tuples.items()})

    def read(self, page: bytes) -> None:
        """Go on from a state that was written."""
        arrays, _ = unpack(page)
        self.restore(arrays, Tuples(*(arrays.pop(f"{_TUPLES}{name}") for name in Tuples._fields)))
