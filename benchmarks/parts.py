"""Benchmark parts: options, results, targets and plots of benchmarks that have several parts."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.conditions import conditions

Row = dict[str, Any]
# Function that runs a part by name and returns its result rows. With `quick`, the part is small.
Part = Callable[..., list[Row]]
PLOTS = Path(__file__).resolve().parent / "plots"


def parser_of(name: str, about: str | None, parts: Mapping[str, Any] | tuple[str, ...]) -> argparse.ArgumentParser:
    """Return a parser with the common options of these benchmarks."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=about)
    parser.add_argument("--json", type=Path, help="also write the results to this file, after each part")
    parser.add_argument(
        "--only", default=",".join(parts), help=f"parts to run, separated by commas: {', '.join(parts)}"
    )
    parser.add_argument("--quick", action="store_true", help="run with small inputs, as a test of the benchmark")
    parser.add_argument(
        "--plots", type=Path, help=f"write plots to this directory (published plots are in {PLOTS.name}/)"
    )
    return parser


def selected_parts(parser: argparse.ArgumentParser, only: str, parts: Mapping[str, Any] | tuple[str, ...]) -> list[str]:
    """Return the parts that `--only` names; exit with an error if one is unknown."""
    selected = only.split(",")
    if not set(selected) <= set(parts):
        parser.error(f"--only must name parts of {', '.join(parts)}; got {only}")
    return selected


def write(results: Row, file: Path | None) -> None:
    """Write results as JSON, unless `file` is None."""
    if file:
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def run(
    argv: list[str] | None, name: str, about: str | None, parts: Mapping[str, Part], bars: Any, figures: Any
) -> int:
    """Run the selected parts, print whether each target is met, and write the plots of these parts."""
    parser = parser_of(name, about, parts)
    options = parser.parse_args(argv)
    results: Row = conditions() | {"quick": options.quick, "load_before": {}, "runs": []}
    start = time.perf_counter()
    for part in selected_parts(parser, options.only, parts):
        results["load_before"][part] = os.getloadavg()[0]
        results["runs"] += parts[part](part, quick=options.quick)
        results["bars"] = bars(results["runs"])
        results["seconds"] = round(time.perf_counter() - start, 1)
        write(results, options.json)
        print(f"{part}: {results['seconds']} s so far", flush=True)
    for bar in results["bars"]:
        print(f"{'met' if bar['met'] else 'NOT MET':<8} {bar['what']}: {bar['value']} ({bar['asked']})")
    if options.plots:
        ran = {row["part"] for row in results["runs"]}
        made = {number: make(results["runs"], part) for number, (part, make) in figures.items() if part in ran}
        save(made, name, options.plots)
    return 0


def save(figures: Mapping[str, Any], name: str, folder: Path) -> None:
    """Write the figures of a benchmark to a directory."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, figure in figures.items():
        figure.tight_layout()
        figure.savefig(folder / f"{name}_{number}.png", dpi="figure")
