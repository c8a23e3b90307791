"""A plan in plain types: what each rule reads, remembers and proves. `explain --json` and manifests have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tocsin.plan.budget import Budget
from tocsin.plan.plan import Plan
from tocsin.plan.ranges import RangeWatch
from tocsin.plan.steps import Silence, Threshold, Watch


def watch_object(
    watch: Watch, used: Iterable[int], rules: Iterable[Threshold], silences: Iterable[Silence]
) -> dict[str, Any]:
    """Return a keyed pipeline with some of its input states, rules and no-data rules."""
    return {
        "on": list(watch.on),
        "allowed_lateness_us": watch.allowed_lateness_us,
        "memory": None if watch.budget is None else memory_object(watch.budget),
        "inputs": [
            {"stream": store.stream, "columns": list(store.columns), "retention": str(store).partition(": ")[2]}
            for store in [watch.stores[i] for i in used]
        ],
        "rules": [rule_object(watch, rule) for rule in rules],
        "no_data": [str(silence) for silence in silences],
    }


def memory_object(budget: Budget) -> dict[str, Any]:
    """What a watch may keep, and what happens when it is short."""
    return {
        "amount": budget.memory.amount,
        "unit": budget.memory.unit,
        "shared": budget.pooled,
        "prefer": budget.prefer,
        "weight": budget.weight,
        "model": {"by": budget.model.by, "granules": budget.granules},
        "description": str(budget),
    }


def rule_object(watch: Watch, rule: Threshold) -> dict[str, Any]:
    """Return a rule of a watch: its condition, its effect, the delay by a slow stream, and its proofs."""
    return {
        "alert": rule.alert,
        "labels": dict(rule.labels),
        "condition": str(rule.condition),
        "description": str(rule),
        "idle_delay_us": watch.idle_delay_us(rule),
        "proofs": {name: verdict.to_dict() for name, verdict in rule.proofs},
    }


def range_object(ranges: RangeWatch) -> dict[str, Any]:
    """A rule with ranges."""
    return {
        "alert": ranges.alert,
        "labels": dict(ranges.labels),
        "on": list(ranges.on),
        "counts": {"stream": ranges.data, "values": list(ranges.values), "weight": ranges.weight},
        "requests": ranges.requests,
        "within_us": ranges.within_us,
        "rearm_us": ranges.rearm_us,
        "shards": ranges.shards,
    }


def rules_shown(plan: Plan) -> Iterator[dict[str, Any]]:
    """Every rule of a plan by itself, with what it reads and how its rows wait: what a page about it needs.

    `kind` is `threshold`, `silence` or `ranges`. `stores` are the names under which rows are counted.
    """
    for watch in plan.watches:
        names, waits = watch.store_names, None if watch.order is None else str(watch.order.waiting)
        memory = None if watch.budget is None else str(watch.budget)
        work = None if watch.anytime is None else str(watch.anytime)
        for rule in watch.rules:
            retention = {names[i]: str(watch.stores[i]).partition(": ")[2] for i in rule.stores}
            streams = list(dict.fromkeys(watch.stores[i].stream for i in rule.stores))
            more = {"kind": "threshold", "on": list(watch.on), "streams": streams, "retention": retention}
            asks = {"waits": waits, "no_wait": rule.no_wait or None, "memory": memory, "cpu": work}
            yield {**rule_object(watch, rule), **more, **asks}
        for silence in watch.silences:
            told = {"alert": silence.alert, "labels": dict(silence.labels), "kind": "silence", "on": list(watch.on)}
            yield {**told, "description": str(silence), "streams": [silence.stream]}
    for ranges in plan.ranges:
        yield {**range_object(ranges), "kind": "ranges", "description": str(ranges), "streams": list(ranges.streams)}
