"""The threshold rule `r - s > 30` on Spark: beside a step that does nothing, Spark's own join, and DuckDB.

Every measured query has a process, and so a JVM, of its own; the queries of one part take turns, and the next round
goes backwards. Times are `triggerExecution` of each micro-batch as Spark reports it. Kernels are compiled and cached
by a local run beforehand, so no first batch compiles.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.startup import ROOT, Version, adopt_orphans, wait_for_orphans
from benchmarks.threshold_queries import BUCKETS, PARTITIONS, Run
from benchmarks.threshold_ratios import draw, ratios, summarize
from benchmarks.workloads import two_streams

PLOT = Path(__file__).resolve().parent / "plots" / "threshold_spark.png"
PARTS = ("tocsin", "nothing", "spark_join", "catch_up", "keys", "local")
JOIN_BUDGET_S = 300.0
CHILD = "import sys; from benchmarks.threshold_queries import child; child(*sys.argv[1:])"


def main(argv: list[str]) -> int:
    """Measure the parts asked for, print and write the results, draw the plot."""
    options = _parser().parse_args(argv)
    parts = tuple(options.only.split(",")) if options.only else PARTS
    if unknown := set(parts) - set(PARTS):
        message = f"--only must name parts of {', '.join(PARTS)}; got {', '.join(sorted(unknown))}"
        raise SystemExit(message)
    with tempfile.TemporaryDirectory() as scratch:
        results = measure(parts, options, Path(scratch))
    print(json.dumps(results, indent=1))
    _save(options, results)
    if any(run["batches"] for run in results["runs"]):
        draw(results, options.plot)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks threshold-spark", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    parser.add_argument("--plot", type=Path, default=PLOT, help="file of the plot")
    parser.add_argument("--data", type=Path, help="folder that keeps the workloads from call to call")
    parser.add_argument("--only", help=f"parts, with commas between: {','.join(PARTS)}")
    parser.add_argument("--repeat", type=int, help="runs of each query (default 3; 1 for Spark's join)")
    parser.add_argument("--within", default="10,60", help="seconds of `within`, with commas between (default 10,60)")
    parser.add_argument(
        "--budget", type=float, default=JOIN_BUDGET_S, help="seconds after which Spark's join is stopped (default 300)"
    )
    parser.add_argument("--against", type=Path, metavar="PATH", help="also run the part tocsin in this older worktree")
    parser.add_argument("--full", action="store_true", help="let Spark's join run to its end")
    parser.add_argument("--quick", action="store_true", help="small inputs, 10 s only: only to see that it runs")
    return parser


def measure(parts: Sequence[str], options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Run all queries of the parts, each part by turns, and give raw numbers and ratios."""
    withins = (10,) if options.quick else tuple(map(int, options.within.split(",")))
    base = Run("local", "reference", 10, **_size(options.quick))
    data = options.data or work
    references = {w: spawn(replace(base, within_s=w), workload(base, data), work) for w in withins}
    runs: list[dict[str, Any]] = []
    for part, queries in _by_turns(_queries(parts, base, withins, references, options)):
        rounds = options.repeat or (1 if part == "spark_join" or options.quick else 3)
        # The reference compiles only what this version runs, so the first run of the older version is not counted.
        for run in queries:
            if run.against:
                spawn(run, workload(run, data), work)
        for number in range(rounds):
            for run in queries[::-1] if number % 2 else queries:
                runs.append(spawn(run, workload(run, data), work))
                _save(options, report(options, references, runs))  # A long benchmark that is stopped leaves its runs.
    return report(options, references, runs)


def report(
    options: argparse.Namespace, references: Mapping[int, Any], runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """All that is to be said of the runs so far."""
    summary = summarize(runs)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "quick": options.quick,
        "notes": notes(options),
        "reference": {f"{w}s": {k: result[k] for k in ("alerts", "state_bytes")} for w, result in references.items()},
        "ratios": ratios(summary),
        "summary": summary,
        "runs": list(runs),
    }


def _save(options: argparse.Namespace, results: Mapping[str, Any]) -> None:
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _size(quick: bool) -> dict[str, Any]:
    """Numbers of the workload; few rows need a lower limit to have alerts at all."""
    return {"keys": 100, "rows": 40_000, "files": 4, "limit": 25} if quick else {}


