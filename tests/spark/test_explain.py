"""`tocsin explain --at`: the rows of one key are read from the sources, and the answer is a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spark.history import HOSTILE, write
from tocsin.cli.main import main

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> str:
    return str(write(tmp_path_factory.mktemp("history")))


def lines(capsys: pytest.CaptureFixture[str], rules: str, *arguments: str) -> list[str]:
    assert main(["explain", rules, *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_it_fired(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--key", "machine=m1", "--at", "1970-01-01T00:40:00Z"]
    first, second, *_ = lines(capsys, rules, "Warm", *at)
    assert first == "Warm of m1 at 1970-01-01T00:40:00Z: firing"
    assert second.startswith("  it fired: alert ")
    assert "largest margin 3 with air.temp 18 at 1970-01-01T00:30:00Z, surface 10 at 1970-01-01T00:28:00Z" in second


def test_a_stream_was_missing(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--key", "machine=m1", "--at", "1970-01-01T01:30:00Z"]
    told = lines(capsys, rules, "Warm", *at)
    assert told[0] == "Warm of m1 at 1970-01-01T01:30:00Z: not firing"
    assert told[1] == "  no row of `surface` within 5m; the nearest is 10 min after"
    assert any(line.startswith("  omitted: the row of `air` at 1970-01-01T01:") for line in told)


def test_below_the_threshold_and_late_and_dead_rows(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    key = ["--key", "machine=m1"]
    assert main(["explain", rules, "Hot", *key, "--at", "1969-12-31T00:00:00Z", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    kinds = [reason["kind"] for reason in answer["reasons"]]
    assert (answer["verdict"], kinds[0]) == ("not firing", "missing")
    assert "late" in kinds
    assert "quarantined" in kinds
    told = lines(capsys, rules, "Hot", *key, "--at", "1970-01-01T00:10:00Z")
    assert told[1].startswith("  below the threshold: the closest of 3 evaluations within 1m is at ")


def test_a_key_with_strange_characters_is_found(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--key", f"machine={HOSTILE}", "--at", "1970-01-01T00:40:00Z"]
    assert lines(capsys, rules, "Warm", *at)[0] == f"Warm of {HOSTILE} at 1970-01-01T00:40:00Z: firing"


def test_a_silence_is_explained_by_the_last_row_that_was_heard(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(rules).with_name("heard.yaml")
    surface = "  surface:\n"
    text = Path(rules).read_text()
    assert surface in text
    path.write_text(text.replace(surface, f"{surface}    no_data: {{for: 10m}}\n"))
    asked = ["NoData", "--key", "site=s", "--key", "machine=m1", "--at"]
    told = lines(capsys, str(path), *asked, "1970-01-01T01:35:00Z")
    assert told[0] == "NoData (surface) of s, m1 at 1970-01-01T01:35:00Z: firing"
    assert "from 1970-01-01T01:29:00Z until 1970-01-01T01:40:00Z; the last row of `surface` before it is at " in told[1]
    assert lines(capsys, str(path), *asked, "1970-01-01T01:20:30Z") == [
        "NoData (surface) of s, m1 at 1970-01-01T01:20:30Z: not firing",
        "  the last row of `surface` is at 1970-01-01T01:19:00Z, 1 min 30 s before; `for` is 10m",
    ]


def test_a_key_that_is_not_there(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = lines(capsys, rules, "Warm", "--key", "machine=m9", "--at", "1970-01-01T00:40:00Z")
    assert told[1:] == ["  the sources have no row of this key (machine=m9)"]


def test_a_key_with_very_many_rows_is_refused(
    rules: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tocsin.spark import history

    monkeypatch.setattr(history.rows_of_keys, "__defaults__", (100,))
    assert main(["explain", rules, "Warm", "--key", "machine=m1", "--at", "1970-01-01T00:40:00Z"]) == 1
    assert capsys.readouterr().err == (
        "tocsin explain: stream `air`: a key must have at most 100 rows to be traced; this key has more: use --from\n"
    )
