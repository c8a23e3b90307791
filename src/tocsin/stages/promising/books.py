"""The books of work that is done within a budget: units that accrue and are spent, what was counted, why work stops.

Units are numbers, never times: the same input accrues and spends the same ones, in whatever batches.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from tocsin.jit import inlined
from tocsin.runtime.contract import Float, Int

# Places in `account`: units left, units of work done, of these to summarise, units that found nothing to do, results
# that were to be expected; and in `counts`: next arrival, whether its units were given, results written, arrivals so
# far, the newest time, tuples of either stream that went with regions left to probe.
CREDIT, SPENT, SUMMARISING, IDLE, EXPECTED = range(5)
AT, GIVEN, FOUND, ARRIVED, NEWEST, UNPROCESSED = range(6)
# Why a kernel stops.
DONE, TIRED, NO_ROOM, LONG_QUEUE = range(4)


class Costs(NamedTuple):
    """What work costs, in units: one tuple scanned is one.

    `summarize` and `estimate` are those of one row of a summary, `table` is that of one place in a sum of tables,
    `queue` that of putting a region in or of taking it out.
    """

    insert: float
    summarize: float
    table: float
    estimate: float
    queue: float
    scan: float
    emit: float


class Pace(NamedTuple):
    """Units that accrue with each arrival, and with each microsecond between arrivals."""

    per_arrival: float
    per_us: float


class Books(NamedTuple):
    """What was done: units and counts."""

    account: Float
    counts: Int


def new_books() -> Books:
    """Nothing done, no units."""
    return Books(np.zeros(5), np.zeros(7, np.int64))


def end_rest(account: Float) -> None:
    """Lose what a rest left of its units, unlimited ones too."""
    lose_idle(account)
    account[CREDIT] = min(account[CREDIT], 0.0)


@inlined
def lose_idle(account: Float) -> None:
    """Lose units that found nothing to do, as idle time is lost; unlimited ones stay."""
    if 0.0 < account[CREDIT] < inf:
        account[IDLE] += account[CREDIT]
        account[CREDIT] = 0.0


@inlined
def charge(account: Float, units: float) -> None:
    """Pay for work."""
    account[CREDIT] -= units
    account[SPENT] += units


@inlined
def accrue(books: Books, pace: Pace, time: int) -> None:
    """Give the units that come with the next arrival, once."""
    account, counts = books
    if counts[GIVEN] == 0:
        gap = time - counts[NEWEST] if counts[ARRIVED] > 0 else 0
        account[CREDIT] += pace.per_arrival + (pace.per_us * gap if gap > 0 else 0.0)
        counts[GIVEN] = 1


@inlined
def taken_in(books: Books, time: int) -> None:
    """Go on to the arrival after this one."""
    _, counts = books
    counts[NEWEST], counts[GIVEN], counts[AT] = time, 0, counts[AT] + 1
    counts[ARRIVED] += 1
