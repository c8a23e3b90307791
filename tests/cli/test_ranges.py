"""`tocsin ranges`: check request files line by line, write all requests or none, and show requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from rules.test_ranges import GOOD
from tocsin.cli.main import main
from tocsin.cli.ranges import _write, find_last_alerts
from tocsin.delivery.alert_log import AlertWriter

HEADER = "symbol,id,low,high,threshold,owner\n"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(GOOD)
    (tmp_path / "orders").mkdir()
    return tmp_path


def load_requests(desk: Path, text: str, name: str = "more.csv", *more: str) -> int:
    (desk / name).write_text(text)
    return main(["ranges", "load", str(desk / "rules.yaml"), "SharesSold", str(desk / name), *more])


def written_requests(desk: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in (desk / "orders").iterdir() for line in path.read_text().splitlines()]


def test_load_writes_requests_to_the_directory_of_the_stream(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load_requests(desk, HEADER + "A,x,95,105,50000,anna\nB,y,,7,3,\n") == 0
    assert capsys.readouterr().out.startswith("2 requests for SharesSold: ")
    first, second = written_requests(desk)
    now = first.pop("ts")
    assert isinstance(now, int)
    assert first == {"symbol": "A", "id": "x", "low": 95, "high": 105, "threshold": 50000, "owner": "anna"}
    assert second == {"ts": now, "symbol": "B", "id": "y", "high": 7, "threshold": 3}


def test_load_keeps_the_time_of_requests_when_they_have_one(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"symbol": "A", "ts": 5, "id": 7, "action": "terminate"}
    assert load_requests(desk, json.dumps(row) + "\n\n", "more.json", "--json") == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 1
    assert written_requests(desk) == [row]


def test_load_writes_nothing_when_one_request_is_invalid(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["A,fine,1,2,3,", "A,,1,2,3,", "A,x,5,2,3,", ",y,1,2,3,", "A,z,1,2,3.5,", "A,w,a,2,3,"]
    assert load_requests(desk, HEADER + "\n".join(lines)) == 1
    assert capsys.readouterr().err.splitlines() == [
        "tocsin ranges load: invalid requests; nothing was written:",
        "line 3: `id` must be a string or an integer; got null",
        "line 4: `low` must be at most `high`, each finite or open; got 5 and 2",
        "line 5: key `symbol` is missing",
        "line 6: `threshold` must be an integer from 1 to 2^53 - 1; got 3.5",
        "line 7: `low` must be a number, or absent for an open end; got 'a'",
    ]
    assert written_requests(desk) == []


def test_load_reports_duplicate_ids_and_invalid_json(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row: dict[str, Any] = {"symbol": "A", "ts": 5, "id": "x", "threshold": 3}
    end, other = row | {"action": "terminate"}, row | {"symbol": "B"}
    text = "\n".join(map(json.dumps, [row, other, end, row, row])) + "\nnonsense\n" + json.dumps(row | {"threshold": 0})
    assert load_requests(desk, text, "more.json") == 1
    assert capsys.readouterr().err.splitlines()[1:] == [
        "line 5: `id` must be unique among active requests; line 4 also registers 'x'",
        "line 6: a line must be a JSON object; got 'nonsense'",
        "line 7: `threshold` must be an integer from 1 to 2^53 - 1; got 0",
    ]
    assert written_requests(desk) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"ts": "yesterday"}, "`ts` must be a number or ISO 8601, such as 2015-02-02T14:19:59Z; got 'yesterday'"),
        ({"ts": True}, "`ts` must be a number or ISO 8601, such as 2015-02-02T14:19:59Z; got True"),
        ({"ts": "12:30"}, "`ts` must be a number or ISO 8601, such as 2015-02-02T14:19:59Z; got '12:30'"),
        ({"low": float("nan")}, "`low` must be a number, or absent for an open end; got nan"),
        ({"high": "NaN"}, "`high` must be a number, or absent for an open end; got 'NaN'"),
        ({"low": float("-inf")}, "`low` must be a number, or absent for an open end; got -inf"),
        ({"low": "-Infinity"}, "`low` must be a number, or absent for an open end; got '-Infinity'"),
        ({"threshold": True}, "`threshold` must be a number; got True"),
        ({"threshold": [3]}, "`threshold` must be a number; got [3]"),
        ({"lwo": 3}, "unknown column `lwo`; did you mean `low`?"),
        ({"High": 3}, "unknown column `High`; did you mean `high`?"),
        ({"actoin": "terminate"}, "unknown column `actoin`; did you mean `action`?"),
    ],
)
def test_load_reports_the_line_of_an_invalid_request(
    desk: Path, capsys: pytest.CaptureFixture[str], columns: dict[str, Any], message: str
) -> None:
    row = {"symbol": "A", "ts": 5, "id": "x", "threshold": 3} | columns
    assert load_requests(desk, "\n" + json.dumps(row), "more.json") == 1
    assert capsys.readouterr().err.splitlines()[1:] == [f"line 2: {message}"]
    assert written_requests(desk) == []


def test_load_accepts_a_similar_column_when_the_known_one_is_present(desk: Path) -> None:
    assert load_requests(desk, "symbol,id,low,slow,threshold\nA,x,,7,3\n") == 0
    rows = [{"symbol": "A", "id": "y", "low": None, "slow": 7, "threshold": 3}]
    assert load_requests(desk, json.dumps(rows[0]), "more.json") == 0
    assert sorted((row["id"], row["slow"], "low" in row) for row in written_requests(desk)) == [
        ("x", "7", False),
        ("y", 7, False),
    ]


def test_load_rejects_duplicate_columns_and_rows_with_too_many_cells(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load_requests(desk, "symbol,id,low,low,threshold\nA,x,1,2,3\n") == 1
    assert "more.csv:1: the header must have each column once; got `low` 2 times" in capsys.readouterr().err
    assert load_requests(desk, HEADER + "A,x,1,2,3,anna\nA,y,1,2,3,anna,7\n\nB,z,1,2,3\n") == 1
    errors = capsys.readouterr().err.splitlines()[1:]
    assert errors == ["line 3: a line must have at most the 6 cells of the header; got 7"]
    assert load_requests(desk, '{"symbol": "A", "id": "x", "low": 1, "low": 2, "threshold": 3}', "more.json") == 1
    assert "line 1: a line must have each column once; got 'low' twice" in capsys.readouterr().err
    assert written_requests(desk) == []


def test_load_counts_further_errors_when_there_are_many(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load_requests(desk, HEADER + "A,,1,2,3,\n" * 30) == 1
    errors = capsys.readouterr().err.splitlines()
    assert (len(errors), errors[-1]) == (22, "and 10 more lines")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rules.yaml", "SharesSolt", "more.csv"], "did you mean `SharesSold`?"),
        (["rules.yaml", "SharesSold", "none.csv"], "none.csv: no such file or directory"),
        (["rules.yaml", "SharesSold", "broken.json"], "line 1: a line must be a JSON object; got 'nonsense'"),
        (["rules.yaml", "SharesSold", "latin.csv"], "latin.csv: must be UTF-8 text"),
        (["rules.yaml", "SharesSold", "large.json"], "line 1: `threshold` must be a number; got 1000"),
        (["rules.yaml", "SharesSold", "deep.json"], "line 1: a line must be a JSON object; got '[[["),
        (["rules.yaml", "SharesSold", "wide.csv"], "wide.csv: invalid CSV: field larger than field limit"),
    ],
)
def test_load_prints_a_message_when_it_fails(
    desk: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (desk / "more.csv").write_text(HEADER)
    (desk / "broken.json").write_text("nonsense\n")
    (desk / "large.json").write_text('{"symbol": "A", "id": 1, "threshold": 1' + "0" * 400 + "}")
    (desk / "deep.json").write_text("[" * 100_000)
    (desk / "wide.csv").write_text("symbol,id\nA," + "x" * 200_000)
    (desk / "latin.csv").write_bytes(b"symbol,id\nA,\xe9\n")
    paths = [str(desk / name) if "." in name else name for name in arguments]
    assert main(["ranges", "load", *paths]) == 1
    assert message in capsys.readouterr().err


def test_load_uses_the_columns_of_existing_files_when_the_stream_is_csv_or_parquet(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("csv", "parquet"):
        (desk / "rules.yaml").write_text(GOOD.replace("json: {path: orders}", f"{kind}: {{path: orders}}"))
        assert load_requests(desk, HEADER + "A,x,1,2,3,anna\n") == 1
        assert "must contain a" in capsys.readouterr().err
    (desk / "orders" / "a.csv").write_text("symbol,ts,id,low,high,threshold\n")
    (desk / "rules.yaml").write_text(GOOD.replace("json: {path: orders}", "csv: {path: orders}"))
    assert load_requests(desk, HEADER + "A,x,1,2,3,anna\n") == 1
    assert "`owner` must be a column of" in capsys.readouterr().err
    assert load_requests(desk, HEADER + "A,x,1,2,3,\n") == 0
    (added,) = (desk / "orders").glob("requests-*.csv")
    assert added.read_text().splitlines()[0] == "symbol,ts,id,low,high,threshold"
    first = pa.table({"symbol": ["A"], "ts": [1], "id": ["q"], "low": [1.0], "high": [2.0], "threshold": [3]})
    parquet.write_table(first, desk / "orders" / "a.parquet")
    (desk / "rules.yaml").write_text(GOOD.replace("json: {path: orders}", "parquet: {path: orders}"))
    row = {"symbol": "A", "ts": 2, "id": "x", "low": 1.0, "high": 2.0, "threshold": 3}
    assert load_requests(desk, json.dumps(row), "more.json") == 0
    (added,) = (desk / "orders").glob("requests-*.parquet")
    assert parquet.read_table(added).to_pylist() == [row]


def test_list_rejects_a_run_without_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ranges", "list", str(tmp_path)]) == 1
    assert "must be the run directory of a run that processed rows; it has no state" in capsys.readouterr().err


def test_find_last_alerts_returns_the_alert_of_each_matured_request(tmp_path: Path) -> None:
    def row(alert: str, query: str, symbol: str, start: int, total: float) -> dict[str, Any]:
        labels = {"symbol": symbol, "query": query}
        return {"alert": alert, "id": f"{start:x}", "state": "match", "labels": labels, "startsAt": start,
                "endsAt": start, "value": total, "margin": 0.0}  # fmt: skip

    log = AlertWriter(tmp_path / "alerts")
    log.write(0, [row("Sold", "x", "A", 0, 5.0), row("Sold", "y", "A", 1, 7.0)])
    log.write(1, [row("Sold", "x", "A", 60_000_000, 8.0), row("Other", "x", "B", 70_000_000, 9.0)])
    assert find_last_alerts(tmp_path, ["x", "z"], "Sold", {}) == {
        "x": {"alert": "Sold", "labels": {"symbol": "A"}, "reached": "1970-01-01T00:01:00.000000Z", "total": 8.0},
        "z": None,
    }
    found = find_last_alerts(tmp_path, ["x", "y"], None, {"symbol": "B"})
    assert (found["x"]["alert"], found["y"]) == ("Other", None)
    assert find_last_alerts(tmp_path / "nothing", ["x"], None, {}) == {"x": None}


def test_list_output_shows_requests_by_id(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"alert": "Sold", "key": {"symbol": "A"}, "query": "x", "ends": {"low": 1}, "total": 2, "threshold": 8}
    _write({"requests": [one | {"since_us": 0}], "active": 1})
    head, row, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["rule", "key", "id", "range", "total", "threshold", "reached", "since"]
    assert row.split()[:4] == ["Sold", "symbol=A", "x", "1.."]
    assert last == "1 active request"
    assert main(["explain", str(desk / "rules.yaml")]) == 0
    plan = capsys.readouterr().out
    assert "; requests from stream orders" in plan
    assert "quer" not in plan


def test_progress_escapes_control_characters_of_labels(capsys: pytest.CaptureFixture[str]) -> None:
    control = "\x1b[2J\x9b31m\n"
    last = {"alert": "Sold" + control, "labels": {control: control}, "reached": control, "total": 5.0}
    _write({"requests": [], "ended": {"x" + control: last, control: None}})
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith(r"x\x1b[2J\x9b31m\n: matured at ")
    assert len(out.splitlines()) == 2
    assert out.replace("\n", "").isprintable()
