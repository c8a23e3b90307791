"""The steps of a plan: what is remembered of a stream, what a rule joins and when it alerts, and what shares keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tocsin.expr.certify.certificate import Verdict
from tocsin.expr.certify.domain_boxes import UNBOUNDED
from tocsin.expr.column_evaluation import evaluate_number
from tocsin.expr.syntax_tree import Compare, Key, Node
from tocsin.hashing import fingerprints_as_floats, row_fingerprints, stable_hash
from tocsin.plan.anytime import Anytime
from tocsin.plan.budget import Budget
from tocsin.plan.identity import Identity, Lane, cpu_pipeline_name, memory_pipeline_name, reorder_pipeline_name
from tocsin.plan.order import Order
from tocsin.plan.topology import Topology
from tocsin.rules.durations import duration_text
from tocsin.runtime.context import InputView
from tocsin.runtime.contract import Float
from tocsin.runtime.received_rows import PipelineInputs

DELAY = "events are emitted up to {} later if a stream is slow; set `idle_timeout` of the streams to change this"


@dataclass(frozen=True)
class Store:
    """Remembered rows of one stream: the columns read, and how far apart two rows may lie that excuse one between them.

    Rows are compared `by` numbers made of their columns (none: by their only column). `above_us` serves rules that rise
    with that number, `below_us` those that fall; -1: that side is not needed; both: the stream is kept whole. Rows of
    several numbers are excused by those that are at least as large in all. Numbers within `hopeless` decide no
    alarm, and those closer than `tolerance` may stand for each other: they count as equal. `remember` is False where no
    row is ever a partner. What a rule of one stream evaluates is remembered for it `alone`.
    """

    stream: str
    columns: tuple[str, ...]
    above_us: int = -1
    below_us: int = -1
    hop_us: int = 0
    closed: str = "both"
    domains: tuple[tuple[float, float], ...] = ()
    remember: bool = True
    alone: bool = False
    by: tuple[Node, ...] = ()
    hopeless: tuple[float, float] | None = None
    tolerance: float = 0.0

    @property
    def lane(self) -> Lane:
        """The rows that this store takes: those that have finite values in its columns."""
        return self.stream, self.columns

    @cached_property
    def id(self) -> str:
        """By what its rows are found again."""
        cut: list[object] = []
        if self.alone:
            # Rules of one stream that differ in any of these have stores of their own.
            cut = [self.above_us, self.below_us, self.domains[0] if self.domains else None]
            cut += [self.tolerance] if self.tolerance else []
        by = [str(node) for node in self.by]
        return stable_hash(self.stream, self.columns, self.hop_us, self.closed if self.hop_us else "", cut, *by)

    def outside(self, values: Sequence[Float]) -> NDArray[np.bool_]:
        """Tell which rows have a value outside its declared domain."""
        outside = np.zeros(len(values[0]), np.bool_)
        for value, (low, high) in zip(values, self.domains, strict=False):
            outside |= ~((value >= low) & (value <= high))
        return outside

    def numbers(self, values: Sequence[Float]) -> tuple[list[Float], NDArray[np.bool_]]:
        """The numbers that rows are compared by, and which rows are not: they always stay, and excuse no other."""
        columns: dict[Key, Float] = {
            (self.stream, column): value for column, value in zip(self.columns, values, strict=True)
        }
        numbers = [evaluate_number(node, columns) for node in self.by] or [values[0]]
        apart = self.outside(values)
        if self.by:
            for number in numbers:
                apart |= ~(np.abs(number) <= UNBOUNDED)
        return numbers, apart

    def compared(self, values: Sequence[Float]) -> tuple[list[Float], NDArray[np.bool_]]:
        """The same, with those equal that may stand for each other; a row apart equals one that came again alone."""
        numbers, apart = self.numbers(values)
        numbers = [self._blurred(number) for number in numbers]
        if apart.any():
            unequal = fingerprints_as_floats(row_fingerprints(values, len(apart)))
            numbers = [np.where(apart, unequal, number) for number in numbers]
        return numbers, apart

    def _blurred(self, number: Float) -> Float:
        """Make equal what may stand for each other: a map that never turns the order round."""
        if self.hopeless is not None:
            low, high = self.hopeless
            number = np.where((number >= low) & (number <= high), high if self.below_us < 0 else low, number)
        if self.tolerance:
            number = np.floor(number / self.tolerance)
        return number

    @property
    def whole(self) -> bool:
        """Tell whether nothing is left out."""
        return self.above_us < 0 and self.below_us < 0

    def __str__(self) -> str:
        """Return the retained rows as text."""
        return self._text()

    @property
    def described(self) -> str:
        """The same, with how many rows stay: of independent numbers about two per side, of however many there are."""
        return self._text(f" (about {2 * (self.above_us >= 0) + 2 * (self.below_us >= 0)} rows)")

    def _text(self, expected: str = "") -> str:
        name = f"{self.stream}({', '.join(self.columns)})"
        if not self.remember:
            return f"{name}: stateless"
        if self.whole:
            return f"{name}: unreduced"
        sides = [("maximum", self.above_us), ("minimum", self.below_us)]
        if len(self.by) > 1:
            # No order is total in several numbers: rows that no other row dominates stay.
            sides, expected = [("maximal rows", self.above_us), ("minimal rows", self.below_us)], ""
        by = f" of {' and '.join(map(str, self.by))}" if self.by else ""
        kept = " and ".join(f"the {word}{by} in every {duration_text(us)} window" for word, us in sides if us >= 0)
        hop = f", hopping by {duration_text(self.hop_us)}" if self.hop_us else ""
        return f"{name}: keep {kept}{hop}{expected}{self._equal_text()}"

    def _equal_text(self) -> str:
        """Return the numbers that count as equal as text."""
        text = ""
        if self.hopeless is not None:
            low, high = self.hopeless
            text += f"; values from {low:.6g} to {high:.6g} cannot raise an alarm"
        return text + (f"; values within {self.tolerance:g} count as equal" if self.tolerance else "")


@dataclass(frozen=True)
class Limit:
    """A number that differs per key: the variable that reads it, by which key columns it is found, and the numbers."""

    variable: tuple[str, str | None]
    at: tuple[int, ...]
    numbers: Mapping[tuple[str, ...], float] = field(repr=False)

    def of(self, keys: Iterable[tuple[str, ...]]) -> list[float]:
        """The number of each key; NaN, which makes a condition undefined, where the table has none."""
        return [self.numbers.get(tuple(key[i] for i in self.at), math.nan) for key in keys]

    @property
    def table(self) -> str:
        """The name of the table."""
        return self.variable[0]


@dataclass(frozen=True)
class Threshold:
    """One rule: which stores it joins within which bounds, its condition, and how its alerts live.

    `needs` are the stores as this rule alone would have them; those that it shares may remember more.
    `lag_us` is 0 where rows are evaluated as they arrive. A reduced rule of one stream waits until a row is settled:
    that far behind the newest row of its key, nothing in order can excuse it any more. `every_row` says why a rule of
    one stream is not reduced though its shape is known. `domains` has (stream, column, least, most) as this rule says.
    A firing alert lasts while the value is on the firing side of `recovery`, if there is one. `proofs` say, by what is
    read of each stream, why rows of it may be left out, or why not; `no_wait` why rows do not wait though they might.
    """

    alert: str
    labels: tuple[tuple[str, str], ...]
    condition: Node
    stores: tuple[int, ...]
    needs: tuple[Store, ...]
    columns: tuple[tuple[tuple[str, str | None], str], ...]
    topology: Topology
    for_us: int
    keep_us: int
    stale_us: int
    idle_timeout_us: int
    emit: str
    lag_us: int = 0
    every_row: str = ""
    domains: tuple[tuple[str, str, float, float], ...] = ()
    recovery: float | None = None
    limits: tuple[Limit, ...] = ()
    proofs: tuple[tuple[str, Verdict], ...] = field(default=(), compare=False, repr=False)
    no_wait: str = field(default="", compare=False, repr=False)

    def identity(self, stores: Sequence[Store]) -> Identity:
        """By what its alerts are found again, given the stores of its watch."""
        lanes = tuple(stores[i].lane for i in self.stores)
        read = sorted(f"{name} {column}" for name, column in self.columns)
        meaning = stable_hash(str(self.condition), read, repr(self.topology), self.emit, self.lag_us)
        return Identity(self.alert, self.labels, lanes, meaning)

    @property
    def lines(self) -> list[str]:
        """What is joined and when it alerts; then, for each stream, why rows of it may be left out, or why not."""
        proofs = [f"  {name}: {verdict}" for name, verdict in self.proofs]
        helps = [f"; {verdict.help}" if verdict.help else "" for _, verdict in self.proofs]
        waits = [f"  {self.no_wait}"] if self.no_wait else []
        return [str(self), *waits, *(proof + more for proof, more in zip(proofs, helps, strict=True))]

    @property
    def rounding(self) -> float:
        """How far below 0 the margin of a remembered combination may be where that of one left out is above."""
        return sum(verdict.rounding for _, verdict in self.proofs if verdict.proved)

    def tables_without(self, key: tuple[str, ...]) -> list[str]:
        """The tables of limits that do not have a key."""
        return list(dict.fromkeys(limit.table for limit in self.limits if math.isnan(limit.of([key])[0])))

    def holds(self, value: Float) -> NDArray[np.bool_]:
        """Tell which values are not past the recovery threshold."""
        if self.recovery is None or not isinstance(self.condition, Compare):
            return np.zeros(len(value), np.bool_)
        beyond = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}[self.condition.op]
        holds: NDArray[np.bool_] = beyond(value, self.recovery)
        return holds

    def __str__(self) -> str:
        """Return the condition, the time bound and the alert options as text."""
        times = [("for", self.for_us), ("keep_firing_for", self.keep_us), ("stale", self.stale_us)]
        life = ", ".join(f"{name} {duration_text(us)}" for name, us in times if us)
        if self.emit == "all":
            what = {1: "row", 2: "pair"}.get(len(self.stores), "combination")
            life = f"emits every matching {what}"
        within = f" within {duration_text(self.topology.span_us)}" if self.topology.span_us else ""
        if self.lag_us:
            within = f" on retained rows, delayed by {duration_text(self.lag_us)}"
        life += f"{', ' * bool(life)}recovery {self.recovery:g}" if self.recovery is not None else ""
        why = f"; no row is omitted: {self.every_row}" if self.every_row else ""
        return f'Rule "{self.alert}" if {self.condition}{within} ({life or "fires at once"}){why}'


@dataclass(frozen=True)
class Silence:
    """One stream watched for keys that have no row for longer than `for_us`; nothing is remembered of its rows."""

    alert: str
    labels: tuple[tuple[str, str], ...]
    stream: str
    for_us: int

    @property
    def identity(self) -> Identity:
        """By what its alerts are found again; they go on under another length."""
        return Identity(self.alert, self.labels, ((self.stream, ()),), stable_hash("silence", self.stream))

    def __str__(self) -> str:
        """Return the stream and the time without rows as text."""
        named = "" if self.alert == "NoData" else f', alert "{self.alert}"'
        return f"{self.stream}: a key without rows for {duration_text(self.for_us)}{named}"


@dataclass(frozen=True)
class Watch:
    """All rules with the same key columns that wait alike: rows are sent once, remembered once, joined per rule."""

    on: tuple[str, ...]
    streams: tuple[str, ...]
    stores: tuple[Store, ...]
    rules: tuple[Threshold, ...]
    allowed_lateness_us: int
    key_ttl_us: int
    silences: tuple[Silence, ...] = ()
    order: Order | None = None
    budget: Budget | None = None
    anytime: Anytime | None = None
    # Whether firing alerts have `emitted_us`, their emission time (`operators/lifecycle/emission_times.py`).
    has_emission_times: bool = False

    def columns(self, stream: str) -> list[str]:
        """The value columns that are read of a stream, each once."""
        return sorted({column for lane in self.lanes if lane[0] == stream for column in lane[1]})

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The ways in which streams are read, in order of streams; a row goes into each whose columns it has."""
        found = dict.fromkeys(store.lane for store in self.stores)
        return tuple(sorted(found, key=lambda lane: self.streams.index(lane[0])))

    def inputs(self, number: int) -> PipelineInputs:
        """Return the inputs of the pipeline with this number."""
        views = []
        for lane in self.lanes:
            stores = {i for i, store in enumerate(self.stores) if store.lane == lane}
            rules = dict.fromkeys(rule.alert for rule in self.rules if not stores.isdisjoint(rule.stores))
            names = tuple(self.store_names[i] for i in sorted(stores))
            views.append(InputView(lane[0], tuple(lane[1]), names, tuple(rules)))
        return PipelineInputs(number, self.on, self.streams, tuple(views))

    def read_by_all(self, stream: str) -> set[str]:
        """The value columns of a stream that every rule reads; all others travel as payload of some."""
        read = [set(columns) for name, columns in self.lanes if name == stream]
        return set.intersection(*read) if read else set()

    def is_only_heard(self, stream: str) -> bool:
        """Tell whether no rule reads a stream: it is watched for silence, and only time and key of its rows matter."""
        return all(store.stream != stream for store in self.stores)

    @property
    def counted(self) -> tuple[tuple[str, str], ...]:
        """The names under which rows are counted, each with its stream: the stores, and streams that have none."""
        stores = zip(self.store_names, (store.stream for store in self.stores), strict=True)
        return (*stores, *((name, name) for name in self.streams if self.is_only_heard(name)))

    @property
    def name(self) -> str:
        """By what its pages are found again: key columns; where rows wait, what is read, and how they do.

        Where memory is limited, its rules: whoever shares it may change.
        """
        keys = ",".join(self.on)
        if self.anytime is not None:
            return cpu_pipeline_name(keys, self.apart)
        if self.budget is not None:
            return memory_pipeline_name(keys, sorted(self.rules_found_again))
        if self.order is None:
            return keys
        read = sorted([stream, sorted(columns)] for stream, columns in self.lanes)
        return reorder_pipeline_name(keys, read, self.order.waiting)

    @cached_property
    def apart(self) -> str:
        """By what the pages of its anytime join are found again: all that its rows depend on.

        Whoever shares the join of a run may change; one of a single rule is that rule's.
        """
        assert self.anytime is not None
        anytime, read = self.anytime, [(stream, sorted(columns)) for stream, columns in self.lanes]
        owner = [] if anytime.pooled else [(rule.alert, rule.labels) for rule in self.rules]
        how = repr(anytime.layout), repr(anytime.preference)
        if anytime.guided is not None:
            # What waits are rules and bins by number: of other rules, or other ranges, nothing goes on.
            how = repr(anytime.guided), repr([rule.identity(self.stores).to_json() for rule in self.rules])
        return stable_hash(self.on, read, anytime.window_us, anytime.allowed_lateness_us, *how, owner)

    @property
    def owners(self) -> set[str]:
        """Rules that the state of this watch belongs to."""
        return self.rules_found_again | {silence.identity.id for silence in self.silences}

    @property
    def rules_found_again(self) -> set[str]:
        """By what its rules are found again."""
        return {rule.identity(self.stores).id for rule in self.rules}

    @cached_property
    def store_names(self) -> tuple[str, ...]:
        """How counts name each store: its stream; where a stream has several, with the columns, then all of it."""
        forms = [(store.stream, f"{store.stream}({', '.join(store.columns)})", str(store)) for store in self.stores]
        taken = [[form[i] for form in forms] for i in range(3)]
        names = []
        for number, form in enumerate(forms):
            alone = [form[i] for i in range(3) if taken[i].count(form[i]) == 1]
            # Stores that differ in their domains alone, or in the ends of their windows, are numbered.
            names.append(alone[0] if alone else f"{form[2]} ({taken[2][: number + 1].count(form[2])})")
        return tuple(names)

    def store_lines(self, which: Iterable[int]) -> list[str]:
        """Return one line per store: its retained rows, and the number of rules if several rules share it."""
        lines = []
        for i in which:
            readers = [rule.alert for rule in self.rules if i in rule.stores]
            shared = f"; shared by {len(readers)} rules" if len(readers) > 1 else ""
            lines.append(f"Retention {self.stores[i].described}{shared}")
        return lines

    @cached_property
    def horizon_us(self) -> int:
        """How far behind the newest of its key a row is remembered: any row in time finds its partners and brackets.

        A row that comes behind is merged with what shares a window with what shares a window with it. Were some of that
        forgotten already, the cut into batches would show in what stays.
        """
        spans = [rule.topology.span_us for rule in self.rules]
        reaches = [2 * max(store.above_us, store.below_us) + store.hop_us for store in self.stores]
        return self.allowed_lateness_us + max(spans + reaches, default=0)

    def idle_delay_us(self, rule: Threshold) -> int:
        """Return how long a slow stream can delay the alerts of a rule, or 0 if it cannot delay them."""
        if len(rule.stores) < 2 or rule.emit == "all":
            return 0
        return rule.idle_timeout_us if self.order is None else max(rule.idle_timeout_us, self.order.idle_timeout_us)

    def delay_text(self, rule: Threshold) -> str:
        """Describe the delay by a slow stream, or return an empty text if there is no delay."""
        delay_us = self.idle_delay_us(rule)
        return DELAY.format(duration_text(delay_us)) if delay_us else ""

    def rule_lines(self, rule: Threshold) -> list[str]:
        """Describe a rule of this watch: its alert, the delay by a slow stream, and the proofs."""
        alert, *proofs = rule.lines
        delay = self.delay_text(rule)
        return [alert, *([f"  Delay: {delay}"] if delay else []), *proofs]

    @property
    def head_lines(self) -> list[str]:
        """What holds for all of its rules."""
        keys = f"keyed by {', '.join(self.on)}" if self.on else "without a key (one bucket processes all rows)"
        lines = [
            f"Pipeline {keys}" + (f"; allowed lateness {duration_text(self.allowed_lateness_us)}" if self.rules else "")
        ]
        lines += [f"  Reorder: {self.order}"] if self.order is not None else []
        lines += [f"  Memory: {self.budget}"] if self.budget is not None else []
        lines += [f"  CPU: {self.anytime}"] if self.anytime is not None else []
        guided = None if self.anytime is None else self.anytime.guided
        return lines + ([f"  Index: {guided}"] if guided is not None else [])

    def __str__(self) -> str:
        """Draw the tree."""
        lines = self.head_lines
        lines += [f"  {line}" for line in self.store_lines(range(len(self.stores)))]
        lines += [f"  {line}" for rule in self.rules for line in self.rule_lines(rule)]
        lines += [f"  NoData {silence}" for silence in self.silences]
        return "\n".join(lines)
