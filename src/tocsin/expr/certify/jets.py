"""Jets: over each box of a batch, the range of an expression, its slopes along one variable, and its curvature.

Idea: interval arithmetic on value, slope, curve. A slope encloses (f(b) - f(a)) / (b - a) for all a < b of the box and
all values of the others, so it needs no derivative: a jump upwards is [0, inf]. A curve encloses the second derivative
where the expression is smooth on the box, and is anything where it may have a kink or a jump, on an edge too.
Guarantee: slope >= 0 on every box of a cover proves that the expression never falls along the variable; curve >= 0 on
neighbouring boxes proves that it is convex across them. `defined` tells on which boxes every operation is
surely defined and finite, in doubles too (interval.py); `blamed` is the first part that is not.
Cost: one pass over the tree, about a microsecond per node and box in batches of a thousand.

Source: slopes: Krawczyk and Neumaier, SIAM J. Numer. Anal. 22 (1985); the rest is the chain rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tocsin.expr.certify import interval as iv
from tocsin.expr.certify.functions import SMOOTH, Smooth, both, powers
from tocsin.expr.certify.interval import Interval, Truth
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

Box = Mapping[Key, Interval]


class Jet(NamedTuple):
    """Value, slope and curve; None stands for a slope and curve of 0: the variable is not in it."""

    value: Interval
    slope: Interval | None = None
    curve: Interval | None = None


class Choice(NamedTuple):
    """A condition over a box: whether it can be true, can be false; how truth moves as the variable grows.

    `rises`: once true it stays true; `falls`: once false it stays false. Both hold where the variable is not in it.
    """

    can: Truth
    can_not: Truth
    rises: Truth
    falls: Truth


@dataclass
class Evaluator:
    """Evaluate one tree on batches of boxes, along one variable, or along none for ranges only."""

    along: Key | None = None
    curves: bool = False
    # Whether a literal is also the decimal that was written, not only the double nearest to it.
    decimals: bool = False
    defined: Truth = field(default_factory=lambda: np.ones(1, np.bool_))
    blamed: Node | None = None
    # The range of each node of the last run by its `id`, if a caller asks for them.
    ranges: dict[int, Interval] | None = None
    _with: dict[int, bool] = field(default_factory=dict)

    def run(self, tree: Node, box: Box) -> Jet:
        """Evaluate; afterwards `defined` speaks of these boxes."""
        size = max((interval.lo.size for interval in box.values()), default=1)
        self.defined, self.blamed = np.ones(size, np.bool_), None
        with np.errstate(all="ignore"):
            return self._jet(tree, box)

    def _jet(self, node: Node, box: Box) -> Jet:
        before = self.defined
        jet = self._any(node, box)
        self._require(iv.finite(jet.value))
        if self.ranges is not None:
            self.ranges[id(node)] = jet.value
        if self.blamed is None and not self.defined.all() and before.all():
            self.blamed = node
        return jet

    def _any(self, node: Node, box: Box) -> Jet:
        if isinstance(node, Number):
            least, most = both(node.value) if self.decimals else (node.value, node.value)
            return Jet(Interval(np.full(self.defined.shape, least), np.full(self.defined.shape, most)))
        if isinstance(node, Variable):
            return self._variable(node, box)
        if isinstance(node, Unary):
            return negated(self._jet(node.operand, box))
        if isinstance(node, Binary) and node.op != "**":
            return self._arithmetic(node.op, self._jet(node.left, box), self._jet(node.right, box))
        if isinstance(node, Binary):
            return self._power(node.left, node.right, box)
        assert isinstance(node, Call)
        if node.name == "where":
            return self._where(node, box)
        if node.name == "pow":
            return self._power(node.args[0], node.args[1], box)
        if node.name in ("min", "max"):
            jets = [self._jet(arg, box) for arg in node.args]
            if node.name == "min":
                return negated(_largest([negated(jet) for jet in jets]))
            return _largest(jets)
        return self._function(node.name, self._jet(node.args[0], box))

    def _variable(self, node: Variable, box: Box) -> Jet:
        value = box[node.key]
        value = Interval(*np.broadcast_arrays(*value, self.defined)[:2])
        if node.key != self.along:
            return Jet(value)
        one = np.ones(self.defined.shape)
        return Jet(value, iv.point(one), iv.point(np.zeros_like(one)) if self.curves else None)

    def _require(self, holds: Truth) -> None:
        self.defined = self.defined & holds

    def _arithmetic(self, op: str, u: Jet, v: Jet) -> Jet:
        if op == "+":
            return _sum(u, v)
        if op == "-":
            return _sum(u, negated(v))
        if op == "*":
            return _product(u, v)
        self._require((v.value.lo > 0) | (v.value.hi < 0))
        return _quotient(u, v)

    def _function(self, name: str, u: Jet) -> Jet:
        value = u.value
        if name in ("ln", "log10"):
            self._require(value.lo > 0)
        if name == "sqrt":
            self._require(value.lo >= 0)
        if name == "abs":
            return _absolute(u)
        if name in ("floor", "ceil"):
            return _step(iv.floor if name == "floor" else iv.ceil, u)
        return _chain(SMOOTH[name](value), u)

    def _power(self, base: Node, exponent: Node, box: Box) -> Jet:
        u, index = self._jet(base, box), literal(exponent)
        if index is not None:
            whole = index.is_integer() and abs(index) <= 1024
            self._require((u.value.lo > 0) | ((u.value.hi < 0) & whole) | (whole | (u.value.lo >= 0)) & (index >= 0))
            return _chain(powers(u.value, index, whole=whole), u)
        v = self._jet(exponent, box)
        self._require((u.value.lo > 0) | ((u.value.lo >= 0) & (v.value.lo > 0)))
        value = iv.power(u.value, v.value)
        if u.slope is None and v.slope is None:
            return Jet(value)
        # u ** v = exp(v ln u)
        inner = _product(v, _chain(SMOOTH["ln"](u.value), u))
        return _chain((value, lambda: (value, value)), inner)

    def _where(self, node: Call, box: Box) -> Jet:
        test, chosen, other = node.args
        before = self.defined
        choice = self.choice(test, box)
        tested, self.defined = self.defined, before
        a = self._jet(chosen, box)
        left, self.defined = self.defined, before
        b = self._jet(other, box)
        self.defined = tested & (left | ~choice.can) & (self.defined | ~choice.can_not)
        value = iv.select(~choice.can, b.value, iv.select(~choice.can_not, a.value, iv.hull(a.value, b.value)))
        if self.along is None or not self._has(node):
            return Jet(value)
        return self._pieces(choice, a, b, value, self._has(test))

    def _pieces(self, choice: Choice, a: Jet, b: Jet, value: Interval, moves: bool) -> Jet:
        """Put two pieces together; where the test may change inside a box, the jump between them counts."""
        zero = iv.point(np.zeros(self.defined.shape))
        slope_a, slope_b = a.slope or zero, b.slope or zero
        both = iv.hull(slope_a, slope_b)
        if moves:
            up = iv.subtract(a.value, b.value)
            rise = (choice.rises & (up.lo >= 0)) | (choice.falls & (up.hi <= 0))
            fall = (choice.rises & (up.hi <= 0)) | (choice.falls & (up.lo >= 0))
            both = Interval(np.where(rise, both.lo, -np.inf), np.where(fall, both.hi, np.inf))
        slope = iv.select(~choice.can, slope_b, iv.select(~choice.can_not, slope_a, both))
        if not self.curves:
            return Jet(value, slope)
        unsure = iv.entire(self.defined.shape) if moves else iv.hull(a.curve or zero, b.curve or zero)
        curve = iv.select(~choice.can, b.curve or zero, iv.select(~choice.can_not, a.curve or zero, unsure))
        return Jet(value, slope, curve)

    def choice(self, node: Node, box: Box) -> Choice:
        """Tell what a condition can be."""
        if isinstance(node, Bool):
            parts = [self.choice(arg, box) for arg in node.args]
            some, every = (np.logical_or, np.logical_and) if node.op == "or" else (np.logical_and, np.logical_or)
            return Choice(
                some.reduce([part.can for part in parts]),
                every.reduce([part.can_not for part in parts]),
                np.logical_and.reduce([part.rises for part in parts]),
                np.logical_and.reduce([part.falls for part in parts]),
            )
        assert isinstance(node, Compare)
        before, self.defined = self.defined, np.ones_like(self.defined)
        left, right = self._jet(node.left, box), self._jet(node.right, box)
        # A comparison with a side that is not defined is false.
        sure, self.defined = self.defined, self.defined & before
        margin = _sum(left, negated(right)) if node.op in (">", ">=") else _sum(right, negated(left))
        strict = node.op in (">", "<")
        can = margin.value.hi > 0 if strict else margin.value.hi >= 0
        can_not = (margin.value.lo <= 0 if strict else margin.value.lo < 0) | ~sure
        still = np.ones(self.defined.shape, np.bool_)
        if margin.slope is None:
            return Choice(can, can_not, still, still)
        return Choice(can, can_not, margin.slope.lo >= 0, margin.slope.hi <= 0)

    def _has(self, node: Node) -> bool:
        """Tell whether the variable is in a node."""
        if id(node) not in self._with:
            self._with[id(node)] = self.along is not None and not is_free(node, self.along)
        return self._with[id(node)]


def negated(u: Jet) -> Jet:
    """-u."""
    return Jet(iv.negate(u.value), u.slope and iv.negate(u.slope), u.curve and iv.negate(u.curve))


def _plus(a: Interval | None, b: Interval | None) -> Interval | None:
    if a is None or b is None:
        return a or b
    return iv.add(a, b)


def _times(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else iv.multiply(a, b)


def _sum(u: Jet, v: Jet) -> Jet:
    return Jet(iv.add(u.value, v.value), _plus(u.slope, v.slope), _plus(u.curve, v.curve))


def _product(u: Jet, v: Jet) -> Jet:
    slope = _plus(_times(u.value, v.slope), _times(v.value, u.slope))
    cross = _times(u.slope, v.slope)
    curve = _plus(_plus(_times(u.value, v.curve), _times(v.value, u.curve)), _plus(cross, cross))
    return Jet(iv.multiply(u.value, v.value), slope, curve)


def _quotient(u: Jet, v: Jet) -> Jet:
    """W = u / v: from u = w v, slope w = (slope u - w slope v) / v, and again for the curve."""
    value = iv.divide(u.value, v.value)
    if u.slope is None and v.slope is None:
        return Jet(value)
    top = _plus(u.slope, _times(iv.negate(value), v.slope))
    slope = top and iv.divide(top, v.value)
    cross = _times(slope, v.slope)
    rest = _plus(_plus(u.curve, _times(iv.negate(value), v.curve)), cross and iv.negate(iv.add(cross, cross)))
    return Jet(value, slope, rest and iv.divide(rest, v.value))


def _chain(outer: Smooth, u: Jet) -> Jet:
    """Return the jet of a smooth function of u."""
    value, derivatives = outer
    if u.slope is None:
        return Jet(value)
    first, second = derivatives()
    curve = None
    if u.curve is not None:
        curve = iv.add(iv.multiply(first, u.curve), iv.multiply(second, iv.whole_power(u.slope, 2)))
    return Jet(value, iv.multiply(first, u.slope), curve)


def _absolute(u: Jet) -> Jet:
    value = iv.absolute(u.value)
    if u.slope is None:
        return Jet(value)
    one = np.ones(u.value.lo.shape)
    sign = Interval(np.where(u.value.lo >= 0, one, -one), np.where(u.value.hi <= 0, -one, one))
    smooth = (u.value.lo > 0) | (u.value.hi < 0)
    curve = u.curve and iv.select(smooth, iv.multiply(sign, u.curve), iv.entire(one.shape))
    return Jet(value, iv.multiply(sign, u.slope), curve)


def _step(function: object, u: Jet) -> Jet:
    assert callable(function)
    value = function(u.value)
    if u.slope is None:
        return Jet(value)
    still = value.lo == value.hi
    rise = Interval(np.zeros(still.shape), np.where(still, 0.0, np.inf))
    curve = u.curve and iv.select(still, iv.point(np.zeros(still.shape)), iv.entire(still.shape))
    return Jet(value, iv.multiply(rise, u.slope), curve)


def _largest(jets: list[Jet]) -> Jet:
    total = jets[0]
    for jet in jets[1:]:
        total = _larger(total, jet)
    return total


def _larger(u: Jet, v: Jet) -> Jet:
    """Where neither is surely larger, a slope lies between those of both."""
    value = iv.maximum(u.value, v.value)
    if u.slope is None and v.slope is None:
        return Jet(value)
    zero = iv.point(np.zeros(value.lo.shape))
    first, second = u.value.lo > v.value.hi, v.value.lo > u.value.hi
    slopes = (u.slope or zero), (v.slope or zero)
    slope = iv.select(first, slopes[0], iv.select(second, slopes[1], iv.hull(*slopes)))
    if u.curve is None and v.curve is None:
        return Jet(value, slope)
    curves = (u.curve or zero), (v.curve or zero)
    return Jet(value, slope, iv.select(first, curves[0], iv.select(second, curves[1], iv.entire(value.lo.shape))))
