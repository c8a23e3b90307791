"""`tocsin explain` without Spark: the plan, budget results, and invalid arguments."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rule_files import load_file
from rules.test_ranges import GOOD
from tocsin.cli.main import main
from tocsin.plan import plan_file
from tocsin.run_directory import Progress, Tally
from tocsin.run_directory.manifest import build_manifest

ROOT = Path(__file__).resolve().parents[2]
UNKNOWN_QUALITY = dict.fromkeys(("predicted", "reached", "error_predicted", "error_reached"))
EXAMPLE = str(ROOT / "examples" / "cold-store.yaml")
PLAN = """\
Pipeline keyed by machine; allowed lateness 6h
  Retention air(value): keep the maximum in every 10s window (about 2 rows); shared by 3 rules
  Retention surface(temp): keep the minimum in every 10s window (about 2 rows); shared by 2 rules
  Rule "DoorOpen" if air - surface > 15 within 10s (keep_firing_for 30s, stale 10s)
    Delay: events are emitted up to 1m later if a stream is slow; set `idle_timeout` of the streams to change this
    air.value: increasing, proved by composition of -; exact in floating point
    surface.temp: decreasing, proved by composition of -; exact in floating point
"""


def test_explain_shows_the_plan_of_one_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXAMPLE, "DoorOpen"]) == 0
    assert capsys.readouterr() == (PLAN, "")


def test_explain_shows_every_rule_when_no_rule_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXAMPLE]) == 0
    out = capsys.readouterr().out
    for part in (
        "Condensation",
        "TooWarm",
        "DoorOpen",
        "Retention humidity(value): keep the maximum of ln(humidity.value / 100) in every",
    ):
        assert part in out


def test_explain_json_has_rules_and_input_states(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXAMPLE, "DoorOpen", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (pipeline,) = result["pipelines"]
    assert result["ok"] is True
    assert pipeline["on"] == ["machine"]
    assert [rule["alert"] for rule in pipeline["rules"]] == ["DoorOpen"]
    assert [(state["stream"], state["retention"]) for state in pipeline["inputs"]] == [
        ("air", "keep the maximum in every 10s window"), ("surface", "keep the minimum in every 10s window")
    ]  # fmt: skip


def test_explain_json_has_streams_when_only_no_data_rules_read_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "streams:\n"
        "  air: {source: {json: {path: air}}, keys: [machine]}\n"
        "  door: {source: {json: {path: door}}, keys: [site], no_data: {for: 5m}}\n"
        "groups: [{name: g, rules: [{alert: Hot, expr: air > 30, on: [machine]}]}]\n"
    )
    assert main(["explain", str(path), "--json"]) == 0
    pipelines = json.loads(capsys.readouterr().out)["pipelines"]
    assert [(pipeline["on"], pipeline["no_data"]) for pipeline in pipelines] == [
        (["machine"], []), (["site"], ["door: a key without rows for 5m"])
    ]  # fmt: skip


def test_explain_shows_no_data_rules_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXAMPLE, "NoData"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("Pipeline keyed by machine")
    assert rest
    assert all(re.fullmatch(r"  NoData \w+: a key without rows for \w+", line) for line in rest)


SHOP = """\
streams:
  a: {source: {json: {path: a}}, keys: [item]}
  b: {source: {json: {path: b}}, keys: [item]}
groups:
  - name: shop
    rules:
"""
LIMITED = (
    f"quality: {{memory: 900KB}}\n{SHOP}"
    + """\
      - alert: Pair
        expr: a + b > 2.5
        within: 10s
        on: [item]
        emit: all
        quality: {model: {by: age, granularity: 1s}}
      - {alert: Some, expr: a + b > 1, within: 10s, on: [item], emit: all, quality: {prefer: sample, weight: 2}}
      - {alert: Own, expr: a + b > 9, within: 10s, on: [item], quality: {memory: 300KB}}
      - {alert: Alone, expr: a > 9, on: [item]}
