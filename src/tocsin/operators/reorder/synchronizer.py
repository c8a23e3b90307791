"""Synchronizer: merge several streams, each nearly in order, into one order by event time.

Algorithm: rows of all streams share one buffer. While the buffer has a row of each awaited stream, the rows with the
smallest time leave, and this time becomes T_sync. An earlier row cannot follow if the streams are in order. A row with
a time of at most T_sync leaves at once. All rows that one arrival releases from K-slack enter the buffer together.

The paper waits for every stream, so a stream that ends stops the output. Here a stream is not awaited while it is idle:
it has delivered no row, or its clock is more than `idle_us` older than the newest clock.

Guarantees: awaited streams that are in order leave in order. T_sync never decreases. Rows of equal time that leave
together leave by arrival, so rows that arrive in order over all streams leave in arrival order.

Complexity: O(1) per row in order, O(log n) for n buffered rows otherwise, and one step per stream for each row.

References: Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016, Algorithm 1.
T_sync starts below every time instead of at 0. Idle streams are an addition.
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.reorder.k_slack import (
    IN_SYNCHRONIZER,
    NEVER_IDLE,
    RELEASED,
    ReleasedOrder,
    ReorderRows,
    new_released_order,
)
from tocsin.operators.reorder.run_heap import (
    BASE,
    FRONT,
    HEAD,
    SIZE,
    TAIL,
    Queues,
    comes_before,
    new_queues,
    pop_heap,
    push_heap,
    reset_queues,
)
from tocsin.runtime.contract import Int


@kernel
def mark_awaited_streams(newest: Int, idle_us: int, awaited: Int, marks: Int) -> int:
    """Mark the awaited streams, and return the number of them that have no row in the buffer."""
    latest, missing = newest[0], 0
    for of in range(newest.shape[0]):
        latest = max(latest, newest[of])
    for of in range(newest.shape[0]):
        awaited[of] = 1 if idle_us >= NEVER_IDLE or newest[of] >= latest - idle_us else 0
        missing += awaited[of] if marks[of, FRONT] < 0 else 0
    return int(missing)


@kernel
def merge_rows(
    span: tuple[int, int],
    rows: ReorderRows,
    slack: tuple[ReleasedOrder, int],
    clock: tuple[int, Int, int],
    queues: Queues,
    left: tuple[ReleasedOrder, Int, int],
) -> tuple[int, int]:
    """Run the synchronizer over the rows of a span, and return T_sync and the total number of released rows.

    `slack` has the rows that K-slack releases and their number. `clock` has T_sync, the clock of each stream, which the
    kernel moves, and `idle_us`. `left` receives the released rows and the stage of every row, and has the number of
    rows that were released before.
    """
    stream, time, stage = rows
    run, heap, marks = queues
    (slack_row, slack_by), slack_rows = slack
    t_sync, newest, idle_us = clock
    (left_row, left_by), stage_after, count = left
    streams, next_slack, at = newest.shape[0], 0, span[0]
    awaited = np.zeros(streams, np.int64)
    missing = mark_awaited_streams(newest, idle_us, awaited, marks)
    while at < span[1]:
        # One step: a row that was buffered before, a row that the arrival `at` releases, or the end of this arrival.
        has_more, by, row = stage[at] == IN_SYNCHRONIZER, at, -1
        if has_more:
            row, at = at, at + 1
        elif next_slack < slack_rows and slack_by[next_slack] == at:
            row, next_slack = slack_row[next_slack], next_slack + 1
            # Rows of one arrival enter together. Otherwise a row of another stream could overtake an equal time.
            has_more = next_slack < slack_rows and slack_by[next_slack] == at
        else:
            # A stream becomes idle only here, so rows that leave K-slack together meet in the buffer first.
            if idle_us < NEVER_IDLE and time[at] > newest[stream[at]]:
                newest[stream[at]] = time[at]
                missing = mark_awaited_streams(newest, idle_us, awaited, marks)
            at += 1
        if row >= 0 and time[row] > t_sync:
            of, stage_after[row] = stream[row], IN_SYNCHRONIZER
            base, tail, front = marks[of, BASE], marks[of, TAIL], marks[of, FRONT]
            missing -= awaited[of] if front < 0 else 0
            if front < 0 or time[row] < time[front] or (time[row] == time[front] and row < front):
                marks[of, FRONT] = row
            if marks[of, HEAD] == tail or time[run[base + tail - 1]] <= time[row]:
                run[base + tail], marks[of, TAIL] = row, tail + 1
            else:
                push_heap(heap, base, marks[of, SIZE], row, time)
                marks[of, SIZE] += 1
        elif row >= 0:
            left_row[count], left_by[count], stage_after[row] = row, by, RELEASED
            count += 1
        emits = missing == 0 and not has_more
        while emits:
            first, of = -1, 0
            for other in range(streams):
                front = marks[other, FRONT]
                if front >= 0 and (first < 0 or comes_before(front, first, time)):
                    first, of = front, other
            emits = first >= 0 and (missing == 0 or time[first] == t_sync)
            if emits:
                t_sync = time[first]
                left_row[count], left_by[count], stage_after[first] = first, by, RELEASED
                count += 1
                base, head, tail, size = marks[of, BASE], marks[of, HEAD], marks[of, TAIL], marks[of, SIZE]
                if head < tail and run[base + head] == first:
                    head += 1
                else:
                    size -= 1
                    pop_heap(heap, base, size, time)
                front = run[base + head] if head < tail else -1
                if size > 0 and (front < 0 or comes_before(heap[base], front, time)):
                    front = heap[base]
                marks[of, FRONT], marks[of, HEAD], marks[of, SIZE] = front, head, size
                missing += awaited[of] if front < 0 else 0
    return t_sync, count


@kernel
def synchronize(t_sync: int, streams: int, rows: ReorderRows) -> tuple[int, Int, Int, Int]:
    """Run Algorithm 1, which waits for every stream, over buffered rows (stage 2) and new rows (stage 0).

    Return T_sync, the released rows in order, for each the row whose arrival released it, and the stage of every row.
    The caller is the join tree of the benchmarks; rules use `reorder_rows`.
    """
    count = rows.time.shape[0]
    queues, left = new_queues(streams, count), new_released_order(count)
    reset_queues(queues.marks, rows.stream, 0, count)
    new, stage = np.flatnonzero(rows.stage == RELEASED), rows.stage.copy()
    clock, slack = (t_sync, np.zeros(streams, np.int64), NEVER_IDLE), (ReleasedOrder(new, new), new.shape[0])
    t_sync, released = merge_rows((0, count), rows, slack, clock, queues, (left, stage, 0))
    return t_sync, left.row[:released].copy(), left.by[:released].copy(), stage
