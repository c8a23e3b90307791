"""The kernel that settles rows against rows taken one at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naive.join import Row
from naive.settled import Reduction, Settling
from tocsin.operators.retention.bracketing import CLOSED, SegmentRows, compute_departure_ranks
from tocsin.operators.retention.final_rows import find_final_rows

NEVER_SEEN = -(1 << 62)

rows_in_order_of_arrival = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), min_size=1, max_size=14)


def one_at_a_time(rows: list[tuple[int, int]], interval: int) -> list[tuple[int, bool]]:
    """Give the number of each settled row, and whether it was late."""
    settling, found = Settling(Reduction("v", "increasing", interval, "both", None, None)), []
    for number, (t, v) in enumerate(rows):
        before = settling.progress
        settled, _ = settling.arrive(Row("a", (), t, (("v", v),), number))
        found += [(row.place, row.place == number and t < before) for row in settled]
    return found


@given(rows_in_order_of_arrival, st.sampled_from([1, 3, 5]))
def test_rows_are_settled_as_if_they_were_taken_one_at_a_time(rows: list[tuple[int, int]], interval: int) -> None:
    t, v = np.array([t for t, _ in rows]), np.array([float(v) for _, v in rows])
    count, rank = t.size, np.arange(t.size)
    table = SegmentRows(t, v, t, t, np.zeros(count, np.bool_), np.zeros(count, np.int64), rank)
    order, gone = np.empty(count, np.int64), np.empty(count, np.int64)
    offsets = np.array([0, count])
    compute_departure_ranks((offsets, np.array([0])), table, (np.array([[interval], [-1]]), CLOSED), order, gone)
    place = np.empty(count, np.int64)
    place[order] = rank
    newest, progress = np.full(1, NEVER_SEEN), np.full(1, NEVER_SEEN)
    arrived, sorted_rows = (np.zeros(count, np.int64), place), (offsets, t[order], rank[order], gone[order])
    settled, late = find_final_rows(arrived, sorted_rows, newest, progress, interval)
    assert list(zip(order[settled].tolist(), late.tolist(), strict=True)) == one_at_a_time(rows, interval)
    assert (newest.tolist(), progress.tolist()) == ([max(t)], [max(t) - interval])


def test_each_key_goes_on_where_it_was() -> None:
    # Two keys with remembered rows; the first has settled those up to 3, the second none.
    time, rank = np.array([3, 4, 9, 3, 4, 5]), np.array([-1, -1, 0, -1, -1, 1])
    gone = np.full(6, np.iinfo(np.int64).max)
    newest, progress = np.array([8, 4]), np.array([3, -1])
    arrived = (np.array([0, 1]), np.array([2, 5]))
    settled, late = find_final_rows(arrived, (np.array([0, 3, 6]), time, rank, gone), newest, progress, 5)
    assert settled.tolist() == [1]
    assert not late.any()
    assert (newest.tolist(), progress.tolist()) == ([9, 5], [4, 0])
