"""Domain boxes: split the domain of an expression into boxes until the expression is defined on each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from tocsin.expr.certify.interval_arithmetic import Float, Int, Interval, Truth
from tocsin.expr.certify.jets import BoxBatch, JetEvaluator
from tocsin.expr.syntax_tree import Key, Node, find_variables, literal_value, walk_nodes

Domain: TypeAlias = tuple[float, float]
Domains: TypeAlias = Mapping[Key, Domain]

# Replaces an infinite end of a domain. Values beyond it count as outside the domain.
UNBOUNDED = 1e50

MAX_BOXES = 4096
# After this number of successive splits, a box is about as small as double precision allows.
MAX_ROUNDS = 48
_MAX_CUT_POINTS = 16


class DomainCover(NamedTuple):
    """Boxes that cover a domain.

    Attributes
    ----------
    undefined_part
        A node that may be undefined or infinite in the box `where`; None if all nodes are defined and finite.
    """

    boxes: BoxBatch
    undefined_part: Node | None = None
    where: Mapping[Key, Domain] = {}


def count_boxes(box: BoxBatch) -> int:
    """Return the number of boxes."""
    return max((interval.lo.size for interval in box.values()), default=1)


def clip_domain(domain: Domain) -> Domain:
    """Return the ends of a domain, with ±1e50 instead of infinite ends."""
    low, high = domain
    return min(-UNBOUNDED, high) if low == -np.inf else low, max(UNBOUNDED, low) if high == np.inf else high


def build_box(domains: Domains) -> BoxBatch:
    """Return the whole domain as one box."""
    found = {key: clip_domain(domain) for key, domain in domains.items()}
    return {key: Interval(np.array([low]), np.array([high])) for key, (low, high) in found.items()}


def select_boxes(box: BoxBatch, which: Truth | Int) -> BoxBatch:
    """Return some of the boxes."""
    return {key: Interval(interval.lo[which], interval.hi[which]) for key, interval in box.items()}


def join_boxes(parts: Iterable[BoxBatch]) -> BoxBatch:
    """Return the boxes of several batches as one batch."""
    parts = list(parts)
    return {
        key: Interval(
            np.concatenate([part[key].lo for part in parts]), np.concatenate([part[key].hi for part in parts])
        )
        for key in parts[0]
    }


def first_box(box: BoxBatch) -> dict[Key, Domain]:
    """Return the first box as numbers."""
    return {key: (float(interval.lo[0]), float(interval.hi[0])) for key, interval in box.items()}


def find_split_points(tree: Node) -> list[float]:
    """Return the literals of a tree, with both signs, and 0. The expression may have kinks or jumps there."""
    found = {0.0}
    for node in walk_nodes(tree):
        number = literal_value(node)
        if number is not None:
            found |= {number, -number}
    return sorted(found, key=lambda value: (abs(value) > UNBOUNDED, abs(value)))[:_MAX_CUT_POINTS]


def _scale_of(lo: Float, hi: Float) -> tuple[Truth, Truth]:
    """Return where an interval spans orders of magnitude on one side of 0, and where on both sides."""
    with np.errstate(all="ignore"):
        small, large = np.minimum(np.abs(lo), np.abs(hi)), np.maximum(np.abs(lo), np.abs(hi))
        one_side = (lo > 0) | (hi < 0)
        return one_side & (large > 16.0 * small), ~one_side & (hi - lo > 1000.0)


def interpolate(lo: Float, hi: Float, at: Float | float) -> Float:
    """Return the number at a fraction `at` of each interval, on a logarithmic scale if it spans orders of magnitude."""
    is_geometric, is_wide_around_zero = _scale_of(lo, hi)
    with np.errstate(all="ignore"):
        linear = lo * (1.0 - at) + hi * at
        asinh = np.sinh(np.arcsinh(lo) * (1.0 - at) + np.arcsinh(hi) * at)
        geometric = np.sign(lo) * np.exp(np.log(np.abs(lo)) * (1.0 - at) + np.log(np.abs(hi)) * at)
    return np.clip(np.where(is_geometric, geometric, np.where(is_wide_around_zero, asinh, linear)), lo, hi)


def is_wide(interval: Interval) -> bool:
    """Return whether a domain is more than one point."""
    return bool(interval.lo[0] < interval.hi[0])


def relative_width(part: Interval, of: Interval) -> Float:
    """Return the width of a part of an interval as a fraction of the interval, on the scale of `interpolate`."""
    is_geometric, is_wide_around_zero = _scale_of(*of)
    with np.errstate(all="ignore"):
        linear = (part.hi - part.lo) / (of.hi - of.lo)
        asinh = (np.arcsinh(part.hi) - np.arcsinh(part.lo)) / (np.arcsinh(of.hi) - np.arcsinh(of.lo))
        geometric = np.log(part.hi / part.lo) / np.log(of.hi / of.lo)
    return np.where(is_geometric, geometric, np.where(is_wide_around_zero, asinh, linear))


def split_boxes(
    box: BoxBatch, domain: BoxBatch, split_points: Iterable[float], keys: Iterable[Key] | None = None
) -> BoxBatch:
    """Split each box into two along the variable with the largest relative width, at a split point if there is one."""
    names = [key for key in (keys or box) if is_wide(domain[key])]
    shares = np.array([relative_width(box[key], domain[key]) for key in names])
    best = np.argmax(shares, axis=0)
    left, right = dict(box), dict(box)
    for i, key in enumerate(names):
        lo, hi = box[key]
        at = np.where(best == i, _choose_split(lo, hi, split_points), np.nan)
        left[key] = Interval(lo, np.where(best == i, at, hi))
        right[key] = Interval(np.where(best == i, at, lo), hi)
    return join_boxes([left, right])


def bounding_box(boxes: BoxBatch) -> BoxBatch:
    """Return the smallest box that contains all boxes."""
    return {
        key: Interval(interval.lo.min(keepdims=True), interval.hi.max(keepdims=True)) for key, interval in boxes.items()
    }


def refine_boxes(boxes: BoxBatch, least: int) -> BoxBatch:
    """Split boxes until there are at least `least`, unless all of them are points."""
    domain = bounding_box(boxes)
    if any(is_wide(interval) for interval in domain.values()):
        while count_boxes(boxes) < least:
            boxes = split_boxes(boxes, domain, ())
    return boxes


def _choose_split(lo: Float, hi: Float, split_points: Iterable[float]) -> Float:
    """Return the split point nearest to the middle of each interval, or the middle if it contains no split point."""
    at, distance = interpolate(lo, hi, 0.5), np.full(lo.shape, np.inf)
    centre = at.copy()
    for cut in split_points:
        better = (cut > lo) & (cut < hi) & (np.abs(cut - centre) < distance)
        at = np.where(better, cut, at)
        distance = np.where(better, np.abs(cut - centre), distance)
    return at


def cover_domain(tree: Node, domain: BoxBatch, max_boxes: int = MAX_BOXES, *, decimals: bool = False) -> DomainCover:
    """Split the domain until all operations are certainly defined and finite on each box.

    After at most `max_boxes` boxes, return the domain and a box on which this is not proved.
    """
    evaluator, split_points, done, todo = JetEvaluator(decimals=decimals), find_split_points(tree), [], domain
    count = 0
    for rounds in itertools.count(1):
        evaluator.evaluate(tree, todo)
        good = np.broadcast_to(evaluator.defined, (count_boxes(todo),))
        count += count_boxes(todo)
        if good.any():
            done.append(select_boxes(todo, good))
        if good.all():
            return DomainCover(join_boxes(done))
        bad, undefined_part = select_boxes(todo, ~good), evaluator.undefined_part or tree
        # Only a split along a variable of the undefined part can help.
        keys = [v.key for v in find_variables(undefined_part) if is_wide(domain[v.key])]
        if not keys or rounds > MAX_ROUNDS or count + 2 * count_boxes(bad) > max_boxes:
            worst = first_box(select_boxes(bad, np.array([_smallest_box(bad, domain, keys)])))
            return DomainCover(domain, undefined_part, {key: worst[key] for key in keys})
        todo = split_boxes(bad, domain, split_points, keys)
    raise AssertionError


def _smallest_box(box: BoxBatch, domain: BoxBatch, keys: Iterable[Key]) -> int:
    """Return the index of the smallest box. The part is most likely really undefined there."""
    shares = [relative_width(box[key], domain[key]) for key in keys]
    return int(np.argmin(np.sum(shares, axis=0))) if shares else 0
