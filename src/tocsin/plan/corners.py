"""Corners: name the keys for which a rule cannot be true, from the extremes of their rows alone.

Idea: a margin that is increasing, decreasing or quasiconvex in every stream is largest at a corner of the box that the
rows of a key span. Where it is below 0 at all corners, by more than rounding can bend a proof, no combination is true,
and none needs to be looked for. Most keys are quiet most of the time.
Guarantee: a key that is named has no true combination among the rows given, if the shapes are as declared, which is
what omission trusts in too. A corner where the condition is undefined, or a row outside the domain, says nothing.
Cost: one pass over the rows of a key, one evaluation per key and corner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tocsin.expr.columns import evaluate_columns
from tocsin.expr.nodes import Bool, Compare, Key, Node, variables
from tocsin.logic import Float
from tocsin.plan.bound import by_numbers, compared_as
from tocsin.plan.prove import named_by_column
from tocsin.plan.remember import Segments
from tocsin.plan.steps import Store, Threshold

Bools = NDArray[np.bool_]

# With more streams, the corners would cost more than they save.
MOST_CORNERS = 16


class Corners:
    """The corners of one rule: `known` if the shape of every stream is, and corners are few."""

    def __init__(self, rule: Threshold) -> None:
        stores = self.stores = rule.needs
        self.rule, self.sides = rule, [_sides(store) for store in stores]
        corners = int(np.prod([len(sides) for sides in self.sides]))
        self.variables: list[Key] = [compared_as(store).key for store in stores]
        self.condition = by_numbers(named_by_column(rule.condition, dict(rule.columns)), stores)
        read = {variable.key for variable in variables(self.condition)} - {limit.variable for limit in rule.limits}
        self.known = len(stores) > 1 and 0 < corners <= MOST_CORNERS and read <= set(self.variables)
        self.comparisons = list(_comparisons(self.condition))

    def hopeless(self, segments: Sequence[Segments], limits: dict[Key, Float]) -> Bools:
        """Tell for which keys no combination of these rows is true."""
        unsure = np.zeros(len(segments[0].offsets) - 1, np.bool_)
        extremes = []
        for store, segment, sides in zip(self.stores, segments, self.sides, strict=True):
            numbers, apart = store.numbers(segment.values)
            unsure |= ~(np.diff(segment.offsets) > 0) | _any(apart, segment)
            extremes.append([_per_key(side, numbers[0], segment) for side in sides])
        with np.errstate(invalid="ignore"):
            for corner in product(*extremes):
                columns = dict(zip(self.variables, corner, strict=True)) | limits
                for part in self.comparisons:
                    unsure |= ~np.isfinite(evaluate_columns(part, columns)[0])
                unsure |= ~(evaluate_columns(self.condition, columns)[0] < -self.rule.rounding)  # type: ignore[arg-type]
        return ~unsure


def _comparisons(node: Node) -> Iterator[Compare]:
    """The comparisons of a condition: `or` hides one that is undefined behind one that is not."""
    if isinstance(node, Compare):
        yield node
    elif isinstance(node, Bool):
        for part in node.args:
            yield from _comparisons(part)


def _sides(store: Store) -> list[np.ufunc]:
    """The extremes that matter of a stream; none where its shape is not known, or rows are compared by several."""
    if len(store.by) > 1:
        return []
    return [np.maximum] * (store.above_us >= 0) + [np.minimum] * (store.below_us >= 0)


def _per_key(side: np.ufunc, value: Float, segment: Segments) -> Float:
    """The extreme of each key; NaN where it has no rows."""
    extreme = np.full(len(segment.offsets) - 1, np.nan)
    filled = np.flatnonzero(np.diff(segment.offsets))
    if len(filled):
        extreme[filled] = side.reduceat(value, segment.offsets[filled])
    return extreme


def _any(flags: Bools, segment: Segments) -> Bools:
    found = np.zeros(len(segment.offsets) - 1, np.bool_)
    filled = np.flatnonzero(np.diff(segment.offsets))
    if len(filled):
        found[filled] = np.logical_or.reduceat(flags, segment.offsets[filled])
    return found
