"""Memory of Python workers over many micro-batches: two workers, four buckets that move between them.

Two processes call the stateful operator as the Python workers of Spark do, and the parent process stores the state in
place of Spark. So the moves are seeded, and no JVM disturbs the numbers. In each micro-batch each worker gets one of
two partitions, by chance. The rule holds all rows of two minutes, so its state is constant after the first
micro-batches. With `--other` another source tree of Tocsin is measured too, in workers of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from weakref import WeakSet

import numpy as np
import pyarrow as pa

from benchmarks.backtest import cpu_seconds, memory_bytes
from benchmarks.conditions import conditions
from benchmarks.workloads import readings

ROOT = Path(__file__).resolve().parent.parent
PLOT = ROOT / "benchmarks" / "plots" / "worker_memory.png"
CHILD = "from benchmarks.worker_memory import serve_calls; serve_calls()"
WORKERS = PARTITIONS = 2
BUCKETS, KEYS, ROWS, WAIT = 4, 500, 1000, "2m"
# Share of the micro-batches before the first number of the summary.
WARM_UP = 0.2
SEED = 1

State = dict[Any, Any]


def main(argv: list[str]) -> int:
    """Measure each source tree, print and write the results, draw the plot."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks worker-memory", description=__doc__)
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--plot", type=Path, default=PLOT, help="file for the plot")
    parser.add_argument("--batches", type=int, default=500, help="micro-batches (default 500)")
    parser.add_argument("--other", type=Path, help="source tree of another version, measured first")
    parser.add_argument("--quick", action="store_true", help="20 micro-batches; checks only that the benchmark runs")
    options = parser.parse_args(argv)
    batches = 20 if options.quick else options.batches
    trees = ({"other": options.other} if options.other else {}) | {"this": ROOT}
    results: dict[str, Any] = conditions() | {"quick": options.quick, "batches": batches}
    runs = {name: measure(tree, batches) for name, tree in trees.items()}
    results |= {"summary": {name: summarize(run) for name, run in runs.items()}, "runs": runs}
    print(json.dumps(results["summary"], indent=1))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    draw(runs, options.plot)
    return 0


def measure(tree: Path, batches: int) -> dict[str, Any]:
    """Run all micro-batches with the sources of one tree; return memory and logics of each worker after each."""
    rng, states = np.random.default_rng(SEED), [State() for _ in range(BUCKETS)]
    workers = [_start(tree) for _ in range(WORKERS)]
    samples, begin = [], time.perf_counter()
    for batch in range(batches):
        blobs = _fold(readings(rng, KEYS, ROWS, batch * ROWS))
        for worker, partition in zip(workers, rng.permutation(PARTITIONS).tolist(), strict=True):
            mine = range(partition, BUCKETS, PARTITIONS)
            _send(worker.stdin, (batch, {bucket: (states[bucket], blobs.get(bucket, [])) for bucket in mine}))
        sample = []
        for worker in workers:
            changed, logics = pickle.load(worker.stdout)
            for bucket, state in changed.items():
                states[bucket] = state
            sample.append({"bytes": memory_bytes(worker.pid), "logics": logics})
        samples.append(sample)
    seconds, spent = time.perf_counter() - begin, sum(cpu_seconds(worker.pid) for worker in workers)
    for worker in workers:
        worker.communicate()
    size = sum(len(page) for state in states for (page,) in state.values())
    return {"seconds": seconds, "cpu_seconds": spent, "state_bytes": size, "samples": samples}


def _start(tree: Path) -> Any:
    path = os.pathsep.join([str(ROOT), str(tree.resolve() / "src")])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command, pipe = [sys.executable, "-c", CHILD], subprocess.PIPE
    return subprocess.Popen(command, env=environment | {"PYTHONPATH": path}, stdin=pipe, stdout=pipe)


def _send(stream: IO[bytes], message: Any) -> None:
    pickle.dump(message, stream)
    stream.flush()


def _feed() -> Any:
    from tocsin.spark.blobs import Feed

    return Feed(0, "r", ("key",), ("value",))


