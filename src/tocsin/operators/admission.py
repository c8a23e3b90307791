"""Late rows as people read them: those too old to be used, and those taken after a later one of their key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tocsin.operators.join.batch_slice import ArrivalOrder
from tocsin.operators.retention.operator import RowBatch
from tocsin.plan.identity import Lane
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Bools

# Of one call and page; the rest is counted.
MOST = 10_000


def late_rows(
    watch: Watch,
    keys: Sequence[tuple[str, ...]],
    arrived: tuple[ArrivalOrder, Sequence[RowBatch]],
    which: Bools,
    reason: str,
    wait_us: int | None,
) -> list[dict[str, Any]]:
    """Write out some arrivals, of which `rows[i]` has those of lane i; `wait_us` is how long rows waited then."""
    arrivals, rows = arrived
    found, readers = [], [_readers(watch, lane) for lane in watch.lanes]
    at = np.flatnonzero(which & (arrivals.lane < len(watch.lanes)))[:MOST]
    for i, lane in zip(at.tolist(), arrivals.lane[at].tolist(), strict=True):
        stream, columns = watch.lanes[lane]
        row = int(arrivals.row[i])
        found.append(
            {
                "stream": stream,
                "reason": reason,
                "rules": readers[lane],
                "wait_us": wait_us,
                "key": dict(zip(watch.on, keys[int(arrivals.key[i])], strict=True)),
                "time": int(arrivals.time[i]),
                "values": {name: float(rows[lane].values[name][row]) for name in columns},
                "payload": rows[lane].texts(np.array([row]))[0],
            }
        )
    return found


def _readers(watch: Watch, lane: Lane) -> list[str]:
    """The alerts of the rules that take the rows of a lane."""
    stores = {i for i, store in enumerate(watch.stores) if store.lane == lane}
    return list(dict.fromkeys(rule.alert for rule in watch.rules if not stores.isdisjoint(rule.stores)))
