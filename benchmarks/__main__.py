"""Run one benchmark by name: `python -m benchmarks threshold-kernel --json FILE`."""

from __future__ import annotations

import argparse
import importlib
import sys

# Name on the command line, and what it measures. The module has the same name with underscores, and a `main(argv)`.
BENCHMARKS = {
    "backtest": "the command `backtest` on a month of a fleet: wall time, memory of all its processes, rows/s",
    "certify": "shapes of realistic functions: how many are decided, how fast, beside a check by a grid",
    "cpu": "rules with a budget of processor time: what they use of it, and what it finds",
    "dashboard": "pages over a run of 10^5 alerts and 1,000 rules: first paint in Chromium, answers, reading, memory",
    "disorder": "waiting for late rows: K and recall by strategy, the figures of Ji et al. and beside them",
    "disorder-buckets": "a wait per bucket beside one that all buckets agree on: K and recall",
    "edge": "the command `edge`: bytes sent against the hold on recordings, speed without Numba, start",
    "fuzz-sources": "fuzzed rows through each kind of source: every row is accounted for",
    "many-rules": "1,000 rules over 10 streams in memory: rows remembered and time, beside single runs",
    "memory": "joins that do not fit into memory: recall by policy, ALLOC, speed; the figures of Srivastava and Widom",
    "order-speed": "the order stage alone: rows per second with statistics, and what waiting costs a rule",
    "promising": "a CPU budget spent where the answers are: joins, selections, aggregates; the figures of Ali et al.",
    "queries": "SQL: what a budget of one stream uses, and what each form of a summary finds",
    "ranges": "a million standing range queries: cost per operation, the figures of Qiao et al., and beside baselines",
    "ranges-spark": "a million standing range queries through the streaming engine, beside a step that does nothing",
    "threshold-kernel": "reduction of one stream: speed in and out of order, and how much stays",
    "threshold-spark": "the rule on Spark, beside a step that does nothing, Spark's own join, and DuckDB",
    "worker-memory": "memory of Python workers over 500 micro-batches, with buckets that move between two workers",
}


def main(argv: list[str] | None = None) -> int:
    lines = [f"  {name:<20} {text}" for name, text in sorted(BENCHMARKS.items())]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run one benchmark; `<name> --help` tells its options.",
        epilog="benchmarks:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=sorted(BENCHMARKS), metavar="name")
    arguments, rest = parser.parse_known_args(sys.argv[1:2] if argv is None else argv[:1])
    rest = (sys.argv[2:] if argv is None else argv[1:]) + rest
    module = importlib.import_module(f"benchmarks.{arguments.name.replace('-', '_')}")
    return int(module.main(rest) or 0)


if __name__ == "__main__":
    sys.exit(main())
