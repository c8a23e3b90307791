"""Edge filter: bytes sent by maximum delay on recordings, rows per second, and start time.

Bytes are the lines of the recordings, including the header. Speed and start time are measured on the command as a child
process that reads a file and writes to /dev/null. Results are medians of several runs, in wall-clock and CPU time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recordings import recording
from benchmarks.threshold_plots import PLOTS
from tocsin.edge.edge_filter import EdgeFilter
from tocsin.edge.settings import Settings

MAX_DELAYS = {"0": 0.0, "1/32": 1 / 32, "1/8": 1 / 8, "1/4": 1 / 4, "1/2": 1 / 2, "1": 1.0}
SECOND = 1_000_000
# Name, file, time column, time unit, value column, interval in microseconds.
RECORDINGS = (
    ("occupancy, light, 1 h", "uci_occupancy/occupancy.csv.gz", "date", "s", "light", 3600 * SECOND),
    ("occupancy, temperature, 1 h", "uci_occupancy/occupancy.csv.gz", "date", "s", "temperature", 3600 * SECOND),
    ("DEBS 2012, mf01, 1 s", "debs2012_manufacturing/debs2012_small.csv.gz", "ts_us", "us", "mf01", SECOND),
)
SHAPES = ("quasiconvex", "increasing")
COMMAND = "import sys; from tocsin.cli import edge, main; main.COMMANDS = (edge,); sys.exit(main.main())"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks edge", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--plots", type=Path, default=PLOTS, help="folder for the plot")
    parser.add_argument("--quick", action="store_true", help="use small inputs, to check that the benchmark runs")
    options = parser.parse_args(argv)
    count, runs = (2_000, 1) if options.quick else (300_000, 5)
    results = {
        "load_before": os.getloadavg()[0],
        "bytes": measure_bytes(("0", "1") if options.quick else tuple(MAX_DELAYS)),
        "start": measure_start(2 if options.quick else 10),
        "speed": measure_speed(count, runs),
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    if results["bytes"]:
        draw_bytes(results["bytes"], options.plots)
    return 0


def measure_bytes(max_delays: tuple[str, ...] = tuple(MAX_DELAYS)) -> list[dict[str, Any]]:
    """Filter the recordings that exist, for each shape and maximum delay."""
    points = []
    for name, file, column, unit, value, interval in RECORDINGS:
        if not recording(file).exists():
            continue
        data = gzip.decompress(recording(file).read_bytes())
        for shape in SHAPES:
            for max_delay in max_delays:
                max_delay_us = round(MAX_DELAYS[max_delay] * interval)
                settings = Settings(column, (value,), interval, max_delay_us, (shape,), format="csv", time_unit=unit)
                result = filter_bytes(data, settings)
                points.append({"recording": name, "shape": shape, "max_delay": max_delay, **result})
    return points


def filter_bytes(data: bytes, settings: Settings) -> dict[str, Any]:
    """Filter a file in memory; return rows and bytes, received and sent."""
    edge = EdgeFilter(settings)
    due = edge.process(data) + edge.end()
    out = sum(len(one.line) for one in due)
    rows = sum(one.number >= 0 for one in due)
    received = edge.buffer.received
    return {"rows": received, "rows_sent": rows, "bytes": len(data), "bytes_sent": out, "share": out / len(data)}


def measure_start(runs: int) -> dict[str, float]:
    """Time the command on an empty input, and Python with an import of NumPy for comparison."""
    idle = [sys.executable, "-c", COMMAND, "edge", "--interval", "10s", "--time", "ts", "--value", "temp"]
    numpy = [sys.executable, "-c", "import numpy"]
    times: dict[str, list[float]] = {"edge": [], "numpy": []}
    for _ in range(runs):
        for name, command in (("edge", idle), ("numpy", numpy)):
            times[name].append(time_command(command, Path(os.devnull))[0])
    return {f"{name}_seconds": round(statistics.median(seconds), 3) for name, seconds in times.items()}


def time_command(command: list[str], source: Path) -> tuple[float, float]:
    """Run a command; return its wall-clock seconds and its CPU seconds."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with source.open("rb") as stdin:
        subprocess.run(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def random_walk(count: int) -> list[float]:
    """Return a random walk with rounded values, as sensors report them."""
    return np.round(20 + 0.1 * np.cumsum(np.random.default_rng(1).normal(0, 1, count)), 1).tolist()


def json_rows(count: int, keys: int = 1, period: int = 0) -> Iterator[str]:
    """Yield ten rows per second and key. With `period`, one row per period is out of order by 2 s."""
    for i, value in enumerate(random_walk(count)):
        back = 2.0 if period and i % period == 0 else 0.0
        yield f'{{"machine": "press-{i % keys}", "ts": {1_700_000_000 + i // keys / 10 - back:.1f}, "temp": {value}}}\n'


def csv_rows(count: int) -> Iterator[str]:
    """Yield a header and ten rows per second."""
    yield "machine,ts,temp\n"
    for i, value in enumerate(random_walk(count)):
        yield f"press-7,{1_700_000_000 + i / 10:.1f},{value}\n"


def iso_rows(count: int) -> Iterator[str]:
    """Yield ten rows per second with times in ISO 8601."""
    start = np.datetime64("2026-01-01T00:00:00", "ms")
    for i, value in enumerate(random_walk(count)):
        yield f'{{"machine": "press-7", "ts": "{start + 100 * i}Z", "temp": {value}}}\n'


CASES: dict[str, tuple[Callable[[int], Iterator[str]], tuple[str, ...]]] = {
    "JSON lines": (json_rows, ()),
    "JSON lines, quasiconvex": (json_rows, ("--shape", "quasiconvex")),
    "JSON lines, ISO 8601": (iso_rows, ()),
    "JSON lines, 1,000 keys": (lambda count: json_rows(count, keys=1000), ()),
    "JSON lines, 1 of 100 rows out of order": (lambda count: json_rows(count, period=100), ()),
    "JSON lines, 1 of 10 rows out of order": (lambda count: json_rows(count, period=10), ()),
    "JSON lines, maximum delay 0": (json_rows, ("--max-delay", "0")),
    "CSV": (csv_rows, ("--format", "csv")),
}


def measure_speed(count: int, runs: int) -> dict[str, dict[str, Any]]:
    """Time the command on generated rows, including its start."""
    plain = ["edge", "--interval", "10s", "--key", "machine", "--time", "ts", "--value", "temp"]
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, options) in CASES.items():
            source = Path(folder) / "rows"
            source.write_text("".join(make(count)), encoding="utf-8")
            shape = () if "--shape" in options else ("--shape", "increasing")
            command = [sys.executable, "-c", COMMAND, *plain, *shape, *options]
            times = [time_command(command, source) for _ in range(runs)]
            clock, cpu = (statistics.median(run[index] for run in times) for index in (0, 1))
            results[name] = {
                "rows": count,
                "seconds": round(clock, 3),
                "cpu_seconds": round(cpu, 3),
                "rows_per_second": round(count / clock),
                "rows_per_cpu_second": round(count / cpu),
            }
    return results


