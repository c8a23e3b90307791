"""Limited memory where rules are odd: rows of one time alone are joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.test_memory import run
from tocsin import Rule, local
from tocsin.runtime.metrics import OUTCOMES

ROWS = 300
STREAMS = {name: {"ts": np.arange(ROWS) // 2, "value": np.arange(ROWS) * 1.0} for name in "ab"}
ODD: list[dict[str, Any]] = [
    {"within": 0},
    {"within": 0, "allowed_lateness": "10us"},
    {"within": "1us", "hop": "1us", "closed": "left"},
]


def found(more: dict[str, Any], memory: str | None, *, emit: str = "all", **options: Any) -> local.Result:
    quality = {"memory": memory, **options}
    return local.run_local_detailed(STREAMS, Rule("r", "a >= b", emit=emit, quality=quality, **more))


@pytest.mark.parametrize("more", ODD)
@pytest.mark.parametrize("model", [None, {"granularity": "1s"}, {"granularity": "1us"}])
@pytest.mark.parametrize("emit", ["all", "witness"])
def test_with_memory_enough_rows_of_one_time_give_what_they_give_without(
    more: dict[str, Any], model: dict[str, Any] | None, emit: str
) -> None:
    limited, plain = found(more, "10MB", emit=emit, model=model), found(more, None, emit=emit)
    assert limited.alerts == plain.alerts
    assert limited.alerts


@pytest.mark.parametrize("more", ODD)
@pytest.mark.parametrize("memory", ["16 rows", "40KB"])
@pytest.mark.parametrize("prefer", ["subset", "sample"])
def test_with_little_memory_rows_of_one_time_are_shed_and_counted(
    more: dict[str, Any], memory: str, prefer: str
) -> None:
    limited = found(more, memory, prefer=prefer)
    for counts in limited.counts.values():
        assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES) == ROWS
        assert min(counts.values()) >= 0
    ids = {row["id"] for row in found(more, None).alerts}
    assert {row["id"] for row in limited.alerts} <= ids


def test_fingerprints_are_removed_before_rows_are_shed_when_many_omitted_rows_have_one_time() -> None:
    count, memory = 6_000, 40_000
    times = np.concatenate([np.zeros(count, np.int64), np.arange(1, 11)])
    values = np.concatenate([np.arange(count, 0, -1), np.full(10, 5)]).astype(np.float64)
    machine = np.full(len(times), "m", object)
    a = {"ts": times, "machine": machine, "value": values, "arrival": np.arange(len(times))}
    b = {name: column[-1:] for name, column in a.items()} | {"arrival": np.array([len(times)])}
    shapes = {"a": "increasing", "b": "increasing"}
    rule = Rule("r", "a + b > 9", within="5us", on="machine", shapes=shapes, quality={"memory": memory})
    out, driver = run({"a": a, "b": b}, rule, list(range(500, count, 500)))
    assert driver.most <= memory
    assert out.counts["a"]["omitted"] >= count - 1
    assert out.counts["a"]["shed"] == 0
    assert [row["state"] for row in out.alert_rows()] == ["firing"]
