"""Divide: how much memory, or processor time, each watch and each bucket has, before anything is known of the streams.

What a run may use is divided evenly between the watches that share it, that of a watch evenly between buckets. Where
an engine carries control rows (`memory_rebalancing.py`), shares of memory then follow demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tocsin.errors import Diagnostic, Diagnostics, PlanError
from tocsin.hashing import stable_hash
from tocsin.plan.anytime import DEFAULT_CORES
from tocsin.plan.budget import LEAST, MEASURED, MOST_GRANULES, Budget, memory_of
from tocsin.plan.steps import Watch
from tocsin.rules.durations import duration_text
from tocsin.rules.model import Rule
from tocsin.rules.quality import RECALL, SAMPLE, Cpu, Memory

# So many times what a bucket must have at the least, there are models and rows enough for them to show.
_ENOUGH = 32


def with_budget(
    watch: Watch, rules: Sequence[Rule], run: Memory | None, windows_us: tuple[int, ...], diagnostics: Diagnostics
) -> Watch:
    """Return a watch with the budget of its rules, if they have one; `divide_run` divides the budget of the run."""
    if not rules or not memory_of(rules[0], run):
        return watch
    quality = rules[0].quality_options
    own = quality.memory
    if watch.order is not None and own is None:
        return watch
    before = len(diagnostics)
    for rule in rules:
        _check(rule, watch, diagnostics)
    if len(diagnostics) > before:
        return watch
    memory = run if own is None else own
    assert memory is not None
    first, model = rules[0], quality.model or MEASURED
    if own is not None and memory.amount < LEAST[memory.unit]:
        message = f"`quality.memory` must be at least {_least(memory.unit)} for each bucket"
        diagnostics.add("out-of-range", ["quality", "memory"], message, str(memory), where=first.location)
        return watch
    # Rows of one time alone are joined within one microsecond.
    windows_us = tuple(max(window_us, 1) for window_us in windows_us)
    budget = Budget(memory, quality.prefer, quality.weight, windows_us, pooled=own is None, model=model)
    if budget.granules > MOST_GRANULES:
        least = duration_text(-(-max(windows_us) // MOST_GRANULES))
        message = f"`quality.model.granularity` must be at least {least} (at most {MOST_GRANULES} age classes)"
        found = f"{duration_text(model.granularity_us)} ({budget.granules:,} age classes)"
        diagnostics.add("out-of-range", ["quality", "model", "granularity"], message, found, where=first.location)
        return watch
    return replace(watch, budget=budget)


def _check(rule: Rule, watch: Watch, diagnostics: Diagnostics) -> None:
    quality, at = rule.quality_options, {"where": rule.location}
    if watch.order is not None:
        wait = "recall" if quality.wait.kind == RECALL else "wait"
        message = f"`quality.memory` cannot be combined with `quality.{wait}`, because buffered rows are not shed"
        found = f"{quality.memory}, and rows wait {quality.wait}"
        diagnostics.add("not-combinable", ["quality", "memory"], message, found, **at)
    elif quality.prefer == SAMPLE and len(watch.lanes) != 2:
        message = f"`quality.prefer: sample` needs two streams; `expr` reads {len(watch.lanes)}"
        diagnostics.add("stream-count", ["quality", "prefer"], message, **at)
    elif quality.model is not None and len(watch.lanes) != 2:
        message = f"`quality.model` needs two streams; `expr` reads {len(watch.lanes)}"
        diagnostics.add("stream-count", ["quality", "model"], message, **at)


def divide_run(watches: Iterable[Watch], run: Memory | None, diagnostics: Diagnostics) -> tuple[Watch, ...]:
    """Divide the memory of a run, without the memory of single rules, between the watches that share it."""
    watches = tuple(watches)
    if run is None:
        return watches
    budgets = [watch.budget for watch in watches if watch.budget is not None]
    units = [_check_unit(watch, run, diagnostics) for watch in watches]
    own = sum(budget.memory.amount for budget in budgets if not budget.pooled)
    pooled = sum(budget.pooled for budget in budgets)
    left = run.amount - own
    path = ["quality", "memory"]
    if not all(units):
        return watches
    if left < 0:
        message = "`quality.memory` of the run must not be less than the sum over its rules"
        diagnostics.add("out-of-range", path, message, f"{run}, and the rules have {Memory(own, run.unit)}")
        return watches
    if left < pooled * LEAST[run.unit]:
        message = f"`quality.memory` of the run must leave at least {_least(run.unit)} for each join without own memory"
        found = f"{run}, which leaves {Memory(left, run.unit)} for {pooled} joins"
        diagnostics.add("out-of-range", path, message, found)
        return watches
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


def _check_unit(watch: Watch, run: Memory, diagnostics: Diagnostics) -> bool:
    """Report rows of a rule as a share of bytes of the run, or the reverse; return whether the units are equal."""
    if watch.budget is None or watch.budget.memory.unit == run.unit:
        return True
    message = f"`quality.memory` must be in {run.unit}, because it is a share of the memory of the run ({run})"
    where = f'rule "{watch.rules[0].alert}"'
    diagnostics.add("not-combinable", ["quality", "memory"], message, str(watch.budget.memory), where=where)
    return False


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
        message = f"`quality.memory` must be at least {_least(unit)} for each of {buckets} buckets"
        where, path = f'rule "{watch.rules[0].alert}"', ("quality", "memory")
        raise PlanError(Diagnostic("out-of-range", path, message, str(budget.memory), where=where))
    return replace(watch, budget=budget)


def _least(unit: str) -> str:
    return str(Memory(LEAST[unit], unit))
