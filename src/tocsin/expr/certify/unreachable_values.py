"""Unreachable values: find values of a variable that make a condition false for all values of the others.

Algorithm: the best case over the other variables bounds the margin. If the margin is proved monotone or quasiconvex in
another variable, the best case is at an end of its domain; otherwise it is bounded over the whole domain. As a function
of the variable itself, the best case has the shape of the margin. So the values with a best case below 0 form one
interval, whose ends are found by bisection.

Guarantee: for each value in the interval and all other variables inside their domains, the margin is below 0 in exact
arithmetic and in double precision. Intervals enclose both, and the rounding error of the proofs is subtracted.

Complexity: one evaluation if no value is unreachable, otherwise six or twelve evaluations of some thousand boxes.

References: our own method. The omission of the cited paper compares rows with each other, this module compares a row
with the threshold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np

from tocsin.expr.certify.certificate import Verdict
from tocsin.expr.certify.domain_boxes import Domain, Domains, build_box, clip_domain, cover_domain
from tocsin.expr.certify.interval_arithmetic import Float, Interval, Truth, magnitude
from tocsin.expr.certify.jets import JetEvaluator
from tocsin.expr.syntax_tree import Call, Key, Node, walk_nodes

_MAX_CORNERS = 64
# Values per round of the bisection, and number of rounds. A round searches between two adjacent values of the last one.
_PROBES, _ROUNDS = 33, 6


def find_unreachable_values(margin: Node, key: Key, domains: Domains, verdicts: Mapping[Key, Verdict]) -> Domain | None:
    """Return an interval of values whose margin is certainly below 0; None if no value qualifies.

    `verdicts` contains the proved shapes. The shape of the variable itself must be proved.
    """
    domains = {other: clip_domain(domain) for other, domain in domains.items()}
    others = [other for other in domains if other != key]
    corners = _choose_corners(others, domains, verdicts)
    if corners is None:
        return None
    # The path from a point to a corner has one step along each variable. Each step adds the rounding of its proof.
    rounding = math.fsum(verdict.rounding for verdict in verdicts.values() if verdict.proved)

    def is_below(xs: Float) -> Truth:
        return _bound_best_case(margin, key, xs, dict(zip(others, corners, strict=True))) < -rounding

    low, high = domains[key]
    shape = verdicts[key].verdict
    if shape in ("increasing", "constant"):
        return (low, _find_edge(is_below, low, high)) if is_below(np.array([low]))[0] else None
    if shape == "decreasing":
        return (_find_edge(is_below, high, low), high) if is_below(np.array([high]))[0] else None
    inside = np.linspace(low, high, 2 * _PROBES - 1)
    inside = inside[is_below(inside)]
    return (_find_edge(is_below, inside[0], low), _find_edge(is_below, inside[-1], high)) if len(inside) else None


def bound_slope(margin: Node, key: Key, domains: Domains) -> float:
    """Return a bound of the absolute slope of the margin along a variable inside the domains; inf if it is unknown."""
    boxes = cover_domain(margin, build_box({other: domains[other] for other in domains}))
    if boxes.undefined_part is not None:
        return math.inf
    slope = JetEvaluator(key).evaluate(margin, boxes.boxes).slope
    return 0.0 if slope is None else float(magnitude(slope).max())


def _choose_corners(others: list[Key], domains: Domains, verdicts: Mapping[Key, Verdict]) -> Float | None:
    """Return boxes of the other variables that contain the best case: an array (variable, low or high end, box).

    Return None if there are too many boxes.
    """
    choices = []
    for other in others:
        low, high = domains[other]
        word = verdicts[other].verdict if other in verdicts else "undecided"
        known = {"increasing": [(high, high)], "decreasing": [(low, low)], "constant": [(low, low)]}
        known["quasiconvex"] = [(low, low), (high, high)]
        choices.append(known.get(word, [(low, high)]))
    if math.prod(len(choice) for choice in choices) > _MAX_CORNERS:
        return None
    found = list(itertools.product(*choices))
    return np.array(found, np.float64).reshape(len(found), len(others), 2).transpose(1, 2, 0)


def _bound_best_case(margin: Node, key: Key, xs: Float, corners: Mapping[Key, Float]) -> Float:
    """Return an upper bound of the margin for each value of the variable."""
    count = next(iter(corners.values())).shape[1] if corners else 1
    box = {other: Interval(np.tile(ends[0], len(xs)), np.tile(ends[1], len(xs))) for other, ends in corners.items()}
    spread = np.repeat(xs, count)
    evaluator = JetEvaluator()
    value = evaluator.evaluate(margin, {**box, key: Interval(spread, spread)}).value
    best = np.broadcast_to(value.hi, spread.shape)
    if any(isinstance(node, Call) and node.name == "where" for node in walk_nodes(margin)):
        # An undefined test is false. The intervals do not account for this.
        best = np.where(np.broadcast_to(evaluator.defined, spread.shape), best, np.inf)
    return np.asarray(best.reshape(len(xs), count).max(axis=1))


def _find_edge(is_below: Callable[[Float], Truth], inside: float, outside: float) -> float:
    """Return the last value towards `outside` that bisection found below 0. All values up to it are below 0."""
    for _ in range(_ROUNDS):
        xs = np.clip(np.linspace(inside, outside, _PROBES), min(inside, outside), max(inside, outside))
        fails = np.flatnonzero(~is_below(xs[1:]))
        if not len(fails):
            return float(outside)
        inside, outside = float(xs[fails[0]]), float(xs[fails[0] + 1])
    return inside
