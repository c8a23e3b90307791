"""Monotone queues: the two queues of bracketing and the loop that advances them.

`bracketing.py` describes the algorithm and its guarantees. `edge/key_reducer.py` calls the same loop without Numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.operators.retention.sorted_rows import Array, Index
from tocsin.runtime.contract import Int

CLOSED, OPEN, HOPPING = 0, 1, 2
# Marks of `advance_queues` for tuples that leave, if no single rank applies to all of them.
# OWN: the rank of the entering tuple. REPLAY: no tuple leaves.
OWN, REPLAY = -2, -1

Float = NDArray[np.float64]
Flags = NDArray[np.uint8]


class Reach(NamedTuple):
    """Window length of each side, and the kind of the windows.

    Attributes
    ----------
        above, below: Window length, 0 for hopping windows. A negative number marks a side that is not needed.
        kind: `CLOSED`, `OPEN` or `HOPPING`.
    """

    above: Any
    below: Any
    kind: int


class MonotoneQueues(NamedTuple):
    """Open classes of both sides. The number of a class is the number of its first tuple.

    Attributes
    ----------
        above, below: Classes of each side from front to back.
        ends: Front, back and last tuple that left, first for `above`, then for `below`; last tuple that entered.
        last, held: Last tuple of each class, and its last held tuple or -1.
        sides: Sides on which a class is open: 1 for above, 2 for below.
        zone: Buffer for a list of tuples.
    """

    above: Index
    below: Index
    ends: Int
    last: Index
    held: NDArray[np.int32]
    sides: Flags
    zone: Index


@kernel
def advance_queues(  # noqa: PLR0912, PLR0915 - parts called once per tuple would double its time
    picked: Index,
    columns: tuple[Array, Array, Float, Int],
    reach: Reach,
    queues: MonotoneQueues,
    marking: tuple[Array, int],
) -> None:
    """Enter the picked tuples in time order, and mark the tuples that leave: the complete algorithm in one loop.

    `marking` is the array that receives the marks, and the mark: a rank, `OWN` or `REPLAY`.
    """
    enter, leave, value, rank = columns
    above, below, ends, last, held, sides, _ = queues
    departure, mark = marking
    front_a, back_a, left_a, front_b, back_b, left_b, before = ends
    for i in picked:
        key, until, v = enter[i], leave[i], value[i]
        if key > until:
            departure[i] = 1
            continue
        mark_rank = rank[i] if mark == OWN else mark
        # 1. Meet the demands of the windows that end before i enters. The demand of a front class changes only when its
        # held tuple k leaves. If i enters with the hopping window after the last window of k, no window is between.
        if before < 0 or key != enter[before]:
            while front_a < back_a:
                c = above[front_a]
                k = held[c]
                if k < 0 or (left_a >= 0 and leave[k] <= leave[left_a]):
                    held[c] = k = last[c]
                if leave[k] > key - reach.above or (leave[k] == key - reach.above and reach.kind != OPEN):
                    break
                left_a = k
                if k == last[c]:
                    sides[c] &= 2
                    front_a += 1
                if reach.kind == HOPPING and leave[k] + 1 >= key:
                    break
            while front_b < back_b:
                c = below[front_b]
                k = held[c]
                if k < 0 or (left_b >= 0 and leave[k] <= leave[left_b]):
                    held[c] = k = last[c]
                if leave[k] > key - reach.below or (leave[k] == key - reach.below and reach.kind != OPEN):
                    break
                left_b = k
                if k == last[c]:
                    sides[c] &= 1
                    front_b += 1
                if reach.kind == HOPPING and leave[k] + 1 >= key:
                    break
        before = i
        # 2. Close the classes that i dominates.
        while back_a > front_a and value[above[back_a - 1]] < v:
            back_a -= 1
            c = above[back_a]
            sides[c] &= 2
            if sides[c] == 0 and held[c] != last[c] and mark_rank >= 0:
                departure[last[c]] = mark_rank
        while back_b > front_b and value[below[back_b - 1]] > v:
            back_b -= 1
            c = below[back_b]
            sides[c] &= 1
            if sides[c] == 0 and held[c] != last[c] and mark_rank >= 0:
                departure[last[c]] = mark_rank
        # 3. Join the class of the same value, or begin a new class.
        c = i
        if back_a > front_a and value[above[back_a - 1]] == v:
            c = above[back_a - 1]
        elif back_b > front_b and value[below[back_b - 1]] == v:
            c = below[back_b - 1]
        if c == i:
            held[i], sides[i] = -1, 0
        elif leave[last[c]] == until:
            # Every window of i contains the earlier tuple.
            if mark_rank >= 0:
                departure[i] = mark_rank
            continue
        elif held[c] != last[c]:
            if mark_rank >= 0:
                departure[last[c]] = mark_rank
            else:
                held[c] = last[c]
        last[c] = i
        # 4. Open the class on each side that has no stronger tuple with the same last window.
        if reach.above >= 0 and sides[c] & 1 == 0 and (back_a == front_a or leave[last[above[back_a - 1]]] != until):
            above[back_a] = c
            back_a += 1
            sides[c] |= 1
        if reach.below >= 0 and sides[c] & 2 == 0 and (back_b == front_b or leave[last[below[back_b - 1]]] != until):
            below[back_b] = c
            back_b += 1
            sides[c] |= 2
        if sides[c] == 0 and mark_rank >= 0:
            departure[i] = mark_rank
    ends[0], ends[1], ends[2], ends[3], ends[4], ends[5] = front_a, back_a, left_a, front_b, back_b, left_b
    ends[6] = before


@kernel
def new_queues(offsets: Int) -> tuple[Index, MonotoneQueues]:
    """Return the numbers from 0 to the length of the longest segment, and queues of this length."""
    size = 1
    for s in range(offsets.size - 1):
        size = max(size, offsets[s + 1] - offsets[s])
    above, below, zone = np.empty(size, np.uint32), np.empty(size, np.uint32), np.empty(size, np.uint32)
    last, held, sides = np.empty(size, np.uint32), np.empty(size, np.int32), np.empty(size, np.uint8)
    return np.arange(size).astype(np.uint32), MonotoneQueues(
        above, below, np.empty(7, np.int64), last, held, sides, zone
    )


@kernel
def clear_queues(queues: MonotoneQueues) -> None:
    """Empty the queues."""
    for i in range(queues.ends.size):
        queues.ends[i] = 0
    queues.ends[2], queues.ends[5], queues.ends[6] = -1, -1, -1
