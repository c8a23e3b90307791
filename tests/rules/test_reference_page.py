"""The reference page and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rules.files import check
from tocsin.expr.nodes import FUNCTIONS
from tocsin.expr.parse import MAX_LENGTH, MAX_MISTAKES, parse_condition
from tocsin.plan import make_plan
from tocsin.rules import compose
from tocsin.rules.load import check_rule_file
from tocsin.rules.mistakes import MOST
from tocsin.rules.options import (
    ARCHIVE,
    FILE,
    GROUP,
    LIMITS,
    NO_DATA,
    PAIR,
    RANGES,
    RULE,
    SINKS,
    SOURCES,
    STREAM,
    VALUE,
    Field,
    sections,
)
from tocsin.rules.values import MOST_ENTRIES, default_value

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/rule-file.md").read_text("utf-8")
ENVIRONMENT = {"KAFKA_USER": "u", "KAFKA_PASSWORD": "p", "BELL_PASSWORD": "b"}
TABLES = {"file": FILE, "stream": STREAM, "value": VALUE, "no_data": NO_DATA, "limits": LIMITS, "group": GROUP}
TABLES |= {"rule": RULE, "ranges": RANGES, "pair": PAIR, "archive": ARCHIVE}
TABLES |= {f"{where} {kind.name}": kind.fields for where in (SOURCES, SINKS) for kind in where.values()}
DEFAULTS = [field for fields in TABLES.values() for field in fields if field.default is not None]


def _block(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_the_yaml_of_the_page_is_right(tmp_path: Path) -> None:
    checked = check(tmp_path, "", ENVIRONMENT)
    (tmp_path / "limits.csv").write_text(_block("csv"))
    (tmp_path / "rules.yaml").write_text(_block("yaml"))
    checked = check_rule_file(tmp_path / "rules.yaml", make_plan, ENVIRONMENT)
    assert [str(mistake) for mistake in (*checked.mistakes, *checked.warnings)] == []
    assert checked.file is not None
    assert [rule.alert for rule in checked.file.rules] == ["Condensation", "DoorOpen", "Twins", "Apart", "Near"]


def test_the_yaml_of_the_page_has_every_key_but_those_of_sources_and_sinks() -> None:
    text = _block("yaml")
    names = [field.name for name in ("file", "stream", "value", "no_data", "limits", "group", "rule", "pair", "archive")
             for field in TABLES[name]]  # fmt: skip
    assert [name for name in names if not re.search(rf"\b{name}:", text)] == []


@pytest.mark.parametrize("title", [title for title, _ in sections()])
def test_the_tables_of_the_page_are_those_of_the_code(title: str) -> None:
    assert f"### {title}\n\n{dict(sections())[title]}\n" in PAGE


def test_the_page_has_no_table_besides() -> None:
    assert re.findall(r"^### (.*)$", PAGE, re.MULTILINE) == [title for title, _ in sections()]


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    assert f"{compose.MOST_BYTES // 2**20} MiB, {compose.MOST_NODES:,} nodes (aliases expanded)" in PAGE
    assert f"{compose.MOST_DEPTH} levels, {MOST_ENTRIES:,} streams" in PAGE
    assert f"After {MOST:,} mistakes a file is given up, after {MAX_MISTAKES} a condition." in PAGE


@pytest.mark.parametrize("field", DEFAULTS, ids=lambda field: field.name)
def test_a_default_is_what_the_field_takes(field: Field) -> None:
    assert default_value(field) is not None


@pytest.mark.parametrize("name", TABLES)
def test_a_field_is_described_once_and_in_one_line(name: str) -> None:
    names = [field.name for field in TABLES[name]]
    assert len(names) == len(set(names))
    assert all(field.meaning and "\n" not in field.meaning for field in TABLES[name])
    assert all(not (field.required and field.default) for field in TABLES[name])


def test_the_conditions_of_the_page_are_those_of_the_code() -> None:
    part = PAGE[PAGE.index("## Conditions") : PAGE.index("## Templates")]
    named = set(re.findall(r"`(\w+)\(", part))
    assert named == set(FUNCTIONS)
    assert f"{MAX_LENGTH:,} characters" in part
    assert parse_condition("2 ** 3 ** 2 > 0") == parse_condition("2 ** (3 ** 2) > 0")
    assert parse_condition("-2 ** 2 > 0") == parse_condition("-(2 ** 2) > 0")
    assert parse_condition("a > 0 or b > 0 and c > 0") == parse_condition("a > 0 or (b > 0 and c > 0)")
