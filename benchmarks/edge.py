"""The edge: bytes sent against the hold on recordings, rows per second without Numba, and how fast it starts.

Bytes are counted over the lines of the recordings as they are, header included. Speed and start are those of the
command as a process of its own, from a file to /dev/null; the median of several runs counts, by the clock and the CPU.
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
from tocsin.edge.filter import Filter
from tocsin.edge.settings import Settings

HOLDS = {"0": 0.0, "1/32": 1 / 32, "1/8": 1 / 8, "1/4": 1 / 4, "1/2": 1 / 2, "1": 1.0}
SECOND = 1_000_000
# Name, file, time column and its unit, value, interval.
RECORDINGS = (
    ("occupancy, light, 1 h", "uci_occupancy/occupancy.csv.gz", "date", "s", "light", 3600 * SECOND),
    ("occupancy, temperature, 1 h", "uci_occupancy/occupancy.csv.gz", "date", "s", "temperature", 3600 * SECOND),
    ("DEBS 2012, mf01, 1 s", "debs2012_manufacturing/debs2012_small.csv.gz", "ts_us", "us", "mf01", SECOND),
)
SHAPES = ("quasiconvex", "increasing")
COMMAND = "import sys; from tocsin.cli import edge, main; main.COMMANDS = (edge,); sys.exit(main.main())"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks edge", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    parser.add_argument("--plots", type=Path, default=PLOTS, help="folder of the plot")
    parser.add_argument("--quick", action="store_true", help="small inputs: only to see that it runs")
    options = parser.parse_args(argv)
    count, runs = (2_000, 1) if options.quick else (300_000, 5)
    results = {
        "load_before": os.getloadavg()[0],
        "hold": bytes_against_hold(("0", "1") if options.quick else tuple(HOLDS)),
        "start": started(2 if options.quick else 10),
        "speed": speed(count, runs),
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    if results["hold"]:
        draw(results["hold"], options.plots)
    return 0


def bytes_against_hold(holds: tuple[str, ...] = tuple(HOLDS)) -> list[dict[str, Any]]:
    """Reduce the recordings that are here; none is no error."""
    found = []
    for name, file, column, unit, value, interval in RECORDINGS:
        if not recording(file).exists():
            continue
        data = gzip.decompress(recording(file).read_bytes())
        for shape in SHAPES:
            for hold in holds:
                hold_us = round(HOLDS[hold] * interval)
                settings = Settings(column, (value,), interval, hold_us, (shape,), format="csv", time_unit=unit)
                found.append({"recording": name, "shape": shape, "hold": hold, **reduced(data, settings)})
    return found


def reduced(data: bytes, settings: Settings) -> dict[str, Any]:
    edge = Filter(settings)
    due = edge.take(data) + edge.end()
    out = sum(len(one.line) for one in due)
    rows = sum(one.number >= 0 for one in due)
    received = edge.ledger.received
    return {"rows": received, "rows_sent": rows, "bytes": len(data), "bytes_sent": out, "share": out / len(data)}


def started(runs: int) -> dict[str, float]:
    """Time the command on an empty input, and Python with nothing but NumPy imported."""
    idle = [sys.executable, "-c", COMMAND, "edge", "--interval", "10s", "--time", "ts", "--value", "temp"]
    numpy = [sys.executable, "-c", "import numpy"]
    times: dict[str, list[float]] = {"edge": [], "numpy": []}
    for _ in range(runs):
        for name, command in (("edge", idle), ("numpy", numpy)):
            times[name].append(timed(command, Path(os.devnull))[0])
    return {f"{name}_seconds": round(statistics.median(taken), 3) for name, taken in times.items()}


def timed(command: list[str], source: Path) -> tuple[float, float]:
    """Run a command; give its seconds by the clock and by the CPU."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with source.open("rb") as stdin:
        subprocess.run(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    taken, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def walk(count: int) -> list[float]:
    """A random walk, rounded as sensors round."""
    return np.round(20 + 0.1 * np.cumsum(np.random.default_rng(1).normal(0, 1, count)), 1).tolist()


def as_json(count: int, keys: int = 1, late: int = 0) -> Iterator[str]:
    """Ten rows a second and key; with `late`, one row in so many comes 2 s behind."""
    for i, value in enumerate(walk(count)):
        back = 2.0 if late and i % late == 0 else 0.0
        yield f'{{"machine": "press-{i % keys}", "ts": {1_700_000_000 + i // keys / 10 - back:.1f}, "temp": {value}}}\n'


def as_csv(count: int) -> Iterator[str]:
    yield "machine,ts,temp\n"
    for i, value in enumerate(walk(count)):
        yield f"press-7,{1_700_000_000 + i / 10:.1f},{value}\n"


def as_iso(count: int) -> Iterator[str]:
    start = np.datetime64("2026-01-01T00:00:00", "ms")
    for i, value in enumerate(walk(count)):
        yield f'{{"machine": "press-7", "ts": "{start + 100 * i}Z", "temp": {value}}}\n'


CASES: dict[str, tuple[Callable[[int], Iterator[str]], tuple[str, ...]]] = {
    "JSON lines": (as_json, ()),
    "JSON lines, quasiconvex": (as_json, ("--shape", "quasiconvex")),
    "JSON lines, ISO 8601": (as_iso, ()),
    "JSON lines, 1,000 keys": (lambda count: as_json(count, keys=1000), ()),
    "JSON lines, 1 row in 100 late": (lambda count: as_json(count, late=100), ()),
    "JSON lines, 1 row in 10 late": (lambda count: as_json(count, late=10), ()),
    "JSON lines, hold 0": (as_json, ("--hold", "0")),
    "CSV": (as_csv, ("--format", "csv")),
}


def speed(count: int, runs: int) -> dict[str, dict[str, Any]]:
    """Time the command on generated rows; what it needs to start is counted in."""
    plain = ["edge", "--interval", "10s", "--key", "machine", "--time", "ts", "--value", "temp"]
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, options) in CASES.items():
            source = Path(folder) / "rows"
            source.write_text("".join(make(count)), encoding="utf-8")
            shape = () if "--shape" in options else ("--shape", "increasing")
            command = [sys.executable, "-c", COMMAND, *plain, *shape, *options]
            taken = [timed(command, source) for _ in range(runs)]
            clock, cpu = (statistics.median(one[place] for one in taken) for place in (0, 1))
            results[name] = {
                "rows": count,
                "seconds": round(clock, 3),
                "cpu_seconds": round(cpu, 3),
                "rows_per_second": round(count / clock),
                "rows_per_cpu_second": round(count / cpu),
            }
    return results


