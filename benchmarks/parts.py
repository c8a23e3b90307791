"""Benchmarks of several parts: which are to run, results that are written after each, bars and plots at the end."""

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
# Gives the rows of a part by its name; a quick one is small.
Part = Callable[..., list[Row]]
PLOTS = Path(__file__).resolve().parent / "plots"


def parser_of(name: str, about: str | None, parts: Mapping[str, Any] | tuple[str, ...]) -> argparse.ArgumentParser:
    """Take the options that all benchmarks of several parts have."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=about)
    parser.add_argument("--json", type=Path, help="write the results to this file too, as soon as there are more")
    parser.add_argument("--only", default=",".join(parts), help=f"parts, of {', '.join(parts)}")
    parser.add_argument("--quick", action="store_true", help="small: only to see that it runs")
    parser.add_argument("--plots", type=Path, help=f"draw into this folder (the published ones are in {PLOTS.name}/)")
    return parser


def asked(parser: argparse.ArgumentParser, only: str, parts: Mapping[str, Any] | tuple[str, ...]) -> list[str]:
    """Give the parts that `--only` names; end where it names others."""
    named = only.split(",")
    if not set(named) <= set(parts):
        parser.error(f"--only must name parts of {', '.join(parts)}; got {only}")
    return named


def write(results: Row, file: Path | None) -> None:
    """Write results as JSON, if a file was named."""
    if file:
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def run(
    argv: list[str] | None, name: str, about: str | None, parts: Mapping[str, Part], bars: Any, figures: Any
) -> int:
    """Run parts one after the other, tell their bars, and draw the figures whose part was run."""
    parser = parser_of(name, about, parts)
    options = parser.parse_args(argv)
    results: Row = conditions() | {"quick": options.quick, "load_before": {}, "runs": []}
    start = time.perf_counter()
    for part in asked(parser, options.only, parts):
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
    """Write figures of a benchmark into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, figure in figures.items():
        figure.tight_layout()
        figure.savefig(folder / f"{name}_{number}.png", dpi="figure")
