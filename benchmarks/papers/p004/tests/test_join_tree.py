"""The tree of binary joins against the definition and against the single operator."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.p004.join_tree import Partial, Tree
from benchmarks.papers.p004.k_slack import run_k_slack
from benchmarks.papers.p004.window_join import Where, WindowJoin
from naive.window_join import Tuple, true_results
from tocsin.operators.reorder.k_slack import NEVER_IDLE, ReorderRows
from tocsin.operators.reorder.reorder_rows import drain_rows, new_clocks, reorder_rows
from tocsin.runtime.contract import NEVER_SEEN

LONG = 1 << 40


def anything(*_: tuple[float, ...]) -> bool:
    return True


def same_as_last(*values: tuple[float, ...]) -> bool:
    return values[-2][0] == values[-1][0]


def odd_sum(*values: tuple[float, ...]) -> bool:
    return sum(v[0] for v in values) % 2 == 1


CONDITIONS: dict[str, tuple[Sequence[Callable[..., bool]], Callable[..., bool]]] = {
    "two streams": ([odd_sum], odd_sum),
    "a chain": ([same_as_last, same_as_last], lambda a, b, c: a[0] == b[0] == c[0]),
    "only the last instance chooses": ([anything, odd_sum], odd_sum),
    "four streams": (
        [odd_sum, anything, same_as_last],
        lambda a, b, c, d: (a[0] + b[0]) % 2 == 1 and c[0] == d[0],
    ),
}


@st.composite
def tuples(draw: st.DrawFn, streams: int, *, apart: bool = False) -> list[Tuple]:
    """Draw tuples with disorder and ties; `apart`, no two streams share a time."""
    drawn = draw(
        st.lists(st.tuples(st.integers(0, streams - 1), st.integers(0, 9), st.integers(0, 1).map(float)), max_size=16)
    )
    return [
        (number, stream, time * streams + stream if apart else time, (value,))
        for number, (stream, time, value) in enumerate(drawn)
    ]


def columns(rows: Sequence[Tuple]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    stream, time = (np.array([row[i] for row in rows], np.int64) for i in (1, 2))
    return stream, time, np.array([row[3] for row in rows], np.float64).reshape(len(rows), 1)


def after_k_slack(rows: Sequence[Tuple], streams: int, slack: int) -> tuple[list[int], np.ndarray]:
    """Give the rows as they leave K-slack, and at last those that are held, each stream in order; and all delays."""
    stream, time, _ = columns(rows)
    left, _, delay = run_k_slack(
        np.full(streams, NEVER_SEEN), ReorderRows(stream, time, np.zeros(len(rows), np.int64)), slack
    )
    held = sorted(set(range(len(rows))) - set(left.tolist()), key=lambda row: (time[row], row))
    return left.tolist() + held, delay


def through_the_tree(
    tree: Tree, rows: Sequence[Tuple], order: Sequence[int], delay: np.ndarray, cut_at: set[int]
) -> list[Partial]:
    """Hand rows over in calls; give the results, with the numbers that rows had when they arrived."""
    stream, time, values = (column[np.array(order, np.int64)] for column in columns(rows))
    bounds = sorted({0, len(rows)} | {cut for cut in cut_at if cut < len(rows)})
    results: list[Partial] = []
    for a, b in itertools.pairwise(bounds):
        results += tree.take(stream[a:b], time[a:b], values[a:b], delay[np.array(order[a:b], np.int64)])
    results += tree.end()
    return [result._replace(numbers=tuple(order[number] for number in result.numbers)) for result in results]


@pytest.mark.parametrize("name", CONDITIONS)
@given(st.data(), st.sets(st.integers(0, 16)), st.integers(0, 4))
def test_with_complete_ordering_the_tree_finds_every_result_once(
    name: str, data: st.DataObject, cut_at: set[int], more: int
) -> None:
    holds, predicate = CONDITIONS[name]
    streams = len(holds) + 1
    rows = data.draw(tuples(streams))
    windows = data.draw(st.lists(st.integers(0, 5), min_size=streams, max_size=streams))
    order, delay = after_k_slack(rows, streams, 9 + more)
    found = through_the_tree(Tree(windows, holds), rows, order, delay, cut_at)
    assert sorted((r.time, r.numbers) for r in found) == sorted(true_results(rows, windows, predicate))
    assert [r.time for r in found] == sorted(r.time for r in found)


@pytest.mark.parametrize("name", CONDITIONS)
@given(st.data(), st.sets(st.integers(0, 16)), st.integers(0, 30))
def test_any_cut_into_calls_gives_the_same_results_in_the_same_order(
    name: str, data: st.DataObject, cut_at: set[int], slack: int
) -> None:
    holds, _ = CONDITIONS[name]
    streams = len(holds) + 1
    rows = data.draw(tuples(streams))
    order, delay = after_k_slack(rows, streams, slack)
    windows = [3] * streams
    at_once = through_the_tree(Tree(windows, holds), rows, order, delay, set())
    assert through_the_tree(Tree(windows, holds), rows, order, delay, cut_at) == at_once


@pytest.mark.parametrize("name", CONDITIONS)
@given(st.data())
def test_results_by_delay_are_those_of_the_single_operator(name: str, data: st.DataObject) -> None:
    holds, predicate = CONDITIONS[name]
    streams = len(holds) + 1
    rows = data.draw(tuples(streams, apart=True))
    windows, slack = [4 * streams] * streams, 10 * streams
    stream, time, values = columns(rows)
    group, clocks = np.zeros(len(rows), np.int64), new_clocks(1, streams)
    left, _, stage, delay, _ = reorder_rows(clocks, group, stream, time, group, slack, NEVER_IDLE)
    held = np.flatnonzero(stage)
    sequence = np.append(left, held[drain_rows(clocks, group[held], time[held], np.array([True]))])
    taken = WindowJoin(windows, Where(predicate)).take(stream[sequence], time[sequence], values[sequence])
    single: Counter[int] = Counter()
    for late, results in zip(delay[sequence].tolist(), taken.results.tolist(), strict=True):
        single[late] += int(results)
    order, delays = after_k_slack(rows, streams, slack)
    found = through_the_tree(Tree(windows, holds), rows, order, delays, set())
    assert Counter(result.delay for result in found) == +single


def test_a_fresh_tuple_does_not_keep_an_old_one_of_a_partial_result() -> None:
    # 0 and 4 of the first streams join (window 5). At 6 the first is too old, though the partial result is of time 4.
    stream, time, values = np.array([0, 1, 2, 2]), np.array([0, 4, 5, 6]), np.ones((4, 1))
    tree = Tree([5, 5, 5], [anything, anything])
    results = tree.take(stream, time, values, np.zeros(4, np.int64)) + tree.end()
    assert [(r.time, r.numbers) for r in results] == [(5, (0, 1, 2))]


def test_an_instance_that_finds_nothing_does_not_stop_the_one_above() -> None:
    times = np.repeat(np.arange(1000), 3)
    tree = Tree([LONG, 5, 5], [lambda a, b: False, anything])
    assert tree.take(np.tile([0, 1, 2], 1000), times, np.ones((3000, 1)), np.zeros(3000, np.int64)) == []
    assert all(len(instance.waiting) <= 3 for instance in tree.instances)
    assert len(tree.instances[1].windows[1]) == 1000 - len(tree.instances[1].waiting)


def test_there_is_a_condition_per_instance() -> None:
    with pytest.raises(ValueError, match="a condition per instance; got 1 for 3 streams"):
        Tree([1, 1, 1], [anything])
