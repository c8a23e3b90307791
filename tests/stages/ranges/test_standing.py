"""Standing queries with windows and re-arming against their definition: any stream, any cut, any reading of pages."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive.ranges import Answer, Register, Terminate
from naive.standing import Event, Timed, run
from tocsin.errors import RunError
from tocsin.jit import enabled
from tocsin.logic import FIRST_US, LAST_US
from tocsin.pages import pack
from tocsin.stages.ranges import expired, lives, recent, slots
from tocsin.stages.ranges.standing import Standing

NUMBERS = st.integers(0, 5).map(float) | st.sampled_from([-0.0, 2.5, 1.7976931348623157e308])
ENDS = NUMBERS | st.sampled_from([-np.inf, np.inf])
SMALL = st.integers(1, 3), st.integers(1, 8)
LARGE = st.sampled_from([1, 2**40]), st.sampled_from([1, 2**40 + 1, 2**42, 2**60])
STEPS = st.sampled_from([0, 0, 1, 1, 2, 3, 10, -1, -2, -4, -30])
WINDOWS = st.sampled_from([None, 1, 2, 3, 5, 20, 1000, 2**60])
RESTS = st.sampled_from([None, 0, 1, 2, 7, 40, 2**60])


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


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let happen often what else happens rarely."""
    monkeypatch.setattr(lives, "CHUNK", 3)
    monkeypatch.setattr(lives, "PAGE", 2)
    monkeypatch.setattr(slots, "PAGE", 2)
    monkeypatch.setattr(recent, "PAGE", 3)
    monkeypatch.setattr(expired, "LARGEST_THRESHOLD", 4)
    monkeypatch.setattr(expired, "MOST", 2)


def check_stream(dims: int, events: list[Event], data: st.DataObject) -> None:
    settings = dims, data.draw(WINDOWS), data.draw(RESTS)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=8)))
    standing, answers, before = Standing(*settings), [], 0
    pages: dict[str, bytes] = {}
    for start, stop in zip([0, *cuts], [*cuts, len(events)], strict=True):
        answers += [(id_, at + before, total) for id_, at, total in push(standing, events[start:stop])]
        before += sum(isinstance(event, Timed) for event in events[start:stop])
        expected = run(events[:stop], *settings[1:])
        assert answers == expected.answers
        assert standing.late == expected.late
        assert len(standing) == len(expected.totals)
        ids = list(range(8))
        assert standing.progress(ids).tolist() == [expected.totals.get(id_, -1) for id_ in ids]
        between = data.draw(st.sampled_from(["nothing", "write", "read"]))
        if between != "nothing":
            store(pages, standing)
        if between == "read":
            standing = Standing.from_pages(pages, *settings)


@pytest.mark.parametrize("dims", [1, 2, 3])
@given(data=st.data())
def test_any_cut_of_a_stream_gives_what_the_definition_says(dims: int, data: st.DataObject) -> None:
    check_stream(dims, data.draw(streams(dims)), data)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dims", [1, 2])
def test_small_chunks_and_pages_and_sums_that_begin_anew_do_not_show(dims: int) -> None:
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        check_stream(dims, data.draw(streams(dims)), data)

    check()


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
    with pytest.raises(ValueError, match="neither alive nor waiting"):
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


def test_requests_that_wait_are_written_too() -> None:
    standing = Standing(1, 10, 0)
    standing.register([5, 6], [0, 0], [1, 1], [1, 1], at=1)
    standing.terminate([6], at=2)
    pages: dict[str, bytes] = {}
    store(pages, standing)
    standing = Standing.from_pages(pages, 1, 10, 0)
    assert (len(standing), standing.progress([5, 6, 7]).tolist()) == (0, [0, 0, -1])
    matured = standing.push([1, 1, 1], None, [0, 0, 0])
    assert list(zip(matured.id.tolist(), matured.index.tolist(), strict=True)) == [(5, 1), (6, 1), (5, 2)]


def written(standing: Standing) -> Iterator[str]:
    return (name for name, page in standing.changed_pages().items() if page is not None)


