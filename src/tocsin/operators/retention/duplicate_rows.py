"""Duplicate rows: rows of a reduced stream that equal an earlier row of their key.

Algorithm: a reduced input state omits rows, so it cannot compare a new row with all earlier rows. For rows in time
order, only rows at the newest time of a key can equal a new row. The state therefore keeps a fingerprint of each
omitted row at this time. A new row is compared with these fingerprints, and with the retained rows of its time.

Guarantees: for rows in order, the result equals the result of a state without omission, except for collisions of
64-bit hashes. An out-of-order row is a duplicate only while the equal row is retained. Batch boundaries do not change
the result.

Complexity: O(n log n) for the n rows that share key and time with a row omitted on arrival. Other rows cost nothing.

The caller is `operators/retention/operator.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.runtime.contract import NEVER, Bools, Int


class EqualTimes(NamedTuple):
    """Rows that share key and time with a row omitted on arrival.

    Attributes
    ----------
        key, time: Key index and event time.
        mark: Fingerprint of the row.
        rank, departure: Ranks of the arrivals at which the row entered and left.
        behind: The row was older than the newest row of its key.
    """

    key: Int
    time: Int
    mark: Int
    rank: Int
    departure: Int
    behind: Bools


@kernel
def mark_equal_times(offsets: Int, time: Int, key: Int, place: Int) -> NDArray[np.bool_]:
    """Mark the rows that share key and time with one of the rows at `place`, given the offsets of the keys."""
    marked = np.zeros(time.shape[0], np.bool_)
    for n in range(place.shape[0]):
        i, begin, end = place[n], offsets[key[n]], offsets[key[n] + 1]
        if marked[i]:
            continue
        first, last = i, i + 1
        while first > begin and time[first - 1] == time[i]:
            first -= 1
        while last < end and time[last] == time[i]:
            last += 1
        marked[first:last] = True
    return marked


@kernel
def _mark_repeats(
    order: Int, first: NDArray[np.bool_], rank: Int, departure: Int, behind: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Mark rows that are omitted on arrival and equal an earlier row; `order` groups equal rows.

    A row in order repeats any earlier row. A row `behind` repeats an earlier row only while that row is retained.
    """
    repeats, until = np.zeros(order.shape[0], np.bool_), -1
    for at in range(order.shape[0]):
        i = order[at]
        if first[at]:
            until = -1
        if departure[i] > rank[i]:
            until = departure[i]
        elif rank[i] >= 0 and not first[at]:
            repeats[i] = not behind[i] or until > rank[i]
    return repeats


@kernel
def mark_omitted_at_newest(offsets: Int, time: Int, departure: Int, newest: Int) -> NDArray[np.bool_]:
    """Mark the rows at the newest time of their key that are no longer retained."""
    marked = np.zeros(time.shape[0], np.bool_)
    for k in range(newest.shape[0]):
        i = offsets[k + 1] - 1
        while i >= offsets[k] and time[i] == newest[k]:
            marked[i] = departure[i] != NEVER
            i -= 1
    return marked


def find_repeats(rows: EqualTimes, key: Int, time: Int, mark: Int) -> Bools:
    """Mark the new rows that repeat an earlier row, or an omitted row with the given key, time and fingerprint."""
    before, in_order = np.full(len(key), -1), np.zeros(len(key), np.bool_)
    omitted = EqualTimes(key, time, mark, before, before, in_order)
    both = EqualTimes._make(np.concatenate(pair) for pair in zip(rows, omitted, strict=True))
    order = np.lexsort((both.rank, both.mark, both.time, both.key))
    first = np.ones(len(order), np.bool_)
    first[1:] = np.logical_or.reduce([np.diff(column[order]) != 0 for column in (both.key, both.time, both.mark)])
    return _mark_repeats(order, first, both.rank, both.departure, both.behind)[: len(rows.key)]
