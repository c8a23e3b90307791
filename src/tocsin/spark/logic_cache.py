"""Logic cache: the logics that a Python worker keeps from one micro-batch to the next.

A worker that builds a logic from state pages in every micro-batch loses much time. But workers exchange partitions
between micro-batches, Spark runs failed tasks again, and later queries of a session reuse the worker. So a copy can be
stale, and an unused copy must not keep its memory.

Guarantees:
    - `take_logic` returns a logic only if its mark equals the mark in the state. Every write of state has a new mark.
    - There is at most one copy per query and bucket. A copy that was unused for `IDLE_S` is evicted at the next call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tocsin.logic import Logic

# Spark ends the Python workers of a session that is idle for this long, so a longer time would rarely save a build.
IDLE_S = 60.0


@dataclass(frozen=True)
class _CachedLogic:
    mark: str
    logic: Logic
    used_s: float


class LogicCache:
    """Logics by query and bucket, the least recently used first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cached: dict[tuple[str, int], _CachedLogic] = {}

    def __len__(self) -> int:
        return len(self._cached)

    def take_logic(self, query: str, bucket: int, mark: str) -> Logic | None:
        """Remove the logic of a bucket, and return it if its mark is `mark`."""
        found = self._cached.pop((query, bucket), None)
        self._evict_idle()
        return found.logic if found is not None and found.mark == mark else None

    def keep_logic(self, query: str, bucket: int, mark: str, logic: Logic) -> None:
        """Keep the logic whose state was written with `mark`; it replaces the former copy of the bucket."""
        self._cached.pop((query, bucket), None)
        self._cached[query, bucket] = _CachedLogic(mark, logic, self._clock())

    def _evict_idle(self) -> None:
        oldest_s = self._clock() - IDLE_S
        while self._cached:
            place = next(iter(self._cached))
            if self._cached[place].used_s >= oldest_s:
                return
            del self._cached[place]
