"""`tocsin ranges load`: requests are checked line by line, and written whole to where they are read from, or not."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from rules.test_ranges import GOOD
from tocsin.cli.main import main
from tocsin.cli.ranges import _write, reached_before
from tocsin.deliver.alertlog import AlertWriter

HEADER = "symbol,id,low,high,threshold,owner\n"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(GOOD)
    (tmp_path / "orders").mkdir()
    return tmp_path


def load(desk: Path, text: str, name: str = "more.csv", *more: str) -> int:
    (desk / name).write_text(text)
    return main(["ranges", "load", str(desk / "rules.yaml"), "SharesSold", str(desk / name), *more])


def written(desk: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in (desk / "orders").iterdir() for line in path.read_text().splitlines()]


def test_a_file_of_requests_is_written_to_the_folder_of_their_stream(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load(desk, HEADER + "A,x,95,105,50000,anna\nB,y,,7,3,\n") == 0
    assert capsys.readouterr().out.startswith("2 requests for SharesSold: ")
    first, second = written(desk)
    now = first.pop("ts")
    assert isinstance(now, int)
    assert first == {"symbol": "A", "id": "x", "low": 95, "high": 105, "threshold": 50000, "owner": "anna"}
    assert second == {"ts": now, "symbol": "B", "id": "y", "high": 7, "threshold": 3}


def test_lines_of_json_are_taken_too_and_keep_their_own_time(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"symbol": "A", "ts": 5, "id": 7, "action": "terminate"}
    assert load(desk, json.dumps(row) + "\n\n", "more.json", "--json") == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 1
    assert written(desk) == [row]


def test_nothing_is_written_if_one_request_cannot_be_used(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["A,fine,1,2,3,", "A,,1,2,3,", "A,x,5,2,3,", ",y,1,2,3,", "A,z,1,2,3.5,", "A,w,a,2,3,"]
    assert load(desk, HEADER + "\n".join(lines)) == 1
    assert capsys.readouterr().err.splitlines() == [
        "tocsin ranges load: requests must be usable; nothing was written:",
        "line 3: `id` must be a text or a whole number; got none",
        "line 4: `low` must be at most `high`, each finite or open; got 5 and 2",
        "line 5: key `symbol` must be given; it is missing",
        "line 6: `threshold` must be a whole number from 1 to 2^53 - 1; got 3.5",
        "line 7: `low` must be a number, which is left out where it is open; got 'a'",
    ]
    assert written(desk) == []


def test_an_id_that_is_registered_twice_and_lines_that_are_no_json_are_told_with_the_others(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row: dict[str, Any] = {"symbol": "A", "ts": 5, "id": "x", "threshold": 3}
    end, other = row | {"action": "terminate"}, row | {"symbol": "B"}
    text = "\n".join(map(json.dumps, [row, other, end, row, row])) + "\nnonsense\n" + json.dumps(row | {"threshold": 0})
    assert load(desk, text, "more.json") == 1
    assert capsys.readouterr().err.splitlines()[1:] == [
        "line 5: `id` must not be of a request that is alive; 'x' stands in line 4 too",
        "line 6: it must be a JSON object; got 'nonsense'",
        "line 7: `threshold` must be a whole number from 1 to 2^53 - 1; got 0",
    ]
    assert written(desk) == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"ts": "yesterday"}, "`ts` must be a number or ISO 8601, such as 2015-02-02T14:19:59Z; got 'yesterday'"),
        ({"ts": True}, "`ts` must be a number or ISO 8601, such as 2015-02-02T14:19:59Z; got True"),
        ({"ts": "12:30"}, "`ts` must be a number or ISO 8601, such as 2015-02-02T14:19:59Z; got '12:30'"),
        ({"low": float("nan")}, "`low` must be a number, which is left out where it is open; got nan"),
        ({"high": "NaN"}, "`high` must be a number, which is left out where it is open; got 'NaN'"),
        ({"low": float("-inf")}, "`low` must be a number, which is left out where it is open; got -inf"),
        ({"low": "-Infinity"}, "`low` must be a number, which is left out where it is open; got '-Infinity'"),
        ({"threshold": True}, "`threshold` must be a number; got True"),
        ({"threshold": [3]}, "`threshold` must be a number; got [3]"),
        ({"lwo": 3}, "`lwo` is no column of requests; did you mean `low`?"),
        ({"High": 3}, "`High` is no column of requests; did you mean `high`?"),
        ({"actoin": "terminate"}, "`actoin` is no column of requests; did you mean `action`?"),
    ],
)
def test_a_request_that_was_not_meant_so_is_refused_with_its_line(
    desk: Path, capsys: pytest.CaptureFixture[str], given: dict[str, Any], sentence: str
) -> None:
    row = {"symbol": "A", "ts": 5, "id": "x", "threshold": 3} | given
    assert load(desk, "\n" + json.dumps(row), "more.json") == 1
    assert capsys.readouterr().err.splitlines()[1:] == [f"line 2: {sentence}"]
    assert written(desk) == []


def test_a_column_that_only_looks_like_one_of_a_request_is_taken_where_that_one_is_named_too(desk: Path) -> None:
    assert load(desk, "symbol,id,low,slow,threshold\nA,x,,7,3\n") == 0
    rows = [{"symbol": "A", "id": "y", "low": None, "slow": 7, "threshold": 3}]
    assert load(desk, json.dumps(rows[0]), "more.json") == 0
    assert sorted((row["id"], row["slow"], "low" in row) for row in written(desk)) == [
        ("x", "7", False),
        ("y", 7, False),
    ]


def test_a_header_that_names_a_column_twice_and_rows_with_too_many_cells_are_refused(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load(desk, "symbol,id,low,low,threshold\nA,x,1,2,3\n") == 1
    assert "more.csv:1: the header must name each column once; got `low` 2 times" in capsys.readouterr().err
    assert load(desk, HEADER + "A,x,1,2,3,anna\nA,y,1,2,3,anna,7\n\nB,z,1,2,3\n") == 1
    told = capsys.readouterr().err.splitlines()[1:]
    assert told == ["line 3: it must have at most 6 cells, as the header has; got 7"]
    assert load(desk, '{"symbol": "A", "id": "x", "low": 1, "low": 2, "threshold": 3}', "more.json") == 1
    assert "line 1: it must name each column once; got 'low' twice" in capsys.readouterr().err
    assert written(desk) == []


def test_many_mistakes_are_counted(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load(desk, HEADER + "A,,1,2,3,\n" * 30) == 1
    told = capsys.readouterr().err.splitlines()
    assert (len(told), told[-1]) == (22, "and 10 more lines")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rules.yaml", "SharesSolt", "more.csv"], "did you mean `SharesSold`?"),
        (["rules.yaml", "SharesSold", "none.csv"], "must be readable; no such file or directory"),
        (["rules.yaml", "SharesSold", "broken.json"], "line 1: it must be a JSON object; got 'nonsense'"),
        (["rules.yaml", "SharesSold", "latin.csv"], "must be UTF-8; it is not"),
        (["rules.yaml", "SharesSold", "large.json"], "line 1: `threshold` must be a number; got 1000"),
        (["rules.yaml", "SharesSold", "deep.json"], "line 1: it must be a JSON object; got '[[["),
        (["rules.yaml", "SharesSold", "wide.csv"], "must be CSV; field larger than field limit"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    desk: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    (desk / "more.csv").write_text(HEADER)
    (desk / "broken.json").write_text("nonsense\n")
    (desk / "large.json").write_text('{"symbol": "A", "id": 1, "threshold": 1' + "0" * 400 + "}")
    (desk / "deep.json").write_text("[" * 100_000)
    (desk / "wide.csv").write_text("symbol,id\nA," + "x" * 200_000)
    (desk / "latin.csv").write_bytes(b"symbol,id\nA,\xe9\n")
    paths = [str(desk / name) if "." in name else name for name in arguments]
    assert main(["ranges", "load", *paths]) == 1
    assert sentence in capsys.readouterr().err


def test_csv_and_parquet_take_the_columns_of_the_files_that_are_there(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("csv", "parquet"):
        (desk / "rules.yaml").write_text(GOOD.replace("json: {path: orders}", f"{kind}: {{path: orders}}"))
        assert load(desk, HEADER + "A,x,1,2,3,anna\n") == 1
        assert "must have a" in capsys.readouterr().err
    (desk / "orders" / "a.csv").write_text("symbol,ts,id,low,high,threshold\n")
    (desk / "rules.yaml").write_text(GOOD.replace("json: {path: orders}", "csv: {path: orders}"))
    assert load(desk, HEADER + "A,x,1,2,3,anna\n") == 1
    assert "`owner` must be in the header" in capsys.readouterr().err
    assert load(desk, HEADER + "A,x,1,2,3,\n") == 0
    (added,) = (desk / "orders").glob("requests-*.csv")
    assert added.read_text().splitlines()[0] == "symbol,ts,id,low,high,threshold"
    first = pa.table({"symbol": ["A"], "ts": [1], "id": ["q"], "low": [1.0], "high": [2.0], "threshold": [3]})
    parquet.write_table(first, desk / "orders" / "a.parquet")
    (desk / "rules.yaml").write_text(GOOD.replace("json: {path: orders}", "parquet: {path: orders}"))
    row = {"symbol": "A", "ts": 2, "id": "x", "low": 1.0, "high": 2.0, "threshold": 3}
    assert load(desk, json.dumps(row), "more.json") == 0
    (added,) = (desk / "orders").glob("requests-*.parquet")
    assert parquet.read_table(added).to_pylist() == [row]


def test_a_run_without_state_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ranges", "list", str(tmp_path)]) == 1
    assert "must be the directory of a run that took rows; there is no state in it" in capsys.readouterr().err


def test_of_requests_that_are_gone_the_alert_log_says_whether_they_were_reached(tmp_path: Path) -> None:
    def row(alert: str, query: str, symbol: str, start: int, total: float) -> dict[str, Any]:
        labels = {"symbol": symbol, "query": query}
        return {"alert": alert, "id": f"{start:x}", "state": "match", "labels": labels, "startsAt": start,
                "endsAt": start, "value": total, "margin": 0.0}  # fmt: skip

    log = AlertWriter(tmp_path / "alerts")
    log.write(0, [row("Sold", "x", "A", 0, 5.0), row("Sold", "y", "A", 1, 7.0)])
    log.write(1, [row("Sold", "x", "A", 60_000_000, 8.0), row("Other", "x", "B", 70_000_000, 9.0)])
    assert reached_before(tmp_path, ["x", "z"], "Sold", {}) == {
        "x": {"alert": "Sold", "labels": {"symbol": "A"}, "reached": "1970-01-01T00:01:00.000000Z", "total": 8.0},
        "z": None,
    }
    found = reached_before(tmp_path, ["x", "y"], None, {"symbol": "B"})
    assert (found["x"]["alert"], found["y"]) == ("Other", None)
    assert reached_before(tmp_path / "nothing", ["x"], None, {}) == {"x": None}


def test_what_stands_is_called_a_request_and_named_by_its_id(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"alert": "Sold", "key": {"symbol": "A"}, "query": "x", "ends": {"low": 1}, "total": 2, "threshold": 8}
    _write({"requests": [one | {"since_us": 0}], "alive": 1}, argparse.Namespace())
    head, row, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["rule", "key", "id", "range", "total", "threshold", "reached", "since"]
    assert row.split()[:4] == ["Sold", "symbol=A", "x", "1.."]
    assert last == "1 request is alive"
    assert main(["explain", str(desk / "rules.yaml")]) == 0
    plan = capsys.readouterr().out
    assert "; requests from orders" in plan
    assert "quer" not in plan


def test_labels_of_the_alert_log_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J\x9b31m\n"
    last = {"alert": "Sold" + evil, "labels": {evil: evil}, "reached": evil, "total": 5.0}
    _write({"requests": [], "gone": {"x" + evil: last, evil: None}}, argparse.Namespace())
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith(r"x\x1b[2J\x9b31m\n: reached at ")
    assert len(out.splitlines()) == 2
    assert out.replace("\n", "").isprintable()
