"""What docs/edge.md shows runs and is true, and its numbers are those of the recordings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import edge as benchmark
from tests.edge.command import CODE

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "edge.md").read_text("utf-8")
EXAMPLE = re.compile(r"```sh\n(.*?)```\n\n((?:    [^\n]*\n)+)", re.DOTALL)


def test_the_example_runs_and_prints_what_is_shown(tmp_path: Path) -> None:
    found = EXAMPLE.search(TEXT)
    assert found
    code, shown = found[1], "".join(line[4:] for line in found[2].splitlines(keepends=True))
    for name, command in (("tocsin", f"-c '{CODE}'"), ("python", "")):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run = subprocess.run(
        ["/bin/sh", "-e", "-c", code], cwd=tmp_path, env=environment, stdout=-1, stderr=-2, text=True, check=True
    )
    assert run.stdout == shown


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    return benchmark.bytes_against_hold()


@pytest.mark.recordings
def test_the_table_of_bytes_against_hold_is_what_the_recordings_give(found: list[dict[str, Any]]) -> None:
    for recording in {point["recording"] for point in found}:
        for shape in benchmark.SHAPES:
            shares = [p["share"] for p in found if (p["recording"], p["shape"]) == (recording, shape)]
            cells = " | ".join(f"{share:.1%}" for share in shares)
            assert f"| {recording}, {shape} | {cells} |" in TEXT


@pytest.mark.recordings
def test_the_whole_interval_sends_the_fewest_rows_of_the_recordings(found: list[dict[str, Any]]) -> None:
    fewest = {"occupancy, light, 1 h": 1928, "occupancy, temperature, 1 h": 3788, "DEBS 2012, mf01, 1 s": 5007}
    for point in found:
        if point["hold"] == "1" and point["shape"] == "quasiconvex":
            assert point["rows_sent"] == fewest[point["recording"]]


def test_exit_codes_are_the_same_in_help_and_docs() -> None:
    from tocsin.cli import edge

    told = {code: said.strip() for code, said in re.findall(r"^  (\d)  ([\w ]+)", edge.EPILOG, re.MULTILINE)}
    shown = {code: said.strip() for code, said in re.findall(r"^\| (\d) \| ([\w ]+)", TEXT, re.MULTILINE)}
    assert told == shown
    assert sorted(told) == ["0", "1", "2", "3", "4"]


def test_the_benchmark_runs_and_its_results_have_their_shape(tmp_path: Path) -> None:
    assert benchmark.main(["--quick", "--json", str(tmp_path / "edge.json"), "--plots", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "edge.json").read_text())
    assert set(results) == {"load_before", "hold", "start", "speed"}
    assert set(results["speed"]) == set(benchmark.CASES)
    assert (tmp_path / "edge_hold.png").exists() == bool(results["hold"])
