"""The window join against Algorithm 2 on lists, and against the definition where tuples come in order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.p004.window_join import Equal, Near, Probed, Star, Where, WindowJoin
from naive.window_join import Join, Predicate, Tuple, true_results

Condition = Equal | Star | Near | Where


def all_equal(*values: tuple[float, ...]) -> bool:
    return len({v[0] for v in values}) == 1


def star(centre: tuple[float, ...], *leaves: tuple[float, ...]) -> bool:
    return all(centre[i] == leaf[0] for i, leaf in enumerate(leaves))


def near(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 < 1.5**2


def odd_sum(*values: tuple[float, ...]) -> bool:
    return sum(v[0] for v in values) % 2 == 1


CONDITIONS: dict[str, tuple[int, Condition, Predicate]] = {
    "all values equal": (3, Equal(3), all_equal),
    "two values equal": (2, Equal(3), all_equal),
    "star of four": (4, Star(3), star),
    "star of three": (3, Star(3), star),
    "near": (2, Near(1.5), near),
    "any predicate": (3, Where(odd_sum), odd_sum),
}


@st.composite
def tuples(draw: st.DrawFn, streams: int, *, in_order: bool) -> list[Tuple]:
    """Draw tuples with ties and disorder, or sorted by time."""
    small = st.integers(0, 2).map(float)
    drawn = draw(
        st.lists(
            st.tuples(st.integers(0, streams - 1), st.integers(0, 15), st.tuples(small, small, small)), max_size=20
        )
    )
    drawn = sorted(drawn, key=lambda t: t[1]) if in_order else drawn
    return [(number, *t) for number, t in enumerate(drawn)]


def windows_of(streams: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 6), min_size=streams, max_size=streams)


def take_all(join: WindowJoin, rows: Sequence[Tuple], cut_at: set[int]) -> Probed:
    """Hand tuples over in calls; give all that was given."""
    stream, time = (np.array([row[i] for row in rows], np.int64) for i in (1, 2))
    values = np.array([row[3] for row in rows], np.float64).reshape(len(rows), 3)
    bounds = sorted({0, len(rows)} | {cut for cut in cut_at if cut < len(rows)})
    parts = [join.take(stream[a:b], time[a:b], values[a:b]) for a, b in itertools.pairwise(bounds)]
    parts = parts or [join.take(stream, time, values)]
    found = [result for part in parts for result in part.found]
    return Probed(*(np.concatenate([part[i] for part in parts]) for i in range(3)), found)


@pytest.mark.parametrize("name", CONDITIONS)
@given(st.data(), st.sets(st.integers(0, 20)))
def test_tuples_find_what_algorithm_2_finds_whatever_the_cut(name: str, data: st.DataObject, cut_at: set[int]) -> None:
    streams, condition, predicate = CONDITIONS[name]
    rows, windows = data.draw(tuples(streams, in_order=False)), data.draw(windows_of(streams))
    oracle = Join(windows, predicate)
    expected = [oracle.arrive(row) for row in rows]
    taken = take_all(WindowJoin(windows, condition), rows, cut_at)
    assert taken.cross.tolist() == [cross for cross, _, _ in expected]
    assert taken.in_order.tolist() == [in_order for _, in_order, _ in expected]
    assert taken.results.tolist() == [len(found) for _, _, found in expected]
    if isinstance(condition, Where):
        assert sorted(taken.found) == sorted(result for _, _, found in expected for result in found)


@pytest.mark.parametrize("name", CONDITIONS)
@given(st.data())
def test_a_late_tuple_is_told_what_it_would_find_if_that_is_counted(name: str, data: st.DataObject) -> None:
    streams, condition, predicate = CONDITIONS[name]
    rows, windows = data.draw(tuples(streams, in_order=False)), data.draw(windows_of(streams))
    oracle, expected, in_order = Join(windows, predicate), [], []
    for row in rows:
        late = oracle.clock is not None and row[2] < oracle.clock
        lost = oracle.would_find(row)
        cross, _, found = oracle.arrive(row)
        expected.append(lost if late else (cross, len(found)))
        in_order += [] if late else found
    taken = take_all(WindowJoin(windows, condition, count_late=True), rows, set())
    assert list(zip(taken.cross.tolist(), taken.results.tolist(), strict=True)) == expected
    if isinstance(condition, Where):
        assert sorted(taken.found) == sorted(in_order)


@pytest.mark.parametrize("name", CONDITIONS)
@given(st.data())
def test_in_order_every_result_is_found_once_by_its_newest_tuple(name: str, data: st.DataObject) -> None:
    streams, condition, predicate = CONDITIONS[name]
    rows, windows = data.draw(tuples(streams, in_order=True)), data.draw(windows_of(streams))
    taken = take_all(WindowJoin(windows, condition), rows, set())
    expected = true_results(rows, windows, predicate)
    assert taken.in_order.all()
    found_at: dict[int, int] = {}
    for row, results in zip(rows, taken.results.tolist(), strict=True):
        found_at[row[2]] = found_at.get(row[2], 0) + int(results)
    expected_at = {row[2]: 0 for row in rows}
    for time, _ in expected:
        expected_at[time] += 1
    assert found_at == expected_at
    if isinstance(condition, Where):
        assert sorted(taken.found) == sorted(expected)


def test_a_late_tuple_finds_nothing_and_is_found_by_later_ones() -> None:
    # Figure 1 of the paper, its second case: the tuple of time 7 comes after 8; windows are 2 long.
    join = WindowJoin([2, 2], Equal(10))
    stream, time, values = np.array([0, 1, 0]), np.array([8, 7, 9]), np.full((3, 1), 5)
    taken = join.take(stream, time, values)
    assert taken.in_order.tolist() == [True, False, True]
    assert taken.results.tolist() == [0, 0, 1]
    assert taken.cross.tolist() == [0, 0, 1]


def test_a_cross_join_may_be_larger_than_whole_numbers() -> None:
    streams, each = 8, 300
    stream = np.append(np.repeat(np.arange(1, streams), each), 0)
    taken = WindowJoin([1] * streams, Equal(2)).take(stream, np.zeros(len(stream), np.int64), np.ones((len(stream), 1)))
    assert taken.cross[-1] == pytest.approx(float(each) ** (streams - 1), rel=1e-12)


def test_values_that_have_no_place_are_refused() -> None:
    join = WindowJoin([1, 1], Equal(3))
    with pytest.raises(ValueError, match="whole numbers from 0 to below 3"):
        join.take(np.array([0]), np.array([0]), np.array([[3]]))
    join.take(np.array([0]), np.array([0]), np.array([[2]]))
    with pytest.raises(ValueError, match="as many values as before, 1; got 2"):
        join.take(np.array([0]), np.array([0]), np.array([[2, 2]]))
    with pytest.raises(ValueError, match="must have two streams"):
        WindowJoin([1, 1, 1], Near(2.0))
