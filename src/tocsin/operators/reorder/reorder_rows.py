"""Reordering of many keys: K-slack per stream and a synchronizer per key, in one kernel.

    reorder_rows(clocks, key, stream, time, stage, slack_us, idle_us, is_prompt=False)
        -> (released, by, stage, delay, skew)
    drain_rows(clocks, key, time, ends) -> released

Algorithm: each key has a clock per stream. An arriving row enters the K-slack of its stream. Rows that K-slack releases
enter the synchronizer of the key. All streams have the same K. A stream is idle while it has delivered no row, or while
its clock is more than `idle_us` older than the newest clock of its key. Rows that wait only for an idle stream leave
with the arrival that makes the stream idle. With `NEVER_IDLE` no stream is idle.

Guarantees: batch boundaries do not change the order of the released rows of a key. Each row leaves once. If K is at
least every delay, all rows of a key leave in order of time. With two streams, a row leaves in order if K is at least
its delay minus its skew, which do not depend on K. With more streams there is an exception: buffered rows of an idle
stream leave early, and a later row of this stream can need a longer wait.

Theorem 1 of the paper states that any K_1, ..., K_m act as one K. It holds if every clock rises by one step per round
and each stream has a row at every step, so that the skew is constant. Then T_sync and the released rows are equal after
each round. Inside a round they differ, and if the skew changes, K of the theorem changes too.

Complexity: O(1) for a row in order, O(log n) for n buffered rows otherwise, one step per stream for each row, and O(n)
per call.

References: Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016, section III.
Keys, idle streams and `is_prompt` are additions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.reorder.k_slack import IN_SLACK, RELEASED, ReorderRows, delay_rows, new_released_order
from tocsin.operators.reorder.run_heap import new_queues, reset_queues
from tocsin.operators.reorder.synchronizer import merge_rows
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int


class StreamClocks(NamedTuple):
    """Clocks of all keys: the largest time of each stream, the largest time released (T_sync), and the front."""

    newest: Int
    released: Int
    front: Int


def new_clocks(keys: int, streams: int) -> StreamClocks:
    """Return the clocks of keys without rows."""
    newest = np.full((keys, streams), NEVER_SEEN, np.int64)
    return StreamClocks(newest, np.full(keys, NEVER_SEEN, np.int64), np.full(keys, NEVER_SEEN, np.int64))


@kernel
def end_of_key(key: Int, start: int) -> int:
    """Return the position of the first row of the next key."""
    stop = start
    while stop < key.shape[0] and key[stop] == key[start]:
        stop += 1
    return stop


@kernel
def reorder_rows(
    clocks: StreamClocks,
    key: Int,
    stream: Int,
    time: Int,
    stage: Int,
    slack_us: int,
    idle_us: int,
    is_prompt: bool = False,
) -> tuple[Int, Int, Int, Int, Int]:
    """Process rows by key: for each key the buffered rows in arrival order, then the new rows. Move the clocks.

    `stage` is 0 for a new row, 1 for a row in K-slack, and 2 for a row in the synchronizer. Return the released rows
    in order, key by key, and for each the row whose arrival released it. Return the stage of every row, 0 if it was
    released, and delay and skew of every new row, -1 for buffered rows.

    In the paper rows leave K-slack only if their clock rises. With `is_prompt`, rows that are due leave at any arrival
    of their stream. So a row with a delay of at least K leaves on arrival, before all buffered rows, but not sorted
    among other rows that are due. A clock in the future cannot hold it.
    """
    count, streams = time.shape[0], clocks.newest.shape[1]
    rows, stage_after = ReorderRows(stream, time, stage), np.where(stage == RELEASED, IN_SLACK, stage)
    delay, skew = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    slack, buffer = new_queues(streams, count), new_queues(streams, count)
    passed, left = new_released_order(count), new_released_order(count)
    before, start, released = np.empty(streams, np.int64), 0, 0
    while start < count:
        here, span = key[start], (start, end_of_key(key, start))
        before[:] = clocks.newest[here]
        reset_queues(slack.marks, stream, span[0], span[1])
        buffer.marks[:] = slack.marks
        wait, own_clocks = (slack_us, idle_us, is_prompt), (clocks.newest[here], clocks.front[here : here + 1])
        passing = delay_rows(span, rows, own_clocks, wait, slack, passed, (delay, skew))
        clock = (clocks.released[here], before, idle_us)
        clocks.released[here], released = merge_rows(
            span, rows, (passed, passing), clock, buffer, (left, stage_after, released)
        )
        start = span[1]
    return left.row[:released].copy(), left.by[:released].copy(), stage_after, delay, skew


def drain_rows(clocks: StreamClocks, key: Int, time: Int, ends: Bools) -> Int:
    """Release all buffered rows of the keys marked in `ends`, by key, time and arrival. Move T_sync."""
    rows = np.flatnonzero(ends[key])
    rows = rows[np.lexsort((time[rows], key[rows]))]
    np.maximum.at(clocks.released, key[rows], time[rows])
    return rows
