"""Sift: which rows of a call a rule has to try; the rest could only give false evaluations that change nothing.

Idea: `corners` names the cells in which no combination is true. An evaluation there is false for certain, and a false
one matters only to a life that no false one has met yet. So behind each stretch that may be true one cell of certain
falsehood is tried as well, to end what has begun; the others are passed over, and their rows are partners at most.

Guarantee: the same alerts, and the same evaluations that wait, as if all rows were tried. Take a key whose rows came in
time order: its evaluations apply as they arrive, none is late, and those that waited apply before. An evaluation is
passed over only if progress has reached it, it is false for certain, and since the last true one, or since the start if
a life was open and not yet met by a false one, another false one was applied; `unsettled` makes sure of the last. Then
the life is none, or firing on by `keep_firing_for` alone. In the first case a false evaluation does nothing. In the
second it can end the life at a moment that is fixed already, and so does whatever comes next, or progress, which has
passed the evaluation in the same call; its margin is below 0, so no witness changes. A rule with `recovery` has
evaluations that are neither, and a key out of order has late ones: there nothing is passed over unless the whole key is
without hope, without a life, and without a true evaluation that waits. Then nothing in this call begins a life.
Partners of a row that is tried lie at most a span away, and the join asks of no others.

Cost: a few looks at each cell; for what is tried and its partners, what the join costs.
Source: ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tocsin.expr.syntax_tree import Key
from tocsin.jit import kernel
from tocsin.operators.join.batch_slice import BatchSlice
from tocsin.operators.join.cell_grid import widen
from tocsin.operators.join.corner_bounds import CornerBounds
from tocsin.operators.join.threshold_join import Evaluations, Probes
from tocsin.operators.lifecycle.alert_state_machine import TRUE
from tocsin.plan.steps import Threshold
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.runtime.versioned_rows import VersionedRows


@kernel
def rouse(key: Int, number: Int, shift: int, cells: tuple[Bools, Bools], of_keys: tuple[Bools, Bools, Int]) -> Bools:
    """Tell which cells are to be tried, of those that are `hopeless` or not and `peopled` with new rows or not.

    `of_keys` says whether they came in order and whether something is open, and has their progress.
    """
    (hopeless, peopled), (in_order, is_open, progress) = cells, of_keys
    tried, hope, awake = np.zeros(key.shape[0], np.bool_), is_open & ~in_order, is_open.copy()
    for c in range(key.shape[0]):
        hope[key[c]] |= peopled[c] and not hopeless[c] and not in_order[key[c]]
    for c in range(key.shape[0]):
        k = key[c]
        if not peopled[c]:
            continue
        # What progress has not reached may still end a life that an earlier true evaluation begins.
        ahead = ((number[c] + 1) << shift) - 1 > progress[k]
        tried[c] = not hopeless[c] or hope[k] or ahead or awake[k]
        awake[k] = not hopeless[c]
    return tried


@kernel
def unsettled(probes: tuple[Int, Int], found: Int, truth: Int, passed_over: Int, ends: Int, is_open: Bools) -> Bools:
    """Name the keys of which rows were passed over though the evaluation before them was not false.

    `probes` are key and cell of each; `passed_over` counts such cells before each cell, `ends` has the cells behind the
    last of each key.
    """
    key, cell = probes
    again, awake, seen = np.zeros(is_open.shape[0], np.bool_), is_open.copy(), np.zeros(is_open.shape[0], np.int64)
    for k in range(is_open.shape[0]):
        seen[k] = passed_over[ends[k - 1]] if k else 0
    for p in range(key.shape[0]):
        k = key[p]
        again[k] |= awake[k] and passed_over[cell[p]] > seen[k]
        seen[k] = passed_over[cell[p]]
        if found[p]:
            awake[k] = truth[p] == TRUE
    for k in range(is_open.shape[0]):
        again[k] |= awake[k] and passed_over[ends[k]] > seen[k]
    return again


@kernel
def gather(starts: Int, wanted: Bools) -> tuple[Int, Int]:
    """Rows of the wanted cells, and the cell of each."""
    count = 0
    for c in range(wanted.shape[0]):
        if wanted[c]:
            count += starts[c + 1] - starts[c]
    rows, cells, count = np.empty(count, np.int64), np.empty(count, np.int64), 0
    for c in range(wanted.shape[0]):
        if wanted[c]:
            for row in range(starts[c], starts[c + 1]):
                rows[count], cells[count] = row, c
                count += 1
    return rows, cells


class Cut(NamedTuple):
    """What is tried and its partners: which arrival each row is or -1, its cell, whether it is a partner only."""

    segments: list[VersionedRows]
    arrival: Int
    cell: Int
    silent: Bools
    passed_over: Int
    ends: Int

    def unsettled(self, probes: Probes, found: Evaluations, is_open: Bools) -> Bools:
        """Name the keys of which more must be tried."""
        at = (probes.key, self.cell[probes.row])
        return unsettled(at, found.found, found.truth, self.passed_over, self.ends, is_open)


class InfeasibleCells:
    """The cells of a call as one rule sees them."""

    def __init__(
        self, arrived: BatchSlice, rule: Threshold, corners: CornerBounds, limits: Mapping[Key, Float]
    ) -> None:
        span_us = rule.topology.span_us
        self.arrived, self.rule, self.shift = arrived, rule, arrived.shift_for(span_us)
        self.mesh, self.reach = arrived.mesh(self.shift), -(-span_us >> self.shift)
        reads = list(zip(rule.stores, rule.needs, strict=True))
        spans = [arrived.spread(i, need, self.shift, self.reach) for i, need in reads]
        self.hopeless = corners.hopeless(spans, {key: numbers[self.mesh.key] for key, numbers in limits.items()})
        self.peopled = np.logical_or.reduce([arrived.cells_with_new_rows(i, self.shift) for i in rule.stores])

    def cut(self, in_order: Bools, is_open: Bools, progress: Int) -> Cut:
        """Choose the rows that are tried and those that may be their partners."""
        mesh, keys = self.mesh, len(progress)
        tried = rouse(mesh.key, mesh.number, self.shift, (self.hopeless, self.peopled), (in_order, is_open, progress))
        wanted = widen(tried, mesh.key, mesh.number, self.reach)
        segments, arrivals, cells = [], [], []
        for i in self.rule.stores:
            rows, cell = gather(mesh.starts[i], wanted)
            segments.append(self.arrived.segments[i].take(rows, mesh.key[cell]))
            arrivals.append(self.arrived.arrival_of(i, skipped_too=False)[rows])
            cells.append(cell)
        cell = np.concatenate(cells)
        passed_over = np.concatenate([[0], np.cumsum(self.peopled & ~tried)])
        ends = np.searchsorted(mesh.key, np.arange(keys), side="right")
        return Cut(segments, np.concatenate(arrivals), cell, ~tried[cell], passed_over, ends)
