"""`tocsin explain` without Spark: the plan, and wrong usage."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loaded import load_file
from rules.test_ranges import GOOD
from tocsin.cli.main import main
from tocsin.logic import Found
from tocsin.plan.file import plan_file
from tocsin.rundir import Progress, Tally
from tocsin.rundir.manifest import describe

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "cold-store.yaml")
PLAN = """\
Watch on machine; outage 6h
  Store air(value): keep the largest of every 10s (about 2 rows); shared by 3 rules
  Store surface(temp): keep the smallest of every 10s (about 2 rows); shared by 2 rules
  Threshold alert "DoorOpen" if air - surface > 15 within 10s (keep_firing_for 30s, stale 10s)
    Delay: alerts start and end up to 1m later if a stream is slow; `idle` of the streams changes this
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


SHOP = """\
streams:
  a: {source: {json: {path: a}}, keys: [item]}
  b: {source: {json: {path: b}}, keys: [item]}
groups:
  - name: shop
    rules:
"""
LIMITED = (
    f"memory: 900KB\n{SHOP}"
    + """\
      - {alert: Pair, expr: a + b > 2.5, within: 10s, on: [item], emit: all, model: {by: age, granularity: 1s}}
      - {alert: Some, expr: a + b > 1, within: 10s, on: [item], emit: all, prefer: sample, weight: 2}
      - {alert: Own, expr: a + b > 9, within: 10s, on: [item], memory: 300KB}
      - {alert: Alone, expr: a > 9, on: [item]}
"""
)


def _placed(folder: Path, rules: str) -> tuple[Path, Path]:
    """A rule file, and a folder for a run."""
    path, run = folder / "rules.yaml", folder / "run"
    path.write_text(rules)
    run.mkdir()
    return path, run


