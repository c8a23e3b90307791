"""State in pages: read back at any moment it gives the same answers, and a small batch writes few bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive.ranges import Element, Event, run
from stages.ranges.test_index import push, streams
from tocsin.errors import RunError
from tocsin.jit import enabled
from tocsin.runtime.state_codec import pack
from tocsin.stages.ranges import journal
from tocsin.stages.ranges.index import RangeIndex


def write(index: RangeIndex, stored: dict[str, bytes]) -> int:
    """Write what changed, as an engine does; give how many bytes."""
    pages = index.changed_pages()
    for name, page in pages.items():
        if page is None:
            assert name in stored, "only a page that was given can be gone"
            del stored[name]
        else:
            assert stored.get(name) != page, "only what changed is given"
            stored[name] = page
    return sum(len(page) for page in pages.values() if page is not None)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("small_log", [0, 400, 1 << 16])
@given(data=st.data())
def test_an_index_read_from_its_pages_at_any_moment_gives_the_same_answers(
    dims: int, small_log: int, data: st.DataObject
) -> None:
    events: list[Event] = data.draw(streams(dims))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=8)))
    index, stored, answers, before = RangeIndex(dims), {}, [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "_SMALL_LOG", small_log)
        patch.setattr(journal, "BASE_ROWS", 2)
        patch.setattr(journal, "LOG_ROWS", 4)
        for start, stop in zip([0, *cuts], [*cuts, len(events)], strict=True):
            answers += [(id_, at + before, total) for id_, at, total in push(index, events[start:stop])]
            before += sum(isinstance(event, Element) for event in events[start:stop])
            between = data.draw(st.sampled_from(["nothing", "written", "read"]))
            if between != "nothing":
                write(index, stored)
            if between == "read":
                index = RangeIndex.from_pages(stored)
    expected, totals = run(events)
    assert answers == expected
    assert index.progress(list(range(8))).tolist() == [totals.get(id_, -1) for id_ in range(8)]


def test_requests_that_wait_are_in_the_pages() -> None:
    index, stored = RangeIndex(), {}
    index.register([1], [0], [1], [1])
    write(index, stored)
    index.push([3.0])
    index.register([2], [0], [1], [1], at=1)
    write(index, stored)
    index = RangeIndex.from_pages(stored)
    assert index.progress([1, 2, 3]).tolist() == [0, 0, -1]
    matured = index.push([0.5, 0.5])
    assert (matured.id.tolist(), matured.index.tolist()) == ([1, 2], [0, 1])


@pytest.mark.parametrize("dims", [1, 2])
def test_an_id_that_matured_in_one_batch_and_came_again_in_the_next_is_read_back(dims: int) -> None:
    rng, index, stored, ids = np.random.default_rng(dims), RangeIndex(dims), {}, np.arange(8)
    for _ in range(200 if enabled() else 60):
        gone = ids[index.progress(ids) < 0]
        low = rng.integers(0, 4, (len(gone), dims))
        index.register(gone, low, low + 2, rng.integers(1, 30, len(gone)), at=rng.integers(0, 3, len(gone)))
        index.terminate(rng.integers(0, 8, 1), at=5)
        index.push(rng.integers(0, 6, (5, dims)), rng.integers(1, 4, 5))
        write(index, stored)
        assert RangeIndex.from_pages(stored).progress(ids).tolist() == index.progress(ids).tolist()


def test_nothing_is_written_when_nothing_happened() -> None:
    index, stored = RangeIndex(2), {}
    assert write(index, stored) > 0
    assert index.changed_pages() == {}
    index.push(np.zeros((0, 2)))
    assert index.changed_pages() == {}
    assert RangeIndex.from_pages(stored).changed_pages() == {}


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("batch", [1, 10, 1000])
def test_a_small_batch_on_many_queries_writes_few_bytes(dims: int, batch: int) -> None:
    rng, count = np.random.default_rng(1), 100_000 if enabled() else 1000
    index, stored = RangeIndex(dims), {}
    low = rng.uniform(0, 900, (count, dims))
    index.register(np.arange(count), low, low + 100, 10**6)
    index.push(np.zeros((0, dims)))
    whole = write(index, stored)
    # Each query has two ends per dimension, which are random numbers of 8 bytes.
    assert whole > count * 16 * dims
    # 64 bytes for each of two requests and an element, as much as an open page of them and its head before.
    enough = 64 * 3 * (batch + journal.LOG_ROWS) + 2000
    written = []
    for step in range(20):
        if step == 10:
            index = RangeIndex.from_pages(stored)
        ids = np.arange(batch) + step * batch
        index.terminate(ids)
        index.register(count + ids, low[:batch], low[:batch] + 50, 10**6)
        index.push(rng.uniform(0, 1000, (batch, dims)))
        written.append(write(index, stored))
    assert max(written) <= enough
    assert sum(len(page) for page in stored.values()) <= whole + sum(written)


def test_the_pages_together_stay_about_as_large_as_the_queries() -> None:
    rng, index, stored = np.random.default_rng(1), RangeIndex(), {}
    index.register(np.arange(1000), rng.uniform(0, 9, 1000), 10.0 + np.arange(1000), 10**9)
    written = 0
    for _ in range(100):
        index.push(rng.uniform(0, 20, 1000))
        written += write(index, stored)
        assert sum(len(page) for page in stored.values()) < 4 * (1 << 16)
    # Each element takes 16 bytes, once in the log; and the log is at least as large as a base that takes its place.
    assert written < 100 * 1000 * 16 * 2.5
    assert RangeIndex.from_pages(stored).progress([3]).tolist() == index.progress([3]).tolist()


def test_pages_of_something_else_are_refused() -> None:
    with pytest.raises(RunError, match="must belong to a range index in pages"):
        RangeIndex.from_pages({"head": pack({}, kind="other")})
