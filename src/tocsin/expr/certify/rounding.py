"""How far an expression in doubles may lie from its exact value, over the whole domain.

Idea: running error analysis from the leaves up. Each operation adds half a unit in the last place of its largest
result (four for functions of the library), and passes on the errors of its parts by its largest slope.
Guarantee: |computed - exact| <= bound at every point of the domain; infinite where a test may go the other way for
its rounding, or where nothing bounds it. Cost: one visit of each node.

Source: Wilkinson's forward analysis; Higham, Accuracy and Stability of Numerical Algorithms, chapter 3.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tocsin.expr.certify.functions import SMOOTH, literal, powers, written
from tocsin.expr.certify.interval import Interval, magnitude, power
from tocsin.expr.certify.jets import Box, Evaluator
from tocsin.expr.nodes import Binary, Bool, Call, Compare, Node, Number, Unary, Variable

_HALF_UNIT = 2.0**-53
_LIBRARY = 8 * _HALF_UNIT
_TINY = 2.0**-1074
# The analysis itself is done in doubles.
_SAFETY = 1.0 + 1e-9


def rounding_bound(tree: Node, boxes: Box, *, decimals: bool = False) -> float:
    """Bound the distance between the computed and the exact value, over boxes on which the tree is defined.

    With `decimals`, the exact value is that with literals as they were written.
    """
    with np.errstate(all="ignore"):
        bound = float(_Analysis(boxes, decimals=decimals).error(tree)) * _SAFETY
    return bound if bound == bound else np.inf


class _Analysis:
    def __init__(self, boxes: Box, *, decimals: bool) -> None:
        self._boxes, self._decimals = boxes, decimals
        self._values: dict[int, Interval] = {}

    def _value(self, node: Node) -> Interval:
        if id(node) not in self._values:
            value = self._evaluate(node)
            self._values[id(node)] = Interval(value.lo.min(keepdims=True), value.hi.max(keepdims=True))
        return self._values[id(node)]

    def _evaluate(self, node: Node) -> Interval:
        return Evaluator(decimals=self._decimals).run(node, self._boxes).value

    def _most(self, node: Node) -> float:
        return float(magnitude(self._value(node))[0])

    def error(self, node: Node) -> float:
        """The bound of one node."""
        if isinstance(node, Number) and self._decimals:
            return float(abs(written(node.value) - Fraction(node.value)))
        if isinstance(node, Number | Variable):
            return 0.0
        if isinstance(node, Unary):
            return self.error(node.operand)
        if isinstance(node, Binary):
            return self._binary(node)
        assert isinstance(node, Call)
        if node.name == "pow":
            return self._power(node, node.args[0], node.args[1])
        if node.name == "where":
            return self._where(node)
        errors = [self.error(arg) for arg in node.args]
        if node.name in ("min", "max", "abs"):
            return max(errors)
        if node.name in ("floor", "ceil"):
            return errors[0] + 1.0 if errors[0] else 0.0
        unit = _HALF_UNIT if node.name == "sqrt" else _LIBRARY
        slope = float(magnitude(SMOOTH[node.name](self._value(node.args[0]))[1])[0])
        passed = errors[0] * slope if errors[0] else 0.0
        if node.name == "sqrt":
            passed = min(passed, float(np.sqrt(errors[0])))
        return passed + unit * self._most(node) + _TINY

    def _binary(self, node: Binary) -> float:
        if node.op == "**":
            return self._power(node, node.left, node.right)
        left, right = self.error(node.left), self.error(node.right)
        own = _HALF_UNIT * self._most(node) + _TINY
        if node.op in "+-":
            return left + right + own
        if node.op == "*":
            return self._most(node.left) * right + self._most(node.right) * left + left * right + own
        # |a'/b' - a/b| <= (|a' - a| + |a/b| |b' - b|) / |b'|, and b' lies in the enclosure too.
        bottom = self._value(node.right)
        least = float(np.maximum(bottom.lo, -bottom.hi)[0])
        return (left + self._most(node) * right) / least + own if least > 0 else np.inf

    def _power(self, node: Node, base: Node, exponent: Node) -> float:
        index, value = literal(exponent), self._value(base)
        passed = 0.0
        if error := self.error(base):
            lowered = powers(value, index, whole=float(index).is_integer())[1] if index is not None else None
            if lowered is None:
                smaller = Interval(self._value(exponent).lo - 1, self._value(exponent).hi - 1)
                passed += error * self._most(exponent) * float(magnitude(power(value, smaller))[0])
            else:
                passed += error * float(magnitude(lowered)[0])
        if error := self.error(exponent):
            passed += error * self._most(node) * float(magnitude(SMOOTH["ln"](value)[0])[0])
        return passed + _LIBRARY * self._most(node) + _TINY

    def _where(self, node: Call) -> float:
        """A test of exact numbers chooses as exact arithmetic does; any other may choose the other branch."""
        test, chosen, other = node.args
        apart = 0.0
        if not self._is_exact(test):
            apart = float(magnitude(self._evaluate(Binary("-", chosen, other))).max())
        return max(self.error(chosen), self.error(other)) + apart

    def _is_exact(self, test: Node) -> bool:
        if isinstance(test, Bool):
            return all(self._is_exact(arg) for arg in test.args)
        assert isinstance(test, Compare)
        return self.error(test.left) == 0.0 and self.error(test.right) == 0.0
