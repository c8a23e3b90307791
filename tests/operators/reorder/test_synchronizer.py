"""The Synchronizer against Algorithm 1 taken row by row."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naive.order import Synchronizer
from tocsin.operators.reorder.k_slack import ReorderRows
from tocsin.operators.reorder.synchronizer import synchronize
from tocsin.runtime.contract import NEVER_SEEN

STREAMS = 3

rows_as_they_arrive = st.lists(st.tuples(st.integers(0, STREAMS - 1), st.integers(0, 12)), max_size=40)
cuts = st.sets(st.integers(0, 40))


def feed(rows: list[tuple[int, int]], cut_at: set[int]) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Give the rows that leave, each with the row that let it go; the rows that stay; T_sync after each call."""
    stream, time = (np.array([row[i] for row in rows], np.int64) for i in range(2))
    t_sync, number, left, reached = NEVER_SEEN, np.zeros(0, np.int64), [], []
    bounds = sorted({0, len(rows)} | {cut for cut in cut_at if cut < len(rows)})
    for start, stop in itertools.pairwise(bounds):
        number = np.concatenate([number, np.arange(start, stop)])
        table = ReorderRows(stream[number], time[number], 2 * (number < start).astype(np.int64))
        t_sync, released, by, stage = synchronize(t_sync, STREAMS, table)
        left += list(zip(number[released].tolist(), number[by].tolist(), strict=True))
        reached.append(t_sync)
        number = number[stage == 2]
    return left, number.tolist(), reached


@given(rows_as_they_arrive, cuts)
def test_rows_leave_as_algorithm_1_lets_them_go(rows: list[tuple[int, int]], cut_at: set[int]) -> None:
    oracle, left = Synchronizer(), []
    for number, (stream, time) in enumerate(rows):
        left += [(row[0], number) for row in oracle.arrive([(number, stream, time)], set(range(STREAMS)))]
    assert feed(rows, cut_at)[:2] == (left, sorted(row[0] for row in oracle.buffer))


@given(rows_as_they_arrive, cuts)
def test_t_sync_never_falls_and_every_row_leaves_once_or_is_held(rows: list[tuple[int, int]], cut_at: set[int]) -> None:
    left, held, reached = feed(rows, cut_at)
    assert reached == sorted(reached)
    assert sorted([row for row, _ in left] + held) == list(range(len(rows)))


@given(st.lists(st.lists(st.integers(0, 12), max_size=10).map(sorted), min_size=STREAMS, max_size=STREAMS), st.data())
def test_streams_in_order_leave_in_order(streams: list[list[int]], data: st.DataObject) -> None:
    turns = data.draw(st.permutations([of for of, times in enumerate(streams) for _ in times]))
    coming = [iter(times) for times in streams]
    rows = [(of, next(coming[of])) for of in turns]
    left, held, _ = feed(rows, set())
    times = [rows[row][1] for row, _ in left]
    assert times == sorted(times)
    assert all(time <= rows[row][1] for row in held for time in times)


def test_rows_of_the_smallest_time_leave_together_and_a_row_behind_at_once() -> None:
    # 2 of each stream leaves when the last one comes; then 1 is behind and 2 beside what has left.
    rows = [(0, 2), (1, 2), (0, 2), (2, 2), (1, 1), (2, 2), (0, 5)]
    left, held, reached = feed(rows, set())
    assert left == [(0, 3), (1, 3), (2, 3), (3, 3), (4, 4), (5, 5)]
    assert (held, reached) == ([6], [2])
