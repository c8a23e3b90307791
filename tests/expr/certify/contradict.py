"""Look for what contradicts a verdict: exact values of the oracle, and what the machine makes of doubles."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np

from expr.certify.drawn import Domains, literals_of, names_of, points
from expr.trees import Tree, build
from naive import exact
from tocsin.expr import evaluate_number
from tocsin.expr.certify import Verdict

Slice = dict[tuple[str, str | None], float]


def contradiction(
    random: Random, tree: Tree, name: str, verdict: Verdict, domains: Domains, slices: int = 4, count: int = 12
) -> str:
    """Say what is wrong with the verdict of a variable, if anything is found."""
    if verdict.verdict == "refuted":
        return _wrong_triple(tree, name, verdict, domains)
    if not verdict.proved:
        return ""
    literals = literals_of(tree)
    for _ in range(slices):
        at = {
            (other, None): random.choice(points(random, domains[other], literals, 3))
            for other in names_of(tree) - {name}
        }
        xs = points(random, domains[name], literals, count)
        if wrong := _wrong_slice(tree, name, verdict, at, xs):
            return f"{wrong}; at {at}"
    return ""


def _wrong_triple(tree: Tree, name: str, verdict: Verdict, domains: Domains) -> str:
    assert verdict.counterexample is not None
    xs, at = verdict.counterexample["x"], verdict.counterexample["at"]
    inside = [(name, x) for x in xs] + list(at.items())
    if not all(domains[key][0] <= value <= domains[key][1] for key, value in inside) or not xs[0] < xs[1] < xs[2]:
        return f"{inside} is outside"
    fixed: Slice = {(key, None): value for key, value in at.items()}
    low, top, high = (exact.value(tree, {**fixed, (name, None): x}) for x in xs)
    if low and top and high and exact.above(top, low) and exact.above(top, high):
        return ""
    return f"{verdict.counterexample} is no peak"


def _wrong_slice(tree: Tree, name: str, verdict: Verdict, at: Slice, xs: list[float]) -> str:
    columns = {key: np.full(len(xs), value) for key, value in at.items()}
    computed = evaluate_number(build(tree), {**columns, (name, None): np.array(xs)})
    defined = ~np.isnan(computed)
    if not defined.any():
        return ""
    if not defined.all():
        return f"not defined at {xs[int(np.argmin(defined))]!r}"
    if verdict.rounding != math.inf:
        balls = [exact.Ball(Fraction(float(value))) for value in computed]
        if wrong := departs(verdict.verdict, xs, balls, Fraction(verdict.rounding)):
            return f"doubles: {wrong}"
    known = [(x, ball) for x in xs if (ball := exact.value(tree, {**at, (name, None): x})) is not None]
    return departs(verdict.verdict, [x for x, _ in known], [ball for _, ball in known])


def departs(word: str, xs: list[float], values: list[exact.Ball], by: Fraction = Fraction(0)) -> str:
    """Say where values depart from a shape by more than a number."""
    if not values:
        return ""
    if word in ("increasing", "decreasing", "constant"):
        falls = _fall(xs, values, by) if word != "decreasing" else ""
        return falls or (_fall(xs[::-1], values[::-1], by) if word != "increasing" else "")
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


def _fall(xs: list[float], values: list[exact.Ball], by: Fraction) -> str:
    most = 0
    for i in range(1, len(values)):
        if exact.above(values[most], values[i], by):
            return f"higher at {xs[most]!r} than at {xs[i]!r}"
        most = i if values[i].lo > values[most].lo else most
    return ""
