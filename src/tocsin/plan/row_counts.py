"""Row counts: what is asked of all rows of a log at once, by kernels: partners, rows to let go, rows sent twice."""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Bools, Int

# Rows go when an eighth of all are older than the window.
STALE_SHARE = 8


@kernel
def count_partners(
    rows: tuple[Int, Int, Int], oldest: Int, reach: tuple[int, int], there: Int, limits: tuple[int, int]
) -> Int:
    """Of rows in order of arrival, for those from `begin` on, the rows of the other side and the same key before.

    Rows have a side, a key and an elapsed time. `there` has by side and key those from the `oldest` of the side to
    `counted` (`reach` is that and `begin`), and goes on, within a window and with at most so many of a side (`limits`).
    """
    (side, key, elapsed), (counted, begin), (window_us, most) = rows, reach, limits
    held = there.sum(axis=1)
    partners = np.zeros(side.shape[0] - begin, np.int64)
    for i in range(counted, side.shape[0]):
        if i >= begin:
            for s in range(2):
                while oldest[s] < i and (side[oldest[s]] != s or elapsed[oldest[s]] < elapsed[i] - window_us):
                    if side[oldest[s]] == s:
                        there[s, key[oldest[s]]] -= 1
                        held[s] -= 1
                    oldest[s] += 1
            partners[i - begin] = there[1 - side[i], key[i]]
        mine = side[i]
        there[mine, key[i]] += 1
        held[mine] += 1
        if held[mine] > most:
            while side[oldest[mine]] != mine:
                oldest[mine] += 1
            there[mine, key[oldest[mine]]] -= 1
            held[mine] -= 1
            oldest[mine] += 1
    return partners


@kernel
def count_fresh(old: Int, new: Int, window_us: int, fewest: int) -> int:
    """How many of new rows can be taken before rows that are older than the window are too many, by elapsed times."""
    kept = old.shape[0]
    stale = np.searchsorted(old, new[0] - window_us) if new.shape[0] else 0
    for i in range(new.shape[0]):
        limit = new[i] - window_us
        while stale < kept + i and (old[stale] if stale < kept else new[stale - kept]) < limit:
            stale += 1
        if stale >= fewest and stale * STALE_SHARE >= kept + i:
            return i
    return len(new)


@kernel
def look_alike(old: Int, new: Int) -> Bools:
    """Tell which old numbers may be among the new ones: all that are, and a few that are not."""
    bits = 10
    while (1 << bits) < 16 * new.shape[0]:
        bits += 1
    table, mask = np.zeros(1 << bits, np.bool_), (1 << bits) - 1
    for i in range(new.shape[0]):
        table[(new[i] ^ (new[i] >> 32)) & mask] = True
    found = np.empty(old.shape[0], np.bool_)
    for i in range(old.shape[0]):
        found[i] = table[(old[i] ^ (old[i] >> 32)) & mask]
    return found
