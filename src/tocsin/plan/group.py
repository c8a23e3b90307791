"""Group: which rules share a watch, how long its rows wait, and how much of them is kept.

Rules wait together if they wait alike and read the same columns of the same streams. Otherwise one would wait for rows
that it does not read: where a column has few, the rules of the others would be held up by it. Rules whose memory is
limited share rows with those that share it (`budget.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tocsin.plan.anytime import spending_of, spent_together
from tocsin.plan.budget import memory_of
from tocsin.plan.order import Order, needed_wait
from tocsin.plan.steps import Watch
from tocsin.rules.durations import microseconds
from tocsin.rules.model import Rule
from tocsin.rules.no_data import AnyRule
from tocsin.rules.quality import NONE, Cpu, Memory, ReorderWait

# How far a stream must lie behind before no row waits for it, where no rule says so. Without its rows nothing could be
# found, so waiting for it costs nothing but the end of lives.
IDLE_US = 60_000_000

# What a rule reads: of each stream its columns.
Read = frozenset[tuple[str, frozenset[str]]]


def groups(
    rules: Iterable[AnyRule], read: Callable[[Rule], Read], memory: Memory | None = None, cpu: Cpu | None = None
) -> Iterable[list[AnyRule]]:
    """Rules that share rows: those with the same key columns that do not wait, or wait alike for what they `read`.

    Joins whose memory is limited share rows if they share it; those that wait do not share that of the run. Joins whose
    processor time is limited share rows if they share it and read the same, rules of one stream if they read that.
    """
    found: dict[tuple[object, ...], list[AnyRule]] = {}
    for rule in rules:
        alike: tuple[object, ...] = ()
        if isinstance(rule, Rule):
            waiting, mine = needed_wait(rule)[0], read(rule)
            alike = (waiting, mine) if waiting.kind != NONE else ()
            shares = len(mine) > 1 and waiting.kind == NONE
            alike += memory_of(rule, memory) if shares or rule.quality_options.memory is not None else ()
            if spending_of(rule, len(mine), cpu) is not None:
                # Rules of one stream share it whatever columns they read: each row is taken once for all of them.
                alike = spent_together(rule, cpu, mine if len(mine) > 1 else next(iter(mine))[0])
        found.setdefault((tuple(rule.on), *alike), []).append(rule)
    return found.values()


def with_order(watch: Watch, rules: Sequence[Rule]) -> Watch:
    """Let the rows of a watch wait as its rules do."""
    waiting = needed_wait(rules[0])[0] if rules else ReorderWait()
    if waiting.kind == NONE:
        return watch
    idle_timeout_us = max(
        max(IDLE_US, own.topology.span_us)
        if rule.idle_timeout is None
        else microseconds(rule.idle_timeout, "`idle_timeout`")
        for rule, own in zip(rules, watch.rules, strict=True)
    )
    return replace(watch, order=Order(waiting, idle_timeout_us, windows_of(watch), watch.allowed_lateness_us))


def windows_of(watch: Watch) -> tuple[int, ...]:
    """Of each lane, the widest window in which any rule reads it: how far it may lie behind another stream."""
    windows = dict.fromkeys(watch.lanes, 0)
    for rule in watch.rules:
        for i, store in enumerate(rule.stores):
            lane, topo = watch.stores[store].lane, rule.topology
            reach = max((us for j, us in enumerate(topo.implied[i]) if j != i), default=topo.window_us)
            windows[lane] = max(windows[lane], reach)
    return tuple(windows.values())
