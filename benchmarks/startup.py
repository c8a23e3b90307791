"""Start-up: wall and CPU seconds from the start of a process to its first result, for two worktrees in turn.

CPU seconds include the whole process tree with the JVM and the Python workers. The floor of a command is the same
session with the same sources and an operator that does nothing, until its first micro-batch. It is measured only in the
newer version, because its script uses internal names of the package. Each version has its own cache directory. It runs
each command once before the measurement, so that class archive and kernels are cached. Only `run_local_cold` has an
empty kernel cache.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.backtest import process_tree
from benchmarks.conditions import conditions

ROOT = Path(__file__).resolve().parent.parent
_POLL_S = 0.02
_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
RULES = """\
streams:
  r: {source: {parquet: {path: r}}, keys: [machine]}
  s: {source: {parquet: {path: s}}, keys: [machine]}
groups:
  - name: g
    rules:
      - {alert: Hot, expr: r - s > 6, within: 10s, on: [machine], shapes: {r: increasing, s: decreasing}}
sinks:
  - console: {}
"""
RUN_LOCAL = """\
import numpy as np, tocsin
rule = tocsin.Rule("Condensation", "dew_point > surface", within="5m", on="machine", keep_firing_for="1m")
seconds = np.arange(0, 3600, 10)
machine = np.full(len(seconds), "press-7")
damp = (seconds >= 1200) & (seconds < 1500)
columns = {"ts": seconds * 1_000_000, "machine": machine}
streams = {"dew_point": columns | {"value": np.where(damp, 16.0, 9.5)},
           "surface": columns | {"value": np.full(len(seconds), 14.0)}}
print(len(list(tocsin.run_local(streams, rule))), flush=True)
"""
SESSION = """\
import os, sys
from functools import partial
from pathlib import Path
from tocsin.run_directory import RunDir
from tocsin.spark.session import partitions_of, run_session
folder = Path(sys.argv[2])
folder.mkdir(exist_ok=True)
local = {"master": "local[*]", "conf": {}, "partitions": partitions_of("local[*]", {}), "kafka": False}
with run_session(RunDir(folder), **local) as session:
    if sys.argv[3] == "session":
        print(session.version, flush=True)
        sys.exit()
    from benchmarks.threshold_queries import NothingStep
    from tocsin.plan import plan_file, plan_rules
    from tocsin.rules.load import load_rule_file
    from tocsin.spark.alerts import prepare
    from tocsin.spark.blobs import ARRIVAL, TIME
    from tocsin.spark.feeds import feeds_of
    from tocsin.spark.sources.registry import read, streams_of
    from tocsin.spark.stateful import run_stateful
    is_stream = sys.argv[3] == "run"
    file = load_rule_file(sys.argv[1], partial(plan_rules, bounded=not is_stream), os.environ)
    plan = plan_file(file)
    streams = streams_of(file, plan)
    frames = {name: read(session, one, streaming=is_stream, run_dir=folder) for name, one in streams.items()}
    buckets = prepare(session, idle_timers=False if is_stream else None)
    step = NothingStep(0, tuple(streams))
    rows = run_stateful(feeds_of(frames, plan.key_sets, TIME, ARRIVAL), step, buckets)
    show = lambda frame, batch=0: print(frame.toArrow().num_rows, flush=True)
    if is_stream:
        writer = rows.writeStream.foreachBatch(show).option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    else:
        show(rows)
"""


@dataclass(frozen=True)
class Version:
    """Worktree with its environment and a directory of its own."""

    name: str
    root: Path
    folder: Path

    @property
    def python(self) -> str:
        """Interpreter of the worktree, or of this process if the worktree has no environment."""
        own = self.root / ".venv" / "bin" / "python"
        return str(own) if own.exists() else sys.executable

    def environ(self) -> dict[str, str]:
        """Return the environment of all processes of this version."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        inherited.pop("SPARK_SUBMIT_OPTS", None)
        paths = {"PYTHONPATH": str(self.root), "XDG_CACHE_HOME": str(self.folder / "cache")}
        return {**inherited, **paths, "TOCSIN_PROGRESS": "off"}


