"""Standing range queries with a window ("within the last hour") and re-arming ("again, after an hour of rest").

The clock is the largest event time so far. An element has a *moment*: the clock after it, so moments never fall.
- Window: an element that is `within_us` or more behind the clock when it comes is late and counts for nothing. Another
  counts until the clock is `within_us` or more past its moment; it expires just before the element that moves the clock
  there is counted. A query's total is the weight of unexpired elements in its closed range that came after it began.
- Maturity: at the first element where the total is at least the threshold.
- Re-arming: a query that matured begins anew, with total 0, at the first later element at which the clock is `rearm_us`
  or more past the maturing moment; that element counts. Until then it rests. Without re-arming it is gone.

Idea: expiry makes a query lack more, never less. So a plain range index, in which its threshold is what it lacked when
it was evaluated last, names it no later than it matures; what the index names is a *candidate*. Its exact total is what
it had, and what came (the index says so), without what expired: elements expire in the order in which they came, so a
second range index counts those. A candidate is then walked with to the end of the chunk, and put back with what it
lacks there.
*Guarantee*: exact; no cut into batches shows, and no reading of pages.
*Cost*: an element is counted by two range indexes. A query is a candidate at most once per chunk, and not before the
weight it lacked has come: one that has a share f of its threshold while the stream is steady is a candidate
f / (1 - f) times per window. A candidate costs a walk over the chunk (1,024 elements and as many that expire) and a
registration. Memory: all elements of a window, 16 + 8 dims bytes each, and per query 100 bytes and two places in range
indexes. Pages: the new elements, and the queries that began, matured or ended; to read them all elements are counted
once. Without a window there is but one range index, and its pages; without both this is a range index and no more.
*Source*: Qiao, Gan, Tao, Range Thresholding on Streams, SIGMOD 2016, counts since registration; windows and re-arming
are ours.
"""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import ArrayLike

from tocsin.runtime.contract import FIRST_US, LAST_US, Int
from tocsin.stages.ranges.checks import integers, within
from tocsin.stages.ranges.index import RangeIndex
from tocsin.stages.ranges.lives import Lives
from tocsin.stages.ranges.requests import Matured

_LONGEST_US = 1 << 60


class Standing:
    """Standing queries over points of `dims` dimensions, that count what came in the last `within_us` microseconds.

    >>> standing = Standing(within_us=60, rearm_us=0)
    >>> standing.register(ids=[7], low=[100], high=[105], threshold=[1000])
    >>> standing.push(values=[101, 102, 103, 104], weights=[600, 600, 600, 600], time=[0, 60, 119, 120])
    Matured(id=array([7]), index=array([2]), total=array([1200]))
    >>> standing.progress([7])
    array([600])
    """

    def __init__(self, dims: int = 1, within_us: int | None = None, rearm_us: int | None = None) -> None:
        _check("within_us", within_us, 1)
        _check("rearm_us", rearm_us, 0)
        self.dims, self.within_us, self.rearm_us = dims, within_us, rearm_us
        plain = within_us is None and rearm_us is None
        self._held: RangeIndex | Lives = RangeIndex(dims) if plain else Lives(dims, within_us, rearm_us)

    def register(
        self, ids: ArrayLike, low: ArrayLike, high: ArrayLike, threshold: ArrayLike, at: ArrayLike | None = None
    ) -> None:
        """Let queries begin before element `at` of the next batch; ranges are closed, and may be infinite."""
        self._held.register(ids, low, high, threshold, at)

    def terminate(self, ids: ArrayLike, at: ArrayLike | None = None) -> None:
        """Let queries end before element `at` of the next batch; one that is not there then stays what it is."""
        self._held.terminate(ids, at)

    def push(self, values: ArrayLike, weights: ArrayLike | None, time: ArrayLike) -> Matured:
        """Take a batch of elements, with the requests that wait for it; give the queries that matured.

        With re-arming a query may mature several times. Without a window and re-arming, times are not looked at.
        """
        if isinstance(self._held, RangeIndex):
            return self._held.push(values, weights)
        elements = self._held.check(values, weights)
        times = integers("push", "time", time, len(elements.weights))
        within("push", "time", times, FIRST_US, LAST_US, str(LAST_US))
        return self._held.take(elements, times)

    def progress(self, ids: ArrayLike) -> Int:
        """Give the total of each query by now: 0 if it waits or rests, -1 if it is not there."""
        return self._held.progress(ids)

    def __len__(self) -> int:
        """Count the queries that are there, resting ones too; those that wait for the next batch are not there yet."""
        return len(self._held)

    @property
    def late(self) -> int:
        """How many elements came too late for the window, so far."""
        return 0 if isinstance(self._held, RangeIndex) else self._held.late

    @property
    def held(self) -> int:
        """How many elements are remembered: those of the window."""
        return 0 if isinstance(self._held, RangeIndex) else self._held.held

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call of this method; None: the page is gone."""
        return self._held.changed_pages()

    @classmethod
    def from_pages(
        cls, pages: Mapping[str, bytes], dims: int = 1, within_us: int | None = None, rearm_us: int | None = None
    ) -> Standing:
        """Read the pages that `changed_pages` gave, all that are not gone; none at the very start."""
        standing = cls(dims, within_us, rearm_us)
        if isinstance(standing._held, Lives):
            standing._held = Lives.from_pages(pages, dims, within_us, rearm_us)
        elif pages:
            standing._held = RangeIndex.from_pages(pages)
        return standing


def _check(name: str, given_us: int | None, least: int) -> None:
    if given_us is not None and not least <= given_us <= _LONGEST_US:
        message = f"Standing: `{name}` must be from {least} to 2^60 microseconds; got {given_us}"
        raise ValueError(message)
