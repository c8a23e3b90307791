"""Realistic functions: no verdict contradicts its label, and at least 97 % of the verdicts equal their labels."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from random import Random

import pytest

from benchmarks import certify as benchmark
from expr.certify.contradictions import find_contradiction
from expr.certify.realistic_functions import CASES, Case
from expr.expression_trees import Tree
from tocsin.expr import Binary, Bool, Call, Compare, Node, Number, Unary, Variable
from tocsin.expr.certify import Certificate, build_margin, certify, parse_expression

# Share of verdicts that must equal their labels.
LEAST_SHARE = 0.97


def _tuples(node: Node) -> Tree:
    if isinstance(node, Number):
        return ("num", node.value)
    if isinstance(node, Variable):
        return ("var", node.stream, node.column)
    if isinstance(node, Unary):
        return ("neg", _tuples(node.operand))
    if isinstance(node, Binary | Compare):
        return (node.op, _tuples(node.left), _tuples(node.right))
    if isinstance(node, Bool):
        return (node.op, *(_tuples(part) for part in node.args))
    assert isinstance(node, Call)
    return ("call", node.name, *(_tuples(part) for part in node.args))


@functools.cache
def _certified(expr: str, *domains: tuple[str, tuple[float, float]]) -> Certificate:
    return certify(expr, dict(domains))


def test_collection_has_120_functions_and_300_variables() -> None:
    assert len(CASES) >= 120
    assert sum(len(case.labels) for case in CASES) >= 300
    assert all(case.domains.keys() == case.labels.keys() for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}: {case.expr[:40]}")
def test_no_label_and_no_sampled_point_contradicts_a_verdict(case: Case) -> None:
    found, tree, random = (
        _certified(case.expr, *case.domains.items()),
        _tuples(build_margin(parse_expression(case.expr))),
        Random(3),
    )
    for name, label in case.labels.items():
        verdict = found[name]
        assert verdict.verdict == "undecided" or not benchmark.contradicts(verdict.verdict, label), f"{name}: {verdict}"
        problem = find_contradiction(random, tree, name, verdict, case.domains, slices=2, count=5)
        assert not problem, f"{name}: {problem}"


def test_at_least_97_percent_of_verdicts_equal_their_labels() -> None:
    exact = []
    for case in CASES:
        found = _certified(case.expr, *case.domains.items())
        exact += [found[name].verdict == label for name, label in case.labels.items()]
    assert sum(exact) >= LEAST_SHARE * len(exact)


def test_certify_refutes_when_peak_is_narrow() -> None:
    tree = parse_expression("x + 5*max(0, 1 - 1000000*abs(x - 37.123))")
    assert certify(tree, {"x": (0, 100)})["x"].verdict == "refuted"


def test_verdict_is_constant_when_only_rounding_varies() -> None:
    assert certify(parse_expression("x/3*3 - x"), {"x": (1, 5)})["x"].verdict == "constant"


def test_benchmark_reports_decided_variables_and_times(tmp_path: Path) -> None:
    assert benchmark.main(["--quick", "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["certify"]["wrong"] == []
    assert found["certify"]["variables"] == sum(len(case.labels) for case in CASES[::12])
    assert set(found["grids"]) == {"11", "1001"}
