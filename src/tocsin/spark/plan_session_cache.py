"""Plan session cache: the plan sessions that a Python worker keeps from one micro-batch to the next.

A worker that creates a session from state pages in every micro-batch loses much time. But workers exchange partitions
between micro-batches, Spark runs failed tasks again, and later queries of a session reuse the worker. So a copy can be
stale, and an unused copy must not keep its memory.

Guarantees:
    - `take_session` returns a session only if its mark equals the mark in the state. Each state write has a new mark.
    - There is at most one copy per query and bucket. A copy that was unused for `IDLE_S` is evicted at the next call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tocsin.runtime.session import Session

# Spark ends the Python workers of a session that is idle for this long, so a longer time would rarely save a session.
IDLE_S = 60.0


@dataclass(frozen=True)
class _CachedSession:
    mark: str
    session: Session
    used_s: float


class PlanSessionCache:
    """Plan sessions by query and bucket, the least recently used first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cached: dict[tuple[str, int], _CachedSession] = {}

    def __len__(self) -> int:
        return len(self._cached)

    def take_session(self, query: str, bucket: int, mark: str) -> Session | None:
        """Remove the session of a bucket, and return it if its mark is `mark`."""
        found = self._cached.pop((query, bucket), None)
        self._evict_idle()
        return found.session if found is not None and found.mark == mark else None

    def keep_session(self, query: str, bucket: int, mark: str, session: Session) -> None:
        """Keep the session whose state was written with `mark`; it replaces the former copy of the bucket."""
        self._cached.pop((query, bucket), None)
        self._cached[query, bucket] = _CachedSession(mark, session, self._clock())

    def _evict_idle(self) -> None:
        oldest_s = self._clock() - IDLE_S
        while self._cached:
            place = next(iter(self._cached))
            if self._cached[place].used_s >= oldest_s:
                return
            del self._cached[place]
