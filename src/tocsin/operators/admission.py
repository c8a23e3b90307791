"""Admission: records that describe the dropped late rows and the used out-of-order rows of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tocsin.plan.identity import Lane
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Bools
from tocsin.runtime.row_batch import RowBatch

# Largest number of records per call and page. Other rows are only counted.
MAX_RECORDS = 10_000


def late_rows(
    watch: Watch,
    keys: Sequence[tuple[str, ...]],
    rows: RowBatch,
    marked: Bools,
    reason: str,
    wait_us: int | None,
) -> list[dict[str, Any]]:
    """Return the marked rows as records. `wait_us` is the reorder wait at their release."""
    records, rules = [], [_rules_that_read(watch, view) for view in watch.lanes]
    at = np.flatnonzero(marked & (rows.view < len(watch.lanes)))[:MAX_RECORDS]
    for i, view in zip(at.tolist(), rows.view[at].tolist(), strict=True):
        stream, columns = watch.lanes[view]
        cell = rows.cell[i]
        records.append(
            {
                "stream": stream,
                "reason": reason,
                "rules": rules[view],
                "wait_us": wait_us,
                "key": dict(zip(watch.on, keys[int(rows.key[i])], strict=True)),
                "time": int(rows.time[i]),
                "values": {name: float(rows.cells.values[c, cell]) for c, name in enumerate(columns)},
                "payload": rows.texts(np.array([i]))[0],
            }
        )
    return records


def _rules_that_read(watch: Watch, view: Lane) -> list[str]:
    """Return the names of the rules that read an input view."""
    stores = {i for i, store in enumerate(watch.stores) if store.lane == view}
    return list(dict.fromkeys(rule.alert for rule in watch.rules if not stores.isdisjoint(rule.stores)))
