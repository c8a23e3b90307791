"""Pipelines: construction of the pipelines of a plan, one for each key set and one for retired state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tocsin.interim.cpu import page_names
from tocsin.interim.cpu.join_pipeline import PromisingPipeline
from tocsin.interim.cpu.page_names import PROMISING
from tocsin.interim.cpu.selection_pipeline import OneStreamPipeline
from tocsin.interim.ranges import range_pipeline
from tocsin.interim.ranges.range_pipeline import RANGES, RangePipeline
from tocsin.operators.reorder.operator import WAIT_PAGE
from tocsin.operators.reorder.wait_agreement import NewWait, read_new_wait
from tocsin.operators.retention.utility.memory_rebalancing import read_share
from tocsin.plan.operator_graph import KINDS, OperatorGraph
from tocsin.plan.retention_budget import MEMORY, RetentionBudget
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Adaptive, Batch, Listener, Out, Pages, Pipeline
from tocsin.runtime.keyed_pipeline import KeyedPipeline
from tocsin.runtime.memory_pool import Share
from tocsin.runtime.state_codec import unpack
from tocsin.runtime.state_registry import ShardGroup, StateRegistry, readable

if TYPE_CHECKING:
    from tocsin.plan.plan import Plan


def build_pipelines(plan: Plan, pages: Pages, listener: Listener | None = None) -> list[Pipeline]:
    """Build the pipelines of a plan. Each pipeline adopts its state; all other state is retired."""
    of_ranges = {name: page for name, page in pages.items() if name.startswith(RANGES)}
    of_promising = {name: page for name, page in pages.items() if name.startswith(PROMISING)}
    of_watches = {name: page for name, page in pages.items() if name not in of_ranges | of_promising}
    plain = {i: watch for i, watch in enumerate(plan.watches) if watch.anytime is None}
    registry = StateRegistry(of_watches, KINDS, (WAIT_PAGE, MEMORY))
    groups = registry.adopt({watch.name: watch.owners for watch in plain.values()})
    watches = [_keyed_pipeline(i, watch, groups[watch.name], listener) for i, watch in plain.items()]
    limited = {i: watch for i, watch in enumerate(plan.watches) if i not in plain}
    promising: list[PromisingPipeline | OneStreamPipeline] = []
    for i, watch in limited.items():
        is_of_pairs = watch.anytime is not None and watch.anytime.guided is None
        promising.append((PromisingPipeline if is_of_pairs else OneStreamPipeline)(i, watch, of_promising))
    ranges = [RangePipeline(i, watch, of_ranges) for i, watch in enumerate(plan.ranges, len(plan.watches))]
    registry.adopt_family(
        of_ranges,
        lambda page: range_pipeline.parts_of(page)[0],
        {watch.name for watch in plan.ranges},
        range_pipeline.retained_rows,
    )
    joins = {watch.apart for watch in limited.values()}
    registry.adopt_family(of_promising, lambda page: page_names.parts_of(page)[0], joins, page_names.retained_rows)
    return [RetiredState(registry, watches), *watches, *promising, *ranges]


def _keyed_pipeline(number: int, watch: Watch, group: ShardGroup, listener: Listener | None) -> KeyedPipeline:
    """Build the pipeline of the rules with the same key columns from its stored state."""
    reads = watch.inputs(number)
    operators = OperatorGraph(watch, reads, is_traced=listener is not None)
    reorder, adaptive = operators.reorder, list[Adaptive]()
    if reorder is not None:
        adaptive.append(reorder)
        if stored := group.parts.pop(WAIT_PAGE, None):
            with readable(f"{group.name}/{WAIT_PAGE}"):
                reorder.restore_state(unpack(stored)[0])
            reorder.dirty = group.is_copy and reorder.order.adapts
    if watch.budget is not None:
        operators.budget = RetentionBudget(watch, operators, group.shards)
        adaptive.append(operators.budget)
    pipeline = KeyedPipeline(watch.name, reads, operators, adaptive, group, listener)
    if operators.budget is not None:
        operators.budget.charge_restored_keys()
        if stored := group.parts.pop(MEMORY, None):
            with readable(f"{group.name}/{MEMORY}"):
                operators.budget.restore(stored)
            operators.budget.is_dirty |= group.is_copy
    return pipeline


def read_control_row(row: Mapping[str, Any]) -> NewWait | Share:
    """Read a control row: a share of a memory budget, or a shared reorder wait."""
    return read_share(row) if "share" in row else read_new_wait(row)


class RetiredState:
    """State that no pipeline of a plan has adopted.

    Its first call ends the alerts of removed rules and counts their rows as expired. It also counts the copied rows of
    adopted state. Then the pages are removed.
    """

    inputs: Mapping[tuple[int, str], Collection[str]] = {}

    def __init__(self, registry: StateRegistry, watches: Sequence[KeyedPipeline]) -> None:
        self.registry, self.uncounted = registry, list(watches)

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Retire the state."""
        self._retire(out)

    def on_control(self, message: NewWait | Share, out: Out) -> None:
        """Ignore control rows."""

    def on_time(self, now_us: int, out: Out) -> None:
        """Retire the state."""
        self._retire(out)

    def on_end(self, out: Out) -> None:
        """Retire the state."""
        self._retire(out)

    def _retire(self, out: Out) -> None:
        self.registry.retire(out)
        for pipeline in self.uncounted:
            pipeline.count_copied_rows(out)
        self.uncounted = []

    def next_timer(self) -> int | None:
        """Return None: retired state has no timer."""
        return None

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the removed pages once. They remain stored until the state is retired."""
        return dict.fromkeys(self.registry.removed_pages())
