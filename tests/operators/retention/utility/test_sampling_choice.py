"""The choice among the ways to sample: against all sets of results, and against samples of the join itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import memory as naive
from operators.retention.utility.test_model_selection import (
    CURVES,
    UNIT,
    WINDOW,
    Stream,
    by_age,
    by_key,
    monitored,
    rows_in_window,
    zipf,
)
from tocsin.operators.retention.cluster_sampling import EQ_CLUSTER, PPS_CLUSTER, UNIFORM
from tocsin.operators.retention.uniform_sampling import Sample, SamplingJoin
from tocsin.operators.retention.utility.lifetime_sample import HALF_OCTAVES, Lives
from tocsin.operators.retention.utility.model_selection import Choice
from tocsin.operators.retention.utility.sample_estimates import windowed
from tocsin.operators.retention.utility.sampling_choice import (
    Aggregate,
    Approach,
    Prospect,
    choose,
    error_curve,
    expectation,
    uniform_stay,
    with_margin,
)
from tocsin.operators.retention.utility.sampling_fraction import missed_shares
from tocsin.operators.retention.utility.stream_monitor import Monitor

KINDS = [UNIFORM, EQ_CLUSTER, PPS_CLUSTER]
NEITHER = Choice("RECENT", key_fits=False, age_fits=False, recall=None)
BY_KEY = Choice("PROB", key_fits=True, age_fits=False, recall={})
BY_AGE = Choice("AGE", key_fits=False, age_fits=True, recall={})
# The bytes of a row as in the paper: 34 with the counters of UNIFORM.
ROWS = {UNIFORM: 32 / 34, EQ_CLUSTER: 1.0, PPS_CLUSTER: 1.0}


def lives_with(n: Sequence[int], foretold: Sequence[float], granules: int = 4) -> Lives:
    """Lives that gave so many results, one in each granule in turn."""
    count = len(n)
    met = np.array([[results // granules + (k < results % granules) for k in range(granules)] for results in n])
    numbers, met = np.arange(count), met.reshape(count, granules).astype(np.int64)
    behind, found = np.zeros((count, HALF_OCTAVES), np.int64), np.array(n, np.int64)
    return Lives(numbers, numbers, numbers % 7, np.array(foretold), met, behind, found)


def memory(rows: float) -> dict[int, float]:
    return {kind: rows * each for kind, each in ROWS.items()}


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=3, max_size=3), st.integers(0, 7)), min_size=1, max_size=4),
    st.floats(0, 1),
)
def test_uniform_holds_a_row_up_to_its_last_head_or_to_the_end(lives: list[tuple[list[int], int]], p: float) -> None:
    met, n = np.array([counts for counts, _ in lives]), np.array([float(most) for _, most in lives])
    stays = []
    for counts, most in lives:
        ages = [(granule + 1) / 3 for granule, count in enumerate(counts) for _ in range(count)]
        # Results that are expected and do not come are waited for.
        stays.append(naive.expected_stay([*ages, *[1.0] * most][:most], p))
    assert uniform_stay(met, n, p) == pytest.approx(np.mean(stays), abs=1e-9)


@given(st.lists(st.just(0.0) | st.floats(1e-200, 60), min_size=1, max_size=6))
def test_with_a_margin_one_result_in_a_hundred_is_missed(means: list[float]) -> None:
    for mean, n in zip(means, with_margin(np.array(means)).tolist(), strict=True):
        assert n == int(n)
        assert missed_shares(mean)[int(n)] <= 0.01 + 1e-12


def test_pps_expects_something_of_every_row_and_uniform_more_where_results_would_be_missed() -> None:
    lives = lives_with([0, 10, 30, 0], [0.0, 0.1, 0.3, 0.0])
    right = expectation(lives, by_key=True)
    assert right.n(PPS_CLUSTER, lives.foretold) == pytest.approx([1, 10, 28, 1])
    assert right.n(UNIFORM, lives.foretold).tolist() == [0, 10, 30, 0]
    average = expectation(lives, by_key=False)
    assert average.n(PPS_CLUSTER, lives.foretold) == pytest.approx(np.full(4, 10.0))
    assert average.n(UNIFORM, lives.foretold).tolist() == with_margin(np.full(4, 10.0)).tolist()
    assert average.n(UNIFORM, lives.foretold)[0] > 10


def test_the_way_depends_on_sizes_on_what_is_shared_and_on_how_well_sizes_are_foretold() -> None:
    random, rows = np.random.default_rng(1), 400
    means = np.where(random.random(rows) < 0.1, 40.0, 2.0)

    def lives_of(n: np.ndarray, foretold: np.ndarray) -> Lives:
        return lives_with(n.tolist(), (foretold / 100).tolist())

    def chosen(lives: Lives, choice: Choice, aggregate: Aggregate) -> int:
        return choose([Prospect(lives, 100.0, 4.0, choice, aggregate)], [memory(60)])[0].kind

    count = Aggregate(1000.0)
    exact, near = lives_of(means.astype(np.int64), means), lives_of(random.poisson(means), means)
    equal, wrong = lives_of(random.poisson(8, rows), np.full(rows, 8.0)), lives_of(near.met.sum(axis=1), means[::-1])
    # Where it is certain how many results a row gives UNIFORM is closest; where it is foretold, clusters by size.
    assert chosen(exact, BY_KEY, count) == UNIFORM
    assert chosen(near, BY_KEY, count) == PPS_CLUSTER
    assert chosen(equal, BY_AGE, count) == EQ_CLUSTER
    # Sizes that are foretold wrongly are worse than none, and so is UNIFORM, which expects them.
    assert chosen(wrong, BY_KEY, count) == EQ_CLUSTER
    # Numbers that all results of a row share make clusters poor.
    shared = Aggregate(1000.0, averages=True, mean=10.0, deviation=30.0)
    assert chosen(exact, BY_KEY, shared) == UNIFORM
    assert chosen(wrong, BY_KEY, shared) == EQ_CLUSTER
    assert chosen(exact, BY_KEY, shared._replace(of_held=False)) == PPS_CLUSTER
    assert chosen(near, NEITHER, count) == EQ_CLUSTER
    assert chosen(lives_with([], []), BY_KEY, count) == EQ_CLUSTER


def sampled(rows: Stream, kind: int, approach: Approach, share: np.ndarray, seed: int) -> tuple[SamplingJoin, Sample]:
    stream, time, key = rows
    of = approach._replace(kind=kind)
    join = SamplingJoin(kind, (WINDOW * UNIT, None), (100_000, 0), (approach.fraction,) * 2, seed)
    return join, join.take(stream, time, key, of.n(share)).sample


def shares_of(monitor: Monitor, key: np.ndarray) -> np.ndarray:
    values, place = np.unique(key, return_inverse=True)
    return monitor.shares(1, values)[place]


CASES = {
    "DC": lambda seed, rows: by_key(zipf(1), zipf(1), seed, rows),
    "IC": lambda seed, rows: by_key(zipf(1), zipf(1)[::-1], seed, rows),
    "BELL": lambda seed, rows: by_age(CURVES["BELL"], seed, rows),
    "neither": lambda seed, rows: by_key(zipf(0), zipf(0), seed, rows),
}


@pytest.mark.parametrize("case", ["DC", "IC", "BELL"])
def test_the_chosen_way_is_as_far_off_as_foretold_and_about_the_best_of_three(case: str) -> None:
    """The parameters are learnt on one stream and tried on another of the same kind."""
    monitor = monitored(CASES[case](1, 8000))
    whole = rows_in_window(monitor)
    aggregate = Aggregate(4 * WINDOW * UNIT)
    prospect = monitor.prospect(0, 0.2 * whole, aggregate)
    rows = memory(0.2 * whole)
    best = choose([prospect], [rows])[0]
    errors: dict[int, list[float]] = {kind: [] for kind in KINDS}
    for seed in range(12):
        other = CASES[case](50 + seed, 4000)
        share = shares_of(monitor, other[2])
        at = np.arange(2 * WINDOW, 4800, WINDOW) * UNIT + aggregate.window
        at = at[at < other[1][-1]]
        everything = SamplingJoin(EQ_CLUSTER, (WINDOW * UNIT, None), (10_000, 0), (1.0, 1.0))
        time = everything.take(*other, np.zeros(len(share))).sample.time
        first, last = np.searchsorted(time, at - aggregate.window), np.searchsorted(time, at, "right")
        for kind in KINDS:
            approach = choose([prospect], [{kind: rows[kind]}])[0]
            assert approach.kind == kind
            join, sample = sampled(other, kind, approach, share, seed)
            # The memory is that of the whole, and more is needed once in 1,000 moments; now and then a little more.
            assert join.most_held[0] <= 1.25 * rows[kind]
            ends = (
                sample.time,
                sample.clusters(kind),
                sample.probability,
                sample.held_value,
                at,
                int(aggregate.window),
            )
            errors[kind] += (windowed(*ends).counts.value / (last - first) - 1).tolist()
    found = {kind: float(np.sqrt(np.mean(np.square(errors[kind])))) for kind in KINDS}
    assert found[best.kind] <= 1.25 * min(found.values())
    assert best.error == pytest.approx(found[best.kind], rel=0.35)


def test_where_neither_model_fits_eq_cluster_is_taken_and_no_error_foretold() -> None:
    monitor = monitored(CASES["neither"](3, 3000))
    assert monitor.choice(0, 100).model == "neither"
    prospect = monitor.prospect(0, 100, Aggregate(1000.0))
    found = choose([prospect], [memory(100)])[0]
    assert (found.kind, found.error, found.missed) == (EQ_CLUSTER, None, 0.0)
    assert error_curve([prospect], ROWS) is None


def test_both_windows_of_a_join_are_sampled_in_one_way_and_uniform_with_one_fraction() -> None:
    random = np.random.default_rng(2)
    sizes = random.integers(1, 30, 300)
    shared = Aggregate(1000.0, averages=True, mean=1.0, deviation=3.0)
    lives = lives_with(sizes.tolist(), (sizes / 100).tolist())
    windows = [Prospect(lives, 100.0, rate, BY_KEY, shared) for rate in (4.0, 2.0)]
    found = choose(windows, [memory(80), memory(40)])
    assert [one.kind for one in found] == [UNIFORM, UNIFORM]
    assert found[0].fraction == found[1].fraction
    only_equal = [{EQ_CLUSTER: 80.0}, {EQ_CLUSTER: 20.0}]
    assert [one.kind for one in choose(windows, only_equal)] == [EQ_CLUSTER, EQ_CLUSTER]
    fits, fits_not = windows[0], Prospect(lives, 100.0, 2.0, NEITHER, shared)
    assert {one.kind for one in choose([fits, fits_not], [memory(80), memory(20)])} == {EQ_CLUSTER}


def test_errors_fall_with_memory_down_to_none() -> None:
    sizes = np.random.default_rng(3).integers(0, 30, 300)
    lives = lives_with(sizes.tolist(), (sizes / 100).tolist())
    prospect = Prospect(lives, 100.0, 4.0, BY_KEY, Aggregate(1000.0))
    curve = error_curve([prospect], {kind: each / 32 for kind, each in ROWS.items()})
    assert curve is not None
    # The unit is a byte of a row with 32: there must be some more than those of 400 rows.
    assert 32 * 400 < curve.memory[-1] < 32 * 550
    assert curve.error[-1] == 0
    assert (np.diff(curve.error) <= 1e-12).all()
    rows = 100.0
    assert curve.error_at(32 * rows) >= (choose([prospect], [memory(rows)])[0].error or 0.0)
