"""What the steps of promising work cost on one core, in nanoseconds and in tuples scanned: it calibrates `Costs`.

Estimates and sums of tables are measured by themselves, the other steps in joins, as differences: by itself a queue
that stays in the cache costs a quarter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from math import floor, inf
from typing import Any

import numpy as np

from tocsin.jit import kernel
from tocsin.runtime.contract import Int
from tocsin.stages.promising.anytime_join import COSTS, AnytimeJoin
from tocsin.stages.promising.books import Costs, Pace
from tocsin.stages.promising.count_sketch import CountSketch
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.selection import SELECTION_COSTS, Query, StandingSelection
from tocsin.stages.promising.stored import TABLES
from tocsin.stages.promising.summary import combine, count_all, estimate_all

Row = dict[str, Any]
ROWS = 3


def best(body: Callable[[], Any], times: int) -> float:
    """The least processor time of some runs, in seconds."""
    took = []
    for _ in range(times):
        start = time.process_time()
        body()
        took.append(time.process_time() - start)
    return min(took)


@kernel
def combine_often(into: Int, other: Int, times: int) -> None:
    for i in range(times):
        combine(into, other, 1 - 2 * (i % 2))


def costs(part: str, *, quick: bool) -> list[Row]:
    """Nanoseconds of each step, and as many tuples scanned."""
    rows, runs = (4_000, 2) if quick else (40_000, 15)
    scheme = CountSketch(ROWS, 512)
    places = scheme.places(np.random.default_rng(1).integers(0, 1000, 10 * rows), learn=True)
    out, table = np.empty(len(places)), np.zeros((ROWS, scheme.width), np.int64)
    count_all(table, places, 1)
    own = {
        "estimate": best(lambda: estimate_all(table[None], places, 1.0, out), runs) / len(places) / ROWS,
        "table": best(lambda: combine_often(table.copy(), table, 1000), runs) / 1000 / scheme.cells,
    }
    took = own | joining(Layout("T3", buckets=4, zones=2, scheme=scheme), rows, runs, **own)
    chosen = selecting(rows, runs)
    return [
        *lines(part, "join", took, COSTS),
        *lines(part, "selection", chosen, SELECTION_COSTS),
    ]


def lines(part: str, of: str, took: dict[str, float], charged: Costs) -> list[Row]:
    """Each step in nanoseconds, in scans, and as it is charged."""
    return [
        {"part": part, "of": of, "step": step, "ns": round(float(1e9 * seconds), 3),
         "scans": round(float(seconds / took["scan"]), 3), "charged": getattr(charged, step)}
        for step, seconds in took.items()
    ]  # fmt: skip


# Scans are whole numbers in units, and steps of the queue what is behind the point.
COUNTING = Costs(insert=0.0, summarize=0.0, table=0.0, estimate=0.0, queue=2.0**-24, scan=1.0, emit=0.0)


def joining(layout: Layout, rows: int, runs: int, **own: float) -> dict[str, float]:
    """Seconds of each step inside a join: what it takes longer when there is more of that step alone."""
    rng, stream, times = np.random.default_rng(2), np.arange(rows) % 2, np.arange(rows) * 50_000
    # With a fifth of all pairs in a bucket equal, with none, and as streams are.
    keys = {"shared": rng.integers(0, 20, rows), "apart": 2 * rng.integers(0, 500, rows) + stream}
    keys["zipf"] = rng.zipf(1.4, rows) % 1000
    kinds = [("SHJ", "apart", 0.0), ("SHJ", "apart", inf), ("SHJ", "shared", inf), ("T3", "apart", 0.0),
             ("T3", "zipf", 0.0), ("T3", "zipf", 60.0)]  # fmt: skip
    least, joins, emits = dict.fromkeys(kinds, inf), {}, {}
    for _ in range(runs):
        for kind in kinds:
            join = AnytimeJoin(replace(layout, variant=kind[0]), pace=Pace(kind[2], 0.0), costs=COUNTING)
            start = time.process_time()
            emits[kind] = len(join.take(stream, times, keys[kind[1]])) / rows
            least[kind], joins[kind] = min(least[kind], (time.process_time() - start) / rows), join
    scans = {kind: floor(join.spent) / rows for kind, join in joins.items()}
    queued = {kind: (join.spent % 1.0) / COUNTING.queue / rows for kind, join in joins.items()}
    idle, apart, shared, summed, put, half = kinds
    scan = (least[apart] - least[idle]) / scans[apart]
    emit = (least[shared] - least[idle] - scan * scans[shared]) / emits[shared]
    probing = least[half] - least[put] - scan * scans[half] - emit * emits[half]
    queue = probing / (queued[half] - queued[put])
    sums = sum(int(side.stored.facts[TABLES]) for side in joins[summed].sides) / rows
    summarised = least[summed] - least[idle] - sums * layout.scheme.cells * own["table"]
    return {
        "scan": scan,
        "emit": emit,
        "queue": queue,
        # Its region was put off, which is charged as half.
        "insert": least[idle] - queue / 2,
        "summarize": summarised / ROWS - own["estimate"],
    }


def selecting(rows: int, runs: int) -> dict[str, float]:
    """Seconds of each step inside a selection: of tuples, of cells, of scans that find nothing, of results."""
    values, times = np.random.default_rng(3).uniform(0.0, 20.0, rows), np.arange(rows)
    # Ranges that no value is in, but that cut a bin; ranges that all bins are inside of.
    cut, wide = [Query(0.03 * i + 0.1, 0.03 * i + 0.1) for i in range(640)], [Query(-1.0, 21.0)] * 20
    kinds = {"idle": ([], 1000), "cut": (cut, 1000), "whole": (wide, 1000), "short": (wide, 100)}
    least, done = dict.fromkeys(kinds, inf), {}
    for _ in range(runs):
        for kind, (queries, zone) in kinds.items():
            layout = Layout("T3", 4 * zone, 4, 4, window_us=10 * rows, max_length_us=zone, scheme=Histogram(0, 20, 64))
            selection = StandingSelection(layout, queries, costs=COUNTING)
            start = time.process_time()
            emits = len(selection.take(times, values))
            least[kind] = min(least[kind], time.process_time() - start)
            done[kind] = floor(selection.spent), (selection.spent % 1.0) / COUNTING.queue, emits
    idle, whole, short = (least[kind] for kind in ("idle", "whole", "short"))
    queue = (short - whole) / (done["short"][1] - done["whole"][1])
    return {
        "insert": idle / rows,
        "scan": (least["cut"] - idle - queue * done["cut"][1]) / done["cut"][0],
        "emit": (whole - idle - queue * done["whole"][1]) / done["whole"][2],
        "queue": queue,
    }
