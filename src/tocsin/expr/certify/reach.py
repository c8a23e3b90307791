"""Reach: the values of a variable for which a condition cannot hold, whatever the others are inside their domains.

Idea: the best case over the others bounds the margin: at the ends of the domain of a variable in which the margin
is proved monotone or quasiconvex, over all of it for any other. As a function of the variable itself the best case has
the shape of the margin, so the values that stay below 0 form one interval, whose ends are found by bisection.
Guarantee: for a value in the interval and others inside their domains, the margin is below 0 in exact arithmetic
and in doubles (intervals enclose both; what rounding may add to a proof of shape is subtracted).
Cost: some sixty evaluations of at most 64 boxes.

Source: our own; the paper's omission compares rows with each other, this one with the threshold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np

from tocsin.expr.certify.certificate import Verdict
from tocsin.expr.certify.interval import Interval
from tocsin.expr.certify.jets import Box, Evaluator
from tocsin.expr.nodes import Key, Node

Domain = tuple[float, float]

_MOST_CORNERS = 64
_PROBES = 65
_STEPS = 60


def hopeless(
    margin: Node, key: Key, domains: Mapping[Key, Domain], verdicts: Mapping[Key, Verdict]
) -> tuple[float, float] | None:
    """The values of a variable, from and to, for which the margin is surely below 0; None: there are none.

    `verdicts` has the shapes that were proved; that of the variable itself must be among them.
    """
    corners = _corners([other for other in domains if other != key], domains, verdicts)
    if corners is None:
        return None
    bend = max((verdict.rounding for verdict in verdicts.values()), default=0.0)

    def below(x: float) -> bool:
        return _best(margin, {**corners, key: _constant(corners, x)}) < -bend

    low, high = domains[key]
    shape = verdicts[key].verdict
    if shape in ("increasing", "constant"):
        return (low, _edge(below, low, high)) if below(low) else None
    if shape == "decreasing":
        return (_edge(below, high, low), high) if below(high) else None
    inside = next((x for x in np.linspace(low, high, _PROBES).tolist() if below(x)), None)
    return None if inside is None else (_edge(below, inside, low), _edge(below, inside, high))


def _corners(others: list[Key], domains: Mapping[Key, Domain], verdicts: Mapping[Key, Verdict]) -> Box | None:
    """Boxes of the others among which the best case is."""
    choices = []
    for other in others:
        low, high = domains[other]
        word = verdicts[other].verdict if other in verdicts else "undecided"
        ends = {"increasing": [(high, high)], "decreasing": [(low, low)], "constant": [(low, low)]}
        ends["quasiconvex"] = [(low, low), (high, high)]
        choices.append(ends.get(word, [(low, high)]))
    if math.prod(len(choice) for choice in choices) > _MOST_CORNERS:
        return None
    found = list(itertools.product(*choices))
    ends_of = np.array(found, np.float64).reshape(len(found), len(others), 2)
    return {other: Interval(ends_of[:, i, 0], ends_of[:, i, 1]) for i, other in enumerate(others)} or {
        ("", None): Interval(np.zeros(1), np.zeros(1))
    }


def _constant(corners: Box, x: float) -> Interval:
    some = next(iter(corners.values()))
    return Interval(np.full(some.lo.shape, x), np.full(some.lo.shape, x))


def _best(margin: Node, box: Box) -> float:
    """An upper bound of the margin over the boxes; infinite where it is not surely defined."""
    evaluator = Evaluator()
    value = evaluator.run(margin, box).value
    return float(np.max(value.hi)) if evaluator.defined.all() else math.inf


def _edge(below: object, inside: float, outside: float) -> float:
    """The value farthest from `inside`, towards `outside`, that is found to be below by bisection."""
    assert callable(below)
    if below(outside):
        return outside
    for _ in range(_STEPS):
        middle = inside / 2 + outside / 2
        if below(middle):
            inside = middle
        else:
            outside = middle
    return inside
