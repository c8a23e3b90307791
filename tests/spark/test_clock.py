"""The clock of the operator: what is due waits for as long as it would have, however long no query ran."""

from __future__ import annotations

from typing import Any

import pytest

from spark.toy_step import Toy
from tocsin.spark.blobs import Feed
from tocsin.spark.stateful import Work, _Operator

FEEDS = (Feed(0, "r", ("key",), ("value",)),)


class Store:
    """What Spark keeps of one bucket: a map, and one timer."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.timers: set[int] = set()
        self.getValue, self.updateValue = self.values.get, self.values.__setitem__
        self.iterator, self.removeKey = self.values.items, self.values.pop
        self.registerTimer, self.deleteTimer = self.timers.add, self.timers.discard

    def getMapState(self, *_: str) -> Store:
        return self


class Now:
    def __init__(self, ms: int) -> None:
        self.ms = ms

    def getCurrentProcessingTimeInMs(self) -> int:
        return self.ms


@pytest.mark.parametrize("acts", [True, False])
def test_the_time_for_which_no_query_ran_is_no_silence(acts: bool) -> None:
    store, told = Store(), list[int]()

    def query() -> _Operator:
        operator = _Operator(Work(Toy(quiet_us=1_500_000), FEEDS, (0,), acts))
        operator.init(store)  # type: ignore[arg-type]
        return operator

    def look(plan_session: Any, now_us: int) -> Any:
        told.append(now_us // 1000)
        return plan_session.push([], now_us)

    list(query()._call((0,), Now(1_000), look))  # type: ignore[arg-type]
    assert store.timers == {2_500}
    second = query()
    list(second._call((0,), Now(61_000), look, fired=True))  # type: ignore[arg-type]
    list(second._call((0,), Now(61_200), look))  # type: ignore[arg-type]
    assert told == ([1_000, 1_000, 1_200] if acts else [1_000, 61_000, 61_200])
    assert max(store.timers) == 62_500
