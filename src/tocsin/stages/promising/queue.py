"""The queue of promising regions: a binary heap in arrays, whose order does not depend on how it is laid out.

Regions come out by promise, the largest first; equal ones by the tuple that came last, then by the region that ends
last. So the order is total, and no cut of the input, no growth and no page can change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.logic import Float, Int

# Columns of `entry`: the tuple's number among all arrivals, its stream, its number in it; what is to be done; where the
# region begins in the bucket, the first and the last arrival (exclusive) that belong to it.
RANK, SIDE, NUMBER, KIND, POINT, LOW, HIGH = range(7)
COLUMNS = 7


class Queue(NamedTuple):
    """Regions: promises and entries, the first `size[0]` of them a heap."""

    promise: Float
    entry: Int
    size: Int


def new_queue(room: int) -> Queue:
    """Nothing to be done."""
    return Queue(np.zeros(room), np.zeros((room, COLUMNS), np.int64), np.zeros(1, np.int64))


def arrays_of_queue(queue: Queue) -> dict[str, NDArray[Any]]:
    """Give the regions that wait, for a page."""
    size = int(queue.size[0])
    return {"promise": queue.promise[:size], "entry": queue.entry[:size]}


def queue_of(arrays: Mapping[str, NDArray[Any]], room: int) -> Queue:
    """Make a queue of what a page holds, with as much room at least."""
    size = len(arrays["promise"])
    queue = new_queue(max(room, 1 << (2 * size).bit_length()))
    queue.promise[:size], queue.entry[:size], queue.size[0] = arrays["promise"], arrays["entry"], size
    return queue


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
def copy(promise: Float, entry: Int, source: int, target: int) -> None:
    """Write a region to another place."""
    promise[target] = promise[source]
    for column in range(COLUMNS):
        entry[target, column] = entry[source, column]


@kernel
def push(
    queue: Queue, promised: float, rank: int, side: int, number: int, kind: int, point: int, low: int, high: int
) -> None:
    """Put in a region; there must be room."""
    promise, entry, size = queue
    # The new region waits in the place behind all that there is room for, while others move down.
    at, new = size[0], promise.shape[0] - 1
    size[0] = at + 1
    promise[new] = promised
    entry[new, RANK], entry[new, SIDE], entry[new, NUMBER], entry[new, KIND] = rank, side, number, kind
    entry[new, POINT], entry[new, LOW], entry[new, HIGH] = point, low, high
    while at > 0 and before(promise, entry, new, (at - 1) // 2):
        copy(promise, entry, (at - 1) // 2, at)
        at = (at - 1) // 2
    copy(promise, entry, new, at)


@kernel
def pop(queue: Queue) -> int:
    """Take out the first region; gives where it stands until the next is put in or taken out."""
    promise, entry, size = queue
    last = size[0] - 1
    size[0] = last
    moved, out = promise.shape[0] - 1, promise.shape[0] - 2
    copy(promise, entry, 0, out)
    copy(promise, entry, last, moved)
    settle(promise, entry, last, 0, moved)
    return int(out)


@kernel
def settle(promise: Float, entry: Int, size: int, at: int, moved: int) -> None:
    """Let smaller regions move up into a place that is free, until the one at `moved` belongs there."""
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and before(promise, entry, child + 1, child):
            child += 1
        if not before(promise, entry, child, moved):
            break
        copy(promise, entry, child, at)
        at = child
    copy(promise, entry, moved, at)


@kernel
def arrange(queue: Queue) -> None:
    """Make a heap of regions in any order."""
    promise, entry, size = queue
    moved = promise.shape[0] - 1
    for at in range(size[0] // 2 - 1, -1, -1):
        copy(promise, entry, at, moved)
        settle(promise, entry, size[0], at, moved)


@kernel
def room(queue: Queue) -> int:
    """How many more regions can be put in; the last two places are scratch."""
    return int(queue.promise.shape[0] - 2 - queue.size[0])


@kernel
def keep_alive(queue: Queue, oldest1: int, oldest2: int) -> None:
    """Take out the regions of tuples that are gone."""
    promise, entry, size = queue
    kept = 0
    for at in range(size[0]):
        if entry[at, NUMBER] >= (oldest1 if entry[at, SIDE] == 0 else oldest2):
            copy(promise, entry, at, kept)
            kept += 1
    size[0] = kept
    arrange(queue)
