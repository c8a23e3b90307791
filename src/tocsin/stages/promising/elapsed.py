"""The time of a bucket, row by row: a clock that never goes back and that no single row can move far.

Idea: an anytime join takes rows in the order in which they come, each with a time that does not fall. That time need
not be the row's own: it says when a row grows old, and how many units of work have accrued. So it moves with the newest
row, `leap_us` at most at once: a gap in the streams passes as that, and so does a clock in the future. Where most rows
of a block lie behind what the newest row said by more than `allowed_lateness_us`, that row's clock was wrong: the clock
goes on from the median of the block.

    event time   0   1   2  900   3   4   5 ...   34  35
    elapsed      0   1   2   12  12  12  12 ...   12  13        leap 10; after a block of 33 rows it goes on

Guarantee: two rows whose event times lie w apart come at most w + `allowed_lateness_us` of elapsed time apart, if the
later one came at most `allowed_lateness_us` behind the newest row and no clock went wrong meanwhile; each that did
costs `leap_us` at most. Any cut into calls gives the same times for the same rows.
Cost: O(1) per row, a sort of 33 numbers per block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int

BLOCK = 33
# Places in `facts`: elapsed time, the newest event time, rows of the block so far, how many of them lay behind.
ELAPSED, FRONT, ROWS, LATE = range(4)


class Elapsed(NamedTuple):
    """Where the clock stands, and the event times of the block so far."""

    facts: Int
    recent: Int


def new_elapsed() -> Elapsed:
    """No rows yet."""
    return Elapsed(np.array([NEVER_SEEN, NEVER_SEEN, 0, 0]), np.zeros(BLOCK, np.int64))


@kernel
def elapse(clock: Elapsed, time: Int, allowed_lateness_us: int, leap_us: int) -> tuple[Int, Bools]:
    """Return the elapsed time at each row, in order of arrival, and whether the row is later than allowed."""
    facts, recent = clock
    elapsed, behind = np.empty(time.shape[0], np.int64), np.zeros(time.shape[0], np.bool_)
    for i in range(time.shape[0]):
        now = time[i]
        if facts[FRONT] == NEVER_SEEN:
            facts[ELAPSED], facts[FRONT] = now, now
        elif now > facts[FRONT]:
            facts[ELAPSED] += min(now - facts[FRONT], leap_us)
            facts[FRONT] = now
        behind[i] = now < facts[FRONT] - allowed_lateness_us
        elapsed[i] = facts[ELAPSED]
        recent[facts[ROWS]] = now
        facts[ROWS] += 1
        facts[LATE] += behind[i]
        if facts[ROWS] == BLOCK:
            if 2 * facts[LATE] > BLOCK:
                facts[FRONT] = np.sort(recent)[BLOCK // 2]
            facts[ROWS], facts[LATE] = 0, 0
    return elapsed, behind
