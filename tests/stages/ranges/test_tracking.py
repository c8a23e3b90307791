"""Distributed tracking of ranges against its definition: any queries, any order of requests, any cut into batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive.ranges import Answer, Element, Event, Register, Terminate, naive, run
from tocsin.stages.ranges import tracking
from tocsin.stages.ranges.tracking import Tracking

ends = st.one_of(st.integers(0, 8).map(float), st.sampled_from([-math.inf, math.inf]))
weights = st.one_of(st.integers(1, 4), st.sampled_from([100, 1 << 40]))
thresholds = st.one_of(st.integers(1, 12), st.integers(1, 3000), st.sampled_from([1 << 42, 1 << 60]))


@st.composite
def streams(draw: st.DrawFn, dims: int) -> list[Event]:
    """Requests and elements in one order; an id that may be alive is terminated before it is registered again."""
    sides = st.tuples(ends, ends).map(sorted)
    registers = st.tuples(st.integers(0, 9), st.lists(sides, min_size=dims, max_size=dims), thresholds)
    values = st.tuples(*[st.integers(0, 8).map(float)] * dims)
    elements = st.builds(Element, values, weights)
    drawn: list[Any] = draw(
        st.lists(st.one_of(registers, elements, elements, elements, st.integers(0, 9).map(Terminate)), max_size=80)
    )
    events: list[Event] = []
    for event in drawn:
        if isinstance(event, Element | Terminate):
            events.append(event)
            continue
        id_, box, threshold = event
        events += [Terminate(id_), Register(id_, *(tuple(side[end] for side in box) for end in (0, 1)), threshold)]
    return events


def play(index: Tracking, events: Sequence[Event]) -> list[Answer]:
    """Push one batch: the requests with the places that they have among its elements."""
    elements: list[Element] = []
    for event in events:
        if isinstance(event, Register):
            index.register([event.id], [event.low], [event.high], [event.threshold], at=len(elements))
        elif isinstance(event, Terminate):
            index.terminate([event.id], at=len(elements))
        else:
            elements.append(event)
    values = np.array([element.value for element in elements]).reshape(-1, index.dims)
    matured = index.push(values, np.array([element.weight for element in elements], np.int64))
    return list(zip(*(column.tolist() for column in matured), strict=True))


def play_cut(index: Tracking, events: list[Event], cuts: set[int], *, stored: bool = False) -> list[Answer]:
    """Push batches, cut before the events with these numbers; count elements through."""
    answers: list[Answer] = []
    bounds = sorted({0, len(events)} | {cut for cut in cuts if cut < len(events)})
    for start, stop in itertools.pairwise(bounds):
        before = sum(isinstance(event, Element) for event in events[:start])
        answers += [(id_, at + before, total) for id_, at, total in play(index, events[start:stop])]
        if stored:
            index = Tracking.restore(index.snapshot())
    return answers


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("listed", [0, 2, 64])
@given(data=st.data())
def test_what_matures_is_what_the_definition_says(dims: int, listed: int, data: st.DataObject) -> None:
    events = data.draw(streams(dims))
    index = Tracking(dims, listed=listed)
    answers, alive = run(events)
    assert play(index, events) == answers
    assert len(index) == len(alive)
    assert dict(zip(alive, index.progress(list(alive)).tolist(), strict=True)) == alive
    assert index.progress([id_ for id_ in range(10) if id_ not in alive]).tolist() == [-1] * (10 - len(alive))


@pytest.mark.parametrize("stretch", [1, 3])
@given(events=streams(1), cuts=st.sets(st.integers(0, 80)))
def test_no_cut_into_batches_or_stretches_shows(stretch: int, events: list[Event], cuts: set[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracking, "STRETCH", stretch)
        assert play_cut(Tracking(1, listed=1), events, cuts) == naive(events)


@given(events=streams(2), cuts=st.sets(st.integers(0, 80)))
def test_what_is_written_and_read_back_goes_on_alike(events: list[Event], cuts: set[int]) -> None:
    assert play_cut(Tracking(2, listed=2), events, cuts, stored=True) == naive(events)


def test_requests_that_wait_are_written_too() -> None:
    index = Tracking(1)
    index.register([1, 2], [0.0, 0.0], [9.0, 9.0], [2, 2], at=[0, 1])
    index.terminate([1], at=2)
    index = Tracking.restore(index.snapshot())
    assert len(index) == 0
    assert index.progress([1, 2, 3]).tolist() == [0, 0, -1]
    matured = index.push([5.0, 5.0, 5.0])
    assert [column.tolist() for column in matured] == [[1, 2], [1, 2], [2, 2]]


def test_queries_that_mature_at_one_element_stand_in_order_of_registration() -> None:
    index = Tracking(1, listed=1)
    index.register([30, 10, 20], [0.0, 1.0, 2.0], [9.0, 9.0, 9.0], [1, 1, 1])
    index.push(np.zeros(0))
    index.register([5], [0.0], [9.0], [1])
    assert index.push([4.0]).id.tolist() == [30, 10, 20, 5]


def test_trees_are_built_anew_before_their_counts_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.stages.ranges.tree._MOST_WEIGHT", 1 << 42)
    events: list[Event] = [Register(1, (0.0,), (5.0,), 1 << 45), Register(2, (2.0,), (3.0,), 1 << 60)]
    events += [Element((float(i % 7),), 1 << 40) for i in range(60)]
    index = Tracking(1, listed=0)
    assert play_cut(index, events, set(range(0, 60, 5))) == naive(events)
    assert index.counts()["heap_operations"] > 0


def test_a_refused_call_changes_nothing() -> None:
    index = Tracking(1)
    index.register([1], [0.0], [1.0], [2])
    with pytest.raises(ValueError, match="not active or pending at that time"):
        index.register([1], [0.0], [1.0], [2])
    with pytest.raises(ValueError, match="must be finite"):
        index.push([math.nan])
    assert index.push([0.5, 0.5]).id.tolist() == [1]


def test_a_range_that_ends_with_the_largest_double_gives_no_warning() -> None:
    most = float(np.finfo(np.float64).max)
    index = Tracking(1, listed=0)
    index.register([1, 2], [0.0, most], [most, most], [2, 1])
    index.push([])
    assert index.push([1.0, most]).id.tolist() == [1, 2]
