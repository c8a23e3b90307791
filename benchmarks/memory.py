"""Measure memory-limited joins: the figures of Srivastava, Widom, VLDB 2004, and recordings.

Every part is seeded and runs on one core; times are processor times.
"""

from __future__ import annotations

from benchmarks import memory_automatic, memory_models, memory_rules, memory_ways
from benchmarks import memory_recordings as recordings
from benchmarks import memory_runs as runs
from benchmarks import memory_samples as samples
from benchmarks.memory_bars import bars
from benchmarks.memory_plots import FIGURES
from benchmarks.parts import run

# What can run, by name: a function of the part's name that gives rows. A part that is added has a bar or a plot of its
# own in `memory_bars` and `memory_plots`.
PARTS = {
    "wan": runs.wan,
    "ages": runs.ages,
    "skews": runs.skews,
    "powers": runs.powers,
    "samples": samples.samples,
    "spreads": samples.spreads,
    "split": runs.split,
    "retail": recordings.retail,
    "trades": recordings.trades,
    "auctions": recordings.auctions,
    "automatic": memory_automatic.automatic,
    "models": memory_models.models,
    "ways": memory_ways.ways,
    "rules": memory_rules.rules,
    "recorded": memory_rules.recorded,
    "speed": runs.speed,
    "sampling-speed": samples.speed,
}


def main(argv: list[str] | None = None) -> int:
    return run(argv, "memory", __doc__, PARTS, bars, FIGURES)
