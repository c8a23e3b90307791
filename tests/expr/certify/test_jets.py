"""Jets: enclosures of values, slopes and curvatures contain the results of the oracle, on random boxes."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expr.certify.random_expressions import (
    EXPONENTS,
    FUNCTIONS,
    NAMES,
    draw_number,
    draw_points,
    find_literals,
    find_names,
)
from expr.expression_trees import HARD, Tree, build
from naive import exact
from tocsin.expr import evaluate_number
from tocsin.expr.certify.interval_arithmetic import Interval
from tocsin.expr.certify.jets import BoxBatch, Jet, JetEvaluator

X, Y = ("var", "x", None), ("var", "y", None)
ENDS = (*(value for value in HARD if math.isfinite(value)), 0.1, -0.1, 25.0, 2.0, 1.5707963267948966, 1e-200, 64.0)
_LARGEST = 1.7976931348623157e308


def _powers() -> list[Tree]:
    found: list[Tree] = []
    for index in (*EXPONENTS, 2000.0, 65.0, -65.0):
        found.append(("**", X, ("num", index) if index >= 0 else ("neg", ("num", -index))))
    return found


OPERATIONS: list[Tree] = [
    *((op, X, Y) for op in ("+", "-", "*", "/", "**")),
    *(("call", name, X) for name in FUNCTIONS),
    *_powers(),
    ("-", ("num", 1.0), ("/", X, ("num", 100.0))),
    ("call", "sqrt", ("-", ("num", 1.0), ("/", X, ("num", 25.0)))),
    ("call", "max", X, Y),
    ("call", "where", (">", X, Y), X, ("neg", Y)),
]


def _box(random: Random, ends: tuple[float, ...]) -> tuple[float, float]:
    low, high = sorted((random.choice(ends), random.choice(ends)))
    kind = random.random()
    if kind < 0.2:
        return low, low
    if kind < 0.4:
        return low, min(math.nextafter(low, math.inf), _LARGEST)
    return low, high


def _run(tree: Tree, box: dict[str, tuple[float, float]], *, with_curvature: bool = False) -> tuple[Jet, bool]:
    boxes: BoxBatch = {(name, None): Interval(np.array([low]), np.array([high])) for name, (low, high) in box.items()}
    evaluator = JetEvaluator(("x", None), with_curvature=with_curvature)
    jet = evaluator.evaluate(build(tree), boxes)
    return jet, bool(np.all(evaluator.defined))


def _holds(interval: Interval, low: Fraction, high: Fraction) -> bool:
    """Return whether an interval and the bounds of a number overlap."""
    least, most = float(interval.lo.ravel()[0]), float(interval.hi.ravel()[0])
    return (least == -math.inf or Fraction(least) <= high) and (most == math.inf or low <= Fraction(most))


def _check_values(random: Random, tree: Tree, box: dict[str, tuple[float, float]]) -> None:
    jet, defined = _run(tree, box)
    for _ in range(6):
        at = {(name, None): random.choice(draw_points(random, box[name], find_literals(tree), 2)) for name in box}
        computed = float(evaluate_number(build(tree), {key: np.array([value]) for key, value in at.items()})[0])
        assert not (defined and math.isnan(computed)), f"{build(tree)} on {box} is not defined at {at}"
        ball = exact.value(tree, at)
        if not math.isnan(computed):
            assert _holds(jet.value, Fraction(computed), Fraction(computed)), f"{build(tree)} on {box} at {at}"
            if ball is not None:
                assert _holds(jet.value, ball.lo, ball.hi), f"{build(tree)} on {box} at {at}, exactly"


@pytest.mark.parametrize("tree", OPERATIONS, ids=lambda tree: str(build(tree)))
def test_operation_encloses_exact_and_double_results(tree: Tree) -> None:
    random = Random(7)
    for _ in range(80):
        _check_values(random, tree, {"x": _box(random, ENDS), "y": _box(random, ENDS)})


@given(st.builds(Random, st.integers(0, 2**32 - 1)))
def test_expression_encloses_its_values_and_is_defined_when_marked_defined(random: Random) -> None:
    tree = draw_number(random, 3, NAMES[:2])
    _check_values(random, tree, {name: _box(random, ENDS) for name in NAMES[:2]})


def _exact_points(tree: Tree, at: dict[tuple[str, None], float], xs: list[float]) -> list[tuple[Fraction, exact.Ball]]:
    found = []
    for x in xs:
        values = {**at, ("x", None): x}
        computed = evaluate_number(build(tree), {key: np.array([value]) for key, value in values.items()})
        ball = exact.value(tree, values)
        if ball is not None and not np.isnan(computed[0]):
            found.append((Fraction(x), ball))
    return found


def _slope(a: tuple[Fraction, exact.Ball], b: tuple[Fraction, exact.Ball]) -> exact.Ball:
    length = b[0] - a[0]
    return exact.Ball((b[1].mid - a[1].mid) / length, (a[1].err + b[1].err) / abs(length))


TAME = (-5.0, -2.0, -1.0, -0.5, 0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 10.0, 100.0, 1e-3, 1e-9)


@given(st.builds(Random, st.integers(0, 2**32 - 1)))
def test_slopes_and_curvature_enclose_divided_differences(random: Random) -> None:
    tree = draw_number(random, random.choice((1, 2, 3)), NAMES[:2])
    box = {name: _box(random, TAME) for name in NAMES[:2]}
    jet, defined = _run(tree, box, with_curvature=True)
    if not defined or "x" not in find_names(tree):
        return
    assert jet.slope is not None
    assert jet.curvature is not None
    at = {("y", None): random.choice(draw_points(random, box["y"], find_literals(tree), 2))}
    xs = draw_points(random, box["x"], find_literals(tree), 3)
    found = _exact_points(tree, at, random.sample(xs, min(len(xs), 6)))
    found.sort()
    for a, b in itertools.pairwise(found):
        slope = _slope(a, b)
        assert _holds(jet.slope, slope.lo, slope.hi), f"{build(tree)} on {box} at {at}, {float(a[0])}, {float(b[0])}"
    for a, b, c in zip(found, found[1:], found[2:], strict=False):
        first, second, length = _slope(a, b), _slope(b, c), (c[0] - a[0]) / 2
        low, high = (second.lo - first.hi) / length, (second.hi - first.lo) / length
        assert _holds(jet.curvature, low, high), f"{build(tree)} on {box} at {at}: {[float(x) for x, _ in (a, b, c)]}"
