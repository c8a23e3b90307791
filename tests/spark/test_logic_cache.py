"""Logic cache: a worker keeps at most one logic per bucket, only while it uses it, and returns only the newest one."""

from __future__ import annotations

import gc
import json
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spark.toy_step import Toy, ToyLogic
from tocsin.spark.blobs import Feed
from tocsin.spark.logic_cache import IDLE_S, LogicCache
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


def count_logics() -> int:
    gc.collect()
    return sum(isinstance(found, ToyLogic) for found in gc.get_objects())


def read_mark(pages: Pages) -> Any:
    return json.loads(pages[HEAD,][0])["mark"]


def test_worker_keeps_one_logic_per_bucket_when_buckets_move() -> None:
    """Between two calls in this worker another worker writes the state of each bucket, so every copy is stale."""
    before = count_logics()
    operator = _Operator(Work(Toy(), (Feed(0, "r", ("key",), ("value",)),), tuple(range(BUCKETS)), 2))
    state = [Pages() for _ in range(BUCKETS)]
    for batch in range(20):
        for bucket, pages in enumerate(state):
            call(operator, pages, bucket)
            head = json.loads(pages[HEAD,][0]) | {"mark": f"other worker, batch {batch}"}
            pages[HEAD,] = (json.dumps(head).encode(),)
    assert count_logics() - before == BUCKETS


def test_worker_reuses_the_logic_when_no_other_worker_wrote_the_state(monkeypatch: Any) -> None:
    built: list[object] = []
    monkeypatch.setattr(Toy, "build", lambda step, pages: built.append(step) or ToyLogic(step, {}))
    operator = _Operator(Work(Toy(), (Feed(0, "r", ("key",), ("value",)),), (0,), 1))
    pages, marks = Pages(), set()
    for _ in range(5):
        call(operator, pages, 0)
        marks.add(read_mark(pages))
    assert (len(built), len(marks)) == (1, 5)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, BUCKETS - 1)), max_size=60))
def test_cache_returns_a_logic_exactly_when_this_worker_wrote_the_state_last(
    calls: list[tuple[int, int, int]],
) -> None:
    """Two workers serve three queries. The oracle is the worker that wrote each state last."""
    workers = [LogicCache(), LogicCache()]
    written: dict[tuple[int, int], tuple[int, str, Any]] = {}
    for number, (worker, query, bucket) in enumerate(calls):
        writer, mark, logic = written.get((query, bucket), (None, "", None))
        found = workers[worker].take_logic(str(query), bucket, mark)
        assert found is (logic if writer == worker else None)
        new: Any = object()
        workers[worker].keep_logic(str(query), bucket, str(number), new)
        written[query, bucket] = (worker, str(number), new)
        for i, cache in enumerate(workers):
            assert len(cache) == len({call[1:] for call in calls[: number + 1] if call[0] == i})


def test_cache_evicts_the_logics_of_a_query_when_it_has_ended() -> None:
    clock = Clock()
    cache, logic = LogicCache(clock), Any
    for bucket in range(BUCKETS):
        cache.keep_logic("ended", bucket, "m", logic)  # type: ignore[arg-type]
    for _ in range(3):
        clock.now_s += IDLE_S / 2
        cache.take_logic("next", 0, "m")
        cache.keep_logic("next", 0, "m", logic)  # type: ignore[arg-type]
    assert len(cache) == 1


def test_cache_keeps_a_logic_when_it_is_used_within_the_idle_time() -> None:
    clock = Clock()
    cache, logic = LogicCache(clock), object()
    for _ in range(10):
        cache.keep_logic("q", 0, "m", logic)  # type: ignore[arg-type]
        clock.now_s += IDLE_S
        assert cache.take_logic("q", 0, "m") is logic
