"""Run one benchmark by name: `python -m benchmarks threshold-kernel --json FILE`."""

from __future__ import annotations

import argparse
import importlib
import sys

# Description by name. The module has the same name with underscores, and a function `main(argv)`.
BENCHMARKS = {
    "alert-storm": "CPU time per alert row from the push of rows to the alert log, for two versions in turn",
    "backtest": "`tocsin backtest` on a month of a fleet: wall time, memory of the process tree, rows per second",
    "catch-up": "8 x 10^6 stored rows on Spark, compared with an operator that does nothing and with Flink",
    "certify": "proofs of the shapes of realistic functions: share and time, compared with a check on a grid",
    "cpu": "rules with a CPU budget: CPU time used and recall",
    "dashboard": "dashboard of a run with 10^5 alerts and 1,000 rules: first paint in Chromium, response times, memory",
    "disorder": "reorder wait: K and recall by strategy, figures of Ji et al. and further measurements",
    "disorder-buckets": "one reorder wait per bucket compared with a common wait of all buckets: K and recall",
    "edge": "`tocsin edge`: bytes sent by maximum delay, speed without Numba, start-up time",
    "fuzz-sources": "random invalid rows in each kind of source: each row must have an outcome",
    "long-run": "CPU seconds per micro-batch of a continuous run, with both compilers of the JVM and with one",
    "many-keys": "10^6 keys in the local engine: CPU time per row and bytes of state per key, for two versions in turn",
    "many-rules": "1,000 rules over 10 streams in the local engine: retained rows and time, compared with single runs",
    "memory": "joins with a memory budget: recall by policy, ALLOC, speed; figures of Srivastava and Widom",
    "order-speed": "the reorder stage: rows per second with statistics, and the cost of a wait for a rule",
    "promising": "CPU budgets with promising tuples: joins, selections, aggregates; figures of Ali et al.",
    "queries": "SQL with a budget of one stream: CPU time used, and recall by form of summary",
    "ranges": "one million range queries: cost per operation, figures of Qiao et al., comparison with baselines",
    "ranges-spark": "one million range queries on Spark, compared with an operator that does nothing",
    "startup": "wall and CPU seconds to the first result of each command, for two versions in turn",
    "threshold-kernel": "reduction of one stream: speed in and out of order, and share of retained rows",
    "threshold-spark": "one rule on Spark, compared with an operator that does nothing, Spark's own join and DuckDB",
    "worker-memory": "memory of Python workers over 500 micro-batches, with buckets that move between two workers",
}


def main(argv: list[str] | None = None) -> int:
    lines = [f"  {name:<20} {text}" for name, text in sorted(BENCHMARKS.items())]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run one benchmark; `<name> --help` lists its options.",
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
