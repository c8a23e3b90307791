"""Python of Spark's workers: a session fails at once if they cannot import Tocsin, and they print nothing per query."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

from pyspark import SparkFiles

from tocsin.errors import PlanError
from tocsin.spark.worker_python import check_worker_python

USER_CODE = """
import pyspark.sql, tocsin
session = pyspark.sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = session.createDataFrame([("m", 1, 2.0)], "machine string, ts long, value double")
tocsin.alerts({"air": frame}, tocsin.Rule("Hot", "air > 1", on="machine")).collect()
"""
STREAMING_CODE = """
import pathlib, pyspark.sql, tocsin
pathlib.Path("in").mkdir()
pathlib.Path("in/a.json").write_text('{"machine": "m", "ts": "2026-01-01T00:00:00Z", "value": 2.0}\\n')
session = pyspark.sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = session.readStream.schema("machine string, ts timestamp, value double").json("in")
alerts = tocsin.alerts({"air": frame}, tocsin.Rule("Hot", "air > 1", on="machine"))
query = alerts.writeStream.format("memory").queryName("hot").trigger(availableNow=True).start()
query.awaitTermination()
print("alerts:", session.table("hot").count())
"""


def _python(folder: Path, options: str) -> str:
    """Write a `python3` that starts this Python with options."""
    folder.mkdir(exist_ok=True)
    path = folder / "python3"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n')
    path.chmod(0o755)
    return str(path)


def _run_script(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "job.py").write_text(code)
    known = {"PATH": os.environ["PATH"], "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    unset = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    return subprocess.run(
        [sys.executable, "job.py"], cwd=folder, env=unset | known, capture_output=True, text=True, check=False
    )


def _session(python: str, master: str = "local[2]", **more: Any) -> Any:
    parts = {"master": master, "pythonExec": python, "environment": {}, "_python_includes": []}
    return SimpleNamespace(_sc=SimpleNamespace(**parts | more))


def test_session_check_names_the_remedy_when_its_python_lacks_tocsin(tmp_path: Path) -> None:
    python = _python(tmp_path, "-I -S")
    with pytest.raises(PlanError, match="cannot import tocsin") as raised:
        check_worker_python(_session(python))
    for part in (f"`{python}` fails with", "No module named 'tocsin'", f"PYSPARK_PYTHON to {sys.executable} before"):
        assert part in str(raised.value)


def test_session_check_names_the_reason_when_its_python_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="No such file or directory"):
        check_worker_python(_session(str(tmp_path / "nowhere")))
    with pytest.raises(PlanError, match="exit code 3"):
        check_worker_python(_session(_python(tmp_path, "-c 'import sys; sys.exit(3)'")))


def test_session_check_passes_when_tocsin_reaches_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_worker_python(_session(sys.executable))
    check_worker_python(_session(_python(tmp_path / "venv", "")))
    bare = _python(tmp_path, "-S")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    source = Path(__file__).resolve().parents[2] / "src"
    check_worker_python(_session(bare, environment={"PYTHONPATH": str(source)}))
    # A package that `addPyFile` ships.
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(source.parent))
    check_worker_python(_session(bare, _python_includes=["src"]))
    # The workers of a cluster and of Spark Connect are elsewhere.
    check_worker_python(_session("nowhere", master="spark://host:7077"))
    check_worker_python(SimpleNamespace())


@pytest.mark.spark
@pytest.mark.slow
def test_alerts_fail_with_the_remedy_when_another_python_is_first_in_the_path(tmp_path: Path) -> None:
    _python(tmp_path / "bin", "-I -S")
    done = _run_script(tmp_path, USER_CODE, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert "the Python workers of Spark cannot import tocsin; `python3` fails with" in last
    assert f"set the environment variable PYSPARK_PYTHON to {sys.executable} before" in last


@pytest.mark.spark
@pytest.mark.slow
def test_query_of_a_user_prints_no_progress_of_the_driver_worker_when_it_starts(tmp_path: Path) -> None:
    done = _run_script(tmp_path, STREAMING_CODE, PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert "alerts: 1" in done.stdout
    # PySpark prints this line before it loads code of Tocsin.
    first = "Starting Streaming TransformWithStateInPandas Python worker."
    assert [line for line in done.stderr.splitlines() if "Python worker" in line and line != first] == []
