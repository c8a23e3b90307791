"""Diagnostics: every code is documented, every error of rules and plans is a Diagnostic, and no code reads its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tocsin import ExprError, PlanError, Rule, RuleError
from tocsin.diagnostic_codes import CODES
from tocsin.errors import Diagnostic, Diagnostics
from tocsin.plan import make_plan, plan_rules
from tocsin.rules.scope import Scope

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tocsin"
# Names of exception variables, and attributes with the text of an error.
TEXTS = {"message", "sentence", "args", "strerror"}
# Methods and functions that take a text apart.
READERS = {"removeprefix", "removesuffix", "partition", "rpartition", "startswith", "endswith", "index", "find"}
PATTERNS = {"match", "search", "fullmatch", "findall", "sub"}


def _trees(*packages: str) -> Iterator[tuple[Path, ast.Module]]:
    for package in packages:
        for path in sorted((SOURCE / package).rglob("*.py")):
            yield path, ast.parse(path.read_text("utf-8"))


def _caught(tree: ast.Module) -> Iterator[tuple[str, ast.ExceptHandler]]:
    """Yield each handler with the name of its exception."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name is not None:
            yield node.name, node


def _is_text_of(node: ast.AST, name: str) -> bool:
    """Return whether an expression is `str(name)`, or an attribute of it that is text."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
        return any(isinstance(arg, ast.Name) and arg.id == name for arg in node.args)
    return isinstance(node, ast.Attribute) and node.attr in TEXTS and name in ast.unparse(node.value)


def test_no_code_reads_the_text_of_an_error_of_a_rule_or_a_plan() -> None:
    found = []
    for path, tree in _trees("rules", "plan", "testing", "cli", "edge", "query", "expr"):
        for name, handler in _caught(tree):
            for node in ast.walk(handler):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                reads = node.func.attr in READERS and any(_is_text_of(one, name) for one in ast.walk(node.func.value))
                reads |= node.func.attr in PATTERNS and any(
                    _is_text_of(one, name) for arg in node.args for one in ast.walk(arg)
                )
                if reads:
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def test_the_lint_finds_code_that_reads_the_text_of_an_error() -> None:
    text = "try:\n    f()\nexcept RuleError as error:\n    g(str(error).removeprefix('x'), PATTERN.match(str(error)))"
    ((name, handler),) = _caught(ast.parse(text))
    calls = [node for node in ast.walk(handler) if isinstance(node, ast.Call)]
    assert sum(any(_is_text_of(one, name) for one in ast.walk(call)) for call in calls) >= 2


def test_modules_of_rules_and_plans_raise_errors_of_rules_with_diagnostics_only() -> None:
    found = []
    for path, tree in _trees("rules", "plan"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("Error"):
                texts = [arg for arg in node.args if isinstance(arg, ast.JoinedStr | ast.Constant)]
                if node.func.id in {"RuleError", "PlanError"} and texts:
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert found == []


def test_each_code_is_documented_and_each_documented_code_is_used() -> None:
    used = set()
    for path, tree in _trees("."):
        if path.name != "diagnostic_codes.py":
            constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
            used |= {text for text in constants if isinstance(text, str) and text in CODES}
    assert used == set(CODES)
    for path, tree in _trees("rules", "plan", "testing"):
        for node in ast.walk(tree):
            is_add = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in {"add", "Diagnostic"}
            first = node.args[0] if is_add and node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and len(node.args) > 1:
                assert first.value in CODES, f"{path}:{node.lineno}"


@pytest.mark.parametrize("name", CODES)
def test_codes_are_words_with_a_cause_and_a_remedy(name: str) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    cause, remedy = CODES[name]
    assert cause
    assert remedy
    assert not cause.endswith(".")
    assert not remedy.endswith(".")


SCOPE = Scope({"air": ["ts", "m", "temp"], "wall": ["ts", "m", "temp"]})


def test_a_planner_collects_all_errors_of_all_rules_with_their_paths() -> None:
    rules = [
        Rule("a", "air - wal > 0", on="m", within="5s", shapes={"hum": "increasing"}),
        Rule("b", "air - wall > 0", on="m", recovery=3, tolerance={"dust": 1}),
        Rule("c", "air > 0", on="m", quality={"memory": "1MB"}),
    ]
    planned = plan_rules(rules, SCOPE)
    assert planned.plan is None
    assert [(one.where, one.code, one.path) for one in planned.diagnostics] == [
        ('rule "a"', "unknown-stream", ("expr",)),
        ('rule "a"', "unknown-variable", ("shapes", "hum", "name")),
        ('rule "b"', "invalid-recovery", ("recovery",)),
        ('rule "b"', "unknown-variable", ("tolerance", "dust", "name")),
        ('rule "b"', "missing-within", ("within",)),
        ('rule "c"', "stream-count", ("quality", "memory")),
    ]
    assert planned.diagnostics[0].span == (6, 9)
    with pytest.raises(RuleError, match="`wal` must be one of the streams") as caught:
        make_plan(rules, SCOPE.columns)
    assert caught.value.diagnostics == tuple(planned.diagnostics)


def test_a_rule_raises_all_its_errors_at_once() -> None:
    with pytest.raises(RuleError, match=r"^rule .x.: `emit` must be one of witness, all; got 'some'") as caught:
        Rule("x", "a > 0", emit="some", for_="-1s", labels={"a b": "x"}, quality={"memory": "2G", "wait": "soon"})
    assert [(one.code, one.path) for one in caught.value.diagnostics] == [
        ("unknown-word", ("emit",)),
        ("out-of-range", ("for",)),
        ("invalid-label", ("labels", "a b", "name")),
        ("invalid-duration", ("quality", "wait")),
        ("invalid-size", ("quality", "memory")),
    ]
    assert caught.value.diagnostics[-1].hint == "did you mean `2GB`?"


def test_errors_are_joined_in_one_exception_of_the_class_of_their_part() -> None:
    condition = Diagnostic("invalid-condition", ("expr",), "bad", quoted="a >", span=(2, 3), where='rule "x"')
    rule = Diagnostic("out-of-range", ("for",), "`for` must not be negative", where='rule "x"')
    run = Diagnostic("no-rules", (), "`rules` must contain at least one rule")
    for errors, kind in [([condition], ExprError), ([condition, rule], RuleError), ([run], PlanError)]:
        with pytest.raises(kind, match=errors[0].message) as caught:
            Diagnostics(errors).raise_errors()
        assert type(caught.value) is kind
        assert caught.value.diagnostics == tuple(errors)
