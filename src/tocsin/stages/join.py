"""Join and evaluate: for each arriving row, the best combination it completes, or all true ones.

Idea: rows are taken one at a time. A row probes the remembered rows of the other streams: those that arrived before it and had not yet gone, as
the reduce stage dated them, so a whole batch is joined at once and still sees, row by row, what one-at-a-time processing would have seen.
Partners are searched depth first in the rule's stream order inside the tightest implied bounds; candidates come in time order, so
the first best found is the one with the earliest times.

Guarantee: exactly the combinations of docs/concepts/semantics.md among the remembered rows.
Cost: a binary search per stream and probe, then one visit per candidate and one evaluation per combination.
Source: symmetric m-way window join (Golab and Özsu, VLDB 2003), with the condition evaluated inside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.expr.machine import run_program
from tocsin.jit import kernel
from tocsin.logic import Float, Int


class Tuples(NamedTuple):
    """Rows of all streams of a rule: for stream i and key k those from offsets[i*keys + k] on, in time order."""

    offsets: Int
    time: Int
    rank: Int
    gone: Int
    slots: Float


class Probes(NamedTuple):
    """Arriving rows in arrival order: stream, key, and index among the tuples."""

    stream: Int
    key: Int
    index: Int


class Condition(NamedTuple):
    """What makes a combination: implied bounds (upper[i, j] >= t_j - t_i), hopping windows, and the compiled condition."""

    upper: Int
    hop: int
    window: int
    open_left: int
    open_right: int
    slot_offsets: Int
    ops: Int
    args: Int
    consts: Float
    depth: int


class Evaluations(NamedTuple):
    """One row per probe; `found` is 0 where it completed nothing. `witness` holds the chosen tuple of each stream."""

    found: Int
    margin: Float
    truth: Int
    value: Float
    witness: Int


@kernel
def first_window(time: int, hop: int, window: int, open_right: int) -> int:
    """Number of the first hopping window that holds a time."""
    return -((window - time) // hop) + (1 if open_right and (time - window) % hop == 0 else 0)


@kernel
def last_window(time: int, hop: int, open_left: int) -> int:
    """Number of the last hopping window that holds a time."""
    return time // hop - (1 if open_left and time % hop == 0 else 0)


@kernel
def lower_bound(array: Int, start: int, stop: int, bound: int) -> int:
    """First position in the sorted array[start:stop] that is not below `bound`."""
    while start < stop:
        middle = (start + stop) >> 1
        if array[middle] < bound:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel
def join_window(level: int, order: Int, chosen: Int, time: Int, upper: Int) -> tuple[int, int]:
    """Earliest and latest time that the stream at `level` may take beside the rows chosen so far (the probe is order[0])."""
    stream = order[level]
    low = time[chosen[order[0]]] - upper[stream, order[0]]
    high = time[chosen[order[0]]] + upper[order[0], stream]
    for j in range(1, level):
        other = order[j]
        low = max(low, time[chosen[other]] - upper[stream, other])
        high = min(high, time[chosen[other]] + upper[other, stream])
    return low, high


@kernel
def share_window(order: Int, chosen: Int, time: Int, condition: Condition) -> bool:
    """Tell whether one hopping window holds all chosen rows."""
    first, last = -(1 << 62), 1 << 62
    for stream in order:
        at = time[chosen[stream]]
        first = max(first, first_window(at, condition.hop, condition.window, condition.open_right))
        last = min(last, last_window(at, condition.hop, condition.open_left))
    return first <= last


@kernel
def grown(rows: Int) -> Int:
    """A copy of the first dimension twice as long."""
    longer = np.empty((2 * rows.shape[0], rows.shape[1]), dtype=np.int64)
    longer[: rows.shape[0]] = rows
    return longer


@kernel
def combine(tuples: Tuples, probes: Probes, condition: Condition, keys: int, every: bool) -> tuple[Evaluations, Int, Float]:
    """Evaluate each probe; with `every`, also list all true combinations (tuple per stream) with margin and value."""
    streams, count = condition.upper.shape[0], probes.index.shape[0]
    time, rank, gone = tuples.time, tuples.rank, tuples.gone
    found, truth = np.zeros(count, np.int64), np.zeros(count, np.int64)
    margin, value = np.full(count, -np.inf), np.full(count, np.nan)
    witness = np.full((count, streams), -1, np.int64)
    matches, match_count = np.empty((16 if every else 1, streams), np.int64), 0
    scores = np.empty((16 if every else 1, 2))
    order, chosen = np.empty(streams, np.int64), np.empty(streams, np.int64)
    cursor, latest = np.empty(streams, np.int64), np.empty(streams, np.int64)
    x, stack = np.empty(condition.slot_offsets[streams]), np.empty(condition.depth + 1)
    for p in range(count):
        probe = probes.index[p]
        now, key = rank[probe], probes.key[p]
        order[0], level = probes.stream[p], 1
        for stream in range(streams):
            if stream != order[0]:
                order[level] = stream
                level += 1
        level, chosen[order[0]] = 0, probe
        while level >= 0:
            if level > 0:  # Move on to the next visible candidate of this level, or step back.
                segment = order[level] * keys + key
                at, end = cursor[level] + 1, tuples.offsets[segment + 1]
                while at < end and time[at] <= latest[level] and not (rank[at] < now and now < gone[at]):
                    at += 1
                if at >= end or time[at] > latest[level]:
                    level = level - 1 if level > 1 else -1
                    continue
                cursor[level], chosen[order[level]] = at, at
            stream = order[level]
            for slot in range(condition.slot_offsets[stream], condition.slot_offsets[stream + 1]):
                x[slot] = tuples.slots[chosen[stream], slot - condition.slot_offsets[stream]]
            if level < streams - 1:  # Open the next level at the start of its window.
                level += 1
                low, latest[level] = join_window(level, order, chosen, time, condition.upper)
                segment = order[level] * keys + key
                start, stop = tuples.offsets[segment], tuples.offsets[segment + 1]
                cursor[level] = lower_bound(time, start, stop, low) - 1
                continue
            if condition.hop == 0 or share_window(order, chosen, time, condition):
                m, ok, v = run_program(condition.ops, condition.args, condition.consts, stack, x)
                if not found[p] or m > margin[p] or (m == margin[p] and ok and not truth[p]):
                    found[p], margin[p], truth[p], value[p] = 1, m, ok, v
                    witness[p] = chosen
                if every and ok:
                    if match_count == matches.shape[0]:
                        matches = grown(matches)
                        longer = np.empty((2 * match_count, 2))
                        longer[:match_count] = scores
                        scores = longer
                    matches[match_count] = chosen
                    scores[match_count, 0], scores[match_count, 1] = m, v
                    match_count += 1
            if streams == 1:
                break
    return Evaluations(found, margin, truth, value, witness), matches[:match_count], scores[:match_count]
