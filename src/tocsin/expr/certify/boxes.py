"""Boxes: the domain of an expression cut into parts, in arrays; and the cover on which all of it is defined."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from tocsin.expr.certify.interval import Float, Int, Interval, Truth
from tocsin.expr.certify.jets import Box, Evaluator
from tocsin.expr.nodes import Key, Node, literal, variables, walk

# An end that is not stated: values beyond it are taken as outside the domain.
UNBOUNDED = 1e50

MOST_BOXES = 4096
# Cut so often in a row, a box is as small as doubles near it allow, or nearly.
MOST_ROUNDS = 48
_MOST_CUTS = 16


class Cover(NamedTuple):
    """Boxes that cover the domain; where `blamed` is a node, it is not proved defined on the box `where`."""

    boxes: Box
    blamed: Node | None = None
    where: Mapping[Key, tuple[float, float]] = {}


def size(box: Box) -> int:
    """The number of boxes."""
    return max((interval.lo.size for interval in box.values()), default=1)


def ends(domain: tuple[float, float]) -> tuple[float, float]:
    """The ends of a domain; those that are not stated lie at 1e50."""
    low, high = domain
    return min(-UNBOUNDED, high) if low == -np.inf else low, max(UNBOUNDED, low) if high == np.inf else high


def whole(domains: Mapping[Key, tuple[float, float]]) -> Box:
    """The domain as a single box."""
    found = {key: ends(domain) for key, domain in domains.items()}
    return {key: Interval(np.array([low]), np.array([high])) for key, (low, high) in found.items()}


def take(box: Box, which: Truth | Int) -> Box:
    """Some of the boxes."""
    return {key: Interval(interval.lo[which], interval.hi[which]) for key, interval in box.items()}


def joined(parts: Iterable[Box]) -> Box:
    """Several batches as one."""
    parts = list(parts)
    return {
        key: Interval(
            np.concatenate([part[key].lo for part in parts]), np.concatenate([part[key].hi for part in parts])
        )
        for key in parts[0]
    }


def first_of(box: Box) -> dict[Key, tuple[float, float]]:
    """The first box, in plain numbers."""
    return {key: (float(interval.lo[0]), float(interval.hi[0])) for key, interval in box.items()}


def cuts_of(tree: Node) -> list[float]:
    """Numbers of a condition, where pieces of it may meet: good places to cut."""
    found = {0.0}
    for node in walk(tree):
        number = literal(node)
        if number is not None:
            found |= {number, -number}
    return sorted(found, key=lambda value: (abs(value) > UNBOUNDED, abs(value)))[:_MOST_CUTS]


def _scales(lo: Float, hi: Float) -> tuple[Truth, Truth]:
    """Tell where an interval reaches over several sizes on one side of 0, and where on both."""
    with np.errstate(all="ignore"):
        small, large = np.minimum(np.abs(lo), np.abs(hi)), np.maximum(np.abs(lo), np.abs(hi))
        one_side = (lo > 0) | (hi < 0)
        return one_side & (large > 16.0 * small), ~one_side & (hi - lo > 1000.0)


def rungs(lo: Float, hi: Float, at: Float | float) -> Float:
    """The numbers at shares of an interval: of its logarithm, or nearly, where it reaches over several sizes."""
    ratio, far = _scales(lo, hi)
    with np.errstate(all="ignore"):
        even = lo * (1.0 - at) + hi * at
        grown = np.sinh(np.arcsinh(lo) * (1.0 - at) + np.arcsinh(hi) * at)
        power = np.sign(lo) * np.exp(np.log(np.abs(lo)) * (1.0 - at) + np.log(np.abs(hi)) * at)
    return np.clip(np.where(ratio, power, np.where(far, grown, even)), lo, hi)


def middle(lo: Float, hi: Float) -> Float:
    """Half-way, on the scale of the interval."""
    return rungs(lo, hi, 0.5)


def is_wide(interval: Interval) -> bool:
    """Tell whether there is anything to cut in a domain."""
    return bool(interval.lo[0] < interval.hi[0])


def share(part: Interval, of: Interval) -> Float:
    """How much of an interval that is wide a part of it has, on the scale of the interval."""
    ratio, far = _scales(*of)
    with np.errstate(all="ignore"):
        even = (part.hi - part.lo) / (of.hi - of.lo)
        grown = (np.arcsinh(part.hi) - np.arcsinh(part.lo)) / (np.arcsinh(of.hi) - np.arcsinh(of.lo))
        power = np.log(part.hi / part.lo) / np.log(of.hi / of.lo)
    return np.where(ratio, power, np.where(far, grown, even))


def halves(box: Box, whole_box: Box, cuts: Iterable[float], keys: Iterable[Key] | None = None) -> Box:
    """Cut each box in two, where it still has the largest share of a variable; at a literal if one is inside."""
    names = [key for key in (keys or box) if is_wide(whole_box[key])]
    shares = np.array([share(box[key], whole_box[key]) for key in names])
    best = np.argmax(shares, axis=0)
    left, right = dict(box), dict(box)
    for i, key in enumerate(names):
        lo, hi = box[key]
        at = np.where(best == i, _cut(lo, hi, cuts), np.nan)
        left[key] = Interval(lo, np.where(best == i, at, hi))
        right[key] = Interval(np.where(best == i, at, lo), hi)
    return joined([left, right])


def around(boxes: Box) -> Box:
    """The least box around several."""
    return {
        key: Interval(interval.lo.min(keepdims=True), interval.hi.max(keepdims=True)) for key, interval in boxes.items()
    }


def refined(boxes: Box, least: int) -> Box:
    """The same domain in at least so many boxes, if there is anything to cut."""
    domain = around(boxes)
    if any(is_wide(interval) for interval in domain.values()):
        while size(boxes) < least:
            boxes = halves(boxes, domain, ())
    return boxes


def _cut(lo: Float, hi: Float, cuts: Iterable[float]) -> Float:
    at, distance = middle(lo, hi), np.full(lo.shape, np.inf)
    centre = at.copy()
    for cut in cuts:
        better = (cut > lo) & (cut < hi) & (np.abs(cut - centre) < distance)
        at = np.where(better, cut, at)
        distance = np.where(better, np.abs(cut - centre), distance)
    return at


def cover(tree: Node, domain: Box, most: int = MOST_BOXES, *, decimals: bool = False) -> Cover:
    """Cut the domain until every operation is surely defined and finite on each box, or say where it is not."""
    evaluator, cuts, done, todo = Evaluator(decimals=decimals), cuts_of(tree), [], domain
    count = 0
    for rounds in itertools.count(1):
        evaluator.run(tree, todo)
        good = np.broadcast_to(evaluator.defined, (size(todo),))
        count += size(todo)
        if good.any():
            done.append(take(todo, good))
        if good.all():
            return Cover(joined(done))
        bad, blamed = take(todo, ~good), evaluator.blamed or tree
        # Only what the part in question reads can help it.
        keys = [v.key for v in variables(blamed) if is_wide(domain[v.key])]
        if not keys or rounds > MOST_ROUNDS or count + 2 * size(bad) > most:
            worst = first_of(take(bad, np.array([_smallest(bad, domain, keys)])))
            return Cover(domain, blamed, {key: worst[key] for key in keys})
        todo = halves(bad, domain, cuts, keys)
    raise AssertionError


def _smallest(box: Box, domain: Box, keys: Iterable[Key]) -> int:
    """The box that was cut most: what is not defined there is likely not defined at all."""
    shares = [share(box[key], domain[key]) for key in keys]
    return int(np.argmin(np.sum(shares, axis=0))) if shares else 0
