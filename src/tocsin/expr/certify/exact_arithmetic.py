"""Exact arithmetic: evaluate an expression at single points with balls of 256 bits.

A ball is a number with an error bound. It contains the exact value of the formula, both with the decimals that the user
wrote for the literals and with their doubles. If two balls do not overlap, their order is certain. Candidates
for counterexamples are confirmed here, and the planner compares values at the ends of domains.

Complexity: some microseconds for each operation.

References: Arb (Johansson, IEEE Trans. Comput. 66, 2017), used through python-flint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tocsin.expr.certify.interval_functions import decimal_value
from tocsin.expr.syntax_tree import Binary, Bool, Call, Compare, Key, Node, Number, Unary, Variable, literal_value

BITS = 256

Point = Mapping[Key, float]


class _UndecidedError(Exception):
    """An operation is undefined at the point, or a ball is too wide to decide a comparison."""


def is_available() -> bool:
    """Return whether python-flint is installed."""
    try:
        import flint  # noqa: F401
    except ImportError:
        return False
    return True


def evaluate_exactly(tree: Node, point: Point) -> Any:
    """Return the exact value of an expression as a ball; None if it is undefined or undecided."""
    import flint

    before = flint.ctx.prec
    flint.ctx.prec = BITS
    try:
        value = _evaluate_node(tree, point, flint.arb)
    except _UndecidedError:
        return None
    finally:
        flint.ctx.prec = before
    return value if value.is_finite() else None


def is_peak(tree: Node, along: Key, xs: tuple[float, float, float], at: Point) -> bool:
    """Return whether f(x2) > max(f(x1), f(x3)) and x1 < x2 < x3 are certain."""
    if not xs[0] < xs[1] < xs[2]:
        return False
    low, top, high = (evaluate_exactly(tree, {**at, along: x}) for x in xs)
    return None not in (low, top, high) and bool(top > low) and bool(top > high)


def _evaluate_node(node: Node, point: Point, arb: Any) -> Any:
    if isinstance(node, Number):
        return arb(node.value, 0.0 if decimal_value(node.value) == node.value else math.ulp(node.value) / 2)
    if isinstance(node, Variable):
        return arb(point[node.key])
    if isinstance(node, Unary):
        return -_evaluate_node(node.operand, point, arb)
    if isinstance(node, Binary):
        return _evaluate_binary(node.op, node.left, node.right, point, arb)
    assert isinstance(node, Call)
    if node.name == "where":
        return _evaluate_node(node.args[1 if _evaluate_condition(node.args[0], point, arb) else 2], point, arb)
    if node.name == "pow":
        return _evaluate_binary("**", node.args[0], node.args[1], point, arb)
    values = [_evaluate_node(arg, point, arb) for arg in node.args]
    if node.name in ("min", "max"):
        total = values[0]
        for value in values[1:]:
            total = total.min(value) if node.name == "min" else total.max(value)
        return total
    return _FUNCTIONS[node.name](values[0])


def _evaluate_binary(op: str, left: Node, right: Node, point: Point, arb: Any) -> Any:
    a, b = _evaluate_node(left, point, arb), _evaluate_node(right, point, arb)
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return a * b
    if op == "/":
        if b.contains(0):
            raise _UndecidedError
        return a / b
    return _power(a, b, literal_value(right), arb)


def _power(a: Any, b: Any, index: float | None, arb: Any) -> Any:
    if index is not None and index.is_integer() and abs(index) <= 1024:
        if index < 0 and a.contains(0):
            raise _UndecidedError
        return a ** int(index)
    if a == 0 and b > 0:
        return arb(0)
    if not a > 0:
        raise _UndecidedError
    return a**b


def _require_positive(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(a: Any) -> Any:
        if not a > 0:
            raise _UndecidedError
        return function(a)

    return apply


def _square_root(a: Any) -> Any:
    if not (a >= 0):
        raise _UndecidedError
    return a.sqrt()


_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "abs": abs,
    "ceil": lambda a: a.ceil(),
    "cos": lambda a: a.cos(),
    "exp": lambda a: a.exp(),
    "floor": lambda a: a.floor(),
    "ln": _require_positive(lambda a: a.log()),
    "log10": _require_positive(lambda a: a.log_base(10)),
    "sin": lambda a: a.sin(),
    "sqrt": _square_root,
    "tanh": lambda a: a.tanh(),
}


def _evaluate_condition(node: Node, point: Point, arb: Any) -> bool:
    if isinstance(node, Bool):
        truths = [_evaluate_condition(arg, point, arb) for arg in node.args]
        return all(truths) if node.op == "and" else any(truths)
    assert isinstance(node, Compare)
    a, b = _evaluate_node(node.left, point, arb), _evaluate_node(node.right, point, arb)
    if node.op in ("<", "<="):
        a, b = b, a
    strict = node.op in (">", "<")
    if (a > b) if strict else (a >= b):
        return True
    if (a <= b) if strict else (a < b):
        return False
    raise _UndecidedError
