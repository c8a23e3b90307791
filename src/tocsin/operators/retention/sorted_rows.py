"""Sorted rows: the retained tuples of one segment as row numbers in time order, with kernels to search and change them.

A list can contain rows that have left the state until `remove_departed_rows` is called. `departure[row]` marks them.
The callers are `bracketing.py` and `dominance.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import NEVER, Int

Array = NDArray[Any]
# Row numbers are unsigned, so that compiled code omits the test for negative indexes.
Index = NDArray[np.uint32]


@kernel
def contains_row(i: int, listed: tuple[Index, int], t: Array, value: Array, departure: Int) -> bool:
    """Return whether a retained row has the time and the value of row i."""
    retained, count = listed
    p = _upper_bound(retained, count, t, t[i]) - 1
    while p >= 0 and t[retained[p]] == t[i]:
        if value[retained[p]] == value[i] and departure[retained[p]] == NEVER:
            return True
        p -= 1
    return False


@kernel
def find_newest(retained: Index, count: int, fixed: NDArray[np.bool_], departure: Int) -> int:
    """Return the newest retained row that is not fixed, or -1 if every row is fixed."""
    p = count - 1
    while p >= 0 and (fixed[retained[p]] or departure[retained[p]] != NEVER):
        p -= 1
    return int(retained[p]) if p >= 0 else -1


@kernel
def insert_row(i: int, retained: Index, count: int, t: Array) -> int:
    """Insert row i after the rows of its time, and return the new count."""
    p = count
    while p > 0 and t[retained[p - 1]] > t[i]:
        retained[p] = retained[p - 1]
        p -= 1
    retained[p] = i
    return count + 1


@kernel
def remove_departed_rows(retained: Index, count: int, departure: Int) -> int:
    """Remove the rows that have left the state, and return the new count."""
    remaining = 0
    for p in range(count):
        if departure[retained[p]] == NEVER:
            retained[remaining] = retained[p]
            remaining += 1
    return remaining


@kernel
def lower_bound(retained: Index, keys: Array, key: Any) -> int:
    """Return the first position whose key is not smaller."""
    lo, hi = 0, retained.size
    while lo < hi:
        mid = (lo + hi) >> 1
        if keys[retained[mid]] >= key:
            hi = mid
        else:
            lo = mid + 1
    return lo


@kernel
def sort_by_time(t: Array, lo: int, hi: int, order: Int) -> None:
    """Write the rows from `lo` to `hi` into `order`, sorted by (time, position)."""
    ordered = True
    for i in range(lo, hi):
        order[i] = i
        if i > lo and t[i] < t[i - 1]:
            ordered = False
    if not ordered:
        _merge_sort(t, lo, hi, order)


@kernel
def _merge_sort(t: Array, lo: int, hi: int, order: Int) -> None:
    """Sort bottom up. A kernel that calls the sort of NumPy takes seconds to compile."""
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
def _upper_bound(retained: Index, count: int, keys: Array, key: Any) -> int:
    """Return the first position whose key is larger. The end is tested first, because most rows are in order."""
    if count == 0 or keys[retained[count - 1]] <= key:
        return count
    lo, hi = 0, count - 1
    while lo < hi:
        mid = (lo + hi) >> 1
        if keys[retained[mid]] > key:
            hi = mid
        else:
            lo = mid + 1
    return lo
