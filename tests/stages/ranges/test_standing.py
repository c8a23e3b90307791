"""Standing queries with windows and re-arming against their definition: any stream, any cut, any reading of pages."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive.ranges import Answer, Register, Terminate
from naive.standing import Event, Timed, run
from tocsin.jit import enabled
from tocsin.runtime.contract import FIRST_US, LAST_US
from tocsin.stages.ranges import expired, lives, recent, slots
from tocsin.stages.ranges.standing import Standing

NUMBERS = st.integers(0, 5).map(float) | st.sampled_from([-0.0, 2.5, 1.7976931348623157e308])
ENDS = NUMBERS | st.sampled_from([-np.inf, np.inf])
SMALL = st.integers(1, 3), st.integers(1, 8)
LARGE = st.sampled_from([1, 2**40]), st.sampled_from([1, 2**40 + 1, 2**42, 2**60])
STEPS = st.sampled_from([0, 0, 1, 1, 2, 3, 10, -1, -2, -4, -30])
WINDOWS = st.sampled_from([None, 1, 2, 3, 5, 20, 1000, 2**60])
RESTS = st.sampled_from([None, 0, 1, 2, 7, 40, 2**60])
Settings = tuple[int, int | None, int | None]


@st.composite
def streams(draw: st.DrawFn, dims: int) -> list[Event]:
    """Draw elements and requests; an id that may be there is terminated before it is registered again."""
    weights, thresholds = draw(st.sampled_from([SMALL, SMALL, LARGE]))
    events: list[Event] = []
    clock, known = draw(st.sampled_from([0, FIRST_US + 40, LAST_US - 200])), set()
    for kind in draw(st.lists(st.sampled_from("eeeeeert"), max_size=70)):
        id_ = draw(st.integers(0, 5)) if kind != "e" else 0
        if kind == "e":
            step = draw(STEPS)
            clock = min(max(clock, clock + step), LAST_US)
            time_us = min(max(clock + min(step, 0), FIRST_US), LAST_US)
            events.append(Timed(tuple(draw(NUMBERS) for _ in range(dims)), draw(weights), time_us))
        elif kind == "t":
            events.append(Terminate(id_))
        else:
            sides = [sorted((draw(ENDS), draw(ENDS))) for _ in range(dims)]
            low, high = tuple(side[0] for side in sides), tuple(side[1] for side in sides)
            events += [Terminate(id_)] * (id_ in known) + [Register(id_, low, high, draw(thresholds))]
            known.add(id_)
    return events


def ask(standing: Standing, requests: list[tuple[int, Register | Terminate]]) -> None:
    """Hand over requests, a call for each run of the same kind."""
    for kind, group in itertools.groupby(requests, key=lambda pair: type(pair[1])):
        pairs = list(group)
        at, ids = [pair[0] for pair in pairs], [pair[1].id for pair in pairs]
        if kind is Terminate:
            standing.terminate(ids, at=at)
        else:
            queries = [pair[1] for pair in pairs if isinstance(pair[1], Register)]
            low, high = [query.low for query in queries], [query.high for query in queries]
            standing.register(ids, low, high, [query.threshold for query in queries], at=at)


def push(standing: Standing, events: list[Event]) -> list[Answer]:
    """Push the elements among some events as one batch, with the requests between them."""
    requests: list[tuple[int, Register | Terminate]] = []
    elements: list[Timed] = []
    for event in events:
        if isinstance(event, Timed):
            elements.append(event)
        else:
            requests.append((len(elements), event))
    ask(standing, requests)
    values = np.array([element.value for element in elements]).reshape(-1, standing.dims)
    numbers = np.array([element[1:] for element in elements], dtype=np.int64).reshape(-1, 2)
    matured = standing.push(values, numbers[:, 0], numbers[:, 1])
    return list(zip(*(column.tolist() for column in matured), strict=True))


def store(pages: dict[str, bytes], standing: Standing) -> None:
    """Store the pages that changed, as an engine does."""
    for name, page in standing.changed_pages().items():
        if page is None:
            del pages[name]
        else:
            pages[name] = page


def let_rare_things_happen_often(patch: pytest.MonkeyPatch) -> None:
    """Make chunks and pages small, and sums of what expired begin anew soon."""
    patch.setattr(lives, "CHUNK", 3)
    patch.setattr(lives, "PAGE", 2)
    patch.setattr(slots, "PAGE", 2)
    patch.setattr(recent, "PAGE", 3)
    patch.setattr(expired, "LARGEST_THRESHOLD", 4)
    patch.setattr(expired, "MOST", 5)


def dense_stream(rng: random.Random, dims: int) -> list[Event]:
    """Draw a stream in which queries mature, rest and end all the time."""
    events: list[Event] = []
    clock, known = 0, set()
    for _ in range(rng.choice([20, 60, 150])):
        kind, id_ = rng.choices("ert", [80, 12, 8])[0], rng.randrange(6)
        if kind == "e":
            clock += rng.choice([0, 0, 1, 1, 2, 6])
            behind = rng.choice([0, 0, 0, 0, 1, 3, 12])
            events.append(Timed(tuple(float(rng.randrange(6)) for _ in range(dims)), rng.randint(1, 3), clock - behind))
        elif kind == "t":
            events.append(Terminate(id_))
        else:
            sides = [sorted(rng.choices([-np.inf, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, np.inf], k=2)) for _ in range(dims)]
            low, high = tuple(side[0] for side in sides), tuple(side[1] for side in sides)
            events += [Terminate(id_)] * (id_ in known) + [Register(id_, low, high, rng.randint(1, 12))]
            known.add(id_)
    return events


def check_stream(chosen: Settings, events: list[Event], rng: random.Random) -> None:
    """Cut a stream anywhere, with pages written, or written and read, between batches."""
    cuts = sorted(rng.randrange(len(events) + 1) for _ in range(rng.randrange(12)))
    standing, answers, before = Standing(*chosen), [], 0
    pages: dict[str, bytes] = {}
    for start, stop in zip([0, *cuts], [*cuts, len(events)], strict=True):
        answers += [(id_, at + before, total) for id_, at, total in push(standing, events[start:stop])]
        before += sum(isinstance(event, Timed) for event in events[start:stop])
        expected = run(events[:stop], *chosen[1:])
        assert answers == expected.answers
        assert standing.late == expected.late
        assert len(standing) == len(expected.totals)
        ids = list(range(8))
        assert standing.progress(ids).tolist() == [expected.totals.get(id_, -1) for id_ in ids]
        between = rng.choice(["nothing", "write", "read"])
        if between != "nothing":
            store(pages, standing)
        if between == "read":
            standing = Standing.from_pages(pages, *chosen)


@pytest.mark.parametrize("dims", [1, 2, 3])
@given(data=st.data())
def test_any_cut_of_a_stream_gives_what_the_definition_says(dims: int, data: st.DataObject) -> None:
    chosen = dims, data.draw(WINDOWS), data.draw(RESTS)
    check_stream(chosen, data.draw(streams(dims)), data.draw(st.randoms(use_true_random=False)))


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("dims", [1, 2])
@given(seed=st.integers(0, 2**32))
def test_dense_streams_give_what_the_definition_says_in_small_chunks_too(dims: int, small: bool, seed: int) -> None:
    rng = random.Random(seed)
    chosen = dims, rng.choice([None, 1, 2, 4, 9, 30]), rng.choice([None, 0, 0, 1, 5, 30])
    with pytest.MonkeyPatch.context() as patch:
        if small:
            let_rare_things_happen_often(patch)
        check_stream(chosen, dense_stream(rng, dims), rng)


def answers_of(standing: Standing, size: int, elements: tuple[np.ndarray, ...]) -> list[Answer]:
    """Push elements in batches of a size; give what matured, with elements numbered through."""
    answers: list[Answer] = []
    for start in range(0, len(elements[0]), size):
        matured = standing.push(*(column[start : start + size] for column in elements))
        answers += zip(matured.id.tolist(), (matured.index + start).tolist(), matured.total.tolist(), strict=True)
    return answers


def by_walking(
    query: tuple[float, float, int], elements: tuple[np.ndarray, ...], within: int, rest: int
) -> list[Answer]:
    """What one query gives on times that never fall, in plain sums; the id is left at 0."""
    low, high, threshold = query
    inside, found, begin, time = elements[1] * ((elements[0] >= low) & (elements[0] <= high)), [], 0, elements[2]
    sums = np.concatenate([[0], np.cumsum(inside)])
    oldest = np.searchsorted(time, time - within, side="right")
    while begin < len(time):
        totals = sums[begin + 1 :] - sums[np.maximum(oldest[begin:], begin)]
        if not (totals >= threshold).any():
            break
        at = int(np.argmax(totals >= threshold))
        found.append((0, begin + at, int(totals[at])))
        begin = max(begin + at + 1, int(np.searchsorted(time, time[begin + at] + rest)))
    return found


@pytest.mark.parametrize(("within", "rest"), [(400, 0), (3000, 500), (3000, 5000), (100_000, 10)])
@pytest.mark.parametrize("size", [1, 900, 20_000])
def test_long_streams_give_what_plain_sums_give(size: int, within: int, rest: int) -> None:
    rng = np.random.default_rng(size + within)
    # Plain Python is slow: there the streams are short.
    count, length = (400, 6_000) if size > 1 and enabled() else (30, 1200)
    centre, width = rng.uniform(0, 1000, count), rng.choice([1, 30, 400], count)
    low, high, threshold = centre - width / 2, centre + width / 2, rng.choice([20, 300, 2000, 9000], count)
    elements = rng.uniform(0, 1000, length), rng.integers(1, 20, length), np.sort(rng.integers(0, 3 * length, length))
    standing = Standing(1, within, rest)
    standing.register(np.arange(count), low, high, threshold)
    queries = zip(low.tolist(), high.tolist(), threshold.tolist(), strict=True)
    expected = [
        (id_, *row[1:]) for id_, query in enumerate(queries) for row in by_walking(query, elements, within, rest)
    ]
    assert answers_of(standing, size, elements) == sorted(expected, key=lambda row: (row[1], row[0]))
    assert len(expected) > count // 10


@pytest.mark.parametrize("size", [1, 16])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_a_query_is_a_candidate_only_when_what_it_lacked_has_come(share: float, size: int) -> None:
    window, windows = 400, 20
    threshold = round(window / share)
    standing = Standing(1, within_us=window)
    standing.register([1], [0], [1], [threshold])
    length = window * windows
    elements = np.full(length, 0.5), np.ones(length, dtype=np.int64), np.arange(length)
    assert answers_of(standing, size, elements) == []
    assert standing.progress([1]).tolist() == [window]
    # It begins with nothing, and then always lacks what the window does not give; it is put back at the end of a batch.
    most, least = (1 + (length - threshold) // (threshold - window + wait) for wait in (0, size - 1))
    assert least <= standing._held.candidates <= most  # type: ignore[union-attr]


def test_a_hovering_query_is_a_candidate_once_per_chunk_at_most() -> None:
    standing = Standing(1, within_us=400)
    standing.register([1], [0], [1], [401])
    length = 20 * lives.CHUNK
    elements = np.full(length, 0.5), np.ones(length, dtype=np.int64), np.arange(length)
    assert answers_of(standing, length, elements) == []
    assert standing._held.candidates <= 20  # type: ignore[union-attr]


def test_a_chunk_is_cut_where_many_elements_expire_at_once() -> None:
    standing = Standing(1, within_us=10)
    standing.register([1, 2], [0, 0], [1, 1], [5000, 3])
    count = 3 * lives.CHUNK
    first = np.full(count, 0.5), np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    assert standing.push(*first).id.tolist() == [2]
    standing.register([3], [0], [1], [1], at=1)
    assert standing.push([0.5, 0.5], None, [10, 11]).id.tolist() == [3]
    assert standing.progress([1]).tolist() == [2]


def test_a_query_that_rests_can_be_asked_for_and_ended_and_its_id_comes_again() -> None:
    standing = Standing(1, rearm_us=100)
    standing.register([1, 2], [0, 0], [1, 1], [1, 1])
    assert standing.push([0.5], None, [0]).id.tolist() == [1, 2]
    assert standing.progress([1, 2, 3]).tolist() == [0, 0, -1]
    with pytest.raises(ValueError, match="not active or pending at that time"):
        standing.register([1], [0], [1], [1])
    standing.terminate([1])
    assert standing.push([0.5], None, [99]).id.tolist() == []
    assert (len(standing), standing.progress([1, 2]).tolist()) == (1, [-1, 0])
    standing.register([1], [0], [1], [2])
    # The clock stands at 100 from the first element on: query 2 takes both, and rests again after the first.
    matured = standing.push([0.5, 0.5], None, [100, 50])
    assert (matured.id.tolist(), matured.index.tolist(), matured.total.tolist()) == ([2, 1], [0, 1], [1, 2])


def test_an_id_that_matured_can_be_registered_again() -> None:
    standing = Standing(1, within_us=100)
    for number in range(5):
        standing.register([1], [0], [1], [2])
        assert standing.push([0.5, 0.5, 0.5], None, [number] * 3).index.tolist() == [1]
    assert len(standing) == 0


def test_what_one_query_lost_is_not_held_against_the_next_in_its_place() -> None:
    standing = Standing(1, within_us=10)
    standing.register([1], [0], [1], [5])
    standing.push([0.5, 0.5], None, [0, 10])
    standing.terminate([1])
    standing.push([], None, [])
    standing.register([2], [0], [1], [5])
    standing.push([], None, [])
    assert standing.progress([1, 2]).tolist() == [-1, 0]


def test_many_maturities_of_one_query_in_one_batch_come_in_order() -> None:
    standing, count = Standing(1, rearm_us=0), 3 * lives.CHUNK
    standing.register(np.arange(9)[::-1], np.zeros(9), np.ones(9), 1)
    matured = standing.push(np.full(count, 0.5), None, np.zeros(count, dtype=np.int64))
    assert matured.id.tolist() == list(range(8, -1, -1)) * count
    assert matured.index.tolist() == np.repeat(np.arange(count), 9).tolist()


def test_without_window_and_rearming_it_is_a_range_index() -> None:
    standing = Standing(2)
    standing.register([5], [[0, 0]], [[1, 1]], [2], at=1)
    pages: dict[str, bytes] = {}
    store(pages, standing)
    standing = Standing.from_pages(pages, 2)
    matured = standing.push([[1, 1], [1, 1], [0, 0], [1, 0]], None, [3, 2, 1, 0])
    assert (matured.id.tolist(), matured.index.tolist(), standing.late) == ([5], [2], 0)


def test_the_largest_weights_in_the_widest_window_do_not_overflow() -> None:
    standing = Standing(1, within_us=2**60, rearm_us=2**60)
    standing.register([1, 2], [0, 0], [1, 1], [2**60, 2**41])
    count = 3000
    matured = standing.push(
        np.ones(count), np.full(count, 2**40), np.linspace(FIRST_US, LAST_US - 1000, count).astype(np.int64)
    )
    assert (matured.id.tolist(), matured.index.tolist()) == ([2], [1])
    assert standing.progress([1, 2]).tolist() == [count * 2**40, 0]