def test_a_rule_that_emits_all_is_told_by_its_pairs_and_not_by_a_life(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = _placed(tmp_path, LIMITED)
    assert main(["explain", str(path)]) == 0
    out = capsys.readouterr().out
    assert 'Threshold alert "Pair" if a + b > 2.5 within 10s (every pair for which it is true)' in out
    assert 'Threshold alert "Own" if a + b > 9 within 10s (stale 10s)' in out


def test_what_a_join_may_keep_is_told_in_its_unit_unless_the_run_had_other_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = f"{SHOP}      - {{alert: Own, expr: a + b > 9, within: 10s, on: [item], memory: 5000 rows}}\n"
    path, run = _placed(tmp_path, own)
    _note(run, memory={"Own": Found(0.9, 0.8)}, shares={"Own": 5000})
    assert main(["explain", str(path), "Own", "--run-dir", str(run)]) == 0
    assert "  Own: may keep 5,000 rows now; recall 0.9 predicted" in capsys.readouterr().out
    file = load_file(path)
    describe(file, plan_file(file), (), 2).write(run)
    path.write_text(LIMITED)
    assert main(["explain", str(path), "Own", "--run-dir", str(run)]) == 0
    assert "  Own: may keep 5,000 (bytes, or rows) now; recall 0.9 predicted" in capsys.readouterr().out


def _note(run: Path, **told: Any) -> None:
    """Let a run have done one micro-batch."""
    line = Progress(3, "2026-01-01T00:00:00Z", Tally(), Tally(), **told)
    (run / "progress.jsonl").write_bytes(line.line() + b"\n")


def test_of_limited_memory_it_is_said_what_each_join_has_and_where_to_read_what_that_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = _placed(tmp_path, LIMITED)
    assert main(["explain", str(path)]) == 0
    whole = capsys.readouterr().out
    split = "Memory of the run: 300KB for joins that lose results and 300KB for those that sample, at first; in a run, "
    assert whole.startswith(f"{split}in proportion to what either would use\n")
    assert whole.count("  Memory: 300KB") == 3
    assert main(["explain", str(path), "Pair"]) == 0
    kept = "when it is short, the rows that give most results stay: by the model that fits, else the newest"
    model = "rows are judged by age and ages are told apart by 1s, as the rule says"
    line = f"  Memory: 300KB, a share of the run's at first; {kept}; {model}; recall: foretold in a run or a backtest"
    assert f"\n{line}\n" in capsys.readouterr().out
    assert main(["explain", str(path), "Some", "--json"]) == 0
    (watch,) = json.loads(capsys.readouterr().out)["watches"]
    assert watch["memory"] | {"does": ""} == {
        "amount": 300_000, "unit": "bytes", "of_the_run": True, "prefer": "sample", "weight": 2.0,
        "model": {"by": "auto", "granules": 20}, "does": "",
    }  # fmt: skip
    assert watch["memory"]["does"].endswith("; weight 2; error: foretold in a run or a backtest")


def test_what_limited_memory_found_is_read_from_a_run_or_a_backtest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = _placed(tmp_path, LIMITED)
    assert main(["explain", str(path), "--run-dir", str(run)]) == 1
    assert f"`--run-dir` must be that of a run or a backtest; {run} has neither" in capsys.readouterr().err
    # One that was interrupted leaves a summary of nothing.
    (run / "summary.json").write_text("{}")
    assert main(["explain", str(path), "--run-dir", str(run)]) == 1
    assert "nor the summary of a backtest that ended" in capsys.readouterr().err
    summary = {"memory": [{"alert": "Pair", "memory": "300KB", **Found(0.5, 0.25)._asdict()}]}
    (run / "summary.json").write_text(json.dumps(summary))
    assert main(["explain", str(path), "--run-dir", str(run)]) == 0
    told = f"Memory as {run} found it\n  Pair: "
    assert capsys.readouterr().out.endswith(f"{told}recall 0.5 predicted, 0.25 reached\n")
    memory = {"Pair": Found(0.9, 0.8), "Some": Found(None, 0.2, None, 0.05), "Gone": Found(1.0)}
    _note(run, memory=memory, shares={"Pair": 12_345})
    assert main(["explain", str(path), "--run-dir", str(run)]) == 0
    found = "may keep 12,345 bytes now; recall 0.9 predicted, 0.8 reached\n"
    assert capsys.readouterr().out.endswith(f"{told}{found}  Some: error not predicted, 0.05 reached\n")
    assert main(["explain", str(path), "Some", "--run-dir", str(run), "--json"]) == 0
    objects = json.loads(capsys.readouterr().out)["found"]
    assert objects == {"Some": {"share": None, "unit": "bytes", **memory["Some"]._asdict()}}
    assert main(["explain", str(path), "Alone", "--run-dir", str(run)]) == 0
    assert capsys.readouterr().out.endswith(f"Memory as {run} found it: no rule shown here had a limited one\n")


SPENDING = (
    SHOP
    + """\
      - {alert: Near, expr: a + b > 2.5, within: 10s, on: [item], emit: all, cpu: 20%}
      - {alert: Soon, expr: a - b > 2.5, within: 10s, on: [item], emit: all, cpu: 20%, deadline: 1s}
      - {alert: Alone, expr: a > 9, on: [item]}
"""
)


def test_what_limited_processor_time_bought_is_read_from_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = _placed(tmp_path, SPENDING)
    _note(run, cpu={"Near": (0.5, 0.714), "Gone": (1.0, 1.0)})
    assert main(["explain", str(path), "--run-dir", str(run)]) == 0
    assert capsys.readouterr().out.endswith(
        f"\nProcessor time as {run} spent it\n"
        "  Near: worked on 50% of its rows and found about 71% of its results, of late\n"
        "  Soon: not known; only a run records it\n"
    )
    assert main(["explain", str(path), "Near", "--run-dir", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bought"] == {"Near": {"worked_on": 0.5, "found": 0.714}}
    assert main(["explain", str(path), "Alone", "--run-dir", str(run)]) == 0
    assert "Processor time" not in capsys.readouterr().out


def test_a_run_that_was_started_with_other_rules_is_told_from_one_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path, run), other = _placed(tmp_path, SPENDING), tmp_path / "other.yaml"
    other.write_text(LIMITED)
    _note(run)
    file = load_file(path)
    describe(file, plan_file(file), (), 2).write(run)
    names = "alerts are compared by their names"

    assert main(["explain", str(path), "--run-dir", str(run)]) == 0
    assert names not in capsys.readouterr().out
    assert main(["explain", str(other), "--run-dir", str(run)]) == 0
    assert f"\n{run} was last started with {path}, and not with {other} as it is: {names}\n" in capsys.readouterr().out
    path.write_text(SPENDING.replace("20%", "30%"))
    assert main(["explain", str(path), "--run-dir", str(run)]) == 0
    assert f"\n{path} was changed since {run} was last started with it: {names}\n" in capsys.readouterr().out
    assert main(["explain", str(path), "--run-dir", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["another"].startswith(f"{path} was changed since")


def test_a_rule_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", EXAMPLE, "DoorOpn"]) == 1
    assert capsys.readouterr().err == (
        "tocsin explain: RULE must be an alert of the file (Condensation, TooWarm, DoorOpen, NoData); got 'DoorOpn'; "
        "did you mean `DoorOpen`?\n"
    )


@pytest.mark.parametrize("option", [["--run-dir", "run"], ["--at", "2026-01-01"]])
def test_of_a_rule_with_ranges_neither_memory_nor_a_moment_is_asked(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.yaml").write_text(GOOD)
    assert main(["explain", str(tmp_path / "rules.yaml"), "SharesSold", *option]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(
        f"tocsin explain: {option[0]} must be used with a rule that has `expr`; 'SharesSold' has ranges"
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
