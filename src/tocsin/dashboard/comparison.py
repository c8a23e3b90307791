"""Two runs compared: the alerts that only one of them has, and those of both.

Guarantee: one comparison is made at a time, and is kept while no alert is new. While a newer one is made others have
the last, and hear of the newer one as news.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from tocsin.dashboard.rundata import RunData
from tocsin.plan import Plan
from tocsin.report import Difference, Result, compare
from tocsin.trace.model import Life

# Alerts of one query of the index.
_STEP = 2_000

Runs = tuple[RunData, RunData]


class _Compared(NamedTuple):
    """The two runs that were last compared, the alerts that they had then, and what was found."""

    runs: Runs
    alerts: tuple[object, ...]
    found: Difference


class Comparison:
    """The last comparison of two runs; `made_again` grows when the same two were compared anew."""

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self.made_again = 0
        self._lock, self._making = lock, threading.Lock()
        self._last: _Compared | None = None

    def of(self, first: RunData, second: RunData) -> Difference:
        """The alerts that only one of two runs has, and those of both."""
        runs, last = (first, second), self._last
        known = last if last is not None and last.runs == runs else None
        if known is not None and known.alerts == _alerts_of(runs):
            return known.found
        if not self._making.acquire(blocking=known is None):
            assert known is not None
            return known.found
        try:
            return self._made(runs)
        finally:
            self._making.release()

    def _made(self, runs: Runs) -> Difference:
        last, alerts = self._last, _alerts_of(runs)
        if last is not None and (last.runs, last.alerts) == (runs, alerts):
            return last.found
        found = compare(*(Result(run.name, Plan(()), (), (), tuple(self._lives(run))) for run in runs))
        self._last = _Compared(runs, alerts, found)
        self.made_again += last is not None and last.runs == runs
        return found

    def _lives(self, run: RunData) -> Iterator[Life]:
        """Yield all alerts of a run without their witnesses."""
        place = -1
        while some := run.index.after(place, _STEP):
            place = some[-1].place
            yield from (one.as_life() for one in some)


def _alerts_of(runs: Iterable[RunData]) -> tuple[object, ...]:
    """What differs when the alerts of some runs do."""
    return tuple((run.index.rebuilt, run.index.events) for run in runs)
