"""The factory: rows by number, as stated."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.example_counts import examples
from tocsin.factory import ROUNDS, SENSORS, START_US, Factory

FACTORIES = st.builds(
    Factory,
    machines=st.integers(1, 7),
    seed=st.integers(0, 3),
    rate=st.sampled_from([0.0, 1.0, 100.0, 33.3]),
    disorder_us=st.sampled_from([0, 1, 50_000, 5_000_000]),
    outages=st.integers(0, 20),
)
WHOLE = examples(60)


@given(FACTORIES, st.sampled_from(SENSORS), st.lists(st.integers(0, 4_000), min_size=2, max_size=6))
@WHOLE
def test_any_cut_into_ranges_gives_the_same_rows(factory: Factory, sensor: str, cuts: list[int]) -> None:
    cuts = sorted(cuts)
    whole = factory.read(sensor, cuts[0], cuts[-1])
    parts = [factory.read(sensor, first, stop) for first, stop in pairwise(cuts)]
    for name, column in whole.items():
        assert len(column) == cuts[-1] - cuts[0]
        assert np.array_equal(np.concatenate([part[name] for part in parts]), column)


@given(FACTORIES, st.sampled_from(SENSORS))
@WHOLE
def test_rows_are_those_of_rounds_in_order_of_arrival(factory: Factory, sensor: str) -> None:
    rows = factory.read(sensor, 0, 2 * factory.block_rows)
    assert np.all(np.diff(rows["arrived"]) >= 0)
    assert np.all(rows["arrived"] >= rows["ts"])
    # Every machine reports once in each period.
    places = (rows["ts"] - START_US) // factory.period_us
    found = sorted(zip(rows["machine"].tolist(), places.tolist(), strict=True))
    names = [f"m{machine:04}" for machine in range(factory.machines)]
    assert found == [(name, place) for name in names for place in range(2 * ROUNDS)]


@given(FACTORIES, st.sampled_from(SENSORS))
@WHOLE
def test_disorder_is_bounded_as_said(factory: Factory, sensor: str) -> None:
    rows = factory.read(sensor, 0, 3 * factory.block_rows)
    behind = np.maximum.accumulate(rows["ts"]) - rows["ts"]
    held = (ROUNDS // factory.outages // 2 + 1) * factory.period_us if factory.outages else 0
    assert behind.max() <= max(factory.disorder_us, held)
    if factory.outages == 0:
        assert (rows["arrived"] - rows["ts"]).max() <= factory.disorder_us
        assert np.array_equal(rows["arrived"], rows["ts"]) or factory.disorder_us


@given(FACTORIES, st.sampled_from(SENSORS), st.integers(-1, 3 * ROUNDS), st.integers(0, 10**6))
@WHOLE
def test_the_rows_that_have_arrived_are_counted_as_they_are_read(
    factory: Factory, sensor: str, rounds: int, rest_us: int
) -> None:
    time_us = START_US + rounds * factory.period_us + rest_us
    count = factory.arrived_by(sensor, time_us)
    arrived = factory.read(sensor, 0, count + factory.block_rows)["arrived"]
    assert count == (arrived <= time_us).sum()


@given(FACTORIES, st.sampled_from(SENSORS))
@WHOLE
def test_values_are_whole_tenths(factory: Factory, sensor: str) -> None:
    value = factory.read(sensor, 0, factory.block_rows)["value"]
    assert np.array_equal(value, [round(number, 1) for number in value.tolist()])
    assert len(set(value.tolist())) < len(value)


def test_outages_send_all_at_once_when_they_end() -> None:
    rows = Factory(machines=3, seed=1, outages=2).read("air", 0, 3 * ROUNDS)
    late = rows["arrived"] - rows["ts"] > 2 * Factory(machines=3).period_us
    assert late.any()
    for machine in sorted(set(rows["machine"][late])):
        mine = rows["arrived"][late & (rows["machine"] == machine)]
        assert len(set(mine.tolist())) <= 2


def test_seeds_differ_and_sensors_differ() -> None:
    made = [Factory(seed=seed).read(sensor, 0, 500)["value"].tolist() for seed in (0, 1) for sensor in SENSORS]
    assert len({tuple(values) for values in made}) == len(made)


def test_only_planted_episodes_condense() -> None:
    factory, blocks = Factory(machines=20, seed=5), 4
    per_round = {}
    for sensor in SENSORS:
        rows = factory.read(sensor, 0, blocks * factory.block_rows)
        order = np.lexsort((rows["ts"], rows["machine"]))
        per_round[sensor] = rows["value"][order].reshape(20, blocks * ROUNDS)
    gamma = np.log(per_round["humidity"] / 100) + 18.678 * per_round["air"] / (257.14 + per_round["air"])
    wet = 257.14 * gamma / (18.678 - gamma) > per_round["surface"]
    planted = np.zeros((20, blocks), bool)
    for block in range(blocks):
        planted[:, block] = factory.episodes(block)[0]
    assert np.array_equal(wet.reshape(20, blocks, ROUNDS).any(axis=2), planted)
    assert 0 < planted.sum() < planted.size


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"machines": 0}, "`machines` must be at least 1; got 0"),
        ({"outages": 21}, "`outages` must be at most 20; got 21"),
        ({"rate": -1.0}, r"`rate` must be at least 0; got -1\.0"),
    ],
)
def test_numbers_are_checked(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Factory(**options)


def test_a_sensor_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of air, humidity, surface; got 'smell'"):
        Factory().read("smell", 0, 1)
