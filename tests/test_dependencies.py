"""Dependencies: every library that the package imports is declared in `pyproject.toml`, in the extra that needs it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "tocsin"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# The extra that contains the libraries of a module. The longest path that fits a module counts.
EXTRAS = {
    "cli/backtest": "report",
    "cli/ranges": "spark",
    "columns": "local",
    "dashboard": "dashboard",
    "delivery/kafka": "kafka",
    "delivery/parquet": "spark",
    "expr/certify": "prove",
    "jit": "local",
    "spark/sources/mqtt_client": "mqtt",
    "query": "spark",
    "report": "report",
    "runtime/alert_arrow": "spark",
    "spark": "spark",
}
# PySpark imports these for transformWithState.
OF_PYSPARK = {"grpcio", "protobuf"}


def _name(requirement: str) -> str:
    """Return the normalised name of a requirement such as `PyYAML>=6.0`."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]).lower()


def _declared(extra: str) -> set[str]:
    """Return the libraries of an extra and of the extras that it includes."""
    found: set[str] = set()
    for requirement in PROJECT["optional-dependencies"][extra]:
        if included := re.match(r"tocsin\[(.+?)\]", requirement):
            found = found.union(*map(_declared, included[1].split(",")))
        else:
            found.add(_name(requirement))
    return found


BASE = set(map(_name, PROJECT["dependencies"]))


def _imported(path: Path, owners: Mapping[str, list[str]]) -> set[str]:
    """Return the libraries that a module imports anywhere, by the names of their distributions in `owners`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        found |= {name.partition(".")[0] for name in names}
    others = found - sys.stdlib_module_names - {"tocsin"}
    return {_name(owner) for name in others for owner in owners.get(name, [name])}


def _extra(module: str) -> str | None:
    fits = [path for path in EXTRAS if module == path or module.startswith(f"{path}/")]
    return EXTRAS[max(fits, key=len)] if fits else None


@cache
def _modules() -> dict[str, set[str]]:
    """Return the libraries of each module. Reading all modules takes seconds, so the import of this file does not."""
    owners = packages_distributions()
    paths = SOURCE.rglob("*.py")
    return {path.relative_to(SOURCE).with_suffix("").as_posix(): _imported(path, owners) for path in paths}


@pytest.mark.parametrize("extra", [None, *PROJECT["optional-dependencies"]])
def test_every_import_is_declared_in_the_extra_of_its_module(extra: str | None) -> None:
    declared = BASE | (_declared(extra) if extra else set())
    missing = {module: libraries - declared for module, libraries in _modules().items() if _extra(module) == extra}
    assert {module: libraries for module, libraries in missing.items() if libraries} == {}


def test_every_declared_library_is_imported() -> None:
    declared = BASE.union(*map(_declared, PROJECT["optional-dependencies"]))
    assert declared - set().union(*_modules().values()) == OF_PYSPARK


@pytest.mark.parametrize("path", EXTRAS)
def test_every_path_of_an_extra_is_in_the_package(path: str) -> None:
    assert any(module == path or module.startswith(f"{path}/") for module in _modules())
