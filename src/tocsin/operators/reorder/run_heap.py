"""Run and heap: a queue of rows per stream, sorted by time and row number, that is fast for rows in order.

Algorithm: a row that is not older than the last row of the run is appended to the run. Any other row is pushed into a
binary heap. The next row is the first row of the run or the top of the heap.

Guarantees: rows leave a queue by time. Rows of equal time leave by number, independent of the insertion order.

Complexity: O(1) for a row in order, O(log n) for n out-of-order rows in the queue; two numbers per row.

The loops that insert and remove rows are in `k_slack` and `synchronizer`. A kernel call per row would cost more than
the work, because compiled code counts references to arrays at each call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Int

# Columns of `marks`: first position of a stream; head and tail of its run and size of its heap, relative to this
# position; row that leaves next, or -1.
BASE, HEAD, TAIL, SIZE, FRONT = 0, 1, 2, 3, 4


class Queues(NamedTuple):
    """Queues of all streams: row numbers in runs and heaps, and the positions in both by stream."""

    run: Int
    heap: Int
    marks: Int


@kernel
def new_queues(streams: int, rows: int) -> Queues:
    """Allocate queues for a total number of rows."""
    return Queues(np.empty(rows, np.int64), np.empty(rows, np.int64), np.zeros((streams, 5), np.int64))


@kernel
def reset_queues(marks: Int, stream: Int, start: int, stop: int) -> None:
    """Empty all queues, and reserve space for the rows from `start` to before `stop`."""
    marks[:] = 0
    for row in range(start, stop):
        marks[stream[row], BASE] += 1
    below = 0
    for of in range(marks.shape[0]):
        marks[of, BASE], below = below, below + marks[of, BASE]
        marks[of, FRONT] = -1


@kernel
def comes_before(row: int, other: int, time: Int) -> bool:
    """Return whether a row leaves before another row."""
    return bool(time[row] < time[other] or (time[row] == time[other] and row < other))


@kernel
def push_heap(heap: Int, base: int, count: int, row: int, time: Int) -> None:
    """Push a row into the heap of `count` rows that begins at `base`."""
    at, due = count, time[row]
    while at > 0 and (
        time[heap[base + ((at - 1) >> 1)]] > due
        or (time[heap[base + ((at - 1) >> 1)]] == due and heap[base + ((at - 1) >> 1)] > row)
    ):
        heap[base + at] = heap[base + ((at - 1) >> 1)]
        at = (at - 1) >> 1
    heap[base + at] = row


@kernel
def pop_heap(heap: Int, base: int, count: int, time: Int) -> None:
    """Remove the top of a heap; `count` is its size without the top."""
    row = heap[base + count]
    due, at, below, above = time[row], 0, 1, False
    while below < count and not above:
        child = heap[base + below]
        if below + 1 < count:
            right = heap[base + below + 1]
            if time[right] < time[child] or (time[right] == time[child] and right < child):
                child, below = right, below + 1
        above = due < time[child] or (due == time[child] and row < child)
        if not above:
            heap[base + at] = child
            at, below = below, 2 * below + 1
    heap[base + at] = row
