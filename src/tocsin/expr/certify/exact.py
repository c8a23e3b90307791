"""Evaluate an expression at single points with balls of 256 bits: what is said of a difference is certain.

Guarantee: a result is a ball that holds the exact value of the formula, with the literals both as they were written
and as the doubles they are read as; None where an operation is not defined there or the ball is too wide to decide a
test.
Cost: some microseconds per operation. Source: Arb (Johansson, IEEE Trans. Comput. 66, 2017) through python-flint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tocsin.expr.certify.functions import written
from tocsin.expr.nodes import Binary, Bool, Call, Compare, Key, Node, Number, Unary, Variable, literal

BITS = 256

Point = Mapping[Key, float]


class _Undecided(Exception):
    """Not defined here, or not to be told apart."""


def available() -> bool:
    """Tell whether python-flint is installed."""
    try:
        import flint  # noqa: F401
    except ImportError:
        return False
    return True


def ball(tree: Node, point: Point) -> Any:
    """The exact value of an expression, as a ball; None: not defined, or a test on the way is too close to call."""
    import flint

    before = flint.ctx.prec
    flint.ctx.prec = BITS
    try:
        value = _value(tree, point, flint.arb)
    except _Undecided:
        return None
    finally:
        flint.ctx.prec = before
    return value if value.is_finite() else None


def is_peak(tree: Node, along: Key, xs: tuple[float, float, float], at: Point) -> bool:
    """Tell whether f(x2) > max(f(x1), f(x3)) is certain for x1 < x2 < x3."""
    if not xs[0] < xs[1] < xs[2]:
        return False
    low, top, high = (ball(tree, {**at, along: x}) for x in xs)
    return None not in (low, top, high) and bool(top > low) and bool(top > high)


def _value(node: Node, point: Point, arb: Any) -> Any:
    if isinstance(node, Number):
        return arb(node.value, 0.0 if written(node.value) == node.value else math.ulp(node.value) / 2)
    if isinstance(node, Variable):
        return arb(point[node.key])
    if isinstance(node, Unary):
        return -_value(node.operand, point, arb)
    if isinstance(node, Binary):
        return _binary(node.op, node.left, node.right, point, arb)
    assert isinstance(node, Call)
    if node.name == "where":
        return _value(node.args[1 if _truth(node.args[0], point, arb) else 2], point, arb)
    if node.name == "pow":
        return _binary("**", node.args[0], node.args[1], point, arb)
    values = [_value(arg, point, arb) for arg in node.args]
    if node.name in ("min", "max"):
        total = values[0]
        for value in values[1:]:
            total = total.min(value) if node.name == "min" else total.max(value)
        return total
    return _FUNCTIONS[node.name](values[0])


def _binary(op: str, left: Node, right: Node, point: Point, arb: Any) -> Any:
    a, b = _value(left, point, arb), _value(right, point, arb)
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if op == "/":
        if b.contains(0):
            raise _Undecided
        return a / b
    return _power(a, b, literal(right), arb)


def _power(a: Any, b: Any, index: float | None, arb: Any) -> Any:
    if index is not None and index.is_integer() and abs(index) <= 1024:
        if index < 0 and a.contains(0):
            raise _Undecided
        return a ** int(index)
    if a == 0 and b > 0:
        return arb(0)
    if not a > 0:
        raise _Undecided
    return a**b


def _positive(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(a: Any) -> Any:
        if not a > 0:
            raise _Undecided
        return function(a)

    return apply


def _root(a: Any) -> Any:
    if not (a >= 0):
        raise _Undecided
    return a.sqrt()


_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "abs": abs,
    "ceil": lambda a: a.ceil(),
    "cos": lambda a: a.cos(),
    "exp": lambda a: a.exp(),
    "floor": lambda a: a.floor(),
    "ln": _positive(lambda a: a.log()),
    "log10": _positive(lambda a: a.log_base(10)),
    "sin": lambda a: a.sin(),
    "sqrt": _root,
    "tanh": lambda a: a.tanh(),
}


def _truth(node: Node, point: Point, arb: Any) -> bool:
    if isinstance(node, Bool):
        truths = [_truth(arg, point, arb) for arg in node.args]
        return all(truths) if node.op == "and" else any(truths)
    assert isinstance(node, Compare)
    a, b = _value(node.left, point, arb), _value(node.right, point, arb)
    if node.op in ("<", "<="):
        a, b = b, a
    strict = node.op in (">", "<")
    if (a > b) if strict else (a >= b):
        return True
    if (a <= b) if strict else (a < b):
        return False
    raise _Undecided