"""
)


def _write_files(folder: Path, rules: str) -> tuple[Path, Path]:
    """Write a rule file, and create a run directory."""
    path, run = folder / "rules.yaml", folder / "run"
    path.write_text(rules)
    run.mkdir()
    return path, run


def test_explain_describes_pairs_when_a_rule_emits_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = _write_files(tmp_path, LIMITED)
    assert main(["explain", str(path)]) == 0
    out = capsys.readouterr().out
    assert 'Rule "Pair" if a + b > 2.5 within 10s (emits every matching pair)' in out
    assert 'Rule "Own" if a + b > 9 within 10s (stale 10s)' in out


def test_explain_shows_the_unit_of_a_memory_share_unless_the_rules_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = f"{SHOP}      - {{alert: Own, expr: a + b > 9, within: 10s, on: [item], quality: {{memory: 5000 rows}}}}\n"
    path, run = _write_files(tmp_path, own)
    _write_progress(run, memory={"Own": {"predicted": 0.9, "reached": 0.8}}, shares={"Own": 5000})
    assert main(["explain", str(path), "Own", "--run-dir", str(run)]) == 0
    assert "  Own: share 5,000 rows; recall 0.9 predicted" in capsys.readouterr().out
    file = load_file(path)
    build_manifest(file, plan_file(file), (), 2).write(run)
    path.write_text(LIMITED)
    assert main(["explain", str(path), "Own", "--run-dir", str(run)]) == 0
    assert "  Own: share 5,000 (bytes or rows); recall 0.9 predicted" in capsys.readouterr().out


def _write_progress(run: Path, **results: Any) -> None:
    """Write the progress of one micro-batch."""
    line = Progress(3, "2026-01-01T00:00:00Z", Tally(), Tally(**results))
    (run / "progress.jsonl").write_bytes(line.line() + b"\n")


def test_explain_shows_the_share_of_each_join_when_memory_is_limited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = _write_files(tmp_path, LIMITED)
    assert main(["explain", str(path)]) == 0
    whole = capsys.readouterr().out
    split = "Memory of the run: at first 300KB for joins that lose results and 300KB for joins that sample results"
    assert whole.startswith(f"{split}; during a run, in proportion to the memory that each kind would use\n")
    assert whole.count("  Memory: 300KB") == 3
    assert main(["explain", str(path), "Pair"]) == 0
    kept = (
        "if the budget is exceeded, keep the rows with the most expected results (by the model that fits, or else the "
        "newest rows)"
    )
    model = "rows are ranked by age, age classes of 1s (`quality.model`)"
    line = (
        f"  Memory: 300KB, initial share of the budget of the run; {kept}; {model}; a run or a backtest reports the "
        "expected recall"
    )
    assert f"\n{line}\n" in capsys.readouterr().out
    assert main(["explain", str(path), "Some", "--json"]) == 0
    (pipeline,) = json.loads(capsys.readouterr().out)["pipelines"]
    assert pipeline["memory"] | {"description": ""} == {
        "amount": 300_000, "unit": "bytes", "shared": True, "prefer": "sample", "weight": 2.0,
        "model": {"by": "auto", "granules": 20}, "description": "",
    }  # fmt: skip
    assert pipeline["memory"]["description"].endswith("; weight 2; a run or a backtest reports the expected error")


def test_explain_shows_memory_results_of_a_run_or_a_backtest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = _write_files(tmp_path, LIMITED)
    assert main(["explain", str(path), "--run-dir", str(run)]) == 1
    assert f"`--run-dir` must be the directory of a run or a backtest; {run} has neither" in capsys.readouterr().err
    # An interrupted backtest has an empty summary.
    (run / "summary.json").write_text("{}")
    assert main(["explain", str(path), "--run-dir", str(run)]) == 1
    assert "nor the summary of a completed backtest" in capsys.readouterr().err
    summary = {"memory": [{"alert": "Pair", "memory": "300KB", **UNKNOWN_QUALITY, "predicted": 0.5, "reached": 0.25}]}
    (run / "summary.json").write_text(json.dumps(summary))
    assert main(["explain", str(path), "--run-dir", str(run)]) == 0
    start = f"Memory budgets in {run}\n  Pair: "
    assert capsys.readouterr().out.endswith(f"{start}recall 0.5 predicted, 0.25 measured\n")
    memory = {
        "Pair": UNKNOWN_QUALITY | {"predicted": 0.9, "reached": 0.8},
        "Some": UNKNOWN_QUALITY | {"reached": 0.2, "error_reached": 0.05},
        "Gone": UNKNOWN_QUALITY | {"predicted": 1.0},
    }
    _write_progress(run, memory=memory, shares={"Pair": 12_345})
    assert main(["explain", str(path), "--run-dir", str(run)]) == 0
    found = "share 12,345 bytes; recall 0.9 predicted, 0.8 measured\n"
    assert capsys.readouterr().out.endswith(f"{start}{found}  Some: error not predicted, 0.05 measured\n")
    assert main(["explain", str(path), "Some", "--run-dir", str(run), "--json"]) == 0
    objects = json.loads(capsys.readouterr().out)["memory"]
    assert objects == {"Some": {"share": None, "unit": "bytes", **memory["Some"]}}
    assert main(["explain", str(path), "Alone", "--run-dir", str(run)]) == 0
    assert capsys.readouterr().out.endswith(f"Memory budgets in {run}: none for these rules\n")


def test_explain_fails_with_a_remedy_when_the_run_directory_has_an_old_layout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = _write_files(tmp_path, LIMITED)
    _write_progress(run)
    (run / "manifest.json").write_text('{"version": 1}')
    assert main(["explain", str(path), "--run-dir", str(run)]) == 1
    error = capsys.readouterr().err
    assert "`version` must be 2" in error
    assert "got 1: use a new run directory" in error


CPU_LIMITED = (
    SHOP
    + """\
      - {alert: Near, expr: a + b > 2.5, within: 10s, on: [item], emit: all, quality: {cpu: 20%}}
      - {alert: Soon, expr: a - b > 2.5, within: 10s, on: [item], emit: all, quality: {cpu: 20%, deadline: 1s}}
      - {alert: Alone, expr: a > 9, on: [item]}
