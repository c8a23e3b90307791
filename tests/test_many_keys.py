"""Keys beside each other: each is as if alone, however many there are and of however many columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.driver import settled, stories, use_small_pages
from tocsin import Rule, local
from tocsin.runtime.keyed_pipeline import KEYS_PER_SHARD


def test_thousands_of_keys_are_each_as_if_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_pages(monkeypatch, 4096)
    random, keys, rows = np.random.default_rng(7), 5_000, 30_000
    streams = {}
    for name in ("a", "b"):
        machine = random.integers(0, keys, rows)
        streams[name] = {
            "ts": random.integers(0, 60, rows), "machine": machine, "value": random.integers(-4, 5, rows) / 2,
            "arrival": np.arange(rows), "note": machine * 10,
        }  # fmt: skip
    rule = Rule(
        "x", "a + b > 1", within="8us", on="machine", shapes={"a": "increasing"}, for_="2us", keep_firing_for="3us"
    )
    whole = local.run_local_detailed(streams, rule, arrival="arrival", cuts=[100, 25_000])
    assert len({row["labels"]["machine"] for row in whole.alerts}) > 2_000
    told = stories(whole.alerts)
    for key in random.integers(0, keys, 25).tolist():
        mine = {name: {c: v[t["machine"] == key] for c, v in t.items()} for name, t in streams.items()}
        alone = local.run_local_detailed(mine, rule, arrival="arrival")
        assert stories(alone.alerts) == {k: v for k, v in told.items() if ("machine", str(key)) in k[1]}


def test_a_page_whose_keys_have_no_rows_yet_keeps_its_place() -> None:
    # Three batches know all keys but have rows of the first and the last only, which are on the first and third page.
    keys = 2 * KEYS_PER_SHARD + 10
    machine = np.concatenate([np.arange(keys), [0, keys - 1] * 2])
    ts = np.concatenate([np.zeros(keys, np.int64), [3, 3, 6, 6]])
    value = np.where(np.isin(machine, [0, keys - 1]) & (ts != 3), 1.0, -1.0)
    arrival = np.where(np.isin(machine, [0, keys - 1]), ts, 9)
    stream = {"ts": ts, "machine": machine, "value": value, "arrival": arrival}
    rule = Rule("x", "a + b > 0", within=0, on="machine", for_="5us", stale="9us")
    streams = {"a": stream, "b": stream}
    split = local.run_local_detailed(streams, rule, arrival="arrival", cuts=[4, 8, 12])
    assert [(row["labels"]["machine"], row["state"]) for row in split.alerts] == [
        (str(key), state) for key in (0, keys - 1) for state in ("pending", "inactive", "pending")
    ]
    assert split.counts["a"]["retained"] == keys + 4


def test_two_key_columns_are_one_key() -> None:
    def rows(value: Sequence[float]) -> dict[str, np.ndarray]:
        site, room = ["x", "x", "y", None, "y"], [1, 2, 1, 1, 2]
        return {
            "ts": np.arange(5),
            "site": np.array(site, dtype=object),
            "room": np.array(room),
            "value": np.array(value),
        }

    rule = Rule("x", "a + b > 0", within=0, on=["site", "room"])
    result = local.run_local_detailed({"a": rows([1.0] * 5), "b": rows([1.0, -3.0, 1.0, 1.0, 1.0])}, rule)
    assert [(row["labels"], row["state"]) for row in result.alerts] == [
        ({"site": site, "room": room}, "firing") for site, room in (("x", "1"), ("y", "1"), ("y", "2"))
    ]
    assert settled(result.counts)["a"] == {"received": 5, "quarantined": 1, "retained": 4}
