"""Join and evaluate: for each arriving row, the best combination it completes, or all true ones.

Idea: rows are taken one at a time. A row probes the remembered rows of the other streams: those that arrived before it
and had not yet gone, as the reduce stage dated them, so a whole batch is joined at once and still sees, row by row,
what one-at-a-time processing would have seen. Partners are searched depth first in the rule's stream order inside the
tightest implied bounds. Of equally good combinations the earliest times win, compared stream by stream; of equal times
the rows that came first, since candidates come in order of time and arrival.

Where it is known what a condition does with the last two streams, `candidates` says which rows need not be tried.

Guarantee: the best of the combinations of docs/explanation/semantics.md (D40, D41) among the remembered rows; of
equally good ones the earliest among those tried, which depends on nothing but the rows remembered at that moment.
Cost: a binary search per stream and probe, then one visit per remembered candidate and one evaluation per combination;
where the last two streams are known and rows come in order, one look at each candidate and one to four evaluations.
Source: symmetric m-way window join (Golab and Özsu, VLDB 2003), with the condition evaluated inside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.expr.stack_machine import run_program
from tocsin.jit import kernel
from tocsin.operators.join.join_candidates import (
    advance,
    clipped,
    count_vague,
    covers,
    extremes,
    first_not_before,
    is_beaten,
    look_near,
    note,
    reach_of,
    turn_of,
)
from tocsin.runtime.contract import Float, Int


class Tuples(NamedTuple):
    """Rows of all streams of a rule: for stream i and key k those from offsets[i*keys + k] on, in time order.

    `number` is what rows of a stream are compared by; NaN: of this row nothing is known.
    """

    offsets: Int
    time: Int
    rank: Int
    gone: Int
    slots: Float
    number: Float


class Probes(NamedTuple):
    """Arriving rows by key and arrival: stream, key, row among the tuples, and whether they only become partners."""

    stream: Int
    key: Int
    row: Int
    silent: NDArray[np.bool_]


class Condition(NamedTuple):
    """What makes a combination: implied bounds (upper[i, j] >= t_j - t_i), hopping windows, the compiled condition.

    `turn` says, per stream, by which numbers it can become truer: 1 larger ones, 2 smaller ones, 3 both, 0 not known.
    """

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
    turn: Int


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
def remember(alive: Int, stream: int, count: int, row: int) -> int:
    """Put a row among the remembered ones, which are sorted as the tuples are; in order that is the end."""
    at = count
    while at > 0 and alive[stream, at - 1] > row:
        alive[stream, at] = alive[stream, at - 1]
        at -= 1
    alive[stream, at] = row
    return count + 1


@kernel
def forget(alive: Int, stream: int, count: int, gone: Int, now: int) -> int:
    """Take out the rows that have gone."""
    kept = 0
    for at in range(count):
        if gone[alive[stream, at]] > now:
            alive[stream, kept] = alive[stream, at]
            kept += 1
    return kept


@kernel
def join_window(level: int, order: Int, chosen: Int, time: Int, upper: Int) -> tuple[int, int]:
    """Earliest and latest time of the stream at `level` beside the rows chosen so far (the probe is order[0])."""
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
def wake(key: int, keys: int, offsets: Int, rank: Int, alive: Int, counts: Int) -> None:
    """Begin a key: what it remembers of each stream from before this batch."""
    for stream in range(counts.shape[0]):
        counts[stream] = 0
        segment = stream * keys + key
        for row in range(offsets[segment], offsets[segment + 1]):
            if rank[row] < 0:
                alive[stream, counts[stream]] = row
                counts[stream] += 1


@kernel
def longest(offsets: Int) -> int:
    """Length of the longest segment."""
    most = 0
    for s in range(offsets.shape[0] - 1):
        most = max(most, offsets[s + 1] - offsets[s])
    return most


@kernel
def set_order(order: Int, probe: int) -> None:
    """The probing stream first, then the others in the rule's order."""
    order[0], at = probe, 1
    for stream in range(order.shape[0]):
        if stream != probe:
            order[at] = stream
            at += 1


@kernel
def is_earlier(time: Int, chosen: Int, witness: Int, probe: int) -> bool:
    """Return whether the chosen rows have earlier times than the witness of a probe, compared stream by stream."""
    for stream in range(chosen.shape[0]):
        mine, other = time[chosen[stream]], time[witness[probe, stream]]
        if mine != other:
            return bool(mine < other)
    return False


def combine(
    tuples: Tuples, probes: Probes, condition: Condition, keys: int, *, every: bool
) -> tuple[Evaluations, Int, Float]:
    """Evaluate each probe; with `every`, also list all true combinations (tuple per stream) with margin and value."""
    room = 2 * len(probes.row) + 64 if every else 0
    while True:
        matches, scores = np.empty((room, len(condition.upper)), np.int64), np.empty((room, 2))
        evaluations, count = search(tuples, probes, condition, keys, matches, scores)
        if not every or count <= room:
            return evaluations, matches[:count], scores[:count]
        room = count


