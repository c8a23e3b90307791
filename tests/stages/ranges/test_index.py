"""The range index against its definition: Hypothesis streams on the oracle, long streams on cumulative sums."""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from naive.ranges import Element, Event, Register, Terminate, run
from tocsin.errors import RunError
from tocsin.jit import enabled
from tocsin.runtime.state_codec import pack
from tocsin.stages.ranges.cuts import grow_ends
from tocsin.stages.ranges.index import RangeIndex
from tocsin.stages.ranges.shelving import grow_rack, no_rows, squeeze

NUMBERS = st.integers(0, 8).map(float) | st.sampled_from([-0.0, 2.5, 1.7976931348623157e308, -1.7976931348623157e308])
ENDS = NUMBERS | st.sampled_from([-np.inf, np.inf])
SMALL = st.integers(1, 3), st.integers(1, 12)
LARGE = st.sampled_from([1, 2**40]), st.sampled_from([1, 2**40 + 1, 2**42, 2**60])


@st.composite
def streams(draw: st.DrawFn, dims: int) -> list[Event]:
    """Draw elements and requests; an id is registered again only after its termination."""
    weights, thresholds = draw(st.sampled_from([SMALL, LARGE]))
    events: list[Event] = []
    free = list(range(6))
    for kind in draw(st.lists(st.sampled_from("eeeert"), max_size=60)):
        if kind == "e":
            events.append(Element(tuple(draw(NUMBERS) for _ in range(dims)), draw(weights)))
        elif kind == "r" and free:
            sides = [sorted((draw(ENDS), draw(ENDS))) for _ in range(dims)]
            low, high = tuple(side[0] for side in sides), tuple(side[1] for side in sides)
            events.append(Register(free.pop(0), low, high, draw(thresholds)))
        elif kind == "t":
            gone = draw(st.integers(0, 7))
            events.append(Terminate(gone))
            if gone < 6 and gone not in free:
                free.append(gone)
    return events


def ask(index: RangeIndex, requests: list[tuple[int, Register | Terminate]]) -> None:
    """Hand over requests, a call for each run of the same kind."""
    for kind, group in itertools.groupby(requests, key=lambda pair: type(pair[1])):
        run_of_kind = list(group)
        at, ids = [pair[0] for pair in run_of_kind], [pair[1].id for pair in run_of_kind]
        if kind is Terminate:
            index.terminate(ids, at=at)
        else:
            queries = [pair[1] for pair in run_of_kind if isinstance(pair[1], Register)]
            low, high = [query.low for query in queries], [query.high for query in queries]
            index.register(ids, low, high, [query.threshold for query in queries], at=at)


def push(index: RangeIndex, events: list[Event]) -> list[tuple[int, int, int]]:
    """Push the elements among some events as one batch, with the requests between them."""
    requests, values, weights = [], [], []
    for event in events:
        if isinstance(event, Element):
            values.append(event.value)
            weights.append(event.weight)
        else:
            requests.append((len(values), event))
    ask(index, requests)
    matured = index.push(np.array(values).reshape(-1, index.dims), np.array(weights, dtype=np.int64))
    return list(zip(*(column.tolist() for column in matured), strict=True))


def lay_out_anew(index: RangeIndex) -> None:
    """Do at once what is else done rarely."""
    held = index._held
    held.lay_out(no_rows(index.dims))
    held.rack = grow_rack(squeeze(held.rack))
    if held.line is not None:
        held.line = held.line._replace(ends=grow_ends(held.line.ends))


def check_stream(dims: int, events: list[Event], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=6)))
    index, answers, before = RangeIndex(dims), [], 0
    for start, stop in zip([0, *cuts], [*cuts, len(events)], strict=True):
        answers += [(id_, at + before, total) for id_, at, total in push(index, events[start:stop])]
        before += sum(isinstance(event, Element) for event in events[start:stop])
        between = data.draw(st.sampled_from(["nothing", "snapshot", "layout"]))
        if between == "snapshot":
            index = RangeIndex.restore(index.snapshot())
        elif between == "layout":
            lay_out_anew(index)
    expected, totals = run(events)
    assert answers == expected
    assert len(index) == len(totals)
    ids = list(range(8))
    assert index.progress(ids).tolist() == [totals.get(id_, -1) for id_ in ids]


@given(streams(1), st.data())
def test_any_cut_of_a_stream_on_a_line_gives_what_the_definition_says(events: list[Event], data: st.DataObject) -> None:
    check_stream(1, events, data)


@given(streams(2), st.data())
def test_any_cut_of_a_stream_in_the_plane_gives_what_the_definition_says(
    events: list[Event], data: st.DataObject
) -> None:
    check_stream(2, events, data)


