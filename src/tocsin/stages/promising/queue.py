"""The queue of promising regions: a binary heap in arrays, whose order does not depend on how it is laid out.

Regions come out by promise, the largest first; equal ones by the tuple that came last, then by the region that ends
last. So the order is total, and no cut of the input, no growth and no page can change it. Entries stay in their lines
while the heap moves promises and numbers of lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import inlined, lean
from tocsin.runtime.contract import Float, Int

# Columns of `entry`: the tuple's number among all arrivals, its stream, its number in it; what is to be done; where the
# region begins in the bucket, the first and the last arrival (exclusive) that belong to it.
RANK, SIDE, NUMBER, KIND, POINT, LOW, HIGH = range(7)
COLUMNS = 7


class Queue(NamedTuple):
    """Regions: the first `size[0]` of `line` and `promise` are a heap, `entry` has a region per line.

    All of `line` is a permutation: behind the heap stand the lines that are free.
    """

    promise: Float
    line: Int
    entry: Int
    size: Int


def new_queue(room: int) -> Queue:
    """Nothing to be done."""
    return Queue(np.zeros(room), np.arange(room), np.zeros((room, COLUMNS), np.int64), np.zeros(1, np.int64))


def entries(queue: Queue) -> Int:
    """Give the regions that wait, in the order of the heap."""
    return np.asarray(queue.entry[queue.line[: queue.size[0]]])


def arrays_of_queue(queue: Queue) -> dict[str, NDArray[Any]]:
    """Give the regions that wait, for a page."""
    return {"promise": queue.promise[: queue.size[0]], "entry": entries(queue)}


def queue_of(arrays: Mapping[str, NDArray[Any]], room: int) -> Queue:
    """Make a queue of what a page holds, with as much room at least."""
    size = len(arrays["promise"])
    queue = new_queue(max(room, 1 << (2 * size).bit_length()))
    queue.promise[:size], queue.entry[:size], queue.size[0] = arrays["promise"], arrays["entry"], size
    return queue


def with_more_room(queue: Queue) -> Queue:
    """Double the room."""
    more = new_queue(len(queue.promise))
    return Queue(
        np.concatenate([queue.promise, more.promise]),
        np.concatenate([queue.line, more.line + len(more.line)]),
        np.concatenate([queue.entry, more.entry]),
        queue.size,
    )


@inlined
def before(queue: Queue, promised: float, line: int, at: int) -> bool:
    """Whether a region comes out before the one at a place of the heap."""
    promise, lines, entry, _ = queue
    if promised != promise[at]:
        return bool(promised > promise[at])
    other = lines[at]
    if entry[line, RANK] != entry[other, RANK]:
        return bool(entry[line, RANK] > entry[other, RANK])
    if entry[line, HIGH] != entry[other, HIGH]:
        return bool(entry[line, HIGH] > entry[other, HIGH])
    return bool(entry[line, SIDE] > entry[other, SIDE])


@lean
def push(
    queue: Queue, promised: float, rank: int, side: int, number: int, kind: int, point: int, low: int, high: int
) -> None:
    """Put in a region; there must be room."""
    _, lines, entry, size = queue
    at = size[0]
    size[0] = at + 1
    line = lines[at]
    entry[line, RANK], entry[line, SIDE], entry[line, NUMBER], entry[line, KIND] = rank, side, number, kind
    entry[line, POINT], entry[line, LOW], entry[line, HIGH] = point, low, high
    rise(queue, promised, line, at, 0)


@inlined
def rise(queue: Queue, promised: float, line: int, at: int, top: int) -> None:
    """Put a region to a place that is free, or above it, where it belongs below `top`."""
    promise, lines, _, _ = queue
    while at > top:
        above = (at - 1) // 2
        if not before(queue, promised, line, above):
            break
        promise[at], lines[at] = promise[above], lines[above]
        at = above
    promise[at], lines[at] = promised, line


@lean
def pop(queue: Queue) -> None:
    """Take out the first region; its line stays as it is until the next is put in."""
    promise, lines, _, size = queue
    last, free = size[0] - 1, lines[0]
    size[0] = last
    if last > 0:
        settle(queue, promise[last], lines[last], 0)
    lines[last] = free


@inlined
def settle(queue: Queue, promised: float, line: int, top: int) -> None:
    """Put a region to a place that is free, or below it, where it belongs."""
    promise, lines, _, size = queue
    at, child = top, 2 * top + 1
    # Down to the end by the better child, then up: what is put there mostly belongs far below.
    while child < size[0]:
        if child + 1 < size[0] and before(queue, promise[child + 1], lines[child + 1], child):
            child += 1
        promise[at], lines[at] = promise[child], lines[child]
        at, child = child, 2 * child + 1
    rise(queue, promised, line, at, top)


@inlined
def room(queue: Queue) -> int:
    """How many more regions can be put in."""
    return int(queue.promise.shape[0] - queue.size[0])


@lean
def arrange(queue: Queue) -> None:
    """Make a heap of regions in any order."""
    for at in range(queue.size[0] // 2 - 1, -1, -1):
        settle(queue, queue.promise[at], queue.line[at], at)


@inlined
def keep(queue: Queue, at: int, kept: int) -> None:
    """Let a region that stays change places with one that does not."""
    promise, lines, _, _ = queue
    promise[kept], lines[kept], lines[at] = promise[at], lines[at], lines[kept]


@lean
def keep_alive(queue: Queue, oldest1: int, oldest2: int) -> None:
    """Take out the regions of tuples that are gone."""
    _, lines, entry, size = queue
    kept = 0
    for at in range(size[0]):
        line = lines[at]
        if entry[line, NUMBER] >= (oldest1 if entry[line, SIDE] == 0 else oldest2):
            keep(queue, at, kept)
            kept += 1
    size[0] = kept
    arrange(queue)
