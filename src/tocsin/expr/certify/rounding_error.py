"""Rounding error: bound the difference between the double precision and the exact value of an expression.

Algorithm: forward error analysis from the leaves to the root. Each operation adds half a unit in the last place of its
largest result (four units for functions of a library) and multiplies the errors of its operands by its largest slope.

Guarantee: |computed - exact| <= bound at every point of the domain. The bound is infinite if no finite bound is known.
If rounding can change the result of a test, the bound includes the difference between the branches.

Complexity: one visit of each node.

References: Wilkinson's forward analysis; Higham, Accuracy and Stability of Numerical Algorithms, chapter 3.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tocsin.expr.certify.domain_boxes import refine_boxes
from tocsin.expr.certify.interval_arithmetic import Float, Interval, magnitude, power, subtract
from tocsin.expr.certify.interval_functions import SMOOTH_FUNCTIONS, decimal_value, power_function
from tocsin.expr.certify.jets import BoxBatch, JetEvaluator
from tocsin.expr.syntax_tree import Binary, Bool, Call, Compare, Node, Number, Unary, Variable, literal_value

_HALF_ULP = 2.0**-53
_LIBRARY_ERROR = 8 * _HALF_ULP
_TINY = 2.0**-1074
# Covers the rounding errors of the analysis itself.
_SAFETY = 1.0 + 1e-9
# If the bound is larger than this relative to the values, repeat the analysis on this number of smaller boxes.
_LOOSE_BOUND, _FINER_BOXES = 1e-14, 256


def bound_rounding_error(tree: Node, boxes: BoxBatch, *, decimals: bool = False) -> float:
    """Return a bound of |computed - exact| over boxes on which the tree is defined.

    With `decimals`, the exact value uses the decimals that the user wrote for the literals.
    """
    with np.errstate(all="ignore"):
        bound, size = _bound_error_and_size(tree, boxes, decimals=decimals)
        if bound > _LOOSE_BOUND * size:
            bound = min(bound, _bound_error_and_size(tree, refine_boxes(boxes, _FINER_BOXES), decimals=decimals)[0])
    return bound


def _bound_error_and_size(tree: Node, boxes: BoxBatch, *, decimals: bool) -> tuple[float, float]:
    """Return bounds of the error and of the absolute value over all boxes."""
    analysis = _ErrorAnalysis(tree, boxes, decimals=decimals)
    bound, size = float(np.max(analysis.bound_error(tree))) * _SAFETY, float(np.max(analysis.max_size(tree)))
    return np.inf if math.isnan(bound) else bound, size


class _ErrorAnalysis:
    """The error analysis of one tree on each box."""

    def __init__(self, tree: Node, boxes: BoxBatch, *, decimals: bool) -> None:
        self._boxes, self._evaluator = boxes, JetEvaluator(decimals=decimals)
        self._ranges = self._evaluator.ranges = {}
        self._evaluator.evaluate(tree, boxes)
        self._zero = np.zeros(self._evaluator.defined.shape)

    def _range(self, node: Node) -> Interval:
        return self._ranges[id(node)]

    def max_size(self, node: Node) -> Float:
        """Return the largest absolute value of a node, exact or computed."""
        return magnitude(self._range(node))

    def bound_error(self, node: Node) -> Float:
        """Return the bound of the error of a node."""
        if isinstance(node, Number) and self._evaluator.decimals:
            return self._zero + float(abs(decimal_value(node.value) - Fraction(node.value)))
        if isinstance(node, Number | Variable):
            return self._zero
        if isinstance(node, Unary):
            return self.bound_error(node.operand)
        if isinstance(node, Binary):
            return self._bound_binary(node)
        assert isinstance(node, Call)
        if node.name == "pow":
            return self._bound_power(node, node.args[0], node.args[1])
        if node.name == "where":
            return self._bound_where(node)
        errors = [self.bound_error(arg) for arg in node.args]
        if node.name in ("min", "max", "abs"):
            return np.asarray(np.maximum.reduce(errors))
        if node.name in ("floor", "ceil"):
            return np.where(errors[0] == 0, 0.0, errors[0] + 1.0)
        unit = _HALF_ULP if node.name == "sqrt" else _LIBRARY_ERROR
        slope, _ = SMOOTH_FUNCTIONS[node.name](self._range(node.args[0])).derivatives()
        propagated = _propagate(errors[0], magnitude(slope))
        if node.name == "sqrt":
            # |sqrt(a') - sqrt(a)| <= sqrt(|a' - a|), also where the slope is unbounded.
            propagated = np.minimum(propagated, np.sqrt(errors[0]))
        return propagated + unit * self.max_size(node) + _TINY

    def _bound_binary(self, node: Binary) -> Float:
        if node.op == "**":
            return self._bound_power(node, node.left, node.right)
        left, right = self.bound_error(node.left), self.bound_error(node.right)
        rounding = _HALF_ULP * self.max_size(node) + _TINY
        if node.op in "+-":
            return left + right + rounding
        if node.op == "*":
            crossed = _propagate(right, self.max_size(node.left)) + _propagate(left, self.max_size(node.right))
            return crossed + left * right + rounding
        # |a'/b' - a/b| <= (|a' - a| + |a/b| |b' - b|) / |b'|, and the enclosure of b also contains b'.
        bottom = self._range(node.right)
        smallest = np.maximum(bottom.lo, -bottom.hi)
        return np.where(smallest > 0, (left + _propagate(right, self.max_size(node))) / smallest + rounding, np.inf)

    def _bound_power(self, node: Node, base: Node, exponent: Node) -> Float:
        index, value = literal_value(exponent), self._range(base)
        if index is not None:
            derivative, _ = power_function(value, index, by_products=float(index).is_integer()).derivatives()
            slope = magnitude(derivative)
        else:
            lowered = Interval(self._range(exponent).lo - 1, self._range(exponent).hi - 1)
            slope = self.max_size(exponent) * magnitude(power(value, lowered))
        exponent_slope = self.max_size(node) * magnitude(SMOOTH_FUNCTIONS["ln"](value).value)
        propagated = _propagate(self.bound_error(base), slope) + _propagate(self.bound_error(exponent), exponent_slope)
        return propagated + _LIBRARY_ERROR * self.max_size(node) + _TINY

    def _bound_where(self, node: Call) -> Float:
        """Return the bound of `where`. If the sides of the test are not exact, rounding may select the other branch.

        If a test has the same truth on a whole box, this includes its truth in double precision.
        """
        test, chosen, other = node.args
        truth = self._evaluator.bound_truth(test, self._boxes)
        left, right = self.bound_error(chosen), self.bound_error(other)
        both = np.maximum(left, right)
        if not self._is_exact(test):
            both = both + magnitude(subtract(self._range(chosen), self._range(other)))
        return np.where(~truth.can_be_true, right, np.where(~truth.can_be_false, left, both))

    def _is_exact(self, test: Node) -> bool:
        if isinstance(test, Bool):
            return all(self._is_exact(arg) for arg in test.args)
        assert isinstance(test, Compare)
        return not (self.bound_error(test.left).any() or self.bound_error(test.right).any())


def _propagate(error: Float, slope: Float) -> Float:
    """Return the error of an operand times the slope of the operation; 0 if the error is 0 and the slope infinite."""
    return np.where(error == 0, 0.0, error * slope)
