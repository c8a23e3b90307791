"""Reduction of one stream: the paper's Table 1 and Figures 9 and 10, and how much stays.

Workloads are seeded and made outside the timed body; the best of several runs counts, in seconds of the clock and of
the CPU (on a busy machine only the latter is worth comparing).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.algorithm1 import algorithm1, inversions
from benchmarks.threshold_plots import PLOTS, draw
from benchmarks.threshold_series import gamma_wiener, recordings, wiener, with_gaps
from tocsin.operators.retention.bracketing import CLOSED, NEVER, SegmentRows, compute_departure_ranks
from tocsin.operators.retention.threshold_sorter import ThresholdSorter, retained

SIGMAS = (0, 1, 10, 100, 1000, 10_000, 100_000)
INTERVAL, BATCH = 100, 10_000


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks threshold-kernel", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    parser.add_argument("--plots", type=Path, default=PLOTS, help="folder of the plots")
    parser.add_argument("--quick", action="store_true", help="small inputs: only to see that it runs")
    options = parser.parse_args(argv)
    size, runs = (20_000, 1) if options.quick else (1_000_000, 5)
    results = {
        "tuples": size,
        "speed": speed(size, runs),
        "table_1": table_1(size, 1 if options.quick else 3),
        "figure_10": figure_10(100_000 if options.quick else 10_000_000),
        "how_much_stays": how_much_stays(size),
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    draw(results, options.plots)
    return 0


def best(body: Callable[[], Any], runs: int) -> dict[str, float]:
    """Run once to warm up, then give the shortest time of the clock and of the CPU."""
    body()
    clock, cpu = [], []
    for _ in range(runs):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        body()
        clock.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    return {"seconds": round(min(clock), 5), "cpu_seconds": round(min(cpu), 5)}


def uniform(size: int, values: str, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The paper's s-unif and s-wiener: about ten time units from tuple to tuple, no time twice."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.choice(10 * size, size, replace=False))
    return t, rng.random(size) if values == "s-unif" else wiener(rng, t)


def shuffled(t: np.ndarray, v: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    arrival = np.argsort(t + np.random.default_rng(2).normal(0, sigma, t.size), kind="stable") if sigma else slice(None)
    return t[arrival], v[arrival]


def pushed(t: np.ndarray, v: np.ndarray) -> ThresholdSorter:
    sorter = ThresholdSorter(INTERVAL)
    for start in range(0, t.size, BATCH):
        sorter.push(t[start : start + BATCH], v[start : start + BATCH])
    return sorter


def speed(size: int, runs: int) -> dict[str, Any]:
    t, v = uniform(size, "s-unif")
    late_t, late_v = shuffled(t, v, 100_000)
    bodies: dict[str, Callable[[], Any]] = {
        "retained, in order": lambda: retained(t, v, INTERVAL),
        "retained, sigma 100000": lambda: retained(late_t, late_v, INTERVAL),
        "push of 10000, in order": lambda: pushed(t, v),
        "push of 10000, sigma 100000": lambda: pushed(late_t, late_v),
        "going, 1000 segments, in order": _going(t, v, 1000),
    }
    results = {}
    for name, body in bodies.items():
        taken = best(body, runs)
        results[name] = taken | {"million_per_cpu_second": round(size / taken["cpu_seconds"] / 1e6, 2)}
    return results


def _going(t: np.ndarray, v: np.ndarray, segments: int) -> Callable[[], None]:
    number = np.random.default_rng(3).integers(0, segments, t.size)
    order = np.argsort(number, kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(number, minlength=segments))))
    t, v, none = t[order], v[order], np.zeros(t.size, np.int64)
    rows = SegmentRows(t, v, t, t, np.zeros(t.size, np.bool_), none, order)
    lengths = np.full((2, segments), INTERVAL * segments)
    order_out, gone_out = np.empty(t.size, np.int64), np.full(t.size, NEVER)
    return lambda: compute_departure_ranks(
        (offsets, np.zeros(segments, np.int64)), rows, (lengths, CLOSED), order_out, gone_out
    )


def table_1(size: int, runs: int) -> list[dict[str, Any]]:
    rows = []
    for sigma in SIGMAS:
        for values in ("s-unif", "s-wiener"):
            t, v = shuffled(*uniform(size, values), sigma)
            # The sorted array of the yardstick shifts thousands of tuples per insertion there: a tenth shows it.
            share = size // 10 if sigma >= 10_000 else size
            times, head_v = t[:share].astype(np.float64), v[:share]
            rows.append(
                {
                    "stream": values,
                    "sigma": sigma,
                    "inversion_rate": inversions(t) / (size * (size - 1) / 2),
                    "push": best(lambda t=t, v=v: pushed(t, v), runs),
                    "kept": len(pushed(t, v)),
                    "minimum": int(retained(t, v, INTERVAL).sum()),
                    "algorithm_1": best(lambda t=times, v=head_v: algorithm1(t, v, float(INTERVAL)), runs),
                    "algorithm_1_tuples": share,
                    "algorithm_1_kept": algorithm1(times, head_v, float(INTERVAL)),
                }
            )
    return rows


def figure_10(size: int) -> dict[str, list[dict[str, float]]]:
    """Give what stays against the mean number of tuples per interval, which doubles from point to point."""
    series = {"Gamma-Wiener": gamma_wiener(size), "random walk with gaps": with_gaps(size // 10)} | recordings()
    return {name: [_stays(t, v, 2.0**power) for power in range(-3, 14)] for name, (t, v) in series.items()}


def _stays(t: np.ndarray, v: np.ndarray, per_interval: float) -> dict[str, float]:
    span = float(t[-1] - t[0])
    interval = max(1, round(span * per_interval / t.size)) if t.dtype.kind == "i" else span * per_interval / t.size
    kept = int(retained(t, v, interval).sum())
    return {
        "tuples_per_interval": t.size * interval / span,
        "fraction": kept / t.size,
        "per_interval": kept * interval / span,
    }


def how_much_stays(size: int) -> dict[str, list[dict[str, float]]]:
    rng = np.random.default_rng(4)
    t = np.arange(size)
    series = {"independent values": rng.random(size), "random walk": np.cumsum(rng.normal(0, 1, size))}
    powers = range(2, 13 if size > 100_000 else 9)
    return {name: [_stays(t, v, 2.0**power) for power in powers] for name, v in series.items()}
