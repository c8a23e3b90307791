"""Long run: CPU seconds per micro-batch of a continuous run, with both compilers of the JVM and with the first only.

Both runs read equal generated streams at the same time, so that they share the load of the machine. The result decides
which compiler options `tocsin run` uses (`src/tocsin/jvm.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.backtest import children
from benchmarks.conditions import conditions
from tocsin.jvm import BOUNDED

_TICKS = os.sysconf("SC_CLK_TCK")
_STREAM = (
    "  {name}: {{source: {{factory: {{sensor: {name}, machines: 1000, rate: {rate}}}}}, keys: [machine],"
    " values: {{value: {{domain: {domain}}}}}}}\n"
)
_DOMAINS = {"air": "[-40, 60]", "humidity": '"(0, 100]"', "surface": "[-40, 60]"}
_RULE = """\
groups:
  - name: factory
    rules:
      - alert: Condensation
        expr: ln(humidity/100) + 18.678*air/(257.14+air) - 18.678*surface/(257.14+surface) > 0
        within: 5s
        on: [machine]
        keep_firing_for: 10s
sinks:
  - log: {path: alerts, format: parquet}
"""
OPTIONS = {"default": "", "first compiler": " ".join(BOUNDED)}


def cpu_seconds(root: int) -> dict[str, float]:
    """Return the CPU time of a process tree: the JVM, and all processes."""
    total = jvm = 0
    for process in children(root):
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            continue
        ticks = sum(map(int, stat.rpartition(")")[2].split()[11:13]))
        total += ticks
        jvm += ticks if "(java)" in stat else 0
    return {"all": total / _TICKS, "jvm": jvm / _TICKS}


def sample(process: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    """Return micro-batches and CPU seconds of a run since its start."""
    if process.poll() is not None:
        sys.exit(f"a run ended with {process.returncode}:\n{(folder / 'errors').read_text('utf-8')[-2000:]}")
    progress = folder / "run" / "progress.jsonl"
    batches = progress.read_bytes().count(b"\n") if progress.exists() else 0
    return {"batches": batches, "cpu": cpu_seconds(process.pid)}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks long-run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=2_000, help="rows per second of each stream")
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    options = parser.parse_args(argv)
    results: dict[str, Any] = conditions() | {"minutes": options.minutes, "rate": options.rate}
    with tempfile.TemporaryDirectory(prefix="tocsin-long-", ignore_cleanup_errors=True) as name:
        runs: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        for kind, java in OPTIONS.items():
            folder = Path(name) / kind.replace(" ", "-")
            folder.mkdir()
            streams = "".join(_STREAM.format(name=one, rate=options.rate, domain=at) for one, at in _DOMAINS.items())
            (folder / "rules.yaml").write_text(f"streams:\n{streams}{_RULE}", "utf-8")
            command = [sys.executable, "-m", "tocsin", "run", "--run-dir", str(folder / "run")]
            command += ["--conf", f"spark.driver.extraJavaOptions={java}"] if java else []
            with (folder / "errors").open("wb") as errors:
                process = subprocess.Popen(
                    [*command, str(folder / "rules.yaml")], stdout=subprocess.DEVNULL, stderr=errors
                )
            runs[kind] = process, folder
        end = time.monotonic() + options.minutes * 60
        samples: dict[str, list[dict[str, Any]]] = {kind: [] for kind in runs}
        try:
            while time.monotonic() < end:
                time.sleep(min(60.0, max(0.0, end - time.monotonic())))
                for kind, (process, folder) in runs.items():
                    samples[kind].append(sample(process, folder))
        finally:
            for process, _ in runs.values():
                process.send_signal(signal.SIGTERM)
            for process, _ in runs.values():
                process.wait()
        half = len(samples["default"]) // 2
        for kind, found in samples.items():
            first, last = found[half], found[-1]
            batches = max(1, last["batches"] - first["batches"])
            results[kind] = {
                "batches": last["batches"],
                "cpu": last["cpu"],
                "jvm_s_per_batch_in_second_half": round((last["cpu"]["jvm"] - first["cpu"]["jvm"]) / batches, 3),
                "s_per_batch_in_second_half": round((last["cpu"]["all"] - first["cpu"]["all"]) / batches, 3),
                "samples": found,
            }
    text = json.dumps(results, indent=1)
    if options.json:
        options.json.write_text(text + "\n", "utf-8")
    print(text)
    return 0
