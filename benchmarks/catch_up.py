"""Catching up: a rule over 8 x 10^6 stored rows on Spark, compared with an operator that does nothing and with Flink.

The rule joins two streams within 10 s in micro-batches of 10^6 rows. It runs as a witness rule and with `emit: all`.
The operator that does nothing reads the same files. Flink runs an SQL interval join with state on its heap and a
checkpoint every 5 s. The folder `--peers` has the scripts for the streams (`gen_streams.py`), their CSV files
(`to_csv.py`), Flink's query (`flink_join.py`) and the measurement of a process tree (`measure.py`). All queries of a
round run one after the other, and the next round runs them in the opposite order. Ratios compare queries of one round.

Flink has no micro-batches. Its rate after the first 10^6 rows is the number of the other rows, divided by the time that
the whole run takes longer than a run over the first 10^6 rows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.conditions import conditions
from benchmarks.threshold_queries import BUCKETS, Run
from benchmarks.threshold_spark import spawn, versions

KEYS, WITHIN_S, THRESHOLD, SEED = 1_000, 10, 120, 1
# A pair exceeds the threshold with probability 0.0002: 20 pairs per row, so 4 rows of 1,000 complete a true pair.
MEAN = 35
BATCH = 1_000_000
CHECKPOINT_S = 5
# Layout of the CSV files in which Flink drops no row as late.
LAYOUT = "bykey2"
FLINK_LIMIT_S, FLINK_LIMIT_MB = 480, 12_000
SCHEMA = "k int, t timestamp, v double"
MOST_OF_NOTHING, LEAST_OF_FLINK = 1.2, 2.5


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks catch-up", description=__doc__)
    parser.add_argument(
        "--peers", type=Path, default=os.environ.get("TOCSIN_PEERS"), metavar="FOLDER",
        help="folder of the scripts of the peers (default: TOCSIN_PEERS)",
    )  # fmt: skip
    parser.add_argument(
        "--flink", default=os.environ.get("TOCSIN_FLINK"), metavar="PYTHON",
        help="interpreter with apache-flink, numpy, psutil and pyarrow (default: TOCSIN_FLINK); without it, no Flink",
    )  # fmt: skip
    parser.add_argument("--data", type=Path, help="folder that keeps the streams from call to call")
    parser.add_argument("--batches", type=int, default=8, help="micro-batches of 10^6 rows")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small micro-batches, once: only to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the results to this file, after each round")
    options = parser.parse_args(argv)
    if options.peers is None:
        parser.error("--peers must name the folder of the peers' scripts, or TOCSIN_PEERS must be set")
    batch = 20_000 if options.quick else BATCH
    results: dict[str, Any] = conditions() | {"versions": versions(), "quick": options.quick, "rounds": []}
    with tempfile.TemporaryDirectory(prefix="tocsin-catch-up-") as scratch:
        work = Path(scratch)
        data = write_streams(options.peers.absolute(), options.data or work, batch, options.batches)
        queries = spark_queries(data / "streams", work, batch, options.batches)
        for number in range(1 if options.quick else options.repeats):
            results["rounds"].append(measure_round(queries, data, work, options, is_reversed=bool(number % 2)))
            results["summary"] = summary([figures(one, batch, options.batches) for one in results["rounds"]])
            results["bars"] = bars(results["summary"])
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in results.items() if name != "rounds"}, indent=1))
    return 0


def write_streams(peers: Path, data: Path, batch: int, batches: int) -> Path:
    """Write the streams as Parquet, and as CSV for Flink: all rows, and the rows of the first micro-batch."""
    folder = data / f"catch_up_{batch}_{batches}"
    if (folder / "done").exists():
        return folder
    sizes = [str(number) for number in (batch // 2, batches, KEYS, MEAN, SEED)]
    run = [sys.executable, str(peers / "gen_streams.py")]
    subprocess.run([*run, str(folder / "streams"), *sizes], check=True)
    for stream in "rs":
        first = folder / "first" / stream
        first.mkdir(parents=True, exist_ok=True)
        (first / "000.parquet").write_bytes((folder / "streams" / stream / "000.parquet").read_bytes())
    for name in ("streams", "first"):
        subprocess.run(
            [sys.executable, str(peers / "to_csv.py"), str(folder / name), str(folder / f"{name}_csv")], check=True
        )
    (folder / "done").touch()
    return folder


def spark_queries(streams: Path, work: Path, batch: int, batches: int) -> dict[str, Run]:
    """Return the queries on Spark. The operator that does nothing writes as many bytes of state as the witness rule."""
    base = Run(
        "catch_up", "reference", WITHIN_S, keys=KEYS, rows=batch * batches, files=batches, limit=THRESHOLD,
        expr=f"r + s > {THRESHOLD}", schema=SCHEMA,
    )  # fmt: skip
    size = spawn(base, streams, work)["state_bytes"]
    return {
        "witness": replace(base, query="tocsin"),
        "all": replace(base, query="tocsin", emit="all"),
        "nothing": replace(base, query="nothing", page_bytes=size // BUCKETS),
    }


def measure_round(
    queries: Mapping[str, Run], data: Path, work: Path, options: argparse.Namespace, *, is_reversed: bool
) -> dict[str, Any]:
    """Run every query once."""
    names = [*queries, *(("flink_first", "flink") if options.flink else ())]
    found = {}
    for name in names[::-1] if is_reversed else names:
        if name in queries:
            found[name] = spawn(queries[name], data / "streams", work)
        else:
            found[name] = run_flink(options, data / ("first_csv" if name == "flink_first" else "streams_csv"))
        print(f"{name}: {found[name]['wall_s']} s with start-up, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    return found


def run_flink(options: argparse.Namespace, csv: Path) -> dict[str, Any]:
    """Run Flink's join over CSV files; return what its script and the measurement print."""
    measure = [options.flink, str(options.peers / "measure.py"), "-t", str(FLINK_LIMIT_S), "-m", str(FLINK_LIMIT_MB)]
    join = [options.flink, str(options.peers / "flink_join.py"), str(csv / LAYOUT), str(WITHIN_S), str(THRESHOLD)]
    join += ["hashmap", str(CHECKPOINT_S), "file", "exact"]
    # Each interpreter finds its own Spark or Flink.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK", "FLINK"))}
    done = subprocess.run([*measure, "--", *join], env=environ, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    result: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    if done.returncode or result.get("rc") or "elapsed_s" not in result:
        sys.exit(f"Flink failed: {result}\n{done.stderr[-3000:]}")
    return result


def figures(one: Mapping[str, Any], batch: int, batches: int) -> dict[str, float]:
    """Return the rates and ratios of one round."""
    later_rows, found = batch * (batches - 1), dict[str, float]()
    later = {name: sum(each["ms"]["triggerExecution"] for each in one[name]["batches"][1:]) / 1000
             for name in ("witness", "all", "nothing")}  # fmt: skip
    for name, seconds in later.items():
        run = one[name]
        found[f"{name}: rows/s after the first batch"] = later_rows / seconds
        found[f"{name}: CPU s per later batch"] = statistics.median(each["cpu_s"] for each in run["batches"][1:])
        found[f"{name}: first batch, s"] = run["batches"][0]["ms"]["triggerExecution"] / 1000
        found[f"{name}: whole run, s"] = run["wall_s"]
        found[f"{name}: whole run, CPU s"] = run["cpu_s"]
        if name != "nothing":
            found[f"{name} / nothing: time after the first batch"] = seconds / later["nothing"]
    found["pairs of all"] = one["all"]["alerts"].get("match", 0)
    if "flink" in one:
        whole, first = one["flink"], one["flink_first"]
        rate = batch * batches / whole["elapsed_s"]
        later_rate = later_rows / (whole["elapsed_s"] - first["elapsed_s"])
        found |= {"flink: rows/s": rate, "flink: rows/s after the first 10^6 rows": later_rate}
        found |= {"flink: whole run, s": whole["wall_s"], "flink: whole run, CPU s": whole["cpu_s"]}
        found["pairs of flink"] = whole["pairs"]
        for name in ("witness", "all"):
            mine = later_rows / later[name]
            found[f"{name} / flink: rows/s"] = mine / rate
            found[f"{name} / flink: rows/s, both after the first 10^6 rows"] = mine / later_rate
    return found


def summary(rounds: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return median, least and largest value of each figure."""
    found = {}
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        numbers = {"median": statistics.median(values), "least": min(values), "largest": max(values)}
        found[name] = {kind: round(value, 2 if value < 1_000 else 0) for kind, value in numbers.items()}
    return found


def bars(found: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return the requested ratios with the measured medians."""
    result = []
    for name in ("witness", "all"):
        asked = {f"{name} / nothing: time after the first batch": ("<=", MOST_OF_NOTHING)}
        asked |= {f"{name} / flink: rows/s{kind}": (">=", LEAST_OF_FLINK)
                  for kind in ("", ", both after the first 10^6 rows")}  # fmt: skip
        for what, (sign, bound) in asked.items():
            if what in found:
                value = found[what]["median"]
                is_met = value <= bound if sign == "<=" else value >= bound
                result.append({"what": what, "value": value, "asked": f"{sign} {bound}", "met": is_met})
    return result
