"""What a sample is worth: chi-square tests of UNIFORM, unbiased estimates, honest intervals; all over seeded runs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import memory as naive
from tocsin.operators.retention.cluster_sampling import EQ_CLUSTER, PPS_CLUSTER, UNIFORM
from tocsin.operators.retention.uniform_sampling import Sample, SamplingJoin, joined
from tocsin.operators.retention.utility.sample_estimates import windowed
from tocsin.operators.retention.utility.sampling_fraction import expected_at_most, missed_shares

KINDS = [UNIFORM, EQ_CLUSTER, PPS_CLUSTER]
RUNS, ALPHA = 1000, 0.01
WINDOWS = (30, 20)
_RANDOM = np.random.default_rng(12)
_COUNT = 80
STREAM = _RANDOM.integers(0, 2, _COUNT)
TIME = np.sort(_RANDOM.integers(0, 130, _COUNT))
KEY = np.minimum(_RANDOM.geometric(0.4, _COUNT), 5)
VALUE = _RANDOM.normal(20, 6, _COUNT)
RESULTS = naive.join_results(list(zip(STREAM.tolist(), TIME.tolist(), KEY.tolist(), strict=True)), WINDOWS)
N = np.bincount([held for _, _, held, _ in RESULTS], minlength=_COUNT).astype(np.float64)
# The fraction of PPS-CLUSTER is by result: rows with the most are taken for certain.
FRACTION = {UNIFORM: 0.3, EQ_CLUSTER: 0.3, PPS_CLUSTER: 0.3 / N.mean()}
TRUE_COUNT, TRUE_SUM = len(RESULTS), sum(VALUE[held] for _, _, held, _ in RESULTS)


def run(kind: int, seed: int, memory: int = _COUNT, n: np.ndarray = N) -> Sample:
    join = SamplingJoin(kind, WINDOWS, (memory, memory), (FRACTION[kind], FRACTION[kind]), seed)
    return join.take(STREAM, TIME, KEY, n, VALUE).sample


def run_with_a_fall(seed: int, lower: float, at: int) -> Sample:
    """UNIFORM, with p lowered from outside before row `at`."""
    p = FRACTION[UNIFORM]
    join = SamplingJoin(UNIFORM, WINDOWS, (_COUNT, _COUNT), (p, p), seed)
    first = join.take(STREAM[:at], TIME[:at], KEY[:at], N[:at], VALUE[:at]).sample
    join.set_fraction((lower, lower))
    return joined([first, join.take(STREAM[at:], TIME[at:], KEY[at:], N[at:], VALUE[at:]).sample])


def chosen(samples: list[Sample]) -> np.ndarray:
    """For each run and result, whether it was sampled."""
    place = {(held, probe): number for number, (_, _, held, probe) in enumerate(RESULTS)}
    found = np.zeros((len(samples), len(RESULTS)), bool)
    for number, sample in enumerate(samples):
        for held, probe in zip(sample.held.tolist(), sample.probe.tolist(), strict=True):
            found[number, place[held, probe]] = True
    return found


def clusters_of_three() -> list[list[int]]:
    """Results of each row, as they come, by three."""
    parts = []
    for row in range(_COUNT):
        own = [number for number, (_, _, held, _) in enumerate(RESULTS) if held == row]
        parts += [own[begin : begin + 3] for begin in range(0, len(own), 3)]
    return parts


def assert_bernoulli(found: np.ndarray, p: np.ndarray) -> None:
    """Chi-square: each result with its p; results of a row, by threes, independently; and all of a run."""
    runs = len(found)
    each = (found.sum(axis=0) - runs * p) ** 2 / (runs * p * (1 - p))
    assert each.sum() < naive.chi_square_limit(len(p), ALPHA)
    statistic, freedom = 0.0, 0
    for part in clusters_of_three():
        for pattern in product([False, True], repeat=len(part)):
            wanted = runs * np.prod(np.where(pattern, p[part], 1 - p[part]))
            statistic += ((found[:, part] == pattern).all(axis=1).sum() - wanted) ** 2 / wanted
        freedom += 2 ** len(part) - 1
    assert statistic < naive.chi_square_limit(freedom, ALPHA)
    # The numbers sampled in a run vary as those of independent results do, neither more nor less.
    total = (found.sum(axis=1) - p.sum()) ** 2 / (p * (1 - p)).sum()
    assert naive.chi_square_limit(runs, 1 - ALPHA / 2) < total.sum() < naive.chi_square_limit(runs, ALPHA / 2)


def test_uniform_samples_each_result_with_p_and_independently() -> None:
    found = chosen([run(UNIFORM, seed) for seed in range(RUNS)])
    assert_bernoulli(found, np.full(len(RESULTS), FRACTION[UNIFORM]))


@pytest.mark.parametrize("lower", [0.25, 0.1])
def test_results_found_after_p_fell_are_sampled_with_the_new_p_and_independently(lower: float) -> None:
    found = chosen([run_with_a_fall(seed, lower, 40) for seed in range(RUNS)])
    p = np.array([FRACTION[UNIFORM] if probe < 40 else lower for _, _, _, probe in RESULTS])
    assert_bernoulli(found, p)


def test_a_sample_that_depends_on_a_neighbour_fails_the_test_of_independence() -> None:
    found = chosen([run(EQ_CLUSTER, seed) for seed in range(RUNS)])
    with pytest.raises(AssertionError):
        assert_bernoulli(found, np.full(len(RESULTS), FRACTION[EQ_CLUSTER]))


def estimates(kind: int, runs: int, memory: int = _COUNT, n: np.ndarray = N) -> np.ndarray:
    """Per run: SUM, COUNT and AVG over all results, and their standard errors."""
    rows = []
    for seed in range(runs):
        sample = run(kind, seed, memory, n)
        end = np.array([TIME[-1]])
        found = windowed(sample.time, sample.clusters(kind), sample.probability, sample.held_value, end, int(TIME[-1]))
        rows.append([part[0] for field in ("value", "error") for part in (getattr(one, field) for one in found)])
    return np.array(rows)


def deviation(found: np.ndarray, wanted: float) -> float:
    """How many standard errors of the mean the mean is off."""
    return abs(found.mean() - wanted) / (found.std() / len(found) ** 0.5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", [_COUNT, 4])
def test_estimates_of_sum_and_count_are_unbiased_and_so_are_their_errors(kind: int, memory: int) -> None:
    found = estimates(kind, 2 * RUNS, memory)
    assert deviation(found[:, 0], TRUE_SUM) < 3
    assert deviation(found[:, 1], TRUE_COUNT) < 3
    # The mean of the squared errors that are stated is the variance there is.
    for stated, value in ((found[:, 3], found[:, 0]), (found[:, 4], found[:, 1])):
        assert deviation(stated**2 - (value - value.mean()) ** 2, 0.0) < 3


def run_with_changes(kind: int, seed: int) -> Sample:
    """Memory shrinks after 25 rows, and grows after 55, with the p of the beginning for rows that come then."""
    p, parts = FRACTION[kind], []
    join = SamplingJoin(kind, WINDOWS, (_COUNT, _COUNT), (p, p), seed)
    for begin, end, memory in ((0, 25, _COUNT), (25, 55, 3), (55, _COUNT, _COUNT)):
        join.set_memory((memory, memory))
        if begin == 55:
            join.set_fraction((p, p))
        columns = (column[begin:end] for column in (STREAM, TIME, KEY, N, VALUE))
        parts.append(join.take(*columns).sample)
    return joined(parts)


def run_with_little_memory(kind: int, seed: int) -> Sample:
    return run(kind, seed, 4)


def assert_uncorrelated(weights: np.ndarray, kind: int) -> None:
    """The product of the weights of two results is 1 on average; of clusters, where they are of different rows."""
    runs, held = len(weights), np.array([row for _, _, row, _ in RESULTS])
    mean = weights.T @ weights / runs
    error = np.sqrt(np.maximum((weights**2).T @ weights**2 / runs - mean**2, 0.0) / runs)
    pairs = np.triu(error > 0, 1) & ((held[:, None] != held) | (kind == UNIFORM))
    off = (mean[pairs] - 1) / error[pairs]
    # Squares of standard normal numbers are 1 on average; large weights are rare, so that these are not quite normal.
    assert np.mean(off**2) < 1.3
    assert np.mean(np.abs(off) > 3) < 0.015


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampled", [run_with_little_memory, run_with_changes])
def test_with_a_hard_budget_every_result_counts_once_on_average(
    kind: int, sampled: Callable[[int, int], Sample]
) -> None:
    place = {(held, probe): number for number, (_, _, held, probe) in enumerate(RESULTS)}
    weights = np.zeros((2 * RUNS, len(RESULTS)))
    fell = 0
    for seed in range(2 * RUNS):
        sample = sampled(kind, seed)
        places = [place[pair] for pair in zip(sample.held.tolist(), sample.probe.tolist(), strict=True)]
        weights[seed, places] = 1 / sample.probability
        fell += len(np.unique(sample.probability)) > 1
    assert fell > RUNS / 4
    certain = weights.std(axis=0) == 0
    assert (weights[:, certain] == 1).all()
    uncertain = weights[:, ~certain]
    off = (uncertain.mean(axis=0) - 1) / (uncertain.std(axis=0) / (2 * RUNS) ** 0.5)
    # Of some 200 standard normal numbers the largest is below 4 but once in 80 times.
    assert np.abs(off).max() < 4
    assert_uncorrelated(weights, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bias_of_averages_is_below_a_tenth_of_their_standard_error(kind: int) -> None:
    found = estimates(kind, 4 * RUNS)[:, 2]
    found = found[~np.isnan(found)]
    assert len(found) > 3.9 * RUNS
    assert abs(found.mean() - TRUE_SUM / TRUE_COUNT) < 0.1 * found.std()


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_contain_the_truth_about_as_often_as_they_say(kind: int) -> None:
    """Of large joins: the intervals are those of a normal distribution."""
    random, covered, runs = np.random.default_rng(5), np.zeros(3), 400
    count, values = 1200, 12
    stream, time = np.tile([0, 1], count // 2), np.arange(count)
    key, value = random.integers(0, values, count), random.normal(50, 10, count)
    rows = list(zip(stream.tolist(), time.tolist(), key.tolist(), strict=True))
    results = naive.join_results(rows, (200, None))
    n = np.bincount([held for _, _, held, _ in results], minlength=count).astype(np.float64)
    total = sum(value[held] for _, _, held, _ in results)
    truth = np.array([total, len(results), total / len(results)])
    for seed in range(runs):
        p = 0.25 / (n.mean() if kind == PPS_CLUSTER else 1)
        sample = SamplingJoin(kind, (200, None), (count, 0), (p, p), seed).take(stream, time, key, n, value).sample
        end = np.array([count])
        found = windowed(sample.time, sample.clusters(kind), sample.probability, sample.held_value, end, count, 0.9)
        covered += [one.low[0] <= true <= one.high[0] for one, true in zip(found, truth, strict=True)]
    # 90 % of 400, within 3 standard errors and 2 % for what is not normal.
    assert (np.abs(covered / runs - 0.9) < 3 * (0.9 * 0.1 / runs) ** 0.5 + 0.02).all()


def expect_no_more_than_a_hundredth_beyond(mean: float) -> int:
    return expected_at_most(mean, 0.01)


@pytest.mark.parametrize("expect", [round, expect_no_more_than_a_hundredth_beyond])
def test_where_n_is_estimated_the_bias_of_uniform_is_the_share_of_results_beyond_it(
    expect: Callable[[float], int],
) -> None:
    """Keys of S2 are drawn with fixed frequencies: what a row of S1 gives is close to Poisson, and no wider."""
    random, length, p, runs = np.random.default_rng(8), 40, 0.4, 500
    frequency = np.array([0.5, 0.3, 0.15, 0.05])
    expected = np.array([float(expect(length * f)) for f in frequency])
    shares = [missed_shares(length * f)[int(n)] for f, n in zip(frequency, expected, strict=True)]
    bound = float(frequency**2 @ shares / (frequency @ frequency))
    # S1 brings a row per unit of time, then nothing more: each row is met for its whole life.
    stream = np.concatenate([np.tile([0, 1], 50), np.ones(length, np.int64)])
    time = np.concatenate([np.arange(100) // 2, 50 + np.arange(length)])
    errors, missed, counts = [], [], []
    for seed in range(runs):
        key = random.choice(4, len(time), p=frequency)
        rows = list(zip(stream.tolist(), time.tolist(), key.tolist(), strict=True))
        results = naive.join_results(rows, (length - 1, None))
        n = np.bincount([held for _, _, held, _ in results], minlength=len(time))
        join = SamplingJoin(UNIFORM, (length - 1, None), (100, 0), (p, p), seed)
        errors.append(len(join.take(stream, time, key, expected[key]).sample.time) / p - len(results))
        missed.append(np.maximum(n - expected[key], 0).sum())
        counts.append(len(results))
    assert deviation(np.add(errors, missed), 0.0) < 3
    assert 0 < np.sum(missed) / np.sum(counts) <= bound
    if expect is not round:
        assert bound <= 0.01


CLUSTERED = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.floats(0.05, 1), st.floats(-9, 9)), min_size=1, max_size=12
)


@given(CLUSTERED, st.integers(0, 20), st.integers(0, 20))
def test_a_windowed_estimate_is_that_of_the_definition(
    drawn: list[tuple[int, int, float, float]], at: int, window: int
) -> None:
    """Probabilities of a cluster fall as time goes on."""
    time = np.cumsum([gap for gap, _, _, _ in drawn])
    cluster = np.array([number for _, number, _, _ in drawn])
    probability, x = np.array([p for _, _, p, _ in drawn]), np.array([value for _, _, _, value in drawn])
    for number in range(4):
        probability[cluster == number] = np.minimum.accumulate(probability[cluster == number])
    found = windowed(time, cluster, probability, x, np.array([at]), window)
    inside = [row for row in range(len(time)) if 0 <= at - time[row] <= window]
    own = [column[inside].tolist() for column in (cluster, probability)]
    total, count = (x[inside] / probability[inside]).sum(), (1 / probability[inside]).sum()
    assert found.sums.value[0] == pytest.approx(total, abs=1e-9)
    assert found.counts.value[0] == pytest.approx(count)
    assert found.sums.error[0] ** 2 == pytest.approx(naive.squared_error(*own, x[inside].tolist()), abs=1e-6)
    assert found.counts.error[0] ** 2 == pytest.approx(naive.squared_error(*own, [1.0] * len(inside)), abs=1e-6)
    if not inside:
        assert np.isnan(found.averages.value[0])
        return
    assert found.averages.value[0] == pytest.approx(total / count, abs=1e-9)
    residual = naive.squared_error(*own, (x[inside] - total / count).tolist())
    assert found.averages.error[0] ** 2 == pytest.approx(residual / count**2, abs=1e-6)
    assert found.averages.low[0] <= found.averages.value[0] <= found.averages.high[0]
