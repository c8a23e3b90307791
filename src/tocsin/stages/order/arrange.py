"""Arrange: K-slack for each stream and a Synchronizer behind them, for many groups of rows at once.

Idea: a group (a key) has a clock per stream. A row that arrives enters the K-slack of its stream; what a rise of that
clock lets go passes to the Synchronizer of the group; what that lets go has left. All streams have the same K.

    arrange(clocks, group, stream, time, stage, slack_us, idle_us, prompt=False) -> (released, by, stage, delay, skew)
    drain(clocks, group, time, ends) -> released

A stream is idle, and not waited for, while it never delivered or its clock lies more than `idle_us` behind the newest
of its group; what waited only for it leaves with the arrival that makes it idle, and its own rows go by that newest
clock. With an `idle_us` of `slack.NEVER_IDLE` no stream is idle.

Guarantee: any cut into calls gives the same rows in the same order for each group, and each row leaves once. A row
with a delay of at most K is never behind in what K-slack gives of its stream, unless that is idle. With K as large as
every delay and no stream idle, all rows of a group leave in order of time.

Theorem 1 of the paper says that any K_1, ..., K_m act as one K. What holds of it: where every clock rises by one step
in each round and each stream has a row at every step (so skews, and with them that K, stay as they are), T_sync and the
rows that have left are the same after each round, once all waits are over. Inside a round they are not, so a row whose
time is that of T_sync may be in order under one and late under the other. Where skews change, so does the K of the
theorem.

Cost: O(1) for a row in order, O(log held) for one behind, and a look at each stream; a call adds O(held).
Source: Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016, section III.
Groups, idle streams and `prompt` are ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int
from tocsin.stages.order.run_heap import lay_out, new_queues
from tocsin.stages.order.slack import IN_SLACK, RELEASED, Rows, delay_rows, new_sent
from tocsin.stages.order.synchronizer import merge_rows


class Clocks(NamedTuple):
    """Per group: the largest time of each stream, and T_sync, the largest time that left the Synchronizer."""

    newest: Int
    released: Int


def new_clocks(groups: int, streams: int) -> Clocks:
    """Give the clocks of groups that have no rows yet."""
    return Clocks(np.full((groups, streams), NEVER_SEEN, np.int64), np.full(groups, NEVER_SEEN, np.int64))


@kernel
def end_of(group: Int, start: int) -> int:
    """The first row of the next group."""
    stop = start
    while stop < group.shape[0] and group[stop] == group[start]:
        stop += 1
    return stop


@kernel
def arrange(
    clocks: Clocks, group: Int, stream: Int, time: Int, stage: Int, slack_us: int, idle_us: int, prompt: bool = False
) -> tuple[Int, Int, Int, Int, Int]:
    """Take rows by group: inside a group those held, in order of arrival, then the new ones; move the clocks.

    `stage` is 0 for a new row, 1 for one held in K-slack, 2 for one held in the Synchronizer. Gives the rows that
    leave, in order, group by group; for each the row whose arrival let it go; the stage of every row (0: it left); the
    delay of every new row; how far its stream's clock was ahead of the slowest then (both -1 for a row that was held).
    In the paper rows leave K-slack only when their clock rises. With `prompt` what is due leaves with any arrival of
    its stream; so a row whose delay is at least K leaves as it comes, ahead of all rows that wait, as it would then,
    but not sorted among others that are due; and no clock that stands in the future holds it.
    """
    count, streams = time.shape[0], clocks.newest.shape[1]
    rows, fate = Rows(stream, time, stage), np.where(stage == RELEASED, IN_SLACK, stage)
    delay, skew = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    slack, buffer = new_queues(streams, count), new_queues(streams, count)
    sent, left = new_sent(count), new_sent(count)
    before, start, given = np.empty(streams, np.int64), 0, 0
    while start < count:
        here, span = group[start], (start, end_of(group, start))
        before[:] = clocks.newest[here]
        lay_out(slack.marks, stream, span[0], span[1])
        buffer.marks[:] = slack.marks
        coming = delay_rows(span, rows, clocks.newest[here], (slack_us, idle_us, prompt), slack, sent, (delay, skew))
        clock = (clocks.released[here], before, idle_us)
        clocks.released[here], given = merge_rows(span, rows, (sent, coming), clock, buffer, (left, fate, given))
        start = span[1]
    return left.row[:given].copy(), left.by[:given].copy(), fate, delay, skew


def drain(clocks: Clocks, group: Int, time: Int, ends: Bools) -> Int:
    """Let all held rows of the groups marked in `ends` go, by group, time and arrival; move T_sync."""
    rows = np.flatnonzero(ends[group])
    rows = rows[np.lexsort((time[rows], group[rows]))]
    np.maximum.at(clocks.released, group[rows], time[rows])
    return rows
