"""A million standing range queries through the streaming engine, beside a step that does nothing.

Each query of Spark has a process, and so a JVM, of its own. First come micro-batches of requests alone, which register
the queries, then micro-batches of elements with some requests among them. Times are `triggerExecution` of each
micro-batch as Spark reports it; `logic_ms` is what the rule itself took of it, `pages_ms` what it took to write its
pages, both summed over buckets. Kernels are compiled and cached by a run in memory beforehand.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ranges_queries import Size, write
from benchmarks.threshold_queries import BUCKETS, PARTITIONS
from benchmarks.threshold_spark import ROOT, machine, versions

QUERIES = ("tocsin", "nothing")
CHILD = "import sys; from benchmarks.ranges_queries import child; child(*sys.argv[1:])"


def main(argv: list[str]) -> int:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ranges-spark", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    parser.add_argument("--data", type=Path, help="folder that keeps the workload from call to call")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each query (default 1)")
    parser.add_argument("--shards", type=int, default=1, help="number of shards of the queries of a symbol")
    parser.add_argument("--quick", action="store_true", help="10,000 queries: only to see that it runs")
    options = parser.parse_args(argv)
    size = Size(10_000, 20_000, 2, 3, 100) if options.quick else Size()
    with tempfile.TemporaryDirectory() as scratch:
        results = measure(Size(**{**asdict(size), "shards": options.shards}), options, Path(scratch))
    text = json.dumps(results, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0


def measure(size: Size, options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Run all, by turns, each in a process of its own."""
    folder = (options.data or work) / size.name
    if not folder.exists():
        write(folder, size)
    reference = _spawn("reference", size, folder, work)
    queries = [QUERIES[::-1] if number % 2 else QUERIES for number in range(options.repeat)]
    runs = [_spawn(query, size, folder, work) for turn in queries for query in turn]
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "quick": options.quick,
        "notes": notes(),
        "size": asdict(size),
        "summary": summarize(size, runs),
        "reference": reference,
        "runs": runs,
    }


def notes() -> list[str]:
    """Say how to read the numbers."""
    return [
        "rows/s: rows of the micro-batches of a kind over their summed time, without the first micro-batch of all",
        "written_bytes: pages that a micro-batch stored; state_bytes: all pages after the last",
        "nothing: the same sources, blobs, shuffle and operator, with a step that counts rows and stores nothing",
        "reference: the same rows through the rule in memory, one call per micro-batch, one process, one thread",
        f"local[{PARTITIONS}], {PARTITIONS} shuffle partitions, {BUCKETS} buckets, noop sink, checkpoint on local disk",
    ]


def _spawn(query: str, size: Size, folder: Path, work: Path) -> dict[str, Any]:
    """Measure one query in a child process."""
    path = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": path}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | python
    load, answer = os.getloadavg()[0], work / "answer.json"
    with tempfile.TemporaryDirectory(dir=work) as checkpoint:
        command = [sys.executable, "-c", CHILD, query, json.dumps(asdict(size)), str(folder), checkpoint, str(answer)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{query}: child ended with {done.returncode}:\n{done.stderr[-4000:]}"
        raise RuntimeError(message)
    result: dict[str, Any] = {"query": query, "load_before": load} | json.loads(answer.read_text("utf-8"))
    print(f"{query}: {result['seconds']:.1f} s", file=sys.stderr)
    return result


def summarize(size: Size, runs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The numbers of each query, medians over its runs."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        mine = found.setdefault(run["query"], {})
        mine.setdefault("first_ms", []).append(run["batches"][0]["ms"])
        for kind in ("register", "elements"):
            some = [batch for batch in run["batches"][1:] if batch["kind"] == kind]
            rate = 1000 * sum(batch["rows"] for batch in some) / max(1, sum(batch["ms"] for batch in some))
            mine.setdefault(f"{kind}_rows_per_s", []).append(rate)
            for name in ("ms", "logic_ms", "pages_ms", "written_bytes"):
                per_batch = float(np.median([batch.get(name, 0) for batch in some]))
                mine.setdefault(f"{kind}_{name}", []).append(per_batch)
        mine.setdefault("state_bytes", []).append(run["batches"][-1]["state_bytes"])
    summary: dict[str, Any] = {
        query: {name: round(float(np.median(numbers)), 1) for name, numbers in mine.items()}
        for query, mine in found.items()
    }
    for query in summary.values():
        query["state_bytes_per_query"] = round(query["state_bytes"] / size.queries, 1)
    return summary


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
