"""K-slack: put one disordered stream in order of time by holding each row for K.

Idea: a stream has a clock, the largest time seen. A row waits in a buffer. Each time the clock rises, and only then,
the rows that lie at least K behind it leave, smallest time first, equal times in order of arrival. With K = 1:

    arrive   1     4     3     5     7     8     6     9
    leave          1           3 4   5     7           6 8

The delay of a row is how far it lies behind the clock when it arrives (0 if it moves the clock). Several streams run
side by side. One is idle while its clock lies more than `idle_us` behind the newest of them; its rows then go by that
newest clock, and leave when either rises.

Guarantee: while K stays the same and a stream is not idle, a row whose delay is at most K leaves behind no later row
of that stream. A row with a larger delay leaves at the next rise of the clock. Between rises nothing leaves, not even
what is long due; unless it is asked to be `prompt`: then what is due leaves with any arrival of its stream, so a row
whose delay is at least K leaves at once.
Cost: O(1) for a row in order, O(log held) for one behind, and a look at the clock of each stream.
Source: Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016, section III-A
and Figure 3. Proposition 1 (what K-slack gives has the skew between streams that its inputs have) is exact only where a
stream has a row at each clock less K; in general the largest time given lies less than one gap between rows below that.
Idle streams and `prompt` are ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import NEVER_SEEN, Int
from tocsin.stages.order.run_heap import (
    BASE,
    HEAD,
    SIZE,
    TAIL,
    Queues,
    comes_before,
    rise,
    sink,
)

# An `idle_us` that no stream reaches: all are waited for, as in the paper.
NEVER_IDLE = 1 << 60

# What became of a row; a new one has 0 as well.
RELEASED, IN_SLACK, IN_SYNCHRONIZER = 0, 1, 2


class Rows(NamedTuple):
    """Rows in order of arrival: their stream, their time and where they are held."""

    stream: Int
    time: Int
    stage: Int


class Sent(NamedTuple):
    """Rows that left, in order, and for each the row whose arrival let it go."""

    row: Int
    by: Int


@kernel
def new_sent(rows: int) -> Sent:
    """Make room for so many rows."""
    return Sent(np.empty(rows, np.int64), np.empty(rows, np.int64))


@kernel
def skew_of(newest: Int, of: int, oldest: int) -> int:
    """How far the clock of a stream lies ahead of the slowest that delivered and is not idle (not below `oldest`)."""
    slowest = newest[of]
    for other in range(newest.shape[0]):
        if NEVER_SEEN < newest[other] < slowest and newest[other] >= oldest:
            slowest = newest[other]
    return int(newest[of] - slowest)


@kernel
def sort_last(sent: Int, begin: int, end: int, time: Int) -> None:
    """Order by time and arrival what one arrival lets go; that of a single stream is in order already."""
    for at in range(begin + 1, end):
        row, place = sent[at], at
        while place > begin and comes_before(row, sent[place - 1], time):
            sent[place] = sent[place - 1]
            place -= 1
        sent[place] = row


@kernel
def delay_rows(
    span: tuple[int, int], rows: Rows, newest: Int, wait: tuple[int, int, bool], queues: Queues, sent: Sent,
    seen: tuple[Int, Int],
) -> int:  # fmt: skip
    """Run the K-slack of every stream over the rows of a span; give how many were sent on.

    `wait` is K, how far behind the newest clock a stream is idle, and whether what is due when it arrives leaves at
    once. Rows that the Synchronizer holds are passed by. Moves the clocks; notes delay and skew of new rows in `seen`.
    """
    stream, time, stage = rows
    run, heap, marks = queues
    sent_row, sent_by = sent
    delay, skew = seen
    slack_us, idle_us, prompt = wait
    count, newest_of_all = 0, newest.max()
    for row in range(span[0], span[1]):
        of, due = stream[row], time[row]
        if stage[row] == IN_SYNCHRONIZER:
            continue
        base, tail = marks[of, BASE], marks[of, TAIL]
        if marks[of, HEAD] == tail or time[run[base + tail - 1]] <= due:
            run[base + tail], marks[of, TAIL] = row, tail + 1
        else:
            rise(heap, base, marks[of, SIZE], row, time)
            marks[of, SIZE] += 1
        if stage[row] != RELEASED:
            continue
        rises, moves = due > newest[of], due > newest_of_all and idle_us < NEVER_IDLE
        newest[of], newest_of_all = max(newest[of], due), max(newest_of_all, due)
        oldest = newest_of_all - idle_us
        delay[row], skew[row] = newest[of] - due, skew_of(newest, of, oldest)
        begin = count
        # Where the newest clock moves, first the streams that are idle, whose clock it is; then the stream of the row.
        other = 0 if moves else newest.shape[0]
        while other <= newest.shape[0]:
            turn, other = (other if other < newest.shape[0] else of), other + 1
            is_idle = NEVER_SEEN < newest[turn] < oldest
            clock = newest_of_all if is_idle else newest[turn]
            leaves = rises or prompt if other > newest.shape[0] else is_idle and turn != of
            base, head, tail, size = marks[turn, BASE], marks[turn, HEAD], marks[turn, TAIL], marks[turn, SIZE]
            while leaves and (head < tail or size > 0):
                first = run[base + head] if head < tail else heap[base]
                if head < tail and size > 0 and comes_before(heap[base], first, time):
                    first = heap[base]
                leaves = time[first] + slack_us <= clock
                if leaves:
                    sent_row[count], sent_by[count] = first, row
                    count += 1
                    if head < tail and run[base + head] == first:
                        head += 1
                    else:
                        size -= 1
                        sink(heap, base, size, time)
            marks[turn, HEAD], marks[turn, SIZE] = head, size
        if moves:
            sort_last(sent_row, begin, count, time)
    return count
