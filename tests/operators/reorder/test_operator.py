"""Reorder: the periods of results."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.example_counts import ENGINE
from tests.naive.waiting import taken_in_order
from tocsin import Rule
from tocsin.local import run_local_detailed

SECOND = 1_000_000


def disordered(seed: int, rows: int = 60) -> dict[str, dict[str, np.ndarray]]:
    """Return two streams of two machines, a row per second each, a third of them up to 8 s late."""
    random, streams = np.random.default_rng(seed), {}
    for name in "ab":
        arrival = np.arange(rows) * SECOND
        ts = arrival - (random.random(rows) < 0.3) * random.integers(0, 8 * SECOND, rows)
        machine = random.choice(["m", "n"], rows).astype(object)
        streams[name] = {"ts": ts, "arrival": arrival, "value": random.normal(0, 1, rows), "machine": machine}
    return streams


def settings(**quality: Any) -> Rule:
    return Rule("x", "a - b > 0.5", within="5s", on="machine", emit="all", quality=quality, idle_timeout="1h")


@ENGINE
@given(st.integers(0, 10**6), st.sampled_from([0, 2, 9]))
def test_match_counts_in_the_period_of_its_newest_row(seed: int, wait_s: int) -> None:
    streams = disordered(seed)
    found = run_local_detailed(streams, settings(wait=f"{wait_s}s"), arrival="arrival")
    rows = sorted(
        (int(table["arrival"][i]), place, i, str(table["machine"][i]), name, int(table["ts"][i]))
        for place, (name, table) in enumerate(streams.items())
        for i in range(len(table["ts"]))
    )
    order = taken_in_order([(key, name, time) for _, _, _, key, name, time in rows], wait_s * SECOND, 3600 * SECOND)
    taken: list[tuple[str, str, int, float]] = []
    expected: dict[int, list[int]] = {}
    for number in order:
        _, _, i, key, name, time = rows[number]
        value, before = float(streams[name]["value"][i]), [row for row in taken if row[0] == key]
        in_order = all(row[2] <= time for row in before)
        for _, other, at, partner in before:
            difference = value - partner if name == "a" else partner - value
            if other != name and abs(at - time) <= 5 * SECOND and difference > 0.5:
                counts = expected.setdefault(max(at, time) // (60 * SECOND) * 60 * SECOND, [0, 0])
                counts[0] += in_order
                counts[1] += 1
        taken.append((key, name, time, value))
    periods = found.metrics.results_by_period().get("x", {})
    assert periods == {start: tuple(counts) for start, counts in expected.items()}
