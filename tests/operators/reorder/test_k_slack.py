"""K-slack against rows taken one at a time, and the queue below it against sorting."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.p004.k_slack import run_k_slack
from naive.order import KSlack
from tocsin.operators.reorder.k_slack import ReorderRows
from tocsin.operators.reorder.run_heap import pop_heap, push_heap
from tocsin.runtime.contract import NEVER_SEEN

STREAMS = 2

# (stream, time), in order of arrival.
rows_as_they_arrive = st.lists(st.tuples(st.integers(0, STREAMS - 1), st.integers(0, 12)), max_size=40)
cuts = st.sets(st.integers(0, 40))


def feed(
    rows: list[tuple[int, int]], cut_at: set[int], slack: int, *, prompt: bool = False
) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Give the rows that leave, each with the row that let it go; the delay of each row; the rows that stay."""
    stream, time = (np.array([row[i] for row in rows], np.int64) for i in range(2))
    newest, number, left, delays = np.full(STREAMS, NEVER_SEEN), np.zeros(0, np.int64), [], []
    bounds = sorted({0, len(rows)} | {cut for cut in cut_at if cut < len(rows)})
    for start, stop in itertools.pairwise(bounds):
        number = np.concatenate([number, np.arange(start, stop)])
        table = ReorderRows(stream[number], time[number], (number < start).astype(np.int64))
        released, by, delay = run_k_slack(newest, table, slack, prompt)
        left += list(zip(number[released].tolist(), number[by].tolist(), strict=True))
        delays += delay[number >= start].tolist()
        number = np.delete(number, released)
    return left, delays, number.tolist()


def test_figure_3_of_the_paper() -> None:
    times = [1, 4, 3, 5, 7, 8, 6, 9]
    left, delays, held = feed([(0, time) for time in times], set(), 1)
    by_arrival = [[times[row] for row, by in left if by == arrival] for arrival in range(8)]
    assert by_arrival == [[], [1], [], [3, 4], [5], [7], [], [6, 8]]
    assert delays == [0, 0, 1, 0, 0, 0, 2, 0]
    assert [times[row] for row in held] == [9]


@given(rows_as_they_arrive, cuts, st.integers(0, 6), st.booleans())
def test_rows_leave_as_if_they_were_taken_one_at_a_time(
    rows: list[tuple[int, int]], cut_at: set[int], slack: int, prompt: bool
) -> None:
    oracles = [KSlack(slack, prompt=prompt) for _ in range(STREAMS)]
    left, delays = [], []
    for number, (stream, time) in enumerate(rows):
        row = (number, stream, time)
        left += [(passed[0], number) for passed in oracles[stream].arrive(row)]
        delays.append(oracles[stream].delay(row))
    held = sorted(row[0] for oracle in oracles for row in oracle.buffer)
    assert feed(rows, cut_at, slack, prompt=prompt) == (left, delays, held)


@given(rows_as_they_arrive, cuts, st.integers(0, 6), st.booleans())
def test_a_row_with_a_delay_of_at_most_k_leaves_behind_no_later_row(
    rows: list[tuple[int, int]], cut_at: set[int], slack: int, prompt: bool
) -> None:
    left, delays, _ = feed(rows, cut_at, slack, prompt=prompt)
    latest = [-1] * STREAMS
    for row, _ in left:
        stream, time = rows[row]
        assert delays[row] > slack or time >= latest[stream]
        latest[stream] = max(latest[stream], time)


@given(rows_as_they_arrive, st.integers(0, 6))
def test_a_row_leaves_no_later_where_due_rows_are_prompt(rows: list[tuple[int, int]], slack: int) -> None:
    prompt, delays, _ = feed(rows, set(), slack, prompt=True)
    patient, _, _ = feed(rows, set(), slack)
    when = dict(prompt)
    assert all(when[row] <= by for row, by in patient)
    due = [row for row in range(len(rows)) if delays[row] >= slack]
    assert all(when[row] == row for row in due)


@pytest.mark.parametrize(("prompt", "leaves"), [(False, []), (True, [0])])
def test_what_a_shorter_wait_makes_due_leaves_with_the_next_arrival_if_prompt(prompt: bool, leaves: list[int]) -> None:
    newest, of = np.array([NEVER_SEEN]), np.zeros(2, np.int64)
    assert run_k_slack(newest, ReorderRows(of, np.array([5, 9]), of), 10, prompt)[0].tolist() == []
    stage = np.array([1, 1, 0])
    released, *_ = run_k_slack(newest, ReorderRows(np.zeros(3, np.int64), np.array([5, 9, 8]), stage), 3, prompt)
    assert released.tolist() == leaves


@pytest.mark.parametrize("slack", [0, 1])
def test_rows_of_one_time_leave_in_order_of_arrival(slack: int) -> None:
    left, _, _ = feed([(0, 5), (0, 5), (0, 4), (0, 5), (0, 4), (0, 9)], set(), slack)
    in_slack = [row for row, by in left if by == 5]
    assert in_slack == ([2, 4, 1, 3, 5] if slack == 0 else [2, 4, 0, 1, 3])


@given(st.lists(st.integers(0, 5), max_size=30), st.randoms(use_true_random=False))
def test_a_heap_gives_rows_by_time_and_number(times: list[int], random: object) -> None:
    time, base = np.array(times, np.int64), 3
    heap, order = np.zeros(len(times) + base, np.int64), list(range(len(times)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for count, row in enumerate(order):
        push_heap(heap, base, count, row, time)
    taken = []
    for count in reversed(range(len(times))):
        taken.append(int(heap[base]))
        pop_heap(heap, base, count, time)
    assert taken == sorted(range(len(times)), key=lambda row: (times[row], row))
