"""Measure promising tuples: the figures of Ali, Aref, ElTabakh (Purdue TR 05-005) on purchases and on Zipf streams.

Work is counted in units (tuples scanned), so all results but those of `speed` and `costs` are the same on any machine;
these two are processor times of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import promising_queries as queries
from benchmarks import promising_runs as runs
from benchmarks.promising_bars import bars
from benchmarks.promising_costs import costs
from benchmarks.promising_plots import PLOTS, draw

# What can run, by name: a function of the part's name that gives rows.
PARTS = {
    "speed": runs.speed,
    "costs": costs,
    "structures": runs.structures,
    "intervals": runs.intervals,
    "windows": runs.windows,
    "budgets": runs.budgets,
    "buckets": runs.buckets,
    "selection": queries.selection,
    "aggregates": queries.aggregates,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks promising", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results to this file too, after every part")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="small: only to see that it runs")
    parser.add_argument("--plots", type=Path, help=f"draw into this folder (the published ones are in {PLOTS.name}/)")
    options = parser.parse_args(argv)
    parts = options.only.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"--only must name parts of {', '.join(PARTS)}; got {options.only}")
    results: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "quick": options.quick,
        "load_before": {},
        "runs": [],
    }
    start = time.perf_counter()
    for part in parts:
        results["load_before"][part] = os.getloadavg()[0]
        results["runs"] += PARTS[part](part, quick=options.quick)
        results["bars"] = bars(results["runs"])
        results["seconds"] = round(time.perf_counter() - start, 1)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"{part}: {results['seconds']} s so far", flush=True)
    for bar in results["bars"]:
        print(f"{'met' if bar['met'] else 'NOT MET':<8} {bar['what']}: {bar['value']} ({bar['asked']})")
    if options.plots:
        draw(results["runs"], options.plots)
    return 0
