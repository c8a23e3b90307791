"""Run and heap: per stream a queue of rows, to be taken in order of (time, number), most of them put in that order.

Idea: a row that lies behind none of its queue goes to the end of a run, any other into a binary heap; the next to be
taken is the first of the run or the top of the heap. A stream in order costs one comparison per row.

Guarantee: rows leave a queue by time, rows of one time in order of their numbers, in whatever order they were put.
Cost: O(1) for a row in order, O(log of the rows behind) for another; two numbers per row.

The loops that put and take stand in `slack` and `synchronizer`: compiled code counts the users of an array at many
calls, which for single rows would cost more than the work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Int

# Columns of `marks`: where the room of a stream begins; the first and the end of its run and the rows in its heap,
# counted from there; the row to be taken next (-1: none).
BASE, HEAD, TAIL, SIZE, FRONT = 0, 1, 2, 3, 4


class Queues(NamedTuple):
    """A queue per stream: row numbers in runs and in heaps, and per stream where it stands."""

    run: Int
    heap: Int
    marks: Int


@kernel
def new_queues(streams: int, rows: int) -> Queues:
    """Make room for so many rows of all streams together."""
    return Queues(np.empty(rows, np.int64), np.empty(rows, np.int64), np.zeros((streams, 5), np.int64))


@kernel
def lay_out(marks: Int, stream: Int, start: int, stop: int) -> None:
    """Empty all queues, and give each stream room for its rows from `start` to before `stop`."""
    marks[:] = 0
    for row in range(start, stop):
        marks[stream[row], BASE] += 1
    below = 0
    for of in range(marks.shape[0]):
        marks[of, BASE], below = below, below + marks[of, BASE]
        marks[of, FRONT] = -1


@kernel
def comes_before(row: int, other: int, time: Int) -> bool:
    """Tell whether a row is to be taken before another one."""
    return bool(time[row] < time[other] or (time[row] == time[other] and row < other))


@kernel
def rise(heap: Int, base: int, count: int, row: int, time: Int) -> None:
    """Put a row into the heap of `count` rows that begins at `base`."""
    at, due = count, time[row]
    while at > 0 and (
        time[heap[base + ((at - 1) >> 1)]] > due
        or (time[heap[base + ((at - 1) >> 1)]] == due and heap[base + ((at - 1) >> 1)] > row)
    ):
        heap[base + at] = heap[base + ((at - 1) >> 1)]
        at = (at - 1) >> 1
    heap[base + at] = row


@kernel
def sink(heap: Int, base: int, count: int, time: Int) -> None:
    """Take the top off a heap that has `count` rows without it."""
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
