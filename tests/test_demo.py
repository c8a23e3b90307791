"""Examples of documents, Python examples, and the demo with its check."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tocsin import run_local
from tocsin.cli.main import main
from tocsin.demo import DISORDER_US, OUTAGES, RULES, WITHIN_US, alerts_of, margin, print_check, true_windows
from tocsin.factory import Factory
from tocsin.plan import plan_rules
from tocsin.rules.load import load_rule_file

ROOT = Path(__file__).resolve().parent.parent
# A block of Python, and the output shown below it, if there is any.
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n((?:    [^\n]*\n)+))?", re.DOTALL)
# Commands of the README, without their comments.
COMMANDS = re.findall(r"^    (tocsin .*?) +#", (ROOT / "README.md").read_text(), re.MULTILINE)


def _blocks(document: str) -> list[tuple[str, str]]:
    found = BLOCK.findall((ROOT / document).read_text())
    return [(code, "".join(line[4:] for line in shown.splitlines(keepends=True))) for code, shown in found]


def test_python_of_the_readme_prints_the_shown_output() -> None:
    names: dict[str, Any] = {}
    blocks = _blocks("README.md")
    assert blocks
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "README.md", "exec"), names)
        if shown:
            assert printed.getvalue() == shown


@pytest.mark.spark
@pytest.mark.slow
def test_dataframe_example_raises_and_resolves_alerts_on_spark() -> None:
    printed = _run((ROOT / "examples" / "dataframes.py").read_text())
    assert "firing" in printed
    assert "resolved" in printed


def _commands(*, spark: bool) -> Any:
    """Parametrize a test with the commands of the README that start Spark, or with the other ones."""
    words = ("tocsin run", "tocsin backtest", "--at")
    return pytest.mark.parametrize(
        "command", [command for command in COMMANDS if any(word in command for word in words) == spark]
    )


def test_readme_has_commands_with_and_without_spark() -> None:
    assert len(COMMANDS) >= 5


@_commands(spark=False)
def test_command_of_the_readme_succeeds(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["examples", "examples"]) == 0
    assert main(command.split()[1:]) == 0
    assert capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.slow
@_commands(spark=True)
def test_command_of_the_readme_succeeds_on_spark(command: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "runs").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout


def test_array_example_raises_and_resolves_one_alert(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "condensation.py"))
    states = [line.split()[0] for line in capsys.readouterr().out.splitlines()[-2:]]
    assert states == ["firing", "resolved"]


def test_examples_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "examples").glob("*.py")}
    assert lengths
    assert {name: length for name, length in lengths.items() if length > 60} == {}


def test_true_windows_contain_every_combination_with_an_alarm() -> None:
    random = np.random.default_rng(7)
    for _ in range(50):
        streams = {}
        for name, low, high in (("humidity", 50, 80), ("air", 18, 24), ("surface", 13, 20)):
            times = np.sort(random.integers(0, 3 * WITHIN_US, 6))
            streams[name] = (times, np.round(random.uniform(low, high, 6), 1))
        starts = set()
        for (h, humidity), (a, air), (s, surface) in itertools.product(
            *(zip(*pair, strict=True) for pair in streams.values())
        ):
            if max(h, a, s) - min(h, a, s) <= WITHIN_US and margin(humidity, air, surface) > 0:
                starts.add(min(h, a, s))
        found = set(true_windows(streams).tolist())
        assert starts <= found
        # Each window contains a combination with an alarm. The combination can start after the start of the window.
        assert all(any(start <= t <= start + WITHIN_US for t in starts) for start in found)


def test_demo_check_passes_on_the_local_engine_and_fails_when_an_alert_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.yaml").write_text(RULES.format(machines=20, rate=200), "utf-8")
    file = load_rule_file(tmp_path / "rules.yaml", partial(plan_rules, bounded=False), {})
    rule = next(rule for rule in file.rules if rule.alert == "Condensation")
    rows = {
        name: Factory(20, rate=200, disorder_us=DISORDER_US, outages=OUTAGES.get(name, 0)).read(name, 0, 9_600)
        for name in ("humidity", "air", "surface")
    }
    events = [
        {**row, **{name: _text(row[name]) for name in ("startsAt", "endsAt")}, "witness": _parts(row["witness"])}
        for row in run_local(rows, rule, arrival="arrived")
    ]
    alerts = alerts_of(events)
    late = [alert for alert in alerts if "late" in alert["quality"]]
    assert late
    assert print_check(rows, alerts)
    machine = late[0]["labels"]["machine"]
    assert not print_check(rows, [alert for alert in alerts if alert["labels"]["machine"] != machine])
    assert "VIOLATED" in capsys.readouterr().out


def _text(time: Any) -> str | None:
    return None if time is None else time.isoformat().replace("+00:00", "Z")


def _parts(witness: Any) -> list[dict[str, Any]]:
    return [{**part, "time": _text(part["time"])} for part in witness]


@pytest.mark.spark
@pytest.mark.process
def test_demo_runs_on_spark_and_misses_no_alert() -> None:
    printed = _run("from tocsin.demo import main; main(machines=10, seconds=30)")
    assert "No alert was missed." in printed
    assert re.search(r"Outage: [1-9][0-9,]* of", printed)
    assert "`DampSurface` requests a recall of 99%" in printed


def _run(code: str) -> str:
    """Run code in a separate process, so that it does not share the Spark session of other tests."""
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
