"""Corners: name the stretches of time in which a rule cannot be true, from the extremes of the rows around alone.

Idea: a margin that is increasing, decreasing or quasiconvex in every stream is largest at a corner of the box that the
rows span which may be partners. Where it is below 0 at all corners, by more than rounding can bend a proof, no
combination is true, and none needs to be looked for. Most keys are quiet most of the time.
Guarantee: a cell that is named has no row that is part of a true combination, if the shapes are as declared, which is
what omission trusts in too. A corner where the condition is undefined, or a row outside the domain, says nothing.
Cost: one evaluation per cell and corner.
Source: ours; that a quasiconvex function is largest at a corner is in Boyd and Vandenberghe, Convex Optimization,
section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from tocsin.expr.column_evaluation import evaluate_columns
from tocsin.expr.syntax_tree import Bool, Compare, Key, Node, find_variables
from tocsin.operators.join.cell_grid import NOBODY, VAGUE, Span
from tocsin.plan.bound import by_numbers, compared_as
from tocsin.plan.prove import named_by_column
from tocsin.plan.steps import Store, Threshold
from tocsin.runtime.contract import Bools, Float

# With more streams, the corners would cost more than they save.
MOST_CORNERS = 16


class CornerBounds:
    """The corners of one rule: `known` if the shape of every stream is, and corners are few."""

    def __init__(self, rule: Threshold) -> None:
        stores = self.stores = rule.needs
        self.rule, self.sides = rule, [_sides(store) for store in stores]
        corners = int(np.prod([len(sides) for sides in self.sides]))
        self.variables: list[Key] = [compared_as(store).key for store in stores]
        self.condition = by_numbers(named_by_column(rule.condition, dict(rule.columns)), stores)
        read = {variable.key for variable in find_variables(self.condition)} - {limit.variable for limit in rule.limits}
        self.known = len(stores) > 1 and 0 < corners <= MOST_CORNERS and read <= set(self.variables)
        self.comparisons = list(_comparisons(self.condition))

    def hopeless(self, spans: Sequence[Span], limits: dict[Key, Float]) -> Bools:
        """Tell for which cells no combination of the rows around them, given per stream, is true."""
        unsure, nobody = np.zeros(len(spans[0].state), np.bool_), np.zeros(len(spans[0].state), np.bool_)
        for span in spans:
            unsure |= span.state == VAGUE
            nobody |= span.state == NOBODY
        at = np.flatnonzero(~(unsure | nobody))
        corners = list(product(*([getattr(span, side)[at] for side in sides] for span, sides in self._sided(spans))))
        columns = {key: np.concatenate([corner[i] for corner in corners]) for i, key in enumerate(self.variables)}
        columns |= {key: np.tile(numbers[at], len(corners)) for key, numbers in limits.items()}
        unsure[at] = self._may_be_true(columns).reshape(len(corners), len(at)).any(axis=0)
        return ~unsure | nobody

    def _sided(self, spans: Sequence[Span]) -> Iterator[tuple[Span, list[str]]]:
        return zip(spans, self.sides, strict=True)

    def _may_be_true(self, columns: dict[Key, Float]) -> Bools:
        """Tell at which corners the condition is true or undefined; a part that is undefined may be true elsewhere."""
        with np.errstate(invalid="ignore"):
            margin = evaluate_columns(self.condition, columns)[0]  # type: ignore[arg-type]
            maybe: Bools = ~((margin < -self.rule.rounding) & np.isfinite(margin))
            for part in self.comparisons:
                if part is not self.condition:
                    maybe |= ~np.isfinite(evaluate_columns(part, columns)[0])
        return maybe


def _comparisons(node: Node) -> Iterator[Compare]:
    """The comparisons of a condition: `or` hides one that is undefined behind one that is not."""
    if isinstance(node, Compare):
        yield node
    elif isinstance(node, Bool):
        for part in node.args:
            yield from _comparisons(part)


def _sides(store: Store) -> list[str]:
    """The extremes that matter of a stream; none where its shape is not known, or rows are compared by several."""
    if len(store.by) > 1:
        return []
    return ["largest"] * (store.above_us >= 0) + ["least"] * (store.below_us >= 0)
