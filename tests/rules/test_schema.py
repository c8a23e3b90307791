"""JSON Schemas of rule files and test files: they accept good files and reject errors of structure."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.files import GOOD, check, said
from rules.test_ranges import GOOD as RANGES
from tocsin.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool,
    "null": type(None),
}  # fmt: skip


def schema_of(package: str) -> Any:
    return json.loads((ROOT / "src" / "tocsin" / package / "schema.json").read_text("utf-8"))


def faults(value: Any, schema: Any, root: Any, path: str = "") -> Iterator[str]:
    """Yield the places of a value that a JSON Schema rejects. Only the words of our schemas are known."""
    known = {"$ref", "$schema", "$defs", "type", "enum", "const", "pattern", "anyOf", "properties", "required", "items"}
    known |= {"additionalProperties", "minProperties", "maxProperties", "minItems", "maxItems", "uniqueItems"}
    known |= {"minimum", "maximum", "title", "description", "default"}
    assert schema.keys() <= known, schema.keys() - known
    if "$ref" in schema:
        yield from faults(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
    if "anyOf" in schema and all(list(faults(value, one, root, path)) for one in schema["anyOf"]):
        yield path
    types = schema.get("type", [])
    wanted = [TYPES[one] for one in ([types] if isinstance(types, str) else types)]
    is_number_as_bool = isinstance(value, bool) and types in ("integer", "number")
    if wanted and (is_number_as_bool or not any(isinstance(value, one) for one in wanted)):
        yield path
        return
    if ("enum" in schema and value not in schema["enum"]) or ("const" in schema and value != schema["const"]):
        yield path
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield path
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield path
    if isinstance(value, dict):
        yield from _faults_of_mapping(value, schema, root, path)
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield path
        for i, one in enumerate(value):
            yield from faults(one, schema.get("items", {}), root, f"{path}/{i}")


def _faults_of_mapping(value: dict[str, Any], schema: Any, root: Any, path: str) -> Iterator[str]:
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        yield path
    yield from (f"{path}/{name}" for name in schema.get("required", ()) if name not in value)
    for name, one in value.items():
        inner = properties.get(name, rest)
        if inner is False:
            yield f"{path}/{name}"
        elif inner is not True:
            yield from faults(one, inner, root, f"{path}/{name}")


def load(text: str) -> Any:
    """Read YAML as an editor does: `on` is a key and not a boolean, and dates are text."""
    tree = yaml.safe_load(text)
    return json.loads(json.dumps(tree, default=str).replace('"true": ', '"on": '))


EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_schema_accepts_every_example(path: Path) -> None:
    schema = schema_of("testing" if path.name.endswith("-test.yaml") else "rules")
    assert list(faults(load(path.read_text("utf-8")), schema, schema)) == []


@pytest.mark.parametrize("text", [GOOD, RANGES])
def test_schema_accepts_the_good_rule_files(text: str) -> None:
    schema = schema_of("rules")
    assert list(faults(load(text), schema, schema)) == []


CHANGES = [
    ("archive:", "archiv:", "/archiv"),
    ("  - name: cold-store", "  - nam: cold-store", "/groups/0"),
    ("for: 10m\n", "for: soon\n", "/groups/0/rules/0"),
    ("recovery: -1", "recovery: low", "/groups/0/rules/0"),
    ("{parquet: {path: data/air}}", "{parket: {}}", "/streams/air"),
    ("{parquet: {path: data/air}}", "{parquet: {path: a}, csv: {path: b}}", "/streams/air"),
    ("stale: 1m", "emit: some", "/groups/0/rules/0"),
    ("stale: 1m", "quality: {recal: 0.9}", "/groups/0/rules/0"),
    ("stale: 1m", "quality: {model: {by: size}}", "/groups/0/rules/0"),
    ("        expr: air > by_site.most\n", "", "/groups/0/rules/1"),
    ("keys: [machine, site]", "keys: {a: b}", "/streams/air"),
]


@pytest.mark.parametrize(("old", "new", "place"), CHANGES)
def test_schema_and_check_reject_the_same_errors_of_structure(tmp_path: Path, old: str, new: str, place: str) -> None:
    text = GOOD.replace(old, new, 1)
    schema = schema_of("rules")
    assert any(place.startswith(one) or one.startswith(place) for one in faults(load(text), schema, schema))
    assert check(tmp_path, text).errors


@pytest.mark.parametrize("kind", ["rules", "test"])
def test_command_prints_the_schema_of_the_package(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", kind]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("testing" if kind == "test" else "rules")


HINTS = {
    "a tab": ("    rules:\n", "\trules:\n", "indent with spaces, not with tabs"),
    "an arrow": ("air - surface > by_machine", "air - surface => by_machine", "`=>` is not an operator; write `>=`"),
    "a size without B": ("stale: 1m", "quality: {memory: 2G}", "did you mean `2GB`?"),
    "a share without a unit": (
        "stale: 1m", "emit: all\n        quality: {cpu: 0.5}", "did you mean `50%` or `0.5 cores`?"),
    "a date in US format": (
        "{parquet: {path: data/air}}", "{factory: {start: 01/31/2026}}", "write 2026-01-31: year, month, day"),
    "a date with the day first": (
        "{parquet: {path: data/air}}", "{factory: {start: 31/01/2026}}", "write year-month-day"),
    "a column in the wrong case": (
        "air.temp - surface", "air.Temp - surface", "did you mean `temp`? Names are case-sensitive"),
    "a stream in the wrong case": (
        "air > by_site.most", "Air > by_site.most", "did you mean `air`? Names are case-sensitive"),
    "a duration without a unit": ("stale: 1m", "stale: 60", "for seconds write '60s'"),
}  # fmt: skip


@pytest.mark.parametrize("name", HINTS)
def test_an_error_has_the_hint_that_its_author_needs(name: str, tmp_path: Path) -> None:
    old, new, hint = HINTS[name]
    assert old in GOOD
    assert any(line.endswith(hint) for line in said(tmp_path, GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(
    "code",
    [
        "import tocsin; tocsin.Rule; tocsin.NoData; tocsin.run_local; tocsin.explain",
        "import tocsin.cli.main as m; m.parser()",
        "import tocsin.cli.edge, tocsin.edge.event_loop, tocsin.edge.settings",
        "from tocsin.cli.main import main; main(['schema'])",
    ],
)
def test_pydantic_is_not_imported_when_no_file_is_read(code: str) -> None:
    check_modules = "import sys; assert 'pydantic' not in sys.modules, 'pydantic is imported'"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {check_modules}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
