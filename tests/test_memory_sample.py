"""Rules that sample their results where memory is short: unbiased, within the budget, and the laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.test_laws import plan_of, settled, stories
from tests.test_memory import matches, pairs, run, zipf_streams
from tocsin import PlanError, Rule
from tocsin.plan.sample import Sampler, draws
from tocsin.stages.memory.monitor import Monitor
from tocsin.stages.memory.sampling import PPS_CLUSTER


def chance(row: dict[str, Any]) -> float:
    word, *number = row["quality"].split()
    assert word in {"exact", "sample"}
    return float(number[0]) if word == "sample" else 1.0


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 1200), max_size=8).map(sorted),
    st.sampled_from(["40KB", "100 rows"]),
    st.sampled_from([0, 30_000]),
)
def test_splits_and_pages_change_nothing_where_results_are_sampled(
    seed: int, cuts: list[int], memory: str, disorder: int
) -> None:
    streams = zipf_streams(600, 40, seed, disorder=disorder)
    rule = pairs(memory=memory, prefer="sample")
    whole, _ = run(streams, rule, through_pages=False)
    split, driver = run(streams, rule, cuts)
    assert stories(split.alerts) == stories(whole.alerts)
    assert settled(split.counts) == settled(whole.counts)
    assert memory != "40KB" or driver.most <= 40_000


def test_the_sample_is_a_part_of_the_results_and_its_weights_add_up_to_them() -> None:
    """Horvitz and Thompson: over many streams the estimated number of results is the true one, within its error."""
    ratios = []
    for seed in range(16):
        streams = zipf_streams(300, 20, seed)
        rule = Rule("pair", "a + b > -9", within="100ms", on="machine", emit="all", outage="0s")
        exact, _ = run(streams, rule, through_pages=False)
        sampled, _ = run(streams, Rule(**{**vars(rule), "memory": "40 rows", "prefer": "sample"}), through_pages=False)
        assert not matches(sampled) - matches(exact)
        assert len(sampled.alerts) < 0.9 * len(exact.alerts)
        assert sampled.memory["pair"][0] is None
        ratios.append(sum(1 / chance(row) for row in sampled.alerts) / len(exact.alerts))
    error = float(np.std(ratios, ddof=1)) / len(ratios) ** 0.5
    assert error < 0.1
    assert abs(float(np.mean(ratios)) - 1) < 3 * error


def test_where_keys_tell_how_many_results_come_rows_are_taken_by_that() -> None:
    draw, rows, keys = np.random.default_rng(9), 60_000, 3000
    chance_of = 1 / np.arange(1, keys + 1)
    lane, time = np.arange(rows) % 2, np.arange(rows) * 500
    monitor = Monitor((2_000_000, 2_000_000))
    monitor.take(lane, time, draw.choice(keys, rows, p=chance_of / chance_of.sum()))
    sampler = Sampler(monitor)
    sampler.judge([200.0, 200.0])
    assert sampler.kind == PPS_CLUSTER
    some = np.arange(keys)
    drawn = draws(some * 0, some, some, [])
    stays, most = sampler.thin(0, drawn, some, np.ones(keys), 100.0)
    assert stays.sum() == 100
    frequent, rare = most[0], float(np.median(most))
    assert frequent > 10 * rare
    assert (sampler.chances(0, some) == most).all()


def test_what_is_drawn_for_a_row_is_even_and_its_own() -> None:
    number = np.arange(40_000)
    drawn = draws(number % 2, number // 8, number // 4, [number.astype(np.float64)])
    counts = np.bincount((drawn * 20).astype(np.int64), minlength=20)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    # Chi-square with 19 degrees of freedom exceeds 43.8 once in a thousand times.
    assert float(((counts - 2000) ** 2 / 2000).sum()) < 43.8
    again = draws(number % 2, number // 8, number // 4, [number.astype(np.float64)])
    assert (drawn == again).all()
    assert len(np.unique(drawn)) == len(drawn)


def test_more_than_two_streams_are_not_sampled() -> None:
    streams = zipf_streams(1, 1, 0)
    streams["c"] = streams["a"]
    rule = Rule("x", "a + b + c > 0", within="1s", on="machine", emit="all", memory="1MB", prefer="sample")
    with pytest.raises(PlanError, match='rule "x": `prefer` sample needs a rule of two streams; it reads 3'):
        plan_of(streams, rule, arrival="arrival")
