"""`tocsin backtest`: alerts and counts are those of the engine in memory; run directory, report, other versions."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report import cases
from tests.spark.history import HOSTILE, MACHINES, rows, write
from tocsin import Rule, local
from tocsin.cli.main import main
from tocsin.delivery import AlertLog
from tocsin.delivery.alert_json import alert_from_row
from tocsin.formatting import format_event_time
from tocsin.run_directory import read_dead, read_manifest

pytestmark = pytest.mark.spark

RULES = [
    Rule("Warm", "air - surface > 5", within="5m", on="machine", keep_firing_for="2m", labels={"team": "hvac"},
         shapes={"air": "increasing", "surface": "decreasing"}),
    Rule("Hot", "air > 30", on="machine", stale="10m"),
]  # fmt: skip


def told(*arguments: str | Path) -> dict[str, Any]:
    """Run a backtest and give what it says as an object."""
    return told_with_warnings(*arguments)[0]


def told_with_warnings(*arguments: str | Path) -> tuple[dict[str, Any], str]:
    """Run a backtest; return its JSON object and its standard error."""
    output, warnings = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(warnings):
        assert main(["backtest", *map(str, arguments), "--json"]) == 0
    return json.loads(output.getvalue()), warnings.getvalue()


@dataclass(frozen=True)
class Done:
    """One backtest that several tests look at; starting a job takes longer than all its rows."""

    folder: Path
    said: dict[str, Any]
    warnings: str

    @property
    def run(self) -> Path:
        return self.folder / "run"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Done:
    folder = tmp_path_factory.mktemp("history")
    rules = write(folder)
    report = folder / "report.html"
    return Done(folder, *told_with_warnings(rules, "--run-dir", folder / "run", "--report", report))


def in_memory() -> local.Result:
    tables = {}
    for name, column in (("air", "temp"), ("surface", "value")):
        given = rows(column)
        tables[name] = {
            "ts": np.array([row["ts"] for row in given]) * 1_000_000,
            "arrived": np.array([row["arrived"] for row in given]) * 1_000_000,
            "machine": np.array([row["machine"] for row in given], object),
            "value": np.array([row["v"] for row in given]),
        }
    return local.run_local_detailed(tables, RULES, arrival="arrived")


def test_alerts_and_counts_are_those_of_the_engine_in_memory(done: Done) -> None:
    found, expected = done.said, in_memory()
    logged = [alert for _, alert in AlertLog(done.run / "alerts").read()]
    assert sorted(map(_shown, logged)) == sorted(_shown(alert_from_row(alert)) for alert in expected.alerts)
    assert {alert["annotations"]["summary"].partition(":")[0] for alert in logged} <= set(MACHINES)
    assert found["changes"] == len(logged) > 0
    for name, store in expected.counts.items():
        # The two broken rows of `air` are counted there, too.
        broken = 2 if name.startswith("air") else 0
        mine = found["streams"][name]
        assert mine["received"] == store["received"] + broken
        assert mine["quarantined"] == store["quarantined"] + broken
        parts = ("late", "omitted", "duplicates", "retained")
        assert {part: mine.get(part) for part in parts} == {part: store.get(part) for part in parts}
    assert found["rows"] == sum(len(rows(column)) for column in ("temp", "value")) + 2
    assert found["state_bytes"] > 0
    assert (found["oldest_us"], found["newest_us"]) == (-1440 * 60_000_000, 119 * 60_000_000)


def _shown(alert: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(str(alert[name]) for name in ("id", "state", "startsAt", "endsAt", "value", "margin", "quality"))


def test_the_run_directory_says_what_ran(done: Done) -> None:
    summary = json.loads((done.run / "summary.json").read_text())
    assert {name: value for name, value in done.said.items() if name != "run_dir"} == summary
    manifest = read_manifest(done.run)
    assert manifest is not None
    assert manifest.rule_file == str(done.folder / "rules.yaml")


def test_rows_that_could_not_be_used_are_counted_and_shown(done: Done) -> None:
    no_json, no_time = (
        "the line is not a JSON object in UTF-8",
        "time `ts` is neither a number nor a time in ISO 8601 such as 2015-02-02T14:19:59Z",
    )
    assert sorted((row.stream, row.reason) for row in read_dead(done.run)) == [("air", no_json), ("air", no_time)]
    found = {row["reason"]: (row["stream"], row["count"], row["samples"]) for row in done.said["dead"]}
    assert found[no_json] == ("air", 1, ["nonsense"])
    assert found[no_time][:2] == ("air", 1)


def test_a_report_needs_nothing_else(done: Done) -> None:
    text = (done.folder / "report.html").read_text()
    assert done.said["report"] == {"path": str(done.folder / "report.html"), "bytes": len(text.encode())}
    assert "http://" not in text
    assert "https://" not in text
    assert 'class="witness"' in text
    assert "Selected alerts" in text
    assert "<b onload" not in text
    assert HOSTILE.replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#39;") in text


def test_pictures_that_are_too_much_at_once_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from tocsin.cli.history_runner import _traced
    from tocsin.report import choose
    from tocsin.spark import history

    tables = cases.streams(["m1", "m2", "m3"])
    found = cases.result(tables)
    picks, tried = choose(found), list[list[str]]()
    assert len({pick.key for pick in picks}) == len(picks) > 1
    large = picks[0].key

    def few(frames: Any, watch: Any, wanted: Sequence[Any]) -> Any:
        tried.append([one.key[0] for one in wanted])
        if len(wanted) > 1 or wanted[0].key == large:
            message = "too many"
            raise history.TooManyRowsError(message)
        return [({name: cases.key_rows(table, one.key[0]) for name, table in tables.items()}, []) for one in wanted]

    monkeypatch.setattr(history, "rows_of_keys", few)
    traced = _traced({}, found.plan.watches[0], picks)
    assert [isinstance(one, str) for one in traced] == [pick.key == large for pick in picks]
    assert sorted(keys[0] for keys in tried if len(keys) == 1) == sorted(pick.key[0] for pick in picks)


def test_a_second_backtest_takes_the_place_of_the_first_and_tables_are_for_people(
    done: Done, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(done.run, run)
    ends = ["--from", "1969-12-31T00:00:00Z", "--to", "1970-01-01T00:20:00Z"]
    assert main(["backtest", str(done.folder / "rules.yaml"), "--run-dir", str(run), *ends]) == 0
    out = capsys.readouterr().out
    assert list((run / "alerts").iterdir()) == []
    assert json.loads((run / "summary.json").read_text())["newest_us"] == 20 * 60_000_000
    head = "rule  alerts  keys  time firing  longest  late  open  median delay  longest delay"
    assert f"{head}\nWarm       0     0          0 s" in out
    assert "invalid rows: 2" in out
    assert "1 of air: the line is not a JSON object in UTF-8; for example nonsense" in out
    assert "full join retains" in out
    assert f"run dir: {run}" in out


def test_a_run_directory_of_a_run_is_left_alone(done: Done, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    assert main(["backtest", str(done.folder / "rules.yaml"), "--run-dir", str(tmp_path / "run")]) == 1
    assert "must be new or from a backtest; `tocsin run` wrote it" in capsys.readouterr().err


def test_report_shows_a_moved_threshold_and_omits_drawings_of_too_many_rows(
    done: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tocsin.spark import history

    monkeypatch.setattr(history.rows_of_keys, "__defaults__", (20,))
    rules, closer = done.folder / "rules.yaml", write(done.folder, name="closer.yaml", threshold=7.8)
    report = tmp_path / "report.html"
    found = told(rules, "--against", closer, "--report", report, "--run-dir", tmp_path / "run")
    # One pass: what the first version says is what it says alone, and both remember the same.
    for part in ("rules", "streams", "state_bytes", "changes"):
        assert found[part] == done.said[part]
    assert found["against"]["streams"] == found["streams"]
    moved = found["difference"]["moved"]
    assert moved
    assert all(one["labels"] == two["labels"] and one["startsAt_us"] <= two["startsAt_us"] for one, two in moved)
    alerts = sum(rule["alerts"] for rule in found["rules"])
    assert found["difference"]["both"] + len(found["difference"]["only_first"]) == alerts
    assert list(AlertLog(tmp_path / "run" / "against" / "alerts").read())
    told_apart = [read_manifest(tmp_path / "run" / part) for part in ("", "against")]
    assert [one and Path(one.rule_file).name for one in told_apart] == [Path(rules).name, Path(closer).name]
    text = report.read_text()
    assert f"Compared with {closer}" in text
    # The report of the fixture has these drawings.
    why = "No drawing: stream <code>air</code>: a key must have at most 20 rows to be traced; this key has more"
    assert text.count(why) >= (done.folder / "report.html").read_text().count('class="zero"') > 0
    assert 'class="zero"' not in text


def test_versions_that_read_other_rows_run_one_after_the_other(done: Done, capsys: pytest.CaptureFixture[str]) -> None:
    folder = done.folder / "data" / "elsewhere"
    folder.mkdir()
    lines = (done.folder / "data" / "surface" / "rows.json").read_text().splitlines()
    (folder / "rows.json").write_text("\n".join(lines[:10]) + "\n")
    other = write(done.folder, name="elsewhere.yaml", surface="data/elsewhere", threshold=50)
    assert main(["backtest", str(done.folder / "rules.yaml"), "--against", str(other)]) == 0
    out = capsys.readouterr().out
    first, second = (line for line in out.splitlines() if line.startswith("surface "))
    assert [first.split()[1], second.split()[1]] == [str(len(lines)), "10"]
    fired = sum(rule["alerts"] for rule in done.said["rules"])
    assert f"only in {done.folder / 'rules.yaml'}: {fired} alerts" in out
    assert f"only in {other}: 0 alerts" in out


def test_a_source_that_is_not_there_is_a_sentence(done: Done, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(done.folder, name="gone.yaml", surface="data/nowhere")
    assert main(["backtest", str(path)]) == 1
    err = capsys.readouterr().err
    where = done.folder / "data" / "nowhere"
    assert err == f"tocsin backtest: stream `surface`: path `{where}` does not exist; it must exist when a run starts\n"


def test_a_span_without_rows_says_where_the_rows_lie_and_times_far_off_are_told(
    done: Done, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = done.folder / "rules.yaml"
    assert main(["backtest", str(rules), "--from", "2001-01-01T00:00:00Z"]) == 0
    out, err = capsys.readouterr()
    times = [row["ts"] * 1_000_000 for column in ("temp", "value") for row in rows(column)]
    told = f"the sources have rows from {format_event_time(min(times))} to {format_event_time(max(times))}"
    assert f"no rows between --from and --to; {told}" in out
    assert err == ""
    assert "tocsin backtest: stream `air`: its newest row is at 1970-" in done.warnings


def test_backtest_fails_with_the_stream_in_the_first_line_when_none_of_its_rows_is_usable(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = write(tmp_path)
    lines = [json.dumps({"site": "s", "machine": "m1", "time": place, "value": 1}) for place in range(5)]
    (tmp_path / "data" / "surface" / "rows.json").write_text("\n".join(lines) + "\n")
    assert main(["backtest", str(rules)]) == 1
    line = "stream `surface` has no valid row (time `ts` is missing)"
    assert capsys.readouterr().err.splitlines()[0] == f"tocsin backtest: {line}"
    # Usable rows outside the span are no reason to fail.
    usable = {"site": "s", "machine": "m1", "ts": 1, "value": 1}
    (tmp_path / "data" / "surface" / "more.json").write_text(json.dumps(usable) + "\n")
    assert main(["backtest", str(rules), "--from", "2020-01-01T00:00:00Z", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unusable"] == []
