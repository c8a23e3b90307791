"""The remembered tuples of one segment: row numbers sorted by time, searched, extended and thinned by kernels.

Rows that have gone may still be listed until the list is compacted: `gone[row]` tells.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import NEVER, Int

Array = NDArray[Any]
# Row numbers have no sign, so that compiled code does not look for negative ones.
Index = NDArray[np.uint32]


@kernel
def has(i: int, listed: tuple[Index, int], t: Array, value: Array, gone: Int) -> bool:
    """Tell whether a remembered row has the time and the value of row i."""
    alive, count = listed
    p = _after(alive, count, t, t[i]) - 1
    while p >= 0 and t[alive[p]] == t[i]:
        if value[alive[p]] == value[i] and gone[alive[p]] == NEVER:
            return True
        p -= 1
    return False


@kernel
def newest(alive: Index, count: int, fixed: NDArray[np.bool_], gone: Int) -> int:
    """Find the newest remembered row that is not fixed; -1 if there is none."""
    p = count - 1
    while p >= 0 and (fixed[alive[p]] or gone[alive[p]] != NEVER):
        p -= 1
    return int(alive[p]) if p >= 0 else -1


@kernel
def place(i: int, alive: Index, count: int, t: Array) -> int:
    """List row i behind those of its time; give the new count."""
    p = count
    while p > 0 and t[alive[p - 1]] > t[i]:
        alive[p] = alive[p - 1]
        p -= 1
    alive[p] = i
    return count + 1


@kernel
def compact(alive: Index, count: int, gone: Int) -> int:
    """Strike the rows that have gone; give the new count."""
    kept = 0
    for p in range(count):
        if gone[alive[p]] == NEVER:
            alive[kept] = alive[p]
            kept += 1
    return kept


@kernel
def first(alive: Index, keys: Array, key: Any) -> int:
    """Find the first place whose key is not smaller."""
    lo, hi = 0, alive.size
    while lo < hi:
        mid = (lo + hi) >> 1
        if keys[alive[mid]] >= key:
            hi = mid
        else:
            lo = mid + 1
    return lo


@kernel
def sort(t: Array, lo: int, hi: int, order: Int) -> None:
    """Write the rows lo up to hi into `order`, by (time, position)."""
    ordered = True
    for i in range(lo, hi):
        order[i] = i
        if i > lo and t[i] < t[i - 1]:
            ordered = False
    if not ordered:
        _merge_sort(t, lo, hi, order)


@kernel
def _merge_sort(t: Array, lo: int, hi: int, order: Int) -> None:
    """Sort bottom up; NumPy's own sort inside a kernel would take seconds to compile."""
    spare, width = np.empty(hi - lo, np.int64), 1
    while width < hi - lo:
        for begin in range(lo, hi, 2 * width):
            middle, end = min(begin + width, hi), min(begin + 2 * width, hi)
            left, right = begin, middle
            for at in range(begin, end):
                if right >= end or (left < middle and t[order[left]] <= t[order[right]]):
                    spare[at - lo] = order[left]
                    left += 1
                else:
                    spare[at - lo] = order[right]
                    right += 1
        for at in range(lo, hi):
            order[at] = spare[at - lo]
        width *= 2


@kernel
def _after(alive: Index, count: int, keys: Array, key: Any) -> int:
    """Find the first place whose key is larger; the end is tried first, for rows in order."""
    if count == 0 or keys[alive[count - 1]] <= key:
        return count
    lo, hi = 0, count - 1
    while lo < hi:
        mid = (lo + hi) >> 1
        if keys[alive[mid]] > key:
            hi = mid
        else:
            lo = mid + 1
    return lo
