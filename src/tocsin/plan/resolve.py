"""Resolve: rules and the columns of streams -> Plan. Every mistake that needs no data is found here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tocsin.errors import ExprError, PlanError, RuleError
from tocsin.expr import find_variables, parse_condition
from tocsin.expr.certify.certificate import Verdict
from tocsin.expr.syntax_tree import Condition, Key, Variable, format_variable
from tocsin.plan.anytime import MOST_STREAMS as MOST_SPENDING
from tocsin.plan.anytime import anytime_of, spending_of
from tocsin.plan.bound import hopeless_numbers
from tocsin.plan.columns import check_stream, column_of
from tocsin.plan.divide import divide_run, share_cores, with_budget
from tocsin.plan.group import Read, groups, windows_of, with_order
from tocsin.plan.guided import anytime_of_one
from tocsin.plan.numbers import check_recovery, limits_of
from tocsin.plan.order import needed_wait
from tocsin.plan.plan import Plan
from tocsin.plan.prove import Domain, Reading, prove_readings
from tocsin.plan.ranges import resolve_ranges
from tocsin.plan.share import Place, place_of, shared_stores
from tocsin.plan.steps import Limit, Silence, Store, Threshold, Watch
from tocsin.plan.topology import Topology, topology
from tocsin.rules.durations import MOST_US, Duration, duration_text, microseconds
from tocsin.rules.model import Rule
from tocsin.rules.no_data import AnyRule, NoData
from tocsin.rules.quality import NO_QUALITY, SAMPLE, STRICT, Cpu, Quality
from tocsin.rules.ranges import RangeRule

MOST_STREAMS = 8
# Of a store that more rules share, it is not asked which numbers decide none of their alarms.
MOST_BOUNDED = 8

# How far a row may lie behind, where no rule says so.
ALLOWED_LATENESS = "1h"
# Silence that ends an alert where no bound says how far apart its rows may be: that of Prometheus.
STALE_US = 300_000_000


def make_plan(
    rules: AnyRule | Iterable[AnyRule],
    columns: Mapping[str, Sequence[str]],
    *,
    time: str = "ts",
    arrival: str | None = None,
    key_ttl: Duration | None = None,
    bounded: bool = True,
    quality: Quality = NO_QUALITY,
) -> Plan:
    """Plan rules over streams that have the named columns; unless `bounded`, without numbers that decide nothing.

    `quality` has the budgets of the run: memory for all joins, and CPU for all rules with `emit: all`. A rule with a
    budget in its own quality block takes no share of them.
    """
    rules = tuple(rules) if isinstance(rules, Iterable) else (rules,)
    for rule in rules:
        if not isinstance(rule, Rule | NoData | RangeRule):
            message = f"`rules` must contain only rules; got {type(rule).__name__}"
            raise PlanError(message)
    if not rules:
        message = "`rules` must contain at least one rule; it is empty"
        raise PlanError(message)
    _check_identities(rules)
    ttl = MOST_US if key_ttl is None else microseconds(key_ttl, "`key_ttl`")
    _check_time_to_live(rules, ttl)
    special = (time, arrival)
    ranges = tuple(resolve_ranges(rule, columns, special) for rule in rules if isinstance(rule, RangeRule))
    others = [rule for rule in rules if not isinstance(rule, RangeRule)]
    together = groups(others, lambda rule: _read(rule, columns, special), quality.memory, quality.cpu)
    watches = [_watch(group, columns, special, ttl, bounded=bounded) for group in together]
    limited = [_limited(watch, group, quality) for watch, group in zip(watches, together, strict=True)]
    return Plan(share_cores(divide_run(limited, quality.memory), quality.cpu), ranges)


def _limited(watch: Watch, given: Sequence[AnyRule], quality: Quality) -> Watch:
    """Give a watch the budget that its rules share."""
    rules = [rule for rule in given if isinstance(rule, Rule)]
    spending = spending_of(rules[0], _streams_of(watch), quality.cpu) if rules else None
    if spending is not None:
        return _spending(watch, rules, spending)
    if all(len(rule.stores) < 2 for rule in watch.rules):
        limited = next((rule for rule in rules if rule.quality_options.memory is not None), None)
        if limited is not None:
            message = f"{limited.location}: `quality.memory` needs two or more streams; `expr` reads 1"
            raise PlanError(message)
        return watch
    return with_budget(watch, rules, quality.memory, windows_of(watch))


def _spending(watch: Watch, rules: Sequence[Rule], spending: Cpu) -> Watch:
    """Let a watch join, or evaluate its rows, as far as its processor time goes."""
    streams = _streams_of(watch)
    if streams > MOST_SPENDING:
        name = "deadline" if spending.cores is None else "cpu"
        message = f"{rules[0].location}: `quality.{name}` needs one or two streams; `expr` reads {streams}"
        raise PlanError(message)
    if streams == 1:
        one = anytime_of_one(rules, watch, spending)
        return replace(watch, allowed_lateness_us=one.allowed_lateness_us, anytime=one)
    anytime = anytime_of(rules, [rule.topology.span_us for rule in watch.rules], spending)
    ttl_us = watch.key_ttl_us if watch.key_ttl_us < MOST_US else anytime.stay_us
    return replace(watch, allowed_lateness_us=anytime.allowed_lateness_us, key_ttl_us=ttl_us, anytime=anytime)


def _streams_of(watch: Watch) -> int:
    """How many streams the first rule of a watch reads."""
    return len({watch.stores[i].stream for i in watch.rules[0].stores})


def _check_identities(rules: Sequence[AnyRule]) -> None:
    """Refuse rules whose alerts could not be told apart: the same name with the same labels."""
    seen = set()
    for rule in rules:
        labels = rule.all_labels if isinstance(rule, NoData) else rule.labels
        identity = (rule.alert, tuple(sorted((str(name), str(text)) for name, text in labels.items())))
        if identity in seen:
            message = f'rules must differ in `alert` or `labels`; "{rule.alert}" has a duplicate'
            raise PlanError(message)
        seen.add(identity)


def _check_time_to_live(rules: Sequence[AnyRule], ttl: int) -> None:
    """Refuse to forget a key before it could be called silent."""
    for rule in rules:
        if isinstance(rule, NoData) and rule.for_us >= ttl:
            message = "`key_ttl` must be longer than `for` of each NoData, or keys expire before their alert"
            message = f"{message}; got {duration_text(ttl)}, and {rule.location} has {duration_text(rule.for_us)}"
            raise PlanError(message)


@dataclass(frozen=True)
class _Resolved:
    """A rule whose variables are columns: its graph, what it needs remembered and why, and its numbers."""

    rule: Rule
    condition: Condition
    read: Mapping[Key, str]
    topology: Topology
    needs: Mapping[Place, Store]
    proofs: tuple[tuple[str, Verdict], ...]
    recovery: float | None
    limits: tuple[Limit, ...]

    def hopeless(self, store: Store) -> Domain | None:
        """Numbers of a store that decide none of its alarms."""
        return hopeless_numbers(self.rule, self.condition, self.read, self.limits, store)


def _allowed_lateness_us(one: _Resolved) -> int:
    """How far a row of a rule may come behind; a sample of an hour would leave little for the span that is joined."""
    rule = one.rule
    if rule.allowed_lateness is None and rule.quality_options.prefer == SAMPLE:
        return one.topology.span_us
    return microseconds(
        ALLOWED_LATENESS if rule.allowed_lateness is None else rule.allowed_lateness, "`allowed_lateness`"
    )


def _watch(
    given: Sequence[AnyRule],
    columns: Mapping[str, Sequence[str]],
    special: tuple[str, str | None],
    ttl: int,
    *,
    bounded: bool,
) -> Watch:
    rules = [rule for rule in given if isinstance(rule, Rule)]
    silences = tuple(_silence(rule, columns, special) for rule in given if isinstance(rule, NoData))
    resolved = [_resolve(rule, columns, special) for rule in rules]
    stores, home = shared_stores([one.needs for one in resolved])
    if bounded:
        stores = {place: _bounded(store, place, resolved) for place, store in stores.items()}
    order = list(dict.fromkeys(home.values()))
    thresholds = []
    for one in resolved:
        found = {order.index(home[place]): store for place, store in one.needs.items()}
        thresholds.append(_threshold(one, found))
    used = {place[0] for place in order} | {silence.stream for silence in silences}
    streams = tuple(name for name in columns if name in used)
    allowed_lateness = max(map(_allowed_lateness_us, resolved), default=0)
    kept, on = tuple(stores[place] for place in order), tuple(given[0].on)
    watch = Watch(on, streams, kept, tuple(thresholds), allowed_lateness, ttl, silences)
    return with_order(watch, rules)


def _resolve(rule: Rule, columns: Mapping[str, Sequence[str]], special: tuple[str, str | None]) -> _Resolved:
    condition = _condition(rule)
    limits = limits_of(rule, condition, columns)
    named = [limit.variable for limit in limits]
    read = {v.key: column_of(rule, v.key, columns, special) for v in find_variables(condition) if v.key not in named}
    recovery = check_recovery(rule, condition)
    rule = _by_own_names(rule, read)
    needs, topo, proofs = _needs(rule, condition, read, limits)
    return _Resolved(rule, condition, read, topo, needs, proofs, recovery, limits)


def _read(rule: Rule, columns: Mapping[str, Sequence[str]], special: tuple[str, str | None]) -> Read:
    """The columns that a rule reads of each stream; tables of limits are none."""
    found: dict[str, set[str]] = {}
    for variable in find_variables(_condition(rule)):
        if variable.stream not in rule.limits:
            found.setdefault(variable.stream, set()).add(column_of(rule, variable.key, columns, special))
    return frozenset((stream, frozenset(names)) for stream, names in found.items())


def _bounded(store: Store, place: Place, resolved: Sequence[_Resolved]) -> Store:
    """Find the numbers of a store that decide no alarm of any rule; among many rules there are hardly any."""
    readers = [one for one in resolved if place in one.needs]
    if store.alone or store.whole or not 0 < len(readers) <= MOST_BOUNDED:
        return store
    low, high = -math.inf, math.inf
    for one in readers:
        found = one.hopeless(store)
        if found is None:
            return store
        low, high = max(low, found[0]), min(high, found[1])
    return replace(store, hopeless=(low, high)) if low < high else store


def _silence(rule: NoData, columns: Mapping[str, Sequence[str]], special: tuple[str, str | None]) -> Silence:
    check_stream(rule, rule.stream, columns, special)
    return Silence(rule.alert, tuple(sorted(rule.all_labels.items())), rule.stream, rule.for_us)


def _condition(rule: Rule) -> Condition:
    try:
        return parse_condition(rule.expr)
    except ExprError as error:
        raise error.with_place(rule.location) from None


def _needs(
    rule: Rule, condition: Condition, read: Mapping[Key, str], limits: Sequence[Limit]
) -> tuple[dict[Place, Store], Topology, tuple[tuple[str, Verdict], ...]]:
    """The stores of a rule, in stream order, each with the least that this rule needs remembered; and why."""
    streams = list(dict.fromkeys(stream for stream, _ in read))
    if not 1 <= len(streams) <= MOST_STREAMS:
        message = f"{rule.location}: `expr` must read 1 to {MOST_STREAMS} streams; got {len(streams)}"
        raise RuleError(message)
    topo = topology(rule, streams)
    reducible = [stream for i, stream in enumerate(streams) if _may_reduce(rule, topo, i, len(read))]
    readings = prove_readings(rule, condition, read, limits, reducible)
    needs: dict[Place, Store] = {}
    for i, stream in enumerate(streams):
        columns = tuple(dict.fromkeys(column for key, column in read.items() if key[0] == stream))
        store = _store(rule, topo, i, columns, readings[stream])
        alone = store if len(streams) == 1 and store.remember else None
        needs[place_of(store, alone)] = store
    return needs, topo, tuple((name, verdict) for reading in readings.values() for name, verdict in reading.why.items())


def _may_reduce(rule: Rule, topo: Topology, i: int, values: int) -> bool:
    """Tell whether rows of a stream may be left out at all; of a rule of one stream only where a shape is stated."""
    if rule.emit == "all" or topo.interval_us(i) is None:
        return False
    stated = any(shape is not None for shape in rule.shapes.values())
    return len(topo.streams) > 1 or (stated and not _needs_every_row(rule, values))


def _store(rule: Rule, topo: Topology, i: int, columns: tuple[str, ...], reading: Reading) -> Store:
    store = Store(
        topo.streams[i],
        columns,
        hop_us=topo.hop_us,
        closed=rule.closed if topo.hop_us else "both",
        domains=tuple(reading.domains[column] for column in columns) if reading.domains else (),
    )
    interval = topo.interval_us(i)
    if not reading.by or interval is None:
        return replace(store, remember=len(topo.streams) > 1)
    by = () if reading.by == (Variable(store.stream, columns[0]),) else reading.by
    return replace(
        store,
        alone=len(topo.streams) == 1,
        above_us=interval if reading.above else -1,
        below_us=interval if reading.below else -1,
        by=by,
        tolerance=reading.tolerance,
    )


def _needs_every_row(rule: Rule, values: int) -> str:
    """Say why no row of a rule of one stream may be left out, whatever shape it has; nothing if it may."""
    if rule.emit == "all":
        return "`emit: all` needs them"
    if values > 1:
        return "the condition reads several columns"
    if microseconds(rule.for_, "`for`"):
        return "`for` needs them"
    return ""


def _threshold(one: _Resolved, stores: Mapping[int, Store]) -> Threshold:
    rule, topo, read = one.rule, one.topology, one.read
    span = stale = topo.span_us if len(topo.streams) > 1 else topo.window_us
    lag, every_row = 0, ""
    if len(topo.streams) == 1:
        lag = _lag(*stores.values())
        stale = 2 * span if lag else span
        shaped = not lag and any(shape is not None for shape in rule.shapes.values())
        every_row = (_needs_every_row(rule, len(read)) or "the interval is 0") if shaped else ""
    return Threshold(
        alert=rule.alert,
        labels=tuple(sorted((str(name), str(value)) for name, value in rule.labels.items())),
        condition=one.condition,
        stores=tuple(stores),
        needs=tuple(stores.values()),
        columns=tuple(read.items()),
        topology=topo,
        for_us=microseconds(rule.for_, "`for`"),
        keep_us=microseconds(rule.keep_firing_for, "`keep_firing_for`"),
        stale_us=(stale or STALE_US) if rule.stale is None else microseconds(rule.stale, "`stale`"),
        idle_timeout_us=span if rule.idle_timeout is None else microseconds(rule.idle_timeout, "`idle_timeout`"),
        emit=rule.emit,
        is_strict=rule.quality_options.order == STRICT,
        lag_us=lag,
        every_row=every_row,
        domains=tuple(
            (key[0], column, float(domain[0]), float(domain[1]))
            for key, column in read.items()
            if (domain := rule.domains.get(format_variable(key))) is not None
        ),
        recovery=one.recovery,
        limits=one.limits,
        proofs=one.proofs,
        no_wait=needed_wait(rule)[1],
    )


def _lag(store: Store) -> int:
    """How far behind the newest row the rows of a reduced rule of one stream are settled; 0: it is not reduced."""
    # A hopping window may hold two rows that lie its whole length apart.
    return max(store.above_us, store.below_us) + (store.hop_us > 0) if store.remember else 0


def _by_own_names(rule: Rule, read: Mapping[Key, str]) -> Rule:
    """Name what is set of variables as `expr` does; they may be named with their columns too, as the plan does."""
    own = {f"{key[0]}.{column}": format_variable(key) for key, column in read.items()} | {
        format_variable(key): format_variable(key) for key in read
    }
    named: dict[str, Any] = {}
    for field in ("shapes", "domains", "tolerance"):
        mine = named.setdefault(field, {})
        for name, value in getattr(rule, field).items():
            if name not in own:
                names = ", ".join(sorted(map(format_variable, read)))
                message = f"{rule.location}: `{field}` must name variables of `expr` ({names}); got {name!r}"
                raise RuleError(message)
            if own[name] in mine:
                message = (
                    f"{rule.location}: `{field}` must name each variable once; it names `{own[name]}` twice, "
                    f"got {name!r}"
                )
                raise RuleError(message)
            mine[own[name]] = value
    return replace(rule, **named)