def _queries(
    parts: Sequence[str], base: Run, withins: Iterable[int], references: Mapping[int, Any], options: argparse.Namespace
) -> list[Run]:
    """Name every query of the parts."""
    runs = []
    budget_s = None if options.full else options.budget
    for within in withins:
        one = replace(base, within_s=within, page_bytes=references[within]["state_bytes"] // BUCKETS)
        large = replace(one, part="catch_up", rows=4 * one.rows, files=max(2, one.files * 2 // 5))
        join = replace(one, part="spark_join", query="join", budget_s=budget_s)
        runs += [replace(one, part=query, query=query) for query in ("tocsin", "nothing")]
        if options.against:
            runs.append(replace(one, part="tocsin", query="tocsin", against=str(options.against.absolute())))
        runs += [join, replace(join, store="memory")]
        runs += [replace(large, query=query) for query in ("tocsin", "nothing")]
        runs += [replace(one, query=query) for query in ("local", "duckdb 1 thread", "duckdb all threads")]
    first = replace(base, part="keys", query="tocsin")
    runs += [first, replace(first, keys=100 * first.keys)]
    return [run for run in runs if run.part in parts]


def _by_turns(runs: Iterable[Run]) -> list[tuple[str, list[Run]]]:
    """Group the runs that are compared with each other."""
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        part = "tocsin" if run.part == "nothing" else run.part
        groups.setdefault((part, run.within_s), []).append(run)
    return [(part, group) for (part, _), group in groups.items()]


def workload(run: Run, data: Path) -> Path:
    """Return the folder with the streams of a run; write them if they are not there."""
    folder = data / f"two_{run.keys}_{run.rows}_{run.files}"
    if not folder.exists():
        two_streams(folder, run.keys, run.rows, run.files)
    return folder


def spawn(run: Run, folder: Path, work: Path) -> dict[str, Any]:
    """Measure one query in a child process; `wall_s` and `cpu_s` are those of all its processes with their start."""
    adopt_orphans()
    answer = work / "answer.json"
    answer.unlink(missing_ok=True)
    version = Version("old" if run.against else "new", Path(run.against) if run.against else ROOT, work)
    path = os.pathsep.join([str(version.root / "src"), str(ROOT)])
    python = {"PYSPARK_PYTHON": version.python, "PYSPARK_DRIVER_PYTHON": version.python, "PYTHONPATH": path}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | python
    load, before, begin = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with tempfile.TemporaryDirectory(dir=work) as checkpoint:
        command = [version.python, "-c", CHILD, json.dumps(asdict(run)), str(folder), checkpoint, str(answer)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall_s = time.monotonic() - begin
    wait_for_orphans()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        message = f"{run.name}: child ended with {done.returncode}:\n{done.stderr[-4000:]}"
        raise RuntimeError(message)
    told = json.loads(answer.read_text("utf-8"))
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    whole = {"wall_s": round(wall_s, 2), "cpu_s": round(cpu_s, 2), "load_before": load}
    result: dict[str, Any] = asdict(run) | {"name": run.name, "batches": []} | whole | told
    print(f"{run.name}: {result['seconds']:.2f} s", file=sys.stderr)
    return result


def machine() -> dict[str, Any]:
    """Tell what it ran on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cores": os.cpu_count(), "memory_gib": round(memory / 2**30, 1), "cpu": model or platform.processor()}


def versions() -> dict[str, str]:
    """Tell what was run."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    packages = ("tocsin", "pyspark", "duckdb", "numpy", "numba", "pyarrow", "pandas")
    return {"python": platform.python_version(), "java": java[0] if java else ""} | {p: version(p) for p in packages}


def notes(options: argparse.Namespace) -> list[str]:
    """Say how to read the numbers."""
    limit = (
        "ran to its end" if options.full else f"was stopped after {options.budget:.0f} s if not at its end (`whole`)"
    )
    return [
        "later_ms is the median of all batches but the first; later_rows_per_s is their rows over their summed time",
        f"Spark's join {limit}; its throughput is that of the batches it finished, per row",
        "kernels were compiled and cached by a local run before any query started",
        f"local[{PARTITIONS}], {PARTITIONS} shuffle partitions, {BUCKETS} buckets, noop sink, checkpoint on local disk",
        "Flink's rows/s are constants, measured earlier on the same kind of machine",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
