"""Calibrate: how many nanoseconds of processor time a unit of work takes on this machine, of a join and of a selection.

Idea: work without a limit on rows of a few keys, or by a few ranges; what it took over the units that it counts is the
time of one. The least of a few tries is taken: whatever else a machine does only adds. An engine measures before it
starts, and keeps the number with the run: a logic has no clock.
Cost: some tens of milliseconds, and the compilation of the kernels, which a run needs anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tocsin.stages.promising.anytime_join import AnytimeJoin
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.selection import Query, StandingSelection

_ROWS, _TRIES = 20_000, 3
# What a machine can be: beyond these something was measured that is none.
_LEAST, _MOST = 0.25, 10_000.0


def unit_nanoseconds() -> float:
    """Measure the processor time of a unit of an anytime join."""
    return _least(_join)


def selection_unit_nanoseconds() -> float:
    """Measure the processor time of a unit of a selection, or of aggregates."""
    return _least(_select)


def _least(work: Callable[[int], float]) -> float:
    """Let some work be done a few times; it is told how many rows to work on, and gives its units."""
    found = []
    work(100)
    for _ in range(_TRIES):
        begun = time.process_time_ns()
        units = work(_ROWS)
        found.append((time.process_time_ns() - begun) / units)
    return float(min(max(min(found), _LEAST), _MOST))


def _join(rows: int) -> float:
    draw = np.random.default_rng(1)
    join = AnytimeJoin(Layout("SHJ", window_us=10_000_000, buckets=16))
    join.take(draw.integers(0, 2, rows), np.arange(rows, dtype=np.int64) * 1_000, draw.integers(0, 500, rows))
    join.rest()
    return join.spent


def _select(rows: int) -> float:
    layout = Layout("T4", 10_000_000, window_us=10_000_000, scheme=Histogram(0.0, 1.0, 100))
    queries = [Query(start / 20, start / 20 + 0.103) for start in range(10)]
    selection = StandingSelection(layout, queries)
    selection.take(np.arange(rows, dtype=np.int64) * 1_000, np.random.default_rng(1).random(rows))
    selection.rest()
    return selection.spent
