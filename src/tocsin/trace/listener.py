"""Trace listener: collects the row outcomes and evaluations of one key while its session works."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tocsin.plan import Store, Watch
from tocsin.runtime.contract import NEVER, Bools, EvaluatedRows, Int
from tocsin.trace.model import Evaluation, KeyRows


class StoreOutcomes:
    """Outcomes of the rows of one stream in one store.

    Attributes
    ----------
        rank: Entry rank of each row, or -1.
        left: Omission rank of each row, or `NEVER`.
        silent, repeated: Rows that are not evaluated, and rows that are duplicates.
        retained: Rows that remain.
    """

    def __init__(self, store: Store, rows: int) -> None:
        self.store = store
        self.rank, self.left = np.full(rows, -1), np.full(rows, NEVER)
        self.silent, self.repeated = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        self.retained = np.zeros(0, np.int64)


class TraceListener:
    """Outcomes by store and evaluations by rule."""

    def __init__(self, watch: Watch, rows: Mapping[str, KeyRows]) -> None:
        self.stores = [StoreOutcomes(store, len(rows[store.stream])) for store in watch.stores]
        self.evaluations: list[list[Evaluation]] = [[] for _ in watch.rules]
        self._streams = [[watch.stores[store].stream for store in rule.stores] for rule in watch.rules]
        self._rows = rows

    def on_entered(self, store: int, rows: Int, ranks: Int, silent: Bools, repeated: Bools) -> None:
        """Store the rank and the marks of rows that entered a store."""
        mine = self.stores[store]
        mine.rank[rows], mine.silent[rows], mine.repeated[rows] = ranks, silent, repeated

    def on_reduced(self, store: int, rows: Int, left: Int, retained: Int) -> None:
        """Store the first omission of each row, and the rows that remain."""
        mine = self.stores[store]
        mine.left[rows] = np.minimum(mine.left[rows], left)
        mine.retained = retained

    def on_evaluated(self, rule: int, evaluations: EvaluatedRows) -> None:
        """Store evaluations in processing order."""
        streams = self._streams[rule]
        for number, row, partners, margin, value, is_true, is_holding, is_late in zip(
            *(column.tolist() for column in evaluations), strict=True
        ):
            stream = streams[number]
            times = self._rows[stream]
            evaluation = Evaluation(
                int(times.time[row]),
                int(times.arrival[row]),
                margin,
                is_true,
                value,
                is_late,
                is_holding,
                stream,
                row,
                tuple(zip(streams, partners, strict=True)),
            )
            self.evaluations[rule].append(evaluation)
