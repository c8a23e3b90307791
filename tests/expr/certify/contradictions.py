"""Contradictions of verdicts: points where a verdict of the certifier is wrong.

A verdict is checked against exact values of the oracle and against results in double precision, which may differ from
the proved shape by `rounding`. A proved expression must be defined for all values of the variable or for none.
"""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np

from expr.certify.random_expressions import Domains, draw_points, find_literals, find_names
from expr.expression_trees import Tree, build
from naive import exact
from tocsin.expr import evaluate_number
from tocsin.expr.certify import Verdict

Slice = dict[tuple[str, str | None], float]


def find_contradiction(
    random: Random, tree: Tree, name: str, verdict: Verdict, domains: Domains, slices: int = 4, count: int = 12
) -> str:
    """Return a description of a contradiction to the verdict of a variable, or an empty text.

    A slice fixes the other variables at random values, and has `count` values of the variable.
    """
    if verdict.verdict == "refuted":
        return _check_triple(tree, name, verdict, domains)
    if not verdict.proved:
        return ""
    literals = find_literals(tree)
    for _ in range(slices):
        at = {
            (other, None): random.choice(draw_points(random, domains[other], literals, 3))
            for other in find_names(tree) - {name}
        }
        xs = draw_points(random, domains[name], literals, count)
        if problem := _check_slice(tree, name, verdict, at, xs):
            return f"{problem}; at {at}"
    return ""


def _check_triple(tree: Tree, name: str, verdict: Verdict, domains: Domains) -> str:
    assert verdict.counterexample is not None
    xs, at = verdict.counterexample["x"], verdict.counterexample["at"]
    inside = [(name, x) for x in xs] + list(at.items())
    if not all(domains[key][0] <= value <= domains[key][1] for key, value in inside) or not xs[0] < xs[1] < xs[2]:
        return f"{inside} is outside"
    fixed: Slice = {(key, None): value for key, value in at.items()}
    low, top, high = (exact.value(tree, {**fixed, (name, None): x}) for x in xs)
    if low and top and high and exact.above(top, low) and exact.above(top, high):
        return ""
    return f"{verdict.counterexample} is not a peak"


def _check_slice(tree: Tree, name: str, verdict: Verdict, at: Slice, xs: list[float]) -> str:
    columns = {key: np.full(len(xs), value) for key, value in at.items()}
    computed = evaluate_number(build(tree), {**columns, (name, None): np.array(xs)})
    defined = ~np.isnan(computed)
    if not defined.any():
        return ""
    if not defined.all():
        return f"not defined at {xs[int(np.argmin(defined))]!r}"
    if verdict.rounding != math.inf:
        balls = [exact.Ball(Fraction(float(value))) for value in computed]
        if problem := find_deviation(verdict.verdict, xs, balls, Fraction(verdict.rounding)):
            return f"doubles: {problem}"
    known = [(x, ball) for x in xs if (ball := exact.value(tree, {**at, (name, None): x})) is not None]
    return find_deviation(verdict.verdict, [x for x, _ in known], [ball for _, ball in known])


def find_deviation(shape: str, xs: list[float], values: list[exact.Ball], by: Fraction = Fraction(0)) -> str:
    """Return a description of values that certainly differ from a shape by more than `by`, or an empty text."""
    if not values:
        return ""
    if shape in ("increasing", "decreasing", "constant"):
        falls = _find_decrease(xs, values, by) if shape != "decreasing" else ""
        return falls or (_find_decrease(xs[::-1], values[::-1], by) if shape != "increasing" else "")
    least = [0]
    for i in range(1, len(values)):
        least.append(i if values[i].hi < values[least[-1]].hi else least[-1])
    right = len(values) - 1
    for i in range(len(values) - 2, 0, -1):
        left = least[i - 1]
        if exact.above(values[i], values[left], by) and exact.above(values[i], values[right], by):
            return f"higher at {xs[i]!r} than at {xs[left]!r} and {xs[right]!r}"
        right = i if values[i].hi < values[right].hi else right
    return ""


def _find_decrease(xs: list[float], values: list[exact.Ball], by: Fraction) -> str:
    most = 0
    for i in range(1, len(values)):
        if exact.above(values[most], values[i], by):
            return f"higher at {xs[most]!r} than at {xs[i]!r}"
        most = i if values[i].lo > values[most].lo else most
    return ""
