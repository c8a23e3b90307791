"""Resolve: rules and the columns of streams -> Plan. Every mistake that needs no data is found here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tocsin.errors import ExprError, PlanError, RuleError
from tocsin.expr import parse_condition, variables
from tocsin.expr.certify.certificate import Verdict
from tocsin.expr.nodes import Condition, Key, Node, Variable
from tocsin.plan.numbers import check_recovery, limits_of
from tocsin.plan.plan import Plan
from tocsin.plan.prove import Domain, Reading, prove_readings
from tocsin.plan.steps import NEVER_US, Limit, Silence, Store, Threshold, Watch
from tocsin.plan.topology import Topology, topology
from tocsin.rules.durations import Duration, duration_text, microseconds
from tocsin.rules.model import Rule
from tocsin.rules.nearest import nearest
from tocsin.rules.no_data import AnyRule, NoData

T = TypeVar("T")
# What a store is shared by: stream, columns, hopping windows, what rows are compared by, and all of it where a rule
# evaluates what is remembered.
Place = tuple[str, tuple[str, ...], int, str, tuple[Node, ...], Store | None]

Domains = tuple[Domain, ...]

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
        numbers = (check_recovery(rule, condition), limits)
        needs, topo, proofs = _needs(rule, condition, read, limits)
        resolved.append((rule, condition, topo, read, needs, proofs, numbers))
        for place, store in needs.items():
            stores[place] = _share(stores.get(place), store)
    home = {place: _home(place, stores) for place in stores}
    order = list(dict.fromkeys(home.values()))
    thresholds = []
    for rule, condition, topo, read, needs, proofs, (recovery, limits) in resolved:
        found = {order.index(home[place]): store for place, store in needs.items()}
        threshold = _threshold(rule, condition, topo, read, found)
        thresholds.append(replace(threshold, recovery=recovery, limits=limits, proofs=proofs))
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
    """Where a rule finds its rows: with any that remembers the same columns if it remembers none, or that keeps all."""
    same = [other for other in stores if other[:2] == place[:2] and stores[other].remember]
    if not stores[place].remember:
        return same[0] if same else place
    whole = [other for other in same if other[2:4] == place[2:4] and other[5] is None and stores[other].whole]
    return whole[0] if whole and place[5] is None else place


def _needs(
    rule: Rule, condition: Condition, read: Mapping[Key, str], limits: Sequence[Limit]
) -> tuple[dict[Place, Store], Topology, tuple[tuple[str, Verdict], ...]]:
    """The stores of a rule, in stream order, each with the least that this rule needs remembered; and why."""
    streams = list(dict.fromkeys(stream for stream, _ in read))
    if not 1 <= len(streams) <= MOST_STREAMS:
        message = f"{rule.place}: `expr` must read 1 to {MOST_STREAMS} streams; it reads {len(streams)}"
        raise RuleError(message)
    topo = topology(rule, streams)
    _check_names(rule, "shapes", rule.shapes, read)
    _check_names(rule, "domains", rule.domains, read)
    reducible = [stream for i, stream in enumerate(streams) if _may_reduce(rule, topo, i, len(read))]
    readings = prove_readings(rule, condition, read, limits, reducible)
    needs: dict[Place, Store] = {}
    for i, stream in enumerate(streams):
        columns = tuple(dict.fromkeys(column for key, column in read.items() if key[0] == stream))
        store = _store(rule, topo, i, columns, readings[stream])
        alone = store if len(streams) == 1 and store.remember else None
        needs[stream, store.columns, store.hop_us, store.closed if store.hop_us else "", store.by, alone] = store
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
        hopeless=reading.hopeless if len(topo.streams) > 1 else None,
    )


def _needs_every_row(rule: Rule, values: int) -> str:
    """Say why no row of a rule of one stream may be left out, whatever shape it has; nothing if it may."""
    if rule.emit == "all":
        return "it emits all"
    if values > 1:
        return "it reads two values"
    if microseconds(rule.for_, "`for`"):
        return "`for` counts them"
    return ""


def _share(one: Store | None, other: Store) -> Store:
    """Remember what both need: per side the shorter interval; what no rule may leave out is kept whole."""
    if one is None or not one.remember:
        return other
    if not other.remember:
        return one
    if one.whole or other.whole:
        return replace(
            one, above_us=-1, below_us=-1, by=(), hopeless=None, domains=_narrower(one.domains, other.domains)
        )
    return replace(
        one,
        above_us=_shorter(one.above_us, other.above_us),
        below_us=_shorter(one.below_us, other.below_us),
        domains=_narrower(one.domains, other.domains),
        hopeless=_common(one.hopeless, other.hopeless),
        tolerance=min(one.tolerance, other.tolerance),
    )


def _shorter(one: int, other: int) -> int:
    return max(one, other) if min(one, other) < 0 else min(one, other)


def _narrower(one: Domains, other: Domains) -> Domains:
    """Per column what lies in both domains; a store that is not reduced may have none."""
    if not one or not other:
        return one or other
    return tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(one, other, strict=True))


def _common(one: Domain | None, other: Domain | None) -> Domain | None:
    """Numbers that decide no alarm of either."""
    if one is None or other is None:
        return None
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else None


def _threshold(
    rule: Rule, condition: Node, topo: Topology, read: Mapping[Key, str], stores: Mapping[int, Store]
) -> Threshold:
    span = stale = topo.span_us if len(topo.streams) > 1 else topo.window_us
    lag, every_row = 0, ""
    if len(topo.streams) == 1:
        lag = _lag(*stores.values())
        stale = 2 * span if lag else span
        shaped = not lag and any(shape is not None for shape in rule.shapes.values())
        every_row = (_needs_every_row(rule, len(read)) or "it has no interval") if shaped else ""
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