def draw_bytes(points: list[dict[str, Any]], folder: Path) -> None:
    """Plot the share of bytes sent over the maximum delay."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(point["recording"] for point in points))
    figure = Figure(figsize=(10.5, 4.6))
    axes = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        for shape, style in zip(SHAPES, ("o-", "s--"), strict=True):
            line = [point for point in points if (point["recording"], point["shape"]) == (name, shape)]
            shares = [100 * point["share"] for point in line]
            axis.plot(range(len(line)), shares, style, label=shape)
            for index in range(1, len(line)):
                # The upper line is steep at its second point, so the number is beside the line.
                beside = shape == "quasiconvex" and index == 1
                shift = (7, 2) if beside else (0, 8 if shape == "quasiconvex" else -13)
                side = "left" if beside else "center"
                text = f"{shares[index]:.0f}"
                axis.annotate(text, (index, shares[index]), shift, textcoords="offset points", ha=side, fontsize=8)
        axis.set_xticks(range(len(line)), [point["max_delay"] for point in line])
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("maximum delay / interval (not to scale)")
        axis.set_ylim(0, 108)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("bytes sent, % of bytes read")
    axes[-1].legend(fontsize=9)
    figure.suptitle("Bytes sent by `tocsin edge`, by maximum delay", fontsize=11)
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "edge_max_delay.png", dpi=110)
