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

from tocsin.expr.certify.boxes import refined
from tocsin.expr.certify.functions import SMOOTH, powers, written
from tocsin.expr.certify.interval import Float, Interval, magnitude, power, subtract
from tocsin.expr.certify.jets import Box, Evaluator
from tocsin.expr.nodes import Binary, Bool, Call, Compare, Node, Number, Unary, Variable, literal

_HALF_UNIT = 2.0**-53
_LIBRARY = 8 * _HALF_UNIT
_TINY = 2.0**-1074
# The analysis itself is done in doubles.
_SAFETY = 1.0 + 1e-9
# A bound that is larger, relative to the values, is tried again on so many boxes.
_LOOSE, _FINE = 1e-14, 256


def rounding_bound(tree: Node, boxes: Box, *, decimals: bool = False) -> float:
    """Bound the distance between the computed and the exact value, over boxes on which the tree is defined.

    With `decimals`, the exact value is that with literals as they were written.
    """
    with np.errstate(all="ignore"):
        bound, most = _bound(tree, boxes, decimals=decimals)
        if bound > _LOOSE * most:
            bound = min(bound, _bound(tree, refined(boxes, _FINE), decimals=decimals)[0])
    return bound


def _bound(tree: Node, boxes: Box, *, decimals: bool) -> tuple[float, float]:
    """The largest error and the largest value over the boxes."""
    analysis = _Analysis(tree, boxes, decimals=decimals)
    bound, most = float(np.max(analysis.error(tree))) * _SAFETY, float(np.max(analysis.most(tree)))
    return bound if bound == bound else np.inf, most


class _Analysis:
    """Bounds of nodes on each box."""

    def __init__(self, tree: Node, boxes: Box, *, decimals: bool) -> None:
        self._boxes, self._evaluator = boxes, Evaluator(decimals=decimals)
        self._values = self._evaluator.ranges = {}
        self._evaluator.run(tree, boxes)
        self._zero = np.zeros(self._evaluator.defined.shape)

    def _value(self, node: Node) -> Interval:
        return self._values[id(node)]

    def most(self, node: Node) -> Float:
        """The largest absolute value of a node, exact or computed."""
        return magnitude(self._value(node))

    def error(self, node: Node) -> Float:
        """The bound of one node."""
        if isinstance(node, Number) and self._evaluator.decimals:
            return self._zero + float(abs(written(node.value) - Fraction(node.value)))
        if isinstance(node, Number | Variable):
            return self._zero
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
            return np.asarray(np.maximum.reduce(errors))
        if node.name in ("floor", "ceil"):
            return np.where(errors[0] == 0, 0.0, errors[0] + 1.0)
        unit = _HALF_UNIT if node.name == "sqrt" else _LIBRARY
        passed = _passed(errors[0], magnitude(SMOOTH[node.name](self._value(node.args[0]))[1]()[0]))
        if node.name == "sqrt":
            passed = np.minimum(passed, np.sqrt(errors[0]))
        return passed + unit * self.most(node) + _TINY

    def _binary(self, node: Binary) -> Float:
        if node.op == "**":
            return self._power(node, node.left, node.right)
        left, right = self.error(node.left), self.error(node.right)
        own = _HALF_UNIT * self.most(node) + _TINY
        if node.op in "+-":
            return left + right + own
        if node.op == "*":
            crossed = _passed(right, self.most(node.left)) + _passed(left, self.most(node.right))
            return crossed + left * right + own
        # |a'/b' - a/b| <= (|a' - a| + |a/b| |b' - b|) / |b'|, and b' lies in the enclosure too.
        bottom = self._value(node.right)
        least = np.maximum(bottom.lo, -bottom.hi)
        return np.where(least > 0, (left + _passed(right, self.most(node))) / least + own, np.inf)

    def _power(self, node: Node, base: Node, exponent: Node) -> Float:
        index, value = literal(exponent), self._value(base)
        if index is not None:
            slope = magnitude(powers(value, index, whole=float(index).is_integer())[1]()[0])
        else:
            lowered = Interval(self._value(exponent).lo - 1, self._value(exponent).hi - 1)
            slope = self.most(exponent) * magnitude(power(value, lowered))
        grown = self.most(node) * magnitude(SMOOTH["ln"](value)[0])
        passed = _passed(self.error(base), slope) + _passed(self.error(exponent), grown)
        return passed + _LIBRARY * self.most(node) + _TINY

    def _where(self, node: Call) -> Float:
        """A test of exact numbers chooses as exact arithmetic does; any other may choose the other branch.

        Where a test is sure of its truth all over a box, it is so for doubles too.
        """
        test, chosen, other = node.args
        choice = self._evaluator.choice(test, self._boxes)
        left, right = self.error(chosen), self.error(other)
        both = np.maximum(left, right)
        if not self._is_exact(test):
            both = both + magnitude(subtract(self._value(chosen), self._value(other)))
        return np.where(~choice.can, right, np.where(~choice.can_not, left, both))

    def _is_exact(self, test: Node) -> bool:
        if isinstance(test, Bool):
            return all(self._is_exact(arg) for arg in test.args)
        assert isinstance(test, Compare)
        return not (self.error(test.left).any() or self.error(test.right).any())


def _passed(error: Float, slope: Float) -> Float:
    """What an operation makes of the error of a part; of none it makes none, however steep it is."""
    return np.where(error == 0, 0.0, error * slope)
