"""Links in the documentation, the README and the other pages of the project lead to files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def links_of(page: Path) -> list[tuple[Path, str]]:
    """Return the target of each link of a page: a file, and a heading or the empty string."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    found = [link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in found]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_a_file_and_a_heading(page: Path) -> None:
    wrong = [
        f"{target}#{anchor}"
        for target, anchor in links_of(page)
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target))
    ]
    assert wrong == []
