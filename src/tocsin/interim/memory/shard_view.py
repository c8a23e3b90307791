"""Shard view: the state of a shard as the memory budget reads and sheds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from tocsin.operators.join.operator import JoinState
from tocsin.operators.lifecycle.operator import Lifecycle
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.operators.retention.operator import RetentionState
from tocsin.plan.operator_graph import OperatorGraph
from tocsin.runtime.context import Context
from tocsin.runtime.contract import Bools, Int
from tocsin.runtime.state_registry import Shard


class ShardView:
    """State of one shard."""

    def __init__(self, operators: OperatorGraph, shard: Shard) -> None:
        self.operators, self.shard = operators, shard

    @property
    def retentions(self) -> list[RetentionState]:
        """Retained rows of each input."""
        return [retention.state(self.shard) for retention in self.operators.retentions]

    @property
    def newest(self) -> Int:
        """Newest event time of each key."""
        return self.operators.admission.state(self.shard).newest

    def join(self, rule: int) -> JoinState:
        """Return the state of the join of a rule."""
        return self.operators.rules[rule].join.state(self.shard)

    def waiting(self, rule: int) -> Witnesses:
        """Return the buffered evaluations of a rule with alerts."""
        alerts = self.operators.rules[rule].alerts
        assert isinstance(alerts, Lifecycle)
        return alerts.state(self.shard).waiting

    def busy(self) -> Bools:
        """Mark the keys with open work of some rule."""
        return self.operators.busy(self.shard)

    def evict_keys(self, keys: Bools, context: Context) -> None:
        """Evict keys that are not busy."""
        self.operators.evict_keys(self.shard, keys, 0, context)


class ShardViews(Sequence[ShardView]):
    """Views of all shards of a pipeline. The sequence grows with the shards."""

    def __init__(self, operators: OperatorGraph, shards: Sequence[Shard]) -> None:
        self._operators, self._shards = operators, shards

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self._shards)

    @overload
    def __getitem__(self, at: int) -> ShardView: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[ShardView]: ...
    def __getitem__(self, at: int | slice) -> ShardView | Sequence[ShardView]:
        """Return the view of a shard, or of several."""
        if isinstance(at, slice):
            return ShardViews(self._operators, self._shards[at])
        return ShardView(self._operators, self._shards[at])

    def __iter__(self) -> Iterator[ShardView]:
        """Return the views in the order of the shards."""
        return (ShardView(self._operators, shard) for shard in self._shards)
