"""Branch and bound: prove a shape by cutting the domain into boxes until intervals of slopes decide on each.

Idea: never falling on every box of a cover is never falling. Quasiconvexity is proved per cell of the other
variables: along the variable, segments with slope <= 0, then segments on which the expression is convex, then segments
with slope >= 0. What remains undecided in the middle is cut again, along the variable or along the others.
Guarantee: `proved` is a proof, in exact arithmetic, from outward rounded intervals. `refuted` says that some slope is
strictly against the shape, so that a counterexample is worth looking for in that box. Cost: at most `most` boxes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tocsin.expr.certify.boxes import MOST_ROUNDS, around, cuts_of, first_of, halves, is_wide, rungs, share, size, take
from tocsin.expr.certify.interval import Float, Int, Interval, Truth
from tocsin.expr.certify.jets import Box, Evaluator
from tocsin.expr.nodes import Key, Node

_SEGMENTS = 16
_MOST_SEGMENTS = 4096


@dataclass(frozen=True)
class Outcome:
    """What a search found, after how many boxes; `where` is a box that decided it, or that stayed open."""

    proved: bool
    boxes: int
    refuted: bool = False
    where: Mapping[Key, tuple[float, float]] = field(default_factory=dict)


def prove_monotone(tree: Node, along: Key, domain: Box, sign: int, most: int) -> Outcome:
    """Prove that an expression never falls (sign 1) or never rises (-1) along a variable."""
    evaluator, cuts, todo, count = Evaluator(along), cuts_of(tree), domain, 0
    start = around(domain)
    for rounds in itertools.count(1):
        slope = evaluator.run(tree, todo).slope
        assert slope is not None
        low, high = (slope.lo, slope.hi) if sign > 0 else (-slope.hi, -slope.lo)
        count += size(todo)
        if (high < 0).any():
            return Outcome(False, count, True, first_of(take(todo, high < 0)))
        if (low >= 0).all():
            return Outcome(True, count)
        todo = take(todo, ~(low >= 0))
        if rounds > MOST_ROUNDS or count + 2 * size(todo) > most:
            return Outcome(False, count, False, first_of(todo))
        todo = halves(todo, start, cuts)
    raise AssertionError


def prove_quasiconvex(tree: Node, along: Key, domain: Box, most: int) -> Outcome:
    """Prove that an expression falls, then rises, along a variable, whatever the others are."""
    evaluator, cuts = Evaluator(along, curves=True), np.array(cuts_of(tree))
    start = around(domain)
    others = [key for key in start if key != along and is_wide(start[key])]
    cells, count, segments = start, 0, _SEGMENTS
    for rounds in itertools.count(1):
        edges = _edges(cells[along], segments, cuts)
        jet = evaluator.run(tree, _segmented(cells, along, edges))
        count += edges.shape[0] * segments
        assert jet.slope is not None
        assert jet.curve is not None
        shape = (edges.shape[0], segments)
        low, high, curve = (
            np.broadcast_to(a, edges.shape[0] * segments).reshape(shape) for a in (*jet.slope, jet.curve.lo)
        )
        if (peak := _peaks(low, high)).any():
            return Outcome(False, count, True, first_of(take(cells, peak)))
        first, last = _open_run(low, high)
        convex = _convex(curve, first, last)
        keep = (first <= last) & ~convex
        if not keep.any():
            return Outcome(True, count)
        cells, edges, first, last = take(cells, keep), edges[keep], first[keep], last[keep]
        narrowed = _narrowed(cells, along, edges, first, last)
        if not _shrank(cells, narrowed, along):
            if others:
                narrowed = halves(narrowed, start, cuts, others)
            if not others or size(narrowed) > most // _SEGMENTS // 4:
                segments *= 4
        cells = narrowed
        if rounds > MOST_ROUNDS or segments > _MOST_SEGMENTS or count + size(cells) * segments > most:
            return Outcome(False, count, False, first_of(cells))
    raise AssertionError


def _edges(interval: Interval, segments: int, cuts: Float) -> Float:
    """Cut each cell along the variable; the edge next to a literal is moved onto it."""
    edges = rungs(interval.lo[:, None], interval.hi[:, None], np.linspace(0.0, 1.0, segments + 1))
    edges[:, 0], edges[:, -1] = interval.lo, interval.hi
    edges = np.sort(edges, axis=1)
    for cut in cuts:
        inside = (cut > interval.lo) & (cut < interval.hi)
        nearest = np.clip(np.argmin(np.abs(edges - cut), axis=1), 1, segments - 1)
        rows = np.flatnonzero(inside)
        edges[rows, nearest[rows]] = cut
    return np.sort(edges, axis=1)


def _segmented(cells: Box, along: Key, edges: Float) -> Box:
    count = edges.shape[1] - 1
    boxes = {key: Interval(np.repeat(cell.lo, count), np.repeat(cell.hi, count)) for key, cell in cells.items()}
    boxes[along] = Interval(edges[:, :-1].ravel(), edges[:, 1:].ravel())
    return boxes


def _peaks(low: Float, high: Float) -> Truth:
    """Cells with a segment that strictly rises before one that strictly falls."""
    rose = np.logical_or.accumulate(low > 0, axis=1)
    return np.asarray((rose & (high < 0)).any(axis=1))


def _open_run(low: Float, high: Float) -> tuple[Int, Int]:
    """The first segment that may rise and the last that may fall: between them nothing is known."""
    segments = low.shape[1]
    rises, falls = ~(high <= 0), ~(low >= 0)
    first = np.where(rises.any(axis=1), np.argmax(rises, axis=1), segments)
    last = np.where(falls.any(axis=1), segments - 1 - np.argmax(falls[:, ::-1], axis=1), -1)
    return first, last


def _convex(curve: Float, first: Int, last: Int) -> Truth:
    """Cells that are convex on the whole open run."""
    place = np.arange(curve.shape[1])[None, :]
    outside = (place < first[:, None]) | (place > last[:, None])
    return np.asarray((outside | (curve >= 0)).all(axis=1))


def _narrowed(cells: Box, along: Key, edges: Float, first: Int, last: Int) -> Box:
    rows = np.arange(len(edges))
    return {**cells, along: Interval(edges[rows, first], edges[rows, last + 1])}


def _shrank(before: Box, after: Box, along: Key) -> bool:
    return bool((share(after[along], before[along]) <= 0.5).all())
