"""Costs: what a row of a watch may take of its memory, at the most, before it is handed to a page.

Idea: a row is charged all that it can add to a page: its columns and its text, as often as it is remembered, and the
texts of witnesses that it may come into. A key that is not known yet is charged apart, by its first row, and so is an
evaluation that may wait (`waiting_charges.py`).
Guarantee: no row takes more than it was charged; so the bound holds for bytes of state and not for an estimate of them.
Cost: one JSON text per row that has one.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tocsin.operators.retention.operator import NO_TEXT
from tocsin.plan.steps import Watch
from tocsin.rules.quality import BYTES
from tocsin.runtime.contract import Int
from tocsin.runtime.row_batch import RowBatch


class RowCosts:
    """What rows of a watch cost, in bytes or in rows."""

    def __init__(self, watch: Watch) -> None:
        assert watch.budget is not None
        self.in_bytes = watch.budget.memory.unit == BYTES
        remembered = [[store for store in watch.stores if store.remember and store.lane == of] for of in watch.lanes]
        # How often a row of each lane is remembered, and what its columns take; behind the lanes come rows of no use.
        self.times = np.array([*map(len, remembered), 0])
        more = 1 + watch.budget.samples
        columns = [sum(8 * (more + len(store.columns)) for store in mine) for mine in remembered]
        self.columns = np.array([*columns, 0])
        # How many texts a row may bring into witnesses; a rule that emits all keeps none.
        kept = [rule for rule in watch.rules if rule.emit != "all"] if self.in_bytes else []
        self.shown = sum(len(rule.stores) for rule in kept)

    def texts(self, rows: RowBatch) -> Int:
        """What the text of each row takes on a page."""
        if not self.in_bytes or not rows.has_payload:
            return np.full(len(rows.time), NO_TEXT)
        texts = rows.texts(np.arange(len(rows.time)))
        return np.fromiter((len(json.dumps(one)) + 2 for one in texts), np.int64, len(texts))

    def of_witnesses(self, text: Any) -> Any:
        """What the texts of witnesses take that a row may come into, where the longest takes so much.

        The witness that drives a life may be its best, which has a place that its key pays for, but for texts.
        """
        return self.shown * text

    def of_rows(self, lane: Int, text: Int) -> Int:
        """What each row may take, its key and the texts of witnesses apart."""
        lane = np.minimum(lane, len(self.times) - 1)
        times = self.times[lane]
        return self.columns[lane] + times * text if self.in_bytes else times
