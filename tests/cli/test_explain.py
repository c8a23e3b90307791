"""`tocsin explain` without Spark: the plan, and wrong usage."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tocsin.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "cold-store.yaml")
PLAN = """\
Watch on machine; outage 6h
  Store air(value): keep the largest of every 10s (about 2 rows); shared by 3 rules
  Store surface(temp): keep the smallest of every 10s (about 2 rows); shared by 2 rules
  Threshold alert "DoorOpen" if air - surface > 15 within 10s (keep_firing_for 30s, stale 10s)
    air.value: increasing: composition of -; to the last bit
    surface.temp: decreasing: composition of -; to the last bit
"""


def test_the_plan_of_a_rule_has_what_it_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXAMPLE, "DoorOpen"]) == 0
    assert capsys.readouterr() == (PLAN, "")


def test_the_whole_plan_has_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXAMPLE]) == 0
    out = capsys.readouterr().out
    for part in ("Condensation", "TooWarm", "DoorOpen", "Store humidity(value): keep the largest of every 10s"):
        assert part in out


def test_json_is_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXAMPLE, "DoorOpen", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (watch,) = found["watches"]
    assert found["ok"] is True
    assert watch["on"] == ["machine"]
    assert [rule["alert"] for rule in watch["rules"]] == ["DoorOpen"]
    assert [(store["stream"], store["keeps"]) for store in watch["stores"]] == [
        ("air", "keep the largest of every 10s"), ("surface", "keep the smallest of every 10s")
    ]  # fmt: skip


def test_json_has_streams_that_are_only_watched_for_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "streams:\n"
        "  air: {source: {json: {path: air}}, keys: [machine]}\n"
        "  door: {source: {json: {path: door}}, keys: [site], no_data: {for: 5m}}\n"
        "groups: [{name: g, rules: [{alert: Hot, expr: air > 30, on: [machine]}]}]\n"
    )
    assert main(["explain", str(path), "--json"]) == 0
    watches = json.loads(capsys.readouterr().out)["watches"]
    assert [(watch["on"], watch["no_data"]) for watch in watches] == [
        (["machine"], []), (["site"], ["door: a key silent for 5m"])
    ]  # fmt: skip


def test_a_no_data_is_found_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXAMPLE, "NoData"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("Watch on machine")
    assert rest
    assert all(re.fullmatch(r"  NoData \w+: a key silent for \w+", line) for line in rest)


def test_a_rule_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXAMPLE, "DoorOpn"]) == 1
    assert capsys.readouterr().err == (
        "tocsin explain: RULE must be an alert of the file (Condensation, TooWarm, DoorOpen, NoData); got 'DoorOpn'; "
        "did you mean `DoorOpen`?\n"
    )


def test_mistakes_of_the_file_are_told_as_check_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("streams: {}\n")
    assert main(["explain", str(path)]) == 1
    assert f"{path}:1:1: rule file: " in capsys.readouterr().err
    assert main(["explain", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


@pytest.mark.parametrize(("arguments", "message"), [
    (["--key", "machine=m1"], "--key and --around need --at, the time that is asked about"),
    (["--at", "2026-01-01"], "--at needs RULE, the alert that is asked about"),
    (["DoorOpen", "--at", "soon"], "argument --at: must be a time such as 2026-01-01T00:00:00Z; got 'soon'"),
    (["DoorOpen", "--at", "2026-01-01"], "`--key` must be given for each key column; 'machine' is missing"),
    (["DoorOpen", "--at", "2026-01-01", "--key", "m1"],
     "`--key` must be NAME=VALUE with a key column (machine); got 'm1'"),
    (["DoorOpen", "--at", "2026-01-01", "--key", "machine=m1", "--around", "far"],
     "`--around` must be a duration such as '10s', '1h30m' or '500ms'; got 'far'"),
])  # fmt: skip
def test_wrong_usage_gives_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["explain", EXAMPLE, *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_the_plan_needs_neither_spark_nor_numba() -> None:
    code = (
        "import sys; from tocsin.cli.main import main; main(['explain', sys.argv[1]]); "
        "sys.exit(any(name in sys.modules for name in ('pyspark', 'numba', 'pandas', 'jinja2')))"
    )
    assert subprocess.run([sys.executable, "-c", code, EXAMPLE], capture_output=True, check=False).returncode == 0
