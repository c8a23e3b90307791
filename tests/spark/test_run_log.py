"""Log of a run: Spark's warnings about control files that it deleted before stay out of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

CODE = """
import pathlib
from tocsin.run_directory import RunDir
from tocsin.spark.session import run_session

run, rows = RunDir("run"), pathlib.Path("in")
rows.mkdir()
settings = {"spark.driver.memory": "512m"}
with run.lock(), run_session(run, master="local[1]", conf=settings, partitions=1, kafka=False) as spark:
    run.write_control_rows("first")
    control = spark.readStream.name("control").option("cleanSource", "delete").text(str(run.control.absolute()))
    frame = spark.readStream.name("rows").text(str(rows)).union(control)
    query = frame.writeStream.format("noop").option("checkpointLocation", "check").start()
    for number in range(4):
        (rows / f"{number}.txt").write_text("row")
        query.processAllAvailable()
    other = spark._jvm.org.apache.log4j.Logger.getLogger("org.apache.spark.Other")
    other.warn("Failed to remove x / skip removing file.")
    query.stop()
    print("batches:", len(list(pathlib.Path("check/commits").glob("[0-9]*"))), "control:", list(run.control.iterdir()))
"""


@pytest.mark.spark
@pytest.mark.process
def test_log_has_no_warning_of_a_control_file_when_spark_deletes_it_again(tmp_path: Path) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Spark deletes the file after the micro-batch that follows the one that read it, and tries that again after others.
    assert "batches: 4 control: []" in done.stdout
    log = (tmp_path / "run" / "spark.log").read_text()
    assert [line for line in log.splitlines() if "Failed to remove" in line and "/control/" in line] == []
    assert "Failed to remove x / skip removing file." in log
