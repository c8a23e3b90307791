"""Start processes and end them, with all that they started."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
# For what comes about in seconds where nothing else runs; a process that ends before is not waited for.
PATIENCE_S = 600.0


def start(command: list[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start a process as the leader of its own group; what it says goes to the end of a file."""
    folders = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
    known = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    env = {**os.environ, **known, "PYTHONPATH": os.pathsep.join(filter(None, folders)), **environment}
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=log.parent, start_new_session=True
        )


def start_job(folder: Path, scenario: str, master: str, mode: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start `job.py` on a folder."""
    command = [sys.executable, "-W", "ignore", "-m", "spark.job", str(folder), scenario, master, mode]
    return start(command, folder / "log", **environment)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that `start` gave, and its group, thus its JVM, at once.

    Python workers have a group of their own, and end when the JVM that they serve is gone.
    """
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def finish(process: subprocess.Popen[bytes], folder: Path) -> list[tuple[Any, ...]]:
    """Wait for a job to end well, and give its alerts."""
    try:
        code = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        code = f"none after {PATIENCE_S:g} s"
    finally:
        kill(process)
    assert code == 0, f"exit code {code}\n{tail(folder / 'log')}"
    return ast.literal_eval((folder / "result").read_text())


def wait_until(true: Callable[[], object], process: subprocess.Popen[bytes], seconds: float = PATIENCE_S) -> bool:
    """Tell whether something came true while the process lived."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.05)
    return False


def tail(log: Path, lines: int = 40) -> str:
    """The end of what a process said."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


def batches(folder: Path, kind: str) -> int:
    """How many micro-batches have been begun (`offsets`) or ended (`commits`) in the checkpoint of a job."""
    return sum(path.name.isdigit() for path in (folder / "check" / kind).glob("*"))


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
