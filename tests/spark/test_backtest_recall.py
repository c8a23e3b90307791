"""`tocsin backtest` of rules whose rows wait: the recall is what the engine in memory finds, in order and in truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.report.test_recall import disordered
from tests.report.test_recall import gathered as in_memory
from tests.spark.test_backtest import told
from tocsin import Rule
from tocsin.cli.main import main
from tocsin.cli.tables import object_of

pytestmark = pytest.mark.spark

SECOND = 1_000_000
TABLES = disordered(9, seconds=240)
ALERT = "      - {{alert: {name}, expr: air - surface > 5, within: 2s, on: [machine], allowed_lateness: 1h{more}}}\n"
WAITS: dict[str, dict[str, Any]] = {
    "None": {"quality": {"wait": "0s"}},
    "Max": {"quality": {"wait": "max"}},
    "Asked": {"quality": {"recall": 0.9, "period": "1m", "adapt_every": "20s", "in_order": True}},
    "Plain": {},
}


def write(folder: Path, name: str, arrival: str, waits: dict[str, dict[str, Any]]) -> Path:
    """Write a rule file; the recordings too, if they are not there."""
    streams = ""
    for stream, table in TABLES.items():
        path = folder / "data" / stream / "rows.json"
        streams += f"  {stream}:\n    source: {{json: {{path: data/{stream}}}}}\n    keys: [machine]\n    time: ts\n"
        streams += f"    time_unit: us\n    arrival: {arrival}\n"
        if not path.exists():
            path.parent.mkdir(parents=True)
            rows = zip(*(table[column].tolist() for column in ("ts", "at", "value")), strict=True)
            lines = [json.dumps({"machine": "m1", "ts": ts, "at": at, "sent": ts, "value": v}) for ts, at, v in rows]
            path.write_text("\n".join([*lines, "nonsense"]) + "\n")
    more = {
        name: "".join(f", {key}: {json.dumps(value)}" for key, value in given.items()) for name, given in waits.items()
    }
    rules = "".join(ALERT.format(name=alert, more=given) for alert, given in more.items())
    (folder / name).write_text(f"streams:\n{streams}groups:\n  - name: halls\n    rules:\n{rules}")
    return folder / name


def expected(waits: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    rules = [
        Rule(name, "air - surface > 5", within="2s", on="machine", allowed_lateness="1h", **given)
        for name, given in waits.items()
    ]
    found: list[dict[str, Any]] = object_of([in_memory(TABLES, *rules)], None, 1.0)["recall"]
    return found


def test_who_waits_finds_more_in_order_and_what_comes_in_order_is_all_found(tmp_path: Path, spark: Any) -> None:
    rules, sent = (write(tmp_path, f"{arrival}.yaml", arrival, WAITS) for arrival in ("at", "sent"))
    found = told(rules, "--against", sent, "--report", tmp_path / "report.html")
    assert found["recall"] == expected(WAITS)
    none, most, asked = found["recall"]
    assert [one["alert"] for one in found["recall"]] == ["None", "Max", "Asked"]
    assert none["recall"] < asked["recall"]
    assert none["recall"] < most["recall"] <= 1.0
    assert none["periods"] == most["periods"] == asked["periods"] == 4
    assert [one["recall"] for one in found["against"]["recall"]] == [1.0, 1.0, 1.0]
    assert [one["true"] for one in found["against"]["recall"]] == [one["true"] for one in found["recall"]]
    text = (tmp_path / "report.html").read_text()
    assert text.count('<polyline class="reached"') == 3
    assert text.count('class="asked"') == 1


def test_versions_side_by_side_have_their_own_recall(tmp_path: Path, spark: Any) -> None:
    other = {"None": {"quality": {"wait": "9s"}}, "Max": {}}
    rules, longer = write(tmp_path, "rules.yaml", "at", WAITS), write(tmp_path, "longer.yaml", "at", other)
    found = told(rules, "--against", longer)
    assert found["recall"] == expected(WAITS)
    assert found["against"]["recall"] == expected(other)
    (one,) = found["against"]["recall"]
    assert (one["recall"], one["wait_us"], one["longest_wait_us"]) == (1.0, 9 * SECOND, 9 * SECOND)


def test_a_misspelt_arrival_is_told_and_is_no_arrival(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = write(tmp_path, "rules.yaml", "sennt", {"Max": {"quality": {"wait": "max"}}})
    assert main(["backtest", str(rules)]) == 0
    said = capsys.readouterr()
    for stream in TABLES:
        warning = f"no row of stream `{stream}` has its arrival column `sennt`; event time is used instead"
        assert said.err.count(f"tocsin backtest: {warning}\n") == 1
    assert "no stream of Max declares `arrival`: rows were read in event-time order, and none was late" in said.out
