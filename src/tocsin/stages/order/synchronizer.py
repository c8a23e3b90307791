"""The Synchronizer: bring several streams, each nearly in order, into one order of time.

Idea: rows wait in one buffer. While it has a row of each stream that is waited for, the rows with the smallest time
leave, and that time becomes T_sync: no stream in order can bring an earlier one. A row that comes with a time of at
most T_sync leaves at once; it is behind, or beside, what has left. Rows that one arrival sends on enter the buffer
together, before any row leaves.

The paper waits for every stream, so one stream that ends stops all. Here a stream is not waited for while it is idle:
it never delivered, or the clock of its K-slack lies more than `idle_us` behind the newest one (`NEVER_IDLE`: none is).

Guarantee: streams that are in order and all waited for leave in order. T_sync never falls. Rows of one time that
leave together do so in order of arrival. So rows that arrive in order of time over all streams leave as they arrived.
Cost: per row O(1) in order and O(log held) behind its stream, and a look at the first row of each stream.
Source: Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016, Algorithm 1.
T_sync starts below every time, where the paper has 0; idle streams are ours.
"""

from __future__ import annotations

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Int
from tocsin.stages.order.run_heap import (
    BASE,
    FRONT,
    HEAD,
    SIZE,
    TAIL,
    Queues,
    comes_before,
    lay_out,
    new_queues,
    rise,
    sink,
)
from tocsin.stages.order.slack import IN_SYNCHRONIZER, NEVER_IDLE, RELEASED, Rows, Sent, new_sent


@kernel
def await_streams(newest: Int, idle_us: int, awaited: Int, marks: Int) -> int:
    """Mark the streams that are waited for; give how many of them have no row in the buffer."""
    latest, missing = newest[0], 0
    for of in range(newest.shape[0]):
        latest = max(latest, newest[of])
    for of in range(newest.shape[0]):
        awaited[of] = 1 if idle_us >= NEVER_IDLE or newest[of] >= latest - idle_us else 0
        missing += awaited[of] if marks[of, FRONT] < 0 else 0
    return int(missing)


@kernel
def merge_rows(
    span: tuple[int, int], rows: Rows, sent: tuple[Sent, int], clock: tuple[int, Int, int],
    queues: Queues, left: tuple[Sent, Int, int],
) -> tuple[int, int]:  # fmt: skip
    """Run the Synchronizer over the rows of a span; give T_sync and how many rows have left.

    `sent` are rows that come to it and the rows whose arrival sent them, in order, and how many; `clock` is T_sync, the
    clock of each stream, which is moved, and `idle_us`; `left` takes the rows that leave and the stage of every row,
    and says how many have left before.
    """
    stream, time, stage = rows
    run, heap, marks = queues
    (sent_row, sent_by), coming = sent
    t_sync, newest, idle_us = clock
    (left_row, left_by), fate, given = left
    streams, next_sent, at = newest.shape[0], 0, span[0]
    awaited = np.zeros(streams, np.int64)
    missing = await_streams(newest, idle_us, awaited, marks)
    while at < span[1]:
        # One step: a row held from before, a row that the arrival `at` sent on, or the end of that arrival.
        loads, by, row = stage[at] == IN_SYNCHRONIZER, at, -1
        if loads:
            row, at = at, at + 1
        elif next_sent < coming and sent_by[next_sent] == at:
            row, next_sent = sent_row[next_sent], next_sent + 1
            # Rows of one arrival enter together. Otherwise a row of another stream could overtake an equal time.
            loads = next_sent < coming and sent_by[next_sent] == at
        else:
            # Only now may a stream become idle: what leaves K-slack together meets here before any of it leaves so.
            if idle_us < NEVER_IDLE and time[at] > newest[stream[at]]:
                newest[stream[at]] = time[at]
                missing = await_streams(newest, idle_us, awaited, marks)
            at += 1
        if row >= 0 and time[row] > t_sync:
            of, fate[row] = stream[row], IN_SYNCHRONIZER
            base, tail, front = marks[of, BASE], marks[of, TAIL], marks[of, FRONT]
            missing -= awaited[of] if front < 0 else 0
            if front < 0 or time[row] < time[front] or (time[row] == time[front] and row < front):
                marks[of, FRONT] = row
            if marks[of, HEAD] == tail or time[run[base + tail - 1]] <= time[row]:
                run[base + tail], marks[of, TAIL] = row, tail + 1
            else:
                rise(heap, base, marks[of, SIZE], row, time)
                marks[of, SIZE] += 1
        elif row >= 0:
            left_row[given], left_by[given], fate[row] = row, by, RELEASED
            given += 1
        emits = missing == 0 and not loads
        while emits:
            first, of = -1, 0
            for other in range(streams):
                front = marks[other, FRONT]
                if front >= 0 and (first < 0 or comes_before(front, first, time)):
                    first, of = front, other
            emits = first >= 0 and (missing == 0 or time[first] == t_sync)
            if emits:
                t_sync = time[first]
                left_row[given], left_by[given], fate[first] = first, by, RELEASED
                given += 1
                base, head, tail, size = marks[of, BASE], marks[of, HEAD], marks[of, TAIL], marks[of, SIZE]
                if head < tail and run[base + head] == first:
                    head += 1
                else:
                    size -= 1
                    sink(heap, base, size, time)
                front = run[base + head] if head < tail else -1
                if size > 0 and (front < 0 or comes_before(heap[base], front, time)):
                    front = heap[base]
                marks[of, FRONT], marks[of, HEAD], marks[of, SIZE] = front, head, size
                missing += awaited[of] if front < 0 else 0
    return t_sync, given


@kernel
def synchronize(t_sync: int, streams: int, rows: Rows) -> tuple[int, Int, Int, Int]:
    """Run the Synchronizer, waiting for every stream, over rows held (stage 2) and new ones (stage 0), as they came.

    This is Algorithm 1 by itself, for tests and for `tree`; rules use `arrange`.
    Gives T_sync; the rows that leave, in order; for each the row whose arrival let it go; the stage of every row.
    """
    count = rows.time.shape[0]
    queues, left = new_queues(streams, count), new_sent(count)
    lay_out(queues.marks, rows.stream, 0, count)
    new, fate = np.flatnonzero(rows.stage == RELEASED), rows.stage.copy()
    clock = (t_sync, np.zeros(streams, np.int64), NEVER_IDLE)
    t_sync, given = merge_rows((0, count), rows, (Sent(new, new), new.shape[0]), clock, queues, (left, fate, 0))
    return t_sync, left.row[:given].copy(), left.by[:given].copy(), fate
