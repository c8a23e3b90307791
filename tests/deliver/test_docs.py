"""The examples of docs/sinks.md are run, and print what it says."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import yaml

from tocsin.deliver import make_sink
from tocsin.deliver.sinks import Sink

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sinks.md").read_text("utf-8")
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", re.DOTALL)


def test_every_example_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    examples = EXAMPLE.findall(PAGE)
    assert len(examples) == PAGE.count("```python") == 2
    for code, output in examples:
        exec(compile(code, "docs/sinks.md", "exec"), {})
        assert capsys.readouterr().out == textwrap.dedent(output)


def test_the_sinks_of_the_rule_file_are_sinks() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    kinds = [next(iter(each.items())) for each in yaml.safe_load(text)["sinks"]]
    sinks = [make_sink(kind, options) for kind, options in kinds]
    assert {type(sink) for sink in sinks} == set(Sink.__args__)  # type: ignore[attr-defined]


def test_the_table_of_guarantees_names_every_sink() -> None:
    table = PAGE[PAGE.index("| sink | guarantee") : PAGE.index("For all of them")]
    for kind in Sink.__args__:  # type: ignore[attr-defined]
        assert f"| `{kind.kind}`" in table
