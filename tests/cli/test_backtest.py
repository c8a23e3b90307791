"""`tocsin backtest` before Spark starts: wrong usage, mistakes of files, places that cannot be written to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tocsin.cli.main import main
from tocsin.cli.progress import Bar

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "cold-store.yaml")


@pytest.mark.parametrize(("arguments", "message"), [
    (["--from", "yesterday"], "argument --from: must be a time such as 2026-01-01T00:00:00Z; got 'yesterday'"),
    (["--conf", "spark.driver.memory"], "`--conf` must be KEY=VALUE; got 'spark.driver.memory'"),
])  # fmt: skip
def test_wrong_usage_gives_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["backtest", EXAMPLE, *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("path", ["nowhere/report.html", "."])
def test_a_report_that_cannot_be_written_is_said_before_the_work(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backtest", EXAMPLE, "--report", str(tmp_path / path)]) == 1
    assert "--report must name a file in a folder that is there; got " in capsys.readouterr().err


@pytest.mark.parametrize("option", ["", "--against"])
def test_mistakes_of_either_file_are_told(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("streams: {}\n")
    arguments = [EXAMPLE, option, str(path)] if option else [str(path)]
    assert main(["backtest", *arguments]) == 1
    assert f"{path}:1:1: rule file: " in capsys.readouterr().err
    assert main(["backtest", *arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_folder_with_other_files_is_no_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    assert main(["backtest", EXAMPLE, "--run-dir", str(tmp_path)]) == 1
    assert "must be new, empty, or that of a run; it has other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_where_nobody_watches_progress_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bar("backtest") as bar:
        bar.told(1, 64)
        monkeypatch.setattr("tocsin.cli.progress._EVERY_S", 0.0)
        bar.told(2, 64)
    with Bar("backtest", quiet=True) as bar:
        bar.told(3, 64)
    assert capsys.readouterr() == ("", "tocsin backtest: 2 of 64 tasks of this stage are done\n")
