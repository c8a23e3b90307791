"""Runs of the shedding join: recall by policy and memory, the division of memory, and speed.

A run gives rows: part, data, policy, memory in percent of what the whole window takes (measured rates), recall after
the first window (after the warm-up, of recordings), and what the theory says.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import memory_data as data
from benchmarks.memory_data import UNIT, W1, Float, Streams
from benchmarks.papers.p001 import baselines
from benchmarks.papers.p001 import policies as policy
from benchmarks.papers.p001.policies import Policy
from benchmarks.papers.p001.shedding_join import Arrivals, SheddingJoin, band, equi, open_window
from tocsin.operators.retention.utility import frequency_model as frequency
from tocsin.operators.retention.utility.age_model import AgeCurve
from tocsin.operators.retention.utility.alloc import alloc
from tocsin.operators.retention.utility.memory_curves import RateCurve, divide

Row = dict[str, Any]
PERCENTS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
# The WAN trace has all its results between 61 and 75 s of 120 s.
WAN_PERCENTS = (10, 20, 30, 40, 50, 52, 54, 56, 58, 60, 70, 80, 90, 100)
SKEWS = (0.0, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0)
POWERS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)


class Join:
    """Arrivals with the results of the exact join, from a time on."""

    def __init__(
        self, arrivals: Arrivals, lengths: Sequence[int], keys: int, since: int, *, ranges: bool = False
    ) -> None:
        self.arrivals, self.lengths, self.keys, self.ranges = arrivals, lengths, keys, ranges
        self.counted = arrivals.clock[:, 0] >= since
        rows = [int((arrivals.stream == i).sum()) if length else 0 for i, length in enumerate(lengths)]
        self.exact = self.results(rows, [policy.recent(length) for length in lengths])

    def results(self, budgets: Sequence[int], policies: Sequence[Policy]) -> int:
        """Count results; a window of length 0 is none."""
        windows = [
            open_window(length, budget, chosen, self.keys) if length else None
            for length, budget, chosen in zip(self.lengths, budgets, policies, strict=True)
        ]
        join = SheddingJoin(windows, ranges=self.ranges)
        hits = join.count(self.arrivals)
        assert all(most <= budget for most, budget in zip(join.most_held, budgets, strict=True))
        return int(hits[self.counted].sum())

    def recall(self, *windows: tuple[float, Policy]) -> float:
        """The share of the exact results, with a budget and a policy for each window; those left out have none."""
        given = [*windows, *[(0.0, policy.recent(0))] * (2 - len(windows))]
        return self.results([int(budget) for budget, _ in given], [chosen for _, chosen in given]) / self.exact


def wan(part: str, *, quick: bool) -> Iterator[Row]:
    """Figures 5 and 6: the age curve of the trace, found by an initial pass, and recall by memory."""
    streams = data.wan(400 if quick else 2400, 1)
    arrivals, length = band(*streams, *data.WAN_BAND), data.WAN_W1
    join = Join(arrivals, (length, 0), len(streams.keys[0]), length, ranges=True)
    curve = AgeCurve(observed(streams, *data.WAN_BAND, length, data.WAN_GRANULE), data.WAN_GRANULE)
    facts = {"part": part, "data": "WAN"}
    yield facts | {
        "curve": (curve.p / curve.n).round(6).tolist(),
        "n1": curve.n,
        "peak_s": int(np.argmax(curve.p)) / 10,
        "k_opt_s": curve.k_opt / 10,
    }
    yield from by_policy(facts, join, curve, streams.rate(0), length, (20, 50, 60) if quick else WAN_PERCENTS)


def observed(streams: Streams, low: int, high: int, length: int, granule: int) -> Float:
    """Results per row of S1 by age; rows whose window is not over do not count."""
    (time1, time2), (value1, value2) = streams
    order = np.argsort(value1, kind="stable")
    first, last = np.searchsorted(value1[order], value2 - high), np.searchsorted(value1[order], value2 - low, "right")
    size = last - first
    row2 = np.repeat(np.arange(len(time2)), size)
    row1 = order[np.arange(size.sum()) - np.repeat(np.cumsum(size) - size - first, size)]
    age, whole = time2[row2] - time1[row1], time1 <= time1[-1] - length
    alive = whole[row1] & (age >= 0) & (age <= length)
    return np.bincount(age[alive] // granule, minlength=length // granule) / whole.sum()


def ages(part: str, *, quick: bool) -> Iterator[Row]:
    """Figure 7: three age curves."""
    for shape in data.SHAPES:
        join, curve, rate = aged_join(data.age_shape(shape), 4_000 if quick else 100_000)
        yield from by_policy(
            {"part": part, "data": shape, "k_opt": curve.k_opt * curve.granule / UNIT},
            join,
            curve,
            rate,
            W1,
            (20, 50, 70) if quick else PERCENTS,
        )


def aged_join(p: Float, units: int) -> tuple[Join, AgeCurve, float]:
    """Streams by an age curve, the curve with the n1 that was measured, and r1."""
    streams = data.aged(p, units, 1)
    r1, r2 = streams.rate(0), streams.rate(1)
    join = Join(equi(*streams), (W1, 0), len(streams.times[0]) + 1, W1)
    return join, AgeCurve(p * r2 / r1, W1 // len(p)), r1


def by_policy(facts: Row, join: Join, curve: AgeCurve, rate: float, length: int, percents: Any) -> Iterator[Row]:
    """Recall of all policies by memory, beside Eq. 3."""
    policies = {
        "AGE": policy.age(curve, length),
        "RECENT": policy.recent(length),
        "UNTIL-EXPIRY": baselines.until_expiry(length),
        "RANDOM": baselines.random(1),
    }
    theory = curve.rate_curve(rate)
    for percent in percents:
        budget = round(rate * length * percent / 100)
        for name, chosen in policies.items():
            row = {"policy": name, "memory_percent": percent, "recall": join.recall((budget, chosen))}
            yield facts | row | {"theory": theory.recall_at(budget)}


def skews(part: str, *, quick: bool) -> Iterator[Row]:
    """Figure 10: two joins by frequency, DC and IC, share a fifth of the memory that they need."""
    for z in SKEWS[::3] if quick else SKEWS:
        joins = []
        for case in ("DC", "IC"):
            f1, f2 = data.frequencies(case, z, 1)
            # Of IC most results come from a handful of rows, so the stream is long.
            streams = data.drawn(f1, f2, 4_000 if quick else 400_000, 1)
            curve = frequency.rate_curve(f1, f2, streams.rate(0), streams.rate(1), W1)
            joins.append((case, Join(equi(*streams), (W1, 0), len(f1), W1), curve, policy.prob(f2)))
        yield from shared({"part": part, "z": z}, joins, streams.rate(0) * W1, 0.2)


def powers(part: str, *, quick: bool) -> Iterator[Row]:
    """Figure 11: two joins by age, k^p and (m - k)^p, share half of the memory that they need."""
    for power in POWERS[::3] if quick else POWERS:
        joins = []
        for shape in ("INC", "DEC"):
            join, curve, rate = aged_join(data.age_shape(shape, power), 4_000 if quick else 100_000)
            joins.append((shape, join, curve.rate_curve(rate), policy.age(curve, W1)))
        yield from shared({"part": part, "power": power}, joins, rate * W1, 0.5)


def shared(facts: Row, joins: list[tuple[str, Join, RateCurve, Policy]], whole: float, share: float) -> Iterator[Row]:
    """Divide memory by ALLOC and by PROP, and measure each join."""
    memory = share * whole * len(joins)
    needs = [lambda q, curve=curve: curve.memory_for(q * curve.most) for _, _, curve, _ in joins]
    by_window = [lambda q: q * whole] * len(joins)
    for name, parts in (
        ("ALLOC", alloc(needs, memory)[0]),
        ("PROP", baselines.divide_in_proportion(by_window, memory)),
    ):
        for (case, join, curve, chosen), budget in zip(joins, parts, strict=True):
            row = {"data": case, "division": name, "memory_percent": 100 * budget / whole}
            yield facts | row | {"recall": join.recall((budget, chosen)), "theory": curve.recall_at(budget)}


def split(part: str, *, quick: bool) -> Iterator[Row]:
    """A fifth of the memory for both windows of a join by frequency: the split that is chosen, and all in steps."""
    lengths = (W1, W1 // 5)
    for case in data.CASES:
        f = data.frequencies(case, 1.0, 1)
        streams = data.drawn(*f, 4_000 if quick else 50_000, 1)
        rates = streams.rate(0), streams.rate(1)
        join = Join(equi(*streams), lengths, len(f[0]), W1)
        policies = policy.prob(f[1]), policy.prob(f[0])
        curves = [frequency.rate_curve(f[i], f[1 - i], rates[i], rates[1 - i], lengths[i]) for i in (0, 1)]
        memory = 0.2 * (rates[0] * lengths[0] + rates[1] * lengths[1])
        most = sum(curve.most for curve in curves)
        for name, own in [("chosen", divide(curves, memory)[0]), *(("step", memory * k / 20) for k in range(21))]:
            row = {"part": part, "data": case, "way": name, "s1_percent": 100 * own / memory}
            theory = (curves[0].rate_at(own) + curves[1].rate_at(memory - own)) / most
            budgets = int(own), int(memory) - int(own)
            yield row | {"recall": join.recall(*zip(budgets, policies, strict=True)), "theory": theory}


def speed(part: str, *, quick: bool) -> Iterator[Row]:
    """Rows per second on one core, with half of the memory: counting, and of Zipf streams listing every result."""
    units, repeats = (2_000, 1) if quick else (200_000, 5)
    for shape in data.SHAPES:
        p = data.age_shape(shape)
        streams = data.aged(p, units, 1)
        chosen = policy.age(AgeCurve(p, W1 // len(p)), W1)
        yield {"part": part, "data": shape, "does": "count"} | timed(streams, [chosen], repeats)
    for case in data.CASES:
        f = data.frequencies(case, 1.0, 1)
        policies = [policy.prob(f[1]), policy.prob(f[0])]
        for does, share in (("count", 1), ("list", 10)):
            streams = data.drawn(*f, units // share, 1)
            for used in (policies[:1], policies):
                yield {"part": part, "data": case, "does": does} | timed(streams, used, repeats, does=does)


def timed(streams: Streams, policies: list[Policy], repeats: int, does: str = "count") -> Row:
    """Run a join some times; the median counts."""
    arrivals, keys = equi(*streams), int(max(column.max() for column in streams.keys)) + 1
    budgets = [int(streams.rate(i) * W1 / 2) for i in range(len(policies))]
    taken, results = [], 0
    for _ in range(repeats + 1):  # The first one compiles.
        windows = [
            open_window(W1, budget, chosen, keys, listing=does == "list")
            for budget, chosen in zip(budgets, policies, strict=True)
        ]
        join = SheddingJoin([*windows, *[None] * (2 - len(windows))])
        begin = time.process_time()
        results = run_batches(join, arrivals, does)
        taken.append(time.process_time() - begin)
    seconds = statistics.median(taken[1:])
    return {
        "windows": len(policies), "rows": len(arrivals.stream), "results": results, "seconds": seconds,
        "rows_per_second": len(arrivals.stream) / seconds, "results_per_second": results / seconds,
    }  # fmt: skip


def run_batches(join: SheddingJoin, arrivals: Arrivals, does: str, size: int = 10_000) -> int:
    """Take rows in batches and give how many results there were."""
    for begin in range(0, len(arrivals.stream), size):
        getattr(join, "pairs" if does == "list" else "count")(arrivals.between(begin, begin + size))
    return int(join.results.sum())
