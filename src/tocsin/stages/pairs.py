"""Pairs: a condition on pairs of rows that another join has found.

Idea: an anytime join (`promising`) finds pairs of equal keys, in the order of their promise. Whether one is a result
is a question of its two rows alone: do their times keep the bounds, and is the condition true of their values.
Guarantee: margin, truth and value are those of `join.search` on the same two rows.
Cost: one evaluation per pair inside the bounds.
"""

from __future__ import annotations

import numpy as np

from tocsin.expr.machine import run_program
from tocsin.jit import kernel
from tocsin.logic import Bools, Float, Int
from tocsin.stages.join import Condition, share_window


@kernel
def evaluate_pairs(time: Int, slots: tuple[Float, Float], condition: Condition) -> tuple[Bools, Float, Float]:
    """Tell which pairs are true, with margin and value; `time` has a line per stream, `slots` what is read of it."""
    first, second = slots
    late, early, hop = condition.upper[0, 1], condition.upper[1, 0], condition.hop
    ops, args, consts = condition.ops, condition.args, condition.consts
    count, begin, end = time.shape[1], condition.slot_offsets[1], condition.slot_offsets[2]
    true, margin, value = np.zeros(count, np.bool_), np.empty(count), np.empty(count)
    x, stack = np.empty(end), np.empty(condition.depth + 1)
    every, streams, chosen = time.ravel(), np.arange(2), np.empty(2, np.int64)
    for p in range(count):
        apart = time[1, p] - time[0, p]
        if apart > late or -apart > early:
            continue
        chosen[0], chosen[1] = p, count + p
        if hop and not share_window(streams, chosen, every, condition):
            continue
        for slot in range(begin):
            x[slot] = first[p, slot]
        for slot in range(begin, end):
            x[slot] = second[p, slot - begin]
        margin[p], true[p], value[p] = run_program(ops, args, consts, stack, x)
    return true, margin, value
