"""What docs/sources.md shows is right."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from tocsin.plan import make_plan
from tocsin.rules.load import check_rule_file
from tocsin.rules.options import SOURCES

PAGE = (Path(__file__).resolve().parents[2] / "docs/sources.md").read_text("utf-8")


def _block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_the_yaml_of_the_page_is_right(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(_block("yaml"))
    checked = check_rule_file(tmp_path / "rules.yaml", make_plan, {})
    assert [str(mistake) for mistake in checked.mistakes] == []


def test_the_python_of_the_page_prints_what_stands_below_it() -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(_block("python"), "docs/sources.md", "exec"), {})
    assert f"```\n\n    {said.getvalue()}" in PAGE


def test_every_kind_is_on_the_page() -> None:
    assert [kind for kind in SOURCES if f"`{kind}`" not in PAGE] == []
