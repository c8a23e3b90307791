"""Rules of composition: what an expression does as one variable grows, read off its tree.

Idea: bottom-up, each node gets the shapes that it surely has along the variable, for every fixed value of the others,
from the shapes and ranges of its parts: increasing, decreasing, convex, concave, quasiconvex, quasiconcave. One
dimension allows more than disciplined programming: quasiconvex of monotone is quasiconvex; a factor of unknown
sign keeps `monotone, one way or the other`, which is quasiconvex and quasiconcave at once.
Guarantee: each rule is a theorem about functions on an interval; continuity is nowhere assumed. With `doubles`, only
those rules are used that hold for correctly rounded operations on doubles as well: rounding is monotone, so what
they prove the running program keeps to the last bit. Cost: one visit of each node.

Source: Agrawal and Boyd, Disciplined quasiconvex programming, Optim. Lett. 14 (2020), for the rules in several
dimensions; shared shapes of sums and products are textbook.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

import numpy as np

from tocsin.expr.certify.interval import Interval
from tocsin.expr.certify.jets import Box, Evaluator
from tocsin.expr.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Key,
    Node,
    Number,
    Unary,
    Variable,
    is_free,
    literal,
)


class Shape(Flag):
    """What is surely true of a function along the variable."""

    NONE = 0
    INCREASING = auto()
    DECREASING = auto()
    CONVEX = auto()
    CONCAVE = auto()
    QUASICONVEX = auto()
    QUASICONCAVE = auto()


NONE, INC, DEC, CVX, CCV = Shape.NONE, Shape.INCREASING, Shape.DECREASING, Shape.CONVEX, Shape.CONCAVE
QCVX, QCCV = Shape.QUASICONVEX, Shape.QUASICONCAVE
# Increasing or decreasing, which of them may depend on the other variables.
MONOTONE = QCVX | QCCV
AFFINE = CVX | CCV | MONOTONE
CONSTANT = INC | DEC | AFFINE

_TURNED = {INC: DEC, DEC: INC, CVX: CCV, CCV: CVX, QCVX: QCCV, QCCV: QCVX}
_RISING = {"exp": CVX, "ln": CCV, "log10": CCV, "sqrt": CCV, "tanh": NONE, "floor": NONE, "ceil": NONE}
# Of C's library, only the root is correctly rounded.
_EXACT = ("sqrt", "floor", "ceil")
# Where sine and cosine rise or fall: half a turn around 0, a little inside so that rounding of pi does no harm.
_QUARTER, _HALF = 1.5707963, 3.1415926


@dataclass(frozen=True)
class Range:
    """Where the values of a node lie, over the whole domain."""

    lo: float
    hi: float

    @property
    def sign(self) -> int:
        """1: never negative; -1: never positive; 0: not known."""
        return 1 if self.lo >= 0 else -1 if self.hi <= 0 else 0


def turned(shape: Shape) -> Shape:
    """The shapes of -f."""
    result = NONE
    for one, other in _TURNED.items():
        if one in shape:
            result |= other
    return result


def full(shape: Shape) -> Shape:
    """Add what follows: monotone is quasiconvex and quasiconcave, convex is quasiconvex."""
    if shape & (INC | DEC):
        shape |= MONOTONE
    if CVX in shape:
        shape |= QCVX
    if CCV in shape:
        shape |= QCCV
    return shape


class Rules:
    """Read the shapes of a tree along one variable, over boxes that cover the domain."""

    def __init__(self, along: Key, box: Box, *, doubles: bool = False) -> None:
        self._along, self._box, self._doubles = along, box, doubles
        self._ranges: dict[Node, Range] = {}
        self._known: dict[int, Interval] = {}
        self._kept: list[Node] = []

    def shape(self, node: Node) -> Shape:
        """The shapes that a node surely has."""
        if not self._kept:
            self._learn(node)
        shape = full(self._shape(node))
        if shape & (INC | DEC) and self._may_be_flat(node) and self.range(node).lo == self.range(node).hi:
            return CONSTANT
        # Sums of rounded terms that curve may wiggle.
        return shape & ~(CVX | CCV) if self._doubles and not self._is_free(node) else shape

    def range(self, node: Node) -> Range:
        """The range of a node over the domain."""
        if node not in self._ranges:
            if id(node) not in self._known:
                self._learn(node)
            value = self._known[id(node)]
            self._ranges[node] = Range(float(value.lo.min()), float(value.hi.max()))
        return self._ranges[node]

    def _learn(self, tree: Node) -> None:
        """Evaluate a tree once: that tells the ranges of all its parts as well, which live as long as it does."""
        Evaluator(ranges=self._known).run(tree, self._box)
        self._kept.append(tree)

    def _may_be_flat(self, node: Node) -> bool:
        """Tell whether it is worth a look if a node has a single value: a step or a choice, or a product with 0."""
        if isinstance(node, Call):
            return node.name in ("floor", "ceil", "min", "max", "where")
        return isinstance(node, Binary) and node.op == "*" and not self._is_free(node)

    def _is_free(self, node: Node) -> bool:
        return is_free(node, self._along)

    def _shape(self, node: Node) -> Shape:
        if isinstance(node, Number) or self._is_free(node):
            return CONSTANT
        if isinstance(node, Variable):
            return INC | AFFINE
        if isinstance(node, Unary):
            return turned(self.shape(node.operand))
        if isinstance(node, Binary):
            return self._binary(node)
        assert isinstance(node, Call)
        if node.name == "where":
            return self._where(node)
        if node.name == "pow":
            return self._power(*node.args)
        shapes = [self.shape(arg) for arg in node.args]
        if node.name == "max":
            return self._largest(node.args, shapes)
        if node.name == "min":
            return turned(self._largest(node.args, [turned(shape) for shape in shapes]))
        return self._function(node.name, node.args[0], shapes[0])

    def _binary(self, node: Binary) -> Shape:
        if node.op == "**":
            return self._power(node.left, node.right)
        left, right = self.shape(node.left), self.shape(node.right)
        if node.op in "+-":
            right = right if node.op == "+" else turned(right)
            # What holds of both terms holds of the sum, but for the quasi shapes: those bear constants only.
            common = left & right & ~MONOTONE
            return common | (left & right & MONOTONE if self._is_free(node.left) or self._is_free(node.right) else NONE)
        if node.op == "*":
            return self._product(node, left, right)
        return self._quotient(node, left, right)

    def _scaled(self, shape: Shape, sign: int) -> Shape:
        """A shape times a factor without the variable."""
        if sign:
            return shape if sign > 0 else turned(shape)
        keeps = NONE
        for both in (MONOTONE, CVX | CCV, INC | DEC):
            if both in shape:
                keeps |= both
        return keeps

    def _product(self, node: Binary, left: Shape, right: Shape) -> Shape:
        if self._is_free(node.left) or self._is_free(node.right):
            factor, shape = (node.left, right) if self._is_free(node.left) else (node.right, left)
            return self._scaled(shape, self.range(factor).sign)
        if node.left == node.right:
            return self._valley(node.left, left, convex=True)
        signs = self.range(node.left).sign, self.range(node.right).sign
        if 0 in signs:
            return NONE
        # Turn both factors up: u v = (-u)(-v), and a minus in front if only one was turned.
        u = left if signs[0] > 0 else turned(left)
        v = right if signs[1] > 0 else turned(right)
        shape = u & v & (INC | DEC)
        if shape and CVX in u & v:
            shape |= CVX
        if CCV in u & v:
            shape |= QCCV
        return shape if signs[0] == signs[1] else turned(shape)

    def _quotient(self, node: Binary, left: Shape, right: Shape) -> Shape:
        top, bottom = self.range(node.left), self.range(node.right)
        if bottom.lo <= 0 <= bottom.hi:
            return NONE
        if bottom.sign < 0:  # u / v = (-u) / (-v)
            left, right, top = turned(left), turned(right), Range(-top.hi, -top.lo)
        if self._is_free(node.right):
            return left
        if self._is_free(node.left):
            inverse = turned(right) & ~(CVX | CCV) | (CVX if CCV in right else NONE)
            return self._scaled(full(inverse), top.sign)
        shape = NONE
        if top.sign:
            over = left if top.sign > 0 else turned(left)
            found = over & turned(right) & (INC | DEC)
            shape |= found if top.sign > 0 else turned(found)
        return shape | self._ratio(left, right, top.sign)

    def _ratio(self, top: Shape, bottom: Shape, sign: int) -> Shape:
        """Level sets of u / v, v > 0, are those of u - t v: convex where that is convex for every t that matters."""
        shape, affine = NONE, CVX | CCV
        if CVX in top and (affine in bottom or (sign > 0 and CCV in bottom) or (sign < 0 and CVX in bottom)):
            shape |= QCVX
        if CCV in top and (affine in bottom or (sign > 0 and CVX in bottom) or (sign < 0 and CCV in bottom)):
            shape |= QCCV
        return shape

    def _valley(self, inner: Node, shape: Shape, *, convex: bool) -> Shape:
        """A function of u that falls below 0 and rises above: |u|, u², u⁴."""
        sign = self.range(inner).sign
        if sign:
            risen = shape if sign > 0 else turned(shape)
            return risen & (INC | DEC | MONOTONE) | (CVX & risen)
        found = QCVX if MONOTONE in shape else NONE
        return found | (CVX if convex and (CVX | CCV) in shape else NONE)

    def _power(self, base: Node, exponent: Node) -> Shape:
        index, shape = literal(exponent), self.shape(base)
        if index is not None:
            return self._fixed_power(base, shape, index)
        if self._doubles:
            return NONE
        bottom, monotone = self.range(base), INC | DEC | MONOTONE
        if self._is_free(exponent):
            sign = self.range(exponent).sign
            return (shape if sign > 0 else turned(shape)) & monotone if sign else NONE
        if not self._is_free(base) or bottom.lo <= 0:
            return NONE
        grown = self.shape(exponent)
        curve = CVX if (CVX | CCV) in grown else NONE
        if bottom.lo >= 1 or bottom.hi <= 1:
            return (grown if bottom.lo >= 1 else turned(grown)) & monotone | curve
        return (MONOTONE if MONOTONE in grown else NONE) | curve

    def _fixed_power(self, base: Node, shape: Shape, index: float) -> Shape:
        sign = self.range(base).sign
        if index == 0:
            return CONSTANT
        # Only a square is a product: NumPy's power may be off even where the exponent is 1.
        if self._doubles and index != 2:
            return NONE
        if index == 1:
            return shape
        if index > 0 and index % 2 == 0:
            return self._valley(base, shape, convex=True)
        if index > 0 and sign <= 0 and index % 2 == 1:
            return shape & (INC | DEC | MONOTONE) | (CCV & shape if sign < 0 else NONE)
        if index > 0:
            curve = CVX if index > 1 else CCV
            return shape & (INC | DEC | MONOTONE) | (curve & shape)
        # A negative power of what is positive falls and is convex; of what is negative it does as its mirror image.
        if sign > 0 or (sign < 0 and index % 2 == 0):
            mirrored = shape if sign > 0 else turned(shape)
            return turned(mirrored) & (INC | DEC | MONOTONE) | (CVX if CCV in mirrored else NONE)
        return turned(shape) & (INC | DEC | MONOTONE) if sign < 0 and index % 2 == 1 else NONE

    def _function(self, name: str, inner: Node, shape: Shape) -> Shape:
        if name == "abs":
            return self._valley(inner, shape, convex=True)
        if self._doubles and name not in _EXACT:
            return NONE
        if name in _RISING:
            curve = _RISING[name]
            if name == "tanh":
                curve = {1: CCV, -1: CVX, 0: NONE}[self.range(inner).sign]
            return shape & (INC | DEC | MONOTONE) | (curve & shape)
        return self._wave(name, inner, shape)

    def _wave(self, name: str, inner: Node, shape: Shape) -> Shape:
        """Sine and cosine on parts of one turn."""
        where, monotone = self.range(inner), shape & (INC | DEC | MONOTONE)
        if name == "sin" and -_QUARTER <= where.lo and where.hi <= _QUARTER:
            return monotone
        if name == "cos" and 0 <= where.lo and where.hi <= _HALF:
            return turned(monotone)
        if name == "cos" and -_HALF <= where.lo and where.hi <= 0:
            return monotone
        top = (name == "sin" and 0 <= where.lo and where.hi <= _HALF) or (
            name == "cos" and -_HALF <= where.lo and where.hi <= _HALF
        )
        return QCCV if top and MONOTONE in shape else NONE

    def _largest(self, parts: tuple[Node, ...], shapes: list[Shape]) -> Shape:
        """The largest of several: what all of them are, but concave; a single one that moves keeps its quasi shapes."""
        common = CONSTANT
        for shape in shapes:
            common &= shape
        moving = [shape for part, shape in zip(parts, shapes, strict=True) if not self._is_free(part)]
        return common & (INC | DEC | CVX | QCVX) | (moving[0] & MONOTONE if len(moving) == 1 else NONE)

    def _where(self, node: Call) -> Shape:
        test, chosen, other = node.args
        a, b = self.shape(chosen), self.shape(other)
        if self._is_free(test):
            return a & b
        truth = self._truth(test)
        if not truth:
            return NONE
        left, right = (b, a) if truth > 0 else (a, b)
        rise, fall = self._jump(test, chosen, other, truth)
        shape = QCVX if DEC in left and INC in right else NONE
        shape |= QCCV if INC in left and DEC in right else NONE
        if rise:
            shape |= INC & left & right
            shape |= (QCVX & left if INC in right else NONE) | (QCCV & right if INC in left else NONE)
        if fall:
            shape |= DEC & left & right
            shape |= (QCVX & right if DEC in left else NONE) | (QCCV & left if DEC in right else NONE)
        return shape

    def _jump(self, test: Node, chosen: Node, other: Node, truth: int) -> tuple[bool, bool]:
        """Tell whether the step from the left piece to the right one surely never falls, and never rises."""
        box = self._crossing(test)
        if box is None:
            return True, True
        gap = Evaluator().run(Binary("-", chosen, other), box).value
        rise, fall = bool((gap.lo >= 0).all()), bool((gap.hi <= 0).all())
        return (rise, fall) if truth > 0 else (fall, rise)

    def _crossing(self, test: Node) -> Box | None:
        """The part of the box where the truth of a test can change; None: nowhere."""
        if not isinstance(test, Compare):
            return self._box
        for side, bound in ((test.left, test.right), (test.right, test.left)):
            if isinstance(side, Variable) and self._is_free(bound):
                limit, domain = self.range(bound), self._box[self._along]
                lo, hi = max(limit.lo, float(domain.lo.min())), min(limit.hi, float(domain.hi.max()))
                shape = domain.lo.shape
                return (
                    {**self._box, self._along: Interval(np.full(shape, lo), np.full(shape, hi))} if lo <= hi else None
                )
        return self._box

    def _truth(self, test: Node) -> int:
        """1: once true, it stays true as the variable grows; -1: once false, it stays false; 0: not known."""
        if isinstance(test, Bool):
            ways = {self._truth(arg) for arg in test.args if not self._is_free(arg)}
            return ways.pop() if len(ways) == 1 else 0
        assert isinstance(test, Compare)
        left, right = self.shape(test.left), turned(self.shape(test.right))
        margin = left & right & (INC | DEC)
        if test.op in ("<", "<="):
            margin = turned(margin)
        return 1 if INC in margin else -1 if DEC in margin else 0
