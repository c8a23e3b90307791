"""Settled: the remembered rows of one stream whose place is final, so that a condition is called on those alone.

Idea. A row that comes in order excuses rows at most a window's length before it. Progress lies that far behind the
newest row of a key. A row is settled by the arrival that lets progress reach its time, or by its own if progress is
there already; what is remembered at that moment is evaluated.

    time   -----x------------|--- L ---|-->     x is settled: a row after the newest one and x share no window
             settled      progress   newest

*Guarantee*: rows are settled once, in order of (arrival that settles, time, arrival), whatever the cut into batches. In
order, those given are what `bracket` keeps of everything: a tuple behind progress has left the queues, and it is held
or gone. Out of order, every window still has its extremes among them once progress has passed it.
*Cost*: one pass over the arrivals and over the rows of their keys.
*Source*: ours; Cai et al., PVLDB 14(6), reduce before a join and never wait.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import Int


@kernel
def settle(
    arrived: tuple[Int, Int], rows: tuple[Int, Int, Int, Int], newest: Int, progress: Int, lag: int
) -> tuple[Int, NDArray[np.bool_]]:
    """Move progress with each arrival; give the rows that are settled, and which of them came after it had passed.

    `arrived` are key and row of each arrival, by key and arrival. `rows` are the offsets of the keys, and the times of
    their rows, sorted, with the ranks of the arrivals at which they come and go.
    """
    offsets, time, rank, gone = rows
    given, late = np.empty(time.shape[0], np.int64), np.zeros(time.shape[0], np.bool_)
    count, before, next_row = 0, -1, 0
    for i in range(arrived[0].shape[0]):
        key, row = arrived[0][i], arrived[1][i]
        now = rank[row]
        if key != before:
            before, next_row = key, offsets[key]
            while next_row < offsets[key + 1] and time[next_row] <= progress[key]:
                next_row += 1
        if time[row] <= progress[key] and gone[row] > now:
            given[count], late[count] = row, time[row] < progress[key]
            count += 1
        newest[key] = max(newest[key], time[row])
        progress[key] = max(progress[key], time[row] - lag)
        while next_row < offsets[key + 1] and time[next_row] <= progress[key]:
            # A row that comes later in this batch is settled by its own arrival.
            if rank[next_row] <= now < gone[next_row]:
                given[count] = next_row
                count += 1
            next_row += 1
    return given[:count].copy(), late[:count].copy()
