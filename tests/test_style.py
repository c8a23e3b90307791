"""Rules of the house that no linter knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(file for folder in ("src", "tests", "benchmarks", "examples") for file in (ROOT / folder).rglob("*.py"))
# Written so that this file does not find itself.
NOTE = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b(?!\(#\d+\))")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_note_of_work_to_do_names_its_issue(file: Path) -> None:
    noted = [number for number, line in enumerate(file.read_text("utf-8").splitlines(), 1) if NOTE.search(line)]
    assert noted == []


def test_an_oracle_imports_nothing_of_tocsin() -> None:
    importing = re.compile(r"^\s*(?:from|import)\s+tocsin\b", re.MULTILINE)
    oracles = [file for file in FILES if "naive" in file.relative_to(ROOT).parts]
    assert [file.name for file in oracles if importing.search(file.read_text("utf-8"))] == []


def test_every_make_target_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    told = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert set(phony[1].split()) == told
