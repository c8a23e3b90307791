"""Runs of the sampling join: Figures 8 and 9, the error of windowed averages by memory and by spread of the values.

A run gives rows: part, data, way to sample, stream of the aggregated attribute, kind of budget, memory in percent of
what the whole window takes, sigma / mu, seed, the mean of |estimate - truth| / |truth| over all units of time, the p at
the start and at the end, the most rows held in percent of the window, COUNT of the whole run by the true one, less 1,
and how often the 95 % interval has the truth.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import memory_data as data
from benchmarks.memory_data import UNIT, W1, Float, Int
from benchmarks.papers.p001.shedding_join import equi
from tocsin.operators.retention.cluster_sampling import EQ_CLUSTER, PPS_CLUSTER, UNIFORM
from tocsin.operators.retention.uniform_sampling import Sample, SamplingJoin
from tocsin.operators.retention.utility.frequency_model import expected_results
from tocsin.operators.retention.utility.sample_estimates import Estimate, windowed
from tocsin.operators.retention.utility.sampling_error import Population, closest, relative_errors
from tocsin.operators.retention.utility.sampling_fraction import (
    missed_shares,
    planned_use,
    pps_fraction,
    solve,
    uniform_use_by_frequency,
)
from tocsin.operators.retention.utility.stream_monitor import Monitor

Row = dict[str, Any]
WAYS = {"UNIFORM": UNIFORM, "EQ-CLUSTER": EQ_CLUSTER, "PPS-CLUSTER": PPS_CLUSTER}
# The window of the aggregate, as in the paper, and the bytes of a row, with and without the counters of UNIFORM.
W_AGG, BYTES, BYTES_UNIFORM = 500 * UNIT, 32, 34
PERCENTS = (3, 5, 10, 15, 20, 30, 40, 50, 60, 80, 100)
SPREADS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
SEEDS, UNITS = 21, 10_000
# `expected`: the budget is used on average, as in the paper; `hard`: it is never exceeded, and overflow is rare.
BUDGETS, OVERFLOW = ("expected", "hard"), 1e-3
# Gaps are uniform from 1/2r to 2/r: the variance of the number of rows in a window, by its mean.
DISPERSION = 0.12


class Sampling(NamedTuple):
    """Streams by the frequency-based model, a standard normal number for each row, and all results of the join."""

    f: tuple[Float, Float]
    rates: tuple[float, float]
    stream: Int
    time: Int
    key: Int
    value: Float
    whole: Sample
    at: Int

    @property
    def most(self) -> float:
        """The rows of a whole window."""
        return self.rates[0] * W1

    @property
    def n(self) -> Float:
        """The results that the model expects of a row, by value."""
        return expected_results(self.f[1], self.rates[1], W1)

    def run(self, way: str, p: float, memory: int, seed: int) -> tuple[SamplingJoin, Sample]:
        """Sample with a fraction; UNIFORM takes n(s) for the least whole number that is not below what is expected."""
        n = np.ceil(self.n) if way == "UNIFORM" else self.n
        join = SamplingJoin(WAYS[way], (W1, None), (memory, 0), (p, p), seed)
        return join, join.take(self.stream, self.time, self.key, n[self.key], self.value).sample

    def fraction(self, way: str, mean: float) -> float:
        """The p with which so many rows are used on average."""
        (f1, f2), (r1, r2) = self.f, self.rates
        if way == "UNIFORM":
            return solve(lambda p: uniform_use_by_frequency(f1, f2, r1, r2, W1, p), mean)
        return min(1.0, mean / self.most) if way == "EQ-CLUSTER" else pps_fraction(self.most * f1, self.n, mean)

    def missed(self) -> float:
        """The share of results that UNIFORM never samples, as the model has it: a bias of COUNT."""
        shares = [missed_shares(n)[int(np.ceil(n))] for n in self.n.tolist()]
        weight = self.f[0] * self.n
        return float(weight @ shares / weight.sum())


def sampling(case: str, seed: int, units: int) -> Sampling:
    """Streams of a case with Z = 2."""
    f = data.frequencies(case, 2.0, seed)
    streams = data.drawn(*f, units, seed)
    arrivals = equi(*streams)
    time = np.ascontiguousarray(arrivals.clock[:, 0])
    value = np.random.default_rng([seed, 6]).standard_normal(len(time))
    everything = SamplingJoin(EQ_CLUSTER, (W1, None), (len(streams.times[0]), 0), (1.0, 1.0))
    whole = everything.take(arrivals.stream, time, arrivals.key, np.zeros(len(time)), value).sample
    rates = streams.rate(0), streams.rate(1)
    at = np.arange(W1 + W_AGG, int(time[-1]), UNIT)
    return Sampling(f, rates, arrivals.stream, time, arrivals.key, value, whole, at)


def averages(sample: Sample, attribute: str, at: Int) -> tuple[Float, Int]:
    """The exact averages of all results in the window at each moment, by running sums, and how many there are."""
    total = np.concatenate([[0.0], np.cumsum(_values(sample, attribute))])
    first, last = np.searchsorted(sample.time, at - W_AGG, "left"), np.searchsorted(sample.time, at, "right")
    return (total[last] - total[first]) / np.maximum(last - first, 1), last - first


def _values(sample: Sample, attribute: str) -> Float:
    return sample.held_value if attribute == "S1" else sample.probe_value


def errors(of: Sampling, estimate: Estimate, attribute: str, spread: float) -> Row:
    """The error of averages of values 1 + spread z, where those of z are known; moments without any are counted."""
    truth, results = averages(of.whole, attribute, of.at)
    true, found = 1 + spread * truth, 1 + spread * estimate.value
    known = (results > 0) & ~np.isnan(estimate.value)
    covered = (estimate.low <= truth) & (truth <= estimate.high)
    return {
        "spread": spread,
        "error": float(np.mean(np.abs(found - true)[known] / np.abs(true)[known])),
        "covered": float(covered[known].mean()),
        "without": float(1 - known.mean()),
    }


def samples_of(of: Sampling, percent: float, budget: str, seed: int, spreads: tuple[float, ...]) -> Iterator[Row]:
    """Sample in each way with so much memory, and estimate averages of an attribute of either stream."""
    fractions = {}
    for way, kind in WAYS.items():
        rows = of.most * percent / 100 * (BYTES / BYTES_UNIFORM if way == "UNIFORM" else 1)
        mean = planned_use(rows, of.most, OVERFLOW, DISPERSION) if budget == "hard" else rows
        p = fractions[kind] = of.fraction(way, mean)
        join, sample = of.run(way, p, int(rows) if budget == "hard" else len(of.time), seed)
        facts = {
            "way": way, "budget": budget, "memory_percent": percent, "seed": seed,
            "p": p, "p_at_end": float(join.state.one.fraction[0]), "most_percent": 100 * join.most_held[0] / of.most,
            "count_bias": float(np.sum(1 / sample.probability)) / len(of.whole.time) - 1,
        }  # fmt: skip
        for attribute in ("S1", "S2"):
            clusters, x = sample.clusters(kind), _values(sample, attribute)
            estimate = windowed(sample.time, clusters, sample.probability, x, of.at, W_AGG).averages
            for spread in spreads:
                yield facts | {"attribute": attribute} | errors(of, estimate, attribute, spread)
    yield from _choices(of, fractions, {"budget": budget, "memory_percent": percent, "seed": seed}, spreads)


def _choices(of: Sampling, fractions: Mapping[int, float], facts: Row, spreads: tuple[float, ...]) -> Iterator[Row]:
    """The way that `closest` takes, by what the model knows, and the error of AVG that it foretells of each.

    What UNIFORM misses comes on top.
    """
    names = {kind: way for way, kind in WAYS.items()}
    for attribute in ("S1", "S2"):
        for spread in spreads:
            population = Population(of.rates[0] * W_AGG * of.f[0], of.n, 1.0, spread, attribute == "S1")
            chosen = names[closest(fractions, population, of.missed(), averages=True)]
            foretold = {names[kind]: relative_errors(kind, p, population)[True] for kind, p in fractions.items()}
            about = {"attribute": attribute, "spread": spread, "foretold": foretold}
            yield facts | about | {"chosen": chosen, "missed": of.missed()}


def samples(part: str, *, quick: bool) -> Iterator[Row]:
    """Figure 8: IC, Z = 2, mu = sigma, by memory."""
    for seed in range(1, (3 if quick else SEEDS) + 1):
        of = sampling("IC", seed, 2_000 if quick else UNITS)
        for budget in BUDGETS:
            for percent in (10, 50) if quick else PERCENTS:
                for row in samples_of(of, percent, budget, seed, (1.0,)):
                    yield {"part": part, "data": "IC"} | row


def spreads(part: str, *, quick: bool) -> Iterator[Row]:
    """Figure 9: UC, Z = 2, 10 % of the memory, by sigma / mu."""
    for seed in range(1, (3 if quick else SEEDS) + 1):
        of = sampling("UC", seed, 2_000 if quick else UNITS)
        for budget in BUDGETS:
            for row in samples_of(of, 10, budget, seed, (0.1, 1.0) if quick else SPREADS):
                yield {"part": part, "data": "UC"} | row


def speed(part: str, *, quick: bool) -> Iterator[Row]:
    """Rows per second on one core: sampling with a tenth of the memory, and watching 2 % of the rows."""
    of = sampling("IC", 1, 2_000 if quick else 100_000)
    for way in WAYS:
        p = of.fraction(way, planned_use(0.1 * of.most, of.most, OVERFLOW, DISPERSION))
        seconds = _seconds(partial(of.run, way, p, int(0.1 * of.most), 1), 1 if quick else 5)
        yield {"part": part, "data": "IC", "does": way, "rows_per_second": len(of.time) / seconds}
    watched = _seconds(lambda: Monitor((W1, None)).take(of.stream, of.time, of.key), 1 if quick else 5)
    yield {"part": part, "data": "IC", "does": "monitor", "rows_per_second": len(of.time) / watched}


def _seconds(does: Callable[[], Any], repeats: int) -> float:
    """The median processor time; the first run compiles."""
    taken = []
    for _ in range(repeats + 1):
        begin = time.process_time()
        does()
        taken.append(time.process_time() - begin)
    return statistics.median(taken[1:])
