"""The reference page of the test file and the code say the same, and its tests pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tocsin.jit import MOST_PLAIN_SAMPLES, plain_kernels
from tocsin.rules.values import default_value
from tocsin.testing import SuiteLoader, run_suite
from tocsin.testing.options import REFUSED, TABLES, sections
from tocsin.testing.scenario import MOST_SAMPLES_IN_ALL
from tocsin.testing.series import MOST_SAMPLES, read_samples

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/test-file.md").read_text("utf-8")
RULES, TESTS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    (tmp_path / "cold-room.yaml").write_text(RULES, encoding="utf-8")
    (tmp_path / "test.yaml").write_text(TESTS, encoding="utf-8")
    checked = SuiteLoader().check(tmp_path / "test.yaml")
    assert [str(mistake) for mistake in checked.mistakes] == []
    assert checked.suite is not None
    with plain_kernels(0):
        results = list(run_suite(checked.suite, checked.suite.scenarios))
    assert [(case.case.line, case.differences) for result in results for case in result.cases if not case.ok] == []
    assert sum(len(result.cases) for result in results) == 5


def test_the_yaml_of_the_page_has_every_key() -> None:
    names = [field.name for fields in TABLES.values() for field in fields]
    assert [name for name in names if not re.search(rf"\b{name}:", TESTS)] == []


@pytest.mark.parametrize("title", [title for title, _ in sections()])
def test_the_tables_of_the_page_are_those_of_the_code(title: str) -> None:
    assert f"### {title}\n\n{dict(sections())[title]}\n" in PAGE


def test_the_page_has_no_table_besides() -> None:
    assert re.findall(r"^### (.*)$", PAGE, re.MULTILINE) == [title for title, _ in sections()]


def test_the_limits_and_refused_keys_on_the_page_are_those_of_the_code() -> None:
    assert f"A series has at most {MOST_SAMPLES:,} samples, a file {MOST_SAMPLES_IN_ALL:,}." in PAGE
    assert f"Up to {MOST_PLAIN_SAMPLES:,} samples" in PAGE
    refused = [name for names in REFUSED.values() for name in names if name != "expr_test"]
    assert [name for name in refused if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize(("text", "expanded"), re.findall(r"^\| `([-+0-9x]+)` \| `([^`]*)`", PAGE, re.MULTILINE))
def test_the_series_of_the_page_expand_as_it_says(text: str, expanded: str) -> None:
    assert read_samples(text).values.tolist() == read_samples(expanded).values.tolist()


def test_a_default_is_what_the_field_takes() -> None:
    given = [field for fields in TABLES.values() for field in fields if field.default is not None]
    assert [field.name for field in given if default_value(field) is None] == []
