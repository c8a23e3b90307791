"""Threshold join: for each arriving row, the best combination that it completes, or all true combinations.

Algorithm: the join processes one probe at a time. A probe searches the retained rows of the other streams. Retention
records the serial numbers of entry and exit of each row. So the join of a batch finds exactly the rows that row-by-row
processing would find. The search is depth first in the stream order of the rule, inside the tightest implied bounds.
Among combinations of equal margin, the earliest times win, stream by stream. For equal times, the first arrivals win,
because candidates are in the order of time and arrival.

If the effect of the last two streams on the condition is known, `join_candidates` selects the rows to try.

Guarantees: the best combination of docs/explanation/semantics.md (D40, D41) among the retained rows. Among equally good
combinations, it is the earliest of the tried ones. The result depends only on the rows retained at that moment.

Complexity: a binary search per stream and probe, one visit per retained candidate, and one evaluation per combination.
If the last two streams are known and rows are in order, one read per candidate and one to four evaluations.

References: symmetric m-way window join (Golab and Özsu, VLDB 2003). Here the join evaluates the condition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.expr.stack_machine import run_program
from tocsin.jit import kernel
from tocsin.operators.join.join_candidates import (
    clip_window,
    count_unknown_partners,
    count_unknown_rows,
    covers,
    find_extremes,
    first_not_before,
    is_dominated,
    known_direction,
    next_candidate,
    record_extreme,
    widest_window,
)
from tocsin.runtime.contract import Float, Int


class Tuples(NamedTuple):
    """Rows of all streams of a rule.

    Attributes
    ----------
    offsets
        The rows of stream i and key k begin at `offsets[i * keys + k]`. They are in time order.
    time
        Event time.
    serial, end
        Serial numbers of the entry and the exit of a row.
    slots
        Values that the compiled condition reads.
    number
        Comparison value, or NaN if it is unknown.
    """

    offsets: Int
    time: Int
    serial: Int
    end: Int
    slots: Float
    number: Float


class Probes(NamedTuple):
    """Arriving rows by key and arrival.

    Attributes
    ----------
    stream, key
        Stream and key index.
    row
        Position among the tuples.
    partner_only
        Rows that are not evaluated. They are only partners of later probes.
    """

    stream: Int
    key: Int
    row: Int
    partner_only: NDArray[np.bool_]


class Condition(NamedTuple):
    """Time bounds and compiled condition of a rule.

    Attributes
    ----------
    upper
        Implied bounds: `upper[i, j] >= t_j - t_i`.
    hop, window
        Hop and length of hopping windows. The hop is 0 without windows.
    open_left, open_right
        1 if an end of a window is open.
    slot_offsets
        First slot of each stream.
    ops, args, consts, depth
        Program of the condition, and the depth of its stack.
    direction
        Values of a stream that make the condition truer: 1 larger, 2 smaller, 3 both, 0 unknown.
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
    direction: Int


class Evaluations(NamedTuple):
    """Result of each probe.

    Attributes
    ----------
    found
        1 if the probe completed a combination.
    margin, truth, value
        Result of the condition for the best combination.
    witness
        Row of each stream in the best combination.
    """

    found: Int
    margin: Float
    truth: Int
    value: Float
    witness: Int


