"""K-slack: order one stream by event time with a delay of K.

Algorithm: each stream has a clock, the largest time so far. A row waits in a queue. When the clock rises, all rows that
are at least K older than the clock leave, by time and then by arrival. With K = 1:

    arrive   1     4     3     5     7     8     6     9
    leave          1           3 4   5     7           6 8

The kernel runs several streams side by side. A stream is idle if its clock is more than `idle_us` older than the
newest clock. The newest clock then replaces its clock. The front is the largest value so far of the slowest clock,
without idle streams and streams without rows. The delay of a row is its distance to its clock, or to the front if the
front is newer. So a stream that was idle and lags behind the others has delays, although its own rows are in order.
The skew of a row is the distance of this clock to the front. With `NEVER_IDLE` there is no front, and the skew is the
distance to the slowest clock.

Guarantees: with a constant K, a row of a stream that is not idle and with a delay of at most K leaves after no later
row of its stream. A row with a larger delay leaves at the next rise of the clock. With `is_prompt`, rows that are due
also leave at any arrival of their stream, so a row with a delay of at least K leaves at once.

Complexity: O(1) for a row in order, O(log n) for n buffered rows otherwise, and one step per stream for each row.

References: Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016, section III-A
and Figure 3. Proposition 1 is exact only if a stream has a row at each clock minus K. Otherwise the largest released
time is lower by less than one gap between rows. Idle streams and `is_prompt` are additions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.reorder.run_heap import (
    BASE,
    HEAD,
    SIZE,
    TAIL,
    Queues,
    comes_before,
    pop_heap,
    push_heap,
)
from tocsin.runtime.contract import NEVER_SEEN, Int

# With this `idle_us` no stream is idle, as in the paper.
NEVER_IDLE = 1 << 60

# Stages of a row. A new row also has stage 0.
RELEASED, IN_SLACK, IN_SYNCHRONIZER = 0, 1, 2


class ReorderRows(NamedTuple):
    """Rows in arrival order: stream, time and stage."""

    stream: Int
    time: Int
    stage: Int


class ReleasedOrder(NamedTuple):
    """Released rows in their order, and for each the row whose arrival released it."""

    row: Int
    by: Int


@kernel
def new_released_order(rows: int) -> ReleasedOrder:
    """Allocate an order for a number of rows."""
    return ReleasedOrder(np.empty(rows, np.int64), np.empty(rows, np.int64))


@kernel
def slowest_clock(newest: Int, newest_of_all: int, oldest: int) -> int:
    """Return the oldest clock of the streams that have delivered a row and are not idle: not older than `oldest`."""
    slowest = newest_of_all
    for clock in newest:
        if NEVER_SEEN < clock < slowest and clock >= oldest:
            slowest = clock
    return int(slowest)


@kernel
def sort_released(released: Int, begin: int, end: int, time: Int) -> None:
    """Sort the rows that one arrival releases by time and arrival. The rows of each stream are already sorted."""
    for at in range(begin + 1, end):
        row, place = released[at], at
        while place > begin and comes_before(row, released[place - 1], time):
            released[place] = released[place - 1]
            place -= 1
        released[place] = row


@kernel
def delay_rows(
    span: tuple[int, int],
    rows: ReorderRows,
    clocks: tuple[Int, Int],
    wait: tuple[int, int, bool],
    queues: Queues,
    released: ReleasedOrder,
    seen: tuple[Int, Int],
) -> int:
    """Run the K-slack of every stream over the rows of a span, and return the number of released rows.

    `clocks` are the clocks of the streams and, as an array of one number, the front. `wait` is K, `idle_us` and
    `is_prompt`. The kernel skips rows in the synchronizer, moves the clocks, and writes delay and skew of new rows to
    `seen`.
    """
    stream, time, stage = rows
    run, heap, marks = queues
    released_row, released_by = released
    delay, skew = seen
    slack_us, idle_us, is_prompt = wait
    newest, front = clocks
    count, newest_of_all = 0, newest.max()
    slowest = slowest_clock(newest, newest_of_all, newest_of_all - idle_us)
    if idle_us < NEVER_IDLE:
        slowest = front[0] = max(front[0], slowest)
    for row in range(span[0], span[1]):
        of, due = stream[row], time[row]
        if stage[row] == IN_SYNCHRONIZER:
            continue
        base, tail = marks[of, BASE], marks[of, TAIL]
        if marks[of, HEAD] == tail or time[run[base + tail - 1]] <= due:
            run[base + tail], marks[of, TAIL] = row, tail + 1
        else:
            push_heap(heap, base, marks[of, SIZE], row, time)
            marks[of, SIZE] += 1
        if stage[row] != RELEASED:
            continue
        rises, moves = due > newest[of], due > newest_of_all and idle_us < NEVER_IDLE
        newest[of], newest_of_all = max(newest[of], due), max(newest_of_all, due)
        oldest = newest_of_all - idle_us
        own_clock = max(newest[of], front[0])
        if rises:
            slowest = slowest_clock(newest, newest_of_all, oldest)
            if idle_us < NEVER_IDLE:
                slowest = front[0] = max(front[0], slowest)
        delay[row], skew[row] = own_clock - due, own_clock - slowest
        begin = count
        # If the newest clock rises, release rows of idle streams first, and then rows of the stream of this row.
        other = 0 if moves else newest.shape[0]
        while other <= newest.shape[0]:
            turn, other = (other if other < newest.shape[0] else of), other + 1
            is_idle = NEVER_SEEN < newest[turn] < oldest
            clock = newest_of_all if is_idle else newest[turn]
            leaves = rises or is_prompt if other > newest.shape[0] else is_idle and turn != of
            base, head, tail, size = marks[turn, BASE], marks[turn, HEAD], marks[turn, TAIL], marks[turn, SIZE]
            while leaves and (head < tail or size > 0):
                first = run[base + head] if head < tail else heap[base]
                if head < tail and size > 0 and comes_before(heap[base], first, time):
                    first = heap[base]
                leaves = time[first] + slack_us <= clock
                if leaves:
                    released_row[count], released_by[count] = first, row
                    count += 1
                    if head < tail and run[base + head] == first:
                        head += 1
                    else:
                        size -= 1
                        pop_heap(heap, base, size, time)
            marks[turn, HEAD], marks[turn, SIZE] = head, size
        if moves:
            sort_released(released_row, begin, count, time)
    return count
