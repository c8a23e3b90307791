"""Streams that an adversary makes: hot points just outside of ranges, inside of every region that covers them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from naive.ranges import Element, Event, Register, Terminate, run
from tocsin.jit import enabled
from tocsin.stages.ranges.index import STRETCH, RangeIndex
from tocsin.stages.ranges.line import CHUNK
from tocsin.stages.ranges.looks import WEARY
from tocsin.stages.ranges.shelves import MOST

COUNT = 30


def boxes(dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Ranges that are next to each other along the first axis, with gaps."""
    low, high = np.zeros((COUNT, dims)), np.full((COUNT, dims), 9.0)
    low[:, 0] = np.arange(COUNT)
    high[:, 0] = low[:, 0] + 0.5
    return low, high


def point(dims: int, x: float) -> tuple[float, ...]:
    return (x, *[4.0] * (dims - 1))


def registered(dims: int, threshold: int) -> RangeIndex:
    index = RangeIndex(dims)
    index.register(np.arange(COUNT), *boxes(dims), threshold)
    return index


def tracked(index: RangeIndex) -> int:
    return len(index._tracking or ())


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("threshold", [1, 1000])
def test_a_query_that_is_always_due_and_never_gets_anything_moves_to_the_structure_of_the_paper(
    dims: int, threshold: int
) -> None:
    index, rng = registered(dims, threshold), np.random.default_rng(1)
    # Each element alone makes every query due whose region it falls into.
    for gap in rng.integers(0, COUNT, 30 * WEARY if enabled() else 6 * WEARY) + 0.75:
        assert len(index.push([point(dims, gap)], [threshold]).id) == 0
    assert tracked(index) > 0
    assert index._held.rack.counts[MOST] == WEARY + 1
    assert len(index) == COUNT
    assert index.progress(np.arange(COUNT)).tolist() == [0] * COUNT
    matured = index.push([point(dims, at + 0.25) for at in range(COUNT)], np.full(COUNT, threshold))
    assert matured.id.tolist() == list(range(COUNT))
    assert matured.index.tolist() == list(range(COUNT))
    assert len(index) == 0


@pytest.mark.skipif(not enabled(), reason="too many elements for plain Python")
def test_in_a_long_batch_too_a_query_is_looked_at_a_bounded_number_of_times() -> None:
    index, rng = registered(1, 1), np.random.default_rng(1)
    index.push(rng.integers(0, COUNT, 1 << 20) + 0.75)
    assert tracked(index) > 0
    # It moves between stretches, and is looked at once per chunk.
    assert index._held.rack.counts[MOST] <= WEARY + 1 + STRETCH // CHUNK


@pytest.mark.parametrize("dims", [1, 2])
def test_memory_stays_when_every_query_that_ends_is_replaced(dims: int) -> None:
    rng, index, alive = np.random.default_rng(1), RangeIndex(dims), 400
    low = rng.integers(0, 50, (alive, dims)).astype(float)
    index.register(np.arange(alive), low, low + 20, 10**6)
    sizes = []
    for step in range(100):
        index.push(rng.uniform(0, 70, (2, dims)))
        ends = index._held.line.ends if index._held.line else ()
        sizes.append(sum(array.nbytes for array in (*index._held.rack, *ends)))
        ids = np.arange(alive) + step * alive
        index.terminate(ids)
        index.register(ids + alive, low, low + 20, 10**6)
    assert len(index) == alive
    assert max(sizes) < 4 * sizes[0]


def hostile(rng: np.random.Generator, dims: int, elements: int) -> list[Event]:
    """Draw mostly elements in gaps; now and then an element inside, a termination, or the same query again."""
    low, high = boxes(dims)
    boxed = [(tuple(low[i].tolist()), tuple(high[i].tolist())) for i in range(COUNT)]
    events: list[Event] = [Register(i, *boxed[i], int(rng.choice([1, 40, 3000]))) for i in range(COUNT)]
    for _ in range(elements):
        kind, at = rng.random(), int(rng.integers(0, COUNT))
        if kind < 0.01:
            events += [Terminate(at), Register(at, *boxed[at], int(rng.choice([1, 40, 3000])))]
        elif kind < 0.03:
            events.append(Element(point(dims, at + 0.25), int(rng.integers(1, 60))))
        else:
            events.append(Element(point(dims, at + 0.75), 3000))
    return events


def play(index: RangeIndex, events: list[Event], *, stored: bool) -> tuple[list[tuple[int, int, int]], int, RangeIndex]:
    """Push each element with the requests in front of it; give what matured, and how many queries ever moved."""
    answers, number, moved = [], 0, 0
    for event in events:
        if isinstance(event, Register):
            index.register([event.id], [event.low], [event.high], [event.threshold])
        elif isinstance(event, Terminate):
            index.terminate([event.id])
        else:
            matured = index.push([event.value], [event.weight])
            answers += [
                (id_, number, total) for id_, _, total in zip(*(column.tolist() for column in matured), strict=True)
            ]
            number += 1
            moved = max(moved, tracked(index))
            if stored and number % 500 == 0:
                index = RangeIndex.restore(index.snapshot())
    return answers, moved, index


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("stored", [False, True])
def test_hostile_streams_give_what_the_definition_says_while_queries_move(dims: int, stored: bool) -> None:
    events = hostile(np.random.default_rng(dims), dims, 2000 if enabled() else 1200)
    answers, moved, index = play(RangeIndex(dims), events, stored=stored)
    expected, totals = run(events)
    assert answers == expected
    assert moved > 0
    assert index._held.rack.counts[MOST] <= WEARY * (1 + math.log2(3000)) + 1
    assert index.progress(np.arange(COUNT)).tolist() == [totals.get(id_, -1) for id_ in range(COUNT)]
