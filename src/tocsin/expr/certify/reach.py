"""Reach: the values of a variable for which a condition cannot hold, whatever the others are inside their domains.

Idea: the best case over the others bounds the margin: at the ends of the domain of a variable in which the margin
is proved monotone or quasiconvex, over all of it for any other. As a function of the variable itself the best case has
the shape of the margin, so the values that stay below 0 form one interval, whose ends are found by bisection.
Guarantee: for a value in the interval and others inside their domains, the margin is below 0 in exact arithmetic
and in doubles (intervals enclose both; what rounding may add to a proof of shape is subtracted).
Cost: one evaluation where there is no such value; else six or twelve of some thousand boxes.

Source: our own; the paper's omission compares rows with each other, this one with the threshold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np

from tocsin.expr.certify.boxes import cover, ends, whole
from tocsin.expr.certify.certificate import Verdict
from tocsin.expr.certify.interval import Float, Interval, Truth, magnitude
from tocsin.expr.certify.jets import Evaluator
from tocsin.expr.nodes import Call, Key, Node, walk

Domain = tuple[float, float]

_MOST_CORNERS = 64
# So many values are tried at once, so many times, each time between two neighbours of the time before.
_PROBES, _ROUNDS = 33, 6


def hopeless(margin: Node, key: Key, domains: Mapping[Key, Domain], verdicts: Mapping[Key, Verdict]) -> Domain | None:
    """The values of a variable, from and to, for which the margin is surely below 0; None: there are none.

    `verdicts` has the shapes that were proved; that of the variable itself must be among them.
    """
    domains = {other: ends(domain) for other, domain in domains.items()}
    others = [other for other in domains if other != key]
    corners = _corners(others, domains, verdicts)
    if corners is None:
        return None
    # From a point to a corner it is one step along each variable, and each may bend by its own rounding.
    bend = math.fsum(verdict.rounding for verdict in verdicts.values() if verdict.proved)

    def below(xs: Float) -> Truth:
        return _best(margin, key, xs, dict(zip(others, corners, strict=True))) < -bend

    low, high = domains[key]
    shape = verdicts[key].verdict
    if shape in ("increasing", "constant"):
        return (low, _edge(below, low, high)) if below(np.array([low]))[0] else None
    if shape == "decreasing":
        return (_edge(below, high, low), high) if below(np.array([high]))[0] else None
    inside = np.linspace(low, high, 2 * _PROBES - 1)
    inside = inside[below(inside)]
    return (_edge(below, inside[0], low), _edge(below, inside[-1], high)) if len(inside) else None


def steepest(margin: Node, key: Key, domains: Mapping[Key, Domain]) -> float:
    """A bound on how much the margin can change per unit of a variable, anywhere inside the domains."""
    boxes = cover(margin, whole({other: domains[other] for other in domains}))
    if boxes.blamed is not None:
        return math.inf
    slope = Evaluator(key).run(margin, boxes.boxes).slope
    return 0.0 if slope is None else float(magnitude(slope).max())


def _corners(others: list[Key], domains: Mapping[Key, Domain], verdicts: Mapping[Key, Verdict]) -> Float | None:
    """The boxes of the others among which the best case is: by variable, the low and high end of each."""
    choices = []
    for other in others:
        low, high = domains[other]
        word = verdicts[other].verdict if other in verdicts else "undecided"
        known = {"increasing": [(high, high)], "decreasing": [(low, low)], "constant": [(low, low)]}
        known["quasiconvex"] = [(low, low), (high, high)]
        choices.append(known.get(word, [(low, high)]))
    if math.prod(len(choice) for choice in choices) > _MOST_CORNERS:
        return None
    found = list(itertools.product(*choices))
    return np.array(found, np.float64).reshape(len(found), len(others), 2).transpose(1, 2, 0)


def _best(margin: Node, key: Key, xs: Float, corners: Mapping[Key, Float]) -> Float:
    """An upper bound of the margin for each value, where it is defined."""
    count = next(iter(corners.values())).shape[1] if corners else 1
    box = {other: Interval(np.tile(ends[0], len(xs)), np.tile(ends[1], len(xs))) for other, ends in corners.items()}
    spread = np.repeat(xs, count)
    evaluator = Evaluator()
    value = evaluator.run(margin, {**box, key: Interval(spread, spread)}).value
    best = np.broadcast_to(value.hi, spread.shape)
    if any(isinstance(node, Call) and node.name == "where" for node in walk(margin)):
        # A test that is not defined is false, which no interval knows.
        best = np.where(np.broadcast_to(evaluator.defined, spread.shape), best, np.inf)
    return np.asarray(best.reshape(len(xs), count).max(axis=1))


def _edge(below: Callable[[Float], Truth], inside: float, outside: float) -> float:
    """A value towards `outside` up to which all are below; near the last such one."""
    for _ in range(_ROUNDS):
        xs = np.clip(np.linspace(inside, outside, _PROBES), min(inside, outside), max(inside, outside))
        fails = np.flatnonzero(~below(xs[1:]))
        if not len(fails):
            return float(outside)
        inside, outside = float(xs[fails[0]]), float(xs[fails[0] + 1])
    return inside
