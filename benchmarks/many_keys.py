"""Many keys: CPU time per row and bytes of state per key of a witness rule over two streams with 10^6 keys.

One session receives micro-batches. After each micro-batch it writes the changed state pages, as an engine does. The
first micro-batches bring every key once per stream. The steady micro-batches bring rows of random keys. The time of a
micro-batch includes the pages, and excludes the construction of its arrays. Bytes per key are the bytes of all pages
after the first micro-batches, without the retained rows, of a rule that raises no alert. Two versions take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.conditions import conditions

ROOT = Path(__file__).resolve().parent.parent
# Script of one measurement. It uses only names that both versions have, and runs in the environment of its version.
MEASURE = """\
import json, sys, time
import numpy as np
from tocsin import Rule
from tocsin.plan import make_plan
from tocsin.runtime.contract import Batch
from tocsin.runtime.session import Session, store_pages

keys, rows, fills, steady = map(int, sys.argv[1:5])
STREAMS = ("r", "s")
names = np.empty(keys, object)
names[:] = [(f"machine-{number:07}",) for number in range(keys)]
rule = Rule("Hot", "r - s > 6", within="10s", on="machine", shapes={"r": "increasing", "s": "decreasing"})
plan = make_plan([rule], {name: ["ts", "machine", "value"] for name in STREAMS})
random = np.random.default_rng(1)


def calls(chosen, begin_us):
    \"\"\"Return the batches of one call with these keys in both streams, and the time of its last row.\"\"\"
    batches, count = [], len(chosen) // len(STREAMS)
    for number, name in enumerate(STREAMS):
        unique, key = np.unique(chosen[number * count : (number + 1) * count], return_inverse=True)
        time_us = begin_us + np.arange(count, dtype=np.int64) * 10
        values = {"value": np.clip(random.normal(size=count), -3.0, 3.0)}
        arrival = np.arange(count, dtype=np.int64) * 2 + number
        batches.append(Batch(0, name, list(names[unique]), key.astype(np.int64), time_us, arrival, values))
    return batches, begin_us + count * 10


session, pages, now_us = Session(plan), {}, 1_767_225_600_000_000
spent = {"fill": [0.0, 0], "steady": [0.0, 0], "pages": [0.0, 0]}
for number in range(-1, fills + steady):
    if number < 0:  # Compile or load the kernels with a session of its own.
        warm, _ = calls(np.tile(np.arange(min(keys, 5000)), 2), now_us)
        Session(plan).push(warm, now_us)
        continue
    if number < fills:
        part = np.array_split(np.arange(keys), fills)[number]
        chosen = np.concatenate([part, part])
    else:
        chosen = random.integers(0, keys, rows)
    batches, now_us = calls(chosen, now_us)
    begin = time.process_time()
    out = session.push(batches, now_us)
    middle = time.process_time()
    changed = session.changed_pages()
    end = time.process_time()
    store_pages(pages, changed)
    assert not out.alerts
    kind = spent["fill" if number < fills else "steady"]
    kind[0], kind[1] = kind[0] + end - begin, kind[1] + len(chosen)
    if number >= fills:
        spent["pages"][0] += end - middle
        spent["pages"][1] += len(chosen)
    if number == fills - 1:
        retained = sum(counts["retained"] for counts in out.counts.values()) * fills
        size = sum(map(len, pages.values()))
found = {f"{name}_us_per_row": round(1e6 * cpu / max(count, 1), 3) for name, (cpu, count) in spent.items()}
print(json.dumps(found | {"bytes_per_key": round((size - 16 * retained) / keys, 1), "state_bytes": size}))
"""


def measure(root: Path, sizes: list[int]) -> dict[str, Any]:
    """Run one measurement with the code of a worktree."""
    own = root / ".venv" / "bin" / "python"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(own) if own.exists() else sys.executable, "-c", MEASURE, *map(str, sizes)]
    done = subprocess.run(
        command, cwd=root, env=environ | {"PYTHONPATH": str(root / "src")}, check=True, stdout=subprocess.PIPE
    )
    return dict(json.loads(done.stdout))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks many-keys", description=__doc__)
    parser.add_argument("--against", type=Path, metavar="PATH", help="a worktree of the older version, with its .venv")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=250_000, help="rows of a steady micro-batch")
    parser.add_argument("--fills", type=int, default=4, help="micro-batches that bring every key once per stream")
    parser.add_argument("--batches", type=int, default=4, help="steady micro-batches")
    parser.add_argument("--quick", action="store_true", help="few keys, once: only to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args(argv)
    sizes = [options.keys, options.rows, options.fills, options.batches]
    sizes = [10_000, 10_000, 1, 1] if options.quick else sizes
    versions = {"new": ROOT}
    if options.against:
        versions = {"old": options.against.absolute()} | versions
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in versions}
    for _ in range(1 if options.quick else options.repeats):
        for name, root in versions.items():
            runs[name].append(measure(root, sizes) | {"load": round(os.getloadavg()[0], 1)})
    medians = {
        name: {key: round(statistics.median(run[key] for run in mine), 3) for key in mine[0]}
        for name, mine in runs.items()
    }
    results = conditions() | {"quick": options.quick, "sizes": sizes, "summary": medians, "runs": runs}
    text = json.dumps(results, indent=1)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0
