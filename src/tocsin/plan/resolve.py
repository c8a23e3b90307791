"""Resolve: convert rules and the columns of streams to a plan, and collect every error that needs no data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tocsin.errors import Diagnostics
from tocsin.expr.certify.certificate import Verdict
from tocsin.expr.syntax_tree import Variable, format_variable
from tocsin.plan.anytime import MOST_STREAMS as MOST_SPENDING
from tocsin.plan.anytime import anytime_of, spending_of
from tocsin.plan.bind import Bound, bind
from tocsin.plan.bound import hopeless_numbers
from tocsin.plan.divide import divide_run, share_cores, with_budget
from tocsin.plan.group import groups, windows_of, with_order
from tocsin.plan.guided import anytime_of_one
from tocsin.plan.order import needed_wait
from tocsin.plan.plan import Plan
from tocsin.plan.prove import Domain, Reading, prove_readings
from tocsin.plan.ranges import RangeWatch, resolve_ranges
from tocsin.plan.share import Place, place_of, shared_stores
from tocsin.plan.steps import Silence, Store, Threshold, Watch
from tocsin.plan.topology import Topology, topology
from tocsin.rules.durations import MOST_US, Duration, duration_text, microseconds
from tocsin.rules.model import Rule
from tocsin.rules.no_data import AnyRule, NoData
from tocsin.rules.quality import NO_QUALITY, SAMPLE, Cpu, Quality
from tocsin.rules.ranges import RangeRule
from tocsin.rules.scope import Scope

# Of a store that more rules share, it is not asked which numbers decide none of their alarms.
MOST_BOUNDED = 8

# How far a row may lie behind, where no rule says so.
ALLOWED_LATENESS = "1h"
# Silence that ends an alert where no bound says how far apart its rows may be: that of Prometheus.
STALE_US = 300_000_000


@dataclass(frozen=True)
class Planned:
    """Result of planning: the diagnostics, and the plan if all rules could be planned.

    A rule that reads a doubtful stream has neither a plan nor an error.
    """

    plan: Plan | None
    diagnostics: Diagnostics


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
    """Plan rules over streams with the named columns. Raise all errors together."""
    rules = tuple(rules) if isinstance(rules, Iterable) else (rules,)
    ttl = MOST_US if key_ttl is None else microseconds(key_ttl, "`key_ttl`")
    planned = plan_rules(rules, Scope(columns, time, arrival), key_ttl_us=ttl, bounded=bounded, quality=quality)
    planned.diagnostics.raise_errors()
    assert planned.plan is not None
    return planned.plan


def plan_rules(
    rules: Sequence[AnyRule],
    scope: Scope,
    *,
    key_ttl_us: int = MOST_US,
    bounded: bool = True,
    quality: Quality = NO_QUALITY,
) -> Planned:
    """Plan rules over the streams of a scope, and collect all errors. The paths of errors begin at their rule.

    `quality` has the budgets of the run: memory for all joins, and CPU for all rules with `emit: all`. A rule with a
    budget in its own quality block takes no share of them. Without `bounded`, the plan has no values that cannot raise
    an alarm.
    """
    diagnostics = Diagnostics()
    if not rules:
        diagnostics.add("no-rules", [], "`rules` must contain at least one rule; it is empty")
    for rule in rules:
        if not isinstance(rule, Rule | NoData | RangeRule):
            diagnostics.add("wrong-type", [], "`rules` must contain only rules", type(rule).__name__)
    if diagnostics:
        return Planned(None, diagnostics)
    _check_identities(rules, diagnostics)
    _check_time_to_live(rules, key_ttl_us, diagnostics)
    ranges, watched = list[RangeWatch](), list[AnyRule]()
    resolved: dict[int, Resolved | Silence] = {}
    for rule in rules:
        with diagnostics.of(rule.location) as mine:
            if isinstance(rule, RangeRule):
                ranges += resolve_ranges(rule, scope, mine)
                continue
            found = _silence(rule, scope, mine) if isinstance(rule, NoData) else _resolve(rule, scope, mine)
            if found is not None:
                watched.append(rule)
                resolved[id(rule)] = found
    together = groups(watched, lambda rule: _of(resolved, rule).bound.columns, quality.memory, quality.cpu)
    watches = []
    for group in together:
        watch = _watch(
            group, [resolved[id(rule)] for rule in group], scope, key_ttl_us, bounded=bounded and not diagnostics
        )
        watches.append(_limited(watch, group, quality, diagnostics))
    divided = share_cores(divide_run(watches, quality.memory, diagnostics), quality.cpu)
    is_whole = not diagnostics and len(watched) + len(ranges) == len(rules)
    return Planned(Plan(divided, tuple(ranges)) if is_whole else None, diagnostics)


def _of(resolved: Mapping[int, Resolved | Silence], rule: Rule) -> Resolved:
    found = resolved[id(rule)]
    assert isinstance(found, Resolved)
    return found


def _limited(watch: Watch, given: Sequence[AnyRule], quality: Quality, diagnostics: Diagnostics) -> Watch:
    """Return a watch with the budget that its rules share."""
    rules = [rule for rule in given if isinstance(rule, Rule)]
    spending = spending_of(rules[0], _streams_of(watch), quality.cpu) if rules else None
    if spending is not None:
        return _spending(watch, rules, spending, diagnostics)
    if all(len(rule.stores) < 2 for rule in watch.rules):
        limited = next((rule for rule in rules if rule.quality_options.memory is not None), None)
        if limited is not None:
            message = "`quality.memory` needs two or more streams; `expr` reads 1"
            diagnostics.add("stream-count", ["quality", "memory"], message, where=limited.location)
        return watch
    return with_budget(watch, rules, quality.memory, windows_of(watch), diagnostics)


def _spending(watch: Watch, rules: Sequence[Rule], spending: Cpu, diagnostics: Diagnostics) -> Watch:
    """Return a watch that joins or evaluates its rows as far as its CPU budget permits."""
    streams = _streams_of(watch)
    if streams > MOST_SPENDING:
        name = "deadline" if spending.cores is None else "cpu"
        message = f"`quality.{name}` needs one or two streams; `expr` reads {streams}"
        diagnostics.add("stream-count", ["quality", name], message, where=rules[0].location)
        return watch
    if streams == 1:
        one = anytime_of_one(rules, watch, spending)
        return replace(watch, allowed_lateness_us=one.allowed_lateness_us, anytime=one)
    anytime = anytime_of(rules, [rule.topology.span_us for rule in watch.rules], spending)
    ttl_us = watch.key_ttl_us if watch.key_ttl_us < MOST_US else anytime.stay_us
    return replace(watch, allowed_lateness_us=anytime.allowed_lateness_us, key_ttl_us=ttl_us, anytime=anytime)


def _streams_of(watch: Watch) -> int:
    """How many streams the first rule of a watch reads."""
    return len({watch.stores[i].stream for i in watch.rules[0].stores})


def _check_identities(rules: Sequence[AnyRule], diagnostics: Diagnostics) -> None:
    """Reject rules whose alerts could not be told apart: the same name with the same labels."""
    seen = set()
    for rule in rules:
        labels = rule.all_labels if isinstance(rule, NoData) else rule.labels
        identity = (rule.alert, tuple(sorted((str(name), str(text)) for name, text in labels.items())))
        if identity in seen:
            message = f'rules must differ in `alert` or `labels`; "{rule.alert}" has a duplicate'
            diagnostics.add("duplicate-alert", ["alert"], message)
        seen.add(identity)


def _check_time_to_live(rules: Sequence[AnyRule], ttl: int, diagnostics: Diagnostics) -> None:
    """Reject a time to live in which a key expires before its NoData alert can fire."""
    for rule in rules:
        if isinstance(rule, NoData) and rule.for_us >= ttl:
            message = "`key_ttl` must be longer than `for` of each NoData, or keys expire before their alert"
            found = f"{duration_text(ttl)}, and {rule.location} has {duration_text(rule.for_us)}"
            diagnostics.add("out-of-range", ["key_ttl"], message, found)


@dataclass(frozen=True)
class Resolved:
    """A bound rule with its join graph, its stores and the proofs of their reduction."""

    bound: Bound
    topology: Topology
    needs: Mapping[Place, Store]
    proofs: tuple[tuple[str, Verdict], ...]

    @property
    def rule(self) -> Rule:
        """The rule."""
        return self.bound.rule

    def hopeless(self, store: Store) -> Domain | None:
        """Values of a store that decide none of its alarms."""
        bound = self.bound
        return hopeless_numbers(bound.rule, bound.condition, bound.read, bound.limits, store)


def _allowed_lateness_us(one: Resolved) -> int:
    """How far a row of a rule may come behind; a sample of an hour would leave little for the span that is joined."""
    rule = one.rule
    if rule.allowed_lateness is None and rule.quality_options.prefer == SAMPLE:
        return one.topology.span_us
    return microseconds(
        ALLOWED_LATENESS if rule.allowed_lateness is None else rule.allowed_lateness, "`allowed_lateness`"
    )


def _watch(
    given: Sequence[AnyRule], found: Sequence[Resolved | Silence], scope: Scope, ttl: int, *, bounded: bool
) -> Watch:
    rules = [rule for rule in given if isinstance(rule, Rule)]
    silences = tuple(one for one in found if isinstance(one, Silence))
    resolved = [one for one in found if isinstance(one, Resolved)]
    stores, home = shared_stores([one.needs for one in resolved])
    if bounded:
        stores = {place: _bounded(store, place, resolved) for place, store in stores.items()}
    order = list(dict.fromkeys(home.values()))
    thresholds = []
    for one in resolved:
        mine = {order.index(home[place]): store for place, store in one.needs.items()}
        thresholds.append(_threshold(one, mine))
    used = {place[0] for place in order} | {silence.stream for silence in silences}
    streams = tuple(name for name in scope.columns if name in used)
    allowed_lateness = max(map(_allowed_lateness_us, resolved), default=0)
    kept, on = tuple(stores[place] for place in order), tuple(given[0].on)
    watch = Watch(on, streams, kept, tuple(thresholds), allowed_lateness, ttl, silences)
    return with_order(watch, rules)


def _resolve(rule: Rule, scope: Scope, diagnostics: Diagnostics) -> Resolved | None:
    bound = bind(rule, scope, diagnostics)
    if bound is None:
        return None
    topo = topology(bound.rule, bound.streams, diagnostics)
    needs, proofs = _needs(bound, topo, diagnostics)
    return Resolved(bound, topo, needs, proofs)


def _bounded(store: Store, place: Place, resolved: Sequence[Resolved]) -> Store:
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


def _silence(rule: NoData, scope: Scope, diagnostics: Diagnostics) -> Silence | None:
    if not scope.check_stream(diagnostics, rule.stream, rule.on, path=["stream"]):
        return None
    return Silence(rule.alert, tuple(sorted(rule.all_labels.items())), rule.stream, rule.for_us)


def _needs(
    bound: Bound, topo: Topology, diagnostics: Diagnostics
) -> tuple[dict[Place, Store], tuple[tuple[str, Verdict], ...]]:
    """Return the stores of a rule in stream order, each with the least that this rule needs, and the proofs of it."""
    rule, read = bound.rule, bound.read
    reducible = [stream for i, stream in enumerate(topo.streams) if _may_reduce(rule, topo, i, len(read))]
    readings = prove_readings(rule, bound.condition, read, bound.limits, reducible, diagnostics)
    needs: dict[Place, Store] = {}
    for i, stream in enumerate(topo.streams):
        columns = tuple(dict.fromkeys(column for key, column in read.items() if key[0] == stream))
        store = _store(rule, topo, i, columns, readings[stream])
        alone = store if len(topo.streams) == 1 and store.remember else None
        needs[place_of(store, alone)] = store
    return needs, tuple((name, verdict) for reading in readings.values() for name, verdict in reading.why.items())


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


def _threshold(one: Resolved, stores: Mapping[int, Store]) -> Threshold:
    rule, topo, read = one.rule, one.topology, one.bound.read
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
        condition=one.bound.condition,
        stores=tuple(stores),
        needs=tuple(stores.values()),
        columns=tuple(read.items()),
        topology=topo,
        for_us=microseconds(rule.for_, "`for`"),
        keep_us=microseconds(rule.keep_firing_for, "`keep_firing_for`"),
        stale_us=(stale or STALE_US) if rule.stale is None else microseconds(rule.stale, "`stale`"),
        idle_timeout_us=span if rule.idle_timeout is None else microseconds(rule.idle_timeout, "`idle_timeout`"),
        emit=rule.emit,
        lag_us=lag,
        every_row=every_row,
        domains=tuple(
            (key[0], column, float(domain[0]), float(domain[1]))
            for key, column in read.items()
            if (domain := rule.domains.get(format_variable(key))) is not None
        ),
        recovery=one.bound.recovery,
        limits=one.bound.limits,
        proofs=one.proofs,
        no_wait=needed_wait(rule)[1],
    )


def _lag(store: Store) -> int:
    """How far behind the newest row the rows of a reduced rule of one stream are settled; 0: it is not reduced."""
    # A hopping window may hold two rows that lie its whole length apart.
    return max(store.above_us, store.below_us) + (store.hop_us > 0) if store.remember else 0
