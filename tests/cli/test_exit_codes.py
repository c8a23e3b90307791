"""Behaviour that all commands with files have in common."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tocsin.cli import main as entry
from tocsin.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
# Each command with a missing file. `edge`, `demo` and `examples` read no file, `dashboard` reads directories.
MISSING = {
    "check": ["none.yaml"],
    "certify": ["-f", "none.yaml"],
    "explain": ["none.yaml"],
    "test": ["none.yaml"],
    "backtest": ["none.yaml"],
    "backtest --against": [str(ROOT / "examples/cold-store.yaml"), "--against", "none.yaml"],
    "run": ["none.yaml", "--run-dir", "run"],
    "ranges": ["load", "none.yaml", "Rule", "requests.csv"],
    "query": ["SELECT x FROM s", "--rules", "none.yaml"],
}


def test_table_has_every_command_with_files() -> None:
    commands = {command.__name__.rpartition(".")[2] for command in entry.COMMANDS}
    without_files = {"edge", "demo", "dashboard", "examples", "schema"}
    assert {name.partition(" ")[0] for name in MISSING} == commands - without_files


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("content", ["missing", "directory", "not UTF-8"])
def test_command_reports_an_error_in_line_1_when_a_file_cannot_be_read(
    name: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if content == "directory":
        Path("none.yaml").mkdir()
    elif content == "not UTF-8":
        Path("none.yaml").write_bytes(b"\xff")
    assert main([name.partition(" ")[0], *MISSING[name]]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("none.yaml:1:1: ")
    assert not Path("run").exists()


@pytest.mark.parametrize("arguments", [["backtest", str(ROOT / "examples/factory.yaml")], ["demo"]])
def test_command_names_the_missing_package_when_pyspark_is_not_installed(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main(arguments) == 1
    expected = f"tocsin {arguments[0]}: this command needs PySpark; install tocsin[spark]\n"
    assert capsys.readouterr().err == expected
