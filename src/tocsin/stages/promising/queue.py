"""The queue of promising regions: a binary heap in arrays, whose order does not depend on how it is laid out.

Regions come out by promise, the largest first; equal ones by the tuple that came last, then by the region that ends
last. So the order is total, and no cut of the input, no growth and no page can change it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Float, Int

# Columns of `entry`: the tuple's number among all arrivals, its stream, its number in it; what is to be done; where the
# region begins in the bucket, the first and the last arrival (exclusive) that belong to it.
RANK, SIDE, NUMBER, KIND, POINT, LOW, HIGH = range(7)


class Queue(NamedTuple):
    """Regions: promises and entries, the first `size[0]` of them a heap."""

    promise: Float
    entry: Int
    size: Int


def new_queue(room: int = 256) -> Queue:
    """Nothing to be done."""
    return Queue(np.zeros(room), np.zeros((room, 7), np.int64), np.zeros(1, np.int64))


def with_more_room(queue: Queue) -> Queue:
    """Double the room."""
    return Queue(
        np.concatenate([queue.promise, np.zeros_like(queue.promise)]),
        np.concatenate([queue.entry, np.zeros_like(queue.entry)]),
        queue.size,
    )


@kernel
def before(promise: Float, entry: Int, one: int, other: int) -> bool:
    """Whether one region comes out before another."""
    if promise[one] != promise[other]:
        return bool(promise[one] > promise[other])
    if entry[one, RANK] != entry[other, RANK]:
        return bool(entry[one, RANK] > entry[other, RANK])
    if entry[one, HIGH] != entry[other, HIGH]:
        return bool(entry[one, HIGH] > entry[other, HIGH])
    return bool(entry[one, SIDE] > entry[other, SIDE])


@kernel
def swap(promise: Float, entry: Int, one: int, other: int) -> None:
    """Let two regions change places."""
    promise[one], promise[other] = promise[other], promise[one]
    for column in range(entry.shape[1]):
        entry[one, column], entry[other, column] = entry[other, column], entry[one, column]


@kernel
def push(
    queue: Queue, promised: float, rank: int, side: int, number: int, kind: int, point: int, low: int, high: int
) -> None:
    """Put in a region; there must be room."""
    promise, entry, size = queue
    at = size[0]
    size[0] = at + 1
    promise[at] = promised
    entry[at, RANK], entry[at, SIDE], entry[at, NUMBER], entry[at, KIND] = rank, side, number, kind
    entry[at, POINT], entry[at, LOW], entry[at, HIGH] = point, low, high
    while at > 0 and before(promise, entry, at, (at - 1) // 2):
        swap(promise, entry, at, (at - 1) // 2)
        at = (at - 1) // 2


@kernel
def pop(queue: Queue) -> int:
    """Take out the first region; it stands behind the others until the next is put in. Gives its place."""
    promise, entry, size = queue
    last = size[0] - 1
    size[0] = last
    swap(promise, entry, 0, last)
    sink(promise, entry, last, 0)
    return int(last)


@kernel
def sink(promise: Float, entry: Int, size: int, at: int) -> None:
    """Move a region down to where it belongs."""
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and before(promise, entry, child + 1, child):
            child += 1
        if not before(promise, entry, child, at):
            return
        swap(promise, entry, child, at)
        at = child


@kernel
def keep_alive(queue: Queue, oldest1: int, oldest2: int) -> None:
    """Take out the regions of tuples that are gone."""
    promise, entry, size = queue
    kept = 0
    for at in range(size[0]):
        if entry[at, NUMBER] >= (oldest1 if entry[at, SIDE] == 0 else oldest2):
            swap(promise, entry, kept, at)
            kept += 1
    size[0] = kept
    for at in range(kept // 2 - 1, -1, -1):
        sink(promise, entry, kept, at)
