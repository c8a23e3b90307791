"""Candidates: which partners of a probe are tried, where it is known what a condition does with their stream.

Idea: rows of a stream have a number by which they are compared. In the last stream of a combination only the row with
the most extreme number of the window can be best: the largest, the least, or both. In the stream before it others can
be better only if they leave the last stream a window that the extreme ones do not; mostly all leave it the same.
Guarantee: for whatever is passed over, a row of the same window was tried that meets all that it meets and makes the
condition at least as true, in exact arithmetic; a row of which nothing is known (outside its domain, its number not
defined) is always tried, and beside it nothing is passed over. What is tried depends on the rows that are remembered
at that moment and on nothing else, so the cut into batches does not show.
Cost: one look at each number of a window instead of one evaluation.

Source: our own; the premise is that of omission (docs/explanation/reduction.md).
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int


@kernel
def turn_of(level: int, order: Int, chosen: Int, number: Float, turn: Int, near: Int) -> int:
    """What is known of the stream at a level, beside rows chosen before and any of the level behind it.

    Nothing, where one of those chosen, or any that may be chosen, is not known itself. Further up nothing is asked.
    """
    last = order.shape[0] - 1
    vague_behind, found = near[order[last]], turn[order[level]]
    known = level == last or (level == last - 1 and vague_behind == 0)
    for j in range(level):
        known &= not np.isnan(number[chosen[order[j]]])
    return found if known else 0


@kernel
def first_not_before(alive: Int, stream: int, count: int, time: Int, bound: int) -> int:
    """First place among the remembered rows of a stream whose time is not before `bound`."""
    start, stop = 0, count
    while start < stop:
        middle = (start + stop) >> 1
        if time[alive[stream, middle]] < bound:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel
def clipped(
    low: int, high: int, alive: Int, stream: int, count: int, now: int, time: Int, gone: Int
) -> tuple[int, int]:
    """A window as far as there are remembered rows in it."""
    first = first_not_before(alive, stream, count, time, low)
    last = first_not_before(alive, stream, count, time, high + 1) - 1
    begin, end, empty, looking = low, low, True, True
    while empty and first <= last:
        row = alive[stream, first]
        begin, empty = time[row], gone[row] <= now
        first += 1
    while looking and not empty:
        row = alive[stream, last]
        end, looking = time[row], gone[row] <= now
        last -= 1
    return (low, low) if empty else (begin, end)


@kernel
def is_beaten(way: int, n: float, low: int, high: int, level: int, numbers: Float, windows: Int) -> bool:
    """Tell whether a candidate of this level that came before meets all that this one can, and makes it no less true.

    There are, per level, the least and the largest number so far, and the windows that they leave the next level.
    """
    above = (n <= numbers[level, 1]) & (low >= windows[level, 2]) & (high <= windows[level, 3])
    below = (n >= numbers[level, 0]) & (low >= windows[level, 0]) & (high <= windows[level, 1])
    return (way == 1 and above) or (way == 2 and below) or (way == 3 and above and below)


@kernel
def note(n: float, low: int, high: int, level: int, numbers: Float, windows: Int) -> None:
    """Take a candidate for the least or the largest number."""
    for side in range(2):
        if (n < numbers[level, 0]) if side == 0 else (n > numbers[level, 1]):
            numbers[level, side], windows[level, 2 * side], windows[level, 2 * side + 1] = n, low, high


@kernel
def reach_of(level: int, order: Int, chosen: Int, time: Int, upper: Int, span: tuple[int, int]) -> tuple[int, int]:
    """The window that the next level can have beside any candidate of a level whose time lies in `span`."""
    stream, after = order[level], order[level + 1]
    low, high = span[0] - upper[after, stream], span[1] + upper[stream, after]
    for j in range(level):
        other = order[j]
        low = max(low, time[chosen[other]] - upper[after, other])
        high = min(high, time[chosen[other]] + upper[other, after])
    return low, high


@kernel
def covers(way: int, low: int, high: int, level: int, windows: Int) -> bool:
    """Tell whether the extreme candidates of a level meet all that lies in a window of the next one."""
    above = (low >= windows[level, 2]) & (high <= windows[level, 3])
    below = (low >= windows[level, 0]) & (high <= windows[level, 1])
    return (above or not way & 1) and (below or not way & 2)


@kernel
def extremes(
    way: int, alive: Int, stream: int, part: tuple[int, int], high: int, now: int, time: Int, gone: Int, number: Float
) -> tuple[int, int]:
    """Find, in a part of the remembered rows, those with the largest and the least number, if asked for."""
    largest, least, (at, count) = -1, -1, part
    most, fewest = -np.inf, np.inf
    while at < count and time[alive[stream, at]] <= high:
        row = alive[stream, at]
        n = number[row]
        if gone[row] > now and not np.isnan(n):
            if way & 1 and (largest < 0 or n > most):
                largest, most = at, n
            if way & 2 and (least < 0 or n < fewest):
                least, fewest = at, n
        at += 1
    return largest, (least if least != largest else -1)


@kernel
def advance(level: int, alive: Int, stream: int, count: int, high: int, now: int, time: Int, gone: Int, at: Int) -> int:
    """Give the place of the next candidate of a level: the extreme ones first, then the rest in time order; -1: none.

    `at` has, per level, the places of the two extreme ones, how many of these were given, and where the rest stands.
    """
    place = -1
    while at[level, 2] < 2 and place < 0:
        place = at[level, at[level, 2]]
        at[level, 2] += 1
    rest, looking = at[level, 3] + 1, place < 0
    while looking and rest < count:
        row = alive[stream, rest]
        if time[row] > high:
            looking = False
        elif gone[row] > now and rest != at[level, 0] and rest != at[level, 1]:
            place, at[level, 3], looking = rest, rest, False
        rest += 1
    return place


@kernel
def count_vague(key: int, keys: int, offsets: Int, rank: Int, number: Float, vague: Int) -> None:
    """Begin a key: count, per stream, the rows remembered from before this batch of which nothing is known."""
    for stream in range(vague.shape[0]):
        vague[stream] = 0
        segment = stream * keys + key
        for row in range(offsets[segment], offsets[segment + 1]):
            if rank[row] < 0 and np.isnan(number[row]):
                vague[stream] += 1


@kernel
def look_near(
    near: Int,
    vague: Int,
    probe: tuple[int, int, int],
    alive: Int,
    counts: Int,
    upper: Int,
    time: Int,
    gone: Int,
    number: Float,
) -> None:
    """Count, per stream, those of them that may be partners of a probe: its row, its stream, and its rank.

    Others must not matter: whether they have expired yet depends on the cut into batches.
    """
    row, own, now = probe
    for stream in range(near.shape[0]):
        near[stream] = 0
        at = counts[stream]
        if vague[stream] > 0:
            at = first_not_before(alive, stream, counts[stream], time, time[row] - upper[stream, own])
        while at < counts[stream] and time[alive[stream, at]] <= time[row] + upper[own, stream]:
            near[stream] += gone[alive[stream, at]] > now and np.isnan(number[alive[stream, at]])
            at += 1