def _fold(rows: pa.Table) -> dict[int, list[bytes]]:
    """Return the blobs of each bucket."""
    from tocsin.spark.blobs import TIME, VALUE
    from tocsin.spark.rows import fold_partition

    rows = rows.set_column(1, TIME, rows["ts"].cast(pa.int64())).rename_columns(["key", TIME, f"{VALUE}value"])
    found: dict[int, list[bytes]] = {}
    for blobs in fold_partition(rows.to_batches(), [(0, _feed())], range(BUCKETS)):
        for row in blobs.to_pylist():
            found.setdefault(row["bucket"], []).append(row["blob"])
    return found


class Pages(State):
    """The map state of one bucket, as the operator uses it."""

    getValue = dict.get
    updateValue = dict.__setitem__
    removeKey = dict.pop
    iterator = dict.items


class CountedStep:
    """A step that counts its plan sessions in this process."""

    def __init__(self, step: Any) -> None:
        self.step, self.alive = step, WeakSet[Any]()

    def build_pipelines(self, pages: Mapping[str, bytes], listener: Any = None) -> Any:
        pipelines = self.step.build_pipelines(pages, listener)
        self.alive.add(pipelines[0])
        return pipelines

    def read_control(self, row: Mapping[str, Any]) -> Any:
        return self.step.read_control(row)

    def build(self, pages: Mapping[str, bytes]) -> Any:
        """Build the logic of a source tree that has no `Session`."""
        logic = self.step.build(pages)
        self.alive.add(logic)
        return logic


def serve_calls() -> None:
    """Call the operator for each message of the parent process; the body of a worker."""
    import pandas as pd

    from tocsin import Rule
    from tocsin.local import explain
    from tocsin.spark.stateful import Work, _Operator

    plan = explain({"r": {"key": [], "ts": [], "value": []}}, Rule("Hot", "r > 30", on=["key"], quality={"wait": WAIT}))
    step = CountedStep(plan)
    operator = _Operator(Work(step, (_feed(),), tuple(range(BUCKETS)), query="benchmark"))
    timers: dict[str, Any] = {"registerTimer": lambda _: None, "deleteTimer": lambda _: None}
    while True:
        try:
            batch, calls = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        times = SimpleNamespace(getCurrentProcessingTimeInMs=lambda batch=batch: 1000 * batch)
        changed = {}
        for bucket, (state, blobs) in calls.items():
            pages = Pages(state)
            operator.init(SimpleNamespace(getMapState=lambda *_, pages=pages: pages, **timers))  # type: ignore[arg-type]
            rows = iter([pd.DataFrame({"blob": blobs})])
            list(operator.handleInputRows((bucket,), rows, times))  # type: ignore[arg-type]
            changed[bucket] = State(pages)
        _send(sys.stdout.buffer, (changed, len(step.alive)))


def summarize(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the most logics in a worker, and its memory after a fifth of the micro-batches and at the end."""
    samples = run["samples"]
    early = samples[int(WARM_UP * len(samples))]
    return {
        "most_logics_in_a_worker": max(one["logics"] for sample in samples for one in sample),
        "early_mb_by_worker": _megabytes(early),
        "late_mb_by_worker": _megabytes(samples[-1]),
        "state_mb": round(run["state_bytes"] / 1e6, 1),
        "cpu_seconds": round(run["cpu_seconds"], 1),
        "seconds": round(run["seconds"], 1),
    }


def _megabytes(sample: Sequence[Mapping[str, int]]) -> list[float]:
    return [round(one["bytes"] / 1e6, 1) for one in sample]


def draw(runs: Mapping[str, Mapping[str, Any]], file: Path) -> None:
    """Draw memory and logics of each worker over the micro-batches."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), dpi=110)
    axes = figure.subplots(1, 2)
    titles = {"bytes": ("memory of a Python worker, MB", 1e6), "logics": ("logics in a Python worker", 1)}
    for axis, (field, (title, unit)) in zip(axes, titles.items(), strict=True):
        for color, (name, run) in zip(("tab:blue", "tab:red"), list(runs.items())[::-1], strict=False):
            for number, style in enumerate(("-", "--")):
                heights = [sample[number][field] / unit for sample in run["samples"]]
                axis.plot(heights, color=color, ls=style, label=f"{name}, worker {number + 1}")
        axis.set(xlabel="micro-batch", title=title, ylim=(0, None))
        axis.legend()
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
