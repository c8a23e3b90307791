"""Aggregates of a stream by windows of time, within a budget.

Idea: a window is a query that stands from its start to its end. It joins a running selection before the first tuple of
the window is taken, and leaves it when it is told: one zone after its end, so that its last tuples have had their turn.
A window begins every `slide_us` from 1970 on, so several may be open at once; unless said, they follow each other. One
without tuples is not told. Without windows there is one, of all tuples.
Guarantee: with unlimited units count, sum, average and median are exact; without windows the median is that of the
histogram. With fewer, what was not worked on is estimated, with an error (`estimates.py`). No cut into batches shows.
Cost: that of a selection with the windows that are open as its queries, and a turn of each whenever one begins; 16
bytes per tuple and open window for exact medians, until the window is told.
Source: Ali, Aref, ElTabakh, section 4.3, where a window slides with each tuple; ours slide in steps, so that each has
one answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import Float, Int
from tocsin.stages.promising.anytime_join import UNLIMITED
from tocsin.stages.promising.books import Costs, Pace
from tocsin.stages.promising.estimates import ByBin, Estimate
from tocsin.stages.promising.layout import FOREVER, Layout
from tocsin.stages.promising.preference import Preference
from tocsin.stages.promising.selection import PROMISES, SELECTION_COSTS, Query, StandingSelection

# Before the names of the selection's arrays.
_SELECTION = "selection."


@dataclass(frozen=True)
class OfWindow:
    """The aggregates of one window; the end is exclusive."""

    start_us: int
    end_us: int
    count: Estimate
    sum: Estimate
    avg: Estimate
    median: Estimate


@dataclass
class _Open:
    """A window that is not told yet: its query's number, and the values that were selected so far."""

    start_us: int
    end_us: int
    query: int
    values: list[Float]


class WindowedAggregates:
    """Aggregates of what one query selects, by windows of `length_us`; None: one for the whole stream."""

    def __init__(
        self,
        layout: Layout,
        query: Query,
        length_us: int | None,
        preference: Preference = PROMISES["avg"],
        pace: Pace = UNLIMITED,
        *,
        slide_us: int | None = None,
        costs: Costs = SELECTION_COSTS,
        seed: int = 1,
        other: bool = False,
    ) -> None:
        slide_us = length_us if slide_us is None else slide_us
        if length_us is not None and not 1 <= (slide_us or 0) <= length_us:
            message = f"`slide_us` must be from 1 to `length_us`; got {slide_us!r} and {length_us!r}"
            raise ValueError(message)
        self.selection = StandingSelection(layout, [], preference, pace, costs=costs, seed=seed, other=other)
        self.query, self.length_us, self.slide_us = query, length_us, slide_us
        self.linger_us, self.unlimited = layout.zone_us, pace.per_arrival == inf
        self.open: list[_Open] = []
        # Values by number of arrival, as long as a turn may select them.
        self.first, self.times, self.values = 0, np.zeros(0, np.int64), np.zeros(0)

    def take(self, times: Int, values: Float, asked: Float | None = None) -> list[OfWindow]:
        """Take tuples in order of time; gives the windows that are over."""
        told: list[OfWindow] = []
        done, asked = 0, values if asked is None else asked
        while done < len(times):
            now_us = int(times[done])
            told += self._close(now_us)
            self._stand(now_us)
            # No window opens or is told before this time.
            until_us = min([*(one.end_us + self.linger_us for one in self.open), self._next_us(now_us)])
            end = done + int(np.searchsorted(times[done:], until_us))
            self._take(times[done:end], values[done:end], asked[done:end])
            done = end
        return told

    def end(self) -> list[OfWindow]:
        """Tell what is open: nothing will come."""
        return self._close(FOREVER << 1)

    def _next_us(self, now_us: int) -> int:
        """When the next window begins."""
        return FOREVER if self.slide_us is None else (now_us // self.slide_us + 1) * self.slide_us

    def _windows(self, now_us: int) -> list[tuple[int, int]]:
        """The windows of a time, which begin and end one after the other."""
        if self.length_us is None or self.slide_us is None:
            return [(-FOREVER, FOREVER)]
        first_us = ((now_us - self.length_us) // self.slide_us + 1) * self.slide_us
        return [(start_us, start_us + self.length_us) for start_us in range(first_us, now_us + 1, self.slide_us)]

    def _stand(self, now_us: int) -> None:
        """Open the windows of a time that are not; a query stands for what it and its window have in common."""
        opened_us, worked = self.open[-1].end_us if self.open else -2 * FOREVER, False
        for start_us, end_us in self._windows(now_us):
            since, until = max(start_us, self.query.since_us), min(end_us, self.query.until_us)
            if since >= until or end_us <= opened_us:
                continue
            if not worked:
                # A turn, so that the query is not offered what came before it.
                self._work()
                worked = True
            number = self.selection.join(self.query._replace(since_us=since, until_us=until))
            self.open.append(_Open(start_us, end_us, number, []))

    def _take(self, times: Int, values: Float, asked: Float) -> None:
        limit = self.selection.layout.window_us
        if limit is not None and len(self.times):
            gone = int(np.searchsorted(self.times, self.times[-1] - limit))
            self.first, self.times, self.values = self.first + gone, self.times[gone:], self.values[gone:]
        if self.length_us is not None:
            self.times, self.values = np.concatenate([self.times, times]), np.concatenate([self.values, asked])
        self._keep(self.selection.take(times, values, asked))
        self.selection.expired()

    def _work(self) -> None:
        self._keep(self.selection.rest(inf if self.unlimited else 0.0))

    def _keep(self, results: Int) -> None:
        if self.length_us is None:
            return
        for one in self.open:
            mine = results[results[:, 0] == one.query, 1]
            if len(mine):
                one.values.append(self.values[mine - self.first])

    def _close(self, now_us: int) -> list[OfWindow]:
        told: list[OfWindow] = []
        while self.open and self.open[0].end_us + self.linger_us <= now_us:
            self._work()
            one = self.open.pop(0)
            found = self.selection.found(one.query)
            if found.count().value > 0:
                told.append(self._told(one, found))
            self.selection.leave(one.query)
        return told

    def _told(self, one: _Open, found: ByBin) -> OfWindow:
        median = found.median()
        if found.is_whole and self.length_us is not None:
            median = Estimate(_median(np.concatenate(one.values)), 0.0)
        return OfWindow(one.start_us, one.end_us, found.count(), found.total(), found.average(), median)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The whole state, to be written."""
        lines = [(one.start_us, one.end_us, one.query) for one in self.open]
        return {
            **{_SELECTION + name: array for name, array in self.selection.arrays().items()},
            "times": self.times,
            "values": self.values,
            "first": np.array([self.first]),
            "open": np.array(lines, np.int64).reshape(-1, 3),
            **{f"of{i}": np.concatenate([*one.values, np.zeros(0)]) for i, one in enumerate(self.open)},
        }

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a state that was written."""
        mine = [name for name in arrays if name.startswith(_SELECTION)]
        self.selection.load({name.removeprefix(_SELECTION): arrays[name] for name in mine})
        self.first, self.times, self.values = int(arrays["first"][0]), arrays["times"], arrays["values"]
        self.open = [
            _Open(start_us, end_us, query, [arrays[f"of{i}"]])
            for i, (start_us, end_us, query) in enumerate(arrays["open"].tolist())
        ]


def _median(values: Float) -> float:
    """The median, also of numbers whose sum is none."""
    low, high = map(float, np.sort(values)[[(len(values) - 1) // 2, len(values) // 2]])
    return low if low == high else low / 2 + high / 2
