"""Reference pages: they are generated from the code, and their statements about it hold."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from scripts import generate_reference
from tocsin.cli.main import EPILOG
from tocsin.expr.parser import parse_condition
from tocsin.jit import use_interpreted_kernels
from tocsin.plan import plan_rules
from tocsin.rules import options
from tocsin.rules.load import check_rule_file
from tocsin.rules.options import Field
from tocsin.rules.values import default_value
from tocsin.testing import SuiteLoader, run_suite
from tocsin.testing import options as test_options
from tocsin.testing.series_notation import read_samples

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "reference"
ENVIRONMENT = {"KAFKA_USER": "u", "KAFKA_PASSWORD": "p"}
RULE_TABLES: dict[str, tuple[Field, ...]] = {
    name: value
    for name, value in vars(options).items()
    if name[0] != "_" and isinstance(value, tuple) and value and isinstance(value[0], Field)
}
KINDS = {kind.name: kind.fields for kinds in (options.SOURCES, options.SINKS) for kind in kinds.values()}
TABLES = {**RULE_TABLES, **KINDS, **test_options.TABLES}


def blocks(page: str, language: str) -> list[str]:
    """Return the fenced blocks of a page in one language."""
    return re.findall(rf"```{language}[^\n]*\n(.*?)```", (PAGES / page).read_text("utf-8"), re.DOTALL)


def test_pages_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate_reference.main(["--check"]) == 0, capsys.readouterr().out


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the reference pages that the generator reads and writes."""
    shutil.copytree(PAGES, tmp_path / "reference")
    monkeypatch.setattr(generate_reference, "PAGES", tmp_path / "reference")
    return tmp_path / "reference"


def test_check_names_the_page_and_writes_nothing_when_a_part_differs_from_the_code(
    pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (pages / "cli.md").read_text("utf-8").replace("- `--strict`: ", "- `--strict`: old ")
    (pages / "cli.md").write_text(text, "utf-8")
    assert generate_reference.main(["--check"]) == 1
    assert "cli.md: out of date: command check" in capsys.readouterr().out
    assert (pages / "cli.md").read_text("utf-8") == text
    assert generate_reference.main([]) == 0
    assert (pages / "cli.md").read_text("utf-8") == (PAGES / "cli.md").read_text("utf-8")


def test_check_names_the_part_when_no_page_has_it(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (pages / "cli.md").read_text("utf-8")
    (pages / "cli.md").write_text(text.replace("<!-- generated: command run -->", ""), "utf-8")
    assert generate_reference.main(["--check"]) == 1
    assert "no page has the part 'command run'" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["command check", "command fly"])
def test_generator_fails_when_a_part_is_on_two_pages_or_unknown(pages: Path, name: str) -> None:
    (pages / "metrics.md").write_text(f"<!-- generated: {name} -->\n{generate_reference.END}\n", "utf-8")
    with pytest.raises(SystemExit, match=f"part '{name}' is unknown, or is on two pages"):
        generate_reference.main(["--check"])


def test_rule_file_of_the_page_is_valid_and_has_every_key(tmp_path: Path) -> None:
    (rules,), (limits,) = blocks("rule-file.md", "yaml"), blocks("rule-file.md", "csv")
    (tmp_path / "limits.csv").write_text(limits)
    (tmp_path / "rules.yaml").write_text(rules)
    checked = check_rule_file(tmp_path / "rules.yaml", plan_rules, ENVIRONMENT)
    assert [str(error) for error in (*checked.errors, *checked.warnings)] == []
    assert checked.file is not None
    names = [field.name for table in RULE_TABLES if table != "RANGES" for field in RULE_TABLES[table]]
    assert [name for name in names if not re.search(rf"\b{name}:", rules)] == []


def test_tests_of_the_page_pass_and_have_every_key(tmp_path: Path) -> None:
    rules, tests = blocks("test-file.md", "yaml")
    (tmp_path / "cold-room.yaml").write_text(rules, encoding="utf-8")
    (tmp_path / "test.yaml").write_text(tests, encoding="utf-8")
    checked = SuiteLoader().check(tmp_path / "test.yaml")
    assert [str(error) for error in checked.errors] == []
    assert checked.suite is not None
    with use_interpreted_kernels(0):
        results = list(run_suite(checked.suite, checked.suite.scenarios))
    assert [(case.case.line, case.differences) for result in results for case in result.cases if not case.ok] == []
    assert sum(len(result.cases) for result in results) == 5
    names = [field.name for fields in test_options.TABLES.values() for field in fields]
    assert [name for name in names if not re.search(rf"\b{name}:", tests)] == []


@pytest.mark.parametrize(
    ("text", "expanded"),
    re.findall(r"^\| `([-+0-9x]+)` \| `([^`]*)`", (PAGES / "test-file.md").read_text("utf-8"), re.MULTILINE),
)
def test_series_of_the_page_expand_as_documented(text: str, expanded: str) -> None:
    assert read_samples(text).values.tolist() == read_samples(expanded).values.tolist()


@pytest.mark.parametrize("name", TABLES)
def test_fields_of_a_table_have_distinct_names_and_one_line(name: str) -> None:
    names = [field.name for field in TABLES[name]]
    assert len(names) == len(set(names))
    assert all(field.meaning and "\n" not in field.meaning for field in TABLES[name])
    assert all(not (field.required and field.default) for field in TABLES[name])


@pytest.mark.parametrize(
    "field",
    [field for fields in TABLES.values() for field in fields if field.default is not None],
    ids=lambda field: field.name,
)
def test_default_of_a_field_is_valid(field: Field) -> None:
    assert default_value(field) is not None


def test_precedence_of_operators_is_as_documented() -> None:
    assert parse_condition("2 ** 3 ** 2 > 0") == parse_condition("2 ** (3 ** 2) > 0")
    assert parse_condition("-2 ** 2 > 0") == parse_condition("-(2 ** 2) > 0")
    assert parse_condition("a > 0 or b > 0 and c > 0") == parse_condition("a > 0 or (b > 0 and c > 0)")


def test_exit_codes_of_the_page_equal_the_help() -> None:
    page = (PAGES / "cli.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| (\d) \| (.+) \|$", page, re.MULTILINE))
    (text,) = re.findall(r"Exit codes: (.*?)\.", EPILOG)
    assert [f"{code} {meaning}" for code, meaning in listed.items()] == text.split("; ")
