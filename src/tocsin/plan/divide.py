"""Divide: how much memory each watch and each bucket has, before anything is known of the streams.

The memory of a run is divided evenly between the watches that share it, that of a watch evenly between buckets. Where
an engine carries control rows (`allot.py`), shares then follow demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tocsin.errors import PlanError
from tocsin.plan.budget import LEAST, Budget, memory_of
from tocsin.plan.identity import digest
from tocsin.plan.steps import Watch
from tocsin.rules.memory import SAMPLE, Memory, read_memory
from tocsin.rules.model import Rule


def with_budget(watch: Watch, rules: Sequence[Rule], run: Memory | None, windows_us: tuple[int, ...]) -> Watch:
    """Give a watch the budget of its rules, if they have one; that of the run is divided later (`divide_run`)."""
    if not rules or not memory_of(rules[0], run):
        return watch
    own = rules[0].memory
    if watch.order is not None and own is None:
        return watch
    for rule in rules:
        _check(rule, watch)
    memory = run if own is None else read_memory(own)
    assert memory is not None
    budget = Budget(memory, rules[0].prefer, float(rules[0].weight), windows_us, pooled=own is None)
    return replace(watch, budget=budget)


def _check(rule: Rule, watch: Watch) -> None:
    if watch.order is not None:
        message = (
            f"{rule.place}: `memory` must not stand beside a wait: rows that wait are not shed; got {rule.waiting}"
        )
        raise PlanError(message)
    if rule.prefer == SAMPLE and len(watch.lanes) != 2:
        message = f"{rule.place}: `prefer` sample needs a rule of two streams; it reads {len(watch.lanes)}"
        raise PlanError(message)


def divide_run(watches: Iterable[Watch], run: Memory | None) -> tuple[Watch, ...]:
    """Divide what a run may keep between the watches that share it, less what single rules have of it."""
    watches = tuple(watches)
    if run is None:
        return watches
    budgets = [watch.budget for watch in watches if watch.budget is not None]
    own = sum(budget.memory.amount for budget in budgets if not budget.pooled and budget.memory.unit == run.unit)
    pooled = sum(budget.pooled for budget in budgets)
    left = run.amount - own
    if left < pooled * LEAST[run.unit] or left < 0:
        given = Memory(max(left, 0), run.unit)
        message = f"`memory` of the run must leave at least {_least(run.unit)} for each join that shares it"
        message += f"; {run} less what single rules have leaves {given} for {pooled}"
        raise PlanError(message)
    part = Memory(left // max(pooled, 1), run.unit)
    pool = digest(*sorted(watch.name for watch in watches if watch.budget is not None and watch.budget.pooled))
    return tuple(
        replace(watch, budget=replace(watch.budget, memory=part, pool=pool))
        if watch.budget is not None and watch.budget.pooled
        else watch
        for watch in watches
    )


def over_buckets(watches: Iterable[Watch], buckets: int, *, told: bool) -> tuple[Watch, ...]:
    """Divide what watches may keep between buckets."""
    return tuple(_over_buckets(watch, buckets, told=told) for watch in watches)


def _over_buckets(watch: Watch, buckets: int, *, told: bool) -> Watch:
    if watch.budget is None:
        return watch
    budget = replace(watch.budget, buckets=buckets, told=told)
    unit = budget.memory.unit
    if budget.share < LEAST[unit]:
        message = f"`memory` must be at least {_least(unit)} for each bucket, here {buckets}"
        message += f"; {watch.rules[0].alert} has {budget.memory} in all"
        raise PlanError(message)
    return replace(watch, budget=budget)


def _least(unit: str) -> str:
    return str(Memory(LEAST[unit], unit))
