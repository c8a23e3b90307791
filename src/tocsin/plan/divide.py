"""Divide: how much memory, or processor time, each watch and each bucket has, before anything is known of the streams.

What a run may use is divided evenly between the watches that share it, that of a watch evenly between buckets. Where
an engine carries control rows (`memory_rebalancing.py`), shares of memory then follow demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tocsin.errors import PlanError
from tocsin.hashing import stable_hash
from tocsin.plan.anytime import DEFAULT_CORES
from tocsin.plan.budget import LEAST, MEASURED, MOST_GRANULES, Budget, memory_of
from tocsin.plan.steps import Watch
from tocsin.rules.durations import duration_text
from tocsin.rules.model import Rule
from tocsin.rules.quality import RECALL, SAMPLE, Cpu, Memory

# So many times what a bucket must have at the least, there are models and rows enough for them to show.
_ENOUGH = 32


def with_budget(watch: Watch, rules: Sequence[Rule], run: Memory | None, windows_us: tuple[int, ...]) -> Watch:
    """Give a watch the budget of its rules, if they have one; that of the run is divided later (`divide_run`)."""
    if not rules or not memory_of(rules[0], run):
        return watch
    quality = rules[0].quality_options
    own = quality.memory
    if watch.order is not None and own is None:
        return watch
    for rule in rules:
        _check(rule, watch)
    memory = run if own is None else own
    assert memory is not None
    first, model = rules[0], quality.model or MEASURED
    if own is not None and memory.amount < LEAST[memory.unit]:
        least = _least(memory.unit)
        message = f"{first.location}: `quality.memory` must be at least {least} for each bucket; got {memory}"
        raise PlanError(message)
    # Rows of one time alone are joined within one microsecond.
    windows_us = tuple(max(window_us, 1) for window_us in windows_us)
    budget = Budget(memory, quality.prefer, quality.weight, windows_us, pooled=own is None, model=model)
    if budget.granules > MOST_GRANULES:
        least = duration_text(-(-max(windows_us) // MOST_GRANULES))
        message = (
            f"{first.location}: `quality.model.granularity` must be at least {least} (at most {MOST_GRANULES} age "
        )
        message += f"classes); got {duration_text(model.granularity_us)} ({budget.granules:,} age classes)"
        raise PlanError(message)
    return replace(watch, budget=budget)


def _check(rule: Rule, watch: Watch) -> None:
    quality = rule.quality_options
    if watch.order is not None:
        wait = "recall" if quality.wait.kind == RECALL else "wait"
        message = (
            f"{rule.location}: `quality.memory` cannot be combined with `quality.{wait}`, because buffered rows are "
        )
        message += f"not shed; got {quality.memory}, and rows wait {quality.wait}"
        raise PlanError(message)
    if quality.prefer == SAMPLE and len(watch.lanes) != 2:
        message = f"{rule.location}: `quality.prefer: sample` needs two streams; `expr` reads {len(watch.lanes)}"
        raise PlanError(message)
    if quality.model is not None and len(watch.lanes) != 2:
        message = f"{rule.location}: `quality.model` needs two streams; `expr` reads {len(watch.lanes)}"
        raise PlanError(message)


def divide_run(watches: Iterable[Watch], run: Memory | None) -> tuple[Watch, ...]:
    """Divide what a run may keep between the watches that share it, less what single rules have of it."""
    watches = tuple(watches)
    if run is None:
        return watches
    budgets = [watch.budget for watch in watches if watch.budget is not None]
    for watch in watches:
        _check_unit(watch, run)
    own = sum(budget.memory.amount for budget in budgets if not budget.pooled)
    pooled = sum(budget.pooled for budget in budgets)
    left = run.amount - own
    if left < 0:
        message = "`quality.memory` of the run must not be less than the sum over its rules"
        message += f"; got {run}, and the rules have {Memory(own, run.unit)}"
        raise PlanError(message)
    if left < pooled * LEAST[run.unit]:
        given = Memory(left, run.unit)
        message = f"`quality.memory` of the run must leave at least {_least(run.unit)} for each join without own memory"
        message += f"; got {run}, which leaves {given} for {pooled} joins"
        raise PlanError(message)
    part = Memory(left // max(pooled, 1), run.unit)
    pool = stable_hash(*sorted(watch.name for watch in watches if watch.budget is not None and watch.budget.pooled))
    return tuple(
        replace(watch, budget=replace(watch.budget, memory=part, pool=pool))
        if watch.budget is not None and watch.budget.pooled
        else watch
        for watch in watches
    )


def pools_text(watches: Iterable[Watch]) -> list[str]:
    """Say how the memory of a run is split between joins of two kinds; nothing where there is one kind."""
    pooled = [watch.budget for watch in watches if watch.budget is not None and watch.budget.pooled]
    kinds = [[one for one in pooled if one.samples == samples] for samples in (False, True)]
    if not all(kinds):
        return []
    subset, sample = (Memory(sum(one.memory.amount for one in kind), kind[0].memory.unit) for kind in kinds)
    text = f"Memory of the run: at first {subset} for joins that lose results and {sample} for joins that sample"
    return [f"{text} results; during a run, in proportion to the memory that each kind would use"]


def _check_unit(watch: Watch, run: Memory) -> None:
    """Refuse a part in rows of a whole in bytes, or the reverse: nobody can say what is left."""
    if watch.budget is not None and watch.budget.memory.unit != run.unit:
        message = f'rule "{watch.rules[0].alert}": '
        message += f"`quality.memory` must be in {run.unit}, because it is a share of the memory of the run ({run})"
        message += f"; got {watch.budget.memory}"
        raise PlanError(message)


def most_buckets(watches: Iterable[Watch], wanted: int) -> int:
    """How many buckets there should be at the most, so that each has memory for rows and models."""
    budgets = [watch.budget.memory for watch in watches if watch.budget is not None]
    return max(1, min([wanted, *(memory.amount // (_ENOUGH * LEAST[memory.unit]) for memory in budgets)]))


def share_cores(watches: Iterable[Watch], run: Cpu | None) -> tuple[Watch, ...]:
    """Divide the processor time of a run evenly between the watches that share it."""
    watches = tuple(watches)
    sharers = sum(watch.anytime is not None and watch.anytime.pooled for watch in watches)
    if run is None or not sharers:
        return watches
    cores = (DEFAULT_CORES if run.cores is None else run.cores) / sharers
    return tuple(
        replace(watch, anytime=replace(watch.anytime, cores=cores))
        if watch.anytime is not None and watch.anytime.pooled
        else watch
        for watch in watches
    )


def over_buckets(watches: Iterable[Watch], buckets: int, *, told: bool) -> tuple[Watch, ...]:
    """Divide what watches may keep between buckets."""
    return tuple(_over_buckets(watch, buckets, told=told) for watch in watches)


def _over_buckets(watch: Watch, buckets: int, *, told: bool) -> Watch:
    if watch.anytime is not None:
        return replace(watch, anytime=replace(watch.anytime, buckets=buckets))
    if watch.budget is None:
        return watch
    budget = replace(watch.budget, buckets=buckets, told=told)
    unit = budget.memory.unit
    if budget.share < LEAST[unit]:
        message = f'rule "{watch.rules[0].alert}": `quality.memory` must be at least {_least(unit)} for each of '
        message += f"{buckets} buckets; got {budget.memory}"
        raise PlanError(message)
    return replace(watch, budget=budget)


def _least(unit: str) -> str:
    return str(Memory(LEAST[unit], unit))
