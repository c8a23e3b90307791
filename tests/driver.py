"""Driver and tables for tests of plans. The driver is an engine that checks the laws of `tocsin.runtime.contract`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tocsin import Rule, local
from tocsin.interim.cpu.limited_pipeline import LimitedPipeline
from tocsin.operators.reorder.operator import ReorderState
from tocsin.plan import Plan, make_plan
from tocsin.plan.operator_graph import OperatorGraph
from tocsin.runtime.contract import Batch, Out, Step
from tocsin.runtime.keyed_pipeline import KeyedPipeline
from tocsin.runtime.metrics import OUTCOMES
from tocsin.runtime.session import Session

Columns = Mapping[str, Mapping[str, np.ndarray]]
MINUTE = 60_000_000
CUTS = st.lists(st.integers(0, 40), max_size=6).map(sorted)


def plan_of(streams: Columns, rules: Rule | Sequence[Rule], **options: Any) -> Plan:
    return make_plan(rules, {name: list(columns) for name, columns in streams.items()}, **options)


def parts_of(plan: Plan, streams: Columns, cuts: Sequence[int] = (), arrival: str | None = None) -> list[list[Batch]]:
    """Read the streams as the local engine does, cut them into calls, and make the arrays read-only."""
    numbered = enumerate(plan.key_sets)
    batches = [batch for i, watch in numbered for batch in local._batches(i, watch, streams, "ts", arrival)]
    parts = local._cut(batches, cuts) if cuts else [batches]
    for batch in (batch for part in parts for batch in part):
        for array in (batch.key, batch.time, batch.arrival, *batch.values.values()):
            array.flags.writeable = False
    return parts


def use_small_pages(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    """Limit the number of keys of a page for one test, so that few keys fill several pages."""
    users = ("plan.retention_budget",)
    for module in (*users, "runtime.keyed_pipeline"):
        monkeypatch.setattr(f"tocsin.{module}.KEYS_PER_SHARD", keys)


def watch_logics(session: Session) -> list[KeyedPipeline]:
    """Return the pipelines of key sets without a CPU budget, for tests of their state."""
    return [pipeline for pipeline in session.pipelines if isinstance(pipeline, KeyedPipeline)]


def retained_rows(session: Session) -> int:
    """Return the number of rows that the first pipeline retains."""
    watch = watch_logics(session)[0]
    assert isinstance(watch.operators, OperatorGraph)
    return sum(len(one.state(shard).time) for shard in watch.shards for one in watch.operators.retentions)


def buffered_rows(session: Session) -> list[ReorderState]:
    """Return the reorder buffers of all shards."""
    found = []
    for watch in watch_logics(session):
        assert isinstance(watch.operators, OperatorGraph)
        if watch.operators.reorder is not None:
            found += [watch.operators.reorder.state(shard) for shard in watch.shards]
    return found


def limited_logics(session: Session) -> list[LimitedPipeline]:
    """Return the pipelines of key sets with a CPU budget, for tests of their state."""
    return [pipeline for pipeline in session.pipelines if isinstance(pipeline, LimitedPipeline)]


class Driver:
    """An engine for tests. It checks counts and state after each call, and can continue from the stored pages."""

    def __init__(self, plan: Step, *, through_pages: bool = True) -> None:
        self.plan, self.through_pages = plan, through_pages
        self.pages: dict[str, bytes] = {}
        self.session = Session(plan, self.pages)
        self.result = Out()

    def take(self, out: Out) -> list[dict[str, Any]]:
        self.result.add(out)
        for name, counts in self.result.counts.items():
            assert counts.get("received", 0) == sum(counts.get(outcome, 0) for outcome in OUTCOMES), (name, counts)
        for watch in watch_logics(self.session):
            watch.check()
        for promising in limited_logics(self.session):
            promising.check()
        if self.through_pages:
            for name, data in self.session.changed_pages().items():
                if data is None:
                    del self.pages[name]  # Only what was there may go.
                else:
                    self.pages[name] = data
            self.session = Session(self.plan, self.pages)
        return out.alert_rows()

    def run(self, parts: Iterable[Sequence[Batch]]) -> Out:
        is_new, pushed = not self.pages and not self.result.counts, Counter[tuple[int, str]]()
        for part in parts:
            self.take(self.session.push(part))
            for batch in part:
                pushed[batch.key_set, batch.stream] += len(batch.time) + batch.quarantined
        self.take(self.session.end())
        if is_new and isinstance(self.plan, Plan):
            self._check_received(self.plan, pushed)
        return self.result

    def _check_received(self, plan: Plan, pushed: Mapping[tuple[int, str], int]) -> None:
        """Assert that each input view counted all rows of its stream."""
        expected = Counter[str]()
        for number, watch in enumerate(plan.key_sets):
            for view, stream in watch.counted:
                expected[view] += pushed.get((number, stream), 0)
        for view, counts in self.result.counts.items():
            assert counts.get("received", 0) == expected[view], (view, counts)

    def run_with_pauses(self, parts: Iterable[Sequence[Batch]], pauses_us: Iterable[int]) -> Out:
        """Push each call and advance after its pause. Calls without a pause follow at once."""
        now = 10**12
        for part, pause in zip(parts, chain(pauses_us, repeat(0)), strict=False):
            self.take(self.session.push(part, now))
            now += pause
            timer = self.session.next_timer()
            if timer is not None and timer <= now:
                self.take(self.session.advance(now))
        self.take(self.session.end())
        return self.result


def stories(rows: Iterable[Mapping[str, Any]]) -> dict[Any, list[Any]]:
    """Return the alert rows of each rule, key and quality in order. Rows of different keys have no order."""
    told: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        told[row["alert"], tuple(sorted(row["labels"].items())), row["quality"]].append(dict(row))
    return dict(told)


def table(machine: Sequence[Any], ts: Sequence[Any], **columns: Sequence[Any]) -> dict[str, np.ndarray]:
    return {
        "ts": np.array(ts),
        "machine": np.array(machine, dtype=object),
        **{n: np.array(v) for n, v in columns.items()},
    }


def one_machine(ts: Sequence[int], value: Sequence[float]) -> dict[str, np.ndarray]:
    return table(["m"] * len(ts), np.array(ts, np.int64), value=np.array(value, np.float64))


def settled(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {name: {count: number for count, number in mine.items() if number} for name, mine in counts.items()}
