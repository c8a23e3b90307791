"""Functions as alerts use them: no verdict contradicts its label, and nearly all are exactly what the label says."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from random import Random

import pytest

from benchmarks import certify as benchmark
from expr.certify.contradict import contradiction
from expr.certify.realistic import CASES, Case
from expr.trees import Tree
from tocsin.expr import Binary, Bool, Call, Compare, Node, Number, Unary, Variable
from tocsin.expr.certify import Certificate, certify, margin_of, read
from tocsin.expr.certify.grid import pseudo_certify

# What the issue asks for.
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


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 120
    assert sum(len(case.labels) for case in CASES) >= 300
    assert all(case.domains.keys() == case.labels.keys() for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}: {case.expr[:40]}")
def test_no_label_and_no_verdict_is_contradicted(case: Case) -> None:
    found, tree, random = _certified(case.expr, *case.domains.items()), _tuples(margin_of(read(case.expr))), Random(3)
    for name, label in case.labels.items():
        verdict = found[name]
        assert verdict.verdict == "undecided" or not benchmark.contradicts(verdict.verdict, label), f"{name}: {verdict}"
        wrong = contradiction(random, tree, name, verdict, case.domains, slices=2, count=5)
        assert not wrong, f"{name}: {wrong}"


def test_nearly_all_are_decided_exactly_as_labelled() -> None:
    exact = []
    for case in CASES:
        found = _certified(case.expr, *case.domains.items())
        exact += [found[name].verdict == label for name, label in case.labels.items()]
    assert sum(exact) >= LEAST_SHARE * len(exact)


def test_a_grid_certifies_a_spike_between_its_points() -> None:
    tree, domains = read("x + 5*max(0, 1 - 1000000*abs(x - 37.123))"), {("x", None): (0.0, 100.0)}
    assert pseudo_certify(tree, ("x", None), domains, 11) == "increasing"
    assert certify(tree, {"x": (0, 100)})["x"].verdict == "refuted"


def test_a_grid_sees_a_peak_in_rounding() -> None:
    # In exact arithmetic this is 0 throughout.
    tree, domains = read("x/3*3 - x"), {("x", None): (1.0, 5.0)}
    assert pseudo_certify(tree, ("x", None), domains, 1001) == "refuted"
    assert certify(tree, {"x": (1, 5)})["x"].verdict == "constant"


def test_the_benchmark_says_how_many_were_decided_and_how_fast(tmp_path: Path) -> None:
    assert benchmark.main(["--quick", "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["certify"]["wrong"] == []
    assert found["certify"]["variables"] == sum(len(case.labels) for case in CASES[::12])
    assert set(found["grids"]) == {"11", "1001"}
