"""What the documents and examples show runs, and the demo's own check is right."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tocsin import demo, run_local

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "docs/start.md", "docs/concepts/omission.md"]
# A block of Python, and the output shown below it, if there is any.
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n((?:    [^\n]*\n)+))?", re.DOTALL)
SMALL = demo.Factory(machines=3, every_us=30 * demo.SECOND)


def _blocks(document: str) -> list[tuple[str, str]]:
    found = BLOCK.findall((ROOT / document).read_text())
    return [(code, "".join(line[4:] for line in shown.splitlines(keepends=True))) for code, shown in found]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_python_of_a_document_that_needs_no_spark_runs_and_prints_what_is_shown(document: str) -> None:
    names: dict[str, Any] = {}
    blocks = [block for block in _blocks(document) if "pyspark" not in block[0]]
    assert blocks
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, document, "exec"), names)
        if shown:
            assert printed.getvalue() == shown


@pytest.mark.spark
@pytest.mark.slow
def test_the_python_of_documents_and_examples_on_spark_runs() -> None:
    codes = ["\n".join(code for code, _ in _blocks(document)) for document in ("README.md", "docs/start.md")]
    codes.append((ROOT / "examples" / "dataframes.py").read_text())
    printed = _run("\n".join(codes))
    assert printed.count("firing") >= 3
    assert printed.count("resolved") >= 3


def test_the_example_on_arrays_raises_and_resolves_one_alert(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "condensation.py"))
    states = [line.split()[0] for line in capsys.readouterr().out.splitlines()[-2:]]
    assert states == ["firing", "resolved"]


def test_examples_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "examples").glob("*.py")}
    assert lengths
    assert {name: length for name, length in lengths.items() if length > 60} == {}


def test_windows_with_an_alarm_are_those_of_all_combinations() -> None:
    random = np.random.default_rng(7)
    for _ in range(50):
        readings = {}
        for name, low, high in (("humidity", 50, 80), ("air", 18, 24), ("surface", 13, 20)):
            times = np.sort(random.integers(0, 3 * demo.WITHIN, 6))
            readings[name] = (times, np.round(random.uniform(low, high, 6), 1))
        starts = set()
        for (h, humidity), (a, air), (s, surface) in itertools.product(
            *(zip(*pair, strict=True) for pair in readings.values())
        ):
            if max(h, a, s) - min(h, a, s) <= demo.WITHIN and demo.dew_point(humidity, air) > surface:
                starts.add(min(h, a, s))
        found = set(demo.true_windows(readings).tolist())
        assert starts <= found
        # A window found true holds a true combination, which may begin later inside it.
        assert all(any(start <= t <= start + demo.WITHIN for t in starts) for start in found)


def test_the_check_of_the_demo_passes_in_memory_and_fails_when_an_alert_is_taken_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    streams = SMALL.streams()
    without = demo.joined_lives(run_local(demo.in_order(streams), demo.RULE))
    lives = demo.joined_lives(run_local(streams, demo.RULE, arrival="arrived"))
    late = [life for life in lives if "late" in life["quality"]]
    assert late
    assert demo.print_check(streams, lives, without)
    assert not demo.print_check(streams, [life for life in lives if life is not late[0]], without)
    assert "BROKEN" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_runs_on_spark_and_misses_no_alarm() -> None:
    printed = _run("from tocsin.demo import Factory, main; main(Factory(machines=3, every_us=30_000_000))")
    assert "No alarm was missed." in printed
    assert "humidity is back" in printed


def _run(code: str) -> str:
    """Run code in a process of its own, so that the sessions it starts and stops are no other test's."""
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