@kernel
def first_window(time: int, hop: int, window: int, open_right: int) -> int:
    """Return the number of the first hopping window that contains a time."""
    return -((window - time) // hop) + (1 if open_right and (time - window) % hop == 0 else 0)


@kernel
def last_window(time: int, hop: int, open_left: int) -> int:
    """Return the number of the last hopping window that contains a time."""
    return time // hop - (1 if open_left and time % hop == 0 else 0)


@kernel
def insert_row(retained: Int, stream: int, count: int, row: int) -> int:
    """Insert a row into the sorted retained rows of a stream, and return their number. In order, it is the last row."""
    at = count
    while at > 0 and retained[stream, at - 1] > row:
        retained[stream, at] = retained[stream, at - 1]
        at -= 1
    retained[stream, at] = row
    return count + 1


@kernel
def remove_expired(retained: Int, stream: int, count: int, end: Int, now: int) -> int:
    """Remove the rows that have left the state, and return the number of the others."""
    kept = 0
    for at in range(count):
        if end[retained[stream, at]] > now:
            retained[stream, kept] = retained[stream, at]
            kept += 1
    return kept


@kernel
def join_window(level: int, order: Int, chosen: Int, time: Int, upper: Int) -> tuple[int, int]:
    """Return the earliest and latest time at a level for the rows chosen so far. The probe is `order[0]`."""
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
    """Return whether one hopping window contains all chosen rows."""
    first, last = -(1 << 62), 1 << 62
    for stream in order:
        at = time[chosen[stream]]
        first = max(first, first_window(at, condition.hop, condition.window, condition.open_right))
        last = min(last, last_window(at, condition.hop, condition.open_left))
    return first <= last


@kernel
def load_key_rows(key: int, keys: int, offsets: Int, serial: Int, retained: Int, counts: Int) -> None:
    """Start a key: load the rows of each stream that were retained before this batch."""
    for stream in range(counts.shape[0]):
        counts[stream] = 0
        segment = stream * keys + key
        for row in range(offsets[segment], offsets[segment + 1]):
            if serial[row] < 0:
                retained[stream, counts[stream]] = row
                counts[stream] += 1


@kernel
def longest_segment(offsets: Int) -> int:
    """Return the length of the longest segment."""
    most = 0
    for s in range(offsets.shape[0] - 1):
        most = max(most, offsets[s + 1] - offsets[s])
    return most


@kernel
def set_order(order: Int, probe: int) -> None:
    """Set the search order: the stream of the probe first, then the others in the order of the rule."""
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


def evaluate_probes(
    tuples: Tuples, probes: Probes, condition: Condition, keys: int, *, every: bool
) -> tuple[Evaluations, Int, Float]:
    """Evaluate each probe. With `every`, also list all true combinations (row per stream) with margin and value."""
    capacity = 2 * len(probes.row) + 64 if every else 0
    while True:
        matches, scores = np.empty((capacity, len(condition.upper)), np.int64), np.empty((capacity, 2))
        evaluations, count = search(tuples, probes, condition, keys, matches, scores)
        if not every or count <= capacity:
            return evaluations, matches[:count], scores[:count]
        capacity = count


@kernel
def search(  # noqa: PLR0912, PLR0915 - one loop, for speed
    tuples: Tuples, probes: Probes, condition: Condition, keys: int, matches: Int, scores: Float
) -> tuple[Evaluations, int]:
    """Evaluate each probe. If `matches` has rows, count all true combinations, and list them up to this capacity."""
    # Numba counts references to an array that comes out of a tuple, gets a new name, or is last used in a branch. The
    # counts would take most of the time of this loop. So each array has one name.
    time, serial, end, slots, offsets = tuples.time, tuples.serial, tuples.end, tuples.slots, tuples.offsets
    upper, slot_offsets, hop = condition.upper, condition.slot_offsets, condition.hop
    ops, args, consts = condition.ops, condition.args, condition.consts
    probe_stream, probe_key, probe_row, partner_only = probes.stream, probes.key, probes.row, probes.partner_only
    streams, count = upper.shape[0], probe_row.shape[0]
    found, truth = np.zeros(count, np.int64), np.zeros(count, np.int64)
    margin, value = np.full(count, -np.inf), np.full(count, np.nan)
    witness = np.empty((count, streams), np.int64)
    every, match_count = matches.shape[0] > 0, 0
    order, chosen = np.empty(streams, np.int64), np.empty(streams, np.int64)
    cursor = np.empty((streams, 4), np.int64)
    earliest, latest = np.empty(streams, np.int64), np.empty(streams, np.int64)
    x, stack = np.empty(slot_offsets[streams]), np.empty(condition.depth + 1)
    retained, counts = np.empty((streams, longest_segment(offsets) + 1), np.int64), np.zeros(streams, np.int64)
    limits = np.empty(streams, np.int64)
    number, unknown, unknown_partners = tuples.number, np.zeros(streams, np.int64), np.zeros(streams, np.int64)
    direction = condition.direction * (0 if every or hop else 1)  # To list all results, try all rows.
    directions, least_most, windows = (
        np.zeros(streams, np.int64),
        np.empty((streams, 2)),
        np.zeros((streams, 4), np.int64),
    )
    key = -1
    for p in range(count):
        if probe_key[p] != key:
            key = probe_key[p]
            load_key_rows(key, keys, offsets, serial, retained, counts)
            count_unknown_rows(key, keys, offsets, serial, number, unknown)
            for stream in range(streams):
                limits[stream] = 2 * counts[stream] + 16
        probe = probe_row[p]
        now = serial[probe]
        set_order(order, probe_stream[p])
        level, chosen[order[0]] = -1 if partner_only[p] else 0, probe
        best, best_truth = -np.inf, False
        count_unknown_partners(
            unknown_partners, unknown, (probe, probe_stream[p], now), retained, counts, upper, time, end, number
        )
        while level >= 0:
            stream = order[level]
            if level > 0:  # Continue with the next candidate of this level, or step back.
                at = next_candidate(level, retained, stream, counts[stream], latest[level], now, time, end, cursor)
                if (
                    at >= 0
                    and at == cursor[level, 3]
                    and level == streams - 2
                    and directions[level]
                    and not unknown_partners[stream]
                ):
                    after = order[level + 1]
                    low, high = widest_window(level, order, chosen, time, upper, (earliest[level], latest[level]))
                    low, high = clip_window(low, high, retained, after, counts[after], now, time, end)
                    if covers(directions[level], low, high, level, windows):
                        at = -1
                if at < 0:
                    level = level - 1 if level > 1 else -1
                    continue
                chosen[stream] = retained[stream, at]
                if (
                    level == streams - 1
                    and directions[level]
                    and at == cursor[level, 3]
                    and not np.isnan(number[chosen[stream]])
                ):
                    continue  # The extreme rows are at least as good.
            begin = slot_offsets[stream]
            for slot in range(begin, slot_offsets[stream + 1]):
                x[slot] = slots[chosen[stream], slot - begin]
            if level < streams - 1:  # Open the next level at the start of its window.
                low, high = join_window(level + 1, order, chosen, time, upper)
                after = order[level + 1]
                if level > 0 and directions[level]:
                    n = number[chosen[stream]]
                    first, last = clip_window(low, high, retained, after, counts[after], now, time, end)
                    if is_dominated(directions[level], n, first, last, level, least_most, windows):
                        continue
                    record_extreme(n, first, last, level, least_most, windows)
                level += 1
                start = first_not_before(retained, after, counts[after], time, low)
                earliest[level], latest[level], cursor[level, 3] = low, high, start - 1
                directions[level] = known_direction(level, order, chosen, number, direction, unknown_partners)
                least_most[level, 0], least_most[level, 1] = np.inf, -np.inf
                cursor[level, 0], cursor[level, 1], cursor[level, 2] = -1, -1, 2
                if directions[level]:
                    cursor[level, 0], cursor[level, 1] = find_extremes(
                        directions[level], retained, after, (start, counts[after]), high, now, time, end, number
                    )
                    cursor[level, 2] = 0
                    if level == streams - 1 and not unknown_partners[after]:
                        cursor[level, 3] = counts[after]  # No other row can be better.
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
        counts[stream] = insert_row(retained, stream, counts[stream], probe)
        # A row with an unknown value is always retained, unless it is a repeat.
        unknown[stream] += np.isnan(number[probe]) and end[probe] > now
        if counts[stream] >= limits[stream]:
            counts[stream] = remove_expired(retained, stream, counts[stream], end, now)
            limits[stream] = 2 * counts[stream] + 16
    return Evaluations(found, margin, truth, value, witness), match_count
