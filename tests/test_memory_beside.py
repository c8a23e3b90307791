"""Limited memory beside what else a file may have: thousands of keys, tables of limits, standing ranges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tocsin
from tests.driver import retained_rows, settled, stories, use_small_pages, watch_logics
from tests.test_memory import Columns, matches, pairs, run, zipf_streams
from tocsin import Rule, local
from tocsin.rules.limits import Limits


def evenly(rows: int, keys: int) -> Columns:
    """Two streams that have each key in turn, one row a millisecond."""
    draw, number = np.random.default_rng(1), np.arange(rows)
    names = np.array([f"k{key}" for key in range(keys)], dtype=object)
    return {
        name: {
            "ts": 1000 * number,
            "machine": names[number % keys],
            "value": draw.normal(0, 1, rows),
            "arrival": 1000 * number + (name == "b"),
        }
        for name in ("a", "b")
    }


@pytest.mark.parametrize("memory", ["500KB", "3000 rows"])
def test_keys_of_more_than_one_page_share_the_memory(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """4,500 keys fill two pages; with bytes keys are forgotten when they have nothing left, and the second page too."""
    use_small_pages(monkeypatch, 4096)
    streams = evenly(9000, 4500)
    rule = Rule(
        "pair", "a + b > 1", within="6s", on="machine", emit="all", allowed_lateness="0s", quality={"memory": memory}
    )
    out, driver = run(streams, rule, [3000, 9000, 15_000])
    whole, _ = run(streams, rule, through_pages=False)
    assert stories(out.alert_rows()) == stories(whole.alert_rows())
    assert settled(out.counts) == settled(whole.counts)
    assert sum(counts["shed"] for counts in out.counts.values()) > 0
    exact, _ = run(streams, replace(rule, quality=None), through_pages=False)
    assert not matches(out) - matches(exact)
    if memory.endswith("KB"):
        assert driver.most <= 500_000
    else:
        assert len(watch_logics(driver.session)[0].shards) == 2
        assert retained_rows(driver.session) <= 3000


@pytest.mark.parametrize("emit", ["all", "witness"])
def test_limits_are_those_of_the_key_when_it_comes_back_after_it_was_forgotten(emit: str) -> None:
    """Keys have thresholds of their own: with one that no sum reaches a key has no alert, forgotten or not."""
    streams = zipf_streams(1500, 400, 3)
    rows = {(f"k{key}",): (99.0 if key % 2 else 1.0,) for key in range(300)}
    table = Limits("limits.csv", ("machine",), ("most",), rows)
    stated: dict[str, Any] = {
        "within": "100ms",
        "on": "machine",
        "emit": emit,
        "allowed_lateness": "1s",
        "limits": {"by": table},
    }
    out, driver = run(streams, Rule("x", "a + b > by.most", quality={"memory": "45KB"}, **stated), [1000, 2000])
    exact, _ = run(streams, Rule("x", "a + b > by.most", **stated), through_pages=False)
    assert sum(counts["shed"] for counts in out.counts.values()) > 0
    assert sum(counts["freed_keys"] for counts in out.counts.values()) > 0
    assert driver.most <= 45_000
    named = {int(row["labels"]["machine"][1:]) for row in out.alert_rows()}
    assert named
    assert all(key < 300 and key % 2 == 0 for key in named)
    for name, counts in out.counts.items():
        assert counts["without_limits"] == exact.counts[name]["without_limits"] > 0
    if emit == "all":
        assert not matches(out) - matches(exact)


def test_standing_ranges_go_on_beside_a_limited_join_and_take_nothing_of_its_memory() -> None:
    streams: Columns = zipf_streams(800, 60, 4)
    requests = 40
    streams["orders"] = {
        "ts": np.zeros(requests, np.int64),
        "machine": np.array([f"k{number % 10}" for number in range(requests)], dtype=object),
        "id": np.array([f"q{number}" for number in range(requests)], dtype=object),
        "threshold": np.full(requests, 3.0),
        "low": np.full(requests, -0.5),
        "high": np.linspace(0.1, 2, requests),
        "arrival": np.full(requests, -1),
    }
    ranges = tocsin.RangeRule("Near", ["a.value"], "orders", on="machine")
    limited = local.run_local_detailed(streams, [pairs(), ranges], arrival="arrival", quality={"memory": "50 rows"})
    free = local.run_local_detailed(streams, [pairs(), ranges], arrival="arrival")
    near = [[row for row in out.alerts if row["alert"] == "Near"] for out in (limited, free)]
    assert len(near[0]) > 10
    assert stories(near[0]) == stories(near[1])
    assert sum(counts.get("shed", 0) for counts in limited.counts.values()) > 0
    text = str(local.explain(streams, [pairs(), ranges], arrival="arrival", quality={"memory": "50 rows"}))
    assert text.count("Memory: 50 rows") == text.count("Memory:") == 1
