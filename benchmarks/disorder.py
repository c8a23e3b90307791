"""Measure how long rows must wait for a recall: Figures 6 to 11 and Table II of Ji et al., ICDE 2016, and beside them.

Three datasets (`disorder_data.py`): a football match (x2) and two synthetic ones (x3, x4). Every run is one pass of a
whole dataset (for Figure 11, of its first minutes); every seed's figures are written, and the summary holds medians or
means of them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.conditions import conditions
from benchmarks.disorder_data import RECORDING, SECOND, Dataset, make
from benchmarks.disorder_plots import PLOTS, draw
from benchmarks.disorder_runs import MOST_US, Truth, run, told, true_results, waiting, warm_up
from benchmarks.disorder_summary import summarize

RECALLS = (0.9, 0.95, 0.99, 0.999)
STRATEGIES = ("EqSel", "NonEqSel", "Measured", "Observed")
SEEDS = (1, 2, 3, 4, 5)
# Waits, in seconds, among which the best fixed one is looked for.
WAITS = {
    "x2": (0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.35, 0.5, 0.8, 1.5, 3, 6, 12, 26),
    "x3": (0.3, 0.5, 0.8, 1.2, 2, 4, 6, 7, 9, 12, 14, 15, 16, 18),
    "x4": (0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2, 3, 4, 6, 9, 15),
}
# Figures 8 to 10: P, L and g, on two datasets at two recalls.
SWEPT = {
    "period": ("over_us", (10 * SECOND, 30 * SECOND, 60 * SECOND, 120 * SECOND, 180 * SECOND)),
    "interval": ("every_us", (SECOND // 10, SECOND // 2, SECOND, 5 * SECOND, 10 * SECOND)),
    "grain": ("grain_us", (1_000, 10_000, 100_000, 1_000_000)),
}
SWEPT_AT = (0.95, 0.99)
SWEPT_DATA = ("x2", "x3")
SWEPT_STRATEGIES = ("NonEqSel", "Measured", "Observed")
# Figure 11: time of an adaptation step, over the first minutes.
STEP_S = 300
STEP_GRAINS_US = (1_000, 10_000, 100_000, 1_000_000)
PARTS = ("baselines", "recall", "fixed", *SWEPT, "step")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks disorder", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results to this file too, after every part")
    parser.add_argument("--quick", action="store_true", help="a minute of data, one seed: only to see that it runs")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {', '.join(PARTS)}")
    parser.add_argument("--plots", type=Path, help=f"draw into this folder (the published ones are in {PLOTS.name}/)")
    options = parser.parse_args(argv)
    parts = options.only.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"--only must name parts of {', '.join(PARTS)}; got {options.only}")
    bench = Bench(quick=options.quick)
    results = bench.told | conditions()
    start = time.perf_counter()
    for part in parts:
        results["runs"] = results.get("runs", []) + list(bench.part(part))
        results["summary"] = summarize(results["runs"])
        results["seconds"] = round(time.perf_counter() - start, 1)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results["summary"], indent=1))
    if options.plots:
        draw(results, options.plots)
    return 0


class Bench:
    """What is run, part by part; a dataset and its truth are made once."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.seeds = SEEDS[:1] if quick else SEEDS
        self.over_us = 15 * SECOND if quick else 60 * SECOND
        self.names = ("x2", "x3", "x4") if RECORDING.exists() else ("x3", "x4")
        self.told: dict[str, Any] = {"quick": quick, "datasets": list(self.names), "seeds": list(self.seeds)}
        for name in self.names:
            warm_up(self.data(name, self.seeds[0])[0], ("none", *STRATEGIES))

    @cache  # noqa: B019 -- one object per process
    def data(self, name: str, seed: int) -> tuple[Dataset, Truth]:
        """A dataset and its truth."""
        data = make(name, seed, quick=self.quick)
        return data, true_results(data)

    def part(self, part: str) -> Iterator[dict[str, Any]]:
        """Run one part."""
        if part == "baselines":
            for name in self.names:
                for seed in self.seeds:
                    for way in ("none", "max"):
                        yield self.one(part, name, seed, way, series=seed == self.seeds[0])
        elif part == "recall":
            for name in self.names:
                for seed in self.seeds:
                    for wanted in RECALLS:
                        for way in STRATEGIES:
                            series = seed == self.seeds[0] and wanted == 0.99
                            yield self.one(part, name, seed, way, wanted, series=series)
        elif part == "fixed":
            for name in self.names:
                for seed in self.seeds:
                    for wait in WAITS[name][:: 5 if self.quick else 1]:
                        yield self.one(part, name, seed, f"{wait}s")
        elif part == "step":
            for name in self.names:
                for wanted in RECALLS:
                    for grain_us in STEP_GRAINS_US[1:2] if self.quick else STEP_GRAINS_US:
                        yield self.one(part, name, self.seeds[0], "NonEqSel", wanted, grain_us=grain_us)
        else:
            yield from self.swept(part)

    def swept(self, part: str) -> Iterator[dict[str, Any]]:
        """Figures 8 to 10: one setting after the other."""
        setting, values = SWEPT[part]
        for name in (name for name in SWEPT_DATA if name in self.names):
            for wanted in SWEPT_AT:
                for value in values[:2] if self.quick else values:
                    for way in SWEPT_STRATEGIES:
                        yield self.one(part, name, self.seeds[0], way, wanted, **{setting: value})

    def one(
        self, part: str, name: str, seed: int, way: str, wanted: float = 1.0, *, series: bool = False, **settings: int
    ) -> dict[str, Any]:
        """One run, with a line that says how far the benchmark is."""
        data, truth = self.data(name, seed)
        if part == "step":
            data = data.head(STEP_S)
        times = {"over_us": self.over_us, "every_us": SECOND} | settings
        adaptive = times | {"bins": min(MOST_US // settings.get("grain_us", 10_000), 1 << 16)}
        start = time.perf_counter()
        done = run(data, truth, waiting(way, wanted, data, **adaptive), times["over_us"], times["every_us"])
        row: dict[str, Any] = {"part": part, "data": name, "seed": seed, "way": way, "wanted": wanted, **settings}
        row |= told(done, wanted)
        if way.endswith("s"):
            row["phis"] = {str(asked): told(done, asked)["phi"] for asked in RECALLS}
            row["phis_99"] = {str(asked): told(done, asked)["phi_99"] for asked in RECALLS}
        if series:
            row["series"] = {"k_s": (done.wait_us / SECOND).tolist(), "recall": done.recall.round(5).tolist()}
        seconds = time.perf_counter() - start
        print(f"{part} {name} seed {seed} {way} {wanted} {settings or ''}: K {row['mean_k_s']:.3f} s, "
              f"phi {row['phi']:.3f} / {row['phi_99']:.3f} ({seconds:.1f} s)", flush=True)  # fmt: skip
        return row
