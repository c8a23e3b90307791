"""Candidates: which partners of a probe are tried, where it is known what a condition does with their stream.

Idea: rows of a stream have a number by which they are compared. In the last stream of a combination only the row with
the most extreme number of the window can be best: the largest, the least, or both. In the stream before it others can
be better only if they leave the last stream a window that the extreme ones do not; mostly all leave it the same.
Guarantee: for whatever is passed over, a row of the same window was tried that meets all that it meets and makes the
condition at least as true, in exact arithmetic; a row of which nothing is known (outside its domain, its number not
defined) is always tried, and beside it nothing is passed over. What is tried depends on the rows that are remembered
at that moment and on nothing else, so the cut into batches does not show.
Cost: one look at each number of a window instead of one evaluation.

Source: our own; the premise is that of omission (docs/concepts/omission.md).
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Float, Int

# Later than any time, with room to add bounds.
NEVER = 1 << 61


@kernel
def turn_of(level: int, order: Int, chosen: Int, number: Float, turn: Int, vague: Int) -> int:
    """What is known of the stream at a level, beside rows chosen before and any of the level behind it.

    Nothing, where one of those chosen, or any that may be chosen, is not known itself. Further up nothing is asked.
    """
    last = order.shape[0] - 1
    if level < last - 1 or (level == last - 1 and vague[order[last]]):
        return 0
    for j in range(level):
        if np.isnan(number[chosen[order[j]]]):
            return 0
    return int(turn[order[level]])


@kernel
def is_beaten(way: int, n: float, window: tuple[int, int], seen: tuple[Float, Int]) -> bool:
    """Tell whether a candidate of this level that came before meets all that this one can, and makes it no less true.

    `seen` has the least and the largest number so far, and the windows that they leave the next level.
    """
    numbers, windows = seen
    above = n <= numbers[1] and window[0] >= windows[2] and window[1] <= windows[3]
    below = n >= numbers[0] and window[0] >= windows[0] and window[1] <= windows[1]
    return (way == 1 and above) or (way == 2 and below) or (way == 3 and above and below)


@kernel
def clipped(window: tuple[int, int], rows: Int, count: int, now: int, time: Int, gone: Int) -> tuple[int, int]:
    """A window as far as there are remembered rows."""
    first, last = 0, count - 1
    while first <= last and gone[rows[first]] <= now:
        first += 1
    while first <= last and gone[rows[last]] <= now:
        last -= 1
    if first > last:
        return window[0], window[0]
    return max(window[0], time[rows[first]]), min(window[1], time[rows[last]])


@kernel
def all_beaten(
    level: int, order: Int, rows: tuple[Int, Int, Int], upper: Int, span: tuple[int, int], seen: tuple[int, Int]
) -> bool:
    """Tell whether the extreme candidates of a level meet all that any other can, whose times lie in `span`.

    `rows` are those chosen, the times, and, of the next level, the first and last time that is remembered.
    """
    chosen, time, ends = rows
    way, windows = seen
    stream, after = order[level], order[level + 1]
    low, high = max(span[0] - upper[after, stream], ends[0]), min(span[1] + upper[stream, after], ends[1])
    for j in range(level):
        other = order[j]
        low = max(low, time[chosen[other]] - upper[after, other])
        high = min(high, time[chosen[other]] + upper[other, after])
    above = not way & 1 or (low >= windows[2] and high <= windows[3])
    below = not way & 2 or (low >= windows[0] and high <= windows[1])
    return above and below


@kernel
def note(n: float, window: tuple[int, int], seen: tuple[Float, Int]) -> None:
    """Take a candidate for the least or the largest number."""
    numbers, windows = seen
    if n < numbers[0]:
        numbers[0], windows[0], windows[1] = n, window[0], window[1]
    if n > numbers[1]:
        numbers[1], windows[2], windows[3] = n, window[0], window[1]


@kernel
def extremes(
    way: int, rows: Int, count: int, start: int, until: tuple[int, int], columns: tuple[Int, Int, Float]
) -> tuple[int, int]:
    """Find, among remembered rows from `start` on, those with the largest and the least number, if asked for."""
    time, gone, number = columns
    largest, least = -1, -1
    for at in range(start, count):
        row = rows[at]
        if time[row] > until[0]:
            break
        if gone[row] <= until[1] or np.isnan(number[row]):
            continue
        if way & 1 and (largest < 0 or number[row] > number[rows[largest]]):
            largest = at
        if way & 2 and (least < 0 or number[row] < number[rows[least]]):
            least = at
    return largest, (least if least != largest else -1)


@kernel
def advance(level: int, rows: Int, count: int, until: tuple[int, int], columns: tuple[Int, Int, Float], at: Int) -> int:
    """Give the place of the next candidate of a level: the extreme ones first, then the rest in time order; -1: none.

    `at` has, per level, the places of the two extreme ones, how many of these were given, and where the rest stands.
    """
    time, gone, _ = columns
    while at[level, 2] < 2:
        at[level, 2] += 1
        if at[level, at[level, 2] - 1] >= 0:
            return int(at[level, at[level, 2] - 1])
    place = at[level, 3] + 1
    while place < count and (gone[rows[place]] <= until[1] or place == at[level, 0] or place == at[level, 1]):
        place += 1
    if place >= count or time[rows[place]] > until[0]:
        return -1
    at[level, 3] = place
    return int(place)


@kernel
def count_vague(key: int, keys: int, offsets: Int, rank: Int, number: Float, vague: Int) -> None:
    """Begin a key: count, per stream, the rows remembered from before this batch of which nothing is known."""
    for stream in range(vague.shape[0]):
        vague[stream] = 0
        segment = stream * keys + key
        for row in range(offsets[segment], offsets[segment + 1]):
            if rank[row] < 0 and np.isnan(number[row]):
                vague[stream] += 1
