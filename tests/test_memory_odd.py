"""Limited memory where rules are odd: rows of one time alone are joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tocsin import Rule, local

ROWS = 300
STREAMS = {name: {"ts": np.arange(ROWS) // 2, "value": np.arange(ROWS) * 1.0} for name in "ab"}
ODD: list[dict[str, Any]] = [
    {"within": 0},
    {"within": 0, "outage": "10us"},
    {"within": "1us", "hop": "1us", "closed": "left"},
]


def found(more: dict[str, Any], memory: str | None, *, emit: str = "all") -> local.Result:
    return local.run(STREAMS, Rule("r", "a >= b", emit=emit, memory=memory, **more))


@pytest.mark.parametrize("more", ODD)
@pytest.mark.parametrize("model", [None, {"granularity": "1s"}, {"granularity": "1us"}])
@pytest.mark.parametrize("emit", ["all", "witness"])
def test_with_memory_enough_rows_of_one_time_give_what_they_give_without(
    more: dict[str, Any], model: dict[str, Any] | None, emit: str
) -> None:
    more = more if model is None else more | {"model": model}
    limited, plain = (
        found(more, "10MB", emit=emit),
        found({k: v for k, v in more.items() if k != "model"}, None, emit=emit),
    )
    assert limited.alerts == plain.alerts
    assert limited.alerts


@pytest.mark.parametrize("more", ODD)
@pytest.mark.parametrize("memory", ["16 rows", "40KB"])
@pytest.mark.parametrize("prefer", ["subset", "sample"])
def test_with_little_memory_rows_of_one_time_are_shed_and_counted(
    more: dict[str, Any], memory: str, prefer: str
) -> None:
    limited = found(more | {"prefer": prefer}, memory)
    for counts in limited.counts.values():
        fates = ("held", "retained", "expired", "omitted", "shed", "late", "quarantined", "unprocessed")
        assert counts["received"] == sum(counts.get(fate, 0) for fate in fates) == ROWS
        assert min(counts.values()) >= 0
    ids = {row["id"] for row in found(more, None).alerts}
    assert {row["id"] for row in limited.alerts} <= ids
