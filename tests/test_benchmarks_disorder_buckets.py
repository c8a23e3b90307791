"""The benchmark of waits by bucket: its data follow the recipe, and each row reaches one bucket in one call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import disorder_buckets
from benchmarks.disorder_buckets import (
    CALL_S,
    DELAY_US,
    FIRST,
    KEYS,
    LATE,
    LIMITS,
    SECOND,
    Case,
    Done,
    calls,
    due,
    make,
    rule,
    run,
)
from tocsin.plan import make_plan

pytestmark = pytest.mark.slow

SECONDS = 40


def test_data_follow_the_recipe() -> None:
    alike, again, unlike = make(1, "alike", 300), make(1, "alike", 300), make(1, "unlike", 300)
    for name in "xy":
        table = alike[name]
        assert all(np.array_equal(table[column], again[name][column]) for column in table)
        delay = 100 * SECOND + table["arrival"] - table["ts"]
        assert abs((delay > 0).mean() - LATE) < 0.01
        # Half of the Pareto numbers of shape 2 are above the square root of 2, less 1.
        assert abs(np.median(delay[delay > 0]) / (DELAY_US * (2**0.5 - 1)) - 1) < 0.1
        slow = np.isin(unlike[name]["key"], [f"k{number}" for number in range(KEYS // 8)])
        longer = 100 * SECOND + unlike[name]["arrival"] - unlike[name]["ts"]
        assert np.median(longer[slow & (longer > 0)]) > 10 * np.median(longer[~slow & (longer > 0)])


def test_each_row_comes_to_one_bucket_in_one_call() -> None:
    streams = make(2, "alike", SECONDS)
    plan = make_plan(rule(3.0, quality={"wait": "1s"}), {name: list(table) for name, table in streams.items()})
    found = calls(plan, streams, 3, SECONDS)
    assert len(found) == SECONDS // CALL_S
    rows = [(b, batch.stream, *batch.keys[k], t) for call in found for b, part in enumerate(call) for batch in part
            for k, t in zip(batch.key.tolist(), batch.time.tolist(), strict=True)]  # fmt: skip
    whole = [(n, k, t) for n, table in streams.items() for k, t in zip(table["key"], table["ts"].tolist(), strict=True)]
    assert sorted(row[1:] for row in rows) == sorted(whole)
    assert len({row[:3:2] for row in rows}) == KEYS


def test_no_more_results_are_in_order_than_are_due() -> None:
    streams = make(3, "alike", 400)
    truth = due(streams, LIMITS["frequent"])
    done = run(streams, Case("frequent", "alike", 0.95, 2, "shared", 3), 400)
    assert done.told > 0
    assert 0.9 * sum(truth.values()) < sum(done.in_order.values()) <= sum(truth.values())


def test_results_say_when_and_where_and_beside_what_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = dict.fromkeys(range(FIRST + 3), 10)

    def nothing(*_: Any) -> Any:
        return {}

    for name, made in (("make", nothing), ("due", lambda *_: truth), ("run", lambda *_: Done(1.0, 0.0, truth, 1, 0.1))):
        monkeypatch.setattr(disorder_buckets, name, made)
    assert disorder_buckets.main(["--quick", "--json", str(tmp_path / "out.json")]) == 0
    results = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert {"date", "machine", "load_before"} <= results.keys()
    # Keys alike and unlike, rare and frequent results, with waits by bucket and shared.
    assert [run["mean_recall"] for run in results["runs"]] == [1.0] * 8
