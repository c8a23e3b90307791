"""Context: the services that an operator may use during a call.

An operator receives a context with each call. It records the outcome of rows there, and reports lost results, metrics
and messages for the coordinator. Row counts, late-row records and traces all follow from these calls.

Guarantees: operators count rows with `record`, `count` and `count_views` only, so received rows are the sum of the
outcomes.

Complexity: `record` costs one step per marked row, and one record per late row, at most `MAX_RECORDS` per call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tocsin.runtime.contract import NEVER_SEEN, Bools, Int, Listener, Out
from tocsin.runtime.metrics import QualityLoss, RowOutcome
from tocsin.runtime.row_batch import RowBatch
from tocsin.runtime.state_registry import Shard

# Largest number of records per call of `record`. Other rows are only counted.
MAX_RECORDS = 10_000


@dataclass(frozen=True)
class InputView:
    """Rows of a stream with finite values in some columns.

    Attributes
    ----------
        stream, columns: Stream and value columns.
        inputs: Counter names of the rows of the view: one per input state.
        rules: Names of the rules that read the view.
    """

    stream: str
    columns: tuple[str, ...]
    inputs: tuple[str, ...]
    rules: tuple[str, ...]


class Context:
    """Services of one call of a keyed pipeline.

    Attributes
    ----------
        pipeline: Name of the pipeline.
        on: Names of the key columns.
        views: Input views.
        now_us: Processing time, or None if the engine has no clock.
        out: Output of the call.
        loss: Loss of results by rows that were evicted.
        listener: Receiver of row outcomes and evaluations for a trace, or None.
    """

    def __init__(
        self,
        pipeline: str,
        on: Sequence[str],
        views: Sequence[InputView],
        out: Out,
        now_us: int | None = None,
        *,
        listener: Listener | None = None,
    ) -> None:
        self.pipeline, self.on, self.views, self.out, self.now_us = pipeline, on, views, out, now_us
        self.loss, self.listener = QualityLoss(NEVER_SEEN), listener

    def count(self, name: str, outcomes: Mapping[RowOutcome, int]) -> None:
        """Add changes of row outcomes of an input state."""
        self.out.metrics.count_rows(name, outcomes)

    def count_views(self, outcome: RowOutcome, changes: Int) -> None:
        """Add a change of an outcome for each input view."""
        for view, change in zip(self.views, changes.tolist(), strict=True):
            for name in view.inputs:
                self.count(name, {outcome: change})

    def record(
        self,
        shard: Shard,
        rows: RowBatch,
        marked: Bools,
        outcome: RowOutcome | None,
        *,
        reason: str = "",
        wait_us: int | None = None,
    ) -> None:
        """Record the outcome of the marked rows: count them, and describe them as late rows if there is a reason.

        Without an outcome the rows are only described. `wait_us` is the reorder wait at their release.
        """
        views = len(self.views)
        if outcome is not None:
            self.count_views(outcome, np.bincount(rows.view[marked], minlength=views)[:views])
        if not (reason and marked.any()):
            return
        at = np.flatnonzero(marked & (rows.view < views))[:MAX_RECORDS]
        for i, number in zip(at.tolist(), rows.view[at].tolist(), strict=True):
            view, cell = self.views[number], rows.cell[i]
            values = {name: float(rows.cells.values[c, cell]) for c, name in enumerate(view.columns)}
            record: dict[str, Any] = {
                "stream": view.stream,
                "reason": reason,
                "rules": list(view.rules),
                "wait_us": wait_us,
                "key": dict(zip(self.on, shard.keys.names[int(rows.key[i])], strict=True)),
                "time": int(rows.time[i]),
                "values": values,
                "payload": rows.texts(np.array([i]))[0],
            }
            self.out.late.append(record)

    def report_loss(self, loss: QualityLoss) -> None:
        """Report that results can be missing. Alerts that reach back to this time carry it in their quality."""
        self.loss = loss

    def losses(self, since: Int) -> list[QualityLoss | None]:
        """Return the loss of results from these times on, or None if no row that they may need was evicted."""
        return [self.loss if is_lost else None for is_lost in (since <= self.loss.until_us).tolist()]

    def set_metric(self, name: str, value: float | None, *labels: str) -> None:
        """Record the value of a metric."""
        self.out.metrics.record(name, value, *labels)

    def publish(self, report: Mapping[str, Any]) -> None:
        """Send a report of this bucket to the coordinator."""
        self.out.reports.append({"watch": self.pipeline, **report})
