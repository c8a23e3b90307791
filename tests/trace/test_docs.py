"""The examples of docs/explain.md and docs/backtest.md are run, and print what the pages say."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tocsin.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", re.DOTALL)
KINDS = re.compile(r"^\| `([a-z-]+)` \|", re.MULTILINE)


@pytest.mark.parametrize("name", ["explain", "backtest"])
def test_every_example_prints_what_the_page_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    examples = EXAMPLE.findall(page)
    assert len(examples) == page.count("```python") == 1
    for code, output in examples:
        exec(compile(code, f"docs/{name}.md", "exec"), {})
        assert capsys.readouterr().out == textwrap.dedent(output)


def test_the_plan_is_the_one_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "explain.md").read_text("utf-8")
    shown = re.search(r"    \$ tocsin explain (\S+) (\S+)\n((?:    [^\n]*\n)+)", page)
    assert shown
    assert main(["explain", str(ROOT / shown[1]), shown[2]]) == 0
    assert capsys.readouterr().out == textwrap.dedent(shown[3])


def test_every_kind_of_answer_is_listed() -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "src" / "tocsin" / "trace").glob("*.py"))
    listed = KINDS.findall((ROOT / "docs" / "explain.md").read_text("utf-8"))
    made = set(re.findall(r'Reason\("([a-z-]+)"', code)) - {"not-evaluated"}
    assert made <= set(listed)
    assert all(f'"{kind}"' in code for kind in listed)
