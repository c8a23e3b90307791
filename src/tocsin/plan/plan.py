"""Plan: the tree of steps that a run builds. Its text is what `explain` shows.

Plan
└── Watch (one per key set)             one operator, one shuffle
    ├── Store (one per stream read)     reduce: which rows are remembered
    ├── Threshold (one per rule)        join, evaluate, alert
    └── Silence (one per NoData)        which keys of a stream have no rows
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from tocsin.logic import Batch, Pages
from tocsin.plan.steps import Watch
from tocsin.plan.watch import PlanLogic


@dataclass(frozen=True)
class Plan:
    """What runs: one watch per key set."""

    watches: tuple[Watch, ...]

    def __str__(self) -> str:
        """Draw the tree."""
        return "\n".join(str(watch) for watch in self.watches)

    def build(self, pages: Pages) -> PlanLogic:
        """Make the logic of the whole plan."""
        return PlanLogic(self, pages)

    def sharing(self) -> Plan:
        """The same plan for an engine that lets buckets agree on their waits (`agree.py`), where they can."""
        return replace(self, watches=tuple(_sharing(watch) for watch in self.watches))

    def warm_up(self) -> None:
        """Compile the kernels by running a few rows: workers on this machine then only load them from their cache."""
        number, time = np.arange(3), np.array([2_000_000, 3_000_000, 1_000_000])
        logic = self.build({})
        for i, watch in enumerate(self.watches):
            keys = [("",) * len(watch.on)]
            columns = {column: number.astype(np.float64) for store in watch.stores for column in store.columns}
            batches = [Batch(i, name, keys, number * 0, time, number, columns) for name in watch.streams]
            logic.on_data(batches, 0)
        logic.on_end()

    @property
    def fingerprint(self) -> str:
        """Name this plan, to tell the metrics of queries apart; state is found by its parts (`identity.py`)."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


def _sharing(watch: Watch) -> Watch:
    if watch.order is None or not watch.order.shareable:
        return watch
    return replace(watch, order=replace(watch.order, shared=True))
