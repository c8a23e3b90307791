"""Infeasible cells: selection of the rows of a call that a rule must evaluate.

The other rows can only have false evaluations that change no alert.

Algorithm: `corner_bounds` marks the cells in which no combination is true. An evaluation there is false. A false
evaluation only matters for an alert that has no false evaluation yet. So the join also evaluates one infeasible cell
after each stretch of feasible cells, to end an alert of this stretch. It skips the other infeasible cells. Their rows
are only partners.

Guarantees: alerts and buffered evaluations are the same as if all rows were evaluated.

- A key in time order applies its evaluations on arrival. None of them is late, and buffered evaluations apply before.
- The join skips an evaluation only if it is false, not after the watermark, and after an applied false evaluation.
  This false evaluation must follow the last true evaluation, and it must follow the start of the call if the alert was
  active. `keys_to_retry` verifies this.
- So the key has no alert, or its alert fires only because of `keep_firing_for`. Without an alert, a false evaluation
  has no effect. Otherwise it can only end the alert, at a fixed time. The watermark has passed the evaluation in the
  same call, so it ends the alert at the same time. The margin is below 0, so no witness changes.
- A rule with `recovery` has evaluations that are neither true nor false, and an out-of-order key has late evaluations.
  There the join skips only keys without feasible cells, without an alert and without a buffered true evaluation. No
  alert of these keys can start in this call.
- The partners of an evaluated row are at most a span away. The join reads no other partners.

Complexity: a few reads per cell. The join cost applies to evaluated rows and their partners only.

References: own method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tocsin.expr.syntax_tree import Key
from tocsin.jit import kernel
from tocsin.operators.join.batch_slice import BatchSlice
from tocsin.operators.join.cell_grid import add_cells_around
from tocsin.operators.join.corner_bounds import CornerBounds
from tocsin.operators.join.threshold_join import Evaluations, Probes
from tocsin.operators.lifecycle.alert_state_machine import TRUE
from tocsin.plan.steps import Threshold
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.runtime.versioned_rows import VersionedRows


@kernel
def cells_to_evaluate(
    key: Int, number: Int, shift: int, cells: tuple[Bools, Bools], of_keys: tuple[Bools, Bools, Int]
) -> Bools:
    """Return the cells that the join must evaluate.

    `cells` are two marks per cell: it is infeasible, and it has new rows. `of_keys` has for each key whether its rows
    are in order, whether it is active, and its watermark.
    """
    (infeasible, has_new_rows), (in_order, is_active, watermark) = cells, of_keys
    evaluated, evaluates_all, needs_false = np.zeros(key.shape[0], np.bool_), is_active & ~in_order, is_active.copy()
    for c in range(key.shape[0]):
        evaluates_all[key[c]] |= has_new_rows[c] and not infeasible[c] and not in_order[key[c]]
    for c in range(key.shape[0]):
        k = key[c]
        if not has_new_rows[c]:
            continue
        # Before the watermark passes this cell, a true evaluation can still start an alert that this cell ends.
        is_after_watermark = ((number[c] + 1) << shift) - 1 > watermark[k]
        evaluated[c] = not infeasible[c] or evaluates_all[k] or is_after_watermark or needs_false[k]
        needs_false[k] = not infeasible[c]
    return evaluated


@kernel
def keys_to_retry(probes: tuple[Int, Int], found: Int, truth: Int, skipped: Int, ends: Int, is_active: Bools) -> Bools:
    """Return the keys with skipped rows whose previous evaluation was not false.

    `probes` are the key and the cell of each probe. `skipped` counts the skipped cells before each cell. `ends` has the
    end of the cells of each key.
    """
    key, cell = probes
    retry, needs_false, seen = (
        np.zeros(is_active.shape[0], np.bool_),
        is_active.copy(),
        np.zeros(is_active.shape[0], np.int64),
    )
    for k in range(is_active.shape[0]):
        seen[k] = skipped[ends[k - 1]] if k else 0
    for p in range(key.shape[0]):
        k = key[p]
        retry[k] |= needs_false[k] and skipped[cell[p]] > seen[k]
        seen[k] = skipped[cell[p]]
        if found[p]:
            needs_false[k] = truth[p] == TRUE
    for k in range(is_active.shape[0]):
        retry[k] |= needs_false[k] and skipped[ends[k]] > seen[k]
    return retry


@kernel
def gather_rows(starts: Int, chosen: Bools) -> tuple[Int, Int]:
    """Return the rows of the chosen cells, and the cell of each row."""
    count = 0
    for c in range(chosen.shape[0]):
        if chosen[c]:
            count += starts[c + 1] - starts[c]
    rows, cells, count = np.empty(count, np.int64), np.empty(count, np.int64), 0
    for c in range(chosen.shape[0]):
        if chosen[c]:
            for row in range(starts[c], starts[c + 1]):
                rows[count], cells[count] = row, c
                count += 1
    return rows, cells


class CandidateRows(NamedTuple):
    """Evaluated rows and their possible partners.

    Attributes
    ----------
    segments
        Rows of each stream of the rule.
    arrival
        Arrival of each row, or -1 for a retained row.
    cell
        Cell of each row.
    partner_only
        Rows that are not evaluated.
    skipped
        Number of skipped cells before each cell.
    ends
        End of the cells of each key.
    """

    segments: list[VersionedRows]
    arrival: Int
    cell: Int
    partner_only: Bools
    skipped: Int
    ends: Int

    def keys_to_retry(self, probes: Probes, found: Evaluations, is_active: Bools) -> Bools:
        """Return the keys that need more evaluated rows."""
        at = (probes.key, self.cell[probes.row])
        return keys_to_retry(at, found.found, found.truth, self.skipped, self.ends, is_active)


class InfeasibleCells:
    """Cells of a call for one rule: infeasible cells and cells with new rows."""

    def __init__(
        self, arrived: BatchSlice, rule: Threshold, corners: CornerBounds, limits: Mapping[Key, Float]
    ) -> None:
        span_us = rule.topology.span_us
        self.arrived, self.rule, self.shift = arrived, rule, arrived.cell_size_log2(span_us)
        self.grid, self.distance = arrived.cell_grid(self.shift), -(-span_us >> self.shift)
        reads = list(zip(rule.stores, rule.needs, strict=True))
        extremes = [arrived.cell_extremes(i, need, self.shift, self.distance) for i, need in reads]
        self.infeasible = corners.infeasible_cells(
            extremes, {key: numbers[self.grid.key] for key, numbers in limits.items()}
        )
        self.has_new_rows = np.logical_or.reduce([arrived.cells_with_new_rows(i, self.shift) for i in rule.stores])

    def select_rows(self, in_order: Bools, is_active: Bools, watermark: Int) -> CandidateRows:
        """Select the rows to evaluate and their possible partners."""
        grid, keys = self.grid, len(watermark)
        evaluated = cells_to_evaluate(
            grid.key, grid.number, self.shift, (self.infeasible, self.has_new_rows), (in_order, is_active, watermark)
        )
        chosen = add_cells_around(evaluated, grid.key, grid.number, self.distance)
        segments, arrivals, cells = [], [], []
        for i in self.rule.stores:
            rows, cell = gather_rows(grid.starts[i], chosen)
            segments.append(self.arrived.segments[i].take(rows, grid.key[cell]))
            arrivals.append(self.arrived.arrival_of(i, with_skipped=False)[rows])
            cells.append(cell)
        cell = np.concatenate(cells)
        skipped = np.concatenate([[0], np.cumsum(self.has_new_rows & ~evaluated)])
        ends = np.searchsorted(grid.key, np.arange(keys), side="right")
        return CandidateRows(segments, np.concatenate(arrivals), cell, ~evaluated[cell], skipped, ends)
