"""Measure range thresholding: Figures 3 to 8 of Qiao, Gan, Tao, SIGMOD 2016, in 1-D and 2-D, and beside them.

Every setting runs in a process of its own, one run, on one core; times are processor times unless they say wall.
`RangeIndex` and `Tracking`, the paper's algorithm, run the whole stream. Baselines are sampled: at five points of the
stream they get the queries then alive and one batch, from which the whole is reckoned (`ranges_runs.estimate`).
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import resource
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ranges_baselines as baselines
from benchmarks.conditions import conditions
from benchmarks.parts import PLOTS, parser_of, selected_parts, write
from benchmarks.ranges_bars import bars
from benchmarks.ranges_data import TRADES, Setting, make, trades
from benchmarks.ranges_plots import draw
from benchmarks.ranges_runs import GROUP, SAMPLED, Clock, alike, estimate, state_bytes, whole
from tocsin.stages.ranges.index import RangeIndex
from tocsin.stages.ranges.tracking import Tracking

INDEXES: dict[str, Any] = {"RangeIndex": RangeIndex, "Tracking": Tracking}
SCANS: dict[str, Any] = {"scan per element": baselines.ScanPerElement, "scan per batch": baselines.ScanPerBatch}
TREES: dict[int, dict[str, Any]] = {
    1: {"interval tree": baselines.IntervalTreeStab},
    2: {"seg-intv tree": baselines.SegmentIntervalTree, "R-tree": baselines.PackedRTree},
}
QUERIES = (100_000, 250_000, 500_000, 1_000_000, 2_000_000)
THRESHOLDS = (5_000_000, 10_000_000, 20_000_000, 40_000_000, 80_000_000)
INSERTS = (0.1, 0.2, 0.3, 0.4, 0.5)
# Parts that are figures of the paper, with baselines.
FIGURES = ("static", "queries", "threshold", "stochastic", "fixed")
TOUCHED_BYTES = 1 << 30
SYMBOLS = ("SPY", "BAC", "AIG", "IBM")
PARTS = (
    "static",
    "queries",
    "threshold",
    "stochastic",
    "fixed",
    "real",
    "narrow",
    "single",
    "register",
    "three",
    "trades",
)


def main(argv: list[str] | None = None) -> int:
    parser = parser_of("ranges", __doc__, PARTS)
    parser.add_argument("--dims", default="1,2", help="1, 2 or both")
    parser.add_argument("--points", type=int, default=5, help="settings of each sweep, from the first to the last")
    parser.add_argument("--limit", type=float, default=150, help="seconds after which Tracking and `single` stop")
    parser.add_argument("--full", action="store_true", help="two dimensions at the paper's size, and no limit")
    parser.add_argument("--whole", action="store_true", help="trees run the whole stream in `static`; minutes")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times as many queries (default: %(default)s)")
    parser.add_argument("--draw", type=Path, help="run nothing; draw what --json wrote to this file before")
    options = parser.parse_args(argv)
    if options.draw:
        draw(json.loads(options.draw.read_text(encoding="utf-8")), options.plots or PLOTS)
        return 0
    parts = selected_parts(parser, options.only, PARTS)
    results: dict[str, Any] = conditions() | {"quick": options.quick, "full": options.full, "runs": []}
    start = time.perf_counter()
    known: dict[Any, list[dict[str, Any]]] = {}
    for job in jobs(parts, [int(dims) for dims in options.dims.split(",")], options):
        load = os.getloadavg()[0]
        # The paper's own setting is a point of two sweeps too: it runs once.
        same = job[2:] if job[1] in FIGURES else job
        if same not in known:
            known[same] = [row | {"load_before": load} for row in perform(job, alone=not options.quick)]
        for row in known[same]:
            results["runs"].append(row | {"part": job[1]})
            print(told(row), flush=True)
        results["bars"] = bars(results["runs"])
        results["seconds"] = round(time.perf_counter() - start, 1)
        write(results, options.json)
    print(json.dumps(results["bars"], indent=1))
    if options.plots:
        draw(results, options.plots)
    return 0


def jobs(parts: list[str], dims: list[int], options: Any) -> Iterator[tuple[Any, ...]]:
    """What to run: a function and its arguments."""
    limit = 1e9 if options.full else options.limit
    for part in parts:
        if part == "register":
            yield from ((registering, part, name, 2000 if options.quick else 1_000_000) for name in INDEXES)
        elif part == "three":
            yield three, part, 300 if options.quick else 10_000
        elif part == "trades":
            symbols = SYMBOLS[-1:] if options.quick else SYMBOLS
            yield from (
                (trading, part, symbol, 500 if options.quick else 100_000) for symbol in symbols if TRADES.exists()
            )
        else:
            for count in dims:
                for setting in chosen(settings(part, count), 2 if options.quick else options.points):
                    size = scaled(setting, options.scale, full=options.full, quick=options.quick)
                    yield streaming, part, size, limit, options.whole and part == "static"


def chosen(swept: list[Setting], points: int) -> list[Setting]:
    """As many of the settings, from the first to the last."""
    places = np.linspace(0, len(swept) - 1, min(points, len(swept))).round().astype(int)
    return [swept[place] for place in places.tolist()]


def settings(part: str, dims: int) -> list[Setting]:
    """The settings of a part at the paper's size."""
    plain = Setting(dims=dims)
    if part in {"static", "single"}:
        return [plain]
    if part == "queries":
        return [plain._replace(queries=queries) for queries in QUERIES]
    if part == "threshold":
        return [plain._replace(threshold=threshold) for threshold in THRESHOLDS]
    if part == "stochastic":
        return [plain._replace(mode="stochastic", insert=insert) for insert in INSERTS]
    if part == "fixed":
        return [plain._replace(mode="fixed")]
    if part == "real":
        return [plain._replace(real=True)]
    return [plain._replace(volume=1e-4, threshold=20_000)]