"""
)


def test_explain_shows_cpu_results_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, run = _write_files(tmp_path, CPU_LIMITED)
    _write_progress(run, cpu={"Near": {"rows": 0.5, "results": 0.714}, "Gone": {"rows": 1.0, "results": 1.0}})
    assert main(["explain", str(path), "--run-dir", str(run)]) == 0
    assert capsys.readouterr().out.endswith(
        f"\nCPU budgets in {run}\n"
        "  Near: processed 50% of its rows and found about 71.4% of its results recently\n"
        "  Soon: unknown; only a run records it\n"
    )
    assert main(["explain", str(path), "Near", "--run-dir", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cpu"] == {"Near": {"rows_processed": 0.5, "results_found": 0.714}}
    assert main(["explain", str(path), "Alone", "--run-dir", str(run)]) == 0
    assert "CPU budgets" not in capsys.readouterr().out


def test_explain_reports_a_mismatch_when_the_run_had_other_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path, run), other = _write_files(tmp_path, CPU_LIMITED), tmp_path / "other.yaml"
    other.write_text(LIMITED)
    _write_progress(run)
    file = load_file(path)
    build_manifest(file, plan_file(file), (), 2).write(run)
    names = "alerts are matched by name"

    assert main(["explain", str(path), "--run-dir", str(run)]) == 0
    assert names not in capsys.readouterr().out
    assert main(["explain", str(other), "--run-dir", str(run)]) == 0
    assert (
        f"\n{run} was last started with {path}, whose content differs from {other}; {names}\n"
        in capsys.readouterr().out
    )
    path.write_text(CPU_LIMITED.replace("20%", "30%"))
    assert main(["explain", str(path), "--run-dir", str(run)]) == 0
    assert f"\n{path} has changed since the last start of {run}; {names}\n" in capsys.readouterr().out
    assert main(["explain", str(path), "--run-dir", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rule_file_mismatch"].startswith(f"{path} has changed since")


def test_explain_suggests_a_rule_when_the_name_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXAMPLE, "DoorOpn"]) == 1
    assert capsys.readouterr().err == (
        "tocsin explain: RULE must be an alert of the file (Condensation, TooWarm, DoorOpen, NoData); got 'DoorOpn'; "
        "did you mean `DoorOpen`?\n"
    )


@pytest.mark.parametrize("option", [["--run-dir", "run"], ["--at", "2026-01-01"]])
def test_explain_rejects_time_and_run_directory_when_the_rule_has_ranges(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.yaml").write_text(GOOD)
    assert main(["explain", str(tmp_path / "rules.yaml"), "SharesSold", *option]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"tocsin explain: {option[0]} needs a rule with `expr`; 'SharesSold' is a range rule")


def test_explain_reports_errors_of_the_file_as_check_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("streams: {}\n")
    assert main(["explain", str(path)]) == 1
    assert f"{path}:1:1: rule file: " in capsys.readouterr().err
    assert main(["explain", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


@pytest.mark.parametrize(("arguments", "message"), [
    (["--key", "machine=m1"], "--key and --context need --at"),
    (["--at", "2026-01-01"], "--at needs RULE"),
    (["DoorOpen", "--at", "soon"], "argument --at: must be a time such as 2026-01-01T00:00:00Z; got 'soon'"),
    (["DoorOpen", "--at", "2026-01-01"], "`--key` is required for each key column; 'machine' is missing"),
    (["DoorOpen", "--at", "2026-01-01", "--key", "m1"],
     "`--key` must be NAME=VALUE with one of the key columns (machine); got 'm1'"),
    (["DoorOpen", "--at", "2026-01-01", "--key", "machine=m1", "--context", "far"],
     "`--context` must be a duration such as '10s', '1h30m' or '500ms'; got 'far'"),
])  # fmt: skip
def test_explain_exits_with_2_when_arguments_are_invalid(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["explain", EXAMPLE, *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_explain_imports_no_engine() -> None:
    code = (
        "import sys; from tocsin.cli.main import main; main(['explain', sys.argv[1]]); "
        "sys.exit(any(name in sys.modules for name in ('pyspark', 'numba', 'pandas', 'jinja2')))"
    )
    assert subprocess.run([sys.executable, "-c", code, EXAMPLE], capture_output=True, check=False).returncode == 0
