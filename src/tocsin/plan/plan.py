"""Plan: the tree of steps that a run builds. Its text is what `explain` shows.

Plan
├── Watch (one per key set)             one operator, one shuffle
│   ├── Store (one per stream read)     reduce: which rows are remembered
│   ├── Threshold (one per rule)        join, evaluate, alert
│   └── Silence (one per NoData)        which keys of a stream have no rows
└── RangeWatch (one per RangeRule)         requests that stand over one stream
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tocsin.hashing import stable_hash
from tocsin.plan.divide import most_buckets, over_buckets, pools_text
from tocsin.plan.ranges import RangeWatch
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Batch, Listener, Pages, Pipeline
from tocsin.runtime.session import Session

if TYPE_CHECKING:
    from tocsin.operators.reorder.wait_agreement import NewWait
    from tocsin.runtime.memory_pool import Share


@dataclass(frozen=True)
class Plan:
    """What runs: one watch per key set, and one per rule with ranges."""

    watches: tuple[Watch, ...]
    ranges: tuple[RangeWatch, ...] = ()

    def __str__(self) -> str:
        """Draw the tree."""
        return "\n".join([*pools_text(self.watches), *(str(one) for one in self.key_sets)])

    @property
    def key_sets(self) -> tuple[Watch | RangeWatch, ...]:
        """All that takes rows, by the number of its key set."""
        return (*self.watches, *self.ranges)

    def build_pipelines(self, pages: Pages, listener: Listener | None = None) -> Sequence[Pipeline]:
        """Build a pipeline for each key set, and one for the state of removed rules."""
        # The commands that only check rules need no pipelines.
        from tocsin.plan.pipelines import build_pipelines

        return build_pipelines(self, pages, listener)

    def read_control(self, row: Mapping[str, Any]) -> NewWait | Share:
        """Read a control row: a share of memory, or a wait that all buckets agreed on."""
        from tocsin.plan.pipelines import read_control_row

        return read_control_row(row)

    def sharing(self) -> Plan:
        """The same plan for an engine that lets buckets agree on their waits (`wait_agreement.py`), where they can."""
        return replace(self, watches=tuple(_sharing(watch) for watch in self.watches))

    def over(self, buckets: int, *, told: bool = False) -> Plan:
        """Return this plan with memory divided over buckets. With `told`, shares follow demand."""
        return replace(self, watches=over_buckets(self.watches, buckets, told=told))

    def with_emission_times(self) -> Plan:
        """Return this plan with emission times of alerts in order. Rules whose rows wait for order have none."""
        watches = (replace(watch, has_emission_times=watch.order is None) for watch in self.watches)
        return replace(self, watches=tuple(watches))

    def most_buckets(self, wanted: int) -> int:
        """So many buckets as are wanted, or fewer where they would have too little memory each to learn anything."""
        return most_buckets(self.watches, wanted)

    def calibrated(self, unit_ns: float) -> Plan:
        """The same plan where a unit of work takes so many nanoseconds; states keep what they began with."""
        return replace(self, watches=tuple(_calibrated(watch, unit_ns) for watch in self.watches))

    def warm_up(self) -> None:
        """Compile the kernels by running a few rows: workers on this machine then only load them from their cache."""
        number, time = np.arange(3), np.array([2_000_000, 3_000_000, 1_000_000])
        payload = np.array(['{"id": 1}', '{"id": 2}', '{"id": 3}'], dtype=object)
        session = Session(self)
        for i, watch in enumerate(self.key_sets):
            keys = [("",) * len(watch.on)]
            columns = {
                column: number.astype(np.float64) + 1 for name in watch.streams for column in watch.columns(name)
            }
            batches = [Batch(i, name, keys, number * 0, time, number, columns, payload) for name in watch.streams]
            session.push(batches, 0)
        session.end()

    @property
    def is_limited_in_work(self) -> bool:
        """Tell whether units of work stand for time, and must be calibrated."""
        return any(watch.anytime is not None and watch.anytime.cores is not None for watch in self.watches)

    @property
    def fingerprint(self) -> str:
        """Name this plan, to tell the metrics of queries apart; state is found by its parts (`identity.py`)."""
        return stable_hash(repr(self))


def _sharing(watch: Watch) -> Watch:
    if watch.order is None or not watch.order.shareable:
        return watch
    return replace(watch, order=replace(watch.order, shared=True))


def _calibrated(watch: Watch, unit_ns: float) -> Watch:
    if watch.anytime is None:
        return watch
    return replace(watch, anytime=replace(watch.anytime, unit_ns=unit_ns))
