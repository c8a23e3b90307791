"""Many rules over few streams: what 1,000 of them remember and cost together, beside one, and beside 1,000 runs.

`python -m benchmarks many-rules --json FILE`. Everything runs in memory. The runs of single rules are a sample; their
sum is what as many runs as there are rules would take.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.conditions import conditions
from tocsin import Rule, local

SECOND = 1_000_000
EXPRS = (
    "{a} - {b} > {t}",
    "abs({a} - {b}) > {t}",
    "18.678*{a}/(257.14+{a}) - {b}/10 > {u}",
    "2*{a} + {b} - {c} > {t} + 60",
    "{a} > {t} and {b} < {u}",
    "max({a}, {b}) - {c} > {t}",
)


def make_rules(count: int, streams: int, seed: int = 1) -> list[Rule]:
    """Rules of six kinds with thresholds of their own, some of which are met now and then."""
    random = np.random.default_rng(seed)
    rules = []
    for number in range(count):
        a, b, c = (f"s{i}" for i in random.choice(streams, 3, replace=False))
        t, u = round(float(random.uniform(25, 40)), 2), round(float(random.uniform(1, 3)), 2)
        expr = EXPRS[number % len(EXPRS)].format(a=a, b=b, c=c, t=t, u=u)
        used = {name: (-40.0, 85.0) for name in (a, b, c) if name in expr}
        within = str(random.choice(["10s", "30s", "60s"]))
        rules.append(Rule(f"r{number}", expr, within=within, on="m", domains=used, keep_firing_for="1m"))
    return rules


def make_streams(streams: int, keys: int, rows: int, seed: int = 2) -> dict[str, dict[str, Any]]:
    """One row per second, key and stream: a random walk with a resolution of 0.1 around 15."""
    random = np.random.default_rng(seed)
    found = {}
    for i in range(streams):
        walk = np.clip(15 + np.cumsum(random.normal(0, 0.5, (keys, rows)), axis=1), -40, 85)
        ts = np.arange(rows) * SECOND + i
        names = np.repeat([f"m{key}" for key in range(keys)], rows)
        found[f"s{i}"] = {"ts": np.tile(ts, keys), "m": names, "value": np.round(walk, 1).ravel()}
    return found


def measured(streams: dict[str, Any], rules: list[Rule]) -> dict[str, float]:
    """Time to plan and to run; rows remembered at the end, over all stores."""
    begin = time.perf_counter()
    local.explain(streams, rules)
    planned = time.perf_counter()
    result = local.run_local_detailed(streams, rules)
    done = time.perf_counter()
    kept = sum(counts.get("retained", 0) for counts in result.counts.values())
    return {"plan_s": planned - begin, "run_s": done - planned, "kept": kept, "alerts": len(result.alerts)}


def run(count: int, keys: int, rows: int, sample: int) -> dict[str, Any]:
    """Measure many rules together, one per pair of streams, and single ones."""
    streams, rules = make_streams(10, keys, rows), make_rules(count, 10)
    measured(streams, rules[:6])  # Compiles.
    together = measured(streams, rules)
    singles = [measured({name: streams[name] for name in rule.domains}, [rule]) for rule in rules[:sample]]
    whole = sum(len(stream["ts"]) for stream in streams.values())
    share = count / sample
    return {
        "rules": count,
        "rows": whole,
        "together": together,
        "one_by_one": {
            "sampled": sample,
            "run_s": share * sum(one["run_s"] for one in singles),
            "kept": share * sum(one["kept"] for one in singles),
            "kept_by_one": float(np.median([one["kept"] for one in singles])),
        },
        "ratios": {
            "time_of_single_runs": share * sum(one["run_s"] for one in singles) / together["run_s"],
            "state_of_one_rule": together["kept"]
            / 10
            / (np.mean([one["kept"] / len(r.domains) for one, r in zip(singles, rules, strict=False)])),
            "state_of_all_rows": together["kept"] / whole,
        },
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks many-rules", description=__doc__)
    parser.add_argument("--json", type=Path, help="where results go; printed too")
    parser.add_argument("--rules", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--rows", type=int, default=3600, help="per key and stream")
    parser.add_argument("--sample", type=int, default=30, help="rules that run by themselves")
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    given = parser.parse_args(argv)
    if given.quick:
        given.rules, given.keys, given.rows, given.sample = 12, 2, 200, 6
    results = conditions() | run(given.rules, given.keys, given.rows, given.sample)
    text = json.dumps(results, indent=2)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")
    return 0
