"""`tocsin backtest` before Spark starts: wrong usage, mistakes of files, places that cannot be written to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loaded import load_file
from tocsin.cli.history import Version, write_manifests
from tocsin.cli.main import main
from tocsin.cli.progress import Bar
from tocsin.cli.tables import lines_of
from tocsin.plan import Plan
from tocsin.plan.file import plan_file
from tocsin.report import Result
from tocsin.report.result import DeadRows, StoreSummary
from tocsin.rules.memory import read_memory
from tocsin.rundir import RunDir, read_manifest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "cold-store.yaml")


@pytest.mark.parametrize(("arguments", "message"), [
    (["--from", "yesterday"], "argument --from: must be a time such as 2026-01-01T00:00:00Z; got 'yesterday'"),
    (["--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z"], "`--from` must not lie after `--to`"),
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


def test_manifests_have_the_buckets_that_all_versions_run_with(tmp_path: Path) -> None:
    file, run = load_file(EXAMPLE), RunDir(tmp_path / "run")
    short = replace(file, memory=read_memory("10MB"))
    run.folder.mkdir()
    write_manifests(run, [Version(one, plan_file(one)) for one in (file, short)])
    for folder in (run.folder, run.folder / "against"):
        manifest = read_manifest(folder)
        # Each has a megabyte (of 1,048,576 bytes) for each join.
        assert manifest is not None
        assert 0 < manifest.buckets < 10


def test_a_folder_with_other_files_is_no_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    assert main(["backtest", EXAMPLE, "--run-dir", str(tmp_path)]) == 1
    assert "must be new, empty, or that of a run; it has other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def lines(*stores: StoreSummary, dead: tuple[DeadRows, ...] = ()) -> list[str]:
    result = Result("rules.yaml", Plan(()), (), stores, (), dead=dead)
    return list(lines_of([result], None, {"rows": 9, "seconds": 1.0}))


def test_tables_and_the_last_line_tell_of_rows_outside_their_domain_and_without_limits_where_there_are_any() -> None:
    plain = lines(StoreSummary("air", {"received": 9}))
    assert plain[-1] == "9 rows in 1.0 s"
    assert not any("domain" in line or "limits" in line for line in plain)
    told = lines(StoreSummary("air", {"received": 9, "out_of_domain": 4}), StoreSummary("oil", {"without_limits": 1}))
    head = next(line for line in told if line.startswith("stream"))
    row = next(line for line in told if line.startswith("air"))
    assert "not usable  outside domain  without limits  a plain join keeps" in head
    assert row.split() == ["air", "9", "0", "0", "0", "0", "4", "0", "9"]
    assert told[-1] == (
        "9 rows in 1.0 s; 4 rows of `air` outside the domain; 1 row of `oil` without a row in a table of limits"
    )


def test_the_last_line_has_the_reason_of_most_dead_rows() -> None:
    first = DeadRows("air", "value `mms` is missing", 7)
    said = "rows could not be used (stream `air`: value `mms` is missing"
    assert lines(dead=(first,))[-1] == f"9 rows in 1.0 s; 7 {said})"
    assert lines(dead=(first, DeadRows("air", "no", 1)))[-1] == f"9 rows in 1.0 s; 8 {said}; and other reasons)"


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
