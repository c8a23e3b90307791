"""What the steps of promising work cost on one core, in nanoseconds and in tuples scanned: it calibrates `Costs`."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Int
from tocsin.stages.promising.anytime_join import COSTS
from tocsin.stages.promising.count_sketch import CountSketch
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.probe import Books, Pace, Terms, scan
from tocsin.stages.promising.queue import HIGH, POINT, Queue, new_queue, pop, push
from tocsin.stages.promising.representation import Representation
from tocsin.stages.promising.stored import Stored
from tocsin.stages.promising.summary import Summary, combine, estimate_all

Row = dict[str, Any]


def best(body: Callable[[], Any], times: int) -> float:
    """The least processor time of some runs, in seconds."""
    took = []
    for _ in range(times):
        start = time.process_time()
        body()
        took.append(time.process_time() - start)
    return min(took)


@kernel
def scan_often(other: Stored, mine: Stored, terms: Terms, books: Books, pairs: Int, times: int) -> None:
    for _ in range(times):
        books.line[POINT], books.counts[2] = 0, 0
        scan(other, mine, 0, terms, books, pairs)


@kernel
def push_and_pop(queue: Queue, times: int) -> None:
    for i in range(times):
        push(queue, float((i * 7919) % 10_007), i, 0, i, 2, 0, 0, 5)
        pop(queue)


@kernel
def put_off(queue: Queue, times: int) -> None:
    for i in range(times):
        push(queue, -inf, i, 0, i, 2, 0, 0, 5)


def costs(part: str, *, quick: bool) -> list[Row]:
    """Nanoseconds of each step, and as many tuples scanned."""
    rows, runs = (20_000, 2) if quick else (1_000_000, 5)
    rng = np.random.default_rng(1)
    keys, times, numbers = rng.integers(0, 1000, rows), np.arange(rows) * 1000, np.arange(rows)
    scheme = CountSketch(5, 256)

    def insertion(variant: str) -> float:
        layout = Layout(variant, 10**9, window_us=600_000, zones=2, theta=0.0, max_length_us=10**8, scheme=scheme)
        return best(lambda: Representation(layout).insert(keys, times, numbers), runs) / rows

    summary = Summary(scheme)
    summary.summarize(keys)
    places, out, table = scheme.places(keys, learn=True), np.empty(rows), summary.table.copy()
    estimating = best(lambda: estimate_all(summary.table[None], places, 1.0, out), runs) / rows
    adding = best(lambda: [combine(table, summary.table, 1) for _ in range(1000)], runs) / 1000 / scheme.cells
    queue = new_queue(4096)
    for i in range(1000):
        push(queue, float((i * 31) % 1009), i, 0, i, 2, 0, 0, 5)
    queueing = best(lambda: push_and_pop(queue, rows), runs) / rows / 2
    rest = new_queue(1 << (rows + 2000).bit_length())
    putting = best(lambda: (rest.size.fill(1000), put_off(rest, rows)), runs) / rows
    took = {
        "scan": scanning(rows, runs),
        "insert": insertion("T1"),
        "summarize": max(0.0, insertion("T3") - insertion("T1")) / scheme.rows,
        "estimate": estimating / scheme.rows,
        "queue": queueing,
        "put off": putting,
        "table": adding,
    }
    charged = COSTS._asdict() | {"put off": COSTS.queue / 2}
    return [
        {"part": part, "step": step, "ns": round(float(1e9 * seconds), 3),
         "scans": round(float(seconds / took["scan"]), 3), "charged": charged[step]}
        for step, seconds in took.items()
    ]  # fmt: skip


def scanning(rows: int, runs: int) -> float:
    """Seconds to compare one tuple with one of a bucket of 150 among 600."""
    from tocsin.stages.promising.anytime_join import AnytimeJoin

    join = AnytimeJoin(Layout("SHJ", buckets=4), pace=Pace(0.0, 0.0))
    join.take(np.arange(1200) % 2, np.arange(1200) * 1000, np.arange(1200) % 400)
    first, second = (side.stored for side in join.sides)
    books, pairs = join.books, np.empty((5000, 2), np.int64)
    books.line[HIGH], books.account[0] = 1 << 40, np.inf
    often = rows // 150
    scan_often(second, first, join._terms(), books, pairs, 1)
    books.account[1] = 0.0
    took = best(lambda: scan_often(second, first, join._terms(), books, pairs, often), runs)
    visited = books.account[1] / runs
    return took / visited
