"""Pairs: a condition on pairs of rows that another join has found.

Idea: an anytime join (`promising`) finds pairs of equal keys, in the order of their promise. Whether one is a result
is a question of its two rows alone: do their times keep the bounds, and is the condition true of their values. Rows
stand in columns, and pairs are places in them: nothing is copied before it is known to be a result.
Guarantee: margin, truth and value are those of `join.search` on the same two rows.
Cost: one evaluation per pair inside the bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.expr.stack_machine import run_program
from tocsin.jit import kernel
from tocsin.operators.join.threshold_join import Condition, share_window
from tocsin.runtime.contract import Float, Int

# In `reads`, instead of a side: what is read is a limit.
LIMIT = 2


class Rows(NamedTuple):
    """Rows of both sides of a join in columns: key, time, and values."""

    key: Int
    time: Int
    values: Float


@kernel
def split_pairs(at: Int, rows: Rows, span_us: int) -> tuple[Int, Int, Int]:
    """Of pairs whose keys are equal: the keys, which of them are near enough to be evaluated, and these themselves.

    Numbers of keys, by which pairs were found, may be equal though keys are not.
    """
    keys, near = np.empty(at.shape[0], np.int64), np.empty(at.shape[0], np.int64)
    chosen, same, count = np.empty_like(at), 0, 0
    for p in range(at.shape[0]):
        first, second = at[p, 0], at[p, 1]
        if rows.key[first] != rows.key[second]:
            continue
        if abs(rows.time[first] - rows.time[second]) <= span_us:
            near[count], chosen[count, 0], chosen[count, 1] = same, first, second
            count += 1
        keys[same] = rows.key[first]
        same += 1
    return keys[:same].copy(), near[:count].copy(), chosen[:count].copy()


@kernel
def evaluate_pairs(
    at: Int, sides: tuple[int, int], rows: Rows, reads: Int, limits: Float, condition: Condition
) -> tuple[Int, Float]:
    """The pairs for which a condition is true, with margin and value of each.

    `sides` are those of its streams. Of each slot `reads` has the side and the column, or the number of a limit, of
    which `limits` has a line per pair.
    """
    late, early, hop = condition.upper[0, 1], condition.upper[1, 0], condition.hop
    ops, args, consts, slots = condition.ops, condition.args, condition.consts, reads.shape[0]
    found, scores, count = np.empty(at.shape[0], np.int64), np.empty((at.shape[0], 2)), 0
    x, stack = np.empty(slots), np.empty(condition.depth + 1)
    streams, chosen = np.arange(2), np.empty(2, np.int64)
    for p in range(at.shape[0]):
        chosen[0], chosen[1] = at[p, sides[0]], at[p, sides[1]]
        apart = rows.time[chosen[1]] - rows.time[chosen[0]]
        if apart > late or -apart > early or (hop and not share_window(streams, chosen, rows.time, condition)):
            continue
        for slot in range(slots):
            side, column = reads[slot, 0], reads[slot, 1]
            x[slot] = limits[p, column] if side == LIMIT else rows.values[at[p, side], column]
        margin, true, value = run_program(ops, args, consts, stack, x)
        if true:
            found[count], scores[count, 0], scores[count, 1] = p, margin, value
            count += 1
    return found[:count].copy(), scores[:count].copy()
