"""Final rows: the retained rows of one stream that no later row in order can cover.

A rule of one stream evaluates only these rows.

Algorithm: a row in order covers only rows at most one window length before it. The watermark is this length behind the
newest row of a key. A row becomes final with the arrival that advances the watermark to its time, or with its own
arrival if the watermark is already there. The join then evaluates the row if it is still retained.

    time   -----x------------|--- L ---|-->     x is final: no window contains x and a row after the newest row
             final      watermark   newest

Guarantees: each row becomes final once, in the order of (arrival that makes it final, time, arrival), for all batch
boundaries. For rows in order, the result equals bracketing of all rows: a tuple behind the watermark has left the
queues, so it is held or omitted. For rows out of order, the result contains the extremes of every window once the
watermark has passed the window.

Complexity: one pass over the arrivals and over the rows of their keys.

References: Cai et al., PVLDB 14(6), reduce before a join without a delay. The delay is part of Tocsin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import Int


@kernel
def find_final_rows(
    arrived: tuple[Int, Int], rows: tuple[Int, Int, Int, Int], newest: Int, watermark: Int, lag: int
) -> tuple[Int, NDArray[np.bool_]]:
    """Advance the watermark with each arrival. Return the rows that become final, and mark the late rows.

    A row is late if it arrived after the watermark had passed it. `newest` and `watermark` of each key are updated.

    Parameters
    ----------
    arrived
        Key and row of each arrival, sorted by key and arrival.
    rows
        Offsets of the keys, sorted times of their rows, and ranks of the arrivals at which the rows enter and leave.
    newest, watermark
        Newest time and watermark of each key.
    lag
        Distance of the watermark from the newest time.
    """
    offsets, time, rank, departure = rows
    final, late = np.empty(time.shape[0], np.int64), np.zeros(time.shape[0], np.bool_)
    count, before, next_row = 0, -1, 0
    for i in range(arrived[0].shape[0]):
        key, row = arrived[0][i], arrived[1][i]
        now = rank[row]
        if key != before:
            before, next_row = key, offsets[key]
            while next_row < offsets[key + 1] and time[next_row] <= watermark[key]:
                next_row += 1
        if time[row] <= watermark[key] and departure[row] > now:
            final[count], late[count] = row, time[row] < watermark[key]
            count += 1
        newest[key] = max(newest[key], time[row])
        watermark[key] = max(watermark[key], time[row] - lag)
        while next_row < offsets[key + 1] and time[next_row] <= watermark[key]:
            # A row that arrives later in this batch becomes final with its own arrival.
            if rank[next_row] <= now < departure[next_row]:
                final[count] = next_row
                count += 1
            next_row += 1
    return final[:count].copy(), late[:count].copy()
