"""Each example of the documentation is executed, and has the output that its page shows (`tests/docs/examples.py`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.examples import DOCS, FENCE, ROOT, Block, blocks_of, commands_of, compare, execute, pages
from tests.docs.prepared_run import write_run


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_examples_of_a_page_print_the_shown_output(page: Path, tmp_path: Path) -> None:
    if page.name == "run-directory.md":
        write_run(tmp_path)
    execute(page, tmp_path)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_page_has_fenced_blocks_only(page: Path) -> None:
    text = FENCE.sub("", page.read_text("utf-8"))
    assert "```" not in text, "a fence without its end, or with an unknown language"
    assert (
        re.findall(r"\n\n(    \S.*)", re.sub(r"^[ ]*([-*]|\d+\.) .*\n([ ]*\S.*\n|\n(?=    ))*", "", text, flags=re.M))
        == []
    )


def page_of(folder: Path, text: str) -> Path:
    """Write a page into a folder beside this file, so that its place can be named."""
    page = folder / "page.md"
    page.write_text(text, "utf-8")
    return page


@pytest.fixture
def run_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that executes a page with the given text."""
    monkeypatch.setattr(Block, "place", property(lambda block: f"{block.page}:{block.line}"))
    (tmp_path / "work").mkdir()
    return lambda text: execute(page_of(tmp_path, text), tmp_path / "work")


GOOD = [
    "```python\nprint(1)\n```\n\n```text\n1\n```\n",
    "```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\n```text\n2\n```\n",
    "```console\n$ tocsin check examples/factory.yaml | head -n 1\nexamples/factory.yaml: 1 group, ...: ok\n```\n",
    '```csv title="a.csv"\nx\n1\n```\n\n```console\n$ cat a.csv\nx\n1\n```\n',
    "```yaml\nsinks: [{console: {}}]\n```\n",
    "```yaml\n- {alert: Hot, expr: air > 40, on: machine}\n```\n",
    "```sql\nSELECT ts FROM sales WHERE price > 1 WINDOW 1 MINUTE\n```\n",
    '```console\n$ pip install "tocsin[spark,report]"\n```\n',
    "```console\n$ tocsin run examples/factory.yaml --run-dir runs/x\n```\n",
    "```ini\n[Service]\nExecStart=/opt/tocsin/bin/tocsin run rules.yaml --run-dir runs/x\n```\n",
]
BAD = [
    ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "shown:\n2"),
    ("```python\nprint(1)\n```\n", "printed:\n1"),
    ("```console\n$ tocsin check examples/factory.yaml\n```\n", "printed:\nexamples"),
    ("```console\n$ tocsin check missing.yaml\n```\n", "exit code 1"),
    ("```console\n$ tocsin run missing.yaml --run-dir runs/x\n```\n", "no such file"),
    ("```console\n$ systemctl start tocsin\n```\n", "no test runs the command 'systemctl'"),
    ("```yaml\n- {alert: Hot, expr: air >> 40, on: machine}\n```\n", "air >> 40|must|expected"),
    ("```yaml\nfor: 10m\n```\n", "a part of a rule file must be rules"),
    ("```sql\nSELECT ts FROM sales WHERE prize > 1 WINDOW 1 MINUTE\n```\n", "prize"),
    ('```console\n$ pip install "tocsin[speed]"\n```\n', "speed"),
    ("```ruby\nputs 1\n```\n", "no test executes blocks of the language 'ruby'"),
    ("```\ntext\n```\n", r"language '\(none\)'"),
    ("```text\nan output without its example\n```\n", "language 'text'"),
    ("```json\n{1: 2}\n```\n", "property name"),
    ("```drawing\n$ tocsin check rules.yaml\n```\n", "a drawing has a command"),
]


@pytest.mark.parametrize("text", GOOD)
def test_block_passes_when_its_output_is_shown(run_page: Callable[[str], None], text: str) -> None:
    run_page(text)


@pytest.mark.parametrize(("text", "message"), BAD)
def test_block_fails_when_it_is_wrong_or_unknown(run_page: Callable[[str], None], text: str, message: str) -> None:
    with pytest.raises((AssertionError, Exception), match=message):
        run_page(text)


def test_unit_fails_when_an_option_is_unknown(run_page: Callable[[str], None]) -> None:
    with pytest.raises(SystemExit):
        run_page("```ini\n[Service]\nExecStart=tocsin run rules.yaml --unknown\n```\n")


def test_output_matches_any_text_when_it_has_an_ellipsis() -> None:
    compare("a ... d\n", "a b c d\n")
    with pytest.raises(AssertionError, match="printed"):
        compare("a ... d\n", "a b c\n")


def test_commands_of_a_block_have_their_lines_and_output() -> None:
    assert commands_of("$ a \\\n> b\nx\ny\n$ c\n") == [("a \\\nb", "x\ny\n"), ("c", "")]


def test_text_block_is_the_output_of_the_python_block_before_it(tmp_path: Path) -> None:
    page = page_of(tmp_path, "```python\na\n```\n\n```text\nb\n```\n\nwords\n\n```text\nc\n```\n")
    assert [(block.language, block.shown) for block in blocks_of(page)] == [("python", "b\n"), ("text", "")]
    assert ROOT in DOCS.parents
