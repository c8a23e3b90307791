"""Branch and bound: prove a shape by splitting the domain until the slopes on each box decide.

Algorithm: an expression is increasing if its slope is not negative on each box of a cover. Quasiconvexity is proved
for each cell of the other variables: along the variable come segments with slope <= 0, then segments on which the
expression is convex, then segments with slope >= 0. A cell with undecided segments in the middle is narrowed to these
segments and split again, along the variable or along the other variables.

Guarantees: `proved` is a proof for exact arithmetic, from intervals with outward rounding. If `refuted` is true, a
slope has the wrong sign for certain, so the box `where` is likely to contain a counterexample.

Complexity: at most `max_boxes` boxes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from tocsin.expr.certify.domain_boxes import (
    MAX_ROUNDS,
    Domains,
    bounding_box,
    count_boxes,
    find_split_points,
    first_box,
    interpolate,
    is_wide,
    relative_width,
    select_boxes,
    split_boxes,
)
from tocsin.expr.certify.interval_arithmetic import Float, Int, Interval, Truth
from tocsin.expr.certify.jets import BoxBatch, JetEvaluator
from tocsin.expr.syntax_tree import Key, Node

_SEGMENTS = 16
_MAX_SEGMENTS = 4096


@dataclass(frozen=True)
class SearchOutcome:
    """The result of a search.

    Attributes
    ----------
    boxes
        The number of evaluated boxes.
    where
        The box with the wrong slope if `refuted` is true; a box without a decision if nothing is proved.
    """

    proved: bool
    boxes: int
    refuted: bool = False
    where: Domains = field(default_factory=dict)


def prove_monotone(tree: Node, along: Key, domain: BoxBatch, sign: int, max_boxes: int) -> SearchOutcome:
    """Try to prove that an expression is increasing (sign 1) or decreasing (sign -1) along a variable."""
    evaluator, split_points, todo, count = JetEvaluator(along), find_split_points(tree), domain, 0
    start = bounding_box(domain)
    for rounds in itertools.count(1):
        slope = evaluator.evaluate(tree, todo).slope
        assert slope is not None
        low, high = (slope.lo, slope.hi) if sign > 0 else (-slope.hi, -slope.lo)
        count += count_boxes(todo)
        if (high < 0).any():
            return SearchOutcome(False, count, True, first_box(select_boxes(todo, high < 0)))
        if (low >= 0).all():
            return SearchOutcome(True, count)
        todo = select_boxes(todo, ~(low >= 0))
        if rounds > MAX_ROUNDS or count + 2 * count_boxes(todo) > max_boxes:
            return SearchOutcome(False, count, False, first_box(todo))
        todo = split_boxes(todo, start, split_points)
    raise AssertionError


def prove_quasiconvex(tree: Node, along: Key, domain: BoxBatch, max_boxes: int) -> SearchOutcome:
    """Try to prove that an expression decreases, then increases along a variable, for all values of the others."""
    evaluator, split_points = JetEvaluator(along, with_curvature=True), np.array(find_split_points(tree))
    start = bounding_box(domain)
    others = [key for key in start if key != along and is_wide(start[key])]
    cells, count, segments = start, 0, _SEGMENTS
    for rounds in itertools.count(1):
        edges = _split_into_segments(cells[along], segments, split_points)
        jet = evaluator.evaluate(tree, _build_segments(cells, along, edges))
        count += edges.shape[0] * segments
        assert jet.slope is not None
        assert jet.curvature is not None
        shape = (edges.shape[0], segments)
        low, high, curvature = (
            np.broadcast_to(a, edges.shape[0] * segments).reshape(shape) for a in (*jet.slope, jet.curvature.lo)
        )
        if (peak := _find_peaks(low, high)).any():
            return SearchOutcome(False, count, True, first_box(select_boxes(cells, peak)))
        first, last = _find_open_run(low, high)
        convex = _is_convex(curvature, first, last)
        keep = (first <= last) & ~convex
        if not keep.any():
            return SearchOutcome(True, count)
        cells, edges, first, last = select_boxes(cells, keep), edges[keep], first[keep], last[keep]
        narrowed = _narrow_cells(cells, along, edges, first, last)
        if not _is_halved(cells, narrowed, along):
            if others:
                narrowed = split_boxes(narrowed, start, split_points, others)
            if not others or count_boxes(narrowed) > max_boxes // _SEGMENTS // 4:
                segments *= 4
        cells = narrowed
        if rounds > MAX_ROUNDS or segments > _MAX_SEGMENTS or count + count_boxes(cells) * segments > max_boxes:
            return SearchOutcome(False, count, False, first_box(cells))
    raise AssertionError


def _split_into_segments(interval: Interval, segments: int, split_points: Float) -> Float:
    """Return the edges of the segments of each cell along the variable. The nearest edge moves to each split point."""
    edges = interpolate(interval.lo[:, None], interval.hi[:, None], np.linspace(0.0, 1.0, segments + 1))
    edges[:, 0], edges[:, -1] = interval.lo, interval.hi
    edges = np.sort(edges, axis=1)
    for split_point in split_points:
        inside = (split_point > interval.lo) & (split_point < interval.hi)
        nearest = np.clip(np.argmin(np.abs(edges - split_point), axis=1), 1, segments - 1)
        rows = np.flatnonzero(inside)
        edges[rows, nearest[rows]] = split_point
    return np.sort(edges, axis=1)


def _build_segments(cells: BoxBatch, along: Key, edges: Float) -> BoxBatch:
    count = edges.shape[1] - 1
    boxes = {key: Interval(np.repeat(cell.lo, count), np.repeat(cell.hi, count)) for key, cell in cells.items()}
    boxes[along] = Interval(edges[:, :-1].ravel(), edges[:, 1:].ravel())
    return boxes


def _find_peaks(low: Float, high: Float) -> Truth:
    """Return the cells that have a strictly increasing segment before a strictly decreasing segment."""
    rose = np.logical_or.accumulate(low > 0, axis=1)
    return np.asarray((rose & (high < 0)).any(axis=1))


def _find_open_run(low: Float, high: Float) -> tuple[Int, Int]:
    """Return the first segment that may increase and the last segment that may decrease. Between them all is open."""
    segments = low.shape[1]
    rises, falls = ~(high <= 0), ~(low >= 0)
    first = np.where(rises.any(axis=1), np.argmax(rises, axis=1), segments)
    last = np.where(falls.any(axis=1), segments - 1 - np.argmax(falls[:, ::-1], axis=1), -1)
    return first, last


def _is_convex(curvature: Float, first: Int, last: Int) -> Truth:
    """Return the cells that are convex on the whole open run of segments."""
    index = np.arange(curvature.shape[1])[None, :]
    outside = (index < first[:, None]) | (index > last[:, None])
    return np.asarray((outside | (curvature >= 0)).all(axis=1))


def _narrow_cells(cells: BoxBatch, along: Key, edges: Float, first: Int, last: Int) -> BoxBatch:
    """Return the cells, reduced along the variable to the open run of segments."""
    rows = np.arange(len(edges))
    return {**cells, along: Interval(edges[rows, first], edges[rows, last + 1])}


def _is_halved(before: BoxBatch, after: BoxBatch, along: Key) -> bool:
    return bool((relative_width(after[along], before[along]) <= 0.5).all())
