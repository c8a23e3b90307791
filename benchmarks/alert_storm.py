"""Alert storm: CPU seconds and wall time per alert row from the push of input rows to the alert log, without a JVM.

A storm has 40 alert rows per 100 input rows. Each call measures three phases: `push` runs the rows in a `Session`,
`yield` builds the Arrow table that the Spark operator returns, and `record` writes the alert log from this table. The
first two phases run in a worker of Spark, the third phase runs in the driver. With `--against`, both worktrees run in
turn, and each run is a process of its own. The first call of a process only warms up kernels and caches.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.conditions import conditions
from benchmarks.startup import ROOT, Version
from tocsin import Rule
from tocsin.plan import Plan, make_plan
from tocsin.runtime.contract import Batch, Out
from tocsin.runtime.session import Session

TICK_US = 1_000_000
KEYS = 1_000
# Number of columns in the payload of a row by case.
CASES = {"pairs": 0, "pairs_payload": 2, "lifecycle": 0}
PHASES = ("push", "yield", "record")


def rule(case: str) -> Rule:
    """Return the rule of a case. Each row has one partner, which has the same event time."""
    emit = "witness" if case == "lifecycle" else "all"
    return Rule("Storm", "r - s > 6", within="500ms", on="machine", emit=emit, labels={"team": "plant"})


def calls(case: str, rows: int, count: int) -> Iterator[list[Batch]]:
    """Yield calls of `rows` rows each, with 40 alert rows per 100 rows."""
    random = np.random.default_rng(1)
    keys, ticks = [(f"press-{number:04}",) for number in range(KEYS)], rows // (2 * KEYS)
    # An alert is stale before the next tick, so each true tick has two alert rows: firing and resolved.
    share = 0.4 if case == "lifecycle" else 0.8
    for call in range(count):
        truth = random.random((ticks, KEYS)) < share
        key = np.tile(np.arange(KEYS), ticks)
        tick = np.repeat(np.arange(call * ticks, (call + 1) * ticks), KEYS)
        base = random.normal(20, 1, len(key))
        values = {"r": base + np.where(truth.ravel(), 7.25, 1.25), "s": base}
        payload = _payload(tick, CASES[case])
        yield [
            Batch(0, name, keys, key, tick * TICK_US, 2 * np.arange(len(key)) + i, {"value": values[name]}, payload)
            for i, name in enumerate("rs")
        ]


class _Texts:
    """Payload of a batch as Spark sends it: one JSON text per row."""

    def __init__(self, texts: np.ndarray) -> None:
        self.texts = texts

    def take(self, positions: np.ndarray) -> Any:
        return self.texts[positions]


def _payload(tick: np.ndarray, columns: int) -> _Texts | None:
    if not columns:
        return None
    texts = [json.dumps({f"c{column}": f"text {at + column}" for column in range(columns)}) for at in range(len(tick))]
    return _Texts(np.array(texts, object))


class _Meter:
    """CPU and wall seconds by phase."""

    def __init__(self) -> None:
        self.cpu, self.wall = dict.fromkeys(PHASES, 0.0), dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu[name] += time.process_time() - cpu
        self.wall[name] += time.perf_counter() - wall


def measure(case: str, rows: int, count: int) -> dict[str, Any]:
    """Run the calls of a case in this process; return seconds by phase, and microseconds per alert row."""
    from tocsin.delivery import AlertWriter

    mine = rule(case)
    plan = make_plan([mine], {name: ["ts", "machine", "value"] for name in "rs"})
    assert isinstance(plan, Plan)
    plan.warm_up()
    meter, session, alerts = _Meter(), Session(plan), 0
    operator, recorder = _paths(mine)
    with tempfile.TemporaryDirectory(prefix="tocsin-storm-") as folder:
        writer = AlertWriter(folder)
        for number, batches in enumerate(calls(case, rows, count + 1)):
            if number == 1:
                meter, alerts = _Meter(), 0
            with meter.phase("push"):
                out = session.push(batches)
            with meter.phase("yield"):
                table = operator(out)
            with meter.phase("record"):
                alerts += recorder(table, writer, number)
            session.changed_pages()
    worker = meter.cpu["push"] + meter.cpu["yield"]
    return {
        "rows": rows * count,
        "alerts": alerts,
        "alerts_per_100_rows": round(100 * alerts / (rows * count), 1),
        "worker_us_per_alert": round(1e6 * worker / alerts, 2),
        "record_us_per_alert": round(1e6 * meter.cpu["record"] / alerts, 2),
        "rows_per_second": round(rows * count / sum(meter.wall.values())),
        "rows_per_cpu_second": round(rows * count / sum(meter.cpu.values())),
        "cpu_s": {name: round(value, 3) for name, value in meter.cpu.items()},
        "wall_s": {name: round(value, 3) for name, value in meter.wall.items()},
    }


def _paths(mine: Rule) -> tuple[Callable[[Out], Any], Callable[[Any, Any, int], int]]:
    """Return the functions of the worker and of the recorder in the version that this process imports."""
    if find_spec("tocsin.runtime.alert_batch") is None:
        return _old_paths(mine)
    import pandas as pd
    import pyarrow as pa

    from tocsin.run_directory.annotations import encode_annotated
    from tocsin.runtime.alert_arrow import unpack_alerts
    from tocsin.spark.stateful import output_rows

    def operator(out: Out) -> Any:
        return pa.Table.from_pandas(pd.DataFrame(output_rows(out, 0), columns=["kind", "json", "alerts"]))

    def recorder(table: Any, writer: Any, number: int) -> int:
        packed = [data for data in table.column("alerts").to_pylist() if data is not None]
        batches = [batch for data in packed for batch in unpack_alerts(data)]
        writer.write_encoded(number, encode_annotated(batches, [mine]))
        return sum(map(len, batches))

    return operator, recorder


def _old_paths(mine: Rule) -> tuple[Callable[[Out], Any], Callable[[Any, Any, int], int]]:
    """Return the functions of a version that carries each alert as JSON text."""
    import pandas as pd
    import pyarrow as pa

    from tocsin.run_directory import annotations
    from tocsin.spark import stateful

    # These names exist only in the older version.
    output_rows, annotate = vars(stateful)["_raw"], vars(annotations)["annotate_alert"]

    def operator(out: Out) -> Any:
        return pa.Table.from_pandas(pd.DataFrame([*output_rows(out, 0, {}, 0)], columns=["kind", "json"]))

    def recorder(table: Any, writer: Any, number: int) -> int:
        both = zip(table.column("kind").to_pylist(), table.column("json").to_pylist(), strict=True)
        texts = [text for kind, text in both if kind == "alert"]
        writer.write(number, [annotate(json.loads(text), [mine]) for text in texts])
        return len(texts)

    return operator, recorder


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks alert-storm", description=__doc__)
    parser.add_argument("--against", type=Path, metavar="PATH", help="a worktree of the older version, with its .venv")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of one call")
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--only", default=",".join(CASES), help="cases, separated by commas")
    parser.add_argument("--quick", action="store_true", help="one short run: only to see that it runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args(argv)
    rows, count, repeats = (4_000, 1, 1) if options.quick else (options.rows, options.calls, options.repeats)
    if options.one:
        print(json.dumps(measure(options.one, rows, count)))
        return 0
    cases = options.only.split(",")
    if not set(cases) <= set(CASES):
        parser.error(f"--only must name cases of {', '.join(CASES)}; got {options.only}")
    folder = Path(__file__).resolve()
    versions = [Version("new", ROOT, folder)]
    if options.against:
        versions.insert(0, Version("old", options.against.absolute(), folder))
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {case: {} for case in cases}
    results: dict[str, Any] = conditions() | {"quick": options.quick}
    for _ in range(repeats):
        for case in cases:
            for version in versions:
                run = _run(version, ["--one", case, "--rows", str(rows), "--calls", str(count)])
                runs[case].setdefault(version.name, []).append(run | {"load": round(os.getloadavg()[0], 1)})
    results |= {"summary": {case: summary(mine) for case, mine in runs.items()}, "runs": runs}
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))
    return 0


def _run(version: Version, arguments: list[str]) -> dict[str, Any]:
    """Run this file in a process that imports the package of a version."""
    environ = version.environ() | {"PYTHONPATH": os.pathsep.join([str(version.root / "src"), str(ROOT)])}
    if "NUMBA_CACHE_DIR" in os.environ:
        environ["NUMBA_CACHE_DIR"] = os.environ["NUMBA_CACHE_DIR"]
    command = [version.python, "-m", "benchmarks", "alert-storm", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{version.name}: {command} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the medians of a case by version, and the ratio of the rows per second of both versions."""
    names = ("worker_us_per_alert", "record_us_per_alert", "rows_per_second", "rows_per_cpu_second")
    entry: dict[str, Any] = {
        version: {name: statistics.median(run[name] for run in mine) for name in names}
        for version, mine in runs.items()
    }
    if len(entry) == 2:
        entry["ratio"] = {name: round(entry["new"][name] / entry["old"][name], 2) for name in names}
    return entry
