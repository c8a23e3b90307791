"""Row counts: what is asked of all rows of a log at once, by kernels: partners, rows to let go, rows sent twice."""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import NEVER_SEEN, Int

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
def find_stale(
    rows: tuple[Int, Int, Int, Int], keys: int, now_us: int, window_us: int, key_ttl_us: int
) -> tuple[int, Int, Int]:
    """How many rows are older than the window, which of these their keys still need, and when those were last heard.

    Rows have a key, a time, an elapsed time, and that at which they came. A key needs rows that are no older than the
    window beside its newest, unless it was not heard for so long.
    """
    key, time, elapsed, came = rows
    newest, heard = np.full(keys, NEVER_SEEN), np.full(keys, NEVER_SEEN)
    for i in range(key.shape[0]):
        newest[key[i]] = max(newest[key[i]], time[i])
        heard[key[i]] = max(heard[key[i]], came[i])
    old = int(np.searchsorted(elapsed, now_us - window_us))
    again, last, count = np.empty(old, np.int64), np.empty(old, np.int64), 0
    for i in range(old):
        mine = key[i]
        if time[i] >= newest[mine] - window_us and heard[mine] >= now_us - key_ttl_us:
            again[count], last[count] = i, heard[mine]
            count += 1
    return old, again[:count].copy(), last[:count].copy()


@kernel
def find_alike(old: Int, new: Int) -> tuple[Int, Int]:
    """The places of old numbers that are among the new ones, and those of new ones that are not there alone."""
    bits = 4
    while (1 << bits) < 2 * new.shape[0]:
        bits += 1
    mask, table = (1 << bits) - 1, np.full(1 << bits, -1)
    doubted, known, count = np.zeros(new.shape[0], np.bool_), np.empty(old.shape[0], np.int64), 0
    for i in range(new.shape[0]):
        at = (new[i] ^ (new[i] >> 32)) & mask
        while table[at] >= 0 and new[table[at]] != new[i]:
            at = (at + 1) & mask
        if table[at] >= 0:
            doubted[i] = doubted[table[at]] = True
        else:
            table[at] = i
    for i in range(old.shape[0]):
        at = (old[i] ^ (old[i] >> 32)) & mask
        while table[at] >= 0 and new[table[at]] != old[i]:
            at = (at + 1) & mask
        if table[at] >= 0:
            doubted[table[at]] = True
            known[count] = i
            count += 1
    return known[:count].copy(), np.flatnonzero(doubted)
