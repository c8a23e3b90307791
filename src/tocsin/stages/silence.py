"""Silence: a key whose stream has brought no row for too long, in event time.

Idea: per stream watched and key the newest row, and the start of the silence that is open. Event time is the newest row
of the key in any stream; it passes, row by row, the moment at which a stream should have been heard again.
Guarantee: the lives of docs/explanation/semantics.md (D60 to D69); one call or many give the same events.
Cost: O(1) per row and stream watched, three numbers per stream watched and key.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import NEVER_SEEN, Int

# Neither a time nor the start of a life.
NOT_YET = NEVER_SEEN


class Quiet(NamedTuple):
    """By stream watched and key: the newest row, the start of the open life, and the last row before it."""

    newest: Int
    start: Int
    last: Int


def new_quiet(streams: int, keys: int) -> Quiet:
    """Nothing heard yet."""
    return Quiet(*(np.full((streams, keys), NOT_YET) for _ in range(3)))


@kernel
def hear(stream: Int, key: Int, time: Int, wanted: Int, for_us: Int, front: Int, quiet: Quiet) -> Int:
    """Take rows by key and arrival, and give the changes of state: (stream watched, key, start, end, last row).

    `wanted` has the streams watched, `front` the event time of each key; an end of NOT_YET means that the life begins.
    """
    newest, start, last = quiet.newest, quiet.start, quiet.last
    most = 2 * wanted.shape[0]
    events, count = np.empty((32 + most, 5), np.int64), 0
    for row in range(key.shape[0]):
        k, now = key[row], time[row]
        front[k] = max(front[k], now)
        if count + most > events.shape[0]:
            events = np.concatenate((events, np.empty_like(events)))
        for i in range(wanted.shape[0]):
            is_open, is_known = start[i, k] != NOT_YET, newest[i, k] != NOT_YET
            if is_known and not is_open and front[k] - newest[i, k] > for_us[i]:
                count = begin(i, k, for_us[i], quiet, events, count)
                is_open = True
            if stream[row] != wanted[i] or (is_known and now <= newest[i, k]):
                continue
            newest[i, k] = now
            is_silent = front[k] - now > for_us[i]
            if is_silent and not is_open:
                count = begin(i, k, for_us[i], quiet, events, count)
            elif is_open and not is_silent:
                events[count, 0], events[count, 1], events[count, 2] = i, k, start[i, k]
                events[count, 3], events[count, 4] = max(now, start[i, k]), last[i, k]
                count += 1
                start[i, k] = NOT_YET
    return events[:count].copy()


@kernel
def begin(i: int, k: int, for_us: int, quiet: Quiet, events: Int, count: int) -> int:
    """Open a life behind the newest row; give the number of events."""
    quiet.last[i, k] = quiet.newest[i, k]
    quiet.start[i, k] = quiet.newest[i, k] + for_us
    events[count, 0], events[count, 1], events[count, 2] = i, k, quiet.start[i, k]
    events[count, 3], events[count, 4] = NOT_YET, quiet.last[i, k]
    return count + 1
