"""Memory of Python workers over many micro-batches: two workers, four buckets that move between them.

The rule keeps all rows of two minutes, so the size of its state is constant after the first micro-batches. After each
micro-batch the benchmark samples the memory of each worker and the number of logics that the worker holds. With
`--other` it measures another source tree of Tocsin too, each tree in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.conditions import conditions
from benchmarks.threshold_spark import ROOT, versions
from benchmarks.worker_memory_queries import Size, summarize, write

PLOT = ROOT / "benchmarks" / "plots" / "worker_memory.png"
CHILD = "import sys; from benchmarks.worker_memory_queries import child; child(*sys.argv[1:])"


def main(argv: list[str]) -> int:
    """Measure each tree, print and write the results, draw the plot."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks worker-memory", description=__doc__)
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--plot", type=Path, default=PLOT, help="file for the plot")
    parser.add_argument("--batches", type=int, default=500, help="micro-batches (default 500)")
    parser.add_argument("--other", type=Path, help="source tree of another version, measured first")
    parser.add_argument("--quick", action="store_true", help="6 micro-batches; checks only that the benchmark runs")
    options = parser.parse_args(argv)
    size = Size(6, 50, 200) if options.quick else Size(options.batches)
    trees = ({"other": options.other} if options.other else {}) | {"this": ROOT}
    results: dict[str, Any] = conditions() | {"versions": versions(), "quick": options.quick, "size": asdict(size)}
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch) / size.name, size)
        runs = {name: _measure(tree, size, Path(scratch)) for name, tree in trees.items()}
    results |= {"summary": {name: summarize(run) for name, run in runs.items()}, "runs": runs}
    print(json.dumps(results["summary"], indent=1))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    draw(runs, options.plot)
    return 0


def _measure(tree: Path, size: Size, scratch: Path) -> dict[str, Any]:
    """Run the query with the sources of one tree."""
    path = os.pathsep.join(filter(None, [str(ROOT), str(tree.resolve() / "src"), os.environ.get("PYTHONPATH")]))
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": path}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | python
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=scratch) as work:
        answer = Path(work) / "answer.json"
        command = [sys.executable, "-c", CHILD, json.dumps(asdict(size)), str(scratch / size.name), work, str(answer)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            message = f"{tree}: child process ended with {done.returncode}:\n{done.stderr[-4000:]}"
            raise RuntimeError(message)
        run: dict[str, Any] = {"load_before": load} | json.loads(answer.read_text("utf-8"))
    return run


def draw(runs: Mapping[str, Mapping[str, Any]], file: Path) -> None:
    """Draw memory and logics of each worker over the micro-batches."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), dpi=110)
    memory, logics = figure.subplots(1, 2)
    for color, (name, run) in zip(("tab:red", "tab:blue"), runs.items(), strict=False):
        workers = dict.fromkeys(pid for row in run["samples"] for pid in row["workers"])
        for number, pid in enumerate(workers):
            rows = [(row["batch"], row["workers"][pid]) for row in run["samples"] if pid in row["workers"]]
            x, style = [batch for batch, _ in rows], {"color": color, "ls": ("-", "--", ":")[number % 3]}
            label = f"{name}, worker {number + 1}"
            memory.plot(x, [one["bytes"] / 1e6 for _, one in rows], label=label, **style)
            logics.plot(x, [one["logics"] for _, one in rows], label=label, **style)
    for axis, title in ((memory, "memory of a Python worker, MB"), (logics, "logics in a Python worker")):
        axis.set(xlabel="micro-batch", title=title, ylim=(0, None))
        axis.legend()
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
