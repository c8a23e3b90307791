"""Corner bounds: proof from cell extremes that a condition is false for all combinations around a cell.

Algorithm: the possible partners of the rows in a cell span a box. A margin that is increasing, decreasing or
quasiconvex in every stream is largest at a corner of this box. If the margin at each corner is below 0 by more than the
rounding error of the proof, no combination is true. The join then skips the cell.

Guarantees: an infeasible cell has no row of a true combination, if the declared shapes are correct. Omission has the
same premise. A cell is feasible if the condition is undefined at a corner or a row is outside its domain.

Complexity: one evaluation of the condition per cell and corner.

References: own method. Boyd and Vandenberghe, Convex Optimization, section 3.4, for the maximum at a corner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from tocsin.expr.column_evaluation import evaluate_columns
from tocsin.expr.syntax_tree import Bool, Compare, Key, Node, find_variables
from tocsin.operators.join.cell_grid import NO_ROWS, UNKNOWN, CellExtremes
from tocsin.plan.bound import by_numbers, compared_as
from tocsin.plan.prove import named_by_column
from tocsin.plan.steps import Store, Threshold
from tocsin.runtime.contract import Bools, Float

# Largest number of corners. More corners cost more than they save.
MAX_CORNERS = 16


class CornerBounds:
    """Corners of one rule.

    Attributes
    ----------
    known
        Whether the shape of every stream is known and the number of corners is small.
    """

    def __init__(self, rule: Threshold) -> None:
        stores = self.stores = rule.needs
        self.rule, self.sides = rule, [_sides(store) for store in stores]
        corners = int(np.prod([len(sides) for sides in self.sides]))
        self.variables: list[Key] = [compared_as(store).key for store in stores]
        self.condition = by_numbers(named_by_column(rule.condition, dict(rule.columns)), stores)
        read = {variable.key for variable in find_variables(self.condition)} - {limit.variable for limit in rule.limits}
        self.known = len(stores) > 1 and 0 < corners <= MAX_CORNERS and read <= set(self.variables)
        self.comparisons = list(_comparisons(self.condition))

    def infeasible_cells(self, extremes: Sequence[CellExtremes], limits: dict[Key, Float]) -> Bools:
        """Mark the cells in which all combinations with the rows around them are false. `extremes` are by stream."""
        may_hold, is_empty = np.zeros(len(extremes[0].state), np.bool_), np.zeros(len(extremes[0].state), np.bool_)
        for part in extremes:
            may_hold |= part.state == UNKNOWN
            is_empty |= part.state == NO_ROWS
        at = np.flatnonzero(~(may_hold | is_empty))
        corners = list(product(*([getattr(part, side)[at] for side in sides] for part, sides in self._sided(extremes))))
        columns = {key: np.concatenate([corner[i] for corner in corners]) for i, key in enumerate(self.variables)}
        columns |= {key: np.tile(numbers[at], len(corners)) for key, numbers in limits.items()}
        may_hold[at] = self._may_be_true(columns).reshape(len(corners), len(at)).any(axis=0)
        return ~may_hold | is_empty

    def _sided(self, extremes: Sequence[CellExtremes]) -> Iterator[tuple[CellExtremes, list[str]]]:
        return zip(extremes, self.sides, strict=True)

    def _may_be_true(self, columns: dict[Key, Float]) -> Bools:
        """Mark the corners with a true or undefined condition.

        A comparison that is undefined at a corner can be true elsewhere in the box.
        """
        with np.errstate(invalid="ignore"):
            margin = evaluate_columns(self.condition, columns)[0]  # type: ignore[arg-type]
            may_be_true: Bools = ~((margin < -self.rule.rounding) & np.isfinite(margin))
            for part in self.comparisons:
                if part is not self.condition:
                    may_be_true |= ~np.isfinite(evaluate_columns(part, columns)[0])
        return may_be_true


def _comparisons(node: Node) -> Iterator[Compare]:
    """Yield the comparisons of a condition. `or` can hide an undefined comparison."""
    if isinstance(node, Compare):
        yield node
    elif isinstance(node, Bool):
        for part in node.args:
            yield from _comparisons(part)


def _sides(store: Store) -> list[str]:
    """Return the extremes of a stream that bound the condition, or an empty list if its shape or order is unknown."""
    if len(store.by) > 1:
        return []
    return ["largest"] * (store.above_us >= 0) + ["least"] * (store.below_us >= 0)
