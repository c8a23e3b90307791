"""Plan session cache: a worker keeps at most one session per bucket, while it uses it, and returns only the newest."""

from __future__ import annotations

import gc
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.toy_step import Toy, ToyPipeline
from tocsin.spark.blobs import Feed
from tocsin.spark.plan_session_cache import IDLE_S, PlanSessionCache
from tocsin.spark.stateful import HEAD, Work, _Operator

BUCKETS = 4


class Pages(dict[tuple[str], tuple[bytes]]):
    """The map state of one bucket."""

    getValue = dict.get
    updateValue = dict.__setitem__
    iterator = dict.items


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def call(operator: _Operator, pages: Pages, bucket: int) -> None:
    operator.init(SimpleNamespace(getMapState=lambda *_: pages))  # type: ignore[arg-type]
    times = SimpleNamespace(getCurrentProcessingTimeInMs=lambda: 1000)
    list(operator.handleInputRows((bucket,), iter([]), times))  # type: ignore[arg-type]


def count_sessions() -> int:
    gc.collect()
    return sum(isinstance(found, ToyPipeline) for found in gc.get_objects())


def read_mark(pages: Pages) -> Any:
    return json.loads(pages[HEAD,][0])["mark"]


def test_worker_keeps_one_session_per_bucket_when_buckets_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two calls in this worker another worker writes the state of each bucket, so every copy is stale."""
    # The cache of this process has sessions of earlier tests, which it evicts after a minute.
    monkeypatch.setattr("tocsin.spark.stateful._sessions", PlanSessionCache())
    before = count_sessions()
    operator = _Operator(Work(Toy(), (Feed(0, "r", ("key",), ("value",)),), tuple(range(BUCKETS))))
    state = [Pages() for _ in range(BUCKETS)]
    for batch in range(20):
        for bucket, pages in enumerate(state):
            call(operator, pages, bucket)
            head = json.loads(pages[HEAD,][0]) | {"mark": f"other worker, batch {batch}"}
            pages[HEAD,] = (json.dumps(head).encode(),)
    assert count_sessions() - before == BUCKETS


def test_worker_reuses_the_session_when_no_other_worker_wrote_the_state(monkeypatch: Any) -> None:
    built: list[object] = []
    monkeypatch.setattr(
        Toy, "build_pipelines", lambda step, pages, listener: built.append(step) or [ToyPipeline(step, {})]
    )
    operator = _Operator(Work(Toy(), (Feed(0, "r", ("key",), ("value",)),), (0,)))
    pages, marks = Pages(), set()
    for _ in range(5):
        call(operator, pages, 0)
        marks.add(read_mark(pages))
    assert (len(built), len(marks)) == (1, 5)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, BUCKETS - 1)), max_size=60))
def test_cache_returns_a_session_exactly_when_this_worker_wrote_the_state_last(
    calls: list[tuple[int, int, int]],
) -> None:
    """Two workers serve three queries. The oracle is the worker that wrote each state last."""
    workers = [PlanSessionCache(), PlanSessionCache()]
    written: dict[tuple[int, int], tuple[int, str, Any]] = {}
    for number, (worker, query, bucket) in enumerate(calls):
        writer, mark, session = written.get((query, bucket), (None, "", None))
        found = workers[worker].take_session(str(query), bucket, mark)
        assert found is (session if writer == worker else None)
        new: Any = object()
        workers[worker].keep_session(str(query), bucket, str(number), new)
        written[query, bucket] = (worker, str(number), new)
        for i, cache in enumerate(workers):
            assert len(cache) == len({call[1:] for call in calls[: number + 1] if call[0] == i})


def test_cache_evicts_the_sessions_of_a_query_when_it_has_ended() -> None:
    clock = Clock()
    cache, session = PlanSessionCache(clock), Any
    for bucket in range(BUCKETS):
        cache.keep_session("ended", bucket, "m", session)  # type: ignore[arg-type]
    for _ in range(3):
        clock.now_s += IDLE_S / 2
        cache.take_session("next", 0, "m")
        cache.keep_session("next", 0, "m", session)  # type: ignore[arg-type]
    assert len(cache) == 1


def test_cache_keeps_a_session_when_it_is_used_within_the_idle_time() -> None:
    clock = Clock()
    cache, session = PlanSessionCache(clock), object()
    for _ in range(10):
        cache.keep_session("q", 0, "m", session)  # type: ignore[arg-type]
        clock.now_s += IDLE_S
        assert cache.take_session("q", 0, "m") is session
