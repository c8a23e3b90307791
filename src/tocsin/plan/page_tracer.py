"""Page tracer: reports to a listener which rows enter, leave and decide evaluations on one page.

It observes the values of the engine and computes no result again, so a trace and a run cannot differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tocsin.operators.join.threshold_join import Evaluations, Probes
from tocsin.operators.lifecycle.alert_state_machine import TRUE
from tocsin.operators.lifecycle.witness import WitnessLookup
from tocsin.operators.retention.operator import Retention
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import NEVER, Bools, EvaluatedRows, Int, Listener
from tocsin.runtime.row_batch import RowBatch
from tocsin.runtime.versioned_rows import VersionedRows


class PageTracer:
    """Row numbers of the rows on one page, and the listener that receives their outcomes."""

    def __init__(self, listener: Listener, watch: Watch, memories: Sequence[Retention]) -> None:
        self.listener, self.watch, self.memories = listener, watch, memories
        # By store: row numbers of the retained rows, and of the rows of the current merge by their source number.
        self.retained = [np.zeros(0, np.int64) for _ in memories]
        self.merged = list(self.retained)

    def record_merge(self, store: int, rows: RowBatch, segments: VersionedRows) -> None:
        """Record rows that entered a store."""
        new = rows.cells.position[rows.cell]
        self.merged[store] = np.concatenate([self.retained[store], new])
        self.listener.on_entered(store, new, rows.serial, segments.is_skipped, segments.is_repeat)

    def record_reduction(self, store: int, segments: VersionedRows, floor: Int) -> None:
        """Record the rows that a store omits and retains after a merge; `floor` is the oldest time of each key."""
        if not self.memories[store].store.remember:
            return
        rows = self.merged[store][segments.source]
        key = np.repeat(np.arange(len(segments.offsets) - 1), np.diff(segments.offsets))
        self.retained[store] = rows[(segments.end == NEVER) & (segments.time >= floor[key])]
        self.listener.on_reduced(store, rows, segments.end, self.retained[store])

    def record_evaluations(
        self, rule: int, probes: Probes, evaluations: Evaluations, late: Bools, show: WitnessLookup
    ) -> None:
        """Record the evaluations of probes that completed a combination."""
        stores = self.watch.rules[rule].stores
        numbers = np.concatenate(
            [self.merged[store][part.source] for store, part in zip(stores, show.segments, strict=True)]
        )
        at = np.flatnonzero(evaluations.found == 1)
        value, is_true = evaluations.value[at], evaluations.truth[at] == TRUE
        is_holding = ~is_true & self.watch.rules[rule].holds(value)
        rows = EvaluatedRows(
            probes.stream[at],
            numbers[probes.row[at]],
            numbers[evaluations.witness[at]],
            evaluations.margin[at],
            value,
            is_true,
            is_holding,
            late[at],
        )
        self.listener.on_evaluated(rule, rows)
