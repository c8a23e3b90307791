"""Jets: range, slopes and curvature of an expression over each box of a batch, along one variable.

Algorithm: interval arithmetic on triples (value, slope, curvature). A slope encloses (f(b) - f(a)) / (b - a) for all
a < b in the box and all values of the other variables. It needs no derivative: an upward jump has the slope [0, inf].
A curvature encloses the second derivative if the expression is smooth on the box. It is unbounded if the box or its
edges may contain a kink or a jump.

Guarantees: if slope >= 0 on all boxes of a cover, the expression is increasing along the variable. If curvature >= 0 on
adjacent boxes, the expression is convex across them. `defined` is true for a box only if all operations are defined and
finite on it, also in double precision (interval_arithmetic.py).

Complexity: one pass over the tree; about 1 microsecond per node and box in batches of 1,000 boxes.

References: Krawczyk and Neumaier, SIAM J. Numer. Anal. 22 (1985), for slopes. The rest is the chain rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

import numpy as np

from tocsin.expr.certify import interval_arithmetic as iv
from tocsin.expr.certify.interval_arithmetic import Interval, Truth
from tocsin.expr.certify.interval_functions import SMOOTH_FUNCTIONS, SmoothResult, enclose_literal, power_function
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

# A batch of boxes: the intervals of each variable, one element per box.
BoxBatch = Mapping[Key, Interval]


class Jet(NamedTuple):
    """Enclosures of value, slope and curvature. None means 0, because the variable does not occur."""

    value: Interval
    slope: Interval | None = None
    curvature: Interval | None = None


class TruthBounds(NamedTuple):
    """The truth of a condition over each box.

    Attributes
    ----------
    can_be_true, can_be_false
        Whether the condition may be true, or false, somewhere in the box.
    rises
        Whether a true condition stays true while the variable increases.
    falls
        Whether a false condition stays false while the variable increases.

    `rises` and `falls` are both true if the condition does not contain the variable.
    """

    can_be_true: Truth
    can_be_false: Truth
    rises: Truth
    falls: Truth

    def select_branch(self, chosen: Interval, other: Interval, either: Interval) -> Interval:
        """Return `chosen` where the condition is true, `other` where it is false, `either` where both are possible."""
        return iv.select(~self.can_be_true, other, iv.select(~self.can_be_false, chosen, either))


@dataclass
class JetEvaluator:
    """An evaluator of one tree on batches of boxes.

    Attributes
    ----------
    along
        The variable of slopes and curvature; None to compute values only.
    with_curvature
        Whether to compute the curvature.
    decimals
        Whether a literal encloses the decimal that the user wrote and its double, or the double only.
    defined
        Result: for each box, whether all operations are certainly defined and finite.
    undefined_part
        Result: the first node that is not certainly defined and finite on all boxes.
    ranges
        Result: the range of each node by `id(node)`, if the caller sets a dictionary.
    """

    along: Key | None = None
    with_curvature: bool = False
    decimals: bool = False
    defined: Truth = field(default_factory=lambda: np.ones(1, np.bool_))
    undefined_part: Node | None = None
    ranges: dict[int, Interval] | None = None
    _contains: dict[int, bool] = field(default_factory=dict)

    def evaluate(self, tree: Node, box: BoxBatch) -> Jet:
        """Return the jet of the tree on each box, and set the results for these boxes."""
        size = max((interval.lo.size for interval in box.values()), default=1)
        self.defined, self.undefined_part = np.ones(size, np.bool_), None
        with np.errstate(all="ignore"):
            return self._evaluate_node(tree, box)

    def _evaluate_node(self, node: Node, box: BoxBatch) -> Jet:
        """Return the jet of a node, and record where it is undefined or infinite."""
        before = self.defined
        jet = self._evaluate_unchecked(node, box)
        self._require(iv.is_finite(jet.value))
        if self.ranges is not None:
            self.ranges[id(node)] = jet.value
        if self.undefined_part is None and not self.defined.all() and before.all():
            self.undefined_part = node
        return jet

    def _evaluate_unchecked(self, node: Node, box: BoxBatch) -> Jet:
        if isinstance(node, Number):
            least, most = enclose_literal(node.value) if self.decimals else (node.value, node.value)
            return Jet(Interval(np.full(self.defined.shape, least), np.full(self.defined.shape, most)))
        if isinstance(node, Variable):
            return self._variable_jet(node, box)
        if isinstance(node, Unary):
            return negate_jet(self._evaluate_node(node.operand, box))
        if isinstance(node, Binary) and node.op != "**":
            left, right = self._evaluate_node(node.left, box), self._evaluate_node(node.right, box)
            return self._arithmetic_jet(node.op, left, right)
        if isinstance(node, Binary):
            return self._power_jet(node.left, node.right, box)
        assert isinstance(node, Call)
        if node.name == "where":
            return self._where_jet(node, box)
        if node.name == "pow":
            return self._power_jet(node.args[0], node.args[1], box)
        if node.name in ("min", "max"):
            jets = [self._evaluate_node(arg, box) for arg in node.args]
            if node.name == "min":
                return negate_jet(reduce(_max_jet, map(negate_jet, jets)))
            return reduce(_max_jet, jets)
        return self._function_jet(node.name, self._evaluate_node(node.args[0], box))

    def _variable_jet(self, node: Variable, box: BoxBatch) -> Jet:
        value = box[node.key]
        value = Interval(*np.broadcast_arrays(*value, self.defined)[:2])
        if node.key != self.along:
            return Jet(value)
        one = np.ones(self.defined.shape)
        return Jet(value, iv.point(one), iv.point(np.zeros_like(one)) if self.with_curvature else None)

    def _require(self, holds: Truth) -> None:
        self.defined = self.defined & holds

    def _arithmetic_jet(self, op: str, u: Jet, v: Jet) -> Jet:
        if op == "+":
            return _sum_jet(u, v)
        if op == "-":
            return _sum_jet(u, negate_jet(v))
        if op == "*":
            return _product_jet(u, v)
        self._require((v.value.lo > 0) | (v.value.hi < 0))
        return _quotient_jet(u, v)

    def _function_jet(self, name: str, u: Jet) -> Jet:
        value = u.value
        if name in ("ln", "log10"):
            self._require(value.lo > 0)
        if name == "sqrt":
            self._require(value.lo >= 0)
        if name == "abs":
            return _abs_jet(u)
        if name in ("floor", "ceil"):
            return _step_jet(iv.floor if name == "floor" else iv.ceil, u)
        return _apply_chain_rule(SMOOTH_FUNCTIONS[name](value), u)

    def _power_jet(self, base: Node, exponent: Node, box: BoxBatch) -> Jet:
        u, index = self._evaluate_node(base, box), literal_value(exponent)
        if index is not None:
            is_integer = index.is_integer() and abs(index) <= 1024
            if index >= 0:
                self._require(is_integer | (u.value.lo >= 0))
            else:
                self._require((u.value.lo > 0) | ((u.value.hi < 0) & is_integer))
            return _apply_chain_rule(power_function(u.value, index, by_products=is_integer), u)
        v = self._evaluate_node(exponent, box)
        self._require((u.value.lo > 0) | ((u.value.lo >= 0) & (v.value.lo > 0)))
        value = iv.power(u.value, v.value)
        if u.slope is None and v.slope is None:
            return Jet(value)
        # u ** v = exp(v ln u)
        inner = _product_jet(v, _apply_chain_rule(SMOOTH_FUNCTIONS["ln"](u.value), u))
        return _apply_chain_rule(SmoothResult(value, lambda: (value, value)), inner)

    def _where_jet(self, node: Call, box: BoxBatch) -> Jet:
        test, chosen, other = node.args
        before = self.defined
        truth = self.bound_truth(test, box)
        test_defined, self.defined = self.defined, before
        a = self._evaluate_node(chosen, box)
        chosen_defined, self.defined = self.defined, before
        b = self._evaluate_node(other, box)
        # A branch that is never chosen does not need to be defined.
        self.defined = test_defined & (chosen_defined | ~truth.can_be_true) & (self.defined | ~truth.can_be_false)
        value = truth.select_branch(a.value, b.value, iv.hull(a.value, b.value))
        if self.along is None or not self._contains_variable(node):
            return Jet(value)
        return self._join_branches(truth, a, b, value, test_varies=self._contains_variable(test))

    def _join_branches(self, truth: TruthBounds, a: Jet, b: Jet, value: Interval, *, test_varies: bool) -> Jet:
        """Return the jet of `where` from the jets of its branches. If the test may change in a box, add the jump."""
        zero = iv.point(np.zeros(self.defined.shape))
        slope_a, slope_b = a.slope or zero, b.slope or zero
        either = iv.hull(slope_a, slope_b)
        if test_varies:
            jump = iv.subtract(a.value, b.value)
            never_down = (truth.rises & (jump.lo >= 0)) | (truth.falls & (jump.hi <= 0))
            never_up = (truth.rises & (jump.hi <= 0)) | (truth.falls & (jump.lo >= 0))
            either = Interval(np.where(never_down, either.lo, -np.inf), np.where(never_up, either.hi, np.inf))
        slope = truth.select_branch(slope_a, slope_b, either)
        if not self.with_curvature:
            return Jet(value, slope)
        curvature_a, curvature_b = a.curvature or zero, b.curvature or zero
        either = iv.unbounded(self.defined.shape) if test_varies else iv.hull(curvature_a, curvature_b)
        return Jet(value, slope, truth.select_branch(curvature_a, curvature_b, either))

    def bound_truth(self, node: Node, box: BoxBatch) -> TruthBounds:
        """Return whether a condition can be true and false on each box, and how its truth changes."""
        if isinstance(node, Bool):
            parts = [self.bound_truth(arg, box) for arg in node.args]
            some, every = (np.logical_or, np.logical_and) if node.op == "or" else (np.logical_and, np.logical_or)
            return TruthBounds(
                some.reduce([part.can_be_true for part in parts]),
                every.reduce([part.can_be_false for part in parts]),
                np.logical_and.reduce([part.rises for part in parts]),
                np.logical_and.reduce([part.falls for part in parts]),
            )
        assert isinstance(node, Compare)
        before, self.defined = self.defined, np.ones_like(self.defined)
        left, right = self._evaluate_node(node.left, box), self._evaluate_node(node.right, box)
        # A comparison with an undefined side is false.
        sides_defined, self.defined = self.defined, self.defined & before
        margin = _sum_jet(left, negate_jet(right)) if node.op in (">", ">=") else _sum_jet(right, negate_jet(left))
        strict = node.op in (">", "<")
        can_be_true = margin.value.hi > 0 if strict else margin.value.hi >= 0
        can_be_false = (margin.value.lo <= 0 if strict else margin.value.lo < 0) | ~sides_defined
        unchanged = np.ones(self.defined.shape, np.bool_)
        if margin.slope is None:
            return TruthBounds(can_be_true, can_be_false, unchanged, unchanged)
        return TruthBounds(can_be_true, can_be_false, margin.slope.lo >= 0, margin.slope.hi <= 0)

    def _contains_variable(self, node: Node) -> bool:
        """Return whether a node contains the variable."""
        if id(node) not in self._contains:
            self._contains[id(node)] = self.along is not None and not is_independent_of(node, self.along)
        return self._contains[id(node)]


def negate_jet(u: Jet) -> Jet:
    """Return the jet of -u."""
    return Jet(iv.negate(u.value), u.slope and iv.negate(u.slope), u.curvature and iv.negate(u.curvature))


def _add(a: Interval | None, b: Interval | None) -> Interval | None:
    """Return a + b, where None means 0."""
    if a is None or b is None:
        return a or b
    return iv.add(a, b)


def _multiply(a: Interval | None, b: Interval | None) -> Interval | None:
    """Return a * b, where None means 0."""
    return None if a is None or b is None else iv.multiply(a, b)


def _sum_jet(u: Jet, v: Jet) -> Jet:
    return Jet(iv.add(u.value, v.value), _add(u.slope, v.slope), _add(u.curvature, v.curvature))


def _product_jet(u: Jet, v: Jet) -> Jet:
    slope = _add(_multiply(u.value, v.slope), _multiply(v.value, u.slope))
    cross = _multiply(u.slope, v.slope)
    curvature = _add(_add(_multiply(u.value, v.curvature), _multiply(v.value, u.curvature)), _add(cross, cross))
    return Jet(iv.multiply(u.value, v.value), slope, curvature)


def _quotient_jet(u: Jet, v: Jet) -> Jet:
    # For w = u / v, u = w v implies: slope w = (slope u - w slope v) / v. The curvature follows in the same way.
    value = iv.divide(u.value, v.value)
    if u.slope is None and v.slope is None:
        return Jet(value)
    top = _add(u.slope, _multiply(iv.negate(value), v.slope))
    slope = top and iv.divide(top, v.value)
    cross = _multiply(slope, v.slope)
    rest = _add(_add(u.curvature, _multiply(iv.negate(value), v.curvature)), cross and iv.negate(iv.add(cross, cross)))
    return Jet(value, slope, rest and iv.divide(rest, v.value))


def _apply_chain_rule(outer: SmoothResult, u: Jet) -> Jet:
    """Return the jet of a smooth function of u."""
    if u.slope is None:
        return Jet(outer.value)
    first, second = outer.derivatives()
    curvature = None
    if u.curvature is not None:
        curvature = iv.add(iv.multiply(first, u.curvature), iv.multiply(second, iv.integer_power(u.slope, 2)))
    return Jet(outer.value, iv.multiply(first, u.slope), curvature)


def _abs_jet(u: Jet) -> Jet:
    value = iv.absolute(u.value)
    if u.slope is None:
        return Jet(value)
    one = np.ones(u.value.lo.shape)
    sign = Interval(np.where(u.value.lo >= 0, one, -one), np.where(u.value.hi <= 0, -one, one))
    smooth = (u.value.lo > 0) | (u.value.hi < 0)
    curvature = u.curvature and iv.select(smooth, iv.multiply(sign, u.curvature), iv.unbounded(one.shape))
    return Jet(value, iv.multiply(sign, u.slope), curvature)


def _step_jet(function: Callable[[Interval], Interval], u: Jet) -> Jet:
    """Return the jet of `floor` or `ceil`. The slope is unbounded above if the box may contain a step."""
    value = function(u.value)
    if u.slope is None:
        return Jet(value)
    is_flat = value.lo == value.hi
    rise = Interval(np.zeros(is_flat.shape), np.where(is_flat, 0.0, np.inf))
    curvature = u.curvature and iv.select(is_flat, iv.point(np.zeros(is_flat.shape)), iv.unbounded(is_flat.shape))
    return Jet(value, iv.multiply(rise, u.slope), curvature)


def _max_jet(u: Jet, v: Jet) -> Jet:
    # If neither is certainly larger, the slope is between both slopes.
    value = iv.maximum(u.value, v.value)
    if u.slope is None and v.slope is None:
        return Jet(value)
    zero = iv.point(np.zeros(value.lo.shape))
    first, second = u.value.lo > v.value.hi, v.value.lo > u.value.hi
    slopes = (u.slope or zero), (v.slope or zero)
    slope = iv.select(first, slopes[0], iv.select(second, slopes[1], iv.hull(*slopes)))
    if u.curvature is None and v.curvature is None:
        return Jet(value, slope)
    curvatures = (u.curvature or zero), (v.curvature or zero)
    curvature = iv.select(second, curvatures[1], iv.unbounded(value.lo.shape))
    return Jet(value, slope, iv.select(first, curvatures[0], curvature))
