"""Composition rules: derive the shape of an expression along one variable from its tree.

Algorithm: from the leaves to the root, each node gets the shapes that it certainly has along the variable, for any
fixed values of the other variables: increasing, decreasing, convex, concave, quasiconvex, quasiconcave. They follow
from the shapes and ranges of its children. In one dimension, more rules hold than in disciplined programming. A
quasiconvex function of a monotone function is quasiconvex. A monotone function times a factor of unknown sign is
monotone in an unknown direction, which is the same as quasiconvex and quasiconcave.

Guarantees: each rule is a theorem about functions on an interval. No rule requires continuity. With `doubles`, only
rules are applied that also hold for correctly rounded operations. Rounding is monotone, so the computed results have
these shapes exactly.

Complexity: one visit of each node.

References: Agrawal and Boyd, Disciplined quasiconvex programming, Optim. Lett. 14 (2020), for the rules in several
dimensions. The rules for shapes of sums and products are in textbooks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

import numpy as np

from tocsin.expr.certify.interval_arithmetic import Interval
from tocsin.expr.certify.jets import BoxBatch, JetEvaluator
from tocsin.expr.syntax_tree import (
    Binary,
    Bool,
    Call,
    Compare,
    Key,
    Node,
    Number,
    Unary,
    Variable,
    is_independent_of,
    literal_value,
)


class Shape(Flag):
    """The shapes that a function certainly has along a variable. Increasing and decreasing include constant parts."""

    NONE = 0
    INCREASING = auto()
    DECREASING = auto()
    CONVEX = auto()
    CONCAVE = auto()
    QUASICONVEX = auto()
    QUASICONCAVE = auto()


NONE, INC, DEC, CVX, CCV = Shape.NONE, Shape.INCREASING, Shape.DECREASING, Shape.CONVEX, Shape.CONCAVE
QCVX, QCCV = Shape.QUASICONVEX, Shape.QUASICONCAVE
# Increasing or decreasing; the direction may depend on the other variables.
MONOTONE = QCVX | QCCV
AFFINE = CVX | CCV | MONOTONE
CONSTANT = INC | DEC | AFFINE

_MIRRORED = {INC: DEC, DEC: INC, CVX: CCV, CCV: CVX, QCVX: QCCV, QCCV: QCVX}
_INCREASING_CURVATURE = {"exp": CVX, "ln": CCV, "log10": CCV, "sqrt": CCV, "tanh": NONE, "floor": NONE, "ceil": NONE}
# Functions with correctly rounded results. The C library guarantees this for no other function.
_CORRECTLY_ROUNDED = ("sqrt", "floor", "ceil")
# A quarter turn and half a turn, rounded down because pi is not a double.
_QUARTER, _HALF = 1.5707963, 3.1415926


@dataclass(frozen=True)
class ValueRange:
    """The range of a node over the whole domain."""

    lo: float
    hi: float

    @property
    def sign(self) -> int:
        """Sign of the values: 1 if never negative, -1 if never positive, 0 if not known."""
        return 1 if self.lo >= 0 else -1 if self.hi <= 0 else 0


def mirror_shape(shape: Shape) -> Shape:
    """Return the shapes of -f from the shapes of f."""
    result = NONE
    for one, other in _MIRRORED.items():
        if one in shape:
            result |= other
    return result


def add_implied_shapes(shape: Shape) -> Shape:
    """Add implied shapes: monotone implies quasiconvex and quasiconcave, convex implies quasiconvex."""
    if shape & (INC | DEC):
        shape |= MONOTONE
    if CVX in shape:
        shape |= QCVX
    if CCV in shape:
        shape |= QCCV
    return shape


class ShapeAnalyzer:
    """An analyzer of the shapes of trees along one variable, over boxes that cover the domain."""

    def __init__(self, along: Key, box: BoxBatch, *, doubles: bool = False) -> None:
        self._along, self._box, self._doubles = along, box, doubles
        self._ranges: dict[Node, ValueRange] = {}
        self._intervals: dict[int, Interval] = {}
        self._evaluated_trees: list[Node] = []

    def find_shape(self, node: Node) -> Shape:
        """Return the shapes that a node certainly has."""
        if not self._evaluated_trees:
            self._evaluate_ranges(node)
        shape = add_implied_shapes(self._derive_shape(node))
        if shape & (INC | DEC) and self._may_be_flat(node) and self.find_range(node).lo == self.find_range(node).hi:
            return CONSTANT
        # A rounded sum of curved terms is not exactly convex or concave.
        return shape & ~(CVX | CCV) if self._doubles and not self._is_independent(node) else shape

    def find_range(self, node: Node) -> ValueRange:
        """Return the range of a node over the domain."""
        if node not in self._ranges:
            if id(node) not in self._intervals:
                self._evaluate_ranges(node)
            value = self._intervals[id(node)]
            self._ranges[node] = ValueRange(float(value.lo.min()), float(value.hi.max()))
        return self._ranges[node]

    def _evaluate_ranges(self, tree: Node) -> None:
        """Evaluate a tree once to get the ranges of all its nodes."""
        JetEvaluator(ranges=self._intervals).evaluate(tree, self._box)
        # The ranges are stored by `id(node)`, so the nodes must not be freed.
        self._evaluated_trees.append(tree)

    def _may_be_flat(self, node: Node) -> bool:
        """Return whether the range of a node can be a single value although its operands vary."""
        if isinstance(node, Call):
            return node.name in ("floor", "ceil", "min", "max", "where")
        return isinstance(node, Binary) and node.op == "*" and not self._is_independent(node)

    def _is_independent(self, node: Node) -> bool:
        return is_independent_of(node, self._along)

    def _derive_shape(self, node: Node) -> Shape:
        if isinstance(node, Number) or self._is_independent(node):
            return CONSTANT
        if isinstance(node, Variable):
            return INC | AFFINE
        if isinstance(node, Unary):
            return mirror_shape(self.find_shape(node.operand))
        if isinstance(node, Binary):
            return self._binary_shape(node)
        assert isinstance(node, Call)
        if node.name == "where":
            return self._where_shape(node)
        if node.name == "pow":
            return self._power_shape(*node.args)
        shapes = [self.find_shape(arg) for arg in node.args]
        if node.name == "max":
            return self._maximum_shape(node.args, shapes)
        if node.name == "min":
            return mirror_shape(self._maximum_shape(node.args, [mirror_shape(shape) for shape in shapes]))
        return self._function_shape(node.name, node.args[0], shapes[0])

    def _binary_shape(self, node: Binary) -> Shape:
        if node.op == "**":
            return self._power_shape(node.left, node.right)
        left, right = self.find_shape(node.left), self.find_shape(node.right)
        if node.op in "+-":
            right = right if node.op == "+" else mirror_shape(right)
            # A shape of both terms is a shape of the sum. For quasiconvex and quasiconcave, one term must be constant.
            has_constant = self._is_independent(node.left) or self._is_independent(node.right)
            return left & right if has_constant else left & right & ~MONOTONE
        if node.op == "*":
            return self._product_shape(node, left, right)
        return self._quotient_shape(node, left, right)

    def _scale_shape(self, shape: Shape, sign: int) -> Shape:
        """Return the shapes of a function times a factor without the variable."""
        if sign:
            return shape if sign > 0 else mirror_shape(shape)
        keeps = NONE
        for both in (MONOTONE, CVX | CCV, INC | DEC):
            if both in shape:
                keeps |= both
        return keeps

    def _product_shape(self, node: Binary, left: Shape, right: Shape) -> Shape:
        if self._is_independent(node.left) or self._is_independent(node.right):
            factor, shape = (node.left, right) if self._is_independent(node.left) else (node.right, left)
            return self._scale_shape(shape, self.find_range(factor).sign)
        if node.left == node.right:
            return self._even_function_shape(node.left, left)
        signs = self.find_range(node.left).sign, self.find_range(node.right).sign
        if 0 in signs:
            return NONE
        # Negate negative factors: u v = (-u)(-v), with a minus in front if only one factor is negative.
        u = left if signs[0] > 0 else mirror_shape(left)
        v = right if signs[1] > 0 else mirror_shape(right)
        shape = u & v & (INC | DEC)
        if shape and CVX in u & v:
            shape |= CVX
        if CCV in u & v:
            shape |= QCCV
        return shape if signs[0] == signs[1] else mirror_shape(shape)

    def _quotient_shape(self, node: Binary, left: Shape, right: Shape) -> Shape:
        top, bottom = self.find_range(node.left), self.find_range(node.right)
        if bottom.lo <= 0 <= bottom.hi:
            return NONE
        if bottom.sign < 0:  # u / v = (-u) / (-v)
            left, right, top = mirror_shape(left), mirror_shape(right), ValueRange(-top.hi, -top.lo)
        if self._is_independent(node.right):
            return left
        if self._is_independent(node.left):
            inverse = mirror_shape(right) & ~(CVX | CCV) | (CVX if CCV in right else NONE)
            return self._scale_shape(add_implied_shapes(inverse), top.sign)
        shape = NONE
        if top.sign:
            over = left if top.sign > 0 else mirror_shape(left)
            found = over & mirror_shape(right) & (INC | DEC)
            shape |= found if top.sign > 0 else mirror_shape(found)
        return shape | self._ratio_shape(left, right, top.sign)

    def _ratio_shape(self, top: Shape, bottom: Shape, sign: int) -> Shape:
        # For v > 0, u / v <= t is the same as u - t v <= 0. So u / v is quasiconvex if u - t v is convex for all values
        # t of the quotient.
        shape, affine = NONE, CVX | CCV
        if CVX in top and (affine in bottom or (sign > 0 and CCV in bottom) or (sign < 0 and CVX in bottom)):
            shape |= QCVX
        if CCV in top and (affine in bottom or (sign > 0 and CVX in bottom) or (sign < 0 and CCV in bottom)):
            shape |= QCCV
        return shape

    def _even_function_shape(self, inner: Node, shape: Shape) -> Shape:
        """Return the shapes of a function of u that decreases below 0 and increases above 0, such as |u| or u**2."""
        sign = self.find_range(inner).sign
        if sign:
            signed = shape if sign > 0 else mirror_shape(shape)
            return signed & (INC | DEC | MONOTONE) | (CVX & signed)
        found = QCVX if MONOTONE in shape else NONE
        return found | (CVX if (CVX | CCV) in shape else NONE)

    def _power_shape(self, base: Node, exponent: Node) -> Shape:
        index, shape = literal_value(exponent), self.find_shape(base)
        if index is not None:
            return self._literal_power_shape(base, shape, index)
        if self._doubles:
            return NONE
        bottom, monotone = self.find_range(base), INC | DEC | MONOTONE
        if self._is_independent(exponent):
            sign = self.find_range(exponent).sign
            return (shape if sign > 0 else mirror_shape(shape)) & monotone if sign else NONE
        if not self._is_independent(base) or bottom.lo <= 0:
            return NONE
        grown = self.find_shape(exponent)
        curvature = CVX if (CVX | CCV) in grown else NONE
        if bottom.lo >= 1 or bottom.hi <= 1:
            return (grown if bottom.lo >= 1 else mirror_shape(grown)) & monotone | curvature
        return (MONOTONE if MONOTONE in grown else NONE) | curvature

    def _literal_power_shape(self, base: Node, shape: Shape, index: float) -> Shape:
        sign = self.find_range(base).sign
        if index == 0:
            return CONSTANT
        # Only a square is computed as a product. The power of NumPy may be inexact even for the exponent 1.
        if self._doubles and index != 2:
            return NONE
        if index == 1:
            return shape
        if index > 0 and index % 2 == 0:
            return self._even_function_shape(base, shape)
        if index > 0 and sign <= 0 and index % 2 == 1:
            return shape & (INC | DEC | MONOTONE) | (CCV & shape if sign < 0 else NONE)
        if index > 0:
            curvature = CVX if index > 1 else CCV
            return shape & (INC | DEC | MONOTONE) | (curvature & shape)
        # A negative power of a positive number is decreasing and convex. For a negative number it is the mirror image.
        if sign > 0 or (sign < 0 and index % 2 == 0):
            mirrored = shape if sign > 0 else mirror_shape(shape)
            return mirror_shape(mirrored) & (INC | DEC | MONOTONE) | (CVX if CCV in mirrored else NONE)
        return mirror_shape(shape) & (INC | DEC | MONOTONE) if sign < 0 and index % 2 == 1 else NONE

    def _function_shape(self, name: str, inner: Node, shape: Shape) -> Shape:
        if name == "abs":
            return self._even_function_shape(inner, shape)
        if self._doubles and name not in _CORRECTLY_ROUNDED:
            return NONE
        if name in _INCREASING_CURVATURE:
            curvature = _INCREASING_CURVATURE[name]
            if name == "tanh":
                curvature = {1: CCV, -1: CVX, 0: NONE}[self.find_range(inner).sign]
            return shape & (INC | DEC | MONOTONE) | (curvature & shape)
        return self._wave_shape(name, inner, shape)

    def _wave_shape(self, name: str, inner: Node, shape: Shape) -> Shape:
        """Return the shapes of sine or cosine if the argument stays in a suitable part of one turn."""
        where, monotone = self.find_range(inner), shape & (INC | DEC | MONOTONE)
        if name == "sin" and -_QUARTER <= where.lo and where.hi <= _QUARTER:
            return monotone
        if name == "cos" and 0 <= where.lo and where.hi <= _HALF:
            return mirror_shape(monotone)
        if name == "cos" and -_HALF <= where.lo and where.hi <= 0:
            return monotone
        top = (name == "sin" and 0 <= where.lo and where.hi <= _HALF) or (
            name == "cos" and -_HALF <= where.lo and where.hi <= _HALF
        )
        return QCCV if top and MONOTONE in shape else NONE

    def _maximum_shape(self, parts: tuple[Node, ...], shapes: list[Shape]) -> Shape:
        """Return the shapes of the maximum of several numbers: all common shapes except concave.

        If only one number depends on the variable, it keeps its quasiconvex and quasiconcave shapes.
        """
        common = CONSTANT
        for shape in shapes:
            common &= shape
        dependent = [shape for part, shape in zip(parts, shapes, strict=True) if not self._is_independent(part)]
        return common & (INC | DEC | CVX | QCVX) | (dependent[0] & MONOTONE if len(dependent) == 1 else NONE)

    def _where_shape(self, node: Call) -> Shape:
        test, chosen, other = node.args
        a, b = self.find_shape(chosen), self.find_shape(other)
        if self._is_independent(test):
            return a & b
        truth = self._truth_direction(test)
        if not truth:
            return NONE
        left, right = (b, a) if truth > 0 else (a, b)
        never_down, never_up = self._jump_directions(test, chosen, other, truth)
        shape = QCVX if DEC in left and INC in right else NONE
        shape |= QCCV if INC in left and DEC in right else NONE
        if never_down:
            shape |= INC & left & right
            shape |= (QCVX & left if INC in right else NONE) | (QCCV & right if INC in left else NONE)
        if never_up:
            shape |= DEC & left & right
            shape |= (QCVX & right if DEC in left else NONE) | (QCCV & left if DEC in right else NONE)
        return shape

    def _jump_directions(self, test: Node, chosen: Node, other: Node, truth: int) -> tuple[bool, bool]:
        """Return whether the jump from the left to the right piece is certainly never down, and never up."""
        box = self._change_box(test)
        if box is None:
            return True, True
        gap = JetEvaluator().evaluate(Binary("-", chosen, other), box).value
        never_down, never_up = bool((gap.lo >= 0).all()), bool((gap.hi <= 0).all())
        return (never_down, never_up) if truth > 0 else (never_up, never_down)

    def _change_box(self, test: Node) -> BoxBatch | None:
        """Return the part of the box where the truth of a test can change; None if it cannot change."""
        if not isinstance(test, Compare):
            return self._box
        for side, bound in ((test.left, test.right), (test.right, test.left)):
            if isinstance(side, Variable) and self._is_independent(bound):
                limit, domain = self.find_range(bound), self._box[self._along]
                lo, hi = max(limit.lo, float(domain.lo.min())), min(limit.hi, float(domain.hi.max()))
                shape = domain.lo.shape
                return (
                    {**self._box, self._along: Interval(np.full(shape, lo), np.full(shape, hi))} if lo <= hi else None
                )
        return self._box

    def _truth_direction(self, test: Node) -> int:
        """Return how the truth of a test changes while the variable increases.

        1 if a true test stays true, -1 if a false test stays false, 0 if not known.
        """
        if isinstance(test, Bool):
            ways = {self._truth_direction(arg) for arg in test.args if not self._is_independent(arg)}
            return ways.pop() if len(ways) == 1 else 0
        assert isinstance(test, Compare)
        left, right = self.find_shape(test.left), mirror_shape(self.find_shape(test.right))
        margin = left & right & (INC | DEC)
        if test.op in ("<", "<="):
            margin = mirror_shape(margin)
        return 1 if INC in margin else -1 if DEC in margin else 0
