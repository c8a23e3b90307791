"""Claims: the tables of CLAIMS.md name tests that exist, and the targets that run them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "tests" / "CLAIMS.md"
# A row: claim, tests, targets.
CLAIMS = re.findall(r"^\| ([^|]+) \| ([^|]*::[^|]*) \| ([a-z, ]+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
# The target of each mark; other tests belong to `make test`.
TARGETS = {"slow": "slow", "process": "processes", "recordings": "recordings"}


def target_of(name: str) -> str:
    """Return the target that runs a test, by the marks of its function and of its module."""
    path, _, function = name.partition("::")
    module = ast.parse((ROOT / path).read_text("utf-8"))
    (found,) = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == function]
    marks = {ast.unparse(mark) for mark in found.decorator_list}
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks |= set(map(ast.unparse, node.value.elts if isinstance(node.value, ast.List) else [node.value]))
    return next((target for mark, target in TARGETS.items() if f"pytest.mark.{mark}" in marks), "test")


def test_table_has_a_test_for_each_claim_when_it_is_read() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|") and "`tests/" in line]
    assert len(CLAIMS) == len(rows) > 40


@pytest.mark.parametrize(("tests", "targets"), [row[1:] for row in CLAIMS], ids=[row[0][:60] for row in CLAIMS])
def test_claim_names_tests_and_targets_that_exist(tests: str, targets: str) -> None:
    names = re.findall(r"`([^`]+::[^`]+)`", tests)
    assert {target_of(name) for name in names} == set(targets.split(", "))
