"""What the documents and examples show runs, and the demo's own check is right."""

from __future__ import annotations

import contextlib
import doctest
import io
import itertools
import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tocsin import run_local
from tocsin.demo import Factory
from tocsin.demo.check import dew_point, in_order, joined_lives, true_windows
from tocsin.demo.plant import RULE, SECOND, WITHIN
from tocsin.demo.show import print_check

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    "README.md",
    "docs/start.md",
    "docs/concepts/cpu.md",
    "docs/concepts/memory.md",
    "docs/concepts/omission.md",
    "docs/concepts/proofs.md",
]
# A block of Python, and the output shown below it, if there is any.
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n((?:    [^\n]*\n)+))?", re.DOTALL)
# A command, and what it prints; `...` stands for anything.
COMMAND = re.compile(r"^    \$ (tocsin .+)\n((?:    (?!\$ ).*\n)*)", re.MULTILINE)
WALK = COMMAND.findall((ROOT / "docs" / "start.md").read_text())
SMALL = Factory(machines=3, every_us=30 * SECOND)


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


def _walk(*, spark: bool) -> Any:
    """The commands that start Spark, or those that do not."""
    words = ("tocsin run", "tocsin backtest", "--at")
    cases = [case for case in WALK if any(word in case[0] for word in words) == spark]
    return pytest.mark.parametrize(("command", "shown"), cases, ids=[command for command, _ in cases])


@_walk(spark=False)
def test_a_command_of_the_first_steps_prints_what_is_shown(command: str, shown: str, tmp_path: Path) -> None:
    _prints(command, shown, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@_walk(spark=True)
def test_a_command_of_the_first_steps_prints_what_is_shown_on_spark(command: str, shown: str, tmp_path: Path) -> None:
    _prints(command, shown, tmp_path)


def _prints(command: str, shown: str, folder: Path) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "runs").mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    wanted, printed = textwrap.dedent(shown).rstrip(), done.stdout.rstrip()
    assert doctest.OutputChecker().check_output(wanted, printed, doctest.ELLIPSIS), f"{printed}\n{done.stderr[-3000:]}"


def test_the_rule_that_the_first_steps_show_is_that_of_the_example() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "start.md").read_text(), re.DOTALL)
    assert shown in (ROOT / "examples" / "factory.yaml").read_text()


def test_the_commands_of_the_readme_are_those_of_the_first_steps() -> None:
    lines = re.findall(r"^    (tocsin .*?) +#", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(lines) == 5
    walked = [command.partition(" | ")[0] for command, _ in WALK]
    assert set(lines) <= set(walked)


def test_the_readme_links_to_every_page_and_every_link_of_a_page_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    linked = {page: _links(page) for page in pages}
    assert {page for page in pages if page.is_relative_to(ROOT / "docs")} <= {target for target, _ in linked[pages[0]]}
    wrong = [
        f"{page.relative_to(ROOT)}: {target}#{anchor}"
        for page, links in linked.items()
        for target, anchor in links
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target))
    ]
    assert wrong == []


def _links(page: Path) -> list[tuple[Path, str]]:
    """Where the links of a page lead: a file, and a heading or nothing."""
    found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    parts = [link.partition("#") for link in found if "://" not in link]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in parts]


def _anchors(page: Path) -> set[str]:
    """The names of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


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
            times = np.sort(random.integers(0, 3 * WITHIN, 6))
            readings[name] = (times, np.round(random.uniform(low, high, 6), 1))
        starts = set()
        for (h, humidity), (a, air), (s, surface) in itertools.product(
            *(zip(*pair, strict=True) for pair in readings.values())
        ):
            if max(h, a, s) - min(h, a, s) <= WITHIN and dew_point(humidity, air) > surface:
                starts.add(min(h, a, s))
        found = set(true_windows(readings).tolist())
        assert starts <= found
        # A window found true holds a true combination, which may begin later inside it.
        assert all(any(start <= t <= start + WITHIN for t in starts) for start in found)


def test_the_check_of_the_demo_passes_in_memory_and_fails_when_an_alert_is_taken_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    streams = SMALL.streams()
    without = joined_lives(run_local(in_order(streams), RULE))
    lives = joined_lives(run_local(streams, RULE, arrival="arrived"))
    late = [life for life in lives if "late" in life["quality"]]
    assert late
    assert print_check(streams, lives, without)
    assert not print_check(streams, [life for life in lives if life is not late[0]], without)
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
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
