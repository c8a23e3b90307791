"""Measure promising tuples: the figures of Ali, Aref, ElTabakh (Purdue TR 05-005) on purchases and on Zipf streams.

Work is counted in units (tuples scanned), so all results but those of `speed`, `costs` and `clock` are the same on any
machine; these are processor times of one core.
"""

from __future__ import annotations

from benchmarks import promising_queries as queries
from benchmarks import promising_runs as runs
from benchmarks.parts import run
from benchmarks.promising_bars import bars
from benchmarks.promising_clock import clock
from benchmarks.promising_costs import costs
from benchmarks.promising_plots import FIGURES

# What can run, by name: a function of the part's name that gives rows.
PARTS = {
    "speed": runs.speed,
    "costs": costs,
    "structures": runs.structures,
    "intervals": runs.intervals,
    "windows": runs.windows,
    "budgets": runs.budgets,
    "clock": clock,
    "buckets": runs.buckets,
    "selection": queries.selection,
    "aggregates": queries.aggregates,
}


def main(argv: list[str] | None = None) -> int:
    return run(argv, "promising", __doc__, PARTS, bars, FIGURES)