@given(streams(3), st.data())
def test_any_cut_of_a_stream_in_space_gives_what_the_definition_says(events: list[Event], data: st.DataObject) -> None:
    check_stream(3, events, data)


class Lives(NamedTuple):
    """Queries with the elements before which they are registered and terminated."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    threshold: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]


def draw_lives(rng: np.random.Generator, count: int, elements: int, dims: int, *, whole: bool) -> Lives:
    centre, width = rng.uniform(0, 1000, (count, dims)), rng.choice([0, 1, 30, 400], (count, dims))
    low, high = centre - width / 2, centre + width / 2
    if whole:
        low, high = np.round(low), np.round(high)
    low[rng.random((count, dims)) < 0.02] = -np.inf
    begin = rng.integers(0, elements, count) * (rng.random(count) < 0.5)
    end = begin + rng.integers(0, 2 * elements, count)
    return Lives(low, high, rng.choice([1, 7, 50, 2000, 40000], count), begin, end)


def by_cumulative_sums(lives: Lives, values: NDArray[np.float64], weights: NDArray[np.int64]) -> list[list[int]]:
    """What matures: the first element of a life at which the sum of the weights inside reaches the threshold."""
    rows = []
    for id_, (low, high, threshold, begin, end) in enumerate(zip(*lives, strict=True)):
        inside = ((values[begin:end] >= low) & (values[begin:end] <= high)).all(axis=1)
        sums = np.cumsum(weights[begin:end] * inside)
        if len(sums) and sums[-1] >= threshold:
            at = int(np.argmax(sums >= threshold))
            rows.append([id_, begin + at, int(sums[at])])
    # Of equal element, those registered earlier come first, and of those registered together the smaller id.
    return sorted(rows, key=lambda row: (row[1], lives.begin[row[0]], row[0]))


def play(index: RangeIndex, lives: Lives, values: NDArray[np.float64], weights: NDArray[np.int64], size: int) -> object:
    """Push a stream in batches, with the requests of the lives; give what matured."""
    rows = []
    for start in range(0, len(values), size):
        stop = min(start + size, len(values))
        new = np.flatnonzero((lives.begin >= start) & (lives.begin < stop) & (lives.end > lives.begin))
        new = new[np.argsort(lives.begin[new], kind="stable")]
        gone = np.flatnonzero((lives.end >= start) & (lives.end < stop))
        index.register(new, lives.low[new], lives.high[new], lives.threshold[new], at=lives.begin[new] - start)
        index.terminate(gone, at=lives.end[gone] - start)
        matured = index.push(values[start:stop], weights[start:stop])
        rows += np.column_stack([matured.id, matured.index + start, matured.total]).tolist()
    return rows


@pytest.mark.parametrize(
    ("dims", "whole", "skewed"),
    [(1, True, False), (1, False, True), (2, True, True), (2, False, False), (4, True, False)],
)
@pytest.mark.parametrize("size", [1, 700, 20_000])
def test_long_streams_give_what_cumulative_sums_give(dims: int, whole: bool, skewed: bool, size: int) -> None:
    rng = np.random.default_rng(dims + size)
    # Plain Python is slow: there the streams are too short for some of what happens rarely.
    count, elements = (3000, 9000) if size > 1 and enabled() else (200, 1300)
    lives = draw_lives(rng, count, elements, dims, whole=whole)
    values = rng.uniform(0, 1000, (elements, dims))
    if skewed:
        values[rng.random(elements) < 0.7] = 500
    values = np.round(values) if whole else values
    weights = rng.integers(1, 20, elements)
    answers = play(RangeIndex(dims), lives, values, weights, size)
    assert answers == by_cumulative_sums(lives, values, weights)


@pytest.mark.parametrize("dims", [1, 2])
def test_queries_registered_in_bulk_and_maturing_on_one_element_come_in_order_of_registration(dims: int) -> None:
    index, ids = RangeIndex(dims), np.arange(10_000)[::-1]
    low, high = np.zeros((10_000, dims)), np.ones((10_000, dims))
    index.register(ids, low, high, 10)
    assert len(index.push(np.full((9, dims), 0.5)).id) == 0
    matured = index.push(np.full((3, dims), 0.5))
    assert matured.id.tolist() == ids.tolist()
    assert set(matured.index.tolist()) == {0}
    assert len(index) == 0


@pytest.mark.skipif(not enabled(), reason="too many queries and elements for plain Python")
def test_many_queries_in_the_plane_keep_their_totals_from_era_to_era() -> None:
    rng, index = np.random.default_rng(3), RangeIndex(2)
    low = rng.integers(0, 100, (9000, 2)).astype(float)
    high = low + rng.integers(0, 60, (9000, 2))
    values, weights = rng.integers(0, 160, (20_000, 2)).astype(float), rng.integers(1, 9, 20_000)
    # Weight by place, which is an integer, and sums over all below and left of it.
    sums = np.zeros((162, 162), dtype=np.int64)
    np.add.at(sums, tuple(values.astype(int).T + 1), weights)
    sums = sums.cumsum(axis=0).cumsum(axis=1)
    (left, below), (right, above) = low.astype(int).T, high.astype(int).T + 1
    totals = sums[right, above] - sums[left, above] - sums[right, below] + sums[left, below]
    first = np.arange(5000)
    index.register(first, low[first], high[first], 10**9)
    assert len(index.push(values, weights).id) == 0
    assert index.progress(first).tolist() == totals[first].tolist()
    # So many new ones at once begin an era.
    more = np.arange(5000, 9000)
    index.register(more, low[more], high[more], totals[more] + 1)
    index.push(values, weights)
    assert index.progress(np.arange(9000)).tolist() == [*(2 * totals[first]).tolist(), *totals[more].tolist()]
    assert index.alive().total.tolist() == [*(2 * totals[first]).tolist(), *totals[more].tolist()]


@pytest.mark.skipif(not enabled(), reason="two million elements are too many for plain Python")
def test_sums_beyond_the_largest_begin_anew_and_nothing_shows() -> None:
    index, elements = RangeIndex(), 1 << 21
    index.register([1, 2], [0, 0], [1, 5], [2**60, 2**60])
    values = np.where(np.arange(elements) % 2, 3.0, 0.5)
    matured = index.push(values, np.full(elements, 2**40))
    # Query 2 takes every element, query 1 every other; 2^20 elements of 2^40 are 2^60.
    assert matured.id.tolist() == [2, 1]
    assert matured.index.tolist() == [2**20 - 1, 2**21 - 2]
    assert matured.total.tolist() == [2**60, 2**60]


def test_an_id_can_be_registered_again_after_it_matured_and_after_a_waiting_termination() -> None:
    index = RangeIndex()
    index.register([1], [0], [1], [1])
    assert index.push([0.5]).id.tolist() == [1]
    index.register([1], [0], [1], [5])
    index.push([0.5])
    index.terminate([1], at=1)
    index.register([1], [0], [1], [2], at=2)
    assert index.push([0.5, 0.5, 0.5]).id.tolist() == []
    assert index.progress([1]).tolist() == [1]


def test_progress_of_a_waiting_query_is_zero_and_it_is_not_counted_as_alive() -> None:
    index = RangeIndex()
    index.register([5], [0], [1], [9])
    assert index.progress([5, 6]).tolist() == [0, -1]
    assert len(index) == 0
    index.push([])
    assert len(index) == 1


def test_a_snapshot_holds_the_requests_that_wait() -> None:
    index = RangeIndex(2)
    index.register([5], [[0, 0]], [[1, 1]], [2], at=1)
    index = RangeIndex.restore(index.snapshot())
    matured = index.push([[1, 1], [1, 1], [0, 0], [1, 0]])
    assert (matured.id.tolist(), matured.index.tolist()) == ([5], [2])


def test_a_page_of_something_else_is_refused() -> None:
    with pytest.raises(RunError, match="must belong to a range index"):
        RangeIndex.restore(pack({}, kind="other"))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": [1, 1]}, "register: `ids` must be unique; got 1 twice"),
        ({"ids": [1.5, 2]}, "register: `ids` must be 64-bit integers; got float64"),
        (
            {"ids": [7, 2]},
            "register: `ids` must be ids that are not active or pending at that time; got 7 at position 0",
        ),
        ({"ids": [[1], [2, 3]]}, "register: `ids` must be one number per row; got [[1], [2, 3]]"),
        ({"low": [0, -(10**400)]}, "register: `low` must be numbers; got [0, -1000"),
        ({"high": np.array([1, 2j])}, "register: `high` must be numbers; got array([1.+0.j, 0.+2.j])"),
        ({"high": np.array([1, 2], dtype="M8[s]")}, "register: `high` must be numbers; got array(['1970"),
        (
            {"low": [0, NAN]},
            "register: `low` must not be missing (None or NaN); use -inf for an open end; got [nan] at position 1",
        ),
        (
            {"high": [1, None]},
            "register: `high` must not be missing (None or NaN); use inf for an open end; got [nan] at",
        ),
        ({"low": [0, 3]}, "register: `low` must be at most `high`; got [3.] and [2.] at position 1"),
        ({"low": [0]}, "register: `low` must have 2 rows like the other arguments; got 1"),
        ({"high": [[1, 2], [1, 2]]}, "register: `high` must have 1 numbers per row; got an array of shape (2, 2)"),
        ({"threshold": [1, 0]}, "register: `threshold` must be from 1 to 2^60; got 0 at position 1"),
        ({"threshold": [1, 2**60 + 1]}, "register: `threshold` must be from 1 to 2^60; got"),
        ({"at": [0, -1]}, "register: `at` must be from 0 to 2^62 - 1; got -1 at position 1"),
    ],
)
def test_a_registration_that_makes_no_sense_is_refused_and_leaves_no_trace(
    change: dict[str, object], message: str
) -> None:
    index = RangeIndex()
    index.register([7], [0], [1], [5])
    index.push([])
    asked: dict[str, object] = {"ids": [1, 2], "low": [0, 0], "high": [1, 2], "threshold": [3, 4], **change}
    with pytest.raises(ValueError, match=re.escape(message)):
        index.register(**asked)  # type: ignore[arg-type]
    assert index.progress([1, 2, 7]).tolist() == [-1, -1, 0]


@pytest.mark.parametrize(
    ("values", "weights", "message"),
    [
        ([1, NAN], None, "push: `values` must be finite; got [nan] at position 1"),
        ([1, INF], None, "push: `values` must be finite; got [inf] at position 1"),
        ([1, 2], [1, 0], "push: `weights` must be from 1 to 2^40; got 0 at position 1"),
        ([1, 2], [1, 2**40 + 1], "push: `weights` must be from 1 to 2^40; got"),
        ([1, 2], [1, 2.5], "push: `weights` must be 64-bit integers; got float64"),
        ([1, 2], [1], "push: `weights` must have 2 rows like the other arguments; got 1"),
        (
            [1],
            None,
            "push: `values` must have as many elements as the largest `at` of the pending requests; got a batch of 1 "
            "elements",
        ),
        ([10**400], None, "push: `values` must be numbers; got [1000"),
        (["x"], None, "push: `values` must be numbers; got ['x']"),
    ],
)
def test_a_batch_that_makes_no_sense_is_refused_and_leaves_no_trace(
    values: object, weights: object, message: str
) -> None:
    index = RangeIndex()
    index.register([7], [0], [1], [2], at=2)
    with pytest.raises(ValueError, match=re.escape(message)):
        index.push(values, weights)  # type: ignore[arg-type]
    assert index.push([1, 1, 1, 1]).index.tolist() == [3]


@pytest.mark.parametrize(
    ("calls", "refused"),
    [
        ([("r", 5)], True),
        ([("t", 2), ("r", 5)], False),
        ([("t", 7), ("r", 5)], True),
        ([("t", 2), ("r", 5), ("r", 3)], True),
        ([("t", 2), ("r", 5), ("t", 6), ("r", 4)], True),
        ([("t", 2), ("r", 5), ("t", 6), ("r", 6)], False),
    ],
)
def test_an_id_that_is_alive_is_only_registered_behind_its_termination(
    calls: list[tuple[str, int]], refused: bool
) -> None:
    index = RangeIndex()
    index.register([1], [0], [1], [100])
    index.push([])
    for kind, at in calls[:-1]:
        index.register([1], [0], [1], [9], at=at) if kind == "r" else index.terminate([1], at=at)
    if refused:
        with pytest.raises(ValueError, match="not active or pending at that time"):
            index.register([1], [0], [1], [9], at=calls[-1][1])
    else:
        index.register([1], [0], [1], [9], at=calls[-1][1])
    index.push([0.5] * 8)


def test_a_termination_of_what_is_not_there_may_wait_behind_a_registration() -> None:
    index = RangeIndex()
    index.terminate([1], at=2)
    index.register([1], [0], [1], [9], at=1)
    index.push([0.5] * 3)
    assert index.progress([1]).tolist() == [-1]


def test_dims_must_be_positive() -> None:
    with pytest.raises(ValueError, match="`dims` must be at least 1; got 0"):
        RangeIndex(0)


def test_dims_may_be_of_numpy() -> None:
    assert RangeIndex.restore(RangeIndex(np.int64(2)).snapshot()).dims == 2  # type: ignore[arg-type]


def test_ends_as_far_apart_as_doubles_are_give_no_warning() -> None:
    most = float(np.finfo(np.float64).max)
    index = RangeIndex()
    low = [-most, -2.0, -1.0, 1.0, most / 2, most]
    index.register(range(6), low, [-most, 2.0, most / 2, most, most, most], 2)
    index.push([])
    matured = RangeIndex.restore(index.snapshot()).push([0.0, most, -most, -1.5, most, -most])
    assert matured.id.tolist() == [1, 3, 4, 5, 0]
    assert matured.index.tolist() == [3, 4, 4, 4, 5]
