"""The example of docs/promising.md runs as it stands; its links lead somewhere."""

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


def anchor(heading: str) -> str:
    """What a heading is linked by: small letters and hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_links_of_the_page_lead_to_headings() -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", PAGE.read_text("utf-8"))
    assert len(links) >= 2
    for path, name in links:
        page = (PAGE.parent / path).read_text("utf-8") if path else PAGE.read_text("utf-8")
        assert name in {anchor(heading) for heading in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}
