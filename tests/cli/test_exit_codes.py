"""What all commands that take files do alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.cli import main as entry
from tocsin.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
# Each command with the file that is not there; `edge` and `demo` read none, `dashboard` directories.
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


def test_every_command_that_takes_files_is_here() -> None:
    commands = {command.__name__.rpartition(".")[2] for command in entry.COMMANDS}
    assert {name.partition(" ")[0] for name in MISSING} == commands - {"edge", "demo", "dashboard"}


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("made", ["nothing", "a folder", "no text"])
def test_a_file_that_cannot_be_read_is_a_mistake_in_its_first_line_and_gives_1(
    name: str, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if made == "a folder":
        Path("none.yaml").mkdir()
    elif made == "no text":
        Path("none.yaml").write_bytes(b"\xff")
    assert main([name.partition(" ")[0], *MISSING[name]]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("none.yaml:1:1: ")
    assert not Path("run").exists()


def test_the_page_says_so() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    assert "| 1 | mistakes were found, a test or a run failed, or a file that was named is not there" in page
