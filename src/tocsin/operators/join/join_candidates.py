"""Join candidates: the partners that a probe must try, if the effect of a stream on the condition is known.

Algorithm: each row of a stream has a comparison value. In the last stream of a combination, only a row with an extreme
value in the window can be best: the largest value, the least value, or both. In the stream before, another row can be
better only if it leaves the last stream a window that the extreme rows do not leave. Most rows leave the same window.

Guarantees: for each skipped row, the probe tries another row of the same window. This row has all partners of the
skipped row, and makes the condition at least as true in exact arithmetic. A row with an unknown value is always tried,
and no row is skipped beside it. A value is unknown if it is undefined or its row is outside the domain. The tried rows
depend only on the retained rows at this moment, so batch boundaries do not matter.

Complexity: one read of each comparison value in a window, instead of one evaluation.

References: own method. The premise is the premise of omission (docs/explanation/reduction.md).
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int


@kernel
def known_direction(level: int, order: Int, chosen: Int, number: Float, direction: Int, unknown_partners: Int) -> int:
    """Return the direction of the stream at a level, or 0 if its extreme rows are not sufficient.

    The direction is 0 if a chosen row or a possible row of the next level has an unknown value. It is 0 at all levels
    before the last two.
    """
    last = order.shape[0] - 1
    unknown_after, found = unknown_partners[order[last]], direction[order[level]]
    known = level == last or (level == last - 1 and unknown_after == 0)
    for j in range(level):
        known &= not np.isnan(number[chosen[order[j]]])
    return found if known else 0


@kernel
def first_not_before(retained: Int, stream: int, count: int, time: Int, bound: int) -> int:
    """Return the first position among the retained rows of a stream whose time is not before `bound`."""
    start, stop = 0, count
    while start < stop:
        middle = (start + stop) >> 1
        if time[retained[stream, middle]] < bound:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel
def clip_window(
    low: int, high: int, retained: Int, stream: int, count: int, now: int, time: Int, end: Int
) -> tuple[int, int]:
    """Return the times of the oldest and the newest retained row in a window."""
    first = first_not_before(retained, stream, count, time, low)
    last = first_not_before(retained, stream, count, time, high + 1) - 1
    oldest, newest, is_empty, searching = low, low, True, True
    while is_empty and first <= last:
        row = retained[stream, first]
        oldest, is_empty = time[row], end[row] <= now
        first += 1
    while searching and not is_empty:
        row = retained[stream, last]
        newest, searching = time[row], end[row] <= now
        last -= 1
    return (low, low) if is_empty else (oldest, newest)


@kernel
def is_dominated(direction: int, n: float, low: int, high: int, level: int, numbers: Float, windows: Int) -> bool:
    """Return whether an earlier candidate of this level has all partners of a candidate and a margin at least as large.

    `numbers` has the least and the largest value of each level. `windows` has the windows of these candidates at the
    next level.
    """
    above = (n <= numbers[level, 1]) & (low >= windows[level, 2]) & (high <= windows[level, 3])
    below = (n >= numbers[level, 0]) & (low >= windows[level, 0]) & (high <= windows[level, 1])
    return (direction == 1 and above) or (direction == 2 and below) or (direction == 3 and above and below)


@kernel
def record_extreme(n: float, low: int, high: int, level: int, numbers: Float, windows: Int) -> None:
    """Store the value and the window of a candidate if the value is the least or the largest."""
    for side in range(2):
        if (n < numbers[level, 0]) if side == 0 else (n > numbers[level, 1]):
            numbers[level, side], windows[level, 2 * side], windows[level, 2 * side + 1] = n, low, high


@kernel
def widest_window(level: int, order: Int, chosen: Int, time: Int, upper: Int, span: tuple[int, int]) -> tuple[int, int]:
    """Return the window of the next level for any candidate of a level with a time in `span`."""
    stream, after = order[level], order[level + 1]
    low, high = span[0] - upper[after, stream], span[1] + upper[stream, after]
    for j in range(level):
        other = order[j]
        low = max(low, time[chosen[other]] - upper[after, other])
        high = min(high, time[chosen[other]] + upper[other, after])
    return low, high


@kernel
def covers(direction: int, low: int, high: int, level: int, windows: Int) -> bool:
    """Return whether the extreme candidates of a level reach all rows in a window of the next level."""
    above = (low >= windows[level, 2]) & (high <= windows[level, 3])
    below = (low >= windows[level, 0]) & (high <= windows[level, 1])
    return (above or not direction & 1) and (below or not direction & 2)


@kernel
def find_extremes(
    direction: int,
    retained: Int,
    stream: int,
    part: tuple[int, int],
    high: int,
    now: int,
    time: Int,
    end: Int,
    number: Float,
) -> tuple[int, int]:
    """Find the positions of the largest and the least value in a part of the retained rows, as `direction` requires."""
    largest, least, (at, count) = -1, -1, part
    most, fewest = -np.inf, np.inf
    while at < count and time[retained[stream, at]] <= high:
        row = retained[stream, at]
        n = number[row]
        if end[row] > now and not np.isnan(n):
            if direction & 1 and (largest < 0 or n > most):
                largest, most = at, n
            if direction & 2 and (least < 0 or n < fewest):
                least, fewest = at, n
        at += 1
    return largest, (least if least != largest else -1)


@kernel
def next_candidate(
    level: int, retained: Int, stream: int, count: int, high: int, now: int, time: Int, end: Int, at: Int
) -> int:
    """Return the position of the next candidate of a level, or -1 after the last one.

    Extreme candidates precede the other candidates, which are in time order. `at` has for each level the positions of
    the two extremes, the number of returned extremes, and the position of the last other candidate.
    """
    candidate = -1
    while at[level, 2] < 2 and candidate < 0:
        candidate = at[level, at[level, 2]]
        at[level, 2] += 1
    rest, searching = at[level, 3] + 1, candidate < 0
    while searching and rest < count:
        row = retained[stream, rest]
        if time[row] > high:
            searching = False
        elif end[row] > now and rest != at[level, 0] and rest != at[level, 1]:
            candidate, at[level, 3], searching = rest, rest, False
        rest += 1
    return candidate


@kernel
def count_unknown_rows(key: int, keys: int, offsets: Int, serial: Int, number: Float, unknown: Int) -> None:
    """Start a key: count for each stream the retained rows with an unknown value from before this batch."""
    for stream in range(unknown.shape[0]):
        unknown[stream] = 0
        segment = stream * keys + key
        for row in range(offsets[segment], offsets[segment + 1]):
            if serial[row] < 0 and np.isnan(number[row]):
                unknown[stream] += 1


@kernel
def count_unknown_partners(
    unknown_partners: Int,
    unknown: Int,
    probe: tuple[int, int, int],
    retained: Int,
    counts: Int,
    upper: Int,
    time: Int,
    end: Int,
    number: Float,
) -> None:
    """Count for each stream the rows with an unknown value that are possible partners of a probe.

    `probe` has the row, the stream and the serial number of the probe. Other rows must not count, because batch
    boundaries determine when they expire.
    """
    row, own, now = probe
    for stream in range(unknown_partners.shape[0]):
        unknown_partners[stream] = 0
        at = counts[stream]
        if unknown[stream] > 0:
            at = first_not_before(retained, stream, counts[stream], time, time[row] - upper[stream, own])
        while at < counts[stream] and time[retained[stream, at]] <= time[row] + upper[own, stream]:
            unknown_partners[stream] += end[retained[stream, at]] > now and np.isnan(number[retained[stream, at]])
            at += 1