def test_a_batch_writes_the_pages_that_it_touched() -> None:
    count = 3 * slots.PAGE
    standing = Standing(1, within_us=recent.PAGE + 1)
    standing.register(np.arange(count), np.arange(count), np.arange(count), 2)
    length = 2 * recent.PAGE
    standing.push(np.full(length, -1.0), None, np.arange(length))
    assert set(written(standing)) == {"head", "queries/0", "queries/1", "queries/2", "elements/1", "elements/0"}
    assert standing.changed_pages() == {}
    # Nothing that the pages of queries hold changes when elements are counted, and when they expire.
    standing.push([slots.PAGE, -1.0], None, [length, length + 1])
    changed = standing.changed_pages()
    assert changed.pop("elements/0") is None
    assert set(changed) == {"head", "elements/2"}
    standing.push([slots.PAGE], None, [length + 2])
    assert set(written(standing)) == {"head", "elements/2", "queries/1"}


def test_a_page_of_queries_that_are_all_gone_is_removed() -> None:
    standing = Standing(1, rearm_us=5)
    standing.register(np.arange(slots.PAGE + 1), np.zeros(slots.PAGE + 1), np.ones(slots.PAGE + 1), 5)
    standing.push([], None, [])
    assert {"queries/0", "queries/1"} <= set(written(standing))
    standing.terminate([slots.PAGE])
    standing.push([], None, [])
    assert standing.changed_pages()["queries/1"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": [1, float("nan")]}, "push: `values` must be finite; got [nan] at position 1"),
        ({"weights": [1, 0]}, "push: `weights` must be from 1 to 2^40; got 0 at position 1"),
        ({"weights": [1, 2**40 + 1]}, "push: `weights` must be from 1 to 2^40; got"),
        ({"time": [1]}, "push: `time` must have 2 rows, as many as there are; got 1"),
        ({"time": [0.5, 1.0]}, "push: `time` must be integers of 64 bits; got float64"),
        ({"time": [0, LAST_US + 1]}, "push: `time` must be from"),
        ({"time": [0, -(2**63)]}, "push: `time` must be from"),
        ({"values": [1], "weights": [1], "time": [1]}, "push: `values` must reach every `at` that waits"),
    ],
)
def test_a_batch_that_makes_no_sense_is_refused_and_leaves_no_trace(change: dict[str, object], message: str) -> None:
    standing = Standing(1, 10)
    standing.register([7], [0], [1], [2], at=2)
    batch: dict[str, object] = {"values": [1, 1], "weights": [1, 1], "time": [0, 0], **change}
    with pytest.raises(ValueError, match=re.escape(message)):
        standing.push(**batch)  # type: ignore[arg-type]
    assert standing.push([1, 1, 1, 1], None, [0, 0, 0, 0]).index.tolist() == [3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((0, 1, 1), "`dims` must be at least 1; got 0"),
        ((1, 0, None), "`within_us` must be from 1 to 2^60 microseconds; got 0"),
        ((1, 2**60 + 1, None), "`within_us` must be from 1 to 2^60"),
        ((1, None, -1), "`rearm_us` must be from 0 to 2^60 microseconds; got -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: tuple[int, int | None, int | None], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Standing(*settings)


def test_pages_of_other_settings_or_of_something_else_are_refused() -> None:
    pages = {name: page for name, page in Standing(1, 10).changed_pages().items() if page is not None}
    with pytest.raises(RunError, match="`within_us` 20; got 10"):
        Standing.from_pages(pages, 1, 20)
    with pytest.raises(RunError, match="`kind` standing; got other"):
        Standing.from_pages({"head": pack({}, kind="other")}, 1, 20)


def test_the_largest_weights_in_the_widest_window_do_not_overflow() -> None:
    standing = Standing(1, within_us=2**60, rearm_us=2**60)
    standing.register([1, 2], [0, 0], [1, 1], [2**60, 2**41])
    count = 3000
    matured = standing.push(
        np.ones(count), np.full(count, 2**40), np.linspace(FIRST_US, LAST_US - 1000, count).astype(np.int64)
    )
    assert (matured.id.tolist(), matured.index.tolist()) == ([2], [1])
    assert standing.progress([1, 2]).tolist() == [count * 2**40, 0]
