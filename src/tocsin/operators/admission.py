"""Admission: rows within the allowed lateness of their key.

Algorithm: the newest time of a key follows its rows in order of arrival. A row is dropped if it is older than the
newest time by more than `allowed_lateness`. Rows that no view can use move the newest time too.

Guarantees: each dropped row is counted as late, and described in `Out.late`.

Complexity: O(n) for n rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tocsin.hashing import stable_hash
from tocsin.jit import kernel
from tocsin.rules.durations import duration_text
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER_SEEN, Int
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.row_batch import RowBatch
from tocsin.runtime.state_registry import Column, OperatorState, SectionSpec, Shard, StateArray, StateSchema

KIND = "admission"
SPEC = SectionSpec(stable_hash(KIND), StateSchema(KIND, (Column("newest", default=NEVER_SEEN), Column("seen"))))


@kernel
def filter_late_rows(key: Int, time: Int, newest: Int, allowed_lateness: int) -> NDArray[np.bool_]:
    """Update the newest time of each key, and mark the rows that are within the allowed lateness."""
    timely = np.empty(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        newest[key[i]] = max(newest[key[i]], time[i])
        timely[i] = time[i] >= newest[key[i]] - allowed_lateness
    return timely


class AdmissionState(OperatorState):
    """Newest event time, and processing time of the last row, of each key."""

    newest, seen_us = StateArray("newest"), StateArray("seen")


class Admission:
    """Operator that drops late rows."""

    sections = (SPEC,)

    def __init__(self, allowed_lateness_us: int) -> None:
        self.allowed_lateness_us = allowed_lateness_us

    def state(self, shard: Shard) -> AdmissionState:
        """Return the state in a shard."""
        return AdmissionState(shard.sections[SPEC.id])

    def process(self, shard: Shard, rows: RowBatch, context: Context, wait_us: int | None = None) -> RowBatch:
        """Return the rows that are not late. `wait_us` is the reorder wait at their release."""
        timely = filter_late_rows(rows.key, rows.time, self.state(shard).newest, self.allowed_lateness_us)
        reason = f"it is later than `allowed_lateness` ({duration_text(self.allowed_lateness_us)}) and was dropped"
        context.record(shard, rows, ~timely, RowOutcome.LATE, reason=reason, wait_us=wait_us)
        return rows if timely.all() else rows.take(timely)
