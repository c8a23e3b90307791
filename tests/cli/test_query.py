"""`tocsin query` before Spark starts: invalid arguments, errors in the SQL, missing streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from tocsin.cli.main import main
from tocsin.cli.query import _has_omissions, _notes, _write
from tocsin.query.model import Budget

FACTORY = str(Path(__file__).parents[2] / "examples" / "factory.yaml")
JOIN = "SELECT a.ts, b.ts FROM a, b WHERE a.item = b.item WINDOW 1 SECOND"


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "SQL is required: an argument or -f FILE.sql"),
    ([JOIN], "a stream is required: NAME=PATH or --rules"),
    ([JOIN, "sales.parquet"], "a stream must be NAME=PATH; got 'sales.parquet'"),
    ([JOIN, "a=.", "a=."], "a stream must be declared once; got `a` twice"),
    (["SELECT value FROM air", "air=.", "--rules", FACTORY],
     "a stream must have one source; `air` is both NAME=PATH and a stream of"),
    ([JOIN, "a=.", "--limit", "none"], "argument --limit: must be an integer from 1 to 1,000,000; got 'none'"),
    ([JOIN, "a=.", "--limit", "0"], "must be an integer from 1 to 1,000,000; got '0'"),
    ([JOIN, "a=.", "--from", "noon"], "argument --from: must be a time"),
    ([JOIN, "a=.", "--to", "2026-01-01T00:00:00Z"], "`--from` and `--to` need --rules"),
])  # fmt: skip
def test_query_exits_with_2_when_arguments_are_invalid(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["query", *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "message"), [
    ([JOIN, "a=nowhere.parquet"], "tocsin query: stream `a`: path `nowhere.parquet` does not exist\n"),
    (["-f", "nowhere.sql", "a=."], "tocsin query: -f nowhere.sql: no such file"),
    (["-f", "odd.sql", "a=."], "tocsin query: -f odd.sql: must be UTF-8 text\n"),
    ([JOIN, "a=.", "--out", "answer.xls"], "--out must end in .parquet, .csv or .json; got 'answer.xls'\n"),
    ([JOIN, "a=.", "--out", "there.csv"], "--out must not exist; 'there.csv' exists\n"),
    (["SELECT a.ts\nFROM a WHERE", "a=."],
     "tocsin query: 2:13: unexpected end of the statement\n  FROM a WHERE\n              ^\n"),
    (["DROP TABLE a", "a=."],
     "tocsin query: 1:1: expected CREATE SUMMARY or SELECT; got `DROP`\n  DROP TABLE a\n  ^^^^\n"),
    (["SELECT x FROM aa WINDOW 1 DAY", "a=."], "1:15: `aa` must be a stream; expected one of a\n"),
    (["SELECT value FROM aire", "--rules", FACTORY], "`aire` must be a stream; expected one of"),
    (["SELECT x FROM a GROUP BY x", "a=."], "1:17: a query must have the form SELECT ... FROM"),
    ([f"{JOIN} BUDGET 0 %", "a=.", "b=."], "`BUDGET` must be above 0 and at most 100,000 %; got 0\n"),
    (["SELECT a.ts FROM a, b WHERE a.item = b.item WITH PREFERENCE desc h.Estimate.Count(a.item) WINDOW 1 DAY",
      "a=.", "b=."], "`h` must be SUMMARY or a summary of a.item (no summary is declared)\n"),
])  # fmt: skip
def test_query_reports_errors_before_spark_starts(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.sql").write_bytes(b"\xff\xfe")
    Path("there.csv").write_text("")
    monkeypatch.setattr("tocsin.cli.history_runner.session", None)
    assert main(["query", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert main(["query", *arguments, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert answer["error"] in err


@pytest.mark.spark
@pytest.mark.process
def test_query_runs_as_a_process(tmp_path: Path) -> None:
    lines = [f"2026-01-01T00:00:{second:02d}Z,{second % 3},{second}.5" for second in range(30)]
    (tmp_path / "sales.csv").write_text("\n".join(["ts,item,price", *lines]) + "\n")
    query = (
        "CREATE SUMMARY h ON sales(price) WITH HISTOGRAM(0, 30, 10); "
        "SELECT COUNT(*) AS n, SUM(price) AS s FROM sales WHERE price > 10 WINDOW 10 SECONDS"
    )
    found = subprocess.run(
        [sys.executable, "-m", "tocsin", "query", query, "sales=sales.csv", "--master", "local[1]"],
        cwd=tmp_path,
        env={**os.environ, "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert [line.split() for line in found.stdout.splitlines()] == [
        ["window_start", "window_end", "n", "n_error", "s", "s_error"],
        ["2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z", "10.0", "0.0", "150.0", "0.0"],
        ["2026-01-01T00:00:20Z", "2026-01-01T00:00:30Z", "10.0", "0.0", "250.0", "0.0"],
    ]


def test_query_notes_name_no_rule_key_when_rows_are_late() -> None:
    summary = {"exact": True, "streams": {"air": {"received": 5, "late": 2}}, "reasons": {}}
    assert list(_notes(summary)) == ["2 rows of `air` dropped as late"]


def test_query_notes_an_incomplete_result_when_rows_were_omitted() -> None:
    summary = {"exact": False, "shortage": f"the CPU budget is {Budget(units=1)}", "streams": {}, "reasons": {}}
    assert list(_notes(summary)) == ["the result may be incomplete: the CPU budget is 1 unit per tuple"]
    assert str(Budget(units=1.5)) == "1.5 units per tuple"
    assert not _has_omissions({"a": {"received": 5, "unprocessed": 0}, "b": {"received": 5, "expired": 5}})
    assert _has_omissions({"a": {"received": 5, "unprocessed": 0}, "b": {"received": 5, "unprocessed": 1}})
    assert _has_omissions({})


def test_query_output_ends_with_the_number_of_rows_when_the_result_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    summary = {"exact": True, "columns": ["ts", "value"], "rows": [], "more": 0, "streams": {}, "reasons": {}}
    _write(Namespace(json=False, out=None), summary)
    assert capsys.readouterr().out.splitlines() == ["ts  value", "0 rows"]
    _write(Namespace(json=False, out=None), {**summary, "rows": [["1", 2.0]]})
    assert capsys.readouterr().out.splitlines() == ["ts  value", " 1    2.0"]