@dataclass
class Case:
    """Command whose first result is measured.

    Attributes
    ----------
    is_floor
        Whether the case uses internal names of the newer version and is measured only in this version.
    floor_of
        Name of the case that has this case as its floor.
    """

    command: Callable[[Version, Path], list[str]]
    is_spark: bool = True
    has_empty_cache: bool = False
    is_floor: bool = False
    floor_of: str = ""
    runs: dict[str, list[dict[str, float]]] = field(default_factory=dict)


def _tocsin(*arguments: str) -> Callable[[Version, Path], list[str]]:
    return lambda version, folder: [version.python, "-m", "tocsin", *arguments]


def _script(text: str) -> Callable[[Version, Path], list[str]]:
    return lambda version, folder: [version.python, "-c", text]


def _run(rules: str) -> Callable[[Version, Path], list[str]]:
    run = ["run", "--once", "--run-dir"]
    return lambda version, folder: [version.python, "-m", "tocsin", *run, str(folder / "run"), rules]


def _floor(rules: str, kind: str) -> Callable[[Version, Path], list[str]]:
    return lambda version, folder: [version.python, "-c", SESSION, rules, str(folder / "run"), kind]


def cases(data: Path, example: str) -> dict[str, Case]:
    """Return all cases by name. `data` contains a rule file over Parquet files; `example` is the factory example."""
    rules = str(data / "rules.yaml")
    return {
        "import": Case(_script("import tocsin; tocsin.run_local; print(flush=True)"), is_spark=False),
        "run_local_warm": Case(_script(RUN_LOCAL), is_spark=False),
        "run_local_cold": Case(_script(RUN_LOCAL), is_spark=False, has_empty_cache=True),
        "check": Case(_tocsin("check", example), is_spark=False),
        "session": Case(_floor(example, "session"), is_floor=True),
        "run_factory": Case(_run(example)),
        "run_factory_floor": Case(_floor(example, "run"), is_floor=True, floor_of="run_factory"),
        "run_parquet": Case(_run(rules)),
        "run_parquet_floor": Case(_floor(rules, "run"), is_floor=True, floor_of="run_parquet"),
        "backtest_parquet": Case(_tocsin("backtest", rules)),
        "backtest_parquet_floor": Case(_floor(rules, "backtest"), is_floor=True, floor_of="backtest_parquet"),
    }


def write_data(folder: Path, rows: int) -> None:
    """Write two streams of 100 machines as Parquet, and rules over them."""
    random = np.random.default_rng(1)
    for name in ("r", "s"):
        (folder / name).mkdir(parents=True)
        ts = pa.array(START_US + np.arange(rows, dtype=np.int64) * 100_000, pa.timestamp("us", "UTC"))
        machine = pa.array([f"m{number % 100:02}" for number in range(rows)])
        table = pa.table({"machine": machine, "ts": ts, "value": random.normal(size=rows)})
        pq.write_table(table, folder / name / "0.parquet")
    text = RULES.replace("path: r", f"path: {folder / 'r'}").replace("path: s", f"path: {folder / 's'}")
    (folder / "rules.yaml").write_text(text, encoding="utf-8")


def tree_cpu_seconds() -> float:
    """Return the CPU time of all descendants of this process, including ended processes.

    The kernel adds the time of an ended process to its parent.
    """
    total = 0
    for process in process_tree(os.getpid()) - {os.getpid()}:
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / _TICKS


