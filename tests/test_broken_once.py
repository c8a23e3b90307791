"""What hostile testing found: each stays mended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tocsin import PlanError, Rule, run_local
from tocsin.local import run_local_detailed


def states(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["state"], row["startsAt"].microsecond) for row in rows]


def test_a_row_that_is_not_evaluated_is_still_a_partner() -> None:
    def table(rows: list[tuple[int, int, float]]) -> dict[str, list[Any]]:
        return {"ts": [r[0] for r in rows], "arrival": [r[1] for r in rows], "k": ["z"] * len(rows),
                "value": [r[2] for r in rows]}  # fmt: skip

    streams = {"a": table([(3, 3, -1.0), (7, 12, 9.0), (11, 13, 9.0)]), "b": table([(8, 8, 0.0), (11, 14, 0.0)])}
    for shapes in ({}, {"a": "increasing", "b": "increasing"}):
        rule = Rule(
            "R",
            "a + b > 5",
            within="5us",
            on=["k"],
            shapes=shapes,
            for_="3us",
            allowed_lateness="1000us",
            idle_timeout="30us",
            stale="20us",
        )
        for cuts in ([], [2]):
            found = run_local(streams, rule, arrival="arrival", cuts=cuts)
            assert states(found) == [("pending", 7), ("inactive", 7), ("pending", 11)]


def test_an_undefined_corner_is_not_hidden_by_another_comparison() -> None:
    rows = {"ts": [0, 100], "k": ["m", "m"]}
    streams = {"a": {**rows, "value": [0.0, 0.1]}, "b": {**rows, "value": [1.0, 1.0]}}
    rule = Rule("R", "1/a > 5 or b > 3", within="5us", on="k", shapes={"a": "decreasing", "b": "increasing"})
    assert states(run_local(streams, rule))[0] == ("firing", 100)


def test_rows_that_arrive_together_stand_as_in_their_stream() -> None:
    streams = {"a": {"ts": [0, 100], "arrival": [10, 10], "k": ["m", "m"], "x": [9.0, 0.0], "y": [9.0, 0.0]}}
    rules = [
        Rule(name, f"a.{column} > 5", on=["k"], allowed_lateness="6us") for name, column in (("X", "x"), ("Y", "y"))
    ]
    alone = [run_local(streams, rule, arrival="arrival") for rule in rules]
    assert all(alone)
    for cuts in ([], [1]):
        assert run_local(streams, rules, arrival="arrival", cuts=cuts) == alone[0] + alone[1]


def test_times_finer_than_microseconds_are_cut() -> None:
    times = pd.to_datetime(pd.Series(["2024-01-01T00:00:00.123456789"])).to_numpy("datetime64[ns]")
    assert run_local({"a": {"ts": times, "value": [9.0]}}, Rule("x", "a > 5"))[0]["startsAt"].microsecond == 123456


@pytest.mark.parametrize(
    ("keys", "texts"),
    [
        ([float("nan"), "a"], ["a"]),
        (["a\0", "a"], ["a", "a\0"]),
        (pd.Series([1, None], dtype="Int64"), ["1"]),
        (np.ma.array(["a", "b"], mask=[False, True]), ["a"]),
    ],
)
def test_keys_are_what_they_are(keys: Any, texts: list[str]) -> None:
    found = run_local({"a": {"ts": [1, 2], "k": keys, "value": [9.0, 9.0]}}, Rule("x", "a > 5", on="k"))
    assert sorted({row["labels"]["k"] for row in found}) == texts


def test_what_is_masked_is_not_there() -> None:
    mask = [False, True, False]
    table = {"ts": np.ma.array([1, 2, 3], mask=mask), "value": np.ma.array([9.0, 9.0, 9.0], mask=[False, False, True])}
    result = run_local_detailed({"a": table}, Rule("x", "a > 5"))
    assert (result.counts["a"]["received"], result.counts["a"]["quarantined"]) == (3, 2)


@pytest.mark.parametrize("column", ["ts", "value", "k"])
def test_a_column_of_lists_is_refused(column: str) -> None:
    table: dict[str, Any] = {"ts": [1, 2], "k": ["a", "b"], "value": [1.0, 2.0]}
    table[column] = [[1, 2], [3]]
    with pytest.raises(PlanError, match=rf"column '{column}' must be a list or a one-dimensional array"):
        run_local({"a": table}, Rule("x", "a > 5", on="k"))


def test_labels_that_are_equal_as_texts_are_equal() -> None:
    rules = [Rule("x", "a > 5", labels={"t": label}) for label in (1, "1")]  # type: ignore[dict-item]
    with pytest.raises(PlanError, match="must differ in `alert` or `labels`"):
        run_local({"a": {"ts": [1], "value": [1.0]}}, rules)
