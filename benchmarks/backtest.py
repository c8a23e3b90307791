"""Backtest: wall time, rows per second and peak memory of `tocsin backtest` on a month of a fleet.

Three streams have one row per minute and machine. Their Parquet files are written day by day, which needs little
memory. The benchmark runs the command as a user does. Twice per second it measures the memory of the whole process tree
(Python, JVM and workers). Memory that processes share is counted once (PSS).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
MINUTE_US, DAY_MINUTES = 60_000_000, 1_440
# Mean, daily swing, noise and number of decimal places.
STREAMS = {"humidity": (65.0, 15.0, 2.0, 1), "air": (12.0, 5.0, 0.5, 1), "surface": (10.0, 2.0, 0.3, 1)}
RULES = """\
streams:
  humidity: {source: {parquet: {path: data/humidity}}, keys: [machine], values: {value: {domain: "(0, 200]"}}}
  air: {source: {parquet: {path: data/air}}, keys: [machine]}
  surface: {source: {parquet: {path: data/surface}}, keys: [machine]}
groups:
  - name: cold-store
    rules:
      - alert: Condensation
        expr: ln(humidity/100) + 18.678*air/(257.14+air) - 18.678*surface/(257.14+surface) > 0
        within: 10m
        on: [machine]
        keep_firing_for: 15m
        allowed_lateness: 6h
        shapes: {humidity: increasing, air: increasing, surface: decreasing}
"""


def write_day(folder: Path, day: int, machines: int, seed: int) -> int:
    """Write one day of all streams, one file per stream; return the number of rows."""
    rows = machines * DAY_MINUTES
    minute = np.repeat(np.arange(day * DAY_MINUTES, (day + 1) * DAY_MINUTES, dtype=np.int64), machines)
    machine = np.tile(np.arange(machines), DAY_MINUTES)
    names = pa.DictionaryArray.from_arrays(pa.array(machine, pa.int32()), [f"machine-{m:05}" for m in range(machines)])
    for index, (stream, (mean, swing, noise, digits)) in enumerate(STREAMS.items()):
        rng = np.random.default_rng([seed, day, index])
        ts = START_US + minute * MINUTE_US + rng.integers(0, 20_000_000, rows)
        value = mean + swing * np.sin(minute / DAY_MINUTES * 2 * np.pi + machine) + rng.normal(0, noise, rows)
        order = np.argsort(ts, kind="stable")
        columns = {"machine": names.take(pa.array(order)), "ts": pa.array(ts[order], pa.timestamp("us", "UTC"))}
        table = pa.table({**columns, "value": np.round(value[order], digits)})
        path = folder / "data" / stream
        path.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path / f"day-{day:03}.parquet")
    return rows * len(STREAMS)


def process_tree(root: int) -> set[int]:
    """Return the ids of a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry))
    tree, pending = set[int](), [root]
    while pending:
        process = pending.pop()
        tree.add(process)
        pending += parents.get(process, [])
    return tree


def memory_bytes(process: int) -> int:
    """Return the memory of a process. Shared memory is divided by the number of processes that share it."""
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process, which depends less on the load of the machine than wall time."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(folder: Path, extra: list[str]) -> dict[str, Any]:
    """Run the command; return wall time, CPU time, peak memory and its JSON output."""
    command = [sys.executable, "-m", "tocsin", "backtest", "rules.yaml", "--json", *extra]
    begin, peak, cpu_by_process = time.monotonic(), 0, dict[int, float]()
    with (folder / "output.json").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output)
        while process.poll() is None:
            tree = process_tree(process.pid)
            peak = max(peak, sum(memory_bytes(one) for one in tree))
            cpu_by_process |= {one: seconds for one in tree if (seconds := cpu_seconds(one))}
            time.sleep(0.5)
    seconds = time.monotonic() - begin
    if process.returncode:
        sys.exit(f"the command failed with {process.returncode}")
    output_json = json.loads((folder / "output.json").read_text())
    cpu = round(sum(cpu_by_process.values()), 1)
    return {"wall_seconds": round(seconds, 1), "cpu_seconds": cpu, "peak_bytes": peak, "output": output_json}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks backtest", description=__doc__)
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--folder", help="directory for the data; without it, a temporary directory is deleted at the end"
    )
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--report", action="store_true", help="also write the HTML report")
    parser.add_argument("--json", metavar="FILE", help="write the results to this file")
    arguments = parser.parse_args(argv)
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="tocsin-backtest-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        results = measure(folder, arguments)
    finally:
        if not arguments.folder:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(results, indent=2))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n")
    return 0


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    (folder / "rules.yaml").write_text(RULES)
    begin, rows = time.monotonic(), arguments.machines * DAY_MINUTES * arguments.days * len(STREAMS)
    if not (folder / "data").exists():
        rows = sum(write_day(folder, day, arguments.machines, arguments.seed) for day in range(arguments.days))
    making_s = time.monotonic() - begin
    load = os.getloadavg()[0]
    extra = ["--master", arguments.master, *(["--report", "report.html"] if arguments.report else [])]
    measured = run(folder, extra)
    output = measured.pop("output")
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": os.cpu_count(),
        "load_before": load,
        "versions": {name: version(name) for name in ("tocsin", "pyspark", "numpy", "numba", "pyarrow")},
        "machines": arguments.machines,
        "days": arguments.days,
        "rows": rows,
        "making_seconds": round(making_s, 1),
        **measured,
        "peak_gib": round(measured["peak_bytes"] / 2**30, 2),
        "run_seconds": output["seconds"],
        "rows_per_second": round(rows / measured["wall_seconds"]),
        "rows_counted": output["rows"],
        "alerts": sum(rule["alerts"] for rule in output["rules"]),
        "streams": output["streams"],
        "state_bytes": output["state_bytes"],
    }
