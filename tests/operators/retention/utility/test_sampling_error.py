"""Errors that are foretold of samples, against those of samples."""

from __future__ import annotations

import numpy as np
import pytest

from tocsin.operators.retention.cluster_sampling import EQ_CLUSTER, PPS_CLUSTER, UNIFORM
from tocsin.operators.retention.uniform_sampling import SamplingJoin
from tocsin.operators.retention.utility.sample_estimates import windowed
from tocsin.operators.retention.utility.sampling_error import Population, closest, relative_errors

ROWS, RESULTS = np.array([120.0, 60.0, 20.0]), np.array([1.0, 4.0, 15.0])


def stream(seed: int, mean: float, deviation: float) -> tuple[np.ndarray, ...]:
    """First all rows of S1, then those of S2: each row of S1 with a key meets the same ones."""
    random = np.random.default_rng(seed)
    key1, key2 = (np.repeat(np.arange(3), counts.astype(int)) for counts in (ROWS, RESULTS))
    value = random.normal(mean, deviation, len(key1) + len(key2))
    kind = np.repeat([0, 1], [len(key1), len(key2)])
    return kind, np.arange(len(value)), np.concatenate([key1, key2]), np.concatenate([RESULTS[key1], 0 * key2]), value


@pytest.mark.parametrize("kind", [UNIFORM, EQ_CLUSTER, PPS_CLUSTER])
@pytest.mark.parametrize("of_held", [True, False])
def test_errors_are_as_large_as_foretold(kind: int, of_held: bool) -> None:
    p, mean, deviation, runs = {UNIFORM: 0.2, EQ_CLUSTER: 0.3, PPS_CLUSTER: 0.08}[kind], 50.0, 20.0, 600
    errors = []
    for seed in range(runs):
        rows = stream(seed, mean, deviation)
        sample = SamplingJoin(kind, (10**6, None), (1000, 0), (p, p), seed).take(*rows).sample
        x = sample.held_value if of_held else sample.probe_value
        found = windowed(sample.time, sample.clusters(kind), sample.probability, x, np.array([10**6]), 10**6)
        everything = SamplingJoin(EQ_CLUSTER, (10**6, None), (1000, 0), (1.0, 1.0)).take(*rows).sample
        true = everything.held_value if of_held else everything.probe_value
        errors.append([found.sums.value[0] / true.sum() - 1, found.averages.value[0] / true.mean() - 1])
    measured = np.array(errors).std(axis=0)
    of = Population(ROWS, RESULTS, mean, deviation, of_held)
    sum_error, avg_error = relative_errors(kind, p, of)
    assert measured[0] == pytest.approx(sum_error, rel=0.12)
    # Numbers of S2 are few here and shared by all rows of a key: clusters do better than drawn ones would.
    if of_held:
        assert measured[1] == pytest.approx(avg_error, rel=0.12)
    else:
        assert measured[1] < 1.3 * avg_error


def test_the_closest_way_to_sample_depends_on_sizes_values_and_what_is_known() -> None:
    fractions = {UNIFORM: 0.12, EQ_CLUSTER: 0.1, PPS_CLUSTER: 0.1 / 4}
    unequal, equal = Population(ROWS, RESULTS), Population(ROWS, np.full(3, 4.0))
    # Of unequal sizes large clusters must not be missed; of equal sizes it makes no difference.
    cluster = {kind: fractions[kind] for kind in (EQ_CLUSTER, PPS_CLUSTER)}
    assert closest(cluster, unequal, 0.0) == PPS_CLUSTER
    assert closest({EQ_CLUSTER: 0.1, PPS_CLUSTER: 0.1 / 4}, equal, 0.0) == EQ_CLUSTER
    # Where a value is shared by a cluster UNIFORM is closer, unless its n(s) is known badly.
    shared = Population(ROWS, RESULTS, 100.0, 100.0)
    assert closest(fractions, shared, 0.0, averages=True) == UNIFORM
    assert closest(fractions, shared, 0.5, averages=True) == PPS_CLUSTER
    # Where memory allows clusters a larger fraction, and values are not shared, clusters are.
    apart = shared._replace(of_held=False)
    assert closest({UNIFORM: 0.12, EQ_CLUSTER: 0.2, PPS_CLUSTER: 0.1}, apart, 0.0, averages=True) == PPS_CLUSTER
