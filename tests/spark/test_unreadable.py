"""Unreadable files: a source file with damaged content is skipped, named and counted, and the run continues."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

from pyspark import SparkContext

from tocsin.rules.rulefile import Source, Stream
from tocsin.run_directory import last_progress, read_dead
from tocsin.spark.unreadable import UnreadableFile, UnreadableFiles, skip_settings

RULES = """
streams:
  air: {source: {json: {path: "in ü/air"}}, keys: [m], values: {temp: {}}}
  oil: {source: {json: {path: "in ü/oil"}}, keys: [m]}
groups:
  - name: all
    rules:
      - {alert: Hot, expr: air.temp > 40, on: [m]}
      - {alert: Low, expr: oil < 3, on: [m]}
"""


def line(path: str, reason: str = "bad") -> str:
    message = f"Skipped the rest of the content in the corrupted file: path: {path}, range: 0-8, partition values: []"
    return json.dumps([message, reason]) + "\n"


def stream(name: str, path: str) -> Stream:
    return Stream(name, Source("json", {"path": path}))


def test_each_file_is_reported_once_with_its_streams_when_spark_skips_it_several_times(tmp_path: Path) -> None:
    log = tmp_path / "skipped.log"
    streams = [stream("a", "/in"), stream("b", "/in/x*"), stream("c", "file:/in/y.gz"), stream("d", "/inner")]
    files = UnreadableFiles(log, streams)
    assert files.take() == []
    torn = line("file:///in/x%20%C3%BC.gz")
    log.write_text(line("file:///in/y.gz") + line("file:///in/y.gz", "again") + torn[:40])
    assert files.take() == [UnreadableFile("a", "/in/y.gz", "bad"), UnreadableFile("c", "/in/y.gz", "bad")]
    with log.open("a") as more:
        more.write(torn[40:] + line("file:///in/y.gz") + '["another message", ""]\n' + "nonsense\n")
    assert files.take() == [UnreadableFile("a", "/in/x ü.gz", "bad"), UnreadableFile("b", "/in/x ü.gz", "bad")]
    assert files.take() == []


def test_damaged_files_are_skipped_only_when_the_messages_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    skips = {"spark.sql.files.ignoreCorruptFiles": "true"}
    assert skip_settings("local[2]", {"spark.driver.memory": "1g"}) == skips
    assert skip_settings("spark://host:7077", {}) == {}
    assert skip_settings("local", {"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=x"}) == {}
    monkeypatch.setattr(SparkContext, "_gateway", object())
    assert skip_settings("local", {}) == {}


def _tocsin(folder: Path, command: str, *more: str) -> subprocess.CompletedProcess[str]:
    fixed = ["rules.yaml", "--run-dir", command, "--master", "local[2]", "--conf", "spark.driver.memory=512m", "--json"]
    return subprocess.run(
        [sys.executable, "-m", "tocsin", command, *fixed, *more],
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a stream with one usable and two damaged files, and a stream with only a damaged file."""
    place = tmp_path_factory.mktemp("unreadable ü")
    (place / "rules.yaml").write_text(RULES)
    for name in ("air", "oil"):
        (place / "in ü" / name).mkdir(parents=True)
    lines = (json.dumps({"m": "a", "ts": second * 1_000_000, "temp": 50}) + "\n" for second in range(9))
    rows = "".join(lines).encode()
    whole = gzip.compress(rows)
    (place / "in ü" / "air" / "good.json.gz").write_bytes(whole)
    (place / "in ü" / "air" / "cut.json.gz").write_bytes(whole[:25])
    (place / "in ü" / "air" / "no gzip.json.gz").write_bytes(rows)
    (place / "in ü" / "oil" / "no gzip.json.gz").write_bytes(rows)
    return place


def _check(folder: Path, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    (unusable,) = told["unusable"]
    assert unusable.startswith("stream `oil` has no valid row (the file cannot be read: ")
    for name in ("air/cut.json.gz", "air/no gzip.json.gz", "oil/no gzip.json.gz"):
        assert f"file {folder}/in ü/{name} cannot be read and was skipped; " in done.stderr
    return told


@pytest.mark.spark
@pytest.mark.process
def test_run_continues_and_counts_damaged_files_when_a_source_has_some(folder: Path) -> None:
    told = _check(folder, _tocsin(folder, "run", "--once"))
    assert told["total"]["rows"]["air"] == 9
    assert told["total"]["alerts"]["Hot"]["firing"] == 1
    last = last_progress(folder / "run")
    assert last is not None
    assert last.total.section("unreadable") == {"air": 2, "oil": 1}
    assert sorted((row.stream, Path(row.raw).name) for row in read_dead(folder / "run")) == [
        ("air", "cut.json.gz"),
        ("air", "no gzip.json.gz"),
        ("oil", "no gzip.json.gz"),
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_backtest_names_damaged_files_when_a_source_has_some(folder: Path) -> None:
    told = _check(folder, _tocsin(folder, "backtest"))
    assert told["rows"] == 9
    assert sorted((file["stream"], Path(file["path"]).name) for file in told["unreadable"]) == [
        ("air", "cut.json.gz"),
        ("air", "no gzip.json.gz"),
        ("oil", "no gzip.json.gz"),
    ]