def scaled(setting: Setting, scale: float = 1.0, *, full: bool, quick: bool) -> Setting:
    """A tenth of the queries in two dimensions, unless in full; a quick one has few of all. As many come anew."""
    share = scale * (0.1 if setting.dims > 1 and not full else 1.0)
    insert = setting.insert * share
    if quick:
        setting = setting._replace(threshold=setting.threshold // 1000, elements=3000)
        share *= 0.001 if setting.dims == 1 else 0.01
        insert = setting.insert / 100
    return setting._replace(queries=max(int(setting.queries * share), 50), insert=insert)


def perform(job: tuple[Any, ...], *, alone: bool) -> list[dict[str, Any]]:
    """Run a job, in a process of its own if asked."""
    function, *arguments = job
    if not alone:
        return list(function(*arguments))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return list(pool.apply(_listed, (function, arguments)))


def _listed(function: Any, arguments: list[Any]) -> list[dict[str, Any]]:
    # Memory that a virtual machine was never given costs up to 2 s per GB at its first touch, which is not the point.
    np.ones(TOUCHED_BYTES // 8)
    return list(function(*arguments))


def streaming(part: str, setting: Setting, limit_s: float, whole_trees: bool) -> Iterator[dict[str, Any]]:
    """One setting: the index and the paper's algorithm in whole, the baselines sampled, or trees in whole too."""
    size = 1 if part == "single" else GROUP
    trees = SCANS | TREES[setting.dims] if part in FIGURES else {}
    for method in (INDEXES | trees).values():
        warm_up(method, setting.dims, size)
    workload = make(setting)
    facts = {"part": part, "dims": setting.dims, "setting": setting._asdict(), "batch": size}
    first = None
    for name, method in INDEXES.items():
        index = method(setting.dims)
        done = whole(index, workload, size, limit_s if name == "Tracking" or size == 1 else 1e9, SAMPLED)
        first = first or done
        yield facts | {"method": name, "agrees": alike(done, first)} | figures(done)
        del index
        gc.collect()
    for name, method in trees.items():
        yield facts | {"method": name} | estimate(method, workload, first)
        if whole_trees and name not in SCANS:
            done = whole(method(setting.dims), workload, size)
            yield facts | {"method": f"{name}, whole", "agrees": alike(done, first)} | figures(done)


def figures(done: Any) -> dict[str, Any]:
    """Figures of a run. One that was stopped counts without the registration in bulk, which would make it look good."""
    early, early_seconds = (0, 0.0) if done.whole else (done.first, done.register_seconds)
    return {
        "whole": done.whole,
        "elements": done.elements,
        "registered": done.registered,
        "operations": done.operations,
        "matured": int(done.matured[0].size),
        "seconds": done.seconds,
        "cpu_seconds": done.cpu_seconds,
        "register_seconds": done.register_seconds,
        "us_per_operation": (done.cpu_seconds - early_seconds) / (done.operations - early) * 1e6,
        "wall_us_per_operation": done.seconds / done.operations * 1e6 if done.whole else None,
        "bytes_per_alive": [size / max(alive, 1) for alive, size in done.state],
        "trace": done.trace,
    }


@cache
def warm_up(method: Any, dims: int, size: int) -> None:
    """Compile: small streams of all modes."""
    for mode in ("static", "stochastic", "fixed"):
        whole(method(dims), make(Setting(mode, dims, 6000, 20_000, elements=2000)), size, 1e9, (0.5,))
    if method is RangeIndex:
        # So many elements that totals in the plane are read by a sweep.
        whole(method(dims), make(Setting("stochastic", dims, 6000, 10**9, elements=20_000)), size, 1e9, (0.9,))


def registering(part: str, name: str, queries: int) -> Iterator[dict[str, Any]]:
    """Registration in bulk, then one query more before each of many elements, and memory."""
    warm_up(INDEXES[name], 1, GROUP)
    warm_up(INDEXES[name], 1, 1)
    more = min(20_000, queries)
    w = make(Setting(queries=queries + more))
    before, index, clock = memory(), INDEXES[name](1), Clock()
    calls = [("register", (np.arange(queries), w.low[:queries], w.high[:queries], w.threshold[:queries]))]
    clock.run(index, [*calls, ("push", (w.values[:0],))])
    bulk, after, held = clock.cpu, memory(), state_bytes(index)
    pushes = [("push", (w.values[i : i + 1], w.weights[i : i + 1])) for i in range(2 * more)]
    alone, both = Clock(), Clock()
    alone.run(index, pushes[:more])
    calls = [("register", (np.array([i]), w.low[i : i + 1], w.high[i : i + 1], w.threshold[i : i + 1]))
             for i in range(queries, queries + more)]  # fmt: skip
    both.run(index, [call for pair in zip(calls, pushes[more:], strict=True) for call in pair])
    yield {
        "part": part, "method": name, "queries": queries, "bulk_seconds": bulk, "bytes_per_alive": [held / queries],
        "resident_bytes_per_alive": (after - before) / queries, "us_per_element": alone.cpu / more * 1e6,
        "us_per_element_with_one_more": both.cpu / more * 1e6, "us_one_more": (both.cpu - alone.cpu) / more * 1e6,
    }  # fmt: skip


def memory() -> int:
    """Bytes that are resident now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def three(part: str, queries: int) -> Iterator[dict[str, Any]]:
    """Three and four dimensions: everything that takes them agrees over a whole stream."""
    for dims in (3, 4):
        w = make(Setting("stochastic", dims, queries, 20 * queries, elements=6 * queries, insert=0.05))
        first = None
        for name, method in (SCANS | INDEXES).items():
            if name != "scan per element":
                warm_up(method, dims, GROUP)
                done = whole(method(dims), w)
                first = first or done
                yield {"part": part, "dims": dims, "method": name, "agrees": alike(done, first)} | figures(done)


def trading(part: str, symbol: str, queries: int) -> Iterator[dict[str, Any]]:
    """A day of trades of one symbol, with random price ranges and volumes: all methods, the whole day."""
    w, first = trades(symbol, queries), None
    for name, method in (INDEXES | SCANS | TREES[1]).items():
        warm_up(method, 1, GROUP)
        done = whole(method(1), w)
        first = first or done
        yield {"part": part, "dims": 1, "method": name, "symbol": symbol, "agrees": alike(done, first)} | figures(done)


def told(row: dict[str, Any]) -> str:
    """A line on how far the benchmark is."""
    setting = row.get("setting", {})
    what = [row["symbol"]] if "symbol" in row else [setting.get(name) for name in ("queries", "threshold", "insert")]
    if row["part"] == "register":
        return f"register {row['method']}: bulk {row['bulk_seconds']:.2f} s, one more {row['us_one_more']:.1f} us"
    return (f"{row['part']} {row['dims']}-D {what} {row['method']}: {row['us_per_operation']:.3f} us per operation, "
            f"{row['cpu_seconds']:.1f} s, agrees {row['agrees']}")  # fmt: skip
