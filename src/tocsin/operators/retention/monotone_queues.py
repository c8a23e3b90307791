"""The two queues of bracketing and the one loop that moves them: see `bracket` for what they are good for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.operators.retention.sorted_rows import Array, Index
from tocsin.runtime.contract import Int

CLOSED, OPEN, HOPPING = 0, 1, 2
# What `feed` gives to a tuple that goes, if not one rank for all: each entering tuple's own rank, or nothing may go.
OWN, REPLAY = -2, -1

Float = NDArray[np.float64]
Flags = NDArray[np.uint8]


class Reach(NamedTuple):
    """How far windows reach on each side (below 0: not needed; hopping: 0), and `CLOSED`, `OPEN` or `HOPPING`."""

    above: Any
    below: Any
    kind: int


class Stacks(NamedTuple):
    """The open classes; a class has the number of its first tuple.

    `above` and `below` list the classes of each side from front to back. `ends` has front, back and the last tuple that
    left of `above`, the same of `below`, and the last tuple that entered. `last` and `held` belong to a class, `sides`
    says where it is open (1 above, 2 below). `zone` is room for a list of tuples.
    """

    above: Index
    below: Index
    ends: Int
    last: Index
    held: NDArray[np.int32]
    sides: Flags
    zone: Index


@kernel
def feed(  # noqa: PLR0912, PLR0915 - parts called once per tuple would double its time
    pick: Index, columns: tuple[Array, Array, Float, Int], reach: Reach, stacks: Stacks, fate: tuple[Array, int]
) -> None:
    """Enter the picked tuples in time order and mark what goes: the whole algorithm, in one loop over arrays."""
    enter, leave, value, rank = columns
    above, below, ends, last, held, sides, _ = stacks
    gone, mark = fate
    front_a, back_a, left_a, front_b, back_b, left_b, before = ends
    for i in pick:
        key, until, v = enter[i], leave[i], value[i]
        if key > until:
            gone[i] = 1
            continue
        given = rank[i] if mark == OWN else mark
        # 1. Meet the demands of the windows that end before i enters. What a front class owes changes only when its
        # held tuple k leaves. If i enters with the hopping window after the last one of k, no window lies between.
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
            if sides[c] == 0 and held[c] != last[c] and given >= 0:
                gone[last[c]] = given
        while back_b > front_b and value[below[back_b - 1]] > v:
            back_b -= 1
            c = below[back_b]
            sides[c] &= 1
            if sides[c] == 0 and held[c] != last[c] and given >= 0:
                gone[last[c]] = given
        # 3. Join the class of the same value, or begin one.
        c = i
        if back_a > front_a and value[above[back_a - 1]] == v:
            c = above[back_a - 1]
        elif back_b > front_b and value[below[back_b - 1]] == v:
            c = below[back_b - 1]
        if c == i:
            held[i], sides[i] = -1, 0
        elif leave[last[c]] == until:
            # The earlier one lies in every window of this one.
            if given >= 0:
                gone[i] = given
            continue
        elif held[c] != last[c]:
            if given >= 0:
                gone[last[c]] = given
            else:
                held[c] = last[c]
        last[c] = i
        # 4. Open the class on each side where no stronger tuple stays as long.
        if reach.above >= 0 and sides[c] & 1 == 0 and (back_a == front_a or leave[last[above[back_a - 1]]] != until):
            above[back_a] = c
            back_a += 1
            sides[c] |= 1
        if reach.below >= 0 and sides[c] & 2 == 0 and (back_b == front_b or leave[last[below[back_b - 1]]] != until):
            below[back_b] = c
            back_b += 1
            sides[c] |= 2
        if sides[c] == 0 and given >= 0:
            gone[i] = given
    ends[0], ends[1], ends[2], ends[3], ends[4], ends[5] = front_a, back_a, left_a, front_b, back_b, left_b
    ends[6] = before


@kernel
def stacks_for(offsets: Int) -> tuple[Index, Stacks]:
    """Make the numbers from 0 on, and stacks, for the longest segment."""
    size = 1
    for s in range(offsets.size - 1):
        size = max(size, offsets[s + 1] - offsets[s])
    above, below, zone = np.empty(size, np.uint32), np.empty(size, np.uint32), np.empty(size, np.uint32)
    last, held, sides = np.empty(size, np.uint32), np.empty(size, np.int32), np.empty(size, np.uint8)
    return np.arange(size).astype(np.uint32), Stacks(above, below, np.empty(7, np.int64), last, held, sides, zone)


@kernel
def clear(stacks: Stacks) -> None:
    """Empty the queues."""
    for i in range(stacks.ends.size):
        stacks.ends[i] = 0
    stacks.ends[2], stacks.ends[5], stacks.ends[6] = -1, -1, -1