def measure(version: Version, case: Case) -> dict[str, float]:
    """Run a command; return wall and CPU seconds up to its first alerts in the log and its first line of output."""
    with tempfile.TemporaryDirectory(dir=version.folder, ignore_cleanup_errors=True) as name:
        folder, environ, times = Path(name), version.environ(), dict[str, float]()
        if case.has_empty_cache:
            environ["NUMBA_CACHE_DIR"] = str(folder / "numba")
        output = folder / "output"
        with output.open("wb") as out, (folder / "errors").open("wb") as err:
            before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            command = case.command(version, folder)
            process = subprocess.Popen(command, cwd=version.root, env=environ, stdout=out, stderr=err)

            def check_results() -> None:
                if "batch_wall" not in times and any((folder / "run" / "alerts").glob("*.jsonl")):
                    times.update(batch_wall=time.monotonic() - begin, batch_cpu=tree_cpu_seconds())
                if "wall" not in times and output.stat().st_size:
                    times.update(wall=time.monotonic() - begin, cpu=tree_cpu_seconds())

            while process.poll() is None:
                check_results()
                time.sleep(_POLL_S)
            if "wall" not in times:
                # The process ended within one interval after its first output, and its time is in the sums of this one.
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                times.update(wall=time.monotonic() - begin, cpu=cpu)
        wait_for_orphans()
        if process.returncode:
            sys.exit(f"{version.name}: {command} failed:\n{(folder / 'errors').read_text('utf-8')[-2000:]}")
        return {name: round(value, 2) for name, value in times.items()}


def adopt_orphans() -> None:
    """Make processes whose parent has ended children of this process, so that they are still measured."""
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1)


def wait_for_orphans() -> None:
    """Wait for processes that outlive their parents, such as a JVM that writes its class archive."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def summary(done: dict[str, Case], names: list[str]) -> dict[str, Any]:
    """Return the medians per case and version, the ratios of both versions, and the floor."""
    result: dict[str, Any] = {}
    for name, case in done.items():
        entry: dict[str, Any] = {}
        for version, runs in case.runs.items():
            entry[version] = {key: round(statistics.median(run[key] for run in runs), 2) for key in runs[0]}
        if len(entry) == 2:
            old, new = (entry[one] for one in names)
            entry["ratio"] = {key: round(new[key] / old[key], 2) for key in old if key in new and old[key]}
        result[name] = entry
    for name, case in done.items():
        if case.floor_of in result:
            result[case.floor_of]["floor"] = result.pop(name)
    return result


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks startup", description=__doc__)
    parser.add_argument("--against", type=Path, metavar="PATH", help="a worktree of the older version, with its .venv")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=50_000, help="rows per stream of the Parquet files")
    parser.add_argument("--only", help="cases, separated by commas")
    parser.add_argument("--quick", action="store_true", help="cases without Spark, once: only to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args(argv)
    adopt_orphans()
    results: dict[str, Any] = conditions() | {"quick": options.quick, "summary": {}, "runs": {}}
    with tempfile.TemporaryDirectory(prefix="tocsin-startup-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        write_data(folder / "data", options.rows)
        versions = [Version("new", ROOT, folder / "new")]
        if options.against:
            versions.insert(0, Version("old", options.against.absolute(), folder / "old"))
        for version in versions:
            version.folder.mkdir()
        every = cases(folder / "data", str(ROOT / "examples" / "factory.yaml"))
        chosen = options.only.split(",") if options.only else list(every)
        if not set(chosen) <= set(every):
            parser.error(f"--only must name cases of {', '.join(every)}; got {options.only}")
        done = {name: every[name] for name in chosen if not (options.quick and every[name].is_spark)}
        rounds = 1 if options.quick else options.repeats
        for number in range(-1, rounds):
            for case in done.values():
                for version in versions[-1:] if case.is_floor else versions:
                    run = measure(version, case)
                    if number >= 0:
                        case.runs.setdefault(version.name, []).append(run | {"load": round(os.getloadavg()[0], 1)})
            results["summary"] = {} if number < 0 else summary(done, [version.name for version in versions])
            results["runs"] = {name: case.runs for name, case in done.items()}
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))
    return 0
