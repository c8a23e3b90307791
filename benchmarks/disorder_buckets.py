"""A wait per bucket beside one wait for all: keys divided into buckets, each with its own logic, in memory.

Rows arrive in calls of four seconds; after each, what buckets told is added up, and what they agree on reaches all of
them before the next, as in `tocsin run` with a micro-batch every four seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.conditions import conditions
from tocsin import Rule, local
from tocsin.hashing import assign_buckets, key_text
from tocsin.plan import Plan, WaitAgreement, make_plan
from tocsin.runtime.contract import Batch
from tocsin.runtime.metrics import Metrics
from tocsin.runtime.session import Session

SECOND = 1_000_000
KEYS, SECONDS, CALL_S, SEEDS = 64, 540, 4, (1, 2, 3)
# Minutes in which waits are still found; they count for nothing.
FIRST = 4
BUCKETS, RECALLS = (1, 4, 16), (0.9, 0.95, 0.99)
# Thresholds on the difference of two standard normal numbers up to 2 s apart: a result in 7 s, or four a second.
LIMITS = {"rare": 4.5, "frequent": 3.0}
# A row in five is late, by a Pareto number of shape 2 with this mean; slow keys have 20 times longer delays.
LATE, DELAY_US, SLOWER, MOST_US = 0.2, 1_500_000, 20, 60 * SECOND

Columns = dict[str, dict[str, Any]]


class Case(NamedTuple):
    """What is measured; `mode` is `bucket` (each finds its own wait) or `shared` (all agree on one)."""

    results: str
    keys: str
    recall: float
    buckets: int
    mode: str
    seed: int


def make(seed: int, keys: str, seconds: int) -> Columns:
    """Two streams; each key has a row a second. With `unlike` keys an eighth of them has longer delays."""
    random = np.random.default_rng(seed)
    slow = (np.arange(KEYS) < KEYS // 8) & (keys == "unlike")
    streams = {}
    for name in "xy":
        key = np.tile(np.arange(KEYS), seconds)
        arrival = np.repeat(np.arange(seconds) * SECOND, KEYS) + random.integers(0, SECOND, len(key))
        delay = random.pareto(2, len(key)) * DELAY_US * np.where(slow, SLOWER, 1)[key]
        late = np.where(random.random(len(key)) < LATE, delay.clip(0, MOST_US).astype(np.int64), 0)
        order = np.argsort(arrival, kind="stable")
        names = np.array([f"k{number}" for number in range(KEYS)], object)
        streams[name] = {
            "ts": (arrival - late)[order] + 100 * SECOND,
            "arrival": arrival[order],
            "key": names[key[order]],
            "value": np.round(random.normal(0, 1, len(key)), 2),
        }
    return streams


def rule(limit: float, **waiting: Any) -> Rule:
    return Rule("far", f"x - y > {limit}", within="2s", on="key", domains={"x": (-9, 9), "y": (-9, 9)}, **waiting)


def due(streams: Columns, limit: float) -> dict[int, int]:
    """The results of each minute when all rows are sorted."""
    by_time = {name: table | {"arrival": table["ts"]} for name, table in streams.items()}
    found = local.run_local_detailed(by_time, rule(limit, quality={"wait": 0}), arrival="arrival")
    return {minute: whole for minute, (_, whole) in found.metrics.results_by_period()["far"].items()}


def bucket_of(key: tuple[str, ...], buckets: int) -> int:
    return int(assign_buckets(("key",), [key_text(key)], buckets)[0])


def calls(plan: Plan, streams: Columns, buckets: int, seconds: int) -> list[list[list[Batch]]]:
    """By call and bucket, the rows that arrive."""
    whole = local._batches(0, plan.watches[0], streams, "ts", "arrival")
    rows = sum(len(batch.time) for batch in whole)
    ends = [rows * second // seconds for second in range(CALL_S, seconds, CALL_S)]
    parts = local._cut(whole, ends)
    return [[[_of_bucket(batch, b, buckets) for batch in part] for b in range(buckets)] for part in parts]


def _of_bucket(batch: Batch, bucket: int, buckets: int) -> Batch:
    mine = np.array([bucket_of(key, buckets) == bucket for key in batch.keys])
    return local._rows(batch, np.flatnonzero(mine[batch.key]), first=True)


class Done(NamedTuple):
    """K of each bucket and call weighted by rows, results in order by minute, control rows, cost of a call."""

    mean_k_us: float
    sd_k_us: float
    in_order: dict[int, int]
    told: int
    agree_ms: float


def run(streams: Columns, case: Case, seconds: int) -> Done:
    """Let the buckets take all rows, call by call."""
    quality = {"recall": case.recall, "in_order": True}
    plan = make_plan(rule(LIMITS[case.results], quality=quality), {n: list(table) for n, table in streams.items()})
    plan = plan.sharing() if case.mode == "shared" else plan
    sessions, agreement = [Session(plan) for _ in range(case.buckets)], WaitAgreement(plan.watches)
    waits, weights, whole, told, spent = [], [], Metrics(), 0, 0.0
    for call in calls(plan, streams, case.buckets, seconds):
        begun = time.perf_counter()
        control = agreement.decide()
        spent += time.perf_counter() - begun
        told += len(control)
        for bucket, (session, rows) in enumerate(zip(sessions, call, strict=True)):
            session.control(control)
            out = session.push(rows)
            waits.append(out.metrics.section("waits")["far"]["wait_us"])
            weights.append(sum(len(batch.time) for batch in rows))
            begun = time.perf_counter()
            for one in out.reports:
                agreement.receive(bucket, json.loads(json.dumps(one)))
            spent += time.perf_counter() - begun
            whole.merge(out.metrics)
    for session in sessions:
        whole.merge(session.end().metrics)
    begin = FIRST * 60 // CALL_S * case.buckets
    waits, weights = waits[begin:], weights[begin:]
    mean = float(np.average(waits, weights=weights))
    spread = float(np.sqrt(np.average((np.array(waits) - mean) ** 2, weights=weights)))
    in_order = {minute: found for minute, (found, _) in whole.results_by_period()["far"].items()}
    return Done(mean, spread, in_order, told, 1000 * spent * CALL_S / seconds)


def figures(case: Case, done: Done, truth: dict[int, int]) -> dict[str, Any]:
    """Average K, recall over all, and the share of minutes that reached the recall asked for."""
    minutes = sorted(truth)[FIRST:-1]
    recalls = np.array([min(done.in_order.get(minute, 0) / truth[minute], 1.0) for minute in minutes])
    found, whole = (sum(numbers.get(minute, 0) for minute in minutes) for numbers in (done.in_order, truth))
    return {
        **case._asdict(), "mean_k_s": round(done.mean_k_us / SECOND, 3), "sd_k_s": round(done.sd_k_us / SECOND, 3),
        "mean_recall": round(found / whole, 4), "phi": round(float((recalls >= case.recall).mean()), 3),
        "phi_99": round(float((recalls >= 0.99 * case.recall).mean()), 3), "due": whole, "told": done.told,
        "agree_ms": round(done.agree_ms, 2),
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks disorder-buckets", description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="which data")
    parser.add_argument("--quick", action="store_true", help="one seed, one recall, 4 buckets, six minutes")
    arguments = parser.parse_args(argv)
    seeds, recalls, buckets, seconds = arguments.seeds, RECALLS, BUCKETS, SECONDS
    if arguments.quick:
        seeds, recalls, buckets, seconds = seeds[:1], (0.95,), (4,), 360
    found: list[dict[str, Any]] = []
    whole = conditions() | {"runs": found}
    for seed, keys in product(seeds, ("alike", "unlike")):
        streams = make(seed, keys, seconds)
        for results, limit in LIMITS.items():
            truth = due(streams, limit)
            for recall, number, mode in product(recalls, buckets, ("bucket", "shared")):
                if number > 1 or mode == "bucket":
                    case = Case(results, keys, recall, number, mode, seed)
                    found.append(figures(case, run(streams, case, seconds), truth))
                    print(json.dumps(found[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(whole, indent=1) + "\n")
    return 0