def draw(found: list[dict[str, Any]], folder: Path) -> None:
    """Draw bytes sent against the hold."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(point["recording"] for point in found))
    figure = Figure(figsize=(10.5, 4.6))
    axes = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        for shape, style in zip(SHAPES, ("o-", "s--"), strict=True):
            points = [point for point in found if (point["recording"], point["shape"]) == (name, shape)]
            shares = [100 * point["share"] for point in points]
            axis.plot(range(len(points)), shares, style, label=shape)
            for place in range(1, len(points)):
                # The upper line is steep at its first point, so the number stands beside it.
                beside = shape == "quasiconvex" and place == 1
                shift = (7, 2) if beside else (0, 8 if shape == "quasiconvex" else -13)
                side = "left" if beside else "center"
                text = f"{shares[place]:.0f}"
                axis.annotate(text, (place, shares[place]), shift, textcoords="offset points", ha=side, fontsize=8)
        axis.set_xticks(range(len(points)), [point["hold"] for point in points])
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("hold / interval (not to scale)")
        axis.set_ylim(0, 108)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("bytes sent, % of bytes read")
    axes[-1].legend(fontsize=9)
    figure.suptitle("What holding saves: bytes sent by `tocsin edge`", fontsize=11)
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "edge_hold.png", dpi=110)
