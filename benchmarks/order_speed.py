"""The order stage by itself: rows per second through K-slack, Synchronizer, statistics and ADWIN, on one core.

`python -m benchmarks order-speed --json FILE`. Processor time, the median of several runs; rows have Zipf delays over
20 s as in `disorder`, K is 1 s, calls have 100,000 rows. Beside it, what waiting costs a rule in memory: the same rows
and the same rule with and without a wait, in one run.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.conditions import conditions
from benchmarks.disorder_runs import PAPER
from tocsin import Rule, local
from tocsin.operators.reorder.model_wait import ModelWait
from tocsin.operators.reorder.reorder_rows import new_clocks, reorder_rows
from tocsin.operators.reorder.wait_policy import RecallConfig

SECOND = 1_000_000
CALL = 100_000


def make_rows(rows: int, keys: int, streams: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Key, stream and time of rows in order of arrival: 100 rows a second per key and stream, some of them late."""
    random = np.random.default_rng(seed)
    step = SECOND // 100
    number = np.arange(rows)
    late = np.minimum(random.zipf(2.0, rows) - 1, 200) * 100_000
    return number // streams % keys, number % streams, number // (streams * keys) * step - late


def stage_seconds(rows: int, keys: int, streams: int, *, learns: bool) -> float:
    """Processor time of all rows through the stage; held rows go on from call to call."""
    key, stream, time_us = make_rows(rows, keys, streams)
    clocks = new_clocks(keys, streams)
    wait = ModelWait(RecallConfig(0.99, **PAPER), [5 * SECOND] * streams, "noneqsel")
    held = np.zeros(0, np.int64)
    stage = np.zeros(0, np.int64)
    begun = time.process_time()
    for start in range(0, rows, CALL):
        new = np.arange(start, min(start + CALL, rows))
        number, before = np.concatenate([held, new]), np.concatenate([stage, np.zeros(len(new), np.int64)])
        order = np.argsort(key[number], kind="stable")
        number, before = number[order], before[order]
        given = (key[number], stream[number], time_us[number], before)
        _, _, after, delay, skew = reorder_rows(clocks, *given, SECOND, 60 * SECOND, is_prompt=True)
        if learns:
            fresh = delay >= 0
            arrived = np.argsort(number[fresh], kind="stable")
            wait.note_arrivals(stream[number[fresh]][arrived], delay[fresh][arrived], skew[fresh][arrived])
        held, stage = number[after > 0], after[after > 0]
    return time.process_time() - begun


def rule_seconds(rows: int, wait: str) -> float:
    """Processor time of a rule of two streams over rows that come late, in memory."""
    streams = {}
    for i, name in enumerate("ab"):
        key, _, time_us = make_rows(rows // 2, 100, 1, seed=i)
        value = np.random.default_rng(i).normal(0, 1, rows // 2)
        streams[name] = {"ts": time_us, "k": key.astype(str), "value": value, "at": np.arange(rows // 2)}
    rule = Rule("x", "a - b > 5", within="1s", on="k", domains={"a": (-9, 9), "b": (-9, 9)}, quality={"wait": wait})
    begun = time.process_time()
    local.run_local_detailed(streams, rule, arrival="at")
    return time.process_time() - begun


def run(rows: int, repeats: int) -> dict[str, Any]:
    """Measure the stage with and without statistics, and a rule with and without a wait."""
    found: dict[str, Any] = conditions() | {"rows": rows, "stage": []}
    for keys, streams in ((1, 2), (1, 4), (1000, 2), (1000, 4)):
        one: dict[str, Any] = {"keys": keys, "streams": streams}
        for name, learns in (("order", False), ("with_statistics", True)):
            stage_seconds(1000, min(keys, 10), streams, learns=learns)  # Compiles.
            seconds = median(stage_seconds(rows, keys, streams, learns=learns) for _ in range(repeats))
            one[name] = {"ns_per_row": 1e9 * seconds / rows, "million_rows_per_s": rows / seconds / 1e6}
        found["stage"].append(one)
        print(json.dumps(one))
    waits = {wait: median(rule_seconds(rows, wait) for _ in range(repeats + 1)) for wait in ("none", "1s", "max")}
    found["rule_seconds"] = waits
    found["ratio_of_waiting"] = {wait: seconds / waits["none"] for wait, seconds in waits.items()}
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks order-speed", description=__doc__)
    parser.add_argument("--json", type=Path, help="where results go; printed too")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    given = parser.parse_args(argv)
    if given.quick:
        given.rows, given.repeats = 20_000, 1
    text = json.dumps(run(given.rows, given.repeats), indent=2)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")
    return 0
