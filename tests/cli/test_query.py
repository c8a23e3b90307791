"""`tocsin query` before Spark starts: wrong usage, mistakes in the SQL, streams that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from tocsin.cli.main import main
from tocsin.cli.query import _is_short, _remarks, _write
from tocsin.query.model import Budget

FACTORY = str(Path(__file__).parents[2] / "examples" / "factory.yaml")
JOIN = "SELECT a.ts, b.ts FROM a, b WHERE a.item = b.item WINDOW 1 SECOND"


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "give the SQL, or a file that has it with -f"),
    ([JOIN], "name the streams as NAME=PATH, or a rule file with --rules"),
    ([JOIN, "sales.parquet"], "a stream must be NAME=PATH; got 'sales.parquet'"),
    ([JOIN, "a=.", "a=."], "a stream must be named once; got `a` again"),
    (["SELECT value FROM air", "air=.", "--rules", FACTORY], "a stream must be named once; got `air` as a path and in"),
    ([JOIN, "a=.", "--limit", "none"], "argument --limit: must be a whole number from 1 to 1,000,000; got 'none'"),
    ([JOIN, "a=.", "--limit", "0"], "must be a whole number from 1 to 1,000,000; got '0'"),
    ([JOIN, "a=.", "--from", "noon"], "argument --from: must be a time"),
    ([JOIN, "a=.", "--to", "2026-01-01T00:00:00Z"], "`--from` and `--to` are for the streams of a rule file"),
])  # fmt: skip
def test_wrong_usage_gives_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["query", *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "message"), [
    ([JOIN, "a=nowhere.parquet"], "tocsin query: stream `a`: path `nowhere.parquet` must be there; it is not\n"),
    (["-f", "nowhere.sql", "a=."], "tocsin query: -f nowhere.sql must be a file that can be read; no such file"),
    (["-f", "odd.sql", "a=."], "tocsin query: -f odd.sql must be a file that can be read; it is not text in utf-8\n"),
    ([JOIN, "a=.", "--out", "answer.xls"], "--out must end in .parquet, .csv or .json; got 'answer.xls'\n"),
    ([JOIN, "a=.", "--out", "there.csv"], "--out must be new; 'there.csv' is there already\n"),
    (["SELECT a.ts\nFROM a WHERE", "a=."],
     "tocsin query: 2:13: the statement must go on here; it ends\n  FROM a WHERE\n              ^\n"),
    (["DROP TABLE a", "a=."],
     "tocsin query: 1:1: expected CREATE SUMMARY or SELECT; got `DROP`\n  DROP TABLE a\n  ^^^^\n"),
    (["SELECT x FROM aa WINDOW 1 DAY", "a=."], "1:15: `aa` must be a stream; known are a\n"),
    (["SELECT value FROM aire", "--rules", FACTORY], "`aire` must be a stream; known are"),
    (["SELECT x FROM a GROUP BY x", "a=."], "1:17: a query must have the form SELECT ... FROM"),
    ([f"{JOIN} BUDGET 0 %", "a=.", "b=."], "`BUDGET` must be above 0 and at most 100,000 %; got 0\n"),
    (["SELECT a.ts FROM a, b WHERE a.item = b.item WITH PREFERENCE desc h.Estimate.Count(a.item) WINDOW 1 DAY",
      "a=.", "b=."], "`h` must be SUMMARY or a summary of a.item (none is declared)\n"),
])  # fmt: skip
def test_a_mistake_is_told_before_spark_starts(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.sql").write_bytes(b"\xff\xfe")
    Path("there.csv").write_text("")
    monkeypatch.setattr("tocsin.cli.history.session", None)
    assert main(["query", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert main(["query", *arguments, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert answer["error"] in err


@pytest.mark.spark
def test_the_command_runs_by_itself(tmp_path: Path) -> None:
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


def test_what_is_said_of_late_rows_has_no_word_that_sql_does_not_have() -> None:
    summary = {"exact": True, "streams": {"air": {"received": 5, "late": 2}}, "reasons": {}}
    assert list(_remarks(summary)) == ["2 rows of `air` too far behind those before, not used"]


def test_that_an_answer_may_not_be_exact_is_said_unless_nothing_was_left_out() -> None:
    summary = {"exact": False, "shortage": f"it may cost {Budget(units=1)}", "streams": {}, "reasons": {}}
    assert list(_remarks(summary)) == ["the answer may not be exact: it may cost 1 unit per tuple"]
    assert str(Budget(units=1.5)) == "1.5 units per tuple"
    assert not _is_short({"a": {"received": 5, "unprocessed": 0}, "b": {"received": 5, "expired": 5}})
    assert _is_short({"a": {"received": 5, "unprocessed": 0}, "b": {"received": 5, "unprocessed": 1}})
    assert _is_short({})


def test_query_output_ends_with_the_number_of_rows_when_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    summary = {"exact": True, "columns": ["ts", "value"], "rows": [], "more": 0, "streams": {}, "reasons": {}}
    _write(Namespace(json=False, out=None), summary)
    assert capsys.readouterr().out.splitlines() == ["ts  value", "0 rows"]
    _write(Namespace(json=False, out=None), {**summary, "rows": [["1", 2.0]]})
    assert capsys.readouterr().out.splitlines() == ["ts  value", " 1    2.0"]