@kernel
def search(  # noqa: PLR0912, PLR0915 - one loop, for speed
    tuples: Tuples, probes: Probes, condition: Condition, keys: int, matches: Int, scores: Float
) -> tuple[Evaluations, int]:
    """Evaluate each probe; with room for matches, count all true combinations and list as many as there is room for."""
    # Numba counts references where an array comes out of a tuple, gets a new name, or is last used in one of two
    # branches; that is most of the time of a loop like this. So arrays have names of their own, once and for all.
    time, rank, gone, slots, offsets = tuples.time, tuples.rank, tuples.gone, tuples.slots, tuples.offsets
    upper, slot_offsets, hop = condition.upper, condition.slot_offsets, condition.hop
    ops, args, consts = condition.ops, condition.args, condition.consts
    probe_stream, probe_key, probe_row, silent = probes.stream, probes.key, probes.row, probes.silent
    streams, count = upper.shape[0], probe_row.shape[0]
    found, truth = np.zeros(count, np.int64), np.zeros(count, np.int64)
    margin, value = np.full(count, -np.inf), np.full(count, np.nan)
    witness = np.empty((count, streams), np.int64)
    every, match_count = matches.shape[0] > 0, 0
    order, chosen = np.empty(streams, np.int64), np.empty(streams, np.int64)
    cursor = np.empty((streams, 4), np.int64)
    earliest, latest = np.empty(streams, np.int64), np.empty(streams, np.int64)
    x, stack = np.empty(slot_offsets[streams]), np.empty(condition.depth + 1)
    alive, counts = np.empty((streams, longest(offsets) + 1), np.int64), np.zeros(streams, np.int64)
    limits = np.empty(streams, np.int64)
    number, vague, near = tuples.number, np.zeros(streams, np.int64), np.zeros(streams, np.int64)
    turn = condition.turn * (0 if every or hop else 1)  # All are tried where all are wanted.
    ways, least_most, windows = np.zeros(streams, np.int64), np.empty((streams, 2)), np.zeros((streams, 4), np.int64)
    key = -1
    for p in range(count):
        if probe_key[p] != key:
            key = probe_key[p]
            wake(key, keys, offsets, rank, alive, counts)
            count_vague(key, keys, offsets, rank, number, vague)
            for stream in range(streams):
                limits[stream] = 2 * counts[stream] + 16
        probe = probe_row[p]
        now = rank[probe]
        set_order(order, probe_stream[p])
        level, chosen[order[0]] = -1 if silent[p] else 0, probe
        best, best_truth = -np.inf, False
        look_near(near, vague, (probe, probe_stream[p], now), alive, counts, upper, time, gone, number)
        while level >= 0:
            stream = order[level]
            if level > 0:  # Move on to the next remembered candidate of this level, or step back.
                at = advance(level, alive, stream, counts[stream], latest[level], now, time, gone, cursor)
                if at >= 0 and at == cursor[level, 3] and level == streams - 2 and ways[level] and not near[stream]:
                    after = order[level + 1]
                    low, high = reach_of(level, order, chosen, time, upper, (earliest[level], latest[level]))
                    low, high = clipped(low, high, alive, after, counts[after], now, time, gone)
                    if covers(ways[level], low, high, level, windows):
                        at = -1
                if at < 0:
                    level = level - 1 if level > 1 else -1
                    continue
                chosen[stream] = alive[stream, at]
                if (
                    level == streams - 1
                    and ways[level]
                    and at == cursor[level, 3]
                    and not np.isnan(number[chosen[stream]])
                ):
                    continue  # The extreme ones are at least as good.
            begin = slot_offsets[stream]
            for slot in range(begin, slot_offsets[stream + 1]):
                x[slot] = slots[chosen[stream], slot - begin]
            if level < streams - 1:  # Open the next level at the start of its window.
                low, high = join_window(level + 1, order, chosen, time, upper)
                after = order[level + 1]
                if level > 0 and ways[level]:
                    n = number[chosen[stream]]
                    first, last = clipped(low, high, alive, after, counts[after], now, time, gone)
                    if is_beaten(ways[level], n, first, last, level, least_most, windows):
                        continue
                    note(n, first, last, level, least_most, windows)
                level += 1
                start = first_not_before(alive, after, counts[after], time, low)
                earliest[level], latest[level], cursor[level, 3] = low, high, start - 1
                ways[level] = turn_of(level, order, chosen, number, turn, near)
                least_most[level, 0], least_most[level, 1] = np.inf, -np.inf
                cursor[level, 0], cursor[level, 1], cursor[level, 2] = -1, -1, 2
                if ways[level]:
                    cursor[level, 0], cursor[level, 1] = extremes(
                        ways[level], alive, after, (start, counts[after]), high, now, time, gone, number
                    )
                    cursor[level, 2] = 0
                    if level == streams - 1 and not near[after]:
                        cursor[level, 3] = counts[after]  # No other can be better.
                continue
            if hop == 0 or share_window(order, chosen, time, condition):
                m, ok, v = run_program(ops, args, consts, stack, x)
                better = not found[p] or m > best or (m == best and ok and not best_truth)
                if not better and m == best and ok == best_truth:
                    better = is_earlier(time, chosen, witness, p)
                if better:
                    best, best_truth = m, ok
                    found[p], margin[p], truth[p], value[p] = 1, m, ok, v
                    for i in range(streams):
                        witness[p, i] = chosen[i]
                if every and ok:
                    if match_count < matches.shape[0]:
                        scores[match_count, 0], scores[match_count, 1] = m, v
                        for i in range(streams):
                            matches[match_count, i] = chosen[i]
                    match_count += 1
            if streams == 1:
                break
        stream = order[0]
        counts[stream] = remember(alive, stream, counts[stream], probe)
        # What nothing is known of always stays, unless it was there already.
        vague[stream] += np.isnan(number[probe]) and gone[probe] > now
        if counts[stream] >= limits[stream]:
            counts[stream] = forget(alive, stream, counts[stream], gone, now)
            limits[stream] = 2 * counts[stream] + 16
    return Evaluations(found, margin, truth, value, witness), match_count
