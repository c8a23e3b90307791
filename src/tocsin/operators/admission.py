"""Late rows as people read them: those too old to be used, and those taken after a later one of their key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tocsin.plan.identity import Lane
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Bools
from tocsin.runtime.row_batch import RowBatch

# Of one call and page; the rest is counted.
MOST = 10_000


def late_rows(
    watch: Watch,
    keys: Sequence[tuple[str, ...]],
    rows: RowBatch,
    which: Bools,
    reason: str,
    wait_us: int | None,
) -> list[dict[str, Any]]:
    """Return the marked rows as records. `wait_us` is the reorder wait at their release."""
    found, readers = [], [_readers(watch, lane) for lane in watch.lanes]
    at = np.flatnonzero(which & (rows.view < len(watch.lanes)))[:MOST]
    for i, view in zip(at.tolist(), rows.view[at].tolist(), strict=True):
        stream, columns = watch.lanes[view]
        cell = rows.cell[i]
        found.append(
            {
                "stream": stream,
                "reason": reason,
                "rules": readers[view],
                "wait_us": wait_us,
                "key": dict(zip(watch.on, keys[int(rows.key[i])], strict=True)),
                "time": int(rows.time[i]),
                "values": {name: float(rows.cells.values[c, cell]) for c, name in enumerate(columns)},
                "payload": rows.texts(np.array([i]))[0],
            }
        )
    return found


def _readers(watch: Watch, lane: Lane) -> list[str]:
    """The alerts of the rules that take the rows of a lane."""
    stores = {i for i, store in enumerate(watch.stores) if store.lane == lane}
    return list(dict.fromkeys(rule.alert for rule in watch.rules if not stores.isdisjoint(rule.stores)))
