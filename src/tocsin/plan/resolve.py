"""Resolve: rules and the columns of streams -> Plan. Every mistake that needs no data is found here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tocsin.errors import ExprError, PlanError, RuleError
from tocsin.expr import parse_condition, variables
from tocsin.expr.nodes import Condition, Key, Node
from tocsin.plan.numbers import check_recovery, limits_of
from tocsin.plan.plan import Plan
from tocsin.plan.steps import NEVER_US, Silence, Store, Threshold, Watch
from tocsin.plan.topology import Topology, topology
from tocsin.rules.durations import Duration, duration_text, microseconds
from tocsin.rules.model import Rule
from tocsin.rules.nearest import nearest
from tocsin.rules.no_data import AnyRule, NoData

T = TypeVar("T")
# What a store is shared by: stream, columns, hopping windows, and all of it where a rule evaluates what is remembered.
Place = tuple[str, tuple[str, ...], int, str, Store | None]

MOST_STREAMS = 8

# Silence that ends an alert where no bound says how far apart its rows may be: that of Prometheus.
STALE_US = 300_000_000


def make_plan(
    rules: AnyRule | Iterable[AnyRule],
    columns: Mapping[str, Sequence[str]],
    *,
    time: str = "ts",
    arrival: str | None = None,
    key_ttl: Duration | None = None,
) -> Plan:
    """Plan rules over streams that have the named columns."""
    rules = tuple(rules) if isinstance(rules, Iterable) else (rules,)
    for rule in rules:
        if not isinstance(rule, Rule | NoData):
            message = f"`rules` must hold Rules; got {type(rule).__name__}"
            raise PlanError(message)
    if not rules:
        message = "`rules` must hold at least one rule; got none"
        raise PlanError(message)
    _check_identities(rules)
    ttl = NEVER_US if key_ttl is None else microseconds(key_ttl, "`key_ttl`")
    _check_time_to_live(rules, ttl)
    groups: dict[tuple[str, ...], list[AnyRule]] = {}
    for rule in rules:
        groups.setdefault(tuple(rule.on), []).append(rule)
    return Plan(tuple(_watch(on, group, columns, (time, arrival), ttl) for on, group in groups.items()))


def _check_identities(rules: Sequence[AnyRule]) -> None:
    """Refuse rules whose alerts could not be told apart: the same name with the same labels."""
    seen = set()
    for rule in rules:
        labels = rule.all_labels if isinstance(rule, NoData) else rule.labels
        identity = (rule.alert, tuple(sorted((str(name), str(text)) for name, text in labels.items())))
        if identity in seen:
            message = f'`rules` must differ in `alert` or `labels`; "{rule.alert}" stands twice with the same'
            raise PlanError(message)
        seen.add(identity)


def _check_time_to_live(rules: Sequence[AnyRule], ttl: int) -> None:
    """Refuse to forget a key before it could be called silent."""
    for rule in rules:
        if isinstance(rule, NoData) and rule.for_us >= ttl:
            message = (
                "`key_ttl` must be longer than `for` of each NoData, else keys are forgotten before they are silent"
            )
            message = f"{message}; got {duration_text(ttl)}, and {rule.place} has {duration_text(rule.for_us)}"
            raise PlanError(message)


def _watch(
    on: tuple[str, ...],
    given: Sequence[AnyRule],
    columns: Mapping[str, Sequence[str]],
    special: tuple[str, str | None],
    ttl: int,
) -> Watch:
    rules = [rule for rule in given if isinstance(rule, Rule)]
    silences = tuple(_silence(rule, columns, special) for rule in given if isinstance(rule, NoData))
    stores: dict[Place, Store] = {}
    resolved = []
    for rule in rules:
        condition = _condition(rule)
        limits = limits_of(rule, condition, columns)
        named = [limit.variable for limit in limits]
        read = {v.key: _column(rule, v.key, columns, special) for v in variables(condition) if v.key not in named}
        needs, topo = _needs(rule, read)
        recovery = check_recovery(rule, condition)
        resolved.append((rule, condition, topo, read, needs, (recovery, limits)))
        for place, store in needs.items():
            stores[place] = _share(stores.get(place), store)
    home = {place: _home(place, stores) for place in stores}
    order = list(dict.fromkeys(home.values()))
    thresholds = []
    for rule, condition, topo, read, needs, (recovery, limits) in resolved:
        found = {order.index(home[place]): store for place, store in needs.items()}
        threshold = _threshold(rule, condition, topo, read, found)
        thresholds.append(replace(threshold, recovery=recovery, limits=limits))
    used = {place[0] for place in order} | {silence.stream for silence in silences}
    streams = tuple(name for name in columns if name in used)
    outage = max((microseconds(rule.outage, "`outage`") for rule in rules), default=0)
    return Watch(on, streams, tuple(stores[place] for place in order), tuple(thresholds), outage, ttl, silences)


def _silence(rule: NoData, columns: Mapping[str, Sequence[str]], special: tuple[str, str | None]) -> Silence:
    _check_stream(rule, rule.stream, columns, special)
    return Silence(rule.alert, tuple(sorted(rule.all_labels.items())), rule.stream, rule.for_us)


def _condition(rule: Rule) -> Condition:
    try:
        return parse_condition(rule.expr)
    except ExprError as error:
        raise error.of(rule.place) from None


def _home(place: Place, stores: Mapping[Place, Store]) -> Place:
    """Where a rule that remembers nothing finds its rows: with any that remembers the same columns, else alone."""
    same = [other for other in stores if other[:2] == place[:2] and stores[other].remember]
    return place if stores[place].remember or not same else same[0]


def _needs(rule: Rule, read: Mapping[Key, str]) -> tuple[dict[Place, Store], Topology]:
    """The stores of a rule, in stream order, each with the least that this rule needs remembered."""
    streams = list(dict.fromkeys(stream for stream, _ in read))
    if not 1 <= len(streams) <= MOST_STREAMS:
        message = f"{rule.place}: `expr` must read 1 to {MOST_STREAMS} streams; it reads {len(streams)}"
        raise RuleError(message)
    topo = topology(rule, streams)
    _check_names(rule, "shapes", rule.shapes, read)
    _check_names(rule, "domains", rule.domains, read)
    needs = {}
    for i, stream in enumerate(streams):
        keys = [key for key in read if key[0] == stream]
        store = _store(rule, topo, i, keys, tuple(dict.fromkeys(read[key] for key in keys)))
        alone = store if len(streams) == 1 and store.remember else None
        needs[stream, store.columns, store.hop_us, store.closed if store.hop_us else "", alone] = store
    return needs, topo


def _store(rule: Rule, topo: Topology, i: int, keys: Sequence[Key], columns: tuple[str, ...]) -> Store:
    store = Store(topo.streams[i], columns, hop_us=topo.hop_us, closed=rule.closed if topo.hop_us else "both")
    domain = _setting(rule.domains, keys[0]) if len(columns) == 1 else None
    if domain is not None:
        store = replace(store, domain=(float(domain[0]), float(domain[1])))
    shape, interval = _setting(rule.shapes, keys[0]), topo.interval_us(i)
    if shape is None or interval is None or _needs_every_row(rule, keys, len(topo.streams)):
        return replace(store, remember=len(topo.streams) > 1)
    return replace(
        store,
        alone=len(topo.streams) == 1,
        above_us=interval if shape != "decreasing" else -1,
        below_us=interval if shape != "increasing" else -1,
    )


def _needs_every_row(rule: Rule, keys: Sequence[Key], streams: int) -> str:
    """Say why no row of a stream may be left out, whatever shape it has; nothing if it may."""
    if rule.emit == "all":
        return "it emits all"
    if len(keys) > 1:
        # A shape speaks of one variable: a stream read through two, even if both read one column, is kept whole.
        return "it reads two values"
    if streams == 1 and microseconds(rule.for_, "`for`"):
        return "`for` counts them"
    return ""


def _share(one: Store | None, other: Store) -> Store:
    """Remember what both need: per side the shorter interval; what no rule may leave out is kept whole."""
    if one is None or not one.remember:
        return other
    if not other.remember:
        return one
    if one.whole or other.whole:
        return replace(one, above_us=-1, below_us=-1, domain=_narrower(one.domain, other.domain))
    return replace(
        one,
        above_us=_shorter(one.above_us, other.above_us),
        below_us=_shorter(one.below_us, other.below_us),
        domain=_narrower(one.domain, other.domain),
    )


def _shorter(one: int, other: int) -> int:
    return max(one, other) if min(one, other) < 0 else min(one, other)


def _narrower(one: tuple[float, float] | None, other: tuple[float, float] | None) -> tuple[float, float] | None:
    if one is None or other is None:
        return one or other
    return max(one[0], other[0]), min(one[1], other[1])


def _threshold(
    rule: Rule, condition: Node, topo: Topology, read: Mapping[Key, str], stores: Mapping[int, Store]
) -> Threshold:
    span = stale = topo.span_us if len(topo.streams) > 1 else topo.window_us
    lag, every_row = 0, ""
    if len(topo.streams) == 1:
        lag = _lag(*stores.values())
        stale = 2 * span if lag else span
        shaped = not lag and any(shape is not None for shape in rule.shapes.values())
        every_row = (_needs_every_row(rule, list(read), 1) or "it has no interval") if shaped else ""
    return Threshold(
        alert=rule.alert,
        labels=tuple(sorted((str(name), str(value)) for name, value in rule.labels.items())),
        condition=condition,
        stores=tuple(stores),
        columns=tuple(read.items()),
        topology=topo,
        for_us=microseconds(rule.for_, "`for`"),
        keep_us=microseconds(rule.keep_firing_for, "`keep_firing_for`"),
        stale_us=(stale or STALE_US) if rule.stale is None else microseconds(rule.stale, "`stale`"),
        idle_us=span if rule.idle is None else microseconds(rule.idle, "`idle`"),
        emit=rule.emit,
        lag_us=lag,
        every_row=every_row,
        domains=tuple(
            (key[0], column, float(domain[0]), float(domain[1]))
            for key, column in read.items()
            if (domain := _setting(rule.domains, key)) is not None
        ),
    )


def _lag(store: Store) -> int:
    """How far behind the newest row the rows of a reduced rule of one stream are settled; 0: it is not reduced."""
    # A hopping window may hold two rows that lie its whole length apart.
    return max(store.above_us, store.below_us) + (store.hop_us > 0) if store.remember else 0


def _check_stream(
    rule: AnyRule, stream: str, columns: Mapping[str, Sequence[str]], special: tuple[str, str | None]
) -> None:
    """Refuse a stream that is not there, or that lacks time, arrival or a key column."""
    if stream not in columns:
        message = f"{rule.place}: `{stream}` must be one of the streams {', '.join(columns)}{nearest(stream, columns)}"
        raise RuleError(message)
    have = list(columns[stream])
    time, arrival = special
    for needed in [time, *rule.on, *([] if arrival is None else [arrival])]:
        if needed not in have:
            what = f"{needed!r} (`arrival`)" if needed == arrival else repr(needed)
            message = f"{rule.place}: stream `{stream}` must have the column {what}; it has {', '.join(have)}"
            raise RuleError(message)


def _column(rule: Rule, key: Key, columns: Mapping[str, Sequence[str]], special: tuple[str, str | None]) -> str:
    """The column that a variable reads."""
    stream, column = key
    _check_stream(rule, stream, columns, special)
    have = columns[stream]
    free = [name for name in have if name not in {*special, *rule.on}]
    if column is not None:
        if column not in free:
            message = f"{rule.place}: stream `{stream}` must have the value column {column!r}; it has {', '.join(free)}"
            raise RuleError(message)
        return column
    if "value" in free or len(free) == 1:
        return "value" if "value" in free else free[0]
    message = (
        f"{rule.place}: `{stream}` must name its column, as in `{stream}.{free[0] if free else 'value'}`; "
        f"the stream has {', '.join(free) or 'no value column'}"
    )
    raise RuleError(message)


def _check_names(rule: Rule, field: str, given: Mapping[str, object], read: Mapping[Key, str]) -> None:
    known = {stream if column is None else f"{stream}.{column}" for stream, column in read}
    for name in given:
        if name not in known:
            names = ", ".join(sorted(known))
            message = f"{rule.place}: `{field}` must name variables of `expr` ({names}); got {name!r}"
            raise RuleError(message)


def _setting(given: Mapping[str, T], key: Key) -> T | None:
    stream, column = key
    return given.get(stream if column is None else f"{stream}.{column}")
