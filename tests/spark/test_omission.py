"""On Spark, plans that leave rows out raise the alarms of plans that keep everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tocsin
from spark.scenarios import plain
from test_omission import KINDS, inside, rule_of, streams_of, whole
from tocsin.local import run_local_detailed

pytestmark = pytest.mark.spark


def drawn(count: int, seed: int) -> list[tuple[str, int, int, int, str]]:
    random = np.random.default_rng(seed)
    names, keys = random.choice(list("aabbc"), count), random.choice(list("klmn"), count)
    numbers = random.integers(-8, 9, (count, 2))
    steps = random.integers(0, 2, count)
    rows = zip(names, numbers[:, 0].tolist(), numbers[:, 1].tolist(), steps.tolist(), keys, strict=True)
    return inside([(str(name), x, y, step, str(key)) for name, x, y, step, key in rows])


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_same_alarms_are_raised_on_spark(spark: Any, seed: int) -> None:
    streams = streams_of(drawn(600, seed))
    rules = [replace(rule_of(kind, 1.0 + 0.5 * seed), alert=f"r{i}") for i, kind in enumerate(KINDS)]
    frames = {}
    for name, columns in streams.items():
        frame = pd.DataFrame({**columns, "ts": pd.to_datetime(columns["ts"], unit="us", utc=True)})
        frames[name] = spark.createDataFrame(frame)
    found = plain(tocsin.alerts(frames, rules, arrival="arrival", buckets=3).collect())
    assert len(found) > 50
    for rule in rules:
        expected = plain(run_local_detailed(streams, whole(rule), arrival="arrival").alerts)
        assert [_life(row) for row in found if row[0] == rule.alert] == [_life(row) for row in expected], rule.expr


def _life(row: Any) -> tuple[Any, ...]:
    """State, key, times, value and margin: all but which of the best combinations was the witness."""
    return row[2:8]
