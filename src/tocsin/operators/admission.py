"""Admission: rows within the allowed lateness of their key, and records that describe late rows.

Algorithm: the newest time of a key follows its rows in order of arrival. A row is dropped if it is older than the
newest time by more than `allowed_lateness`. Rows that no view can use move the newest time too.

Complexity: O(n) for n rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.jit import kernel
from tocsin.plan.identity import Lane
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Bools, Int
from tocsin.runtime.row_batch import RowBatch

# Largest number of records per call and page. Other rows are only counted.
MAX_RECORDS = 10_000


@kernel
def filter_late_rows(key: Int, time: Int, newest: Int, allowed_lateness: int) -> NDArray[np.bool_]:
    """Update the newest time of each key, and mark the rows that are within the allowed lateness."""
    timely = np.empty(key.shape[0], np.bool_)
    for i in range(key.shape[0]):
        newest[key[i]] = max(newest[key[i]], time[i])
        timely[i] = time[i] >= newest[key[i]] - allowed_lateness
    return timely


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
