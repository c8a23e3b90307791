"""Algorithm 1 of the paper, to the letter and compiled, as the yardstick; and the inversion rate of a stream.

Cai, Bernstein, Wu, Chandramouli, Optimization of Threshold Functions over Streams, PVLDB 14(6), sections 3.2 and 6.2.
The store is a sorted array of tuple numbers: binary search, and a shift of four bytes per tuple behind the place.
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel


@kernel
def algorithm1(t: np.ndarray, v: np.ndarray, omega: float) -> int:
    """Take tuples one by one as they come; give how many are in the store at the end."""
    near = np.full((4, t.size), np.inf)
    la, lb, ra, rb = near[0], near[1], near[2], near[3]
    store, size = np.empty(t.size, np.int32), 0
    for s in range(t.size):
        begin = _search(store, size, t, t[s])
        p, duplicate = begin, False
        while p < size and t[store[p]] == t[s] and not duplicate:
            o = store[p]
            if v[s] == v[o]:
                duplicate = True
            elif v[s] < v[o]:
                la[s], ra[s], lb[o], rb[o] = 0, 0, 0, 0
            else:
                lb[s], rb[s], la[o], ra[o] = 0, 0, 0, 0
            if not duplicate and _bracketed(o, near, omega):
                size = _remove(store, size, p)
            else:
                p += 1
        if duplicate:
            continue
        end, p = p, begin - 1
        while p >= 0 and (la[s] == np.inf or lb[s] == np.inf) and t[s] - t[store[p]] <= omega:
            o = store[p]
            if v[s] < v[o]:
                la[s], rb[o] = min(la[s], t[s] - t[o]), min(rb[o], t[s] - t[o])
            elif v[s] > v[o]:
                lb[s], ra[o] = min(lb[s], t[s] - t[o]), min(ra[o], t[s] - t[o])
            if v[s] != v[o] and _bracketed(o, near, omega):
                size, end = _remove(store, size, p), end - 1
            p -= 1
        p = end
        while p < size and (ra[s] == np.inf or rb[s] == np.inf) and t[store[p]] - t[s] <= omega:
            o = store[p]
            if v[s] < v[o]:
                ra[s], lb[o] = min(ra[s], t[o] - t[s]), min(lb[o], t[o] - t[s])
            elif v[s] > v[o]:
                rb[s], la[o] = min(rb[s], t[o] - t[s]), min(la[o], t[o] - t[s])
            if v[s] != v[o] and _bracketed(o, near, omega):
                size = _remove(store, size, p)
            else:
                p += 1
        if not _bracketed(s, near, omega):
            for q in range(size, end, -1):
                store[q] = store[q - 1]
            store[end] = s
            size += 1
    return size


@kernel
def _bracketed(s: int, near: np.ndarray, omega: float) -> bool:
    return near[0, s] + near[2, s] <= omega and near[1, s] + near[3, s] <= omega


@kernel
def _remove(store: np.ndarray, size: int, p: int) -> int:
    for q in range(p, size - 1):
        store[q] = store[q + 1]
    return size - 1


@kernel
def _search(store: np.ndarray, size: int, t: np.ndarray, time: float) -> int:
    lo, hi = 0, size
    while lo < hi:
        mid = (lo + hi) >> 1
        if t[store[mid]] >= time:
            hi = mid
        else:
            lo = mid + 1
    return lo


@kernel
def inversions(t: np.ndarray) -> int:
    """Count the pairs that come in the wrong order, by merging."""
    a, b, count, width = t.copy(), np.empty_like(t), 0, 1
    while width < t.size:
        for lo in range(0, t.size, 2 * width):
            mid, hi = min(lo + width, t.size), min(lo + 2 * width, t.size)
            i, j = lo, mid
            for k in range(lo, hi):
                if i < mid and (j >= hi or a[i] <= a[j]):
                    b[k], i = a[i], i + 1
                else:
                    b[k], j = a[j], j + 1
                    count += mid - i
        a, b = b, a
        width *= 2
    return count
