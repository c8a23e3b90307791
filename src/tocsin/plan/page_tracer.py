"""Page tracer: reports to a listener the rows that enter or leave the state of one shard, and the evaluations.

It observes the values of the operators and computes no result again, so a trace and a run cannot differ. The caller is
`plan/operator_chain.py`.
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
    """Reporter of row outcomes and evaluations of one shard.

    Attributes
    ----------
        listener: Receiver of the reports.
        watch, retentions: Planned rules, and the retained rows of each input.
        retained: Row numbers of the retained rows of each input.
        merged: Row numbers of the rows of the current merge of each input, by source number.
    """

    def __init__(self, listener: Listener, watch: Watch, retentions: Sequence[Retention]) -> None:
        self.listener, self.watch, self.retentions = listener, watch, retentions
        self.retained = [np.zeros(0, np.int64) for _ in retentions]
        self.merged = list(self.retained)

    def record_merge(self, store: int, rows: RowBatch, merged: VersionedRows) -> None:
        """Report the rows that entered an input state."""
        new = rows.cells.position[rows.cell]
        self.merged[store] = np.concatenate([self.retained[store], new])
        self.listener.on_entered(store, new, rows.serial, merged.is_skipped, merged.is_repeat)

    def record_reduction(self, store: int, merged: VersionedRows, oldest: Int) -> None:
        """Report the rows that an input state omits and retains. `oldest` is the oldest time of each key."""
        if not self.retentions[store].store.remember:
            return
        rows = self.merged[store][merged.source]
        key = np.repeat(np.arange(len(merged.offsets) - 1), np.diff(merged.offsets))
        self.retained[store] = rows[(merged.end == NEVER) & (merged.time >= oldest[key])]
        self.listener.on_reduced(store, rows, merged.end, self.retained[store])

    def record_evaluations(
        self, rule: int, probes: Probes, evaluations: Evaluations, late: Bools, show: WitnessLookup
    ) -> None:
        """Report the evaluations of probes that completed a combination."""
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
