"""`tocsin backtest` before Spark starts: invalid arguments, errors in files, unwritable paths, output tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rule_files import load_file
from tocsin.cli.history_runner import Version, write_manifests
from tocsin.cli.main import main
from tocsin.cli.tables import lines_of
from tocsin.plan import Plan, plan_file
from tocsin.report import Result
from tocsin.report.result import DeadRows, StoreSummary
from tocsin.rules.quality import parse_quality
from tocsin.run_directory import RunDir, read_manifest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "cold-store.yaml")


@pytest.mark.parametrize(("arguments", "message"), [
    (["--from", "yesterday"], "argument --from: must be a time such as 2026-01-01T00:00:00Z; got 'yesterday'"),
    (["--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z"], "`--from` must not be after `--to`"),
    (["--conf", "spark.driver.memory"], "`--conf` must be KEY=VALUE; got 'spark.driver.memory'"),
])  # fmt: skip
def test_backtest_exits_with_2_when_arguments_are_invalid(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["backtest", EXAMPLE, *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("path", ["nowhere/report.html", "."])
def test_backtest_reports_an_unwritable_report_before_it_runs(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backtest", EXAMPLE, "--report", str(tmp_path / path)]) == 1
    assert "--report must be a file in an existing directory; got " in capsys.readouterr().err


@pytest.mark.parametrize("option", ["", "--against"])
def test_backtest_reports_errors_of_either_file(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("streams: {}\n")
    arguments = [EXAMPLE, option, str(path)] if option else [str(path)]
    assert main(["backtest", *arguments]) == 1
    assert f"{path}:1:1: rule file: " in capsys.readouterr().err
    assert main(["backtest", *arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_manifests_have_the_common_number_of_buckets(tmp_path: Path) -> None:
    file, run = load_file(EXAMPLE), RunDir(tmp_path / "run")
    short = replace(file, quality=parse_quality({"memory": "10MB"}))
    run.folder.mkdir()
    write_manifests(run, [Version(one, plan_file(one)) for one in (file, short)])
    for folder in (run.folder, run.folder / "against"):
        manifest = read_manifest(folder)
        # Each bucket has at least one MiB for each join.
        assert manifest is not None
        assert 0 < manifest.buckets < 10


def test_backtest_rejects_a_directory_with_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("text")
    assert main(["backtest", EXAMPLE, "--run-dir", str(tmp_path)]) == 1
    assert "must be new, empty, or have a `manifest.json`; it has other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def lines(*stores: StoreSummary, dead: tuple[DeadRows, ...] = ()) -> list[str]:
    result = Result("rules.yaml", Plan(()), (), stores, (), dead=dead)
    return list(lines_of([result], None, {"rows": 9, "seconds": 1.0}))


def test_output_has_rows_outside_the_domain_and_without_limits_when_there_are_any() -> None:
    plain = lines(StoreSummary("air", {"received": 9}))
    assert plain[-1] == "9 rows in 1 s"
    assert not any("domain" in line or "limits" in line for line in plain)
    shown = lines(StoreSummary("air", {"received": 9, "out_of_domain": 4}), StoreSummary("oil", {"without_limits": 1}))
    head = next(line for line in shown if line.startswith("stream"))
    row = next(line for line in shown if line.startswith("air"))
    assert "invalid  outside the domain  without limits  full join retains" in head
    assert row.split() == ["air", "9", "0", "0", "0", "0", "4", "0", "9"]
    assert shown[-1] == (
        "9 rows in 1 s; 4 rows of `air` outside the domain; 1 row of `oil` without a row in a limits table"
    )


def test_last_line_has_the_most_frequent_reason_of_invalid_rows() -> None:
    first = DeadRows("air", "value `mms` is missing", 7)
    note = "invalid rows (stream `air`: value `mms` is missing"
    assert lines(dead=(first,))[-1] == f"9 rows in 1 s; 7 {note})"
    assert lines(dead=(first, DeadRows("air", "no", 1)))[-1] == f"9 rows in 1 s; 8 {note}; and other reasons)"
