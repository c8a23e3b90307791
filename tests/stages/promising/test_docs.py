"""The example of docs/promising.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "promising.md"


def test_the_example_of_the_page_runs_and_finds_results() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 1
    names: dict[str, object] = {}
    exec(compile(blocks[0], str(PAGE), "exec"), names)
    assert 0 < len(names["pairs"]) < len(names["everything"])  # type: ignore[arg-type]
